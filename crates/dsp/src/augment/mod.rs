//! [`Augment`]: random changes of clips and features, each a pure function of a record's random bits.
//!
//! A recipe is a list of [`Step`]s. Steps on the waveform run in their order, then the features are computed,
//! then the steps on features run in their order; [`Kind::Speed`] belongs to the reading of the clip and is
//! applied before all others. What a step draws are hashes of (the record's bits, the step's class and its
//! number among the steps of that class, the number of the draw), the first of which decides whether it is
//! applied. So a further step never changes what others draw, and nothing depends on threads. Arithmetic on
//! samples is without fused products, so that bits do not depend on the CPU. Sources of the definitions: with
//! each step.

mod bands;
mod custom;
mod device;
mod filter;
mod mix;
mod noise;
mod pairs;
mod reverb;

use std::ops::Range;

use smallvec::SmallVec;

use super::sums::{reduce, rms, squares};
use crate::{
    Result,
    dtype::ValuesMut,
    fallible_alloc,
    seed::{Purpose, below, hash},
};

pub use bands::{BandMasks, Fill, FrameAxis, Number, Width};
pub use custom::{Calling, Custom};
pub use device::Drawing;
use filter::Biquad;
pub use filter::Shape;
pub use mix::{Amount, MixLevel, MixTargets, Mixing};
pub use pairs::{Exchange, Pairing, Taken, exchange, shares_after};
pub use reverb::Convolver;

/// The most steps of a recipe.
pub const MOST_STEPS: usize = 64;
/// The most filters of one step, masks of one axis, and speeds to choose from.
pub const MOST_PARTS: usize = 64;

/// Numbers between which a value is drawn, uniformly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// The lowest value; at most `high`.
    pub low: f64,
    /// The highest value; if it is `low`, nothing is random.
    pub high: f64,
}

/// Whole numbers between which one is drawn, each equally likely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// The lowest number; at most `high`.
    pub low: usize,
    /// The highest number.
    pub high: usize,
}

/// How the level of a clip is measured, to which noise relates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loudness {
    /// The root mean square of all samples that are not padding.
    Rms,
    /// That of the blocks of 20 ms that are at most 40 dB below the loudest one.
    Active,
    /// That of all samples, padding too.
    Clip,
}

/// What a step does; one variant for each class of `forebay.augment`, but for `CutMix`, a [`Pairing`] too.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// Changes the level of all samples.
    Gain {
        /// Decibels.
        db: Bounds,
    },
    /// Changes the level of all samples, by a factor that is drawn instead of decibels; a `Gain` too.
    Scale {
        /// Above 0.
        factor: Bounds,
    },
    /// Inverts the sign of all samples.
    Polarity,
    /// Moves the samples that are not padding.
    Roll {
        /// By this share of them, behind for positive numbers.
        shift: Bounds,
        /// Whether what leaves at one end comes in at the other; else zeros do.
        wraps: bool,
    },
    /// Adds Gaussian noise to all of a clip, padding too.
    Noise {
        /// The clip's level above that of the noise, decibels.
        snr_db: Bounds,
        /// Decibels per octave by which the noise's spectrum rises: 0 is white, -3 pink, -6 brown.
        slope_db: Bounds,
        /// How the clip's level is measured.
        loudness: Loudness,
    },
    /// Adds white Gaussian noise to the samples that are not padding.
    Dither {
        /// The standard deviation, where 1 is full scale.
        amount: Bounds,
    },
    /// Removes bands of frequencies by notch filters.
    DropFreq {
        /// The middle of a band, as a share of half the sample rate.
        freq: Bounds,
        /// How far a band reaches on each side of its middle, likewise; below 0.5.
        width: Bounds,
        /// The number of bands; at most half of [`MOST_PARTS`].
        n: Counts,
    },
    /// Replaces parts of the samples that are not padding, at the same time in all channels.
    DropChunk {
        /// Milliseconds of a part, at most all of them.
        length_ms: Bounds,
        /// The number of parts.
        n: Counts,
        /// The level of the noise in a part, over that of the clip; zeros for 0.
        noise_factor: Bounds,
    },
    /// Filters the waveform by second-order filters.
    Filter {
        /// The response: low-pass, high-pass, band-pass or peak.
        shape: Shape,
        /// Hertz; drawn uniformly on a logarithmic scale.
        freq: Bounds,
        /// Quality: the middle over the width of the band.
        q: Bounds,
        /// Decibels at the middle of a peak.
        gain_db: Bounds,
        /// Filters one after the other, each drawn anew.
        n: usize,
    },
    /// Limits samples to a level relative to the clip's peak.
    Clip {
        /// To the peak and these decibels.
        db: Bounds,
    },
    /// Plays the recording faster, and so higher.
    Speed {
        /// One of these factors is drawn.
        factors: Vec<f64>,
    },
    /// Mixes clips of other recordings in.
    Mix(Mixing),
    /// Convolves with an impulse response, which is another recording.
    Reverb,
    /// Masks bands and frames of the features.
    SpecAugment(BandMasks),
    /// Moves frames that are not padding; what leaves at one end comes in at the other.
    FrameRoll {
        /// By this share of them, to later frames for positive numbers.
        shift: Bounds,
    },
    /// Mixes pairs of examples of a batch.
    Pair(Pairing),
    /// Exchanges the waveforms of rows of a batch.
    Remix {
        /// The rows of a group, within which they are exchanged.
        group: usize,
    },
    /// Calls a function of the user.
    Call(Calling),
}

