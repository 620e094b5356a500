//! [`AudioTask`] loads recordings: crop, decode, resample, features.
//!
//! The crop is chosen first, on the target rate's grid, from the recording's true length; then only the span
//! that it needs is decoded. Decoders, resamplers and scratch that a worker keeps from record to record
//! change no value.

use std::{ops::Range, sync::Arc};

use smallvec::SmallVec;

use crate::{
    Error, ErrorKind, Result,
    batch::{Example, RowCollate, SpareBuffers},
    decode::{AudioDecoder, Info, Planes, layout},
    fallible_alloc,
    fields::{ColumnPool, DataType, Field, SharedPool, Value},
    memory::{SPARE_EXAMPLES, batch_slots},
    record::{Batches, ExampleMaker, Record, Task, Wants},
    source::columns::MOST_PATH_BYTES,
    targets::Target,
    transform::{
        Crop, CropMode, FeatureScratch, Features, Quality, Resampler, Resamplers, crop, crop_at, starts,
        target_len,
    },
};

/// How audio examples are made: length, crop and features.
#[derive(Debug, Clone)]
pub struct AudioPlan {
    /// Samples of a clip at the target rate.
    pub clip_samples: usize,
    /// How the position of a clip in its recording is chosen.
    pub crop: CropMode,
    /// The features, the target rate among them.
    pub features: Features,
    /// The maximum length of a recording in seconds.
    pub max_decoded_seconds: f64,
}

impl AudioPlan {
    /// The shape of an example's features.
    pub fn shape(&self) -> SmallVec<[usize; 3]> {
        self.features.shape(self.clip_samples)
    }

    /// Values of an example's features.
    pub fn example_len(&self) -> usize {
        self.shape().iter().fold(1, |len, &axis| len.saturating_mul(axis))
    }

    /// Bytes of an example's features, in their own buffer or in a batch.
    pub fn example_bytes(&self) -> usize {
        self.example_len().saturating_mul(self.features.dtype().bytes())
    }

    /// Bytes of address space, and of memory once written, that the fields of a batch take, rounded up to
    /// what the system allocates.
    pub fn batch_bytes(&self, batch_size: usize, outputs: &Outputs) -> usize {
        let fields = outputs.fields(self);
        ColumnPool::new(fields.into(), batch_size, 0).mapped_bytes()
    }
}

/// Where a clip begins in its recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Begin {
    /// Where the plan's rule says, with these random bits.
    Rule(u64),
    /// At this many seconds, rounded to a sample at the target rate; below 0, zeros come first.
    At(f64),
}

/// A section of a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Section {
    /// The seconds before it.
    pub start: f64,
    /// Its seconds; `None`: to the end. It ends with the recording.
    pub seconds: Option<f64>,
    /// The rate to which it is resampled; `None`: the recording's own.
    pub sample_rate: Option<u32>,
}

/// What is taken of a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Take {
    /// A clip, which begins there.
    Clip(Begin),
    /// A section.
    Section(Section),
}

/// The most samples of a [`Waveform`]: 4 GiB.
const MOST_VALUES: u64 = 1 << 30;

/// The samples of a section of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Waveform {
    /// All channels, one after the other.
    pub samples: Vec<f32>,
    /// Samples per second.
    pub sample_rate: u32,
    /// All of the row.
    pub info: Info,
}

/// A number of samples as seconds, for a message.
fn seconds_of(samples: i64, rate: u32) -> f64 {
    let micro = 1e6;
    (samples as f64 / f64::from(rate) * micro).round() / micro
}

impl Section {
    /// The samples of a recording at the rate of the section, and this rate.
    fn samples(&self, sample_rate: u32, n_samples: u64) -> Result<(Range<u64>, u32)> {
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

/// The error about a start that is not within its recording.
fn beyond(start: f64, least: f64, sample_rate: u32, n_samples: u64) -> Error {
    let seconds = seconds_of(i64::try_from(n_samples).unwrap_or(i64::MAX), sample_rate);
    let message = format!(
        "start is {start:?}, must be at least {least:?} and below {seconds:?}, the recording's seconds"
    );
    Error::new(ErrorKind::Config, message)
}

/// Where the value of a field comes from.
#[derive(Debug, Clone)]
enum Output {
    /// The features of the clip.
    Features,
    /// A value of the record, by its index.
    Value(usize),
    /// What a target makes of the record's values.
    Target(Box<Target>),
    /// The number of the mixture's source.
    Source,
    /// The row number.
    Index,
    /// Where the clip begins in its recording, in seconds.
    Start,
    /// Samples of the clip that are not padding.
    ValidSamples,
    /// Frames of these samples.
    ValidFrames,
    /// The number of the shard; has the first row of each shard, then the number of all rows.
    Shard(Arc<[u64]>),
    /// The row number within the shard.
    Row(Arc<[u64]>),
}

/// The fields that examples have only on request.
const REQUESTED: [&str; 6] = ["path", "start", "valid_samples", "valid_frames", "shard", "row"];

/// The problem with a list of names in which one is given twice.
fn twice(parameter: &str, names: &[String]) -> Option<String> {
    let (_, name) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name))?;
    Some(format!("{parameter} has {name:?} twice"))
}

