//! The processor for recordings: features of whole recordings, computed once.
//!
//! Channels are mixed or kept apart and resampled to the front end's rate, as in a loader. The features cover
//! the whole recording. As in a loader, a recording longer than `max_decoded_seconds` is refused before a
//! sample is decoded. One that is too short for a frame is padded with zeros at the end.

use std::sync::Arc;

use serde_json::Value;

use super::{Process, Processor, Skips, inputs::InputRows};
use crate::{
    BatchColumn, Error, ErrorKind, Processed, Result,
    dtype::{Dtype, each},
    fallible_alloc,
    fields::DataType,
    source::{OpenRecording, RawRecord, info_of_row, label_of},
};
use forebay_audio::{AudioDecoder, Damage, KEPT_SAMPLES, Planes};
use forebay_dsp::{
    FeatureScratch, Features, Form, KeptChannels, Quality, Resamplers, SpectrogramConfig,
    SpectrogramTransform, target_len,
};

/// Turns recordings into features and labels.
#[derive(Debug, Clone)]
pub struct FeatureBuilder {
    plan: Features,
    /// What the ledger keeps of the plan.
    description: Value,
    /// Shorter recordings are padded to this number of samples.
    least_samples: usize,
    resamplers: Arc<Resamplers>,
    max_decoded_seconds: f64,
    damage: Damage,
}

/// Recordings that resampling makes longer than this many samples, and more than [`MOST_STRETCHED`] times as
/// long, are refused: the sample rate in their header is implausible.
const LONGEST_STRETCHED: u64 = 1 << 22;
const MOST_STRETCHED: u64 = 32;

impl FeatureBuilder {
    /// The features of a front end; `description` identifies it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a cache cannot store their type, or as [`Features::check_channels`].
    pub fn new(plan: Features, description: Value, max_decoded_seconds: f64) -> Result<Self> {
        plan.check_channels()?;
        if plan.dtype() == Dtype::Bfloat16 {
            let message = "dtype is \"bfloat16\", which a cache cannot store; give dtype=\"float32\" or \"float16\", and \
                           convert what you read";
            return Err(Error::new(ErrorKind::Config, message));
        }
        let least_samples = plan.least_samples();
        let resamplers = Arc::new(Resamplers::new(Quality::default()));
        Ok(Self { plan, description, least_samples, resamplers, max_decoded_seconds, damage: Damage::ERROR })
    }

    /// The features that `transform` computes.
    ///
    /// # Errors
    /// As [`Features::log_mel`].
    pub fn log_mel(transform: &SpectrogramTransform, max_decoded_seconds: f64) -> Result<Self> {
        let config = transform.config();
        let plan = Features::log_mel(config.clone(), Form::default())?;
        let found = Self::new(plan, described(config).into(), max_decoded_seconds)?;
        Ok(Self { least_samples: transform.least_samples(), ..found })
    }

    /// The same features, with frames that cannot be decoded treated as `damage` says.
    pub fn with_damage(self, damage: Damage) -> Self {
        Self { damage, ..self }
    }

    /// What identifies the front end in the ledger.
    pub fn description(&self) -> &Value {
        &self.description
    }

    /// Bytes of the features of a recording of any length.
    pub fn recording_bytes(&self) -> u64 {
        self.bytes(0)
    }

    /// Bytes of the features of each second of a recording.
    pub fn second_bytes(&self) -> f64 {
        const SECONDS: u32 = 64;
        let n_samples = SECONDS as usize * self.plan.sample_rate() as usize;
        (self.bytes(n_samples) - self.bytes(0)) as f64 / f64::from(SECONDS)
    }

    fn bytes(&self, n_samples: usize) -> u64 {
        let width = self.plan.dtype().bytes() as u64;
        self.plan.shape(n_samples).iter().fold(width, |bytes, &axis| bytes.saturating_mul(axis as u64))
    }
}

/// The identity of a [`SpectrogramTransform`]: a text that does not change, since a cache in which another
/// one is written would be refused.
fn described(config: &SpectrogramConfig) -> String {
    let SpectrogramConfig {
        sample_rate,
        n_fft,
        win_length,
        hop_length,
        n_mels,
        f_min,
        f_max,
        power,
        center,
        ..
    } = config;
    format!(
        "SpectrogramConfig {{ sample_rate: {sample_rate}, n_fft: {n_fft}, win_length: {win_length:?}, \
         hop_length: {hop_length}, n_mels: {n_mels}, f_min: {f_min:?}, f_max: {f_max:?}, power: {power:?}, \
         center: {center} }}"
    )
}

impl Processor<InputRows> for FeatureBuilder {
    fn worker(&self) -> Box<dyn Process<InputRows>> {
        Box::new(FeatureWorker {
            what: self.clone(),
            decoder: AudioDecoder::with_damage(self.damage),
            planes: Planes::new(),
            mono: Vec::new(),
            waveform: Vec::new(),
            scratch: self.plan.scratch(),
        })
    }
}

struct FeatureWorker {
    what: FeatureBuilder,
    decoder: AudioDecoder,
    planes: Planes,
    mono: Vec<f32>,
    waveform: Vec<f32>,
    scratch: FeatureScratch,
}

