//! The parameters of a [`FrontEnd`](super::FrontEnd), and what follows from them.

use std::f64::consts::LN_10;

use crate::{
    dtype::Dtype,
    transform::{
        form::Form,
        spectrogram::{FLOOR, Pointwise, SpectrogramConfig},
    },
};

/// What is done to the waveform before frames are cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conditioning {
    /// Subtracts the mean.
    pub remove_mean: bool,
    /// Brings the waveform to a level.
    pub level: Level,
    /// Multiplies each sample.
    pub scale: f32,
    /// `y[t] = x[t] - preemphasis * x[t - 1]`; 0 for none.
    pub preemphasis: f32,
    /// With preemphasis: leaves the first sample out, which has none before it. Otherwise it is kept as it
    /// is.
    pub drops_first: bool,
}

/// A level of waveforms.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Level {
    /// As it is.
    #[default]
    Unchanged,
    /// The largest absolute sample becomes this; silence stays.
    Peak(f32),
    /// Mean 0, variance 1: `(x - mean) / sqrt(variance + 1e-7)`, as in transformers' Wav2Vec2 extractor.
    ZScore,
}

impl Default for Conditioning {
    fn default() -> Self {
        Self { remove_mean: false, level: Level::Unchanged, scale: 1.0, preemphasis: 0.0, drops_first: false }
    }
}

/// The function of the energies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Compression {
    /// The energies themselves.
    None,
    /// `ln(max(x, floor))`.
    LnFloor(f32),
    /// `ln(x + eps)`.
    LnPlus(f32),
    /// `log10(max(x, floor))`, raised to the largest value of the example less `range`: Whisper's.
    Log10 {
        /// The least energy.
        floor: f32,
        /// The distance of the least value to the largest.
        range: Option<f32>,
    },
    /// `10 log10(max(x, amin) / max(reference, amin))`, 20 for magnitudes, raised to the largest value of the
    /// example less `top_db`: torchaudio's `AmplitudeToDB`, for each example by itself.
    Decibel {
        /// The energy or magnitude of 0 dB; `None`: the largest of the example.
        reference: Option<f32>,
        /// The least energy or magnitude.
        amin: f32,
        /// The distance of the least value to the largest.
        top_db: Option<f32>,
    },
    /// Per-channel energy normalization (Wang et al., 2017): with `m[t] = (1 - smooth) m[t - 1] + smooth
    /// x[t]`, `(x / (eps + m)^gain + bias)^root - bias^root`.
    Pcen {
        /// The weight of a new frame in the smoothed energy.
        smooth: f32,
        /// The exponent of the smoothed energy.
        gain: f32,
        /// The offset under the root.
        bias: f32,
        /// The exponent of compression.
        root: f32,
        /// Added to the smoothed energy.
        eps: f32,
        /// The smoothed energy before the first frame; `None`: the first frame's energy.
        initial: Option<f32>,
    },
}

/// Cepstral coefficients: a DCT-II of the bands of each frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cepstrum {
    /// Their number, at most that of the bands.
    pub n_mfcc: usize,
    /// Whether the DCT is orthonormal; otherwise the factor is 2, as in torchaudio.
    pub is_ortho: bool,
    /// Coefficient `i` is multiplied by `1 + lifter / 2 * sin(pi (i + 1) / lifter)`, as in librosa; 0 for
    /// none.
    pub lifter: f64,
}

/// The values of frames behind the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Fill {
    /// Those of a waveform of zeros.
    #[default]
    Silence,
    /// The least value of the example.
    Minimum,
    /// A number, before normalization.
    Number(f32),
}

/// The last step of values.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Normalization {
    /// None.
    #[default]
    None,
    /// `(x - mean) / (factor * std)`, with one mean and std, or one for each band.
    Standard {
        /// Means.
        mean: Vec<f64>,
        /// Standard deviations.
        std: Vec<f64>,
        /// A factor of all standard deviations: 2 in AST.
        factor: f64,
    },
    /// The least value of the example becomes 0, the largest 1; constant examples become 0.
    MinMax,
    /// `(x - mean) / (std + eps)` with the example's mean and standard deviation. Filled frames become 0.
    ZScore {
        /// By band, or over all values.
        per_band: bool,
        /// The sum of squares is divided by the number of values less this.
        ddof: u8,
        /// Added to the standard deviation.
        eps: f64,
    },
}

