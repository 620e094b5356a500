//! Indexes of recordings: in memory, bounded in bytes and shared by readers.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

use super::{
    lru::Lru,
    recorded::{Key, ReadCounts, Recorded},
};
use crate::{
    Result,
    decode::{AudioDecoder, Part, RangeIndex, ReadBytes},
    record::{PartOf, Segment, Wants},
    source::storage::Version,
};

/// The most bytes of all indexes in memory.
const MOST_BYTES: usize = 64 << 20;

/// The indexes of the recordings that were read last.
#[derive(Debug)]
pub(super) struct Indexes {
    kept: Lru<Key, (Version, Arc<RangeIndex>)>,
    made: AtomicU64,
}

impl Default for Indexes {
    fn default() -> Self {
        Self { kept: Lru::new(MOST_BYTES), made: AtomicU64::new(0) }
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
        let index = Arc::new(RangeIndex::open(decoder, recorded)?);
        self.made.fetch_add(1, Ordering::Relaxed);
        let weight = index.bytes_held() + size_of::<(Key, Version)>();
        self.kept.put(recorded.key, (version, index.clone()), weight);
        Ok(index)
    }

    pub(super) fn add_to(&self, counts: &mut ReadCounts) {
        let (n, bytes) = self.kept.held();
        (counts.indexes, counts.index_bytes) = (n as u64, bytes as u64);
        counts.indexed = self.made.load(Ordering::Relaxed);
    }
}
