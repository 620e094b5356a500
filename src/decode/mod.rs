//! From the bytes of a record to what it says: samples of a recording ([`audio`]), token ids of a text
//! ([`tokenizer`]).
//!
//! The invariant of both: what comes out is a pure function of what goes in. What a worker keeps from record
//! to record (decoders, words) changes no bit of it.

#[cfg(feature = "audio")]
pub mod audio;
#[cfg(feature = "tokens")]
pub mod tokenizer;

#[cfg(feature = "audio")]
pub(crate) use audio::KEPT_SAMPLES;
#[cfg(feature = "audio")]
pub use audio::{AudioDecoder, Claims, Codec, Info, Layout, Planes, Recording, Repairs, layout};
#[cfg(feature = "tokens")]
pub use tokenizer::{Encoder, Tokenizer, TokenizerOptions};