impl Kind {
    /// The name of its class in `forebay.augment`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Gain { .. } | Self::Scale { .. } => "Gain",
            Self::Polarity => "Polarity",
            Self::Roll { .. } => "Roll",
            Self::Noise { .. } => "Noise",
            Self::Dither { .. } => "Dither",
            Self::DropFreq { .. } => "DropFreq",
            Self::DropChunk { .. } => "DropChunk",
            Self::Filter { .. } => "Filter",
            Self::Clip { .. } => "Clip",
            Self::Speed { .. } => "Speed",
            Self::Mix(_) => "Mix",
            Self::Reverb => "Reverb",
            Self::SpecAugment(_) => "SpecAugment",
            Self::FrameRoll { .. } => "FrameRoll",
            Self::Pair(Pairing { exchange: Exchange::Mixup, .. }) => "Mixup",
            Self::Pair(_) => "CutMix",
            Self::Remix { .. } => "Remix",
            Self::Call(_) => "Python",
        }
    }

    /// The number of its class in hashes; must never change.
    fn number(&self) -> u64 {
        match self {
            Self::Gain { .. } | Self::Scale { .. } => 1,
            Self::Polarity => 2,
            Self::Roll { .. } => 3,
            Self::Noise { .. } => 4,
            Self::Filter { .. } => 5,
            Self::Clip { .. } => 6,
            Self::Speed { .. } => 7,
            Self::SpecAugment(_) => 8,
            Self::FrameRoll { .. } => 9,
            Self::Mix(_) => 10,
            Self::Reverb => 11,
            Self::Pair(Pairing { exchange: Exchange::Mixup, .. }) => 12,
            Self::Pair(_) => 13,
            Self::Call(_) => 14,
            Self::Dither { .. } => 15,
            Self::DropFreq { .. } => 16,
            Self::DropChunk { .. } => 17,
            // 18: `Choice::CLASS`.
            Self::Remix { .. } => 19,
        }
    }

    /// The recordings that it reads besides the clip's own.
    pub fn reading(&self) -> Option<Reading> {
        match self {
            Self::Mix(Mixing { near, is_own, .. }) => {
                Some(Reading { is_own: *is_own, near: *near, is_response: false })
            }
            Self::Reverb => Some(Reading { is_own: false, near: None, is_response: true }),
            _ => None,
        }
    }

    /// By how many samples a `Roll` moves `valid` ones with these draws, and whether they wrap around.
    pub fn rolled(&self, draws: &mut Draws, valid: usize) -> Option<(i64, bool)> {
        let Self::Roll { shift, wraps } = self else { return None };
        Some((rolled(draws.within(*shift), valid), *wraps))
    }

    /// Whether it changes the waveform of a clip.
    pub fn is_on_waveforms(&self) -> bool {
        !(self.is_on_features() || matches!(self, Self::Speed { .. } | Self::Pair(_) | Self::Remix { .. }))
    }

    /// Whether it changes spectrograms of a clip.
    pub fn is_on_features(&self) -> bool {
        matches!(
            self,
            Self::SpecAugment(_) | Self::FrameRoll { .. } | Self::Call(Calling { on_features: true, .. })
        )
    }
}

