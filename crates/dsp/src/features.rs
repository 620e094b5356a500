//! [`Features`]: what a model takes of a recording, a waveform or a spectrogram, for every channel.
//!
//! Input: the samples of a clip, `[n_channels, n_samples]`. Output: features in their final type and layout.
//! Loaders, builds of caches and calls on an array use the same plan. Source: own.

use std::{ops::Range, sync::Arc};

use half::f16;
use smallvec::SmallVec;

use super::{
    augment::FrameAxis,
    form::{Form, Layout},
    front_end::{Conditioning, FrontEnd, FrontEndConfig, FrontEndScratch, WaveformLevel},
    spectrogram::SpectrogramConfig,
};
use crate::{
    Error, ErrorKind, Result,
    dtype::{Dtype, ValuesMut},
    fallible_alloc,
    planes::Planes,
};

/// The most channels of a recording that are kept apart.
pub const MOST_CHANNELS: usize = 256;

/// Which channels of a recording are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeptChannels {
    /// The mean of all: one waveform.
    #[default]
    Mean,
    /// One, counted from 0: one waveform.
    One(usize),
    /// All, as an axis of their own. Every recording must have this number of them; `None` if it is not
    /// known, which only a call on an array allows.
    All(Option<usize>),
}

impl KeptChannels {
    /// Number of waveforms of an example.
    pub fn n_kept(self) -> usize {
        match self {
            Self::Mean | Self::One(_) => 1,
            Self::All(n) => n.unwrap_or(1),
        }
    }

    /// Waveform number `i` of a recording, of a range of its samples; means are computed in `mono`.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if the allocation failed.
    ///
    /// # Panics
    /// If the range reaches beyond the samples.
    pub fn waveform<'a>(
        self,
        i: usize,
        planes: &'a Planes,
        range: Range<usize>,
        mono: &'a mut Vec<f32>,
    ) -> Result<&'a [f32]> {
        match self {
            Self::Mean => planes.mean(range, mono),
            Self::One(channel) => Ok(&planes.channel(channel)[range]),
            Self::All(_) => Ok(&planes.channel(i)[range]),
        }
    }

    /// Checks the number of a recording's channels.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if it has not those that are asked for.
    pub fn check(self, found: u16) -> Result<()> {
        let found = usize::from(found);
        let message = match self {
            Self::One(channel) if channel >= found => {
                format!(
                    "the recording has {found} channels, and channels={channel} asks for one with a higher number"
                )
            }
            Self::All(Some(n)) if n != found => {
                format!("the recording has {found} channels, and n_channels is {n}")
            }
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::Unsupported, message))
    }
}

/// The plan of features; immutable, shared by threads.
#[derive(Debug, Clone)]
pub struct Features {
    kind: FeatureKind,
    channels: KeptChannels,
    sample_rate: u32,
}

#[derive(Debug, Clone)]
enum FeatureKind {
    Waveform(Conditioning, Dtype),
    Bands(Arc<FrontEnd>),
}

/// One thread's working memory for [`Features`]; allocated by the first use.
#[derive(Debug, Clone)]
pub enum FeatureScratch {
    /// Working memory of features that are waveforms.
    Waveform(Vec<f32>),
    /// Working memory of spectrograms and cepstra.
    Bands(Box<FrontEndScratch>),
}

impl Features {
    /// The same features of other channels.
    #[must_use]
    pub fn with_channels(self, channels: KeptChannels) -> Self {
        Self { channels, ..self }
    }

    /// The features are the samples, at this rate, after conditioning.
    pub fn waveform(
        sample_rate: u32,
        conditioning: Conditioning,
        dtype: Dtype,
        channels: KeptChannels,
    ) -> Self {
        Self { kind: FeatureKind::Waveform(conditioning, dtype), channels, sample_rate }
    }

    /// The features are spectrograms or cepstra, at the rate of the front end.
    pub fn bands(front_end: FrontEnd, channels: KeptChannels) -> Self {
        let sample_rate = front_end.config().spectrogram.sample_rate;
        Self { kind: FeatureKind::Bands(Arc::new(front_end)), channels, sample_rate }
    }

    /// The log-mel spectrogram of a [`SpectrogramTransform`](super::SpectrogramTransform), and of a loader
    /// without an object of `forebay.features`. Mel bands may be empty.
    ///
    /// # Errors
    /// As [`FrontEnd::new`].
    pub fn log_mel(spectrogram: SpectrogramConfig, form: Form) -> Result<Self> {
        Ok(Self::bands(FrontEnd::log_mel(spectrogram, form)?, KeptChannels::Mean))
    }