/// The parameters of a [`FrontEnd`](super::FrontEnd).
#[derive(Debug, Clone, PartialEq)]
pub struct FrontEndConfig {
    /// Of the waveform.
    pub conditioning: Conditioning,
    /// Frames, spectrum and bands; `pointwise` and `affine` are chosen by the compression.
    pub spectrogram: SpectrogramConfig,
    /// The function of the energies.
    pub compression: Compression,
    /// Cepstral coefficients instead of bands.
    pub cepstrum: Option<Cepstrum>,
    /// Frames behind the last one.
    pub fill: Fill,
    /// The last step of values.
    pub normalization: Normalization,
    /// Type, layout and number of frames.
    pub form: Form,
}

impl Default for FrontEndConfig {
    fn default() -> Self {
        Self {
            conditioning: Conditioning::default(),
            spectrogram: SpectrogramConfig::default(),
            compression: Compression::LnFloor(FLOOR),
            cepstrum: None,
            fill: Fill::default(),
            normalization: Normalization::default(),
            form: Form::default(),
        }
    }
}

impl FrontEndConfig {
    /// The function of each energy, and the factor and summand that follow it.
    pub(super) fn pointwise(&self) -> (Pointwise, f64, f64) {
        match self.compression {
            Compression::None | Compression::Pcen { .. } => (Pointwise::Linear, 1.0, 0.0),
            Compression::LnFloor(floor) => (Pointwise::LnFloor(floor), 1.0, 0.0),
            Compression::LnPlus(eps) => (Pointwise::LnPlus(eps), 1.0, 0.0),
            Compression::Log10 { floor, .. } => (Pointwise::LnFloor(floor), 1.0 / LN_10, 0.0),
            Compression::Decibel { reference, amin, .. } => {
                let factor = if self.spectrogram.power == 1.0 { 20.0 } else { 10.0 };
                let zero = reference.map_or(0.0, |zero| factor * f64::from(zero.max(amin)).log10());
                (Pointwise::LnFloor(amin), factor / LN_10, -zero)
            }
        }
    }

    /// The distance of the least value to the largest of an example.
    pub(super) fn range(&self) -> Option<f32> {
        match self.compression {
            Compression::Log10 { range, .. } => range,
            Compression::Decibel { top_db, .. } => top_db,
            _ => None,
        }
    }

    /// Whether each value depends on its own energy only.
    pub(super) fn is_single_pass(&self) -> bool {
        self.range().is_none()
            && !matches!(self.compression, Compression::Pcen { .. })
            && !matches!(self.compression, Compression::Decibel { reference: None, .. })
            && self.cepstrum.is_none()
            && self.fill != Fill::Minimum
            && matches!(self.normalization, Normalization::None | Normalization::Standard { .. })
    }

    /// Values of a frame.
    pub fn n_rows(&self) -> usize {
        self.cepstrum.map_or(self.spectrogram.n_bands(), |cepstrum| cepstrum.n_mfcc)
    }

    /// Factor and summand of the normalization of each row, if it has fixed ones.
    pub(super) fn standard(&self) -> Option<Vec<(f64, f64)>> {
        let Normalization::Standard { mean, std, factor } = &self.normalization else { return None };
        let n = mean.len().max(std.len());
        let one = |values: &[f64], i: usize| values[i % values.len()];
        Some((0..n).map(|i| (one(mean, i), factor * one(std, i))).map(|(m, s)| (1.0 / s, -m / s)).collect())
    }