/// The recordings that a step reads besides a clip's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Whether they are the loader's own rows.
    pub is_own: bool,
    /// Of the loader's own rows: one of this many before the clip's own; `None`: any row.
    pub near: Option<u64>,
    /// Whether they are read from their start, and zeros follow a short one; else a random clip is read,
    /// and a short one is repeated.
    pub is_response: bool,
}

/// What is done, and how often.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What the step does when it is applied.
    pub kind: Kind,
    /// The share of examples to which it is applied.
    pub p: f64,
    /// The group of which it is one, if only one of several steps is applied.
    pub choice: Option<Choice>,
    /// The waveforms of a row that it changes, if not all.
    pub only: Option<Only>,
}

/// One of the fields of waveforms of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Only {
    /// The name of the field.
    pub field: String,
    /// Which of the waveforms of a row are its.
    pub waveforms: Range<usize>,
    /// The waveforms of a row.
    pub of: usize,
}

impl Only {
    /// Where these waveforms are, if those of all have so many samples.
    fn samples(&self, all: usize) -> Range<usize> {
        let each = all / self.of.max(1);
        self.waveforms.start * each..(self.waveforms.end * each).min(all)
    }
}

/// A step's part in a group, of which at most one step is applied to an example.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The number of the group among those of the recipe.
    pub group: u32,
    /// The share of examples for which one of the group is chosen; its own `p` still counts.
    pub p: f64,
    /// The step's share of the choices, as a part of `[0, 1)`; those of a group have no number in common.
    pub part: [f64; 2],
}

impl Choice {
    /// The class of groups in hashes, beside those of steps; must never change.
    const CLASS: u64 = 18;

    /// The choices among steps of these weights, which are above 0, for group `group`.
    pub fn of_weights(group: u32, p: f64, weights: &[f64]) -> impl Iterator<Item = Self> {
        let whole: f64 = weights.iter().sum();
        let ends = weights.iter().scan([0.0, 0.0], move |[sum, end], weight| {
            *sum += weight;
            let start = std::mem::replace(end, *sum / whole);
            Some([start, *end])
        });
        ends.map(move |part| Self { group, p, part })
    }

    fn is_taken(&self, seed: u64) -> bool {
        let mut draws = Draws { seed, key: Self::CLASS << 32 | u64::from(self.group), reading: 0, next: 0 };
        draws.unit() < self.p && (self.part[0]..self.part[1]).contains(&draws.unit())
    }
}

impl Step {
    /// Whether it is applied, by its first draw and that of its group.
    fn is_applied(&self, seed: u64, draws: &mut Draws) -> bool {
        draws.unit() < self.p && self.choice.is_none_or(|choice| choice.is_taken(seed))
    }

