//! Spectrograms: window, FFT, mel filters and compression in one pass over eight frames at a time.
//!
//! Input: a waveform `[n_samples]`. Output: `[n_mels, n_frames]`, row-major. Eight frames stay in the
//! first two cache levels from window to compression, one lane each (see `forebay_simd`). Each output
//! value is written once, in its final type and place, in a run of eight. Frames inside the waveform are
//! read in place; only those that reach over an end are copied, with reflection. Most FFT sizes use
//! forebay's eight-frame transform (see `fft`), the others `realfft`, frame by frame. The definitions of
//! the default are those of torchaudio's `MelSpectrogram` (periodic Hann, centred, reflect padding, HTK
//! mel, no area norm, also its bin frequencies for odd `n_fft`: see `mel`), then `ln(max(mel, 1e-10))`.
//! Frames of [`Kaldi`] begin at multiples of the hop; DC removal and preemphasis run on the transposed
//! frames, eight at a time. A frame with NaN or infinity in it becomes NaN, never a number.

use super::{
    fft::LaneFft,
    form::{Form, Layout, Output},
    mel::MelBank,
};
use crate::{
    Error, ErrorKind, Result,
    dtype::{Typed, ValuesMut},
    fallible_alloc,
    simd::{LANES, Lanes, Level, Row, Work},
};
use realfft::{RealFftPlanner, RealToComplex, num_complex::Complex32};
use std::{fmt, sync::Arc};

mod config;
#[cfg(test)]
mod naive;

pub use config::{Affine, FLOOR, Kaldi, Pad, Pointwise, SpectrogramConfig};

/// A plan for spectrograms; immutable, shared by threads.
#[derive(Clone)]
pub struct SpectrogramTransform {
    config: SpectrogramConfig,
    engine: FftEngine,
    level: Level,
    /// Window of `n_fft`, scaled; halved for the eight-frame transform.
    window: Vec<f32>,
    bank: MelBank,
}

#[derive(Clone)]
enum FftEngine {
    Lanes(LaneFft),
    Single(Arc<dyn RealToComplex<f32>>),
}

/// One thread's working memory for one [`SpectrogramTransform`]; allocated by the first use.
#[derive(Debug, Clone, Default)]
pub struct SpectrogramScratch {
    /// `n_fft` and `n_mels` of its plan.
    plan: (usize, usize),
    frames: Vec<Row>,
    spare: Vec<Row>,
    power: Vec<Row>,
    bands: Vec<Row>,
    /// Eight frames of `n_fft` for those that reach over an end.
    edges: Vec<f32>,
    single: Vec<f32>,
    spectrum: Vec<Complex32>,
    fft: Vec<Complex32>,
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<SpectrogramTransform>();
    shared::<SpectrogramScratch>();
};

impl fmt::Debug for SpectrogramTransform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpectrogramTransform").field("config", &self.config).finish_non_exhaustive()
    }
}

impl SpectrogramTransform {
    /// Plans the transform.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] naming every value that is out of its range.
    pub fn new(config: SpectrogramConfig) -> Result<Self> {
        Self::with_level(config, Level::detect())
    }

