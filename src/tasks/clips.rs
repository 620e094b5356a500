//! The task of loading recordings: crop, decode, resample, log-mel.
//!
//! The crop is chosen first, on the target rate's grid, from the recording's true length; then only the span that it needs is
//! decoded. What a worker keeps from record to record (decoders, resamplers, scratch) changes no value.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    Error, ErrorKind, Result,
    batch::{AudioCollate, AudioExample, AudioPool, SpareBuffers},
    decode::{AudioDecoder, Info, KEPT_SAMPLES, Planes, layout},
    dtype::Dtype,
    fallible_alloc,
    memory::{SPARE_EXAMPLES, batch_slots},
    record::{Batches, ExampleMaker, Record, Task},
    transform::{
        Crop, CropMode, Form, Quality, Resampler, Resamplers, Scratch, SpectrogramConfig,
        SpectrogramTransform, crop, target_len,
    },
};

/// What an audio example is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct AudioPlan {
    /// Samples of a clip at the target rate.
    pub clip_samples: usize,
    /// Where clips are cut.
    pub crop: CropMode,
    /// The features; also tells the target rate.
    pub spectrogram: SpectrogramConfig,
    /// How they lie in memory.
    pub form: Form,
    /// The most seconds that a recording may have.
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

    /// Bytes of an example's spectrogram, in a buffer of its own or in its place in a batch.
    pub fn example_bytes(&self) -> usize {
        let [rows, columns] = self.shape();
        rows.saturating_mul(columns).saturating_mul(self.form.dtype.bytes())
    }

    /// Bytes of address space, and once used of memory, that a batch takes: its fields, rounded up as the system hands memory out.
    pub fn batch_bytes(&self, batch_size: usize) -> usize {
        AudioPool::new(batch_size, self.form.dtype, self.shape().iter().product(), 0).batch_bytes()
    }
}

/// Makes spectrograms of recordings.
#[derive(Debug, Clone)]
pub struct AudioTask {
    plan: AudioPlan,
    transform: Arc<SpectrogramTransform>,
    resamplers: Arc<Resamplers>,
    spare: Arc<SpareBuffers>,
    /// For the largest batches that were asked for, kept from pass to pass.
    pool: Arc<Mutex<Option<Arc<AudioPool>>>>,
}

impl AudioTask {
    /// Plans the features.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the spectrogram's parameters contradict each other.
    pub fn new(plan: AudioPlan) -> Result<Self> {
        let transform = Arc::new(SpectrogramTransform::new(plan.spectrogram.clone())?);
        transform.warn_of_empty_bands();
        let resamplers = Arc::new(Resamplers::new(Quality::default()));
        let spare = Arc::new(SpareBuffers::new(SPARE_EXAMPLES as usize));
        Ok(Self { plan, transform, resamplers, spare, pool: Arc::default() })
    }

    /// The crop of a recording, the samples of it that the crop needs, and how they are resampled.
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

    /// The type of an example's values.
    pub fn dtype(&self) -> Dtype {
        self.plan.form.dtype
    }

    fn example_len(&self) -> usize {
        self.shape().iter().product()
    }
}

impl Task for AudioTask {
    type Maker = ClipMaker;
    type Collate = AudioCollate;

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