    /// Changes waveforms by these draws; `other` as in [`Augment::waveforms`].
    fn change(
        &self,
        mut draws: Draws,
        clips: &mut Clips<'_>,
        scratch: &mut AugmentScratch,
        other: &mut dyn FnMut(&Kind, &mut Draws, &mut Clips<'_>) -> Result<()>,
    ) -> Result<()> {
        let kind = &self.kind;
        let rate = f64::from(clips.sample_rate);
        match kind {
            Kind::Gain { db } => scale(clips.samples, ratio(draws.within(*db)) as f32),
            Kind::Scale { factor } => scale(clips.samples, draws.within(*factor) as f32),
            Kind::Polarity => scale(clips.samples, -1.0),
            Kind::Roll { shift, wraps } => {
                let (valid, mut again) = (clips.valid.clone(), draws);
                let shift = rolled(draws.within(*shift), valid.len());
                for channel in clips.channels() {
                    roll(&mut channel[valid.clone()], shift, *wraps);
                }
                // The time of a row is that of all of its waveforms.
                if self.only.is_none() {
                    other(kind, &mut again, clips)?;
                }
            }
            Kind::Noise { snr_db, slope_db, loudness } => {
                let (snr, slope) = (draws.within(*snr_db), draws.within(*slope_db));
                let level = clips.level(*loudness);
                if level == 0.0 {
                    return Ok(());
                }
                fallible_alloc::resize(&mut scratch.noise, clips.n, 0.0)?;
                for channel in clips.channels() {
                    noise::gaussian(draws.bits(), &mut scratch.noise);
                    noise::coloured(slope, rate, &mut scratch.noise);
                    add(channel, &scratch.noise, relative(level, rms(&scratch.noise), snr));
                }
                clips.valid = 0..clips.n;
            }
            Kind::Dither { amount } => {
                let (amount, valid) = (draws.within(*amount), clips.valid.clone());
                fallible_alloc::resize(&mut scratch.noise, valid.len(), 0.0)?;
                for channel in clips.channels() {
                    noise::gaussian(draws.bits(), &mut scratch.noise);
                    add(&mut channel[valid.clone()], &scratch.noise, amount);
                }
            }
            Kind::DropFreq { freq, width, n } => {
                let mut notches = SmallVec::<[Biquad; MOST_PARTS]>::new();
                for _ in 0..draws.whole(*n) {
                    let freq = draws.within(*freq);
                    // bounded: at most 32.
                    notches.push(Biquad::notch(freq, draws.within(*width)));
                }
                // Half of the amplitude is left at the edges.
                clips.channels().for_each(|channel| filter::run_twice(&notches, channel));
            }
            Kind::DropChunk { length_ms, n, noise_factor } => {
                let valid = clips.valid.clone();
                let level = if noise_factor.high > 0.0 { clips.level(Loudness::Rms) } else { 0.0 };
                for _ in 0..draws.whole(*n) {
                    let len = (draws.within(*length_ms) / 1000.0 * rate).round() as usize;
                    let len = len.min(valid.len());
                    let start = valid.start + draws.below(valid.len() - len + 1);
                    let factor = level * draws.within(*noise_factor);
                    fallible_alloc::resize(&mut scratch.noise, len, 0.0)?;
                    for channel in clips.channels() {
                        let chunk = &mut channel[start..start + len];
                        chunk.fill(0.0);
                        if factor > 0.0 {
                            noise::gaussian(draws.bits(), &mut scratch.noise);
                            add(chunk, &scratch.noise, factor);
                        }
                    }
                }
            }
            Kind::Filter { shape, freq, q, gain_db, n } => {
                let mut filters = SmallVec::<[Biquad; MOST_PARTS]>::new();
                for _ in 0..*n {
                    let (freq, q) = (draws.log_within(*freq), draws.log_within(*q));
                    // bounded: at most 64.
                    filters.push(Biquad::new(*shape, freq, q, draws.within(*gain_db), rate));
                }
                clips.channels().for_each(|channel| filter::run(&filters, channel));
            }
            Kind::Clip { db } => {
                let most = (ratio(draws.within(*db)) * peak(clips.samples)) as f32;
                clips.samples.iter_mut().for_each(|x| *x = x.clamp(-most, most));
            }
            Kind::Mix(_) | Kind::Reverb => other(kind, &mut draws, clips)?,
            Kind::Call(Calling { function, on_features: false }) => {
                let shape = [clips.samples.len() / clips.n.max(1), clips.n];
                function.change(clips.samples, shape, draws.bits())?;
            }
            Kind::Speed { .. }
            | Kind::SpecAugment(_)
            | Kind::FrameRoll { .. }
            | Kind::Pair(_)
            | Kind::Remix { .. }
            | Kind::Call(_) => {}
        }
        Ok(())
    }
}

/// What a step draws, in order.
#[derive(Debug, Clone, Copy)]
pub struct Draws {
    seed: u64,
    key: u64,
    reading: usize,
    next: u64,
}

impl Draws {
    /// The step's number among those of its class.
    pub fn number(&self) -> usize {
        (self.key & 0xffff_ffff) as usize
    }

    /// Its number among the steps that read other recordings, if it does.
    pub fn reading(&self) -> usize {
        self.reading
    }

    /// The next 64 random bits of the step.
    pub fn bits(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        hash(self.seed, Purpose::Augment, [self.key, number])
    }

