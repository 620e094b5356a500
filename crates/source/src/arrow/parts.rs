//! Reads parts of large recordings: the bytes that the samples of a span need, where that is less work.
//!
//! A part is found by reads of the recording's head and end, and where the span is expected; once its index
//! is known, by one read. From memory or a fast disk that is less work than to read all. Where each read
//! takes long it is more, unless the head alone tells where all samples are, or the recording is larger than
//! a block and read alone anyway. So the times of the reads decide, with what the last large recordings were.
//! Both ways have the same samples and the same errors.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::{open_batches::OpenRow, spans::Span};
use crate::{
    ReadRequest, Result,
    contract::SMALL_READ,
    fields::Row,
    memory_permits::MemoryPermits,
    ranged::{RangedRecordings, StoredRecording},
};
use forebay_audio::{AudioDecoder, SpanBytes, has_plain_samples};

/// The smallest recording of which a part may be read, bytes; below, one read of all is as quick.
pub(super) const SMALLEST: u64 = 256 << 10;
/// After so many large recordings of which a part was too much, a part is looked for in each so many only.
const TRIES: u32 = 8;
/// A read is quick if it takes less than this, and a nanosecond a byte.
const QUICK: Duration = Duration::from_millis(1);
/// How many quick reads outweigh a slow one that comes after them.
const PATIENCE: i32 = 4;

/// What the readers of a source know of its large recordings.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) recordings: RangedRecordings,
    /// Above 0 if reads are quick: a quick one adds 1, a slow one takes 2.
    pace: AtomicI32,
    /// The large recordings that were read whole since a part was read.
    n_whole: AtomicU32,
    /// Whether the head of the last one told where its samples are.
    are_plain: AtomicBool,
}

impl Parts {
    pub(super) fn of(recordings: RangedRecordings) -> Self {
        let (pace, n_whole) = (AtomicI32::new(0), AtomicU32::new(0));
        Self { recordings, pace, n_whole, are_plain: AtomicBool::new(false) }
    }

    /// Whether a part of a recording of `len` bytes is less work than all of it, if the part is small.
    fn is_less_work(&self, len: u64) -> bool {
        len >= SMALLEST && (len > SMALL_READ || self.are_plain.load(Relaxed) || self.pace.load(Relaxed) > 0)
    }

    /// Whether a part will be read of the next recording of `len` bytes.
    pub(super) fn is_likely(&self, len: u64) -> bool {
        self.is_less_work(len) && self.n_whole.load(Relaxed) == 0
    }

    /// Notes that a recording was read whole, in a read of `n_read` bytes.
    pub(super) fn was_whole(&self, recording: &[u8], n_read: usize, took: Duration) {
        if (recording.len() as u64) < SMALLEST {
            return;
        }
        self.note(n_read as u64, took);
        self.are_plain.store(has_plain_samples(&recording[..SMALLEST as usize]), Relaxed);
        self.n_whole.fetch_add(1, Relaxed);
    }

    fn note(&self, n_read: u64, took: Duration) {
        let step = if took < QUICK + Duration::from_nanos(n_read) { 1 } else { -2 };
        // Of two threads that do this at a time, one may be forgotten.
        self.pace.store((self.pace.load(Relaxed) + step).clamp(-PATIENCE, PATIENCE), Relaxed);
    }

    /// The part of the recording at `span` that is requested of a row; `None` if all of it is to be read.
    ///
    /// # Errors
    /// Those of the reads. What is wrong with the recording itself is told by those who read all of it.
    pub(super) fn read(
        &self,
        decoder: &mut AudioDecoder,
        at: &OpenRow<'_>,
        span: Span,
        request: (&dyn ReadRequest, &Row),
        permits: &MemoryPermits,
    ) -> Result<Option<SpanBytes>> {
        // A row that comes again is read once.
        if !self.is_less_work(span.len) || !request.0.takes_spans() || request.0.repeats() {
            return Ok(None);
        }
        let n_whole = self.n_whole.load(Relaxed);
        if n_whole >= TRIES && !n_whole.is_multiple_of(TRIES) {
            return Ok(None);
        }
        let recording = StoredRecording {
            file: Arc::clone(&at.shard.file),
            at: span.at,
            len: span.len,
            key: (at.shard.number, true, at.batch.first_row() + at.row),
            shared: &self.recordings,
            permits,
            n_read: Cell::new(0),
        };
        let begin = Instant::now();
        match self.part_of(decoder, &recording, request) {
            Ok(Some(part)) => {
                self.note(recording.n_read(), begin.elapsed());
                self.n_whole.store(0, Relaxed);
                Ok(Some(part))
            }
            Err(error) if !error.kind.is_record() => Err(error),
            _ => Ok(None),
        }
    }

    /// The part, if it has at most half of the samples.
    fn part_of(
        &self,
        decoder: &mut AudioDecoder,
        recording: &StoredRecording<'_>,
        request: (&dyn ReadRequest, &Row),
    ) -> Result<Option<SpanBytes>> {
        let (index, span) = self.recordings.indexes.wanted(decoder, recording, None, request)?;
        self.are_plain.store(index.is_plain(), Relaxed);
        if !index.has_places() || span.end.saturating_sub(span.start) > index.info().n_samples / 2 {
            return Ok(None);
        }
        index.span_bytes(decoder, recording, span).map(Some)
    }
}
