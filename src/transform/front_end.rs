//! Front ends: how a waveform becomes the input of a model.
//!
//! Input: a waveform `[n_samples]`. Output: features in their final type, layout and length. The steps are
//! those of `docs/features.md`: conditioning of the waveform, frames, spectrum and mel bands (see
//! [`SpectrogramTransform`]), compression, cepstrum, number of frames, normalization. Where each value
//! depends on its own energy only, one pass computes it and writes it in place. Steps that need the whole
//! example (a range below its maximum, its minimum, its mean, PCEN, a cepstrum) run on a frame-major copy in
//! the scratch memory. Sources of the definitions: with each type.

use super::{
    form::{Form, Layout},
    spectrogram::{Affine, Scratch, SpectrogramConfig, SpectrogramTransform},
};
use crate::{
    Error, ErrorKind, Result,
    dtype::{Dtype, Typed, ValuesMut},
    fallible_alloc,
};
use std::{f64::consts::PI, ops::Range};

mod config;
#[cfg(test)]
mod tests;

pub use config::{Cepstrum, Compression, Conditioning, Fill, FrontEndConfig, Level, Normalization};

/// A plan for the features of one model; immutable, shared by threads.
#[derive(Debug, Clone)]
pub struct FrontEnd {
    config: FrontEndConfig,
    transform: SpectrogramTransform,
    /// The DCT, `[n_mfcc, n_bands]`.
    cosines: Vec<f32>,
    /// Values of a frame of silence, before a range is applied.
    silence: Vec<f32>,
    /// What the first pass writes into missing frames.
    fill: Option<f32>,
}

/// One thread's working memory for one [`FrontEnd`]; allocated by the first use.
#[derive(Debug, Clone)]
pub struct FrontEndScratch {
    spectrogram: Scratch,
    waveform: Vec<f32>,
    /// `[n_frames, n_bands]`.
    values: Vec<f32>,
    /// One for each band.
    row: Vec<f32>,
}