/// The fields of an example, in order.
#[derive(Debug, Clone)]
pub struct Outputs {
    fields: Vec<(Output, Field)>,
    /// The first row of each source, and the number of all rows.
    group_starts: Arc<[u64]>,
    /// The rows that are read, if not all.
    rows: Option<Arc<[u64]>>,
}

impl Default for Outputs {
    /// The row number.
    fn default() -> Self {
        let index = (Output::Index, Field::number("index", DataType::Int64));
        Self { fields: vec![index], group_starts: Arc::new([]), rows: None }
    }
}

/// What the fields besides the features are made of.
#[derive(Debug)]
pub struct Given<'a> {
    /// Targets and columns, in order.
    pub targets: Vec<Target>,
    /// The index of the recording's path among a record's values.
    pub path: Option<usize>,
    /// The first row of each source, and the number of all rows.
    pub group_starts: &'a [u64],
    /// Whether the sources have names.
    pub is_mixture: bool,
    /// The first row of each shard, and the number of all rows.
    pub shard_starts: &'a [u64],
    /// The names of the fields on request.
    pub requested: &'a [String],
    /// The rows that are read, if not all.
    pub rows: Option<Arc<[u64]>>,
}

impl Outputs {
    /// Lists the fields after the features: targets; `source`, if sources have names; `index`; then those
    /// requested.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if two fields have the same name.
    pub fn new(given: Given<'_>) -> Result<Self> {
        let Given { targets, path, group_starts, is_mixture, shard_starts, requested, rows } = given;
        let number = |name: &str| Field::number(name, DataType::Int64);
        let mut fields: Vec<_> = targets
            .into_iter()
            .map(|target| (target.field().clone(), Output::Target(Box::new(target))))
            .map(|(field, output)| (output, field))
            .collect();
        fields.extend(is_mixture.then(|| (Output::Source, number("source"))));
        fields.push((Output::Index, number("index")));
        for name in requested {
            let output = match &**name {
                "path" => path.map(Output::Value),
                "start" => Some(Output::Start),
                "valid_samples" => Some(Output::ValidSamples),
                "valid_frames" => Some(Output::ValidFrames),
                "shard" => Some(Output::Shard(shard_starts.into())),
                "row" => Some(Output::Row(shard_starts.into())),
                _ => None,
            };
            let field = match &**name {
                "path" => Field::text("path"),
                "start" => Field::number("start", DataType::Float64),
                name => number(name),
            };
            fields.extend(output.map(|output| (output, field)));
        }
        let mut names: Vec<_> = fields.iter().map(|(_, field)| &*field.name).collect();
        names.extend(["spectrogram", "waveform"]);
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!(
                "two fields of a batch are named {:?}; give one of them another name, in targets",
                twice[0]
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok(Self { fields, group_starts: group_starts.into(), rows })
    }

    /// The problems with the names of requested fields, and of columns.
    pub(crate) fn problems(requested: &[String], columns: &[String]) -> impl Iterator<Item = String> {
        let unknown = requested.iter().find(|name| !REQUESTED.contains(&&***name));
        let unknown = unknown.map(|name| format!("outputs has {name:?}, must be one of {REQUESTED:?}"));
        [unknown, twice("outputs", requested), twice("columns", columns)].into_iter().flatten()
    }

    /// The targets, in order.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.fields.iter().filter_map(|(output, _)| match output {
            Output::Target(target) => Some(&**target),
            _ => None,
        })
    }

    /// The most bytes of a row's values that are not stacked: in an example, and in a batch.
    pub fn most_bytes(&self) -> [u64; 2] {
        let path = self.fields.iter().any(|(output, _)| matches!(output, Output::Value(_)));
        let path = if path { MOST_PATH_BYTES as u64 } else { 0 };
        let sum = |bytes: fn(&Target) -> u64| self.targets().map(bytes).fold(path, u64::saturating_add);
        [sum(Target::most_example_bytes), sum(Target::most_batch_bytes)]
    }

    /// The fields, with that of the features from the plan.
    pub fn fields(&self, plan: &AudioPlan) -> Vec<Field> {
        let shape = plan.shape().iter().map(|&n| n as u64).collect::<Vec<_>>();
        let features = Field::stacked(plan.features.name(), plan.features.dtype().into(), shape);
        [features].into_iter().chain(self.fields.iter().map(|(_, field)| field.clone())).collect()
    }

    /// The values that examples have, and the memory of batches.
    fn planned(self, plan: &AudioPlan) -> (Arc<Planned>, Arc<SharedPool>) {
        let pool = SharedPool::new(self.fields(plan));
        let outputs = [Output::Features].into_iter().chain(self.fields.into_iter().map(|(output, _)| output));
        let outputs = outputs.collect();
        (Arc::new(Planned { outputs, group_starts: self.group_starts, rows: self.rows }), Arc::new(pool))
    }
}

