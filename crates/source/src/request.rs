//! [`ReadRequest`]: what a task needs of a record that is about to be read.

use std::ops::Range;

use crate::fields::Row;

/// A row of a recording, which may be a segment of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowExtent {
    pub sample_rate: u32,
    /// The first sample of the recording that is the row's.
    pub start: u64,
    pub n_samples: u64,
}

impl RowExtent {
    /// Where the row begins in its recording, seconds.
    pub fn start_seconds(&self) -> f64 {
        self.start as f64 / f64::from(self.sample_rate)
    }
}

/// What a task needs of a record that is about to be read.
pub trait ReadRequest {
    /// Whether [`ReadRequest::span`] says which samples are needed; otherwise whole recordings are read.
    fn takes_spans(&self) -> bool;

    /// Whether the same row will be read next.
    fn repeats(&self) -> bool {
        false
    }

    /// The samples that are needed of a row of this extent, counted from its start, given the values of its
    /// other columns; `None` if all are, or if the row is bad.
    fn span(&self, _of: RowExtent, _values: &Row) -> Option<Range<u64>> {
        None
    }

    /// As [`ReadRequest::span`], for this position and the following `n - 1`, which are of the same record.
    fn span_of(&self, _n: u64, _of: RowExtent, _values: &Row) -> Option<Range<u64>> {
        None
    }
}

/// Wants what several neighbouring positions of one record need together.
pub struct RunRequest<'a> {
    /// The request of the first position.
    pub request: &'a dyn ReadRequest,
    pub n: u64,
}

impl ReadRequest for RunRequest<'_> {
    fn takes_spans(&self) -> bool {
        self.request.takes_spans()
    }

    fn span(&self, of: RowExtent, values: &Row) -> Option<Range<u64>> {
        self.request.span_of(self.n, of, values)
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct WholeRecord {
    /// As [`ReadRequest::repeats`].
    pub repeats: bool,
}

impl WholeRecord {
    /// All of a record that is read once.
    pub const ONCE: Self = Self { repeats: false };
}

impl ReadRequest for WholeRecord {
    fn takes_spans(&self) -> bool {
        false
    }

    fn repeats(&self) -> bool {
        self.repeats
    }
}