    /// The same for clips that may be shorter than `n_samples`: their features have the same shape, and are
    /// filled up behind. Waveforms are to be filled up by the caller.
    ///
    /// # Errors
    /// As [`FrontEnd::new`].
    pub fn of_length(&self, n_samples: usize) -> Result<Self> {
        let kind = match &self.kind {
            FeatureKind::Bands(plan) => FeatureKind::Bands(Arc::new(plan.of_length(n_samples)?)),
            waveform @ FeatureKind::Waveform(..) => waveform.clone(),
        };
        Ok(Self { kind, ..self.clone() })
    }

    /// Whether the features of a clip are its samples.
    pub fn is_waveform(&self) -> bool {
        matches!(self.kind, FeatureKind::Waveform(..))
    }

    /// Whether each waveform is scaled by its own peak or deviation.
    pub fn scales_each_waveform(&self) -> bool {
        let conditioning = match &self.kind {
            FeatureKind::Waveform(conditioning, _) => conditioning,
            FeatureKind::Bands(plan) => plan.conditioning(),
        };
        conditioning.level != WaveformLevel::Unchanged
    }

    /// Logs a warning if mel bands are empty.
    pub fn warn_of_empty_bands(&self) {
        if let FeatureKind::Bands(plan) = &self.kind {
            plan.warn_of_empty_bands();
        }
    }

    /// Checks that the shape of a recording's features is known before the recording.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if all channels of an unknown number are kept.
    pub fn check_channels(&self) -> Result<()> {
        if self.channels != KeptChannels::All(None) {
            return Ok(());
        }
        let message = "features has channels=\"all\" and no n_channels; give the number of channels that every \
                       recording has, as in n_channels=2";
        Err(Error::new(ErrorKind::Config, message))
    }

