//! [`AudioTask`] loads recordings: crop, decode, resample, features.
//!
//! The crop is chosen first, on the target rate's grid, from the recording's true length; then only the span
//! that it needs is decoded. Decoders, resamplers and scratch that a worker keeps from record to record
//! change no value.

use std::{
    ops::Range,
    sync::{Arc, atomic::AtomicU64},
};

use smallvec::SmallVec;

use super::{
    RECORDING_LABELS,
    clip_decoder::{ClipDecoder, DecodedClip, OpenedRow},
    clip_errors::too_short,
    clip_planner::{AudioPlan, BatchPadding, ClipPlace, ClipPlanner, ClipStart, Section, Waveform},
    clip_request::{ClipRequest, DrawRequest, Take},
    clip_rule::ClipRule,
    mixing::{MixedPartner, Mixer},
    outputs::{OutputField, Outputs, Planned, part_of},
    row_warnings::RowWarnings,
    waveforms::{WaveformGroup, WaveformReader, change_waveforms},
};
use crate::{
    Result,
    batch::{Example, PadTo, RowCollate, SpareBuffers, bytes_of},
    contract::{BatchSizes, ExampleMaker, Task, TaskLabels},
    dsp::{
        AugmentScratch, Crop, FeatureScratch,
        augment::{Amount, MixTargets, Outcome},
    },
    dtype::{Values, each},
    fallible_alloc,
    fields::{ColumnPool, Dim, Field, SharedPool, Value},
    memory::{SPARE_EXAMPLES, batch_slots},
    order::{Assignment, Length},
    source::{ReadRequest, Record, StoredPayload},
    targets::{self, ClipSeconds, ClipTimes, FramesScratch, RolledFrames, Target, TimeAxis},
};

impl AudioPlan {
    /// Makes the features of each field as long as those of `len` values a waveform are, of so many samples.
    ///
    /// # Errors
    /// [`ErrorKind::TooShort`](crate::ErrorKind::TooShort) if that is none; if an allocation failed.
    fn resize_features(&self, values: &mut FieldValues, (len, samples): (usize, usize)) -> Result<()> {
        if len == 0 {
            return Err(too_short(samples, &self.features));
        }
        for (values, (_, stacked)) in values.iter_mut().zip(self.feature_fields()) {
            let len = len * stacked.unwrap_or(1);
            each!(values, values => fallible_alloc::resize(values, len, Default::default()))?;
        }
        Ok(())
    }

    /// The bytes with which the features of whole recordings are filled up behind their end.
    ///
    /// # Errors
    /// As for the features of silence.
    pub fn filled_up(self) -> Result<Self> {
        let Some(rule) = self.crop.whole() else { return Ok(self) };
        let Some(axis) = self.padded_axis() else { return Ok(self) };
        let shape = self.shape();
        let n = shape.iter().enumerate().filter(|(at, _)| *at != axis).map(|(_, n)| n).product();
        let silence = match rule.pad_value {
            Some(value) => Some(vec![value]),
            None => self.features.silence(self.clip_samples)?,
        };
        let Some(silence) = silence.filter(|silence| !silence.is_empty()) else { return Ok(self) };
        let mut values = self.features.dtype().zeros(n)?;
        for (at, value) in (0..n).zip(silence.iter().cycle()) {
            values.as_mut().put(at, &[*value]);
        }
        let fill: Arc<[u8]> = each!(&values, values => bytes_of(values)).into();
        let padding = BatchPadding { fill: Some(fill), ..self.padding };
        Ok(Self { padding, ..self })
    }
}

#[derive(Debug, Clone)]
pub struct AudioTask {
    planner: ClipPlanner,
    spare: Arc<SpareBuffers>,
    outputs: Arc<Planned>,
    pool: Arc<SharedPool>,
    warnings: Arc<RowWarnings>,
}

impl AudioTask {
    /// Creates a task whose examples have features only.
    pub fn new(plan: AudioPlan) -> Self {
        let spare = Arc::new(SpareBuffers::new(SPARE_EXAMPLES as usize));
        let (outputs, pool) = Outputs::default().planned(&plan);
        Self { planner: ClipPlanner::new(plan), spare, outputs, pool, warnings: Arc::default() }
    }