impl FrontEnd {
    /// Plans the features.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] naming every value that is out of its range, and the first mel band in which no
    /// frequency bin lies, unless `may_be_empty`.
    pub fn new(config: FrontEndConfig, may_be_empty: bool) -> Result<Self> {
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
        let spectrogram = SpectrogramConfig { pointwise, affine, ..config.spectrogram.clone() };
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
            Fill::Number(number) => Some(((f64::from(number) - b) / a) as f32),
            Fill::Silence | Fill::Minimum => None,
        };
        let mut plan =
            Self { config, transform, cosines: cosines.unwrap_or_default(), silence: Vec::new(), fill };
        if !plan.config.is_single_pass() {
            plan.silence = plan.silence()?;
        }
        Ok(plan)
    }

    /// A frame of silence after the first pass.
    fn silence(&self) -> Result<Vec<f32>> {
        let mut frame = fallible_alloc::filled(self.transform.n_mels(), 0.0)?;
        let form = Form { layout: Layout::Time, n_frames: Some(1), ..Form::default() };
        let out = Typed::Float32(&mut frame[..]);
        self.transform.run(&form, None, &[], &mut self.transform.scratch(), out)?;
        Ok(frame)
    }

    /// The configuration of this plan.
    pub fn config(&self) -> &FrontEndConfig {
        &self.config
    }

    /// The shape of the features of a waveform of `n_samples`: bands and frames, in the order of the layout.
    pub fn shape(&self, n_samples: usize) -> [usize; 2] {
        self.config.form.shape(self.config.n_rows(), self.n_real_frames(n_samples))
    }

    /// Frames of the output for a waveform: with those that are filled, without those that are cut.
    pub fn n_wanted_frames(&self, n_samples: usize) -> usize {
        self.config.form.n_frames.unwrap_or_else(|| self.n_real_frames(n_samples))
    }

    /// Frames of a waveform, before any is filled or cut.
    pub fn n_real_frames(&self, n_samples: usize) -> usize {
        self.transform.n_frames(n_samples.saturating_sub(self.n_dropped()))
    }

    /// The fewest samples that make a frame; 0 if the number of frames is given.
    pub fn least_samples(&self) -> usize {
        match self.config.form.n_frames {
            Some(_) => 0,
            None => self.config.spectrogram.samples_of_a_frame() + self.n_dropped(),
        }
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
            row: Vec::new(),
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
        mut out: ValuesMut<'_>,
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
        let FrontEndScratch { spectrogram, waveform: own, values, row } = scratch;
        let waveform = self.config.conditioning.apply(waveform, valid, own)?;
        if self.config.is_single_pass() {
            return self.transform.run(form, self.fill, waveform, spectrogram, out);
        }
        let n_bands = self.transform.n_mels();
        let wanted = if form.layout == Layout::Mel { columns } else { rows };
        let n_real = self.transform.n_frames(waveform.len()).min(wanted);
        let by_frame = Form { layout: Layout::Time, n_frames: Some(n_real), dtype: Dtype::Float32 };
        fallible_alloc::resize(values, wanted.saturating_mul(n_bands), 0.0)?;
        fallible_alloc::resize(row, n_bands.max(wanted), 0.0)?;
        let (real, behind) = values.split_at_mut(n_real * n_bands);
        self.transform.run(&by_frame, None, waveform, spectrogram, Typed::Float32(real))?;
        // Behind a waveform, silence is compressed with it: PCEN and a range depend on what was before.
        let has_silence = self.config.fill == Fill::Silence || n_real == 0;
        for frame in behind.chunks_exact_mut(n_bands) {
            frame.copy_from_slice(&self.silence);
        }
        let compressed = if has_silence { &mut values[..] } else { &mut values[..n_real * n_bands] };
        if let Compression::Pcen { .. } = self.config.compression {
            self.pcen(compressed, &mut row[..n_bands]);
        }
        self.limit(compressed);
        let n_rows = self.config.n_rows();
        if self.config.cepstrum.is_some() {
            for frame in 0..wanted {
                let bands = &values[frame * n_bands..][..n_bands];
                for (out, cosines) in row[..n_rows].iter_mut().zip(self.cosines.chunks_exact(n_bands)) {
                    *out = bands.iter().zip(cosines).map(|(value, cosine)| value * cosine).sum();
                }
                values[frame * n_rows..][..n_rows].copy_from_slice(&row[..n_rows]);
            }
        }
        let values = &mut values[..wanted * n_rows];
        let (real, behind) = values.split_at_mut(n_real * n_rows);
        match self.config.fill {
            Fill::Silence => {}
            // Without a frame of the waveform, silence stays.
            Fill::Minimum if real.is_empty() => {}
            Fill::Minimum => behind.fill(least(real)),
            Fill::Number(number) => behind.fill(number),
        }
        self.normalize(real, behind, n_rows);
        write(values, form.layout, n_rows, wanted, row, &mut out);
        Ok(())
    }

    /// Per-channel energy normalization of energies `[n_frames, n_bands]`; `smoothed` holds a band each.
    fn pcen(&self, energies: &mut [f32], smoothed: &mut [f32]) {
        let Compression::Pcen { smooth, gain, bias, root, eps, initial } = self.config.compression else {
            return;
        };
        let zero = bias.powf(root);
        let n_bands = smoothed.len();
        match initial {
            Some(initial) => smoothed.fill(initial),
            None => smoothed.iter_mut().zip(&*energies).for_each(|(smoothed, first)| *smoothed = *first),
        }
        for frame in energies.chunks_exact_mut(n_bands) {
            for (energy, smoothed) in frame.iter_mut().zip(&mut *smoothed) {
                *smoothed = (1.0 - smooth) * *smoothed + smooth * *energy;
                *energy = (*energy / (eps + *smoothed).powf(gain) + bias).powf(root) - zero;
            }
        }
    }

    /// Makes the largest value the reference, and raises values to the range below the largest.
    fn limit(&self, values: &mut [f32]) {
        let is_relative = matches!(self.config.compression, Compression::Decibel { reference: None, .. });
        if !is_relative && self.config.range().is_none() {
            return;
        }
        let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let zero = if is_relative { largest } else { 0.0 };
        let least = self.config.range().map_or(f32::NEG_INFINITY, |range| largest - range);
        for value in values {
            // NaN stays NaN.
            *value = if *value < least { least } else { *value } - zero;
        }
    }

    /// Normalizes the frames of the waveform, and those behind them.
    fn normalize(&self, real: &mut [f32], behind: &mut [f32], n_rows: usize) {
        match &self.config.normalization {
            Normalization::None => {}
            Normalization::Standard { .. } => {
                let Some(standard) = self.config.standard() else { return };
                let bands = standard.iter().cycle();
                for frame in real.chunks_exact_mut(n_rows).chain(behind.chunks_exact_mut(n_rows)) {
                    for (value, &(a, b)) in frame.iter_mut().zip(bands.clone()) {
                        *value = value.mul_add(a as f32, b as f32);
                    }
                }
            }
            Normalization::MinMax => {
                let low = least(real).min(least(behind));
                let high = real.iter().chain(&*behind).copied().fold(f32::NEG_INFINITY, f32::max);
                let scale = if high > low && low.is_finite() { 1.0 / (high - low) } else { 0.0 };
                for value in real.iter_mut().chain(behind) {
                    *value = (*value - low) * scale;
                }
            }
            Normalization::ZScore { per_band, ddof, eps } => {
                let n_groups = if *per_band { n_rows } else { 1 };
                for group in 0..n_groups {
                    let values = || real.iter().skip(group).step_by(n_groups).map(|&x| f64::from(x));
                    let n = real.len() / n_groups;
                    let mean = values().sum::<f64>() / n as f64;
                    let squares: f64 = values().map(|x| (x - mean) * (x - mean)).sum();
                    let std = (squares / n.saturating_sub(usize::from(*ddof)).max(1) as f64).sqrt();
                    let scale = if std + eps > 0.0 { 1.0 / (std + eps) } else { 0.0 };
                    for value in real.iter_mut().skip(group).step_by(n_groups) {
                        *value = ((f64::from(*value) - mean) * scale) as f32;
                    }
                }
                behind.fill(0.0);
            }
        }
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
        let samples = &waveform[valid.clone()];
        let n = samples.len().max(1) as f64;
        let is_centred = self.remove_mean || self.level == Level::ZScore;
        let mean = if is_centred { samples.iter().map(|&x| f64::from(x)).sum::<f64>() / n } else { 0.0 };
        let scale = match self.level {
            Level::Unchanged => 1.0,
            Level::Peak(peak) => {
                let most = samples.iter().map(|&x| (f64::from(x) - mean).abs()).fold(0.0, f64::max);
                if most > 0.0 { f64::from(peak) / most } else { 1.0 }
            }
            Level::ZScore => {
                let squares: f64 = samples.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum();
                1.0 / (squares / n + 1e-7).sqrt()
            }
        };
        let (mean, scale) = (mean as f32, (scale * f64::from(self.scale)) as f32);
        fallible_alloc::resize(own, waveform.len(), 0.0)?;
        own[..valid.start].fill(0.0);
        own[valid.end..].fill(0.0);
        for (out, sample) in own[valid].iter_mut().zip(samples) {
            *out = (sample - mean) * scale;
        }
        if self.preemphasis == 0.0 {
            return Ok(own);
        }
        for t in (1..own.len()).rev() {
            own[t] -= self.preemphasis * own[t - 1];
        }
        Ok(if self.drops_first { &own[1..] } else { own })
    }
}

