//! forebay.

pub mod error;
pub mod record;
#[cfg(feature = "arrow")]
pub mod source;
#[cfg(feature = "audio")]
pub mod decode;
#[cfg(feature = "audio")]
pub mod transform;

pub use error::{Error, ErrorKind, Result};