    pub fn with_outputs(mut self, outputs: Outputs) -> Self {
        self.planner = self.planner.over(outputs.positions.clone(), outputs.spans.clone());
        self.warnings = Arc::new(RowWarnings::of(&outputs));
        (self.outputs, self.pool) = outputs.planned(self.planner.plan());
        self
    }

    /// The same with the seconds of each position, which none may exceed.
    #[must_use]
    pub fn with_seconds(mut self, seconds: Option<Arc<[f32]>>) -> Self {
        self.planner = self.planner.with_seconds(seconds);
        self
    }

    pub fn planner(&self) -> &ClipPlanner {
        &self.planner
    }

    /// The counter of the places that were drawn again after silence.
    pub fn redraws(&self) -> &Arc<AtomicU64> {
        self.planner.redraws()
    }

    /// What a reader must read of a record for that.
    pub fn request(&self, take: Take) -> ClipRequest<'_> {
        ClipRequest::of(&self.planner, take)
    }

    /// A collator of batches in memory of `pool`, which is for the [fields](Self::fields).
    pub fn collate_in(&self, pool: Arc<ColumnPool>) -> RowCollate {
        let padding = &self.planner.plan().padding;
        let to = &padding.to;
        let rule =
            |(at, (output, field)): (usize, (&OutputField, &Field))| match (output, &field.dims[..], to) {
                (OutputField::Features, ..) if at == 0 || *to == PadTo::Packed => to.clone(),
                (OutputField::Features | OutputField::Mask, ..) => PadTo::LikeFirst,
                (OutputField::Target(target), ..) if target.time_axis() == Some(TimeAxis::FeatureFrames) => {
                    if *to == PadTo::Packed {
                        PadTo::Packed
                    } else {
                        PadTo::LikeFirst
                    }
                }
                // With few shapes of features there are few of tokens, too.
                (_, &[Dim::PaddedInBatch { most, .. }, ..], PadTo::Bounds { .. }) => {
                    let budget = padding.most_tokens.as_ref().filter(|(name, _)| *name == field.name);
                    PadTo::power_of_two(most, budget.map_or(u64::MAX, |(_, most)| *most))
                }
                _ => PadTo::Longest,
            };
        let rules = self.outputs.outputs.iter().zip(pool.fields().iter()).enumerate().map(rule).collect();
        let slot = self.outputs.outputs.iter().position(|output| matches!(output, OutputField::Slot));
        RowCollate::new(pool, self.spare.clone()).padded_to(rules).telling_slots(slot)
    }

    /// The fields of a batch's columns.
    pub fn fields(&self) -> &Arc<[Field]> {
        self.pool.fields()
    }
}

impl Task for AudioTask {
    const WORDS: TaskLabels = RECORDING_LABELS;

    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;
    type Maker = ClipMaker;
    type Collate = RowCollate;

