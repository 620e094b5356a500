//! [`AudioTask`] loads recordings: crop, decode, resample, features.
//!
//! The crop is chosen first, on the target rate's grid, from the recording's true length; then only the span
//! that it needs is decoded. Decoders, resamplers and scratch that a worker keeps from record to record
//! change no value.

use std::{ops::Range, sync::Arc};

use smallvec::SmallVec;

use crate::{
    Result,
    batch::{Example, RowCollate, SpareBuffers},
    decode::{AudioDecoder, Info, Planes, layout},
    fallible_alloc,
    fields::{ColumnPool, DataType, Field, SharedPool, Value},
    memory::{SPARE_EXAMPLES, batch_slots},
    record::{Batches, ExampleMaker, Record, Task},
    transform::{Crop, CropMode, FeatureScratch, Features, Quality, Resampler, Resamplers, crop, target_len},
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
    pub fn batch_bytes(&self, batch_size: usize) -> usize {
        let fields = Outputs::default().fields(self);
        ColumnPool::new(fields.into(), batch_size, 0).mapped_bytes()
    }
}

/// Where the value of a field comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Output {
    /// The features of the clip.
    Features,
    /// A value of the record, by its index.
    Column(usize),
    /// The number of the mixture's source; has the first row of each source, then the number of all rows.
    Source(Arc<[u64]>),
    /// The row number.
    Index,
    /// Where the clip begins in its recording, in seconds.
    Start,
    /// Samples of the clip that are not padding.
    ValidSamples,
}

/// The fields that examples have only on request.
const REQUESTED: [&str; 3] = ["path", "start", "valid_samples"];

/// The fields of an example, in order.
#[derive(Debug, Clone)]
pub struct Outputs(Vec<(Output, Option<Field>)>);

impl Default for Outputs {
    /// Features and row number.
    fn default() -> Self {
        Self::new(&[], None, &[])
    }
}

impl Outputs {
    /// Lists the fields: the features; the record's values, of the fields `columns`; `source`, if there are
    /// `group_starts`, the first rows of several sources; `index`; then those `requested`, any of `path`,
    /// `start` and `valid_samples`.
    pub fn new(columns: &[Field], group_starts: Option<&[u64]>, requested: &[String]) -> Self {
        let number = |name: &str| Some(Field::number(name, DataType::Int64));
        let columns = columns.iter().enumerate();
        let column = |(at, field): (usize, &Field)| (Output::Column(at), Some(field.clone()));
        let requested = requested.iter().filter_map(|name| match &**name {
            "start" => Some((Output::Start, Some(Field::number("start", DataType::Float64)))),
            "valid_samples" => Some((Output::ValidSamples, number("valid_samples"))),
            name => columns.clone().find(|(_, field)| field.name == *name).map(column),
        });
        let columns = columns.clone().filter(|(_, field)| !REQUESTED.contains(&&*field.name)).map(column);
        let source = group_starts.map(|starts| (Output::Source(starts.into()), number("source")));
        let first = (Output::Features, None);
        Self(
            [first]
                .into_iter()
                .chain(columns)
                .chain(source)
                .chain([(Output::Index, number("index"))])
                .chain(requested)
                .collect(),
        )
    }

    /// The problem with the names of requested fields, if there is one.
    pub(crate) fn problem(requested: &[String]) -> Option<String> {
        for (at, name) in requested.iter().enumerate() {
            if !REQUESTED.contains(&&**name) {
                return Some(format!("outputs has {name:?}, must be one of {REQUESTED:?}"));
            }
            if requested[..at].contains(name) {
                return Some(format!("outputs has {name:?} twice"));
            }
        }
        None
    }

    /// The fields, with that of the features from the plan.
    fn fields(&self, plan: &AudioPlan) -> Vec<Field> {
        let features = || {
            let shape = plan.shape().iter().map(|&n| n as u64).collect::<Vec<_>>();
            Field::stacked(plan.features.name(), plan.features.dtype().into(), shape)
        };
        self.0.iter().map(|(_, field)| field.clone().unwrap_or_else(features)).collect()
    }

    fn planned(self, plan: &AudioPlan) -> (Arc<[Output]>, Arc<SharedPool>) {
        let pool = SharedPool::new(self.fields(plan));
        (self.0.into_iter().map(|(output, _)| output).collect(), Arc::new(pool))
    }
}

/// Makes features of recordings.
#[derive(Debug, Clone)]
pub struct AudioTask {
    plan: AudioPlan,
    resamplers: Arc<Resamplers>,
    spare: Arc<SpareBuffers>,
    outputs: Arc<[Output]>,
    pool: Arc<SharedPool>,
}

impl AudioTask {
    /// Creates a task.
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
    fn span(&self, info: Info, seed: u64) -> Result<(Crop, Range<u64>, Arc<Resampler>)> {
        let rate = self.plan.features.sample_rate();
        let n = target_len(info.n_samples, info.sample_rate, rate);
        let crop = crop(self.plan.crop, n, self.plan.clip_samples, seed);
        let resampler = self.resamplers.get(info.sample_rate, rate)?;
        let span = resampler.input_span(crop.start..crop.start + crop.len as u64, info.n_samples);
        Ok((crop, span, resampler))
    }

    /// The fields of a batch's columns.
    pub fn fields(&self) -> &Arc<[Field]> {
        self.pool.fields()
    }
}

impl Task for AudioTask {
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
        let layout = layout(head, size)?;
        let (_, span, _) = self.span(layout.info, seed).ok()?;
        let byte = |sample: u64| layout.data_at + sample * layout.frame_bytes;
        Some(byte(span.start)..byte(span.end))
    }

    fn collate(&self, Batches { size: batch_size, ahead, .. }: Batches) -> RowCollate {
        let pool = self.pool.serving(batch_size, batch_slots(ahead));
        RowCollate::new(pool, self.spare.clone())
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
        let AudioPlan { features, clip_samples, .. } = &self.task.plan;
        let (crop, clips) = self.cutter.cut(&self.task, record)?;
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
        let mut values = Some(values);
        let value = |output: &Output| match output {
            Output::Features => values.take().map(Value::Array),
            Output::Column(at) => record.values.get(*at).cloned(),
            Output::Source(starts) => {
                Some(Value::Int(starts.partition_point(|&start| start <= record.index) as i64 - 1))
            }
            Output::Index => Some(Value::Int(record.index as i64)),
            Output::Start => {
                let samples = crop.start as f64 - crop.pad_front as f64;
                Some(Value::Float(samples / f64::from(features.sample_rate())))
            }
            Output::ValidSamples => Some(Value::Int(crop.len as i64)),
        };
        Ok(self.task.outputs.iter().filter_map(value).collect())
    }
}

impl Cutter {
    /// The record's clips, one for each channel that is kept, and their crop. Decoded samples of one channel
    /// that need neither resampling nor padding are returned without a copy.
    fn cut(&mut self, task: &AudioTask, record: &Record) -> Result<(Crop, &[f32])> {
        let recording = self.decoder.open(&record.bytes)?;
        let info = recording.info();
        info.check_seconds(task.plan.max_decoded_seconds)?;
        let (crop, span, resampler) = task.span(info, record.seed)?;
        let Crop { start, len, pad_front } = crop;
        self.decoder.read(&recording, span.clone(), &mut self.planes)?;
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
            resampler.resample(waveform, span.start, start, middle)?;
        }
        Ok((crop, &self.clip))
    }
}
