//! From decoded data to a model-ready example: a waveform is cropped, resampled and turned into a log-mel
//! spectrogram; documents are packed into rows.
//!
//! The parts for audio are plan objects: made once per configuration, immutable, `Send + Sync`, shared by all
//! worker threads. They work in buffers that the caller owns, without an allocation per example. Every result
//! is a pure function of the input and the plan. Across CPU feature levels the last bits may differ, because
//! AVX2 code fuses multiply and add. A [`Packer`] holds documents and belongs to one thread.

pub mod augment;
pub mod crop;
pub mod features;
mod fft;
mod form;
pub mod front_end;
pub mod mel;
pub mod pack;
pub mod padding;
pub mod resample;
pub mod spans;
pub mod spectrogram;
pub(crate) mod sums;
mod window;
pub mod windows;

pub use augment::{Augment, AugmentScratch, Clips, FrameAxis};
pub use crop::{Crop, CropMode, crop, crop_at, starts, target_len};
pub use features::{Channels, FeatureScratch, Features};
pub use form::{Form, Layout};
pub use front_end::{FrontEnd, FrontEndConfig, FrontEndScratch};
pub use mel::{Bands, MelBank, MelScale};
pub use pack::{CropRule, Document, Packer, Piece};
pub use padding::Padding;
pub use resample::{MAX_HZ, Quality, Resampler, Resamplers};
pub use spans::SpanRule;
pub use spectrogram::{Affine, Kaldi, Pad, Pointwise, Scratch, SpectrogramConfig, SpectrogramTransform};
pub use window::Window;
pub use windows::{WindowEnd, WindowRule};