    /// A number in `[0, 1)`, uniform.
    pub fn unit(&mut self) -> f64 {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        (self.bits() >> 11) as f64 * SCALE
    }

    /// A number between the bounds, uniform.
    pub fn within(&mut self, Bounds { low, high }: Bounds) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A whole number between the bounds, both included.
    fn whole(&mut self, Counts { low, high }: Counts) -> usize {
        low + self.below(high - low + 1)
    }

    /// A whole number below `n`; 0 if that is 0.
    fn below(&mut self, n: usize) -> usize {
        below(self.bits(), n as u64) as usize
    }

    /// Without the next `n` draws, for parts of a step that are drawn last and done first.
    fn after(self, n: usize) -> Self {
        Self { next: self.next + n as u64, ..self }
    }

    /// A number between the bounds, uniform on a logarithmic scale.
    fn log_within(&mut self, Bounds { low, high }: Bounds) -> f64 {
        let [low, high] = [low, high].map(libm::log);
        libm::exp(self.within(Bounds { low, high })).max(f64::MIN_POSITIVE)
    }
}

/// A recipe; immutable, shared by threads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Augment {
    /// Each step with the key of its draws, and the number of steps before it that read other recordings.
    steps: Vec<(Step, u64, usize)>,
    /// The features of a frame of silence, if a step needs them.
    silence: Vec<f32>,
}

/// What happened to a clip, as a field of a batch: of the first step of a class, and the first partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The factor by which the recording is played faster.
    Speed,
    /// Decibels by which a `Gain` changes the level.
    Gain,
    /// The share of the samples by which a `Roll` moves them.
    Roll,
    /// Decibels of a `Noise` below the clip.
    NoiseSnr,
    /// Decibels per octave of a `Noise`.
    NoiseSlope,
    /// Decibels of a `Clip`'s limit, relative to the peak.
    Clip,
    /// The share of the frames by which a `FrameRoll` moves them.
    FrameRoll,
    /// The partner's row; -1 if there is none.
    MixIndex,
    /// Where the partner's clip begins in its recording, seconds.
    MixStart,
    /// How many decibels the partner is below the clip.
    MixSnr,
    /// The partner's share of the sum.
    MixWeight,
    /// The row of the impulse response; -1 if there is none.
    ReverbIndex,
}

impl Outcome {
    /// All, with the name of the field, the class of the step, and what users read about it.
    pub const ALL: [(Self, &str, &str, &str); 12] = [
        (Self::Speed, "speed", "Speed", "how many times faster the recording is played"),
        (Self::Gain, "gain_db", "Gain", "change of the level, decibels"),
        (Self::Roll, "roll_shift", "Roll", "shift of the samples, as a share of them"),
        (Self::NoiseSnr, "noise_snr_db", "Noise", "level of the clip above the noise, decibels"),
        (Self::NoiseSlope, "noise_slope_db", "Noise", "slope of the noise's spectrum, decibels per octave"),
        (Self::Clip, "clip_db", "Clip", "limit below the peak, decibels"),
        (Self::FrameRoll, "frame_roll_shift", "FrameRoll", "shift of the frames, as a share of them"),
        (Self::MixIndex, "mix_index", "Mix", "row of the partner in its files, -1 for none"),
        (Self::MixStart, "mix_start", "Mix", "start of the partner's clip in its recording, seconds"),
        (Self::MixSnr, "mix_snr_db", "Mix", "level of the clip above the partner, decibels"),
        (Self::MixWeight, "mix_weight", "Mix", "weight of the partner"),
        (
            Self::ReverbIndex,
            "reverb_index",
            "Reverb",
            "row of the impulse response in its files, -1 for none",
        ),
    ];

