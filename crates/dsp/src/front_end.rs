//! Front ends: how a waveform becomes the input of a model.
//!
//! Input: a waveform `[n_samples]`. Output: features in their final type, layout and length. The steps are
//! those of `docs/features.md`: conditioning of the waveform, frames, spectrum and mel bands (see
//! [`SpectrogramTransform`]), compression, cepstrum, number of frames, normalization. Where each value
//! depends on its own energy only, one pass computes it and writes it in place. Steps that need the whole
//! example (a range below its maximum, its minimum, its mean, PCEN, a cepstrum) run on a frame-major copy in
//! the scratch memory: see `second_pass`. Sources of the definitions: with each type.

use super::{
    form::{Form, Layout},
    spectrogram::{Affine, SpectrogramConfig, SpectrogramScratch, SpectrogramTransform},
    sums::{mean, reduce},
};
use crate::{
    Error, ErrorKind, Result,
    dtype::{Dtype, Typed, ValuesMut},
    fallible_alloc,
    simd::LANES,
};
use std::{
    f64::consts::PI,
    ops::{Add, Range},
};

mod config;
mod second_pass;
#[cfg(test)]
mod tests;

pub use config::{
    Cepstrum, Conditioning, FrontEndConfig, Normalization, PadValue, SpectrumCompression, WaveformLevel,
};
use second_pass::SecondPass;

/// A plan for the features of one model; immutable, shared by threads.
#[derive(Debug, Clone)]
pub struct FrontEnd {
    config: FrontEndConfig,
    /// What is done to the waveform by itself; the window scales it.
    conditioning: Conditioning,
    transform: SpectrogramTransform,
    /// The DCT, `[n_bands, n_mfcc]`.
    cosines: Vec<f32>,
    /// Values of a frame of silence, before a range is applied.
    silence: Vec<f32>,
    /// What the first pass writes into missing frames.
    fill: Option<f32>,
}

/// One thread's working memory for one [`FrontEnd`]; allocated by the first use.
#[derive(Debug, Clone)]
pub struct FrontEndScratch {
    spectrogram: SpectrogramScratch,
    waveform: Vec<f32>,
    /// `[n_frames, n_bands]`.
    values: Vec<f32>,
    rows: Vec<f32>,
}

impl FrontEnd {
    /// What is done to a waveform first.
    pub(crate) fn conditioning(&self) -> &Conditioning {
        &self.conditioning
    }

    /// Plans the features.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] naming every value that is out of its range, and the first mel band in which no
    /// frequency bin lies, unless `may_be_empty`.
    pub fn new(mut config: FrontEndConfig, may_be_empty: bool) -> Result<Self> {
        config.spectrogram.mixed_radix = true;
        Self::planned(config, may_be_empty)
    }

    /// The log-mel of loaders.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] naming every value that is out of its range.
    pub(super) fn log_mel(spectrogram: SpectrogramConfig, form: Form) -> Result<Self> {
        Self::planned(FrontEndConfig { spectrogram, form, ..FrontEndConfig::default() }, true)
    }

