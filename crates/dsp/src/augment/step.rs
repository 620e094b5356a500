//! [`Step`]: what is done to a clip, how often, and to which of its waveforms. Sources: with each step.

use std::ops::Range;

use smallvec::SmallVec;

use super::{
    AugmentScratch, BandMasks, Bounds, Calling, CleanTarget, Clips, Counts, Draws, Exchange, FilterShape,
    Loudness, MOST_PARTS, Mixing, Pairing, References, add,
    filter::{self, Biquad},
    loudness, noise, peak, ratio, relative, roll, rolled, scale,
};
use crate::{Result, fallible_alloc, sums::rms};

/// What a step does; one variant for each class of `forebay.augment`, but for `CutMix`, a [`Pairing`] too.
#[derive(Debug, Clone, PartialEq)]
pub enum StepKind {
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
    /// Sets the level, by one gain for all waveforms.
    Level {
        /// Decibels of full scale, or LUFS.
        db: Bounds,
        /// How the level is measured.
        loudness: Loudness,
        /// The field whose level is set, if a row has several waveforms; `None`: all of them together.
        of: Option<Only>,
        /// No sample exceeds it after the gain, which is less then.
        peak: Option<f64>,
    },
    /// Exchanges left and right of waveforms of two channels.
    SwapChannels,
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
        shape: FilterShape,
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
    Reverb {
        /// The target that examples have beside the reverberated clip, if they have one.
        clean: Option<CleanTarget>,
    },
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

impl StepKind {
    /// The name of its class in `forebay.augment`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Gain { .. } | Self::Scale { .. } => "Gain",
            Self::Level { .. } => "Level",
            Self::SwapChannels => "SwapChannels",
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
            Self::Reverb { .. } => "Reverb",
            Self::SpecAugment(_) => "SpecAugment",
            Self::FrameRoll { .. } => "FrameRoll",
            Self::Pair(Pairing { exchange: Exchange::Mixup, .. }) => "Mixup",
            Self::Pair(_) => "CutMix",
            Self::Remix { .. } => "Remix",
            Self::Call(_) => "Python",
        }
    }

    /// The number of its class in hashes; must never change.
    pub(super) fn number(&self) -> u64 {
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
            Self::Reverb { .. } => 11,
            Self::Pair(Pairing { exchange: Exchange::Mixup, .. }) => 12,
            Self::Pair(_) => 13,
            Self::Call(_) => 14,
            Self::Dither { .. } => 15,
            Self::DropFreq { .. } => 16,
            Self::DropChunk { .. } => 17,
            // 18: `Choice::CLASS`.
            Self::Remix { .. } => 19,
            Self::Level { .. } => 20,
            Self::SwapChannels => 21,
        }
    }

    /// The recordings that it reads besides the clip's own.
    pub fn reading(&self) -> Option<PartnerReading> {
        match self {
            Self::Mix(Mixing { near, is_own, .. }) => {
                Some(PartnerReading { is_own: *is_own, near: *near, is_response: false })
            }
            Self::Reverb { .. } => Some(PartnerReading { is_own: false, near: None, is_response: true }),
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
pub struct PartnerReading {
    /// Whether they are the loader's own rows.
    pub is_own: bool,
    /// Of the loader's own rows: one of this many before the clip's own; `None`: any row.
    pub near: Option<u64>,
    /// Whether they are read from their start, and zeros follow a short one; else a random clip is read,
    /// and a short one is repeated.
    pub is_response: bool,
}

/// Does a step that reads other recordings, and is told of a `Roll` that was done.
pub type OtherSteps<'a> = dyn FnMut(&StepKind, &mut Draws, &mut Clips<'_>, References<'_>) -> Result<()> + 'a;

/// What is done, and how often.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What the step does when it is applied.
    pub kind: StepKind,
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
    /// The range of its samples in `all` samples of a row's waveforms, which lie one after the other.
    pub(super) fn samples(&self, all: usize) -> Range<usize> {
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
    pub(super) fn is_applied(&self, seed: u64, draws: &mut Draws) -> bool {
        draws.unit() < self.p && self.choice.is_none_or(|choice| choice.is_taken(seed))
    }

    /// Changes waveforms by these draws, so many of a row; `other` as in [`Augment::waveforms`].
    pub(super) fn change(
        &self,
        mut draws: Draws,
        clips: &mut Clips<'_>,
        waveforms: usize,
        scratch: &mut AugmentScratch,
        other: &mut OtherSteps<'_>,
    ) -> Result<()> {
        let kind = &self.kind;
        let rate = f64::from(clips.sample_rate);
        match kind {
            StepKind::Gain { db } => scale(clips.samples, ratio(draws.within(*db)) as f32),
            StepKind::Scale { factor } => scale(clips.samples, draws.within(*factor) as f32),
            StepKind::Level { db, loudness, of, peak } => {
                clips.set_level(draws.within(*db), *loudness, of.as_ref(), *peak)?;
            }
            StepKind::SwapChannels => {
                let n = clips.n.max(1);
                if clips.samples.len() == 2 * n * waveforms.max(1) {
                    for both in clips.samples.chunks_exact_mut(2 * n) {
                        let (left, right) = both.split_at_mut(n);
                        left.swap_with_slice(right);
                    }
                }
            }
            StepKind::Polarity => scale(clips.samples, -1.0),
            StepKind::Roll { shift, wraps } => {
                let (valid, mut again) = (clips.valid.clone(), draws);
                let shift = rolled(draws.within(*shift), valid.len());
                for channel in clips.channels() {
                    roll(&mut channel[valid.clone()], shift, *wraps);
                }
                // Frame targets follow a roll of the whole row alone.
                if self.only.is_none() {
                    other(kind, &mut again, clips, References::default())?;
                }
            }
            StepKind::Noise { snr_db, slope_db, loudness } => {
                let (snr, slope) = (draws.within(*snr_db), draws.within(*slope_db));
                clips.add_noise(snr, slope, *loudness, &mut draws, &mut scratch.noise)?;
            }
            StepKind::Dither { amount } => {
                let (amount, valid) = (draws.within(*amount), clips.valid.clone());
                fallible_alloc::resize(&mut scratch.noise, valid.len(), 0.0)?;
                for channel in clips.channels() {
                    noise::gaussian(draws.bits(), &mut scratch.noise);
                    add(&mut channel[valid.clone()], &scratch.noise, amount);
                }
            }
            StepKind::DropFreq { freq, width, n } => {
                let mut notches = SmallVec::<[Biquad; MOST_PARTS]>::new();
                for _ in 0..draws.whole(*n) {
                    let freq = draws.within(*freq);
                    // bounded: at most 32.
                    notches.push(Biquad::notch(freq, draws.within(*width)));
                }
                // Half of the amplitude is left at the edges.
                clips.channels().for_each(|channel| filter::run_twice(&notches, channel));
            }
            StepKind::DropChunk { length_ms, n, noise_factor } => {
                let n = draws.whole(*n);
                clips.drop_chunks(n, *length_ms, *noise_factor, &mut draws, &mut scratch.noise)?;
            }
            StepKind::Filter { shape, freq, q, gain_db, n } => {
                let mut filters = SmallVec::<[Biquad; MOST_PARTS]>::new();
                for _ in 0..*n {
                    let (freq, q) = (draws.log_within(*freq), draws.log_within(*q));
                    // bounded: at most 64.
                    filters.push(Biquad::new(*shape, freq, q, draws.within(*gain_db), rate));
                }
                clips.channels().for_each(|channel| filter::run(&filters, channel));
            }
            StepKind::Clip { db } => {
                let most = (ratio(draws.within(*db)) * peak(clips.samples)) as f32;
                clips.samples.iter_mut().for_each(|x| *x = x.clamp(-most, most));
            }
            StepKind::Mix(_) | StepKind::Reverb { .. } => {
                other(kind, &mut draws, clips, References::default())?
            }
            StepKind::Call(Calling { function, on_features: false }) => {
                let shape = [clips.samples.len() / clips.n.max(1), clips.n];
                function.change(clips.samples, shape, draws.bits())?;
            }
            StepKind::Speed { .. }
            | StepKind::SpecAugment(_)
            | StepKind::FrameRoll { .. }
            | StepKind::Pair(_)
            | StepKind::Remix { .. }
            | StepKind::Call(_) => {}
        }
        Ok(())
    }
}

impl Clips<'_> {
    /// Scales all samples so that those of `of`, or all, have a level of `db`, and none exceeds `most`.
    fn set_level(&mut self, db: f64, loudness: Loudness, of: Option<&Only>, most: Option<f64>) -> Result<()> {
        let range = of.map_or(0..self.samples.len(), |of| of.samples(self.samples.len()));
        let part = Clips { samples: &mut self.samples[range], valid: self.valid.clone(), ..*self };
        let factor = (ratio(db) / part.level(loudness)?) as f32;
        // Silence has no level to scale.
        if factor.is_finite() {
            scale(self.samples, factor);
            let reached = peak(self.samples);
            if let Some(most) = most.filter(|most| reached > *most) {
                scale(self.samples, (most / reached) as f32);
            }
        }
        Ok(())
    }

    /// Adds noise of its own to each channel, `snr` decibels below the level of the clip.
    fn add_noise(
        &mut self,
        snr: f64,
        slope: f64,
        loudness: Loudness,
        draws: &mut Draws,
        noise: &mut Vec<f32>,
    ) -> Result<()> {
        let level = self.level(loudness)?;
        if level == 0.0 {
            return Ok(());
        }
        fallible_alloc::resize(noise, self.n, 0.0)?;
        // Channels add up in loudness, so each one gets its part; by root mean square each gets all.
        let is_loudness = loudness == Loudness::Lufs;
        let n_channels = self.samples.len() / self.n.max(1);
        let level = if is_loudness { level / (n_channels as f64).sqrt() } else { level };
        let (n, sample_rate) = (self.n, self.sample_rate);
        for channel in self.channels() {
            noise::gaussian(draws.bits(), noise);
            noise::coloured(slope, sample_rate.into(), noise);
            let added = match is_loudness {
                true => loudness::loudness(noise, n, 0..n, sample_rate)?,
                false => rms(noise),
            };
            add(channel, noise, relative(level, added, snr));
        }
        self.valid = 0..self.n;
        Ok(())
    }

    /// Replaces `n` parts of the samples that are not padding by zeros, or by noise of a level relative to
    /// theirs.
    fn drop_chunks(
        &mut self,
        n: usize,
        length_ms: Bounds,
        noise_factor: Bounds,
        draws: &mut Draws,
        noise: &mut Vec<f32>,
    ) -> Result<()> {
        let valid = self.valid.clone();
        let level = if noise_factor.high > 0.0 { self.level(Loudness::Rms)? } else { 0.0 };
        for _ in 0..n {
            let len = (draws.within(length_ms) / 1000.0 * f64::from(self.sample_rate)).round() as usize;
            let len = len.min(valid.len());
            let start = valid.start + draws.below(valid.len() - len + 1);
            let factor = level * draws.within(noise_factor);
            fallible_alloc::resize(noise, len, 0.0)?;
            for channel in self.channels() {
                let chunk = &mut channel[start..start + len];
                chunk.fill(0.0);
                if factor > 0.0 {
                    noise::gaussian(draws.bits(), noise);
                    add(chunk, noise, factor);
                }
            }
        }
        Ok(())
    }
}
