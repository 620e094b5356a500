//! [`Augment`]: random changes of clips and features, each a pure function of a record's random bits.
//!
//! A recipe is a list of [`Step`]s. Steps on the waveform run in their order, then the features are computed,
//! then the steps on features run in their order; [`StepKind::Speed`] belongs to the reading of the clip and
//! is applied before all others. What a step draws are hashes of (the record's bits, the step's class and its
//! number among the steps of that class, the number of the draw), the first of which decides whether it is
//! applied. So a further step never changes what others draw, and nothing depends on threads. Arithmetic on
//! samples is without fused products, so that bits do not depend on the CPU. Sources of the definitions: with
//! each step.
//!
//! | file | what |
//! |---|---|
//! | `step` | what is done to a clip, how often, and to which of its waveforms |
//! | `draws` | the numbers that a step draws |
//! | `outcome` | what users may be told of a clip |
//! | `references`, `parts` | the target and the parts beside a mixture, and what steps do to them |
//! | `filter`, `noise`, `mix`, `reverb` | steps on waveforms |
//! | `loudness` | levels in LUFS |
//! | `bands` | steps on features |
//! | `pairs` | steps on pairs of examples |
//! | `custom` | functions of the user |
//! | `device` | the same numbers, for steps on a device |

mod bands;
mod references;
mod custom;
mod device;
mod draws;
mod filter;
mod loudness;
mod mix;
mod noise;
mod outcome;
mod pairs;
mod parts;
mod reverb;
mod step;

use std::ops::Range;

use super::sums::{reduce, rms, squares};
use crate::{Result, dtype::ValuesMut};

pub use bands::{BandMasks, Fill, FrameAxis, Number, Width};
pub use custom::{Calling, Custom};
pub use device::Drawing;
pub use draws::{Bounds, Counts, Draws};
pub use filter::FilterShape;
pub use mix::{Amount, MixLevel, MixTargets, Mixing};
pub use outcome::Outcome;
pub use pairs::{Exchange, Pairing, Taken, exchange, shares_after};
pub use references::{CleanTarget, EARLY_SECONDS, References};
pub use reverb::Convolver;
pub use step::{Choice, Only, OtherSteps, PartnerReading, Step, StepKind};

/// The most steps of a recipe.
pub const MOST_STEPS: usize = 64;
/// The most filters of one step, masks of one axis, and speeds to choose from.
pub const MOST_PARTS: usize = 64;

/// How the level of a clip is measured, to which noise relates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loudness {
    /// The root mean square of all samples that are not padding.
    Rms,
    /// That of the blocks of 20 ms that are at most 40 dB below the loudest one.
    Active,
    /// That of all samples, padding too.
    Clip,
    /// The gated loudness of the samples that are not padding, in LUFS (ITU-R BS.1770).
    Lufs,
}

/// A recipe; immutable, shared by threads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Augment {
    /// Each step with the key of its draws, and the number of steps before it that read other recordings.
    steps: Vec<(Step, u64, usize)>,
    /// The features of a frame of silence, if a step needs them.
    silence: Vec<f32>,
    /// The waveforms of a row, if there are several.
    waveforms: usize,
}

/// One thread's working memory; allocated by the first use.
#[derive(Debug, Clone, Default)]
pub struct AugmentScratch {
    noise: Vec<f32>,
    /// Features that a function of the user is given, or as they were before a warp.
    given: Vec<f32>,
}

/// The waveforms of an example, all channels one after the other.
#[derive(Debug)]
pub struct Clips<'a> {
    /// `n` samples of each channel, one channel after the other.
    pub samples: &'a mut [f32],
    /// Samples of each channel, padding included.
    pub n: usize,
    /// The samples of each channel that are not padding.
    pub valid: Range<usize>,
    /// Samples per second; filters and levels need it.
    pub sample_rate: u32,
}

impl Augment {
    /// The recipe of these steps, in this order.
    pub fn new(steps: Vec<Step>) -> Self {
        let mut counts = [0; 64];
        let mut readings = 0;
        let keyed = steps.into_iter().map(|step| {
            let class = step.kind.number();
            let count: &mut u64 = &mut counts[class as usize];
            let key = class << 32 | *count;
            *count += 1;
            let reading = readings;
            readings += usize::from(step.kind.reading().is_some());
            (step, key, reading)
        });
        Self { steps: keyed.collect(), ..Self::default() }
    }

    /// Whether a step needs the features of silence.
    pub fn needs_silence(&self) -> bool {
        self.steps()
            .any(|step| matches!(&step.kind, StepKind::SpecAugment(masks) if masks.fill == Fill::Silence))
    }

