//! The parameters of a [`FrontEnd`](super::FrontEnd), and what follows from them.

use std::{f64::consts::LN_10, fmt::Debug, ops::RangeInclusive};

use crate::{
    dtype::Dtype,
    error::shown,
    form::Form,
    spectrogram::{FLOOR, Pointwise, SpectrogramConfig},
};

/// What is done to the waveform before frames are cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conditioning {
    /// Subtracts the mean of the clip from each sample.
    pub remove_mean: bool,
    /// Brings the waveform to a level.
    pub level: WaveformLevel,
    /// A factor of all samples, after the level.
    pub scale: f32,
    /// `y[t] = x[t] - preemphasis * x[t - 1]`; 0 for none.
    pub preemphasis: f32,
    /// With preemphasis: leaves the first sample out, which has none before it. Otherwise it is kept as it
    /// is.
    pub drops_first: bool,
}

/// The level that a waveform is brought to, clip by clip.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum WaveformLevel {
    /// The level of the recording stays.
    #[default]
    Unchanged,
    /// The largest absolute sample becomes this; silence stays.
    Peak(f32),
    /// Mean 0, variance 1: `(x - mean) / sqrt(variance + 1e-7)`, as in transformers' Wav2Vec2 extractor.
    ZScore,
}

impl Default for Conditioning {
    fn default() -> Self {
        Self {
            remove_mean: false,
            level: WaveformLevel::Unchanged,
            scale: 1.0,
            preemphasis: 0.0,
            drops_first: false,
        }
    }
}

/// The function that makes values of energies, or of magnitudes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SpectrumCompression {
    /// The energies or magnitudes as they are.
    None,
    /// `ln(max(x, floor))`: lower energies are raised to this floor.
    LnFloor(f32),
    /// `ln(x + eps)`, with this `eps`.
    LnPlus(f32),
    /// `log10(max(x, floor))`, raised to the largest value of the example less `range`: Whisper's.
    Log10 {
        /// The least energy or magnitude before the logarithm.
        floor: f32,
        /// The distance of the least value to the largest.
        range: Option<f32>,
    },
    /// `10 log10(max(x, amin) / max(reference, amin))`, 20 for magnitudes, raised to the largest value of the
    /// example less `top_db`: torchaudio's `AmplitudeToDB`, for each example by itself.
    Decibel {
        /// The energy or magnitude of 0 dB; `None`: the largest of the example.
        reference: Option<f32>,
        /// The least energy or magnitude before the logarithm.
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
        /// Added under the root, and its root subtracted again.
        bias: f32,
        /// The exponent of the normalized energy.
        root: f32,
        /// Added to the smoothed energy, against a division by 0.
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
pub enum PadValue {
    /// Those of a waveform of zeros.
    #[default]
    Silence,
    /// The least value of the example.
    Minimum,
    /// This number, which the normalization changes like any value.
    Number(f32),
}

/// The last step: brings values to a common range.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Normalization {
    /// The values stay as they are.
    #[default]
    None,
    /// `(x - mean) / (factor * std)`, with one mean and std, or one for each band.
    Standard {
        /// One mean, or one for each band.
        mean: Vec<f64>,
        /// One standard deviation, or one for each band.
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
        /// Added to the standard deviation, against a division by 0.
        eps: f64,
    },
}

/// All parameters of a [`FrontEnd`](super::FrontEnd), in the order of the steps.
#[derive(Debug, Clone, PartialEq)]
pub struct FrontEndConfig {
    /// What is done to the waveform by itself.
    pub conditioning: Conditioning,
    /// Frames, spectrum and bands; `pointwise` and `affine` are chosen by the compression.
    pub spectrogram: SpectrogramConfig,
    /// The function of each energy, and its limits.
    pub compression: SpectrumCompression,
    /// The DCT of each frame's bands; `None`: the bands are the features.
    pub cepstrum: Option<Cepstrum>,
    /// What frames behind the last one hold.
    pub fill: PadValue,
    /// What is done to the values last.
    pub normalization: Normalization,
    /// Type, layout and number of frames.
    pub form: Form,
}

impl Default for FrontEndConfig {
    fn default() -> Self {
        Self {
            conditioning: Conditioning::default(),
            spectrogram: SpectrogramConfig::default(),
            compression: SpectrumCompression::LnFloor(FLOOR),
            cepstrum: None,
            fill: PadValue::default(),
            normalization: Normalization::default(),
            form: Form::default(),
        }
    }
}