    fn with_level(config: SpectrogramConfig, level: Level) -> Result<Self> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(Error::new(ErrorKind::Config, problems.join("; ")));
        }
        let (engine, factor) = match LaneFft::new(config.n_fft)
            .filter(|_| config.mixed_radix || config.n_fft.is_power_of_two())
        {
            Some(fft) => (FftEngine::Lanes(fft), 0.5),
            None => (FftEngine::Single(RealFftPlanner::new().plan_fft_forward(config.n_fft)), 1.0),
        };
        let window = config.window().iter().map(|w| (factor * f64::from(config.scale) * w) as f32).collect();
        let bank = config.bank();
        Ok(Self { config, engine, level, window, bank })
    }

    /// The first mel band in which no frequency bin lies, so that it is constant.
    pub(crate) fn first_empty_band(&self) -> Option<usize> {
        self.bank.first_empty()
    }

    /// Logs a warning if bands are narrower than the distance of two bins, so that some contain no bin and
    /// are constant.
    pub fn warn_of_empty_bands(&self) {
        let n_empty = self.bank.n_empty();
        if n_empty > 0 {
            let SpectrogramConfig { n_mels, n_fft, .. } = self.config;
            log::warn!(
                "{n_empty} of the {n_mels} mel bands (n_mels) are empty: no frequency bin of n_fft = {n_fft} lies in them, so they \
                 are ln({FLOOR:e}) in every frame; lower n_mels or raise n_fft"
            );
        }
    }

    /// The parameters that this plan was made from.
    pub fn config(&self) -> &SpectrogramConfig {
        &self.config
    }

    /// The CPU level that this plan uses.
    pub(super) fn level(&self) -> Level {
        self.level
    }

    /// Rows of the output: mel bands, or bins of the spectrum.
    pub fn n_mels(&self) -> usize {
        self.config.n_bands()
    }

    /// Columns of the output for a waveform of `n_samples`: [`SpectrogramConfig::n_frames`].
    pub fn n_frames(&self, n_samples: usize) -> usize {
        self.config.n_frames(n_samples)
    }

    /// The fewest samples that [`Self::transform`] takes: reflection needs more than `n_fft / 2`; without
    /// centring, `n_fft`.
    pub fn least_samples(&self) -> usize {
        if self.config.center { self.config.n_fft / 2 + 1 } else { self.config.n_fft }
    }

    /// New working memory, allocated by the first transform with it; use one per thread.
    pub fn scratch(&self) -> SpectrogramScratch {
        SpectrogramScratch { plan: (self.config.n_fft, self.n_mels()), ..SpectrogramScratch::default() }
    }

    /// Allocates this plan's working memory in `scratch`, which is empty.
    fn fill(&self, scratch: &mut SpectrogramScratch) -> Result<()> {
        let n_fft = self.config.n_fft;
        match &self.engine {
            FftEngine::Lanes(fft) => {
                fallible_alloc::resize(&mut scratch.frames, fft.rows(), Row::default())?;
                fallible_alloc::resize(&mut scratch.spare, fft.rows(), Row::default())?;
            }
            FftEngine::Single(fft) => {
                fallible_alloc::resize(&mut scratch.single, n_fft, 0.0)?;
                fallible_alloc::resize(&mut scratch.spectrum, n_fft / 2 + 1, Complex32::default())?;
                fallible_alloc::resize(&mut scratch.fft, fft.get_scratch_len(), Complex32::default())?;
            }
        }
        fallible_alloc::resize(&mut scratch.bands, self.n_mels(), Row::default())?;
        fallible_alloc::resize(&mut scratch.edges, LANES * n_fft, 0.0)?;
        // Last, because its length shows whether all the others are allocated.
        fallible_alloc::resize(&mut scratch.power, n_fft / 2 + 1, Row::default())
    }

    /// Writes the log-mel energies of one clip.
    ///
    /// `waveform` is `[n_samples]` at the plan's rate; `out` is `[n_mels, n_frames]`, row-major, natural log.
    /// Allocates nothing, except that the first use of `scratch` allocates it. A frame with a sample that is
    /// NaN or infinite is NaN in every band; so is a band whose energy overflows.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] if `out` is not `n_mels * n_frames` long, if the waveform is too short
    /// (reflection needs more than `n_fft / 2` samples; without centring, `n_fft`), or if `scratch` belongs
    /// to another plan. [`ErrorKind::Memory`] if the allocation of `scratch` failed.
    pub fn transform(
        &self,
        waveform: &[f32],
        scratch: &mut SpectrogramScratch,
        out: &mut [f32],
    ) -> Result<()> {
        self.transform_to(&Form::default(), waveform, scratch, Typed::Float32(out))
    }

    /// Writes the log-mel energies of one clip in the type, layout and length of `form`.
    ///
    /// As [`SpectrogramTransform::transform`], except that `out` is `[n_mels, n_frames]` or `[n_frames,
    /// n_mels]`, with the number of frames in `form`. If that is less than the waveform has, the others are
    /// not computed. Frames after the waveform's last one are those of a waveform of zeros: the logarithm of
    /// [`FLOOR`]. Values are rounded to nearest, ties to even.
    ///
    /// # Errors
    /// As [`SpectrogramTransform::transform`], and [`ErrorKind::Shape`] if `out` is not of the type in
    /// `form`.
    pub fn transform_to(
        &self,
        form: &Form,
        waveform: &[f32],
        scratch: &mut SpectrogramScratch,
        out: ValuesMut<'_>,
    ) -> Result<()> {
        let at_least = self.least_samples();
        if waveform.len() < at_least {
            let message = format!(
                "the waveform has {} samples, n_fft {} needs at least {at_least}; lengthen the clip or lower n_fft",
                waveform.len(),
                self.config.n_fft
            );
            return Err(Error::new(ErrorKind::Shape, message));
        }
        self.run(form, None, (waveform, 0.0), scratch, out)
    }

    /// As [`SpectrogramTransform::transform_to`], of a waveform of any length: a short one is reflected
    /// repeatedly. Frames after its last one are those of silence, or have the value `fill`. With Kaldi's
    /// frames, the number beside the waveform is subtracted from its samples.
    pub(super) fn run(
        &self,
        form: &Form,
        fill: Option<f32>,
        (waveform, shift): (&[f32], f32),
        scratch: &mut SpectrogramScratch,
        out: ValuesMut<'_>,
    ) -> Result<()> {
        let shape = |message: String| Err(Error::new(ErrorKind::Shape, message));
        let n_fft = self.config.n_fft;
        let [rows, columns] = form.shape(self.n_mels(), self.n_frames(waveform.len()));
        if Some(out.len()) != rows.checked_mul(columns) || out.dtype() != form.dtype {
            return shape(format!(
                "the output holds {} values of {}, expected {rows} x {columns} of {}",
                out.len(),
                out.dtype().name(),
                form.dtype.name()
            ));
        }
        if scratch.plan != (n_fft, self.n_mels()) {
            return shape(format!(
                "the scratch memory belongs to another plan than this one of n_fft {n_fft} and n_mels {}",
                self.n_mels()
            ));
        }
        if scratch.power.is_empty() {
            self.fill(scratch)?;
        }
        let n_frames = if form.layout == Layout::Mel { columns } else { rows };
        let out = Output { values: out, layout: form.layout, n_mels: self.n_mels(), n_frames };
        self.level.run(Blocks { plan: self, waveform, shift, fill, scratch, out });
        Ok(())
    }

    #[inline(always)]
    fn pointwise<V: Lanes>(&self, energy: V) -> V {
        match self.config.pointwise {
            Pointwise::Linear => energy,
            // In this order of the operands NaN stays NaN.
            Pointwise::LnFloor(floor) => V::splat(floor).max(energy).ln(),
            Pointwise::LnPlus(eps) => (energy + V::splat(eps)).ln(),
        }
    }

    #[inline(always)]
    fn affine<V: Lanes>(&self, band: usize, value: V) -> V {
        match &self.config.affine {
            Affine::None => value,
            Affine::All(a, b) => value.mul_add(V::splat(*a), V::splat(*b)),
            Affine::Bands(bands) => value.mul_add(V::splat(bands[band].0), V::splat(bands[band].1)),
        }
    }

    /// Samples of frame `index`: a part of the waveform or, for a frame that reaches over an end, `edge`,
    /// filled with what the padding says.
    #[inline(always)]
    fn frame<'a>(&self, waveform: &'a [f32], shift: f32, index: usize, edge: &'a mut [f32]) -> &'a [f32] {
        let (hop, span) = (self.config.hop_length, self.config.span());
        // The first sample is `start - before`.
        let (start, before) = match self.config.kaldi {
            Some(Kaldi { snip_edges: false, .. }) => (index * hop + hop / 2, span / 2),
            Some(_) => (index * hop, 0),
            None => (index * hop, self.config.pad()),
        };
        let inside = start.checked_sub(before).and_then(|start| waveform.get(start..start + span));
        if let Some(frame) = inside
            && (self.config.kaldi.is_none() || span % LANES == 0)
        {
            return frame;
        }
        let n = waveform.len();
        // Behind the span of Kaldi's frames: nothing, after the shift.
        edge[span..].fill(shift);
        for (i, sample) in edge[..span].iter_mut().enumerate() {
            let distance = (start + i).abs_diff(before);
            let is_before = start + i < before;
            *sample = match (self.config.kaldi, self.config.pad) {
                // Mirrored with the ends repeated: the sample before the first is the first.
                (Some(_), _) => {
                    let at = if is_before { distance - 1 } else { distance } % (2 * n);
                    waveform[at.min(2 * n - 1 - at)]
                }
                (None, Pad::Constant) if is_before || distance >= n => 0.0,
                (None, Pad::Constant) => waveform[distance],
                (None, Pad::Reflect) if n == 1 => waveform[0],
                (None, Pad::Reflect) => {
                    let at = distance % (2 * (n - 1));
                    waveform[at.min(2 * (n - 1) - at)]
                }
            };
        }
        edge
    }

    /// Multiplies by the window and transposes: row `n` of `rows` becomes sample `n` of the eight frames.
    #[inline(always)]
    fn window<V: Lanes>(&self, fft: &LaneFft, frames: &[&[f32]; LANES], rows: &mut [Row]) {
        let window = self.window.as_chunks::<LANES>().0;
        let mut tiles = [window; LANES];
        for (tile, frame) in tiles.iter_mut().zip(frames) {
            *tile = &frame.as_chunks::<LANES>().0[..window.len()];
        }
        for (i, weights) in window.iter().enumerate() {
            let weights = V::load(weights);
            let mut tile = [weights; LANES];
            for (value, frame) in tile.iter_mut().zip(tiles) {
                *value = V::load(&frame[i]) * weights;
            }
            for (value, row) in V::transpose(tile).into_iter().zip(&mut rows[fft.samples(LANES * i)]) {
                value.store(&mut row.0);
            }
        }
    }

    /// Transposes, removes the mean of each frame, preemphasizes, and multiplies by the window.
    #[allow(clippy::needless_range_loop, reason = "`j` runs over samples, weights and rows alike")]
    #[inline(always)]
    fn kaldi_window<V: Lanes>(
        &self,
        fft: &LaneFft,
        kaldi: &Kaldi,
        shift: f32,
        frames: &[&[f32]; LANES],
        rows: &mut [Row],
    ) {
        let span = self.config.span();
        let (zero, shift) = (V::splat(0.0), V::splat(shift));
        // Behind the span, the last of these has zeros after the shift.
        let n_tiles = span.div_ceil(LANES);
        let mut tiles: [&[[f32; LANES]]; LANES] = [&[]; LANES];
        for (tile, frame) in tiles.iter_mut().zip(frames) {
            *tile = &frame.as_chunks().0[..n_tiles];
        }
        let mut sum = zero;
        for i in 0..n_tiles {
            let mut tile = [zero; LANES];
            for (value, frame) in tile.iter_mut().zip(tiles) {
                *value = V::load(&frame[i]) - shift;
            }
            let tile = V::transpose(tile);
            let rows = &mut rows[fft.samples(LANES * i)][..LANES];
            for j in 0..LANES {
                sum = sum + tile[j];
                tile[j].store(&mut rows[j].0);
            }
        }
        let mean = if kaldi.remove_dc { sum * V::splat(1.0 / span as f32) } else { zero };
        let preemphasis = V::splat(kaldi.preemphasis);
        let mut before = V::load(&rows[fft.samples(0)][0].0) - mean;
        let (under, behind) = self.window.as_chunks::<LANES>().0.split_at(n_tiles);
        for (i, weights) in under.iter().enumerate() {
            let rows = &mut rows[fft.samples(LANES * i)][..LANES];
            for j in 0..LANES {
                let sample = V::load(&rows[j].0) - mean;
                (preemphasis.neg_mul_add(before, sample) * V::splat(weights[j])).store(&mut rows[j].0);
                before = sample;
            }
        }
        for i in 0..behind.len() {
            rows[fft.samples(LANES * (n_tiles + i))].fill(Row::default());
        }
    }

    /// Power spectra frame by frame, for sizes that the eight-frame transform does not support.
    fn single_power(
        &self,
        fft: &dyn RealToComplex<f32>,
        shift: f32,
        frames: &[&[f32]; LANES],
        (input, spectrum, scratch): (&mut Vec<f32>, &mut Vec<Complex32>, &mut Vec<Complex32>),
        power: &mut [Row],
    ) {
        let span = self.config.span();
        for (lane, frame) in frames.iter().enumerate() {
            input.fill(0.0);
            match &self.config.kaldi {
                None => {
                    for ((input, sample), weight) in input.iter_mut().zip(*frame).zip(&self.window) {
                        *input = sample * weight;
                    }
                }
                Some(kaldi) => {
                    let frame = &frame[..span];
                    let sum = if kaldi.remove_dc { frame.iter().map(|x| x - shift).sum() } else { 0.0f32 };
                    let mean = sum / span as f32;
                    let mut before = frame[0] - shift - mean;
                    for ((input, sample), weight) in input.iter_mut().zip(frame).zip(&self.window) {
                        let sample = sample - shift - mean;
                        *input = (sample - kaldi.preemphasis * before) * weight;
                        before = sample;
                    }
                }
            }
            // The buffers were made by this plan, so their lengths are right: no other error is possible.
            if fft.process_with_scratch(input, spectrum, scratch).is_ok() {
                for (row, bin) in power.iter_mut().zip(&*spectrum) {
                    row.0[lane] = bin.norm_sqr();
                }
            }
        }
    }
}