impl Process<InputRows> for FeatureWorker {
    fn process(&mut self, rows: InputRows, skips: &mut Skips<'_>) -> Result<Processed> {
        let InputRows::Recordings(records) = rows else {
            return Err(Error::new(ErrorKind::Schema, "a front end needs a column of recordings"));
        };
        let plan = &self.what.plan;
        let features = BatchColumn::flat(plan.name(), plan.dtype().into(), Vec::new(), Vec::new());
        let mut features = BatchColumn { rank: plan.shape(0).len(), ..features };
        let mut labels =
            BatchColumn { rank: 0, ..BatchColumn::flat("label", DataType::Int64, Vec::new(), Vec::new()) };
        for (row, record) in records.iter().enumerate() {
            match self.one(record, &mut features) {
                Ok(()) => {
                    labels.data.extend_from_slice(&label_of(&record.values).to_le_bytes());
                    labels.lengths.push(1);
                }
                Err(error) => skips.refused(row as u64, error)?,
            }
        }
        Ok(Processed { documents: labels.lengths.len() as u64, columns: vec![features, labels] })
    }
}

impl FeatureWorker {
    fn one(&mut self, record: &RawRecord, features: &mut BatchColumn) -> Result<()> {
        let recording = OpenRecording::open(&mut self.decoder, &record.payload)?;
        let (info, samples) = info_of_row(recording.info(), record.payload.segment())?;
        info.check_seconds(self.what.max_decoded_seconds)?;
        let plan = &self.what.plan;
        let rate = plan.sample_rate();
        let n = target_len(info.n_samples, info.sample_rate, rate);
        if n > LONGEST_STRETCHED && n / info.n_samples.max(1) > MOST_STRETCHED {
            let message = format!(
                "the recording has {} samples at {} Hz, which makes {n} at the transform's {rate} Hz; above {LONGEST_STRETCHED}, \
                 resampling to more than {MOST_STRETCHED} times the rate is refused",
                info.n_samples, info.sample_rate
            );
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let channels = plan.channels();
        self.planes.take_mean(channels == KeptChannels::Mean);
        recording.read(&mut self.decoder, samples, &mut self.planes)?;
        channels.check(self.planes.channels())?;
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        let n_padded = n.max(self.what.least_samples);
        let is_ready = info.sample_rate == rate && n == n_padded;
        if !is_ready {
            if self.waveform.capacity() > KEPT_SAMPLES && n <= KEPT_SAMPLES {
                self.waveform = Vec::new();
            }
            fallible_alloc::resize(&mut self.waveform, n_padded, 0.0)?;
            self.waveform[n..].fill(0.0);
        }
        let shape = plan.shape(n_padded);
        let len = shape.iter().fold(1usize, |len, &axis| len.saturating_mul(axis));
        let mut values = plan.dtype().zeros(len)?;
        let channel_len = len / channels.n_kept();
        for channel in 0..channels.n_kept() {
            let decoded = channels.waveform(channel, &self.planes, 0..self.planes.len(), &mut self.mono)?;
            let waveform = if is_ready {
                decoded
            } else {
                let resampler = self.what.resamplers.get(info.sample_rate, rate)?;
                resampler.resample(decoded, 0, 0, &mut self.waveform[..n])?;
                &self.waveform[..]
            };
            let mut out = values.as_mut();
            let out = out.part(channel * channel_len..(channel + 1) * channel_len);
            plan.transform(waveform, 0..n, &mut self.scratch, out)?;
        }
        fallible_alloc::grow(&mut features.data, len * plan.dtype().bytes())?;
        each!(values, values => {
            features.data.extend(values.into_iter().flat_map(|value| value.to_le_bytes()));
        });
        features.lengths.push(len as u64);
        features.shapes.extend(shape.iter().map(|&axis| axis as u64));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_dsp::{FrontEnd, FrontEndConfig, front_end::Conditioning};

    fn bytes(plan: Features) -> (u64, f64) {
        let features = FeatureBuilder::new(plan, Value::Null, 1e9).unwrap();
        (features.recording_bytes(), features.second_bytes())
    }

    /// Batches are cut by these.
    #[test]
    fn bytes_of_features() {
        let bands = |form| {
            let config = FrontEndConfig { form, ..FrontEndConfig::default() };
            Features::bands(FrontEnd::new(config, true).unwrap(), KeptChannels::All(Some(2)))
        };
        // A frame at the start of the recording, and 100 a second.
        assert_eq!(bytes(bands(Form::default())), (0, (2 * 128 * (1 + 64 * 100) * 4) as f64 / 64.0));
        let form = Form { n_frames: Some(10), dtype: Dtype::Float16, ..Form::default() };
        assert_eq!(bytes(bands(form)), (2 * 128 * 10 * 2, 0.0));
        let waveform = Features::waveform(16_000, Conditioning::default(), Dtype::Int16, KeptChannels::Mean);
        assert_eq!(bytes(waveform), (0, 32_000.0));
    }
}
