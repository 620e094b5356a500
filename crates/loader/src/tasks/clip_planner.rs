//! [`ClipPlanner`]: where in a recording the clips of an example are, and which samples they need.
//!
//! A place is chosen on the target rate's grid from the recording's true length, random bits and, for spans,
//! the values of the row, before anything is decoded. The reader asks for the samples that any of the places
//! of a record may need, and the clip decoder for those of one place at a time; both get the same answer.

use std::{
    ops::Range,
    sync::{Arc, atomic::AtomicU64},
};

use smallvec::SmallVec;

use super::{
    clip_errors::{beyond, longer_than_known, seconds_of, unequal},
    clip_rule::{ClipCrop, ClipRule, CropPosition, WholeRule},
    mix_source::MixSource,
    span_source::{Grid, SpanSource},
    waveform_plan::WaveformPlan,
};
use crate::{
    Error, ErrorKind, Result,
    audio::{Damage, Info, SpareBlocks},
    batch::PadTo,
    dsp::{
        Augment, Crop, CropMode, Features, KeptChannels, MAX_HZ, Quality, Resampler, Resamplers,
        augment::PartnerReading, crop, crop_at, starts, target_len,
    },
    fields::Row,
    source::{Positions, RowExtent, RowInfo},
    targets::{ClipSeconds, TimeAxis, TimeGrid},
};

/// How audio examples are made: length, crop, augmentation and features.
#[derive(Debug, Clone)]
pub struct AudioPlan {
    /// Samples of a clip at the target rate; of whole recordings, the most.
    pub clip_samples: usize,
    /// How the place of a clip in its recording is chosen.
    pub crop: ClipRule,
    pub augment: Augment,
    /// The recordings of each step that reads others.
    pub mix_sources: Vec<MixSource>,
    /// The recordings of a row, if it has several.
    pub waveforms: Option<WaveformPlan>,
    /// The features, the target rate among them.
    pub features: Features,
    /// The maximum length of a recording in seconds.
    pub max_decoded_seconds: f64,
    /// What becomes of frames that cannot be decoded.
    pub damage: Damage,
    pub padding: BatchPadding,
}

/// How the features of whole recordings are padded in a batch.
#[derive(Debug, Clone, Default)]
pub struct BatchPadding {
    /// The length of the padded axis of a batch.
    pub to: PadTo,
    /// The most places of the padded axis that all examples of a batch have together; `None`: as many as
    /// its size and the longest clip make.
    pub most_places: Option<u64>,
    /// The target whose tokens are bounded, and the most that all rows of a batch may have together.
    pub most_tokens: Option<(String, u64)>,
    /// Samples of the longest clip that is known; `None`: as many as a clip may have.
    pub longest: Option<usize>,
    /// The bytes of one place behind the end of a recording; `None`: zeros.
    pub fill: Option<Arc<[u8]>>,
}

impl AudioPlan {
    /// The shape of an example's features; the first axis is that of several clips of a recording.
    pub fn shape(&self) -> SmallVec<[usize; 3]> {
        let views = self.crop.views().map(|n| n as usize);
        views.into_iter().chain(self.clip_shape()).collect()
    }

    /// The shape of the features of one clip; of whole recordings, of the longest.
    pub fn clip_shape(&self) -> SmallVec<[usize; 3]> {
        self.features.shape(self.clip_samples)
    }

    /// Samples of a clip with this crop.
    pub(super) fn clip_len(&self, crop: &Crop) -> usize {
        if self.crop.whole().is_some() { crop.len } else { self.clip_samples }
    }

    /// Samples of a clip that are the recording's. Those that a short recording repeats are.
    pub(super) fn valid_samples(&self, crop: &Crop) -> usize {
        if self.crop.padding().repeats() { self.clip_samples } else { crop.len }
    }

    /// Frames of these samples.
    pub(super) fn valid_frames(&self, crop: &Crop) -> usize {
        self.frames_of(self.valid_samples(crop), self.clip_len(crop))
    }