/// Where the values of an example come from.
#[derive(Debug)]
struct Planned {
    outputs: Vec<Output>,
    group_starts: Arc<[u64]>,
    rows: Option<Arc<[u64]>>,
}

/// The number of the part that holds `row`, given the first row of each part.
fn part_of(starts: &[u64], row: u64) -> usize {
    starts.partition_point(|&start| start <= row).saturating_sub(1)
}

/// Makes features of recordings.
#[derive(Debug, Clone)]
pub struct AudioTask {
    plan: AudioPlan,
    resamplers: Arc<Resamplers>,
    spare: Arc<SpareBuffers>,
    outputs: Arc<Planned>,
    pool: Arc<SharedPool>,
}

impl AudioTask {
    /// Creates a task whose examples have features only.
    pub fn new(plan: AudioPlan) -> Self {
        let resamplers = Arc::new(Resamplers::new(Quality::default()));
        let spare = Arc::new(SpareBuffers::new(SPARE_EXAMPLES as usize));
        let (outputs, pool) = Outputs::default().planned(&plan);
        Self { plan, resamplers, spare, outputs, pool }
    }

    /// The same with other fields.
    pub fn with_outputs(mut self, outputs: Outputs) -> Self {
        (self.outputs, self.pool) = outputs.planned(&self.plan);
        self
    }

    /// The crop of a recording, the span of samples that it needs, and the resampler for them.
    fn needs(
        &self,
        sample_rate: u32,
        n_samples: u64,
        begin: Begin,
    ) -> Result<(Crop, Range<u64>, Arc<Resampler>)> {
        let (rate, clip) = (self.plan.features.sample_rate(), self.plan.clip_samples);
        let n = target_len(n_samples, sample_rate, rate);
        let crop = match begin {
            Begin::Rule(seed) => crop(self.plan.crop, n, clip, seed),
            Begin::At(start) => {
                let sample = (start * f64::from(rate)).round();
                // A NaN is no start.
                let found = (!sample.is_nan()).then(|| crop_at(sample as i64, n, clip)).flatten();
                found.ok_or_else(|| {
                    beyond(start, seconds_of(*starts(n, clip).start(), rate), sample_rate, n_samples)
                })?
            }
        };
        let resampler = self.resamplers.get(sample_rate, rate)?;
        let span = resampler.input_span(crop.start..crop.start + crop.len as u64, n_samples);
        Ok((crop, span, resampler))
    }

    /// What a reader must read of a record for that.
    pub fn wants(&self, take: Take) -> Wanting<'_> {
        Wanting { task: self, take }
    }

    /// A collator of batches in memory of `pool`, which is for the [fields](Self::fields).
    pub fn collate_in(&self, pool: Arc<ColumnPool>) -> RowCollate {
        RowCollate::new(pool, self.spare.clone())
    }

    /// The fields of a batch's columns.
    pub fn fields(&self) -> &Arc<[Field]> {
        self.pool.fields()
    }
}

/// What a reader must read of a record; [`AudioTask::wants`] makes it.
#[derive(Debug)]
pub struct Wanting<'a> {
    task: &'a AudioTask,
    take: Take,
}