    fn request<R>(&self, assigned: &Assignment, read: impl FnOnce(&Self::Request<'_>) -> R) -> R {
        read(&DrawRequest::new(&self.planner, assigned))
    }

    fn maker(&self) -> ClipMaker {
        ClipMaker {
            scratch: self.planner.plan().features.scratch(),
            decoder: ClipDecoder::default(),
            changed: Vec::new(),
            augment: AugmentScratch::default(),
            mixer: Mixer::new(&self.planner, self.outputs.targets().any(Target::follows_time)),
            waveforms: WaveformReader::new(&self.planner),
            groups: WaveformGroup::all(self.planner.plan()),
            valid: Vec::new(),
            frames: FramesScratch::default(),
            task: self.clone(),
        }
    }

    fn collate(&self, BatchSizes { size: batch_size, ahead, .. }: BatchSizes) -> RowCollate {
        let pool = self.pool.serving(batch_size, batch_slots(ahead));
        self.collate_in(pool).mixing(self.outputs.mixing.clone())
    }
}

/// The features of an example, for each of their fields.
type FieldValues = SmallVec<[Values; 1]>;

struct RenderedClip {
    crop: Crop,
    /// How many times faster than at its own rate the recording is played.
    speed: f64,
    bits: Option<u64>,
    /// The samples of each waveform that are its recording's, of a row with several.
    n_valid: SmallVec<[usize; 4]>,
    mixed: Range<usize>,
    /// The position of its impulse response.
    response: Option<u64>,
    rolled: RolledFrames,
}

impl AudioPlan {
    /// The samples of each waveform of each clip that are its recording's, or frames of these.
    fn lengths(&self, made: &[RenderedClip], frames: bool) -> Value {
        let each = made.iter().flat_map(|made| made.n_valid.iter().map(move |&n| (made, n)));
        let number = |(made, n): (&RenderedClip, usize)| match frames && n > 0 {
            true => self.frames_of(n, self.clip_len(&made.crop)),
            false => n,
        };
        Value::List(each.map(|each| Value::Int(number(each) as i64)).collect())
    }
}

/// Writes the number of values of each field that has a length beside it, which is the field before.
fn set_lengths(example: &mut Example, outputs: &[OutputField]) {
    for at in (1..outputs.len()).filter(|&at| matches!(outputs[at], OutputField::Length)) {
        let n = match &example[at - 1] {
            Value::Ids(ids) => ids.len(),
            Value::Runs(runs) => runs.places as usize,
            Value::List(items) => items.len(),
            _ => 0,
        };
        example[at] = Value::Int(n as i64);
    }
}

/// One worker's part of an [`AudioTask`].
#[derive(Debug)]
pub struct ClipMaker {
    task: AudioTask,
    decoder: ClipDecoder,
    /// Clips that are changed at random.
    changed: Vec<f32>,
    augment: AugmentScratch,
    mixer: Mixer,
    /// Of rows with several recordings.
    waveforms: Option<WaveformReader>,
    /// The waveforms of a row that are changed together, and which of their samples are not padding.
    groups: Vec<WaveformGroup>,
    valid: Vec<Range<usize>>,
    frames: FramesScratch,
    scratch: FeatureScratch,
}

impl ExampleMaker for ClipMaker {
    type Payload = StoredPayload;
    type Example = Example;

    fn run(&mut self, record: &Record) -> Result<Example> {
        self.example(record, ClipStart::rule(record.index, record.seed))
    }
}

impl ClipMaker {
    /// The samples of a section of a recording, of every channel.
    ///
    /// # Errors
    /// As [`ExampleMaker::run`]; [`ErrorKind::Config`](crate::ErrorKind::Config) for a section that begins
    /// outside of the recording.
    pub fn waveform(&mut self, record: &Record, section: &Section) -> Result<Waveform> {
        self.decoder.waveform(&self.task.planner, record, section)
    }

    /// The example of the clip that begins there.
    ///
    /// # Errors
    /// As [`ExampleMaker::run`]; [`ErrorKind::Config`](crate::ErrorKind::Config) for a clip that begins
    /// outside of the recording.
    pub fn example(&mut self, record: &Record, begin: ClipStart) -> Result<Example> {
        let opened = self.decoder.open(&self.task.planner, record)?;
        self.decoder.decode_ahead(&self.task.planner, record, &opened, begin);
        let (features, made) = self.render(record, &opened, begin)?;
        let warnings = &self.task.warnings;
        if let ClipStart::Rule { .. } = begin {
            warnings.check_text(self.task.planner.plan(), opened.info, made[0].speed);
        }
        warnings.check_times(record, self.task.outputs.targets(), opened.info.seconds());
        self.assemble(record, opened.row_start(), features, &made)
    }

    /// Zeros of each field of features, or spare values, which are written over; without length for whole
    /// recordings.
    fn new_values(&self) -> Result<FieldValues> {
        let plan = self.task.planner.plan();
        let mut made = FieldValues::new();
        for (_, stacked) in plan.feature_fields() {
            let len = if plan.crop.whole().is_some() { 0 } else { plan.example_len() * stacked.unwrap_or(1) };
            // bounded: by the fields.
            made.push(match self.task.spare.take() {
                Some(mut values) if plan.n_waveforms() > 1 => {
                    // It may be that of another field.
                    each!(&mut values, values => fallible_alloc::resize(values, len, Default::default()))?;
                    values
                }
                Some(values) => values,
                None => plan.features.dtype().zeros(len)?,
            });
        }
        Ok(made)
    }

