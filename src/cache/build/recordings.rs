//! The processor for recordings: features of whole recordings, computed once.
//!
//! Channels are averaged and resampled to the transform's rate, as in a loader. The spectrogram covers the
//! whole recording: `[n_mels, n_frames]`. As in a loader, a recording longer than `max_decoded_seconds` is
//! refused before a sample is decoded, and one that is too short for a frame is padded with zeros at the end.

use std::sync::Arc;

use super::{Process, Processor, Skips, inputs::Rows};
use crate::{
    Error, ErrorKind, Result,
    cache::{Column, Processed},
    decode::{AudioDecoder, KEPT_SAMPLES, Planes},
    fallible_alloc,
    fields::DataType,
    record::RawRecord,
    transform::{Quality, Resamplers, Scratch, SpectrogramTransform, target_len},
};

/// Turns recordings into spectrograms and labels.
#[derive(Debug, Clone)]
pub struct Features {
    /// Computes the spectrogram; also defines the sample rate.
    pub transform: Arc<SpectrogramTransform>,
    /// Resampling plans, shared by workers.
    pub resamplers: Arc<Resamplers>,
    /// The longest recording, in seconds.
    pub max_decoded_seconds: f64,
}

/// Recordings that resampling makes longer than this many samples, and more than [`MOST_STRETCHED`] times as
/// long, are refused: the sample rate in their header is implausible.
const LONGEST_STRETCHED: u64 = 1 << 22;
const MOST_STRETCHED: u64 = 32;

impl Features {
    /// The features that `transform` makes.
    pub fn new(transform: SpectrogramTransform, max_decoded_seconds: f64) -> Self {
        let resamplers = Arc::new(Resamplers::new(Quality::default()));
        Self { transform: Arc::new(transform), resamplers, max_decoded_seconds }
    }

    /// Bytes of the features of a second of a recording.
    pub fn second_bytes(&self) -> f64 {
        let config = self.transform.config();
        let frames = f64::from(config.sample_rate) / config.hop_length as f64;
        frames * (config.n_mels * size_of::<f32>()) as f64
    }
}

impl Processor<Rows> for Features {
    fn worker(&self) -> Box<dyn Process<Rows>> {
        let scratch = self.transform.scratch();
        Box::new(Worker {
            what: self.clone(),
            decoder: AudioDecoder::new(),
            planes: Planes::new(),
            mono: Vec::new(),
            waveform: Vec::new(),
            scratch,
        })
    }
}

struct Worker {
    what: Features,
    decoder: AudioDecoder,
    planes: Planes,
    mono: Vec<f32>,
    waveform: Vec<f32>,
    scratch: Scratch,
}

impl Process<Rows> for Worker {
    fn process(&mut self, rows: Rows, skips: &mut Skips<'_>) -> Result<Processed> {
        let Rows::Recordings(records) = rows else {
            return Err(Error::new(ErrorKind::Schema, "an audio transform needs a column of recordings"));
        };
        let mut features =
            Column { rank: 2, ..Column::flat("spectrogram", DataType::Float32, Vec::new(), Vec::new()) };
        let mut labels = Column { rank: 0, ..Column::flat("label", DataType::Int64, Vec::new(), Vec::new()) };
        for (row, record) in records.iter().enumerate() {
            match self.one(record, &mut features) {
                Ok(()) => {
                    labels.data.extend_from_slice(&record.label().to_le_bytes());
                    labels.lengths.push(1);
                }
                Err(error) => skips.refused(row as u64, error)?,
            }
        }
        Ok(Processed { documents: labels.lengths.len() as u64, columns: vec![features, labels] })
    }
}

impl Worker {
    fn one(&mut self, record: &RawRecord, features: &mut Column) -> Result<()> {
        let recording = self.decoder.open(&record.bytes)?;
        let info = recording.info();
        info.check_seconds(self.what.max_decoded_seconds)?;
        let transform = &self.what.transform;
        let rate = transform.config().sample_rate;
        let n = target_len(info.n_samples, info.sample_rate, rate);
        if n > LONGEST_STRETCHED && n / info.n_samples.max(1) > MOST_STRETCHED {
            let message = format!(
                "the recording has {} samples at {} Hz, which makes {n} at the transform's {rate} Hz; above {LONGEST_STRETCHED}, \
                 resampling to more than {MOST_STRETCHED} times the rate is refused",
                info.n_samples, info.sample_rate
            );
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        self.decoder.read(&recording, 0..info.n_samples, &mut self.planes)?;
        let mono = self.planes.mean(&mut self.mono)?;
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        let least = transform.least_samples();
        let waveform = if info.sample_rate == rate && n >= least {
            mono
        } else {
            if self.waveform.capacity() > KEPT_SAMPLES && n <= KEPT_SAMPLES {
                self.waveform = Vec::new();
            }
            fallible_alloc::resize(&mut self.waveform, n.max(least), 0.0)?;
            let (samples, silence) = self.waveform.split_at_mut(n);
            silence.fill(0.0);
            self.what.resamplers.get(info.sample_rate, rate)?.resample(mono, 0, 0, samples)?;
            &self.waveform[..]
        };
        let shape = [transform.n_mels(), transform.n_frames(waveform.len())];
        let mut out = fallible_alloc::filled(shape[0].saturating_mul(shape[1]), 0.0f32)?;
        transform.transform(waveform, &mut self.scratch, &mut out)?;
        fallible_alloc::grow(&mut features.data, size_of_val(&out[..]))?;
        features.data.extend(out.iter().flat_map(|value| value.to_le_bytes()));
        features.lengths.push(out.len() as u64);
        features.shapes.extend(shape.map(|axis| axis as u64));
        Ok(())
    }
}