    /// Frames of so many samples at the front of `n`; of a whole recording, of all.
    pub(super) fn frames_of(&self, n_valid: usize, n: usize) -> usize {
        match self.padded_axis() {
            Some(axis) => self.features.shape(n).get(axis).copied().unwrap_or(0),
            None => self.features.n_frames(n_valid, n),
        }
    }

    /// The axis of the features whose length depends on the recording.
    pub fn padded_axis(&self) -> Option<usize> {
        self.crop.whole()?;
        let (most, fewer) =
            (self.features.shape(self.clip_samples), self.features.shape(self.clip_samples / 2));
        most.iter().zip(&fewer).position(|(most, fewer)| most != fewer)
    }

    /// Where the clip, or the window within it, begins in the row, which is played at this speed; in seconds,
    /// below 0 if padding comes first.
    pub(super) fn start(&self, crop: &Crop, speed: f64) -> f64 {
        let samples = crop.start as f64 - crop.pad_front as f64 + self.crop.context() as f64;
        samples * speed / f64::from(self.features.sample_rate())
    }

    /// The seconds before a sample at the target rate of a row that is played at this speed.
    pub(super) fn seconds(&self, sample: u64, speed: f64) -> f64 {
        sample as f64 * speed / f64::from(self.features.sample_rate())
    }

    /// What the clip is about: all of it, or the window within; in seconds on the time line of the recording,
    /// in which the row begins at `row_start`, and which is played at this speed.
    pub(super) fn about(&self, crop: &Crop, row_start: f64, speed: f64) -> ClipSeconds {
        let context = self.crop.context();
        let start = crop.start + context.saturating_sub(crop.pad_front) as u64;
        let end = (start + (self.clip_samples - 2 * context) as u64).min(crop.start + crop.len as u64);
        let rate = f64::from(self.features.sample_rate());
        let [start, end] = [start, end].map(|sample| row_start + sample as f64 * speed / rate);
        ClipSeconds { start, end, row_start, speed }
    }

    /// The places of an axis along the time of a clip of so many samples; none of frames of a waveform.
    pub(super) fn time_grid(&self, axis: TimeAxis, clip_samples: usize) -> TimeGrid {
        let rate = f64::from(self.features.sample_rate());
        let of_features = || {
            let (hop, first) = self.features.frame_places().unwrap_or((1, 0.5));
            let places = self.features.frame_axis().map_or(0, |axis| self.features.shape(clip_samples)[axis]);
            TimeGrid { places, step: hop as f64 / rate, first: first / rate }
        };
        TimeGrid::new(axis, clip_samples as f64 / rate).unwrap_or_else(of_features)
    }

    /// Values of the features of one waveform of an example.
    pub fn example_len(&self) -> usize {
        self.shape().iter().fold(1, |len, &axis| len.saturating_mul(axis))
    }

    pub fn n_waveforms(&self) -> usize {
        self.waveforms.as_ref().map_or(1 + self.augment.n_references(), WaveformPlan::n)
    }

    /// Bytes of an example's features, in their own buffers or in a batch.
    pub fn example_bytes(&self) -> usize {
        let len = match self.padding.longest {
            Some(samples) => self.features.shape(samples).iter().product(),
            None => self.example_len(),
        };
        len.saturating_mul(self.features.dtype().bytes()).saturating_mul(self.n_waveforms())
    }
}

/// Where a clip begins in its recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClipStart {
    /// Where the plan's rule says.
    Rule {
        /// The position, of a recording with several windows.
        at: u64,
        seed: u64,
        /// The seed of the example's first place, from which steps of augmentation draw.
        of_steps: u64,
    },
    /// At this many seconds, rounded to a sample at the target rate; below 0, zeros come first.
    At(f64),
    /// Where the clip of another recording of the row is.
    Same(ClipPlace),
}

/// Where a clip is in its recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClipPlace {
    pub crop: Crop,
    /// Samples of the recording at the target rate, as it is played.
    pub n_samples: u64,
    /// How many times faster than at its own rate it is played.
    pub speed: f64,
    /// The bits by which it is padded.
    pub seed: u64,
    /// Its samples per second, and those as it is played.
    pub rates: [u32; 2],
}