    /// The features of the clips of a record, and how each was made.
    fn render(
        &mut self,
        record: &Record,
        opened: &OpenedRow<'_>,
        begin: ClipStart,
    ) -> Result<(FieldValues, SmallVec<[RenderedClip; 4]>)> {
        let plan = self.task.planner.plan();
        let AudioPlan { features, crop: rule, augment, .. } = plan;
        let n_clips = rule.views().unwrap_or(1);
        let mut values = self.new_values()?;
        // How far each field is written.
        let mut written = SmallVec::<[usize; 1]>::from_elem(0, values.len());
        let mut made = SmallVec::<[RenderedClip; 4]>::new();
        self.mixer.mixed.clear();
        self.mixer.response = None;
        for view in 0..n_clips {
            let DecodedClip { place, mut clips } =
                self.decoder.cut(&self.task.planner, record, opened, (begin, view))?;
            let ClipPlace { crop, speed, .. } = place;
            let clip_samples = plan.clip_len(&crop);
            if let Some(waveforms) = &mut self.waveforms {
                waveforms.join(record, (place, view), (clips, plan.valid_samples(&crop)), clip_samples)?;
            }
            let waveforms = self.waveforms.as_ref();
            clips = waveforms.map_or(clips, WaveformReader::joined);
            let len: usize = features.shape(clip_samples).iter().product();
            if rule.whole().is_some() {
                plan.resize_features(&mut values, (len, clip_samples))?;
            }
            let len = len / features.channels().n_kept();
            let first_mixed = self.mixer.mixed.len();
            // What fills the clip is padding only if it is silent.
            let of_first = if rule.padding().is_silent() { crop.taken() } else { 0..clip_samples };
            let bits = match (begin, rule) {
                (ClipStart::Rule { seed, .. }, ClipRule::Clip(crop)) => Some(crop.seed(seed, view, 0)),
                (ClipStart::Rule { seed, .. }, ClipRule::Windows(_) | ClipRule::Whole(_)) => Some(seed),
                (ClipStart::At(_) | ClipStart::Same(_), _) => None,
            };
            self.mixer.begin_clip(plan, (&crop, speed))?;
            let mut rolled = RolledFrames::default();
            let n_references = augment.n_references();
            if n_references > 0 || bits.is_some() && augment.changes_waveforms() {
                fallible_alloc::resize(&mut self.changed, clips.len() * (1 + n_references), 0.0)?;
                augment.unchanged(clips, &mut self.changed);
                clips = &self.changed;
            }
            let valid_of = |at: usize| waveforms.map_or(of_first.clone(), |all| all.valid(at, &of_first));
            self.valid.clear();
            // bounded: by the waveforms of a row.
            self.valid.extend(self.groups.iter().map(|group| valid_of(group.waveforms.start)));
            if let Some(bits) = bits.filter(|_| augment.changes_waveforms()) {
                change_waveforms(
                    (&self.groups, &mut self.valid),
                    (bits, record.index),
                    (&mut self.changed, clip_samples, features.sample_rate()),
                    (&mut self.augment, &mut self.mixer),
                )?;
                clips = &self.changed;
            }
            let is_short = rule.leaves_remainders() && !features.is_waveform();
            let used = if is_short { self.valid[0].end } else { clip_samples };
            let mut rest = clips.chunks_exact(clip_samples.max(1));
            let mut waveform = 0_usize;
            for ((values, at), (_, stacked)) in values.iter_mut().zip(&mut written).zip(plan.feature_fields())
            {
                for _ in 0..stacked.unwrap_or(1) {
                    let at_group = (waveform + 1).saturating_sub(self.groups[0].waveforms.end);
                    let (group, valid) = (&self.groups[at_group], &self.valid[at_group]);
                    for clip in rest.by_ref().take(features.channels().n_kept()) {
                        let mut outs = values.as_mut();
                        let mut out = outs.part(*at..*at + len);
                        features.transform(
                            &clip[..used],
                            valid.clone(),
                            &mut self.scratch,
                            out.part(0..len),
                        )?;
                        if let (Some(bits), Some(axis)) = (bits, features.axis(valid, clip_samples)) {
                            let bits = group.bits(bits);
                            group.augment.features(bits, axis, &mut self.augment, out)?;
                            if self.mixer.follows_time && waveform == 0 {
                                let step = plan.time_grid(TimeAxis::FeatureFrames, clip_samples).step;
                                let shift = augment.frames_rolled(bits, axis.n_valid) as f64 * step;
                                let frames = [axis.first, axis.first + axis.n_valid];
                                rolled =
                                    RolledFrames { seconds: frames.map(|frame| frame as f64 * step), shift };
                            }
                        }
                        *at += len;
                    }
                    waveform += 1;
                }
            }
            let mixed = first_mixed..self.mixer.mixed.len();
            let response = self.mixer.response.take();
            // bounded: a few clips of a recording, and the waveforms of a row.
            let n_valid = waveforms.into_iter().flat_map(WaveformReader::n_valid).collect();
            made.push(RenderedClip { crop, speed, bits, n_valid, mixed, response, rolled });
        }
        Ok((values, made))
    }

