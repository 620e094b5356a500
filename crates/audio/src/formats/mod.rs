//! The formats of recordings, each in a file or folder of its own.

pub(crate) mod aiff;
pub(crate) mod au;
pub(crate) mod caf;
pub(crate) mod flac;
pub(crate) mod mp4;
pub(crate) mod mpeg;
pub(crate) mod ogg_flac;
pub(crate) mod vorbis;
pub(crate) mod wav;