impl FrontEndConfig {
    /// The function of each energy, and the factor and summand that follow it.
    pub(super) fn pointwise(&self) -> (Pointwise, f64, f64) {
        // A value out of its range, which `problems` tells, must not cause another problem.
        if self.compression.least().is_some_and(|(_, least)| !LEAST.contains(&least)) {
            return (Pointwise::default(), 1.0, 0.0);
        }
        match self.compression {
            SpectrumCompression::None | SpectrumCompression::Pcen { .. } => (Pointwise::Linear, 1.0, 0.0),
            SpectrumCompression::LnFloor(floor) => (Pointwise::LnFloor(floor), 1.0, 0.0),
            SpectrumCompression::LnPlus(eps) => (Pointwise::LnPlus(eps), 1.0, 0.0),
            SpectrumCompression::Log10 { floor, .. } => (Pointwise::LnFloor(floor), 1.0 / LN_10, 0.0),
            SpectrumCompression::Decibel { reference, amin, .. } => {
                let factor = if self.spectrogram.power == 1.0 { 20.0 } else { 10.0 };
                let zero = reference.map_or(0.0, |zero| factor * f64::from(zero.max(amin)).log10());
                (Pointwise::LnFloor(amin), factor / LN_10, -zero)
            }
        }
    }

    /// The distance of the least value to the largest of an example.
    pub(super) fn range(&self) -> Option<f32> {
        match self.compression {
            SpectrumCompression::Log10 { range, .. } => range,
            SpectrumCompression::Decibel { top_db, .. } => top_db,
            _ => None,
        }
    }

    /// Whether each value depends on its own energy only.
    pub(super) fn is_single_pass(&self) -> bool {
        self.is_by_frame() && self.cepstrum.is_none() && self.fill != PadValue::Minimum
    }

    /// Whether the values of a frame do not depend on other frames.
    pub(crate) fn is_by_frame(&self) -> bool {
        self.range().is_none()
            && !matches!(self.compression, SpectrumCompression::Pcen { .. })
            && !matches!(self.compression, SpectrumCompression::Decibel { reference: None, .. })
            && matches!(self.normalization, Normalization::None | Normalization::Standard { .. })
    }

    /// Values of a frame: bands, or cepstral coefficients.
    pub fn n_rows(&self) -> usize {
        self.cepstrum.map_or(self.spectrogram.n_bands(), |cepstrum| cepstrum.n_mfcc)
    }

    /// Factor and summand of the normalization of each row, if it has fixed ones.
    pub(super) fn standard(&self) -> Option<Vec<(f64, f64)>> {
        let Normalization::Standard { mean, std, factor } = &self.normalization else { return None };
        if mean.is_empty() || std.is_empty() {
            return None;
        }
        let n = mean.len().max(std.len());
        let one = |values: &[f64], i: usize| values[i % values.len()];
        Some((0..n).map(|i| (one(mean, i), factor * one(std, i))).map(|(m, s)| (1.0 / s, -m / s)).collect())
    }

    /// The problems of the values, apart from the spectrogram's, one sentence each.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = self.conditioning.problems();
        problems.extend(self.compression.problems());
        if let Some(Cepstrum { n_mfcc, lifter, .. }) = self.cepstrum {
            let n_mels = self.spectrogram.n_bands();
            if !(1..=n_mels).contains(&n_mfcc) {
                problems.push(format!("n_mfcc is {n_mfcc}, must be 1 to n_mels, {n_mels}"));
            }
            problems.extend(not_negative("lifter", lifter));
        }
        if let PadValue::Number(number) = self.fill {
            problems.extend(finite("fill", number));
        }
        problems.extend(self.normalization.problems());
        if let Normalization::Standard { mean, std, .. } = &self.normalization {
            let n_rows = self.n_rows();
            for (name, n) in [("mean", mean.len()), ("std", std.len())] {
                if ![0, 1, n_rows].contains(&n) {
                    problems.push(format!(
                        "{name} has {n} numbers, must be one, or one for each of {n_rows} bands"
                    ));
                }
            }
        }
        if self.form.dtype == Dtype::Int16 {
            problems.push("dtype is \"int16\", which only Waveform has; use \"float32\"".to_owned());
        }
        let is_open = matches!(self.compression, SpectrumCompression::None) && self.cepstrum.is_none();
        if is_open && self.form.dtype == Dtype::Float16 {
            problems.push(
                "dtype is \"float16\", which ends at 65504: energies without compression may be larger; use \
                 \"float32\" or \"bfloat16\", or a compression"
                    .to_owned(),
            );
        }
        problems
    }
}

