//! Reads parts of large recordings: the bytes that the samples of a span need, where that is less work.
//!
//! Of a recording that is larger than a block, and read alone anyway, a part is always read, as of one in a
//! file of its own. A smaller one costs one read, and its part three at first: of its head, of its end, and
//! where the span is expected. From memory or a fast disk that is less work, for fewer bytes. Where each read
//! takes long it is more, unless the head alone tells where all samples are. So the times of reads decide,
//! but only for formats of which part and whole have the same samples and errors, whatever the bytes are:
//! those that are not [`Places::Searched`].

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicU8, AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::{block_reader::BLOCK, open_batches::OpenRow, spans::Span};
use crate::{
    ReadRequest, Result,
    fields::Row,
    memory_permits::MemoryPermits,
    ranged::{RangedRecordings, StoredRecording},
};
use forebay_audio::{AudioDecoder, Places, SpanBytes};

/// The smallest recording of which a part may be read, bytes; below, one read of all is as quick.
const SMALLEST: u64 = 256 << 10;
/// After so many recordings of which a part was too much, a part is looked for in each so many only.
const TRIES: u32 = 8;
/// A read is quick if it takes less than this, and a nanosecond a byte.
const QUICK: Duration = Duration::from_millis(1);
/// The limit of the pace in both directions: so many quick reads in a row are remembered.
const PATIENCE: i32 = 4;

/// What the readers of a source know of its large recordings.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) recordings: RangedRecordings,
    /// Above 0 if reads are quick: a quick read adds 1, a slow read subtracts 2.
    pace: AtomicI32,
    /// The large recordings that were read whole since a part was read.
    n_whole: AtomicU32,
    /// How spans are found in the last one: `Places` as a number, and one more.
    places: AtomicU8,
}

impl Parts {
    pub(super) fn of(recordings: RangedRecordings) -> Self {
        Self { recordings, pace: AtomicI32::new(0), n_whole: AtomicU32::new(0), places: AtomicU8::new(0) }
    }

    /// Whether a small part of the next recording of `len` bytes is probably less work than all of it.
    fn is_less_work(&self, len: u64) -> bool {
        let are = |places: Places| self.places.load(Relaxed) == number(Some(places));
        len > BLOCK
            || len >= SMALLEST && (are(Places::Plain) || are(Places::Counted) && self.pace.load(Relaxed) > 0)
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
        self.places.store(number(Places::of(&recording[..SMALLEST as usize])), Relaxed);
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
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) and others of the reads. Damage is reported by
    /// the decoder: a damaged recording is read whole.
    pub(super) fn read(
        &self,
        decoder: &mut AudioDecoder,
        at: &OpenRow<'_>,
        span: Span,
        request: (&dyn ReadRequest, &Row),
        permits: &MemoryPermits,
    ) -> Result<Option<SpanBytes>> {
        // Of a record that its shard lacks in part, no part is good.
        let is_there = span.at + span.len <= at.shard.file.size();
        if !is_there || !request.0.takes_spans() || !self.is_less_work(span.len) {
            return Ok(None);
        }
        let n_whole = self.n_whole.load(Relaxed);
        let is_tried = n_whole < TRIES || n_whole.is_multiple_of(TRIES);
        // A row that comes again is read once.
        if span.len <= BLOCK && (!is_tried || request.0.repeats()) {
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
                // A recording that must be scanned costs more than itself.
                if recording.n_read() <= span.len / 2 {
                    self.n_whole.store(0, Relaxed);
                } else {
                    self.n_whole.fetch_add(1, Relaxed);
                }
                Ok(Some(part))
            }
            Err(error) if !error.kind.is_record() => Err(error),
            _ => Ok(None),
        }
    }

    /// The part, if it has at most half of the samples, and the file is still what it was.
    fn part_of(
        &self,
        decoder: &mut AudioDecoder,
        recording: &StoredRecording<'_>,
        request: (&dyn ReadRequest, &Row),
    ) -> Result<Option<SpanBytes>> {
        let (index, span) = self.recordings.indexes.wanted(decoder, recording, None, request)?;
        let places = index.places();
        self.places.store(number(places), Relaxed);
        let is_same = recording.len > BLOCK || places != Some(Places::Searched);
        let is_small = span.end.saturating_sub(span.start) <= index.info().n_samples / 2;
        if places.is_none() || !is_same || !is_small {
            return Ok(None);
        }
        let part = index.span_bytes(decoder, recording, span)?;
        // The index may be of bytes that were there before.
        Ok(recording.file.is_current().then_some(part))
    }
}

fn number(places: Option<Places>) -> u8 {
    places.map_or(0, |places| 1 + places as u8)
}