impl Wants for Wanting<'_> {
    fn excerpt(&self, head: &[u8], size: u64) -> Option<Range<u64>> {
        let layout = layout(head, size)?;
        let span = self.span(layout.info.sample_rate, layout.info.n_samples)?;
        let byte = |sample: u64| layout.data_at + sample * layout.frame_bytes;
        Some(byte(span.start)..byte(span.end))
    }

    /// The error of a span that there is not is told when the record is decoded.
    fn span(&self, sample_rate: u32, n_samples: u64) -> Option<Range<u64>> {
        match self.take {
            Take::Clip(begin) => Some(self.task.needs(sample_rate, n_samples, begin).ok()?.1),
            Take::Section(section) => {
                let (samples, rate) = section.samples(sample_rate, n_samples).ok()?;
                let resampler = self.task.resamplers.get(sample_rate, rate).ok()?;
                Some(resampler.input_span(samples, n_samples))
            }
        }
    }
}

impl Task for AudioTask {
    const TAKES_SPANS: bool = true;

    type Maker = ClipMaker;
    type Collate = RowCollate;

    fn maker(&self) -> ClipMaker {
        ClipMaker {
            scratch: self.plan.features.scratch(),
            cutter: Cutter {
                decoder: AudioDecoder::new(),
                planes: Planes::new(),
                mono: Vec::new(),
                clip: Vec::new(),
            },
            task: self.clone(),
        }
    }

    fn excerpt(&self, head: &[u8], size: u64, seed: u64) -> Option<Range<u64>> {
        self.wants(Take::Clip(Begin::Rule(seed))).excerpt(head, size)
    }

    fn span(&self, sample_rate: u32, n_samples: u64, seed: u64) -> Option<Range<u64>> {
        self.wants(Take::Clip(Begin::Rule(seed))).span(sample_rate, n_samples)
    }

    fn collate(&self, Batches { size: batch_size, ahead, .. }: Batches) -> RowCollate {
        self.collate_in(self.pool.serving(batch_size, batch_slots(ahead)))
    }
}

/// One worker's part of an [`AudioTask`].
#[derive(Debug)]
pub struct ClipMaker {
    task: AudioTask,
    cutter: Cutter,
    scratch: FeatureScratch,
}

/// Cuts clips out of recordings.
#[derive(Debug)]
struct Cutter {
    decoder: AudioDecoder,
    planes: Planes,
    mono: Vec<f32>,
    clip: Vec<f32>,
}

impl ExampleMaker for ClipMaker {
    type Example = Example;

    fn run(&mut self, record: &Record) -> Result<Example> {
        self.example(record, Begin::Rule(record.seed))
    }
}

impl ClipMaker {
    /// The samples of a section of a recording, of every channel.
    ///
    /// # Errors
    /// As [`ExampleMaker::run`]; [`ErrorKind::Config`] for a section that begins outside of the recording.
    pub fn waveform(&mut self, record: &Record, section: &Section) -> Result<Waveform> {
        self.cutter.waveform(&self.task, record, section)
    }

    /// The example of the clip that begins there.
    ///
    /// # Errors
    /// As [`ExampleMaker::run`]; [`ErrorKind::Config`] for a clip that begins outside of the recording.
    pub fn example(&mut self, record: &Record, begin: Begin) -> Result<Example> {
        let AudioPlan { features, clip_samples, .. } = &self.task.plan;
        let (crop, clips) = self.cutter.cut(&self.task, record, begin)?;
        let mut values = match self.task.spare.take() {
            Some(values) => values,
            None => features.dtype().zeros(self.task.plan.example_len())?,
        };
        let valid = crop.pad_front..crop.pad_front + crop.len;
        let len = values.len() / features.channels().n_kept();
        for (channel, clip) in clips.chunks_exact(*clip_samples).enumerate() {
            let mut out = values.as_mut();
            let out = out.part(channel * len..(channel + 1) * len);
            features.transform(clip, valid.clone(), &mut self.scratch, out)?;
        }
        let Planned { outputs, group_starts, rows } = &*self.task.outputs;
        let index = rows.as_ref().map_or(record.index, |rows| rows[record.index as usize]);
        let source = part_of(group_starts, index);
        let mut values = Some(values);
        let value = |output: &Output| {
            Ok(match output {
                Output::Features => values.take().map_or(Value::Null, Value::Array),
                Output::Value(at) => record.values.get(*at).cloned().unwrap_or(Value::Null),
                Output::Target(target) => target.value(&record.values, source)?,
                Output::Source => Value::Int(source as i64),
                Output::Index => Value::Int(index as i64),
                Output::Start => {
                    let samples = crop.start as f64 - crop.pad_front as f64;
                    Value::Float(samples / f64::from(features.sample_rate()))
                }
                Output::ValidSamples => Value::Int(crop.len as i64),
                Output::ValidFrames => Value::Int(features.n_frames(crop.len, *clip_samples) as i64),
                Output::Shard(starts) => Value::Int(part_of(starts, index) as i64),
                Output::Row(starts) => {
                    let first = starts.get(part_of(starts, index)).copied().unwrap_or(0);
                    Value::Int((index - first) as i64)
                }
            })
        };
        outputs.iter().map(value).collect()
    }
}