    /// `waveform` or `spectrogram`, as the field of a batch is called.
    pub fn name(&self) -> &'static str {
        match self.kind {
            FeatureKind::Waveform(..) => "waveform",
            FeatureKind::Bands(_) => "spectrogram",
        }
    }

    /// The type of the values as they are stored.
    pub fn dtype(&self) -> Dtype {
        match &self.kind {
            FeatureKind::Waveform(_, dtype) => *dtype,
            FeatureKind::Bands(plan) => plan.config().form.dtype,
        }
    }

    /// Samples per second of the waveforms.
    pub fn sample_rate(&self) -> u32 {
        self.sample_rate
    }

    /// The channels of a recording that are used.
    pub fn channels(&self) -> KeptChannels {
        self.channels
    }

    /// The shape of the features of one channel of `n_samples`.
    pub fn channel_shape(&self, n_samples: usize) -> SmallVec<[usize; 3]> {
        match &self.kind {
            FeatureKind::Waveform(..) => SmallVec::from_slice(&[n_samples]),
            FeatureKind::Bands(plan) => SmallVec::from_slice(&plan.shape(n_samples)),
        }
    }

    /// The shape of the features of a clip of `n_samples`: channels first, if they are an axis.
    pub fn shape(&self, n_samples: usize) -> SmallVec<[usize; 3]> {
        let mut shape = self.channel_shape(n_samples);
        if let KeptChannels::All(_) = self.channels {
            shape.insert(0, self.channels.n_kept());
        }
        shape
    }

    /// Frames of the first `valid` samples of a clip, at most those of the clip; a waveform has samples.
    pub fn n_frames(&self, valid: usize, n_samples: usize) -> usize {
        match &self.kind {
            FeatureKind::Waveform(..) => valid.min(n_samples),
            FeatureKind::Bands(plan) => plan.n_real_frames(valid).min(plan.n_wanted_frames(n_samples)),
        }
    }

    /// Where bands and frames are in the features of a channel of `n_samples`, of which those outside of
    /// `valid` are padding; `None` of a waveform.
    pub fn axis(&self, valid: &Range<usize>, n_samples: usize) -> Option<FrameAxis> {
        let FeatureKind::Bands(plan) = &self.kind else { return None };
        let config = plan.config();
        let layout = config.form.layout;
        let [rows, columns] = plan.shape(n_samples);
        let (n_bands, n_frames) = if layout == Layout::Mel { (rows, columns) } else { (columns, rows) };
        let first = (valid.start / config.spectrogram.hop_length.max(1)).min(n_frames);
        let n_valid = self.n_frames(valid.len(), n_samples).min(n_frames - first);
        Some(FrameAxis { layout, n_bands, n_frames, first, n_valid })
    }

    /// The samples from a frame of a spectrogram to the next, and those before the middle of the first one;
    /// `None` of a waveform.
    pub fn frame_places(&self) -> Option<(usize, f64)> {
        if let FeatureKind::Bands(plan) = &self.kind { Some(plan.frame_places()) } else { None }
    }

    /// The number of the axis of frames in [the shape](Self::shape); `None` of a waveform.
    pub fn frame_axis(&self) -> Option<usize> {
        let FeatureKind::Bands(plan) = &self.kind else { return None };
        let channels = usize::from(matches!(self.channels, KeptChannels::All(_)));
        Some(channels + usize::from(plan.config().form.layout == Layout::Mel))
    }

    /// Where the values of a channel of `n_samples` are; the samples of a waveform are frames of one band.
    pub fn whole_axis(&self, n_samples: usize) -> FrameAxis {
        let waveform =
            FrameAxis { layout: Layout::Mel, n_bands: 1, n_frames: n_samples, first: 0, n_valid: n_samples };
        self.axis(&(0..n_samples), n_samples).unwrap_or(waveform)
    }

    /// The features of a frame of silence in clips of `n_samples`; `None` of a waveform, and where those of a
    /// frame depend on the others.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if an allocation failed.
    pub fn silence(&self, n_samples: usize) -> Result<Option<Vec<f32>>> {
        let FeatureKind::Bands(plan) = &self.kind else { return Ok(None) };
        if !plan.config().is_by_frame() {
            return Ok(None);
        }
        let form = Form { dtype: Dtype::Float32, layout: Layout::Time, ..plan.config().form };
        let plan = FrontEnd::new(FrontEndConfig { form, ..plan.config().clone() }, true)?;
        let len = plan.shape(n_samples).iter().product();
        let (zeros, mut values) =
            (fallible_alloc::filled(n_samples, 0.0)?, fallible_alloc::filled(len, 0.0)?);
        plan.transform(&zeros, 0..n_samples, &mut plan.scratch(), ValuesMut::Float32(&mut values))?;
        values.truncate(plan.config().n_rows());
        Ok(Some(values))
    }

    /// The fewest samples that make a frame; 0 for waveforms, and if the plan has its own number of frames.
    pub fn least_samples(&self) -> usize {
        match &self.kind {
            FeatureKind::Waveform(..) => 0,
            FeatureKind::Bands(plan) => plan.least_samples(),
        }
    }

    /// New working memory; use one per thread.
    pub fn scratch(&self) -> FeatureScratch {
        match &self.kind {
            FeatureKind::Waveform(..) => FeatureScratch::Waveform(Vec::new()),
            FeatureKind::Bands(plan) => FeatureScratch::Bands(Box::new(plan.scratch())),
        }
    }

    /// Writes the features of one channel, whose samples outside of `valid` are padding.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] if `out` has another type or length than the plan's, or `scratch` belongs to
    /// another plan. [`ErrorKind::Memory`] if an allocation failed.
    pub fn transform(
        &self,
        waveform: &[f32],
        valid: Range<usize>,
        scratch: &mut FeatureScratch,
        mut out: ValuesMut<'_>,
    ) -> Result<()> {
        match (&self.kind, scratch) {
            (FeatureKind::Bands(plan), FeatureScratch::Bands(scratch)) => {
                plan.transform(waveform, valid, scratch, out)
            }
            (FeatureKind::Waveform(conditioning, dtype), FeatureScratch::Waveform(own))
                if (out.dtype(), out.len()) == (*dtype, waveform.len()) =>
            {
                if let ValuesMut::Float32(out) = out {
                    conditioning.write(waveform, valid, out);
                    return Ok(());
                }
                out.put(0, conditioning.apply(waveform, valid, own)?);
                if let ValuesMut::Float16(out) = out {
                    // Loud samples at an integer's scale.
                    out.iter_mut().for_each(|x| *x = x.clamp(f16::MIN, f16::MAX));
                }
                Ok(())
            }
            _ => {
                Err(Error::new(ErrorKind::Shape, "the output or the working memory belongs to another plan"))
            }
        }
    }
}
