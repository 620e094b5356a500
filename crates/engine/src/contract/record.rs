//! Records: what a source reads for a row, and what a worker takes.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use forebay_audio::{SharedSpans, SpanBytes};

use crate::{
    Error, ErrorKind, Result,
    fields::{Row, Value},
};

/// The label of a row whose label is null.
pub const NO_LABEL: i64 = -1;

/// The default limit of a record's bytes: 1 GiB.
pub const MAX_RECORD_BYTES: u64 = 1 << 30;

/// Checks the size of a record before its bytes are read.
///
/// # Errors
/// [`ErrorKind::TooLarge`] for more than `limit`.
pub fn check_record_bytes(size: u64, limit: u64) -> Result<()> {
    if size <= limit {
        return Ok(());
    }
    let message = format!("the record has {size} bytes, max_record_bytes allows {limit}");
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// An undecoded row of a shard, as a source reads it.
#[derive(Debug, Clone)]
pub struct RawRecord {
    /// The encoded recording, or the document in UTF-8; never empty. A slice of a larger block where rows
    /// were read together. If only an [`Excerpt`](super::Excerpt) was read, the bytes outside it are
    /// unspecified.
    pub bytes: Bytes,
    /// What a recording in a file of its own has besides; then `bytes` may be empty.
    pub file: Option<Box<FileRecording>>,
    /// The row's other columns, in the source's order.
    pub values: Row,
    /// What it shares with the records of neighbouring windows of its recording.
    pub window_run: Option<Arc<WindowRun>>,
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

impl RawRecord {
    /// A row of these bytes and columns.
    pub fn new(bytes: Bytes, values: Row) -> Self {
        Self { bytes, values, file: None, window_run: None }
    }

    /// The record that a worker takes.
    pub fn numbered(self, index: u64, seed: u64, epoch: u64) -> Record {
        let Self { bytes, file, values, window_run } = self;
        Record { bytes, file, values, window_run, index, seed, epoch }
    }

    pub fn n_bytes(&self) -> usize {
        self.bytes.len() + self.file.as_ref().map_or(0, |file| file.len())
    }

    /// The label; [`NO_LABEL`] if it is null or the source has no labels.
    pub fn label(&self) -> i64 {
        self.values.first().and_then(Value::as_int).unwrap_or(NO_LABEL)
    }
}

/// A recording in a file of its own. Its row may be a segment of it.
#[derive(Debug, Clone, Default)]
pub struct FileRecording {
    /// The bytes that a span needs, if not all were read.
    pub span_bytes: Option<SpanBytes>,
    /// The samples of the recording that are the row's; `None`: all.
    pub segment: Option<Segment>,
}

impl FileRecording {
    /// The bytes of the span.
    pub fn len(&self) -> usize {
        self.span_bytes.as_ref().map_or(0, SpanBytes::len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all of the recording was read.
    pub fn is_whole(&self) -> bool {
        self.span_bytes.is_none()
    }
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

/// A record as it is sent through the channel to a worker.
#[derive(Debug, Clone)]
pub struct Record {
    /// The encoded recording or the document.
    pub bytes: Bytes,
    /// What a recording in a file of its own has besides.
    pub file: Option<Box<FileRecording>>,
    /// The row's other columns, in the source's order.
    pub values: Row,
    /// What it shares with the records of neighbouring windows of its recording.
    pub window_run: Option<Arc<WindowRun>>,
    /// The row number over the files as given.
    pub index: u64,
    /// 64 random bits of this record in this epoch, which determine the crop.
    pub seed: u64,
    pub epoch: u64,
}

impl Record {
    pub fn n_bytes(&self) -> usize {
        self.bytes.len() + self.file.as_ref().map_or(0, |file| file.len())
    }
}
