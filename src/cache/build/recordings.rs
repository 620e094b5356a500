//! The processor of recordings: features of the whole recording, made once.
//!
//! Channels are averaged, then resampled to the transform's rate, as in a loader's pipeline; the spectrogram is of the whole
//! recording, `[n_mels, n_frames]`.

use std::sync::Arc;

use super::{Process, Processor, Skips, inputs::Rows};
use crate::{
    Error, ErrorKind, Result,
    cache::{Column, DataType, Processed},
    decode::{AudioDecoder, Planes},
    pipeline::mean_of_channels,
    record::RawRecord,
    transform::{Quality, Resamplers, Scratch, SpectrogramTransform, target_len},
};

/// Turns recordings into spectrograms and labels.
#[derive(Debug, Clone)]
pub struct Features {
    /// Also tells the rate.
    pub transform: Arc<SpectrogramTransform>,
    /// Shared by workers.
    pub resamplers: Arc<Resamplers>,
}

impl Features {
    /// The features that `transform` makes.
    pub fn new(transform: SpectrogramTransform) -> Self {
        Self { transform: Arc::new(transform), resamplers: Arc::new(Resamplers::new(Quality::default())) }
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
            return Err(Error::new(ErrorKind::Schema, "a transform of audio needs a column of recordings"));
        };
        let mut features =
            Column { rank: 2, ..Column::flat("spectrogram", DataType::Float32, Vec::new(), Vec::new()) };
        let mut labels = Column { rank: 0, ..Column::flat("label", DataType::Int64, Vec::new(), Vec::new()) };
        for (row, record) in records.iter().enumerate() {
            match self.one(record, &mut features) {
                Ok(()) => {
                    labels.data.extend_from_slice(&record.label.to_le_bytes());
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
        self.decoder.read(&recording, 0..info.n_samples, &mut self.planes)?;
        let mono = mean_of_channels(&self.planes, &mut self.mono)?;
        let transform = &self.what.transform;
        let rate = transform.config().sample_rate;
        let waveform = if info.sample_rate == rate {
            mono
        } else {
            let n = target_len(info.n_samples, info.sample_rate, rate);
            self.waveform.resize(n as usize, 0.0);
            self.what.resamplers.get(info.sample_rate, rate)?.resample(mono, 0, 0, &mut self.waveform)?;
            &self.waveform[..]
        };
        let shape = [transform.n_mels(), transform.n_frames(waveform.len())];
        let mut out = vec![0.0; shape[0] * shape[1]];
        transform.transform(waveform, &mut self.scratch, &mut out)?;
        features.data.extend(out.iter().flat_map(|value| value.to_le_bytes()));
        features.lengths.push(out.len() as u64);
        features.shapes.extend(shape.map(|axis| axis as u64));
        Ok(())
    }
}
