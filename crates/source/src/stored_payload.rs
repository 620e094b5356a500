//! [`StoredPayload`]: what a source reads of a recording, or of a document.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use forebay_audio::{SharedSpans, SpanBytes};

use crate::{
    Error, ErrorKind, ReadRequest, Result,
    contract::{self, Payload, ReadRecords, Source},
};

pub type RawRecord = contract::RawRecord<StoredPayload>;

pub type Record = contract::Record<StoredPayload>;

/// What a source reads of a recording, or of a document.
#[derive(Debug, Clone, Default)]
pub struct StoredPayload {
    /// The encoded recording, or the document in UTF-8. A slice of a larger block where rows were read
    /// together. Empty if only a part was read.
    pub bytes: Bytes,
    /// The part of the recording that a span needs, if not all of it was read.
    pub span_bytes: Option<Box<SpanBytes>>,
    /// What a recording in a file of its own has besides.
    pub file: Option<FileRecording>,
    /// The number of its audio track, as in [`AudioDecoder::track`](forebay_audio::AudioDecoder::track).
    pub track: Option<u32>,
    /// What it shares with the records of neighbouring windows of its recording.
    pub window_run: Option<Arc<WindowRun>>,
}

/// A source of recordings or documents.
pub trait PayloadSource: Source<Reader: ReadPayloads> {}

impl<S: Source<Reader: ReadPayloads>> PayloadSource for S {}

/// Reads recordings or documents, for one thread.
pub trait ReadPayloads:
    for<'a> ReadRecords<Payload = StoredPayload, Request<'a> = dyn ReadRequest + 'a>
{
}

impl<R: for<'a> ReadRecords<Payload = StoredPayload, Request<'a> = dyn ReadRequest + 'a>> ReadPayloads for R {}

impl StoredPayload {
    /// Whether all of the recording was read.
    pub fn is_whole(&self) -> bool {
        self.span_bytes.is_none()
    }

    /// The samples of the recording that are the row's; `None`: all.
    pub fn segment(&self) -> Option<Segment> {
        self.file.and_then(|file| file.segment)
    }
}

impl From<Bytes> for StoredPayload {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, ..Self::default() }
    }
}

impl From<SpanBytes> for StoredPayload {
    fn from(span_bytes: SpanBytes) -> Self {
        Self { span_bytes: Some(Box::new(span_bytes)), ..Self::default() }
    }
}

impl Payload for StoredPayload {
    fn n_bytes(&self) -> usize {
        self.bytes.len() + self.span_bytes.as_ref().map_or(0, |span_bytes| span_bytes.len())
    }

    fn detach(&mut self) {
        self.bytes.detach();
    }
}

/// What the records of a run of windows of one recording share.
#[derive(Debug)]
pub struct WindowRun {
    pub positions: Range<u64>,
    pub spans: SharedSpans,
}

impl WindowRun {
    /// Of the windows at these positions.
    pub fn new(positions: Range<u64>) -> Self {
        Self { positions, spans: SharedSpans::default() }
    }
}

/// A recording in a file of its own. Its row may be a segment of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileRecording {
    /// The samples of the recording that are the row's; `None`: all.
    pub segment: Option<Segment>,
}

/// The samples of a recording that are a row's: from `start` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Segment {
    /// In seconds, rounded to the nearest sample; an infinite end is that of the recording.
    Seconds(f64, f64),
    /// In samples; `u64::MAX` is the end of the recording.
    Samples(u64, u64),
}

impl Segment {
    /// How many seconds of it lie behind the end of a recording of this rate and length.
    pub fn seconds_behind(self, sample_rate: u32, n_samples: u64) -> f64 {
        let rate = f64::from(sample_rate);
        let end = match self {
            Self::Seconds(_, end) => end,
            Self::Samples(_, u64::MAX) => f64::INFINITY,
            Self::Samples(_, end) => end as f64 / rate,
        };
        // Without an end of its own, a segment ends with the recording.
        if end.is_finite() { (end - n_samples as f64 / rate).max(0.0) } else { 0.0 }
    }

    /// The samples in a recording of this rate and length; one that ends after the recording ends with it.
    ///
    /// # Errors
    /// [`ErrorKind::Empty`] if there are none.
    pub fn samples(self, sample_rate: u32, n_samples: u64) -> Result<Range<u64>> {
        let rate = f64::from(sample_rate);
        let (start, end) = match self {
            // `as` limits what is beyond the range.
            Self::Seconds(start, end) => ((start * rate).round() as u64, (end * rate).round() as u64),
            Self::Samples(start, end) => (start, end),
        };
        let range = start..end.min(n_samples);
        if range.start < range.end {
            return Ok(range);
        }
        let length = n_samples as f64 / rate;
        let message = match self {
            Self::Seconds(start, end) => {
                format!("the segment {start} to {end} s has no samples: the recording has {length:.3} s")
            }
            Self::Samples(start, end) => {
                format!("the segment {start} to {end} has no samples: the recording has {n_samples}")
            }
        };
        Err(Error::new(ErrorKind::Empty, message))
    }
}
