//! From decoded data to a model-ready example: a waveform is cropped, resampled and turned into a log-mel
//! spectrogram; documents are packed into rows.
//!
//! The parts for audio are plan objects: made once per configuration, immutable, `Send + Sync`, shared by all
//! worker threads. They work in buffers that the caller owns, without an allocation per example. Every result
//! is a pure function of the input and the plan. Across CPU feature levels the last bits may differ, because
//! AVX2 code fuses multiply and add. A [`Packer`] holds documents and belongs to one thread.

#[cfg(feature = "audio")]
pub mod augment;
#[cfg(feature = "audio")]
pub mod crop;
#[cfg(feature = "audio")]
pub mod features;
#[cfg(feature = "audio")]
mod fft;
#[cfg(feature = "audio")]
mod form;
#[cfg(feature = "audio")]
pub mod front_end;
#[cfg(feature = "audio")]
pub mod mel;
pub mod pack;
#[cfg(feature = "audio")]
pub mod padding;
#[cfg(feature = "audio")]
pub mod resample;
#[cfg(feature = "audio")]
pub mod spans;
#[cfg(feature = "audio")]
pub mod spectrogram;
#[cfg(feature = "audio")]
pub(crate) mod sums;
#[cfg(feature = "audio")]
mod window;
#[cfg(feature = "audio")]
pub mod windows;

#[cfg(feature = "audio")]
pub use augment::{Augment, AugmentScratch, Clips, FrameAxis};
#[cfg(feature = "audio")]
pub use crop::{Crop, CropMode, crop, crop_at, starts, target_len};
#[cfg(feature = "audio")]
pub use features::{Channels, FeatureScratch, Features};
#[cfg(feature = "audio")]
pub use form::{Form, Layout};
#[cfg(feature = "audio")]
pub use front_end::{FrontEnd, FrontEndConfig, FrontEndScratch};
#[cfg(feature = "audio")]
pub use mel::{Bands, MelBank, MelScale};
pub use pack::{CropRule, Document, Packer, Piece};
#[cfg(feature = "audio")]
pub use padding::Padding;
#[cfg(feature = "audio")]
pub use resample::{MAX_HZ, Quality, Resampler, Resamplers};
#[cfg(feature = "audio")]
pub use spans::SpanRule;
#[cfg(feature = "audio")]
pub use spectrogram::{Affine, Kaldi, Pad, Pointwise, Scratch, SpectrogramConfig, SpectrogramTransform};
#[cfg(feature = "audio")]
pub use window::Window;
#[cfg(feature = "audio")]
pub use windows::{WindowEnd, WindowRule};