    /// The values of all fields. The record begins at second `row_start` of its recording.
    fn assemble(
        &mut self,
        record: &Record,
        row_start: f64,
        values: FieldValues,
        made: &[RenderedClip],
    ) -> Result<Example> {
        let plan = self.task.planner.plan();
        let AudioPlan { features, crop: rule, .. } = plan;
        let Planned { outputs, group_starts, positions, mixing } = &*self.task.outputs;
        let index = positions.row(record.index);
        let source = part_of(group_starts, index);
        let clip = plan.about(&made[0].crop, row_start, made[0].speed);
        // The value of a clip, or a list of those of all.
        let of_clips = |of: &dyn Fn(&RenderedClip) -> Value| match rule.views() {
            Some(_) => Value::List(made.iter().map(of).collect()),
            None => of(&made[0]),
        };
        let mut values = values.into_iter();
        let row = |part: usize| match part.checked_sub(1).and_then(|at| self.mixer.mixed.get(at)) {
            Some(MixedPartner { values, clip, .. }) => (values, *clip),
            None => (&record.values, clip),
        };
        let times_of = |target: &Target| {
            let grid = target.time_axis().map(|axis| plan.time_grid(axis, plan.clip_len(&made[0].crop)));
            ClipTimes {
                pieces: &self.mixer.pieces,
                row: &row,
                sample_rate: features.sample_rate().into(),
                grid: grid.unwrap_or_default(),
                rolled: made[0].rolled,
                source,
            }
        };
        let mut frames = std::mem::take(&mut self.frames);
        let value = |output: &OutputField| {
            Ok(match output {
                OutputField::Features => values.next().map_or(Value::Null, Value::Array),
                OutputField::Value(at) => record.values.get(*at).cloned().unwrap_or(Value::Null),
                OutputField::Target(target) if target.follows_time() => {
                    target.value_in_time(&times_of(target), &mut frames)?
                }
                OutputField::WordTimes(target, part) => target.words(*part, &times_of(target))?,
                OutputField::Target(target) => self.target(target, record, source, clip, made[0].bits)?,
                OutputField::OtherClass(target) => target.value(&record.values, source, clip, None)?,
                OutputField::Length => Value::Null,
                OutputField::MixupWeight => Value::Float(1.0),
                OutputField::MixupIndex => Value::Int(-1),
                OutputField::Outcome(outcome) => of_clips(&|made| self.outcome(*outcome, made)),
                // Clips that begin where the caller says have none.
                OutputField::AugmentBits => {
                    of_clips(&|made| Value::Int(made.bits.unwrap_or_default() as i64))
                }
                // The collator's.
                OutputField::Slot => Value::Int(0),
                OutputField::Source => Value::Int(source as i64),
                OutputField::Index => Value::Int(index as i64),
                OutputField::Window => Value::Int(positions.window(record.index).1 as i64),
                OutputField::Start => of_clips(&|made| Value::Float(plan.start(&made.crop, made.speed))),
                OutputField::ValidSamples => {
                    of_clips(&|made| Value::Int(plan.valid_samples(&made.crop) as i64))
                }
                OutputField::ValidFrames => {
                    of_clips(&|made| Value::Int(plan.valid_frames(&made.crop) as i64))
                }
                OutputField::ValidOfEach { frames } => plan.lengths(made, *frames),
                OutputField::AudioMask => {
                    let present = self.waveforms.iter().flat_map(WaveformReader::present);
                    Value::List(present.map(|present| Value::Int(present.into())).collect())
                }
                OutputField::PartnerIndex => {
                    let rows = self.waveforms.iter().flat_map(WaveformReader::positions);
                    Value::List(rows.map(|at| Value::Int(positions.row(at) as i64)).collect())
                }
                OutputField::Mask if plan.features.is_waveform() => {
                    Value::Int(plan.valid_samples(&made[0].crop) as i64)
                }
                OutputField::Mask => Value::Int(plan.valid_frames(&made[0].crop) as i64),
                OutputField::Bucket(buckets) => {
                    let length = buckets.length(record.index);
                    let seconds = (f64::from(length.seconds) * (1.0 / made[0].speed)) as f32;
                    Value::Int(buckets.bucket(Length { seconds, ..length }) as i64)
                }
                OutputField::Shard(starts) => Value::Int(part_of(starts, index) as i64),
                OutputField::Row(starts) => {
                    let first = starts.get(part_of(starts, index)).copied().unwrap_or(0);
                    Value::Int((index - first) as i64)
                }
            })
        };
        let example = outputs.iter().map(value).collect::<Result<Example>>();
        self.frames = frames;
        let mut example = example?;
        set_lengths(&mut example, outputs);
        if mixing.is_some() {
            example.push(Value::Int(made[0].bits.unwrap_or_default() as i64));
        }
        Ok(example)
    }