impl Cutter {
    /// Decodes the span that `span` chooses by the row's length; returns what else it chose.
    fn read<T>(
        &mut self,
        task: &AudioTask,
        record: &Record,
        span: impl FnOnce(Info) -> Result<(Range<u64>, T)>,
    ) -> Result<(Info, T)> {
        let recording = self.decoder.open_held(&record.bytes, record.part.as_deref())?;
        let (info, row) = recording.info().of_row(record.part.as_deref())?;
        if record.part.is_none() {
            info.check_seconds(task.plan.max_decoded_seconds)?;
        }
        let (span, chosen) = span(info)?;
        if record.part.is_some() {
            // Of a recording in a file of its own, this span alone is read.
            Info { n_samples: span.end - span.start, ..info }.check_seconds(task.plan.max_decoded_seconds)?;
        }
        let samples = row.start + span.start..row.start + span.end;
        self.decoder.read_held(&recording, samples, &mut self.planes)?;
        Ok((info, chosen))
    }

    /// The samples of a section of the row.
    fn waveform(&mut self, task: &AudioTask, record: &Record, section: &Section) -> Result<Waveform> {
        let (info, (samples, first, rate, resampler)) = self.read(task, record, |info| {
            let (samples, rate) = section.samples(info.sample_rate, info.n_samples)?;
            let values = (samples.end - samples.start).saturating_mul(info.channels.into());
            if values > MOST_VALUES {
                let message = format!(
                    "{values} samples of all channels, at most {MOST_VALUES} are read at once; give seconds"
                );
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
            let resampler = task.resamplers.get(info.sample_rate, rate)?;
            let span = resampler.input_span(samples.clone(), info.n_samples);
            let first = span.start;
            Ok((span, (samples, first, rate, resampler)))
        })?;
        let n = (samples.end - samples.start) as usize; // at most `MOST_VALUES`
        let channels = usize::from(info.channels);
        let mut found = Vec::new();
        fallible_alloc::resize(&mut found, n.saturating_mul(channels), 0.0)?;
        for channel in (0..channels).filter(|_| n > 0) {
            let out = &mut found[channel * n..(channel + 1) * n];
            resampler.resample(self.planes.channel(channel), first, samples.start, out)?;
        }
        Ok(Waveform { samples: found, sample_rate: rate, info })
    }

    /// The record's clips, one for each channel that is kept, and their crop. Decoded samples of one channel
    /// that need neither resampling nor padding are returned without a copy.
    fn cut(&mut self, task: &AudioTask, record: &Record, begin: Begin) -> Result<(Crop, &[f32])> {
        let (info, (crop, first, resampler)) = self.read(task, record, |info| {
            let (crop, span, resampler) = task.needs(info.sample_rate, info.n_samples, begin)?;
            let first = span.start;
            Ok((span, (crop, first, resampler)))
        })?;
        let Crop { start, len, pad_front } = crop;
        let AudioPlan { features, clip_samples, .. } = &task.plan;
        let (channels, n) = (features.channels(), *clip_samples);
        channels.check(self.planes.channels())?;
        let is_ready = info.sample_rate == features.sample_rate() && self.planes.len() == n;
        if is_ready && channels.n_kept() == 1 {
            return Ok((crop, channels.waveform(0, &self.planes, &mut self.mono)?));
        }
        fallible_alloc::resize(&mut self.clip, n * channels.n_kept(), 0.0)?;
        for (channel, clip) in self.clip.chunks_exact_mut(n).enumerate() {
            let waveform = channels.waveform(channel, &self.planes, &mut self.mono)?;
            if is_ready {
                clip.copy_from_slice(waveform);
                continue;
            }
            let (front, rest) = clip.split_at_mut(pad_front);
            let (middle, behind) = rest.split_at_mut(len);
            front.fill(0.0);
            behind.fill(0.0);
            resampler.resample(waveform, first, start, middle)?;
        }
        Ok((crop, &self.clip))
    }
}
