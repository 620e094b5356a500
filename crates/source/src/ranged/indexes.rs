//! Indexes of recordings: in memory, bounded in bytes and shared by readers, and beside them on disk.
//!
//! An index that took more than [`COSTLY`] bytes to make is written to the user's cache, for the next
//! process. `forebay index` writes all.

use std::{
    io,
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
    sidecar::Sidecars,
    stored_recording::{Key, ReadCounts, StoredRecording},
};
use crate::{ReadRequest, Result, RowExtent, Segment, fields::Row, info_of_row, storage::Version};
use forebay_audio::{AudioDecoder, Info, RangeIndex, ReadAt};

/// The most bytes of all indexes in memory.
const MOST_BYTES: usize = 64 << 20;
/// An index that took more bytes than these is kept on disk: reading it back costs less.
const COSTLY: u64 = 384 << 10;

/// Where the index of a recording is.
#[derive(Debug)]
pub enum IndexLocation {
    /// Nowhere: the recording is small, and read whole.
    Needless,
    /// On disk, from an earlier run.
    Found,
    Written,
    /// Nowhere: it could not be written.
    Unwritten(io::Error),
}

/// The indexes of the recordings that were read last.
#[derive(Debug)]
pub(crate) struct Indexes {
    kept: Lru<Key, (Version, Arc<RangeIndex>)>,
    sidecars: Sidecars,
    made: AtomicU64,
    found: AtomicU64,
}

impl ReadAt for StoredRecording<'_> {
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
    /// In memory, and in the user's cache.
    pub(crate) fn of_user() -> Self {
        Self::new(Sidecars::of_user())
    }

    pub(crate) fn in_memory() -> Self {
        Self::new(Sidecars::nowhere())
    }

    fn new(sidecars: Sidecars) -> Self {
        let (made, found) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { kept: Lru::new(MOST_BYTES), sidecars, made, found }
    }

    /// The index of a recording, and the samples of it that are wanted of a row.
    ///
    /// # Errors
    /// As [`RangeIndex::open`].
    pub(crate) fn wanted(
        &self,
        decoder: &mut AudioDecoder,
        recording: &StoredRecording<'_>,
        segment: Option<Segment>,
        (request, values): (&dyn ReadRequest, &Row),
    ) -> Result<(Arc<RangeIndex>, Range<u64>)> {
        let index = self.index(decoder, recording)?;
        let (info, samples) = info_of_row(index.info(), segment)?;
        let extent =
            RowExtent { sample_rate: info.sample_rate, start: samples.start, n_samples: info.n_samples };
        let span = request.span(extent, values).unwrap_or(0..info.n_samples);
        Ok((index, samples.start + span.start..samples.start + span.end))
    }

    fn index(&self, decoder: &mut AudioDecoder, recording: &StoredRecording<'_>) -> Result<Arc<RangeIndex>> {
        let version = recording.file.version();
        if let Some((_, index)) = self.kept.get(recording.key).filter(|(known, _)| *known == version) {
            return Ok(index);
        }
        let path = self.sidecars.folder().and_then(|_| recording.resolved());
        let index = match path.as_deref().and_then(|path| self.on_disk(decoder, path, version)) {
            Some(index) => {
                self.found.fetch_add(1, Ordering::Relaxed);
                index
            }
            None => self.make(decoder, recording, path.as_deref(), version)?,
        };
        let index = Arc::new(index);
        let weight = index.bytes_held() + size_of::<(Key, Version)>();
        self.kept.put(recording.key, (version, index.clone()), weight);
        Ok(index)
    }

    fn on_disk(&self, decoder: &AudioDecoder, path: &Path, version: Version) -> Option<RangeIndex> {
        let index = RangeIndex::from_bytes(&self.sidecars.read(path, version)?).ok()?;
        Some(index.of_track(decoder.track))
    }

    /// Codec, rate, channels and length of the recording, whose index is then on disk, if it can be.
    ///
    /// # Errors
    /// As [`RangeIndex::open`].
    pub(crate) fn keep(
        &self,
        decoder: &mut AudioDecoder,
        recording: &StoredRecording<'_>,
    ) -> Result<(Info, IndexLocation)> {
        let version = recording.file.version();
        let path = recording.resolved();
        if let Some(index) = path.as_deref().and_then(|path| self.on_disk(decoder, path, version)) {
            return Ok((index.info(), IndexLocation::Found));
        }
        recording.announce_ends();
        let index = RangeIndex::open(decoder, recording)?;
        let written = match path {
            // A file that was changed meanwhile is an error of the reader.
            Some(path) if recording.file.is_current() => {
                self.sidecars.try_write(&path, version, &index.to_bytes())
            }
            _ => Err(io::Error::other("the file was moved meanwhile")),
        };
        Ok((index.info(), written.map_or_else(IndexLocation::Unwritten, |()| IndexLocation::Written)))
    }

    pub(crate) fn folder(&self) -> Option<&Path> {
        self.sidecars.folder()
    }

    /// Makes an index of the recording.
    fn make(
        &self,
        decoder: &mut AudioDecoder,
        recording: &StoredRecording<'_>,
        path: Option<&Path>,
        version: Version,
    ) -> Result<RangeIndex> {
        let before = recording.n_read();
        recording.announce_ends();
        let index = RangeIndex::open(decoder, recording)?;
        self.made.fetch_add(1, Ordering::Relaxed);
        // What was made of a file that changed meanwhile belongs to no version.
        if let Some(path) = path
            && recording.n_read() - before > COSTLY
            && recording.file.is_current()
        {
            self.sidecars.write(path, version, &index.to_bytes());
        }
        Ok(index)
    }

    pub(crate) fn add_to(&self, counts: &mut ReadCounts) {
        let (n, bytes) = self.kept.held();
        (counts.indexes, counts.index_bytes) = (n as u64, bytes as u64);
        counts.indexed = self.made.load(Ordering::Relaxed);
        counts.index_hits = self.found.load(Ordering::Relaxed);
    }
}
