//! [`AudioTask`] loads recordings: crop, decode, resample, log-mel.
//!
//! The crop is chosen first, on the target rate's grid, from the recording's true length; then only the span
//! that it needs is decoded. Decoders, resamplers and scratch that a worker keeps from record to record
//! change no value.

use std::{ops::Range, sync::Arc};

use crate::{
    Result,
    batch::{Example, RowCollate, SpareBuffers},
    decode::{AudioDecoder, Info, Planes, layout},
    dtype::Dtype,
    fallible_alloc,
    fields::{ColumnPool, DataType, Field, SharedPool, Value},
    memory::{SPARE_EXAMPLES, batch_slots},
    record::{Batches, ExampleMaker, Record, Task},
    transform::{
        Crop, CropMode, Form, Quality, Resampler, Resamplers, Scratch, SpectrogramConfig,
        SpectrogramTransform, crop, target_len,
    },
};

/// How audio examples are made: length, crop and features.
#[derive(Debug, Clone, PartialEq)]
pub struct AudioPlan {
    /// Samples of a clip at the target rate.
    pub clip_samples: usize,
    /// How the position of a clip in its recording is chosen.
    pub crop: CropMode,
    /// The parameters of the features, the target rate among them.
    pub spectrogram: SpectrogramConfig,
    /// The layout and type of the features in memory.
    pub form: Form,
    /// The maximum length of a recording in seconds.
    pub max_decoded_seconds: f64,
}

impl AudioPlan {
    /// `[n_mels, n_frames]` or `[n_frames, n_mels]` of an example.
    pub fn shape(&self) -> [usize; 2] {
        self.form.shape(self.spectrogram.n_mels, self.n_frames())
    }

    /// Frames of a spectrogram.
    pub fn n_frames(&self) -> usize {
        self.form.n_frames.unwrap_or_else(|| self.spectrogram.n_frames(self.clip_samples))
    }

    /// Bytes of an example's spectrogram, in its own buffer or in a batch.
    pub fn example_bytes(&self) -> usize {
        let [rows, columns] = self.shape();
        rows.saturating_mul(columns).saturating_mul(self.form.dtype.bytes())
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
    /// The log-mel spectrogram of the clip.
    Spectrogram,
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
    /// Spectrogram and row number.
    fn default() -> Self {
        Self::new(&[], None, &[])
    }
}

impl Outputs {
    /// Lists the fields: `spectrogram`; the record's values, of the fields `columns`; `source`, if there are
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
        let first = (Output::Spectrogram, None);
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

    /// The fields, with the spectrogram's shape from the plan.
    fn fields(&self, plan: &AudioPlan) -> Vec<Field> {
        let spectrogram =
            || Field::stacked("spectrogram", plan.form.dtype.into(), plan.shape().map(|n| n as u64));
        self.0.iter().map(|(_, field)| field.clone().unwrap_or_else(spectrogram)).collect()
    }

    fn planned(self, plan: &AudioPlan) -> (Arc<[Output]>, Arc<SharedPool>) {
        let pool = SharedPool::new(self.fields(plan));
        (self.0.into_iter().map(|(output, _)| output).collect(), Arc::new(pool))
    }
}

/// Makes spectrograms of recordings.
#[derive(Debug, Clone)]
pub struct AudioTask {
    plan: AudioPlan,
    transform: Arc<SpectrogramTransform>,
    resamplers: Arc<Resamplers>,
    spare: Arc<SpareBuffers>,
    outputs: Arc<[Output]>,
    pool: Arc<SharedPool>,
}

impl AudioTask {
    /// Creates a task, with its plan of the features.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the spectrogram's parameters contradict each other.
    pub fn new(plan: AudioPlan) -> Result<Self> {
        let transform = Arc::new(SpectrogramTransform::new(plan.spectrogram.clone())?);
        transform.warn_of_empty_bands();
        let resamplers = Arc::new(Resamplers::new(Quality::default()));
        let spare = Arc::new(SpareBuffers::new(SPARE_EXAMPLES as usize));
        let (outputs, pool) = Outputs::default().planned(&plan);
        Ok(Self { plan, transform, resamplers, spare, outputs, pool })
    }