    /// The target of a clip, mixed with those of its partners.
    fn target(
        &self,
        target: &Target,
        record: &Record,
        source: usize,
        clip: ClipSeconds,
        bits: Option<u64>,
    ) -> Result<Value> {
        let mut value = target.value(&record.values, source, clip, bits)?;
        for MixedPartner { values, clip, amount, targets, .. } in &self.mixer.mixed {
            if *targets != MixTargets::Keep && target.can_mix(*targets) {
                let partner = target.value(values, source, *clip, None)?;
                value = targets::mixed(value, &partner, *targets, amount.weight());
            }
        }
        Ok(value)
    }

    /// What steps of augmentation did to a clip.
    fn outcome(&self, outcome: Outcome, made: &RenderedClip) -> Value {
        let first = self.mixer.mixed[made.mixed.clone()].iter().find(|mixed| mixed.step == 0);
        let number = match (outcome, first.map(|mixed| mixed.amount)) {
            (Outcome::MixIndex, _) => {
                let row = |mixed: &MixedPartner| match mixed.is_own {
                    true => self.task.outputs.positions.row(mixed.at),
                    false => mixed.at,
                };
                return Value::Int(first.map_or(-1, |mixed| row(mixed) as i64));
            }
            (Outcome::ReverbIndex, _) => return Value::Int(made.response.map_or(-1, |row| row as i64)),
            (Outcome::MixStart, _) => first.map_or(f64::NAN, |mixed| mixed.clip.start),
            (Outcome::MixSnr, Some(Amount::Snr(number)))
            | (Outcome::MixWeight, Some(Amount::Weight(number))) => number,
            (Outcome::Speed, _) => made.speed,
            _ => {
                let plan = self.task.planner.plan();
                made.bits.map_or(f64::NAN, |bits| plan.augment.drawn(plan.bits_of(outcome, bits), outcome))
            }
        };
        Value::Float(number)
    }
}