/// The least value, NaN ignored; infinity of none.
fn least(values: &[f32]) -> f32 {
    values.iter().copied().fold(f32::INFINITY, f32::min)
}

/// The DCT-II with liftering, `[n_mfcc, n_bands]`.
fn cosines(cepstrum: Cepstrum, n_bands: usize) -> Vec<f32> {
    let Cepstrum { n_mfcc, is_ortho, lifter } = cepstrum;
    let n = n_bands as f64;
    let value = |at: usize| {
        let (i, band) = ((at / n_bands) as f64, (at % n_bands) as f64);
        let scale = match (is_ortho, at < n_bands) {
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

/// Writes values `[n_frames, n_rows]` in the layout and type of `out`; `row` has room for a row of either.
fn write(
    values: &[f32],
    layout: Layout,
    n_rows: usize,
    n_frames: usize,
    row: &mut [f32],
    out: &mut ValuesMut<'_>,
) {
    match layout {
        Layout::Time => out.put(0, values),
        Layout::Mel => {
            let row = &mut row[..n_frames];
            for band in 0..n_rows {
                let column = values.iter().skip(band).step_by(n_rows);
                row.iter_mut().zip(column).for_each(|(to, from)| *to = *from);
                out.put(band * n_frames, row);
            }
        }
    }
}