    /// The same with other fields.
    pub fn with_outputs(mut self, outputs: Outputs) -> Self {
        (self.outputs, self.pool) = outputs.planned(&self.plan);
        self
    }

    /// The crop of a recording, the span of samples that it needs, and the resampler for them.
    fn span(&self, info: Info, seed: u64) -> Result<(Crop, Range<u64>, Arc<Resampler>)> {
        let rate = self.plan.spectrogram.sample_rate;
        let n = target_len(info.n_samples, info.sample_rate, rate);
        let crop = crop(self.plan.crop, n, self.plan.clip_samples, seed);
        let resampler = self.resamplers.get(info.sample_rate, rate)?;
        let span = resampler.input_span(crop.start..crop.start + crop.len as u64, info.n_samples);
        Ok((crop, span, resampler))
    }

    /// `[n_mels, n_frames]` or `[n_frames, n_mels]` of an example.
    pub fn shape(&self) -> [usize; 2] {
        self.plan.shape()
    }

    /// The fields of a batch's columns.
    pub fn fields(&self) -> &Arc<[Field]> {
        self.pool.fields()
    }

    /// The type of a spectrogram's values.
    pub fn dtype(&self) -> Dtype {
        self.plan.form.dtype
    }

    fn example_len(&self) -> usize {
        self.shape().iter().product()
    }
}

impl Task for AudioTask {
    type Maker = ClipMaker;
    type Collate = RowCollate;

    fn maker(&self) -> ClipMaker {
        ClipMaker {
            scratch: self.transform.scratch(),
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
    scratch: Scratch,
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
        let (crop, clip) = self.cutter.cut(&self.task, record)?;
        let mut spectrogram = match self.task.spare.take() {
            Some(spectrogram) => spectrogram,
            None => self.task.dtype().zeros(self.task.example_len())?,
        };
        let form = &self.task.plan.form;
        self.task.transform.transform_to(form, clip, &mut self.scratch, spectrogram.as_mut())?;
        let mut spectrogram = Some(spectrogram);
        let value = |output: &Output| match output {
            Output::Spectrogram => spectrogram.take().map(Value::Array),
            Output::Column(at) => record.values.get(*at).cloned(),
            Output::Source(starts) => {
                Some(Value::Int(starts.partition_point(|&start| start <= record.index) as i64 - 1))
            }
            Output::Index => Some(Value::Int(record.index as i64)),
            Output::Start => {
                let samples = crop.start as f64 - crop.pad_front as f64;
                Some(Value::Float(samples / f64::from(self.task.plan.spectrogram.sample_rate)))
            }
            Output::ValidSamples => Some(Value::Int(crop.len as i64)),
        };
        Ok(self.task.outputs.iter().filter_map(value).collect())
    }
}

impl Cutter {
    /// The record's clip and its crop. If the decoded samples need neither resampling nor padding they are
    /// returned without a copy.
    fn cut(&mut self, task: &AudioTask, record: &Record) -> Result<(Crop, &[f32])> {
        let recording = self.decoder.open(&record.bytes)?;
        let info = recording.info();
        info.check_seconds(task.plan.max_decoded_seconds)?;
        let (crop, span, resampler) = task.span(info, record.seed)?;
        let Crop { start, len, pad_front } = crop;
        self.decoder.read(&recording, span.clone(), &mut self.planes)?;
        let mono = self.planes.mean(&mut self.mono)?;
        let n = task.plan.clip_samples;
        if info.sample_rate == task.plan.spectrogram.sample_rate && mono.len() == n {
            return Ok((crop, mono));
        }
        fallible_alloc::resize(&mut self.clip, n, 0.0)?;
        let (front, rest) = self.clip.split_at_mut(pad_front);
        let (middle, behind) = rest.split_at_mut(len);
        front.fill(0.0);
        behind.fill(0.0);
        resampler.resample(mono, span.start, start, middle)?;
        Ok((crop, &self.clip))
    }
}
