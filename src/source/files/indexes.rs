//! Indexes of recordings: in memory, bounded in bytes and shared by readers, and beside them on disk.
//!
//! An index that took more than [`COSTLY`] bytes to make is written to the user's cache, for the next
//! process. One of an archive's member is not: its place is known only with the archive.

use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

use super::{
    lru::Lru,
    recorded::{Key, ReadCounts, Recorded},
    sidecar::Sidecars,
};
use crate::{
    Result,
    decode::{AudioDecoder, Part, RangeIndex, ReadBytes},
    record::{PartOf, Segment, Wants},
    source::storage::Version,
};

/// The most bytes of all indexes in memory.
const MOST_BYTES: usize = 64 << 20;
/// An index that took more bytes than these is kept on disk: reading it back costs less.
const COSTLY: u64 = 384 << 10;

/// The indexes of the recordings that were read last.
#[derive(Debug)]
pub(super) struct Indexes {
    kept: Lru<Key, (Version, Arc<RangeIndex>)>,
    sidecars: Sidecars,
    made: AtomicU64,
    found: AtomicU64,
}

impl Default for Indexes {
    fn default() -> Self {
        let (made, found) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { kept: Lru::new(MOST_BYTES), sidecars: Sidecars::of_user(), made, found }
    }
}

impl ReadBytes for Recorded<'_> {
    fn size(&self) -> u64 {
        self.len
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.read_range(range)
    }

    fn limit(&self) -> u64 {
        self.most()
    }
}

impl Indexes {
    /// The bytes that the wanted samples of a row need; None if all of the recording is wanted.
    ///
    /// # Errors
    /// As [`RangeIndex::open`] and [`RangeIndex::part`].
    pub(super) fn part(
        &self,
        decoder: &mut AudioDecoder,
        recorded: &Recorded<'_>,
        segment: Option<Segment>,
        wants: &dyn Wants,
    ) -> Result<Option<Part>> {
        if segment.is_none() && !wants.takes_spans() && recorded.len <= recorded.most() {
            return Ok(None);
        }
        let index = self.index(decoder, recorded)?;
        let of = PartOf { segment, ..PartOf::default() };
        let (info, samples) = index.info().of_row(Some(&of))?;
        let span = wants.span(info.sample_rate, info.n_samples).unwrap_or(0..info.n_samples);
        let span = samples.start + span.start..samples.start + span.end;
        index.part(decoder, recorded, span).map(Some)
    }

    fn index(&self, decoder: &mut AudioDecoder, recorded: &Recorded<'_>) -> Result<Arc<RangeIndex>> {
        let version = recorded.file.version();
        if let Some((_, index)) = self.kept.get(recorded.key).filter(|(known, _)| *known == version) {
            return Ok(index);
        }
        let path = recorded.resolved();
        let found = path.as_deref().and_then(|path| self.sidecars.read(path, version));
        let found = found.and_then(|bytes| RangeIndex::from_bytes(&bytes).ok());
        let index = match found {
            Some(index) => {
                self.found.fetch_add(1, Ordering::Relaxed);
                index
            }
            None => self.make(decoder, recorded, path.as_deref(), version)?,
        };
        let index = Arc::new(index);
        let weight = index.bytes_held() + size_of::<(Key, Version)>();
        self.kept.put(recorded.key, (version, index.clone()), weight);
        Ok(index)
    }

    /// Makes an index of the recording.
    fn make(
        &self,
        decoder: &mut AudioDecoder,
        recorded: &Recorded<'_>,
        path: Option<&Path>,
        version: Version,
    ) -> Result<RangeIndex> {
        let before = recorded.n_read();
        let index = RangeIndex::open(decoder, recorded)?;
        self.made.fetch_add(1, Ordering::Relaxed);
        // What was made of a file that changed meanwhile belongs to no version.
        if let Some(path) = path
            && recorded.n_read() - before > COSTLY
            && recorded.file.is_current()
        {
            self.sidecars.write(path, version, &index.to_bytes());
        }
        Ok(index)
    }

    pub(super) fn add_to(&self, counts: &mut ReadCounts) {
        let (n, bytes) = self.kept.held();
        (counts.indexes, counts.index_bytes) = (n as u64, bytes as u64);
        counts.indexed = self.made.load(Ordering::Relaxed);
        counts.index_hits = self.found.load(Ordering::Relaxed);
    }
}