    fn planned(config: FrontEndConfig, may_be_empty: bool) -> Result<Self> {
        let mut problems = config.problems();
        let (pointwise, a, b) = config.pointwise();
        let standard = config.standard().filter(|_| config.is_single_pass() && problems.is_empty());
        let affine = match standard.as_deref() {
            _ if !problems.is_empty() => Affine::None,
            None if (a, b) == (1.0, 0.0) => Affine::None,
            None => Affine::All(a as f32, b as f32),
            Some(&[(c, d)]) => Affine::All((c * a) as f32, (c * b + d) as f32),
            Some(bands) => {
                Affine::Bands(bands.iter().map(|(c, d)| ((c * a) as f32, (c * b + d) as f32)).collect())
            }
        };
        let conditioning = Conditioning { scale: 1.0, ..config.conditioning };
        let scale = config.conditioning.scale;
        let spectrogram = SpectrogramConfig { scale, pointwise, affine, ..config.spectrogram.clone() };
        let transform = SpectrogramTransform::new(spectrogram).map_err(|error| {
            problems.push(error.message);
            Error::new(ErrorKind::Config, problems.join("; "))
        })?;
        if !problems.is_empty() {
            return Err(Error::new(ErrorKind::Config, problems.join("; ")));
        }
        let empty = transform.first_empty_band().filter(|_| !may_be_empty);
        if let Some(band) = empty {
            let SpectrogramConfig { n_mels, n_fft, .. } = config.spectrogram;
            let message = format!(
                "n_mels is {n_mels}, of which band {band} (counted from 0) is empty: no frequency bin of n_fft = {n_fft} lies in \
                 it, so it would be constant; lower n_mels, raise n_fft or f_min, or give empty_bands=\"keep\""
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        let cosines = config.cepstrum.map(|cepstrum| cosines(cepstrum, transform.n_mels()));
        let fill = match config.fill {
            // The first pass applies its factor and summand to it.
            PadValue::Number(number) => Some(((f64::from(number) - b) / a) as f32),
            PadValue::Silence | PadValue::Minimum => None,
        };
        let cosines = cosines.unwrap_or_default();
        let mut plan = Self { config, conditioning, transform, cosines, silence: Vec::new(), fill };
        if !plan.config.is_single_pass() {
            plan.silence = plan.silence()?;
        }
        Ok(plan)
    }

    /// The same with the number of frames of a waveform of `n_samples`, for shorter ones, too.
    ///
    /// # Errors
    /// As [`FrontEnd::new`].
    pub(super) fn of_length(&self, n_samples: usize) -> Result<Self> {
        let mut config = self.config.clone();
        config.form.n_frames = Some(self.n_wanted_frames(n_samples));
        Self::planned(config, true)
    }

    /// A frame of silence after the first pass.
    fn silence(&self) -> Result<Vec<f32>> {
        let mut frame = fallible_alloc::filled(self.transform.n_mels(), 0.0)?;
        let form = Form { layout: Layout::Time, n_frames: Some(1), ..Form::default() };
        let out = Typed::Float32(&mut frame[..]);
        self.transform.run(&form, None, (&[], 0.0), &mut self.transform.scratch(), out)?;
        Ok(frame)
    }

    /// The parameters that this plan was made from.
    pub fn config(&self) -> &FrontEndConfig {
        &self.config
    }

    /// The shape of the features of a waveform of `n_samples`: bands and frames, in the order of the layout.
    pub fn shape(&self, n_samples: usize) -> [usize; 2] {
        self.config.form.shape(self.config.n_rows(), self.n_real_frames(n_samples))
    }

    /// Frames of the output for a waveform: with those that are filled, without those that are cut.
    pub(crate) fn n_wanted_frames(&self, n_samples: usize) -> usize {
        self.config.form.n_frames.unwrap_or_else(|| self.n_real_frames(n_samples))
    }

    /// Frames of a waveform, before any is filled or cut.
    pub(crate) fn n_real_frames(&self, n_samples: usize) -> usize {
        self.transform.n_frames(n_samples.saturating_sub(self.n_dropped()))
    }

    /// The fewest samples that make a frame; 0 if the number of frames is given.
    pub fn least_samples(&self) -> usize {
        match self.config.form.n_frames {
            Some(_) => 0,
            None => self.config.spectrogram.samples_of_a_frame() + self.n_dropped(),
        }
    }

    /// The samples from a frame to the next, and those before the middle of the first one.
    pub(crate) fn frame_places(&self) -> (usize, f64) {
        let spectrogram = &self.config.spectrogram;
        (spectrogram.hop_length, spectrogram.first_middle() + self.n_dropped() as f64)
    }

    /// Samples that preemphasis leaves out at the start.
    fn n_dropped(&self) -> usize {
        let Conditioning { preemphasis, drops_first, .. } = self.config.conditioning;
        usize::from(preemphasis > 0.0 && drops_first)
    }

    /// Logs a warning if mel bands are empty.
    pub fn warn_of_empty_bands(&self) {
        self.transform.warn_of_empty_bands();
    }

    /// New working memory; use one per thread.
    pub fn scratch(&self) -> FrontEndScratch {
        FrontEndScratch {
            spectrogram: self.transform.scratch(),
            waveform: Vec::new(),
            values: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Writes the features of one waveform `[n_samples]`, of any length, to `out`, of the type and
    /// [shape](Self::shape) of the plan. The samples outside of `valid` are padding.
    ///
    /// Allocates nothing after the first use of `scratch` with the longest waveform. A sample that is NaN or
    /// infinite makes NaN of each value that depends on it.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] if `out` has another type or length, or `scratch` belongs to another plan.
    /// [`ErrorKind::Memory`] if an allocation failed.
    pub fn transform(
        &self,
        waveform: &[f32],
        valid: Range<usize>,
        scratch: &mut FrontEndScratch,
        out: ValuesMut<'_>,
    ) -> Result<()> {
        let [rows, columns] = self.shape(waveform.len());
        let form = &self.config.form;
        if Some(out.len()) != rows.checked_mul(columns) || out.dtype() != form.dtype {
            let message = format!(
                "the output holds {} values of {}, expected {rows} x {columns} of {}",
                out.len(),
                out.dtype().name(),
                form.dtype.name()
            );
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let FrontEndScratch { spectrogram, waveform: own, values, rows: own_rows } = scratch;
        // Kaldi's frames repeat samples over the ends, so a shift of all samples needs no copy of them.
        let only_shifted = Conditioning { remove_mean: true, ..Conditioning::default() };
        let is_shifted = self.conditioning == only_shifted
            && self.config.spectrogram.kaldi.is_some()
            && valid == (0..waveform.len());
        let (waveform, shift) = match is_shifted {
            true => (waveform, mean(waveform) as f32),
            false => (self.conditioning.apply(waveform, valid, own)?, 0.0),
        };
        let waveform = (waveform, shift);
        if self.config.is_single_pass() {
            return self.transform.run(form, self.fill, waveform, spectrogram, out);
        }
        let (n_bands, n_rows) = (self.transform.n_mels(), self.config.n_rows());
        let n_frames = if form.layout == Layout::Mel { columns } else { rows };
        let n_real = self.transform.n_frames(waveform.0.len()).min(n_frames);
        let by_frame = Form { layout: Layout::Time, n_frames: Some(n_real), dtype: Dtype::Float32 };
        fallible_alloc::resize(values, n_frames.saturating_mul(n_bands), 0.0)?;
        fallible_alloc::resize(own_rows, n_bands.max(LANES * n_rows), 0.0)?;
        let real = Typed::Float32(&mut values[..n_real * n_bands]);
        self.transform.run(&by_frame, None, waveform, spectrogram, real)?;
        self.transform.level().run(SecondPass { plan: self, values, n_real, n_frames, rows: own_rows, out });
        Ok(())
    }
}

impl Conditioning {
    /// The conditioned waveform, in `own` unless nothing changes. Mean and level are those of the samples
    /// `valid`; the others are padding, and zeros.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if the allocation of `own` failed.
    ///
    /// # Panics
    /// If `valid` reaches beyond the waveform.
    pub fn apply<'a>(
        &self,
        waveform: &'a [f32],
        valid: Range<usize>,
        own: &'a mut Vec<f32>,
    ) -> Result<&'a [f32]> {
        if *self == Self::default() || waveform.is_empty() {
            return Ok(waveform);
        }
        fallible_alloc::resize(own, waveform.len(), 0.0)?;
        self.write(waveform, valid, own);
        Ok(if self.preemphasis != 0.0 && self.drops_first { &own[1..] } else { own })
    }

    /// Writes the conditioned waveform, as [`apply`](Self::apply) gives it; a dropped first sample is kept.
    ///
    /// # Panics
    /// If `out` has another length, or `valid` reaches beyond the waveform.
    pub fn write(&self, waveform: &[f32], valid: Range<usize>, out: &mut [f32]) {
        if *self == Self::default() || waveform.is_empty() {
            return out.copy_from_slice(waveform);
        }
        let samples = &waveform[valid.clone()];
        let is_centred = self.remove_mean || self.level == WaveformLevel::ZScore;
        let mean = if is_centred { mean(samples) } else { 0.0 };
        let scale = match self.level {
            WaveformLevel::Unchanged => 1.0,
            WaveformLevel::Peak(peak) => {
                let most = reduce(samples, |x| (x - mean).abs(), f64::max);
                if most > 0.0 { f64::from(peak) / most } else { 1.0 }
            }
            WaveformLevel::ZScore => {
                let squares = reduce(samples, |x| (x - mean) * (x - mean), f64::add);
                1.0 / (squares / samples.len().max(1) as f64 + 1e-7).sqrt()
            }
        };
        let (mean, scale) = (mean as f32, (scale * f64::from(self.scale)) as f32);
        out[..valid.start].fill(0.0);
        out[valid.end..].fill(0.0);
        for (out, sample) in out[valid].iter_mut().zip(samples) {
            *out = (sample - mean) * scale;
        }
        if self.preemphasis == 0.0 {
            return;
        }
        let mut before = out[0];
        for sample in &mut out[1..] {
            let emphasized = *sample - self.preemphasis * before;
            before = std::mem::replace(sample, emphasized);
        }
    }
}

/// The DCT-II with liftering, `[n_bands, n_mfcc]`.
fn cosines(cepstrum: Cepstrum, n_bands: usize) -> Vec<f32> {
    let Cepstrum { n_mfcc, is_ortho, lifter } = cepstrum;
    let n = n_bands as f64;
    let value = |at: usize| {
        let (band, i) = ((at / n_mfcc) as f64, (at % n_mfcc) as f64);
        let scale = match (is_ortho, i == 0.0) {
            (false, _) => 2.0,
            (true, true) => (1.0 / n).sqrt(),
            (true, false) => (2.0 / n).sqrt(),
        };
        let lift = if lifter > 0.0 { 1.0 + lifter / 2.0 * (PI * (i + 1.0) / lifter).sin() } else { 1.0 };
        (scale * lift * (PI / n * (band + 0.5) * i).cos()) as f32
    };
    // bounded: both are at most 4096.
    (0..n_mfcc * n_bands).map(value).collect()
}
