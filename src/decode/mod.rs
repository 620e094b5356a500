//! From the bytes of a record to what it says: samples of a recording ([`audio`]).
//!
//! The invariant: what comes out is a pure function of what goes in. What a worker keeps from record to record (decoders) changes
//! no bit of it.

#[cfg(feature = "audio")]
pub mod audio;

#[cfg(feature = "audio")]
pub use audio::{AudioDecoder, Codec, Info, Layout, Planes, Recording, layout};