    /// The outcome with that name, the class of its step, and its meaning.
    pub fn named(name: &str) -> Option<(Self, &'static str, &'static str)> {
        let (outcome, _, class, meaning) = Self::ALL.iter().find(|(_, known, ..)| *known == name)?;
        Some((*outcome, *class, *meaning))
    }
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
        Self { steps: keyed.collect(), silence: Vec::new() }
    }

    /// Whether a step needs the features of silence.
    pub fn needs_silence(&self) -> bool {
        self.steps().any(|step| matches!(&step.kind, Kind::SpecAugment(masks) if masks.fill == Fill::Silence))
    }

    /// The same, with partners anywhere among the loader's rows where these are read in a random order.
    #[must_use]
    pub fn anywhere(&self, is_scattered: bool) -> Self {
        let mut found = self.clone();
        for (step, ..) in found.steps.iter_mut().filter(|_| is_scattered) {
            if let Kind::Mix(mixing) = &mut step.kind {
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
        self.steps().any(|step| matches!(step.kind, Kind::Pair(_)))
    }

    /// The rows of a group within which waveforms are exchanged, if a step does it.
    pub fn remixes(&self) -> Option<usize> {
        self.steps().find_map(|step| match step.kind {
            Kind::Remix { group } => Some(group),
            _ => None,
        })
    }

    /// The draws of that step for a group whose first row has these random bits, if it is applied.
    pub fn remixed(&self, seed: u64) -> Option<Draws> {
        self.applied(seed).find_map(|(kind, draws)| matches!(kind, Kind::Remix { .. }).then_some(draws))
    }

    /// What two examples with these random bits take of each other, step by step.
    pub fn taken(&self, bits: [u64; 2], axis: FrameAxis) -> impl Iterator<Item = [Taken; 2]> {
        self.steps.iter().filter_map(move |(step, key, reading)| {
            let Kind::Pair(pairing) = &step.kind else { return None };
            Some(bits.map(|seed| {
                let mut draws = Draws { seed, key: *key, reading: *reading, next: 0 };
                if step.is_applied(seed, &mut draws) { pairing.draw(&mut draws, axis) } else { Taken::NONE }
            }))
        })
    }

    /// The steps that mix, in order.
    pub fn mixes(&self) -> impl Iterator<Item = &Mixing> {
        self.steps().filter_map(|step| match &step.kind {
            Kind::Mix(mixing) => Some(mixing),
            _ => None,
        })
    }

    /// The steps that read other recordings, in order, with the names of their classes.
    pub fn readings(&self) -> impl Iterator<Item = (&'static str, Reading)> {
        self.steps().filter_map(|step| Some((step.kind.name(), step.kind.reading()?)))
    }

    /// The steps that are applied to an example with these random bits, each with its draws.
    fn applied(&self, seed: u64) -> impl Iterator<Item = (&Kind, Draws)> {
        self.applied_steps(seed).map(|(step, draws)| (&step.kind, draws))
    }

    fn applied_steps(&self, seed: u64) -> impl Iterator<Item = (&Step, Draws)> {
        self.steps.iter().filter_map(move |(step, key, reading)| {
            let mut draws = Draws { seed, key: *key, reading: *reading, next: 0 };
            step.is_applied(seed, &mut draws).then_some((step, draws))
        })
    }

    /// The same, whose steps for one field change its waveforms; `find` has these of a name, and how many a
    /// row has.
    #[must_use]
    pub fn over(mut self, find: impl Fn(&str) -> Option<(Range<usize>, usize)>) -> Self {
        for only in self.steps.iter_mut().filter_map(|(step, ..)| step.only.as_mut()) {
            if let Some((waveforms, of)) = find(&only.field) {
                (only.waveforms, only.of) = (waveforms, of);
            }
        }
        self
    }

    /// The number that the first step of a class drew for a clip with these random bits; NaN if it is not
    /// applied, and for outcomes that are not drawn by one step.
    pub fn drawn(&self, seed: u64, outcome: Outcome) -> f64 {
        let drawn = self.applied(seed).filter(|(_, draws)| draws.number() == 0);
        let mut drawn = drawn.filter_map(|(kind, mut draws)| {
            Some(match (outcome, kind) {
                (Outcome::Gain, Kind::Gain { db }) | (Outcome::Clip, Kind::Clip { db }) => draws.within(*db),
                (Outcome::Gain, Kind::Scale { factor }) => 20.0 * libm::log10(draws.within(*factor)),
                (Outcome::Roll, Kind::Roll { shift, .. })
                | (Outcome::FrameRoll, Kind::FrameRoll { shift }) => draws.within(*shift),
                (Outcome::NoiseSnr, Kind::Noise { snr_db, .. }) => draws.within(*snr_db),
                (Outcome::NoiseSlope, Kind::Noise { snr_db, slope_db, .. }) => {
                    draws.within(*snr_db);
                    draws.within(*slope_db)
                }
                _ => return None,
            })
        });
        drawn.next().unwrap_or(f64::NAN)
    }

    /// The first `Reverb` or, else, the first `Mix`, with its draws, if it is applied.
    pub fn first_reading(&self, seed: u64, is_response: bool) -> Option<(&Kind, Draws)> {
        let is_it = |kind: &Kind| kind.reading().is_some_and(|reading| reading.is_response == is_response);
        self.applied(seed).find(|(kind, draws)| draws.number() == 0 && is_it(kind))
    }

    /// The factor by which the recording is played faster.
    pub fn speed(&self, seed: u64) -> f64 {
        let factors = self.applied(seed).filter_map(|(kind, mut draws)| match kind {
            Kind::Speed { factors } => factors.get((draws.unit() * factors.len() as f64) as usize).copied(),
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
            Kind::Speed { factors } => factors.iter().copied().fold(1.0, of),
            _ => 1.0,
        });
        factors.product()
    }

    /// Changes the waveforms of an example with these random bits. `other` does a step that reads
    /// other recordings, and is told of a `Roll` that was done, with its draws.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if an allocation failed; those of `other`.
    pub fn waveforms(
        &self,
        seed: u64,
        clips: &mut Clips<'_>,
        scratch: &mut AugmentScratch,
        other: &mut dyn FnMut(&Kind, &mut Draws, &mut Clips<'_>) -> Result<()>,
    ) -> Result<()> {
        for (step, draws) in self.applied_steps(seed) {
            let Some(only) = &step.only else {
                step.change(draws, clips, scratch, other)?;
                continue;
            };
            let range = only.samples(clips.samples.len());
            // What is padding of the row stays so: the other waveforms have nothing there.
            let mut part = Clips { samples: &mut clips.samples[range], valid: clips.valid.clone(), ..*clips };
            step.change(draws, &mut part, scratch, other)?;
        }
        Ok(())
    }

    /// By how many of the `n_valid` frames that are not padding the `FrameRoll`s move them, to later frames.
    pub fn frames_rolled(&self, seed: u64, n_valid: usize) -> i64 {
        let shifts = self.applied(seed).filter_map(|(kind, mut draws)| match kind {
            Kind::FrameRoll { shift } => Some(rolled(draws.within(*shift), n_valid)),
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
                Kind::SpecAugment(masks) => {
                    masks.warp(&draws, axis, &mut scratch.given, &mut values)?;
                    masks.apply(&mut draws, axis, &self.silence, &mut values);
                }
                Kind::FrameRoll { shift } => {
                    let shift = rolled(draws.within(*shift), axis.n_valid);
                    bands::roll(shift, axis, &mut values);
                }
                Kind::Call(calling) if calling.on_features => {
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

    /// The level, as a root mean square over all channels.
    pub fn level(&self, loudness: Loudness) -> f64 {
        let part = match loudness {
            Loudness::Clip => 0..self.n,
            Loudness::Rms | Loudness::Active => self.valid.clone(),
        };
        let block = match loudness {
            Loudness::Active => (self.sample_rate as usize / 50).max(1),
            Loudness::Rms | Loudness::Clip => self.n.max(1),
        };
        let channels = self.samples.chunks_exact(self.n.max(1));
        let blocks = channels.flat_map(|channel| channel[part.clone()].chunks(block));
        let blocks = blocks.map(|block| (squares(block), block.len() as f64));
        const FLOOR: f64 = 1e-4; // of the squares: 40 dB
        let least = match loudness {
            Loudness::Active => FLOOR * blocks.clone().map(|(sum, n)| sum / n).fold(0.0, f64::max),
            Loudness::Rms | Loudness::Clip => 0.0,
        };
        let heard = blocks.filter(|(sum, n)| sum / n >= least);
        let (sum, n) = heard.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
        if n > 0.0 { (sum / n).sqrt() } else { 0.0 }
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
