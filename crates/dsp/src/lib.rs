//! Front ends of audio models: samples in, the input of a model out.
//!
//! ```
//! use forebay_dsp::{SpectrogramConfig, SpectrogramTransform};
//!
//! let defaults = SpectrogramConfig::default();
//! let config = SpectrogramConfig { sample_rate: 16_000, n_fft: 400, hop_length: 160, n_mels: 80, ..defaults };
//! let log_mel = SpectrogramTransform::new(config)?;
//! // A second of a tone of 1 kHz.
//! let tone = |t: usize| (t as f32 * 1000.0 * std::f32::consts::TAU / 16_000.0).sin();
//! let waveform: Vec<f32> = (0..16_000).map(tone).collect();
//! let n_frames = log_mel.n_frames(waveform.len());
//! let mut out = vec![0.0; 80 * n_frames];
//! log_mel.transform(&waveform, &mut log_mel.scratch(), &mut out)?;
//! let middle: Vec<f32> = out.chunks(n_frames).map(|band| band[n_frames / 2]).collect();
//! let loudest = (0..80).max_by(|&a, &b| middle[a].total_cmp(&middle[b]));
//! // 1 kHz is 1000 mel, and the centres of the bands are 35 mel apart.
//! assert_eq!((n_frames, loudest), (101, Some(28)));
//! # Ok::<(), forebay_base::Error>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `crop` | where a clip begins in a recording, from its length and a hash |
//! | `windows` | how many windows a recording has, and where they begin |
//! | `padding` | what stands where the recording has no samples |
//! | `spans` | which samples of a recording a clip needs |
//! | `resample` | sample rate conversion with exact positions |
//! | `augment` | random changes of waveforms, features and pairs of examples |
//! | `features` | the path from a waveform to the input: channels, front end, value type, layout |
//! | `front_end` | spectral front ends of published models, in several passes where they need them |
//! | `spectrogram` | log-mel spectrogram in one pass |
//! | `mel` | mel scales and filter banks |
//! | `form` | order of axes, value type and frames of the output |
//! | `fft`, `window`, `sums` | real FFT, window functions, sums in a fixed order |
//!
//! Promises: plans are made once, immutable, `Send + Sync` and shared by threads. They work in buffers of the
//! caller, without an allocation per example. A result is a pure function of the input and the plan; across
//! CPU feature levels the last bits may differ, because AVX2 code fuses multiply and add.

#![warn(missing_docs)]

pub mod augment;
pub mod crop;
pub mod features;
mod fft;
mod form;
pub mod front_end;
pub mod mel;
pub mod padding;
pub mod resample;
pub mod spans;
pub mod spectrogram;
pub mod sums;
mod window;
pub mod windows;

use forebay_base::{Error, ErrorKind, Result, dtype, error, fallible_alloc, fork_lock, planes, seed};
use forebay_simd as simd;

pub use augment::{Augment, AugmentScratch, Clips, FrameAxis};
pub use crop::{Crop, CropMode, crop, crop_at, starts, target_len};
pub use features::{FeatureScratch, Features, KeptChannels};
pub use form::{Form, Layout};
pub use front_end::{FrontEnd, FrontEndConfig, FrontEndScratch};
pub use mel::{MelBands, MelBank, MelScale};
pub use padding::Padding;
pub use resample::{MAX_HZ, Quality, Resampler, Resamplers};
pub use spans::SpanRule;
pub use spectrogram::{
    Affine, Kaldi, Pad, Pointwise, SpectrogramConfig, SpectrogramScratch, SpectrogramTransform,
};
pub use window::WindowFunction;
pub use windows::{WindowEnd, WindowRule};