impl Conditioning {
    /// The problems of the values, one sentence each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(problem) = positive("scale", self.scale) {
            problems.push(format!("{problem}; 32768 for models that expect int16 samples"));
        }
        if !(0.0..=1.0).contains(&self.preemphasis) {
            problems.push(format!("preemphasis is {:?}, must be 0 to 1", self.preemphasis));
        }
        problems.extend(self.level.problem());
        problems
    }
}

impl WaveformLevel {
    /// The problem of the value, if there is one.
    pub fn problem(&self) -> Option<String> {
        match *self {
            Self::Peak(peak) => positive("peak", peak),
            Self::Unchanged | Self::ZScore => None,
        }
    }
}

impl SpectrumCompression {
    /// The least energy, by its name.
    fn least(&self) -> Option<(&'static str, f32)> {
        match *self {
            Self::LnFloor(floor) | Self::Log10 { floor, .. } => Some(("floor", floor)),
            Self::LnPlus(eps) => Some(("eps", eps)),
            Self::Decibel { amin, .. } => Some(("amin", amin)),
            Self::None | Self::Pcen { .. } => None,
        }
    }

    /// The problems of the values, one sentence each.
    pub fn problems(&self) -> Vec<String> {
        let range = |name, value: Option<f32>| {
            let value = value.filter(|value| value.is_nan() || *value <= 0.0)?;
            Some(format!("{name} is {value:?}, must be above 0"))
        };
        let least = self.least().filter(|(_, least)| !LEAST.contains(least));
        let least = least.map(|(name, least)| {
            format!("{name} is {least:?}, must be {:?} to {:?}", LEAST.start(), LEAST.end())
        });
        let others = match *self {
            Self::Log10 { range: distance, .. } => vec![range("range", distance)],
            Self::Decibel { reference, top_db, .. } => {
                vec![
                    reference.and_then(|reference| positive("reference", reference)),
                    range("top_db", top_db),
                ]
            }
            Self::Pcen { smooth, gain, bias, root, eps, initial } => vec![
                (!(smooth > 0.0 && smooth <= 1.0))
                    .then(|| format!("smooth is {smooth:?}, must be above 0, at most 1")),
                not_negative("gain", gain),
                not_negative("bias", bias),
                positive("root", root),
                positive("eps", eps),
                initial.and_then(|initial| not_negative("initial", initial)),
            ],
            Self::None | Self::LnFloor(_) | Self::LnPlus(_) => Vec::new(),
        };
        least.into_iter().chain(others.into_iter().flatten()).collect()
    }
}

impl Normalization {
    /// The problem of a `ddof`, regardless of the type that stores it.
    pub fn wrong_ddof(ddof: i64) -> Option<String> {
        (!(0..=1).contains(&ddof)).then(|| format!("ddof is {}, must be 0 or 1", shown(ddof)))
    }

    /// The problems of the values for any number of bands, one sentence each.
    pub fn problems(&self) -> Vec<String> {
        match self {
            Self::None | Self::MinMax => Vec::new(),
            Self::Standard { mean, std, factor } => {
                let (n_mean, n_std) = (mean.len(), std.len());
                let n_wrong = n_mean == 0 || n_std == 0 || n_mean.min(n_std) != 1 && n_mean != n_std;
                let counts = n_wrong.then(|| {
                    format!("mean has {n_mean} numbers and std {n_std}, must be one, or one for each band")
                });
                let mean = mean.iter().find_map(|&mean| finite("mean", mean));
                let std = std.iter().find_map(|&std| positive("std", std));
                [counts, mean, std, positive("factor", *factor)].into_iter().flatten().collect()
            }
            Self::ZScore { ddof, eps, .. } => {
                [Self::wrong_ddof((*ddof).into()), not_negative("eps", *eps)].into_iter().flatten().collect()
            }
        }
    }
}

/// The least energies that a logarithm may get.
const LEAST: RangeInclusive<f32> = f32::MIN_POSITIVE..=1e30;

fn finite(name: &str, value: impl Into<f64> + Copy + Debug) -> Option<String> {
    (!value.into().is_finite()).then(|| format!("{name} is {value:?}, must be finite"))
}

fn positive(name: &str, value: impl Into<f64> + Copy + Debug) -> Option<String> {
    let is_fine = value.into().is_finite() && value.into() > 0.0;
    (!is_fine).then(|| format!("{name} is {value:?}, must be above 0 and finite"))
}

fn not_negative(name: &str, value: impl Into<f64> + Copy + Debug) -> Option<String> {
    let is_fine = value.into().is_finite() && value.into() >= 0.0;
    (!is_fine).then(|| format!("{name} is {value:?}, must be 0 or more, and finite"))
}