    fn collate(&self, Batches { size: batch_size, ahead, .. }: Batches) -> AudioCollate {
        let slots = batch_slots(ahead);
        let mut kept = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        // One made on the side, maybe the shorter last one of a pass, fits.
        let fits = |pool: &Arc<AudioPool>| pool.batch_size() >= batch_size && pool.slots() >= slots;
        let pool = kept
            .take()
            .filter(fits)
            .unwrap_or_else(|| Arc::new(AudioPool::new(batch_size, self.dtype(), self.example_len(), slots)));
        let pool = kept.insert(pool).clone();
        AudioCollate::new(pool, self.spare.clone())
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
    type Example = AudioExample;

    fn run(&mut self, record: &Record) -> Result<AudioExample> {
        let clip = self.cutter.cut(&self.task, record)?;
        let mut spectrogram = match self.task.spare.take() {
            Some(spectrogram) => spectrogram,
            None => self.task.dtype().zeros(self.task.example_len())?,
        };
        let form = &self.task.plan.form;
        self.task.transform.transform_to(form, clip, &mut self.scratch, spectrogram.as_mut())?;
        Ok(AudioExample { spectrogram, label: record.label, index: record.index as i64 })
    }
}

impl Cutter {
    /// The record's clip; stays where it was decoded if nothing is left to do.
    fn cut(&mut self, task: &AudioTask, record: &Record) -> Result<&[f32]> {
        let recording = self.decoder.open(&record.bytes)?;
        let info = recording.info();
        check_seconds(info, task.plan.max_decoded_seconds)?;
        let (Crop { start, len, pad_front }, span, resampler) = task.span(info, record.seed)?;
        self.decoder.read(&recording, span.clone(), &mut self.planes)?;
        let mono = mean_of_channels(&self.planes, &mut self.mono)?;
        let n = task.plan.clip_samples;
        if info.sample_rate == task.plan.spectrogram.sample_rate && mono.len() == n {
            return Ok(mono);
        }
        fallible_alloc::resize(&mut self.clip, n, 0.0)?;
        let (front, rest) = self.clip.split_at_mut(pad_front);
        let (middle, behind) = rest.split_at_mut(len);
        front.fill(0.0);
        behind.fill(0.0);
        resampler.resample(mono, span.start, start, middle)?;
        Ok(&self.clip)
    }
}

/// Checks the length of a recording before its samples are decoded.
///
/// # Errors
/// [`ErrorKind::TooLarge`] for more than `limit` seconds.
pub(crate) fn check_seconds(info: Info, limit: f64) -> Result<()> {
    let seconds = info.n_samples as f64 / f64::from(info.sample_rate);
    if seconds <= limit {
        return Ok(());
    }
    let message = format!("the recording has {seconds:.1} s, max_decoded_seconds allows {limit}");
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// One channel as it is, several averaged.
pub(crate) fn mean_of_channels<'a>(planes: &'a Planes, mono: &'a mut Vec<f32>) -> Result<&'a [f32]> {
    let channels = planes.channels();
    if channels == 1 {
        return Ok(planes.channel(0));
    }
    mono.clear();
    if mono.capacity() > KEPT_SAMPLES && planes.len() <= KEPT_SAMPLES {
        *mono = Vec::new();
    }
    fallible_alloc::reserve(mono, planes.len())?;
    if channels == 2 {
        // The usual case in one pass; the values are those of the loops below.
        mono.extend(
            planes.channel(0).iter().zip(planes.channel(1)).map(|(left, right)| (left + right) * 0.5),
        );
        return Ok(mono);
    }
    mono.extend_from_slice(planes.channel(0));
    for channel in 1..usize::from(channels) {
        mono.iter_mut().zip(planes.channel(channel)).for_each(|(sum, value)| *sum += value);
    }
    let scale = 1.0 / f32::from(channels);
    mono.iter_mut().for_each(|sum| *sum *= scale);
    Ok(mono)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LoaderConfig;

    #[test]
    fn passes_share_their_memory() {
        let task = AudioTask::new(LoaderConfig::default().check().unwrap().1).unwrap();
        let pool_after = |size, ahead| {
            task.collate(Batches { size, n_streams: 1, ahead });
            task.pool.lock().unwrap().clone().unwrap()
        };
        assert_eq!(pool_after(3, 1).batch_size(), 3);
        let pool = pool_after(64, 3);
        assert_eq!((pool.batch_size(), pool.slots()), (64, batch_slots(3)));
        assert!(Arc::ptr_eq(&pool, &pool_after(3, 1)));
        assert!(Arc::ptr_eq(&pool, &pool_after(64, 3)));
        assert_eq!(pool_after(64, 8).slots(), batch_slots(8));
    }
}
