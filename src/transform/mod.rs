//! From a decoded waveform to a model-ready example: crop, resample, log-mel.
//!
//! Each part is a plan object: made once per configuration, immutable, `Send + Sync`, shared by all worker threads. Work
//! happens in buffers that the caller owns; nothing is allocated per example. Every result is a pure function of the
//! input and the plan. Across CPU feature levels the last bits may differ, because AVX2 code fuses multiply and add.

pub mod crop;
mod fft;
mod lanes;
pub mod mel;
pub mod resample;
pub mod spectrogram;

pub use crop::{Crop, CropMode, crop, target_len};
pub use mel::MelBank;
pub use resample::{Quality, Resampler, Resamplers};
pub use spectrogram::{Scratch, SpectrogramConfig, SpectrogramTransform};