impl ClipPlace {
    /// The rates from and to which another recording of the row is resampled, to be played as fast as this
    /// one.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if there are none that are whole numbers of hertz.
    fn same_speed(&self, sample_rate: u32, target: u32) -> Result<(u32, u32)> {
        let [own, played] = self.rates.map(u64::from);
        if own == played {
            return Ok((sample_rate, target));
        }
        if u64::from(sample_rate) == own {
            return Ok((self.rates[1], target));
        }
        // The first recording's speed is a ratio of whole numbers: that of the rates is, too.
        let (from, to) = (u64::from(sample_rate) * played, u64::from(target) * own);
        let (mut divisor, mut rest) = (from, to);
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        match [from, to].map(|rate| u32::try_from(rate / divisor.max(1))) {
            [Ok(from), Ok(to)] if from.max(to) <= MAX_HZ => Ok((from, to)),
            _ => Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the recording has {sample_rate} Hz and the first of its row {own} Hz, which cannot be played at the same \
                     speed of {:?} exactly; resample the files to one rate, or leave Speed out",
                    self.speed
                ),
            )),
        }
    }
}

impl ClipStart {
    /// Where the plan's rule says for position `at`, by these random bits.
    pub fn rule(at: u64, seed: u64) -> Self {
        Self::Rule { at, seed, of_steps: seed }
    }

