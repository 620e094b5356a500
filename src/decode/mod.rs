//! From the bytes of a recording to the samples of a span.
//!
//! Source: own.

mod kept;
mod mpeg;
mod ogg;
mod planes;
mod vorbis;

use std::{fmt, ops::Range};

use crate::{Error, ErrorKind, Result};
pub(crate) use kept::Kept;
pub use planes::Planes;

/// The most values (samples times channels) that one read may ask for: 4 GiB of float32.
const MAX_VALUES: u64 = 1 << 30;

/// How a recording's samples are coded.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Vorbis I.
    Vorbis,
    /// MPEG audio layer I.
    Mp1,
    /// MPEG audio layer II.
    Mp2,
    /// MPEG audio layer III.
    Mp3,
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Codec::Vorbis => "vorbis",
            Codec::Mp1 => "mp1",
            Codec::Mp2 => "mp2",
            Codec::Mp3 => "mp3",
        })
    }
}

/// What the container says, checked against the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// How the samples are coded.
    pub codec: Codec,
    /// Samples per second and channel; never 0.
    pub sample_rate: u32,
    /// Number of channels; never 0.
    pub channels: u16,
    /// Samples per channel, exactly what a full decode yields after gapless trims; never 0.
    pub n_samples: u64,
}

/// A recording whose headers were read and whose index is built: it knows its [`Info`] and decodes any span.
#[derive(Debug)]
pub enum Recording<'a> {
    /// Vorbis in Ogg.
    Vorbis(vorbis::Vorbis<'a>),
    /// MPEG audio, layers I to III.
    Mpeg(mpeg::Mpeg<'a>),
}

impl Recording<'_> {
    /// What the container says, checked against the bytes.
    pub fn info(&self) -> Info {
        match self {
            Recording::Vorbis(it) => it.info(),
            Recording::Mpeg(it) => it.info(),
        }
    }
}

/// Decodes recordings, one after the other: one per worker thread, because it keeps decoders and scratch.
#[derive(Debug, Default)]
pub struct AudioDecoder {
    kept: Kept,
}

impl AudioDecoder {
    /// A decoder that has kept nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the headers of `bytes` and builds the index that spans need.
    ///
    /// # Errors
    /// By the container.
    pub fn open<'a>(&mut self, bytes: &'a [u8]) -> Result<Recording<'a>> {
        let recording = if bytes.starts_with(b"OggS") {
            Recording::Vorbis(vorbis::Vorbis::open(bytes)?)
        } else {
            Recording::Mpeg(mpeg::Mpeg::open(bytes)?)
        };
        if recording.info().n_samples == 0 {
            return Err(Error::new(ErrorKind::Empty, "the recording has headers but no samples"));
        }
        Ok(recording)
    }

    /// Decodes the samples `span` of every channel into `out`, which then holds exactly `span.len()` samples per channel.
    ///
    /// # Errors
    /// By the codec.
    pub fn read(&mut self, recording: &Recording<'_>, span: Range<u64>, out: &mut Planes) -> Result<()> {
        let info = recording.info();
        if span.start > span.end || span.end > info.n_samples {
            let (start, end, n) = (span.start, span.end, info.n_samples);
            return Err(Error::new(
                ErrorKind::Shape,
                format!("the span {start}..{end} is not within the recording's {n} samples"),
            ));
        }
        let n_samples = span.end - span.start;
        if n_samples.saturating_mul(u64::from(info.channels)) > MAX_VALUES {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("{n_samples} samples of {} channels are more than one read may hold", info.channels),
            ));
        }
        out.reset(info.channels, n_samples as usize);
        if n_samples == 0 {
            return Ok(());
        }
        match recording {
            Recording::Vorbis(it) => it.read(&mut self.kept, span, out),
            Recording::Mpeg(it) => it.read(&mut self.kept, span, out),
        }
        .and_then(|()| out.check_finite())
    }
}

/// An error of kind [`ErrorKind::Corrupt`].
fn corrupt(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, message)
}

/// An error of kind [`ErrorKind::Unsupported`].
fn unsupported(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}