/// All frames of a waveform, eight at a time; the last block repeats its last frame in the unused lanes.
struct Blocks<'a> {
    plan: &'a SpectrogramTransform,
    waveform: &'a [f32],
    /// Subtracted from each sample, with Kaldi's frames.
    shift: f32,
    fill: Option<f32>,
    scratch: &'a mut SpectrogramScratch,
    out: Output<'a>,
}

impl Work for Blocks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let Self { plan, waveform, shift, fill, scratch, mut out } = self;
        let n_fft = plan.config.n_fft;
        let n_frames = plan.n_frames(waveform.len()).min(out.n_frames);
        for first in (0..n_frames).step_by(LANES) {
            let count = LANES.min(n_frames - first);
            let mut frames: [&[f32]; LANES] = [&[]; LANES];
            for (lane, (frame, edge)) in
                frames.iter_mut().zip(scratch.edges.chunks_exact_mut(n_fft)).enumerate()
            {
                let index = first + lane.min(count - 1);
                *frame = plan.frame(waveform, shift, index, edge);
            }
            match (&plan.engine, &plan.config.kaldi) {
                (FftEngine::Lanes(fft), None) => {
                    plan.window::<V>(fft, &frames, &mut scratch.frames);
                    fft.power::<V>(&mut scratch.frames, &mut scratch.spare, &mut scratch.power);
                }
                (FftEngine::Lanes(fft), Some(kaldi)) => {
                    plan.kaldi_window::<V>(fft, kaldi, shift, &frames, &mut scratch.frames);
                    fft.power::<V>(&mut scratch.frames, &mut scratch.spare, &mut scratch.power);
                }
                (FftEngine::Single(fft), _) => {
                    let buffers = (&mut scratch.single, &mut scratch.spectrum, &mut scratch.fft);
                    plan.single_power(fft.as_ref(), shift, &frames, buffers, &mut scratch.power);
                }
            }
            if plan.config.power == 1.0 {
                for row in &mut scratch.power {
                    V::load(&row.0).sqrt().store(&mut row.0);
                }
            }
            // The first bin is the sum of a frame's windowed samples, so it is NaN or infinite if one of them
            // is. The sums of all bands, also of those
            // without a weight, therefore start with `zero_or_nan`.
            let zero_or_nan = V::load(&scratch.power[0].0).zero_or_nan();
            let frames = first..first + count;
            for (band, (first_bin, weights)) in plan.bank.bands().enumerate() {
                let mut energy = zero_or_nan;
                for (&weight, row) in weights.iter().zip(&scratch.power[first_bin..]) {
                    energy = V::load(&row.0).mul_add(V::splat(weight), energy);
                }
                let value = plan.affine(band, plan.pointwise(energy));
                out.put(band, frames.clone(), value, &mut scratch.bands);
            }
            out.finish::<V>(frames, &scratch.bands);
        }
        if n_frames < out.n_frames {
            let silence = plan.pointwise(V::splat(0.0));
            out.fill(n_frames, |band| plan.affine(band, fill.map_or(silence, V::splat)));
        }
    }
}

#[cfg(test)]
mod tests;