    /// The same, with partners anywhere among the loader's rows where these are read in a random order.
    #[must_use]
    pub fn anywhere(&self, is_scattered: bool) -> Self {
        let mut found = self.clone();
        for (step, ..) in found.steps.iter_mut().filter(|_| is_scattered) {
            if let StepKind::Mix(mixing) = &mut step.kind {
                mixing.near = None;
            }
        }
        found
    }

    /// The same with the features of a frame of silence.
    #[must_use]
    pub fn with_silence(self, silence: Vec<f32>) -> Self {
        Self { silence, ..self }
    }

    /// All steps in the order of the recipe.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().map(|(step, ..)| step)
    }

    /// Whether any step changes waveforms; `Speed` does not count.
    pub fn changes_waveforms(&self) -> bool {
        self.steps().any(|step| step.kind.is_on_waveforms())
    }

    /// Whether any step mixes pairs of examples of a batch.
    pub fn pairs_examples(&self) -> bool {
        self.steps().any(|step| matches!(step.kind, StepKind::Pair(_)))
    }

    /// The rows of a group within which waveforms are exchanged, if a step does it.
    pub fn remixes(&self) -> Option<usize> {
        self.steps().find_map(|step| match step.kind {
            StepKind::Remix { group } => Some(group),
            _ => None,
        })
    }

    /// The draws of that step for a group whose first row has these random bits, if it is applied.
    pub fn remixed(&self, seed: u64) -> Option<Draws> {
        self.applied(seed).find_map(|(kind, draws)| matches!(kind, StepKind::Remix { .. }).then_some(draws))
    }

    /// What two examples with these random bits take of each other, step by step.
    pub fn taken(&self, bits: [u64; 2], axis: FrameAxis) -> impl Iterator<Item = [Taken; 2]> {
        self.steps.iter().filter_map(move |(step, key, reading)| {
            let StepKind::Pair(pairing) = &step.kind else { return None };
            Some(bits.map(|seed| {
                let mut draws = Draws { seed, key: *key, reading: *reading, next: 0 };
                if step.is_applied(seed, &mut draws) { pairing.draw(&mut draws, axis) } else { Taken::NONE }
            }))
        })
    }

    /// The steps that mix, in order.
    pub fn mixes(&self) -> impl Iterator<Item = &Mixing> {
        self.steps().filter_map(|step| match &step.kind {
            StepKind::Mix(mixing) => Some(mixing),
            _ => None,
        })
    }

    /// The steps that read other recordings, in order, with the names of their classes.
    pub fn readings(&self) -> impl Iterator<Item = (&'static str, PartnerReading)> {
        self.steps().filter_map(|step| Some((step.kind.name(), step.kind.reading()?)))
    }

    /// The steps that are applied to an example with these random bits, each with its draws.
    fn applied(&self, seed: u64) -> impl Iterator<Item = (&StepKind, Draws)> {
        self.applied_steps(seed).map(|(step, draws)| (&step.kind, draws))
    }

    fn applied_steps(&self, seed: u64) -> impl Iterator<Item = (&Step, Draws)> {
        self.steps.iter().filter_map(move |(step, key, reading)| {
            let mut draws = Draws { seed, key: *key, reading: *reading, next: 0 };
            step.is_applied(seed, &mut draws).then_some((step, draws))
        })
    }

    /// The same for rows of several waveforms, whose steps for one field change its waveforms; `find` has
    /// these of a name, and how many a row has.
    #[must_use]
    pub fn over(mut self, waveforms: usize, find: impl Fn(&str) -> Option<(Range<usize>, usize)>) -> Self {
        for (step, ..) in &mut self.steps {
            let of = if let StepKind::Level { of, .. } = &mut step.kind { of.as_mut() } else { None };
            for only in step.only.iter_mut().chain(of) {
                if let Some((waveforms, of)) = find(&only.field) {
                    (only.waveforms, only.of) = (waveforms, of);
                }
            }
        }
        Self { waveforms, ..self }
    }

    /// The same for these of a row's waveforms alone, which are changed by themselves: without the steps for
    /// fields that have none of them. The others draw what they drew.
    #[must_use]
    pub fn of_waveforms(&self, part: &Range<usize>) -> Self {
        let within = |only: &Only| {
            let start = only.waveforms.start.max(part.start);
            let end = only.waveforms.end.min(part.end);
            (start < end).then(|| Only {
                field: only.field.clone(),
                waveforms: start - part.start..end - part.start,
                of: part.len(),
            })
        };
        let keep = |(step, key, reading): &(Step, u64, usize)| {
            let mut step = step.clone();
            if let Some(only) = &step.only {
                step.only = Some(within(only)?);
            }
            if let StepKind::Level { of: Some(of), .. } = &mut step.kind {
                *of = within(of)?;
            }
            Some((step, *key, *reading))
        };
        let steps = self.steps.iter().filter_map(keep).collect();
        Self { steps, silence: self.silence.clone(), waveforms: part.len() }
    }

    /// The number that the first step of a class drew for a clip with these random bits; NaN if it is not
    /// applied, and for outcomes that are not drawn by one step.
    pub fn drawn(&self, seed: u64, outcome: Outcome) -> f64 {
        let drawn = self.applied(seed).filter(|(_, draws)| draws.number() == 0);
        let mut drawn = drawn.filter_map(|(kind, mut draws)| {
            Some(match (outcome, kind) {
                (Outcome::Gain, StepKind::Gain { db }) | (Outcome::Clip, StepKind::Clip { db }) => {
                    draws.within(*db)
                }
                (Outcome::Gain, StepKind::Scale { factor }) => 20.0 * libm::log10(draws.within(*factor)),
                (Outcome::Roll, StepKind::Roll { shift, .. })
                | (Outcome::FrameRoll, StepKind::FrameRoll { shift }) => draws.within(*shift),
                (Outcome::Level, StepKind::Level { db, .. }) => draws.within(*db),
                (Outcome::NoiseSnr, StepKind::Noise { snr_db, .. }) => draws.within(*snr_db),
                (Outcome::NoiseSlope, StepKind::Noise { snr_db, slope_db, .. }) => {
                    draws.within(*snr_db);
                    draws.within(*slope_db)
                }
                _ => return None,
            })
        });
        drawn.next().unwrap_or(f64::NAN)
    }

    /// The waveforms that the first step of a class changes alone; `None` if it changes all of a row.
    pub fn only_of(&self, outcome: Outcome) -> Option<Range<usize>> {
        let first = self.steps().find(|step| step.kind.name() == outcome.class())?;
        first.only.as_ref().map(|only| only.waveforms.clone())
    }

    /// The first `Reverb` or, else, the first `Mix`, with its draws, if it is applied.
    pub fn first_reading(&self, seed: u64, is_response: bool) -> Option<(&StepKind, Draws)> {
        let is_it =
            |kind: &StepKind| kind.reading().is_some_and(|reading| reading.is_response == is_response);
        self.applied(seed).find(|(kind, draws)| draws.number() == 0 && is_it(kind))
    }

    /// The factor by which the recording is played faster.
    pub fn speed(&self, seed: u64) -> f64 {
        let factors = self.applied(seed).filter_map(|(kind, mut draws)| match kind {
            StepKind::Speed { factors } => {
                factors.get((draws.unit() * factors.len() as f64) as usize).copied()
            }
            _ => None,
        });
        factors.product()
    }

    /// The least of all such factors, at most 1.
    pub fn slowest(&self) -> f64 {
        self.extreme_speed(f64::min)
    }

    /// The largest of all such factors, at least 1.
    pub fn fastest(&self) -> f64 {
        self.extreme_speed(f64::max)
    }

    fn extreme_speed(&self, of: fn(f64, f64) -> f64) -> f64 {
        let factors = self.steps().map(|step| match &step.kind {
            StepKind::Speed { factors } => factors.iter().copied().fold(1.0, of),
            _ => 1.0,
        });
        factors.product()
    }

    /// Changes the waveforms of an example with these random bits: its clip, and the
    /// [references](Self::n_references) beside it, as [`Self::unchanged`] makes them. `other` does a step
    /// that reads other recordings, and hears of each `Roll`, with its draws.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if an allocation failed; those of `other`.
    pub fn waveforms(
        &self,
        seed: u64,
        clips: &mut Clips<'_>,
        scratch: &mut AugmentScratch,
        other: &mut OtherSteps<'_>,
    ) -> Result<()> {
        if self.n_references() > 0 {
            return self.waveforms_with_references(seed, clips, scratch, other);
        }
        for (step, draws) in self.applied_steps(seed) {
            let Some(only) = &step.only else {
                step.change(draws, clips, self.waveforms, scratch, other)?;
                continue;
            };
            let range = only.samples(clips.samples.len());
            // What is padding of the row stays so: the other waveforms have nothing there.
            let mut part = Clips { samples: &mut clips.samples[range], valid: clips.valid.clone(), ..*clips };
            step.change(draws, &mut part, only.waveforms.len(), scratch, other)?;
        }
        Ok(())
    }

    /// By how many of the `n_valid` frames that are not padding the `FrameRoll`s move them, to later frames.
    pub fn frames_rolled(&self, seed: u64, n_valid: usize) -> i64 {
        let shifts = self.applied(seed).filter_map(|(kind, mut draws)| match kind {
            StepKind::FrameRoll { shift } => Some(rolled(draws.within(*shift), n_valid)),
            _ => None,
        });
        shifts.sum()
    }

    /// Changes the features of one channel of an example with these random bits.
    ///
    /// # Errors
    /// [`ErrorKind::Callback`](crate::ErrorKind::Callback) if a function of the user failed;
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if an allocation failed.
    pub fn features(
        &self,
        seed: u64,
        axis: FrameAxis,
        scratch: &mut AugmentScratch,
        mut values: ValuesMut<'_>,
    ) -> Result<()> {
        for (kind, mut draws) in self.applied(seed) {
            match kind {
                StepKind::SpecAugment(masks) => {
                    masks.warp(&draws, axis, &mut scratch.given, &mut values)?;
                    masks.apply(&mut draws, axis, &self.silence, &mut values);
                }
                StepKind::FrameRoll { shift } => {
                    let shift = rolled(draws.within(*shift), axis.n_valid);
                    bands::roll(shift, axis, &mut values);
                }
                StepKind::Call(calling) if calling.on_features => {
                    calling.features(draws.bits(), axis, scratch, &mut values)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Clips<'_> {
    fn channels(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.samples.chunks_exact_mut(self.n.max(1))
    }

    /// The level, as a root mean square over all channels, or as the amplitude whose decibels are LUFS.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if an allocation failed.
    pub fn level(&self, loudness: Loudness) -> Result<f64> {
        let (part, block) = match loudness {
            Loudness::Lufs => {
                return loudness::loudness(self.samples, self.n, self.valid.clone(), self.sample_rate);
            }
            Loudness::Clip => (0..self.n, self.n.max(1)),
            Loudness::Rms => (self.valid.clone(), self.n.max(1)),
            Loudness::Active => (self.valid.clone(), (self.sample_rate as usize / 50).max(1)),
        };
        let channels = self.samples.chunks_exact(self.n.max(1));
        let blocks = channels.flat_map(|channel| channel[part.clone()].chunks(block));
        let blocks = blocks.map(|block| (squares(block), block.len() as f64));
        const FLOOR: f64 = 1e-4; // of the squares: 40 dB
        let least = match loudness {
            Loudness::Active => FLOOR * blocks.clone().map(|(sum, n)| sum / n).fold(0.0, f64::max),
            Loudness::Rms | Loudness::Clip | Loudness::Lufs => 0.0,
        };
        let heard = blocks.filter(|(sum, n)| sum / n >= least);
        let (sum, n) = heard.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
        Ok(if n > 0.0 { (sum / n).sqrt() } else { 0.0 })
    }
}

/// Decibels as a ratio of amplitudes.
pub fn ratio(db: f64) -> f64 {
    libm::pow(10.0, db / 20.0)
}

/// The factor of what is added, whose level is `added`, for a ratio to the level `to`; 0 where either is
/// silent, since no factor gives a ratio then.
pub fn relative(to: f64, added: f64, snr_db: f64) -> f64 {
    let factor = to / added * ratio(-snr_db);
    // What float32 cannot hold is as silent as zeros.
    let is_possible = to > 0.0 && added > 0.0 && (factor as f32).is_finite();
    if is_possible { factor } else { 0.0 }
}

/// Moves samples to later times; what leaves at one end comes in at the other, or zeros do.
fn roll(samples: &mut [f32], shift: i64, wraps: bool) {
    samples.rotate_right(shift.rem_euclid(samples.len().max(1) as i64) as usize);
    let n = shift.unsigned_abs().min(samples.len() as u64) as usize;
    match shift {
        _ if wraps => {}
        0.. => samples[..n].fill(0.0),
        _ => {
            let kept = samples.len() - n;
            samples[kept..].fill(0.0);
        }
    }
}

/// The whole part of a share of `n`.
fn rolled(share: f64, n: usize) -> i64 {
    (share * n as f64).round() as i64
}

fn peak(values: &[f32]) -> f64 {
    reduce(values, f64::abs, |most, x| if x > most { x } else { most })
}

fn scale(values: &mut [f32], factor: f32) {
    values.iter_mut().for_each(|x| *x *= factor);
}

pub(super) fn add(values: &mut [f32], others: &[f32], factor: f64) {
    let factor = factor as f32;
    if factor != 0.0 {
        values.iter_mut().zip(others).for_each(|(x, other)| *x += factor * other);
    }
}

#[cfg(test)]
mod tests;