    /// The problems of the values, apart from the spectrogram's, one sentence each.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |is_fine: bool, message: String| problems.extend((!is_fine).then_some(message));
        let Conditioning { level, scale, preemphasis, .. } = self.conditioning;
        check(
            scale.is_finite() && scale > 0.0,
            format!(
                "scale is {scale:?}, must be above 0 and finite; 32768 for models that expect int16 samples"
            ),
        );
        check((0.0..=1.0).contains(&preemphasis), format!("preemphasis is {preemphasis:?}, must be 0 to 1"));
        if let Level::Peak(peak) = level {
            check(peak.is_finite() && peak > 0.0, format!("peak is {peak:?}, must be above 0 and finite"));
        }
        match self.compression {
            Compression::Log10 { range: Some(range), .. } => {
                check(range > 0.0, format!("range is {range:?}, must be above 0"));
            }
            Compression::Decibel { reference, top_db, .. } => {
                if let Some(reference) = reference {
                    check(reference > 0.0, format!("reference is {reference:?}, must be above 0"));
                }
                if let Some(top_db) = top_db {
                    check(top_db > 0.0, format!("top_db is {top_db:?}, must be above 0"));
                }
            }
            Compression::Pcen { smooth, gain, bias, root, eps, initial } => {
                check(
                    smooth > 0.0 && smooth <= 1.0,
                    format!("smooth is {smooth:?}, must be above 0, at most 1"),
                );
                check(gain >= 0.0, format!("gain is {gain:?}, must be 0 or more"));
                check(bias >= 0.0, format!("bias is {bias:?}, must be 0 or more"));
                check(root > 0.0, format!("root is {root:?}, must be above 0"));
                check(eps > 0.0, format!("eps is {eps:?}, must be above 0"));
                if let Some(initial) = initial {
                    check(initial >= 0.0, format!("initial is {initial:?}, must be 0 or more"));
                }
            }
            _ => {}
        }
        if let Some(Cepstrum { n_mfcc, lifter, .. }) = self.cepstrum {
            let n_mels = self.spectrogram.n_bands();
            check(
                (1..=n_mels).contains(&n_mfcc),
                format!("n_mfcc is {n_mfcc}, must be 1 to n_mels, {n_mels}"),
            );
            check(lifter >= 0.0 && lifter.is_finite(), format!("lifter is {lifter:?}, must be 0 or more"));
        }
        if let Fill::Number(number) = self.fill {
            check(number.is_finite(), format!("fill is {number:?}, must be finite"));
        }
        match &self.normalization {
            Normalization::Standard { mean, std, factor } => {
                let n_rows = self.n_rows();
                for (name, values) in [("mean", mean), ("std", std)] {
                    check(
                        values.len() == 1 || values.len() == n_rows,
                        format!(
                            "{name} has {} numbers, must be one, or one for each of {n_rows} bands",
                            values.len()
                        ),
                    );
                }
                if let Some(mean) = mean.iter().find(|mean| !mean.is_finite()) {
                    check(false, format!("mean is {mean:?}, must be finite"));
                }
                if let Some(std) = std.iter().find(|&&std| !(std.is_finite() && std > 0.0)) {
                    check(false, format!("std is {std:?}, must be above 0 and finite"));
                }
                check(
                    factor.is_finite() && *factor > 0.0,
                    format!("factor is {factor:?}, must be above 0 and finite"),
                );
            }
            Normalization::ZScore { eps, ddof, .. } => {
                check(*eps >= 0.0 && eps.is_finite(), format!("eps is {eps:?}, must be 0 or more"));
                check(*ddof <= 1, format!("ddof is {ddof}, must be 0 or 1"));
            }
            _ => {}
        }
        check(
            self.form.dtype != Dtype::Int16,
            "dtype is \"int16\", which only Waveform has; use \"float32\", \"float16\" or \"bfloat16\""
                .to_owned(),
        );
        let is_open = matches!(self.compression, Compression::None) && self.cepstrum.is_none();
        check(
            !(is_open && self.form.dtype == Dtype::Float16),
            "dtype is \"float16\", which ends at 65504: energies without compression may be larger; use \
             \"float32\" or \"bfloat16\", or a compression"
                .to_owned(),
        );
        problems
    }
}