    /// The same for place number `draw` of clip number `view`.
    pub(super) fn drawn(self, crop: Option<&ClipCrop>, view: u32, draw: u32) -> Self {
        match (self, crop) {
            (Self::Rule { at, seed, .. }, Some(crop)) => {
                Self::Rule { at, seed: crop.seed(seed, view, draw), of_steps: crop.seed(seed, view, 0) }
            }
            _ => self,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Section {
    /// The seconds before it.
    pub start: f64,
    /// Its seconds; `None`: to the end. It ends with the recording.
    pub seconds: Option<f64>,
    /// The rate to which it is resampled; `None`: the recording's own.
    pub sample_rate: Option<u32>,
}

/// The most samples of a [`Waveform`]: 4 GiB.
pub(super) const MOST_VALUES: u64 = 1 << 30;

/// The samples of a section of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Waveform {
    /// All channels, one after the other.
    pub samples: Vec<f32>,
    pub sample_rate: u32,
    pub info: Info,
}

impl Section {
    /// The samples of a recording at the rate of the section, and this rate.
    pub(super) fn samples(&self, sample_rate: u32, n_samples: u64) -> Result<(Range<u64>, u32)> {
        let rate = self.sample_rate.unwrap_or(sample_rate);
        let n = target_len(n_samples, sample_rate, rate);
        let sample = |seconds: f64| (seconds * f64::from(rate)).round();
        let first = sample(self.start);
        if !(first >= 0.0 && first < n as f64) {
            return Err(beyond(self.start, 0.0, sample_rate, n_samples));
        }
        let first = first as u64;
        let len = self.seconds.map_or(u64::MAX, |seconds| sample(seconds) as u64);
        Ok((first..first.saturating_add(len).min(n), rate))
    }
}

/// How many samples a recording may have beyond what is known of it: 25 ms. Lengths are rounded, or are
/// those of frames, whose last window ends before the recording.
pub fn length_slack(rate: u32) -> u64 {
    u64::from(rate / 40)
}

/// The clip of another recording of the row, where that of the first one is.
fn crop_of_same(place: ClipPlace, n: u64, rate: u32, sample_rate: u32) -> Result<Crop> {
    let ClipPlace { crop, n_samples: first, rates: [of_first, _], .. } = place;
    // Lengths are whole samples of each, and so are the ends of segments.
    let sample = |of: u32| u64::from(rate.div_ceil(of.max(1)));
    let slack = match of_first == sample_rate {
        true => sample(sample_rate),
        false => sample(sample_rate) + sample(of_first),
    };
    if n.abs_diff(first) > slack {
        return Err(unequal(n, first, rate));
    }
    let len = n.saturating_sub(crop.start).min(crop.len as u64) as usize; // at most `crop.len`
    Ok(Crop { len, ..crop })
}

/// What a clip needs of its recording.
#[derive(Debug)]
pub(super) struct ClipRead {
    /// The crop, on the target rate's grid.
    pub crop: Crop,
    pub span: Range<u64>,
    pub resampler: Arc<Resampler>,
    /// The recording's samples per second, as they are played: more, if it is played faster.
    pub played: u32,
    /// Whether that is the target rate.
    pub is_copy: bool,
}

/// Where the clips of recordings are, and what they need of them; shared by the workers.
#[derive(Debug, Clone)]
pub struct ClipPlanner {
    plan: AudioPlan,
    resamplers: Arc<Resamplers>,
    blocks: Arc<SpareBlocks>,
    /// Places that were drawn again after silence.
    redraws: Arc<AtomicU64>,
    positions: Positions,
    spans: Option<SpanSource>,
    /// Seconds of each position as they are known before it is read; NaN if they are not.
    seconds: Option<Arc<[f32]>>,
}

impl ClipPlanner {
    /// Of a recording at each position, without spans.
    pub fn new(plan: AudioPlan) -> Self {
        let resamplers = Arc::new(Resamplers::new(Quality::default()));
        let (blocks, redraws) = Default::default();
        Self {
            plan,
            resamplers,
            blocks,
            redraws,
            positions: Positions::default(),
            spans: None,
            seconds: None,
        }
    }

    /// The same with these rows at the positions, and spans.
    pub fn over(self, positions: Positions, spans: Option<SpanSource>) -> Self {
        Self { positions, spans, ..self }
    }

    /// The same with the seconds of each position, which none may exceed.
    #[must_use]
    pub fn with_seconds(self, seconds: Option<Arc<[f32]>>) -> Self {
        Self { seconds, ..self }
    }

    /// A planner of clips of other recordings, by this rule.
    fn of_rule(&self, crop: ClipRule) -> Self {
        let plan =
            AudioPlan { crop, augment: Augment::default(), mix_sources: Vec::new(), ..self.plan.clone() };
        Self { plan, positions: Positions::default(), spans: None, seconds: None, ..self.clone() }
    }

    /// A planner of clips of the recordings that a step of augmentation reads.
    pub fn of_others(&self, reading: PartnerReading) -> Self {
        let mode = if reading.is_response { CropMode::Start } else { CropMode::Random };
        self.of_rule(ClipRule::Clip(mode.into()))
    }

    /// A planner of clips that are cut independently of the first recording of a row. Spans are about the
    /// first recording: without them a place is random. The others may be longer than a clip, even if the
    /// first one may not.
    pub(super) fn independent(&self) -> Self {
        self.of_rule(match self.plan.crop {
            ClipRule::Clip(crop) => {
                let place = match crop.place {
                    CropPosition::Spans { .. } => CropPosition::Mode(CropMode::Random),
                    place @ CropPosition::Mode(_) => place,
                };
                ClipRule::Clip(ClipCrop { place, takes_whole: false, ..crop })
            }
            crop => crop,
        })
    }

    /// The same of the first channel.
    pub fn of_one_channel(mut self) -> Self {
        self.plan.features = self.plan.features.with_channels(KeptChannels::One(0));
        self
    }

    /// The counter of the places that were drawn again after silence.
    pub fn redraws(&self) -> &Arc<AtomicU64> {
        &self.redraws
    }

    /// Checks that a crop that takes whole recordings cuts none of `n` samples.
    fn check_takes_whole(&self, begin: ClipStart, n: u64) -> Result<()> {
        let (rate, clip) = (self.plan.features.sample_rate(), self.plan.clip_samples);
        if let (ClipStart::Rule { .. }, ClipRule::Clip(ClipCrop { takes_whole: true, .. })) =
            (begin, self.plan.crop)
            && n > clip as u64
        {
            let seconds = |n: u64| n as f64 / f64::from(rate);
            let message = format!(
                "the recording has {:.2} s as it is played, clip_seconds {:.2} s, and the crop takes whole recordings",
                seconds(n),
                seconds(clip as u64)
            );
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        Ok(())
    }

    /// All of a recording of `n` samples, at most those of its known length or of the longest clip.
    fn whole_crop(
        &self,
        at: u64,
        whole: WholeRule,
        n: u64,
        (sample_rate, played): (u32, u32),
    ) -> Result<Crop> {
        let (rate, clip) = (self.plan.features.sample_rate(), self.plan.clip_samples);
        let known = self.seconds.as_ref().map_or(f32::NAN, |seconds| seconds[at as usize]);
        // A bad record has no length that was known.
        let known = if known.is_nan() { f64::INFINITY } else { f64::from(known) };
        let is_cut = whole.cuts_at.is_some_and(|at| known >= at);
        let known = whole.cuts_at.map_or(known, |at| known.min(at));
        let seconds = known * f64::from(sample_rate) / f64::from(played);
        let most = ((seconds * f64::from(rate)).round() as u64).min(clip as u64);
        if !is_cut && n > most.saturating_add(length_slack(rate)) {
            return Err(longer_than_known(n, most, rate));
        }
        // At most `clip`, so it fits.
        Ok(Crop { start: 0, len: n.min(if is_cut { most } else { clip as u64 }) as usize, pad_front: 0 })
    }

    /// The clip that begins at second `start` of a recording of `n` samples at the target rate.
    fn crop_at_second(&self, start: f64, n: u64, (sample_rate, n_samples): (u32, u64)) -> Result<Crop> {
        let (rate, clip) = (self.plan.features.sample_rate(), self.plan.clip_samples);
        let sample = (start * f64::from(rate)).round();
        // A NaN is no start.
        let found = (!sample.is_nan()).then(|| crop_at(sample as i64, n, clip)).flatten();
        let found = found.ok_or_else(|| {
            beyond(start, seconds_of(*starts(n, clip).start(), rate), sample_rate, n_samples)
        })?;
        // Nothing comes before a whole recording.
        let pad_front = if self.plan.crop.whole().is_some() { 0 } else { found.pad_front };
        Ok(Crop { pad_front, ..found })
    }

    /// What a clip needs of a row of this extent and these values.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a clip that begins outside of the recording; [`ErrorKind::Schema`] for
    /// spans that are none; [`ErrorKind::Io`] for a window that is not there.
    pub(super) fn clip_read(&self, of: RowExtent, values: &Row, begin: ClipStart) -> Result<ClipRead> {
        let RowExtent { sample_rate, n_samples, .. } = of;
        let (rate, clip) = (self.plan.features.sample_rate(), self.plan.clip_samples);
        let played = match begin {
            ClipStart::Rule { of_steps, .. } => {
                let played = (f64::from(sample_rate) * self.plan.augment.speed(of_steps)).round();
                played.clamp(1.0, f64::from(MAX_HZ.max(sample_rate))) as u32
            }
            ClipStart::At(_) => sample_rate,
            ClipStart::Same(ClipPlace { speed, .. }) => {
                (f64::from(sample_rate) * speed).round().clamp(1.0, f64::from(u32::MAX)) as u32
            }
        };
        let rates = match begin {
            ClipStart::Same(first) => first.same_speed(sample_rate, rate)?,
            _ => (played, rate),
        };
        let n = target_len(n_samples, rates.0, rates.1);
        self.check_takes_whole(begin, n)?;
        let crop = match (begin, self.plan.crop) {
            (ClipStart::Rule { seed, .. }, ClipRule::Clip(ClipCrop { place, padding, .. })) => match place {
                CropPosition::Mode(mode) => crop(mode, padding, n, clip, seed),
                CropPosition::Spans { rule, are_required } => {
                    // A second of the recording has fewer samples if it is played faster.
                    let second = f64::from(rate) * f64::from(sample_rate) / f64::from(played);
                    let grid = Grid {
                        n,
                        rate: second,
                        source_rate: sample_rate,
                        row_start: of.start_seconds(),
                        noun: rule.noun(),
                    };
                    let spans = self.spans.as_ref();
                    let found = spans.map(|spans| spans.place(rule, values, grid, (padding, clip), seed));
                    match found.transpose()?.flatten() {
                        Some(crop) => crop,
                        None if !are_required => crop(CropMode::Random, padding, n, clip, seed),
                        None => {
                            let message = format!(
                                "crop: the row has no {} within its recording; give empty=\"random\", or leave such rows out \
                                 with sampling=",
                                grid.noun
                            );
                            return Err(Error::new(ErrorKind::Schema, message));
                        }
                    }
                }
            },
            (ClipStart::Rule { at, .. }, ClipRule::Windows(rule)) => {
                let (_, window) = self.positions.window(at);
                if window >= rule.count(n).max(1) {
                    let message = "the recording is shorter than when the loader was made";
                    return Err(Error::new(ErrorKind::Io, message));
                }
                rule.crop(n, window)
            }
            (ClipStart::Rule { at, .. }, ClipRule::Whole(whole)) => {
                self.whole_crop(at, whole, n, (sample_rate, played))?
            }
            (ClipStart::At(start), _) => self.crop_at_second(start, n, (sample_rate, n_samples))?,
            (ClipStart::Same(first), _) => crop_of_same(first, n, rate, sample_rate)?,
        };
        let resampler = self.resampler(rates.0, rates.1)?;
        let is_copy = rates.0 == rates.1;
        Ok(ClipRead {
            crop,
            span: resampler.input_span(crop.samples(), n_samples),
            resampler,
            played,
            is_copy,
        })
    }

    /// Where the first clip of the record at position `at` begins in its row, as the output `start` has it,
    /// before its samples are read; of several places that are drawn after silence, the first. NaN if the
    /// record has no such place.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it depends on the samples.
    pub fn planned_start(&self, (at, seed): (u64, u64), row: &RowInfo) -> Result<f64> {
        let rule = if let ClipRule::Clip(crop) = &self.plan.crop { Some(crop) } else { None };
        if rule.is_some_and(|crop| !crop.takes_the_first()) {
            let message =
                "the start of a loudest clip depends on the samples; leave \"start\" out, or use replay()";
            return Err(Error::new(ErrorKind::Config, message));
        }
        let begin = ClipStart::rule(at, seed).drawn(rule, 0, 0);
        let rate = row.info.sample_rate;
        let of = RowExtent { sample_rate: rate, start: row.start, n_samples: row.info.n_samples };
        Ok(self
            .clip_read(of, &row.values, begin)
            .map_or(f64::NAN, |read| self.plan.start(&read.crop, f64::from(read.played) / f64::from(rate))))
    }

    /// The places of all clips of an example, in the order of clips and draws: those that are certainly
    /// looked at, or all of them.
    pub fn each(&self, begin: ClipStart, all: bool) -> impl Iterator<Item = ClipStart> + use<> {
        let crop = match (begin, self.plan.crop) {
            (ClipStart::Rule { .. }, ClipRule::Clip(crop)) => Some(crop),
            _ => None,
        };
        let (certain, most) = crop.map_or((1, 1), |crop| crop.n_draws());
        let n_draws = if all { most } else { certain };
        (0..crop.map_or(1, |crop| crop.n_clips()))
            .flat_map(move |view| (0..n_draws).map(move |draw| begin.drawn(crop.as_ref(), view, draw)))
    }

    pub fn plan(&self) -> &AudioPlan {
        &self.plan
    }

    /// Sets the length of clips, for clips that are mixed into others.
    pub(super) fn set_clip_samples(&mut self, n: usize) {
        self.plan.clip_samples = n;
    }

    /// The resampler from one rate to another.
    pub fn resampler(&self, from: u32, to: u32) -> Result<Arc<Resampler>> {
        self.resamplers.get(from, to)
    }

    /// Spare memory for samples that windows share.
    pub fn blocks(&self) -> &SpareBlocks {
        &self.blocks
    }
}
