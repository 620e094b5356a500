//! forebay.

#[cfg(feature = "audio")]
pub mod decode;
pub mod error;
pub mod order;
pub mod pipeline;
pub mod record;
pub mod seed;
pub mod shuffle;
#[cfg(feature = "arrow")]
pub mod source;
#[cfg(feature = "audio")]
pub mod transform;

pub use error::{Error, ErrorKind, Result};
