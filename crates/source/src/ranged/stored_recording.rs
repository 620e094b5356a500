//! [`StoredRecording`]: where the bytes of a recording are, and reads of them.

use std::{
    cell::Cell,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

use super::RangedRecordings;
use crate::{
    Result, memory_permits::MemoryPermits, record_rules::check_record_bytes, storage::StoredFile, urls,
};
use forebay_audio::RangeIndex;

/// A recording: the number of its table or shard, whether it is a part of a file, and its number there.
pub(crate) type Key = (usize, bool, u64);

#[derive(Debug, Default)]
pub(crate) struct AtomicReadCounts {
    pub opened: AtomicU64,
    pub reads: AtomicU64,
    pub bytes: AtomicU64,
}

/// What the readers of files did, since the source was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCounts {
    pub opened: u64,
    /// Files that are open now.
    pub open: u64,
    pub reads: u64,
    /// Bytes of these reads.
    pub bytes: u64,
    /// Indexes in memory now, and their bytes.
    pub indexes: u64,
    /// Bytes of the indexes in memory.
    pub index_bytes: u64,
    /// Indexes that were made from the recordings.
    pub indexed: u64,
    /// Indexes that were found on disk.
    pub index_hits: u64,
}

/// The bytes of a recording: a file, a member of an archive, or a value in a shard.
pub(crate) struct StoredRecording<'a> {
    pub file: Arc<StoredFile>,
    pub at: u64,
    pub len: u64,
    pub key: Key,
    pub shared: &'a RangedRecordings,
    pub permits: &'a MemoryPermits,
    /// The bytes that were read of it.
    pub n_read: Cell<u64>,
}

impl StoredRecording<'_> {
    /// Reads a range.
    ///
    /// # Errors
    /// [`Truncated`](crate::ErrorKind::Truncated) if the file ends before; those of the system and of memory.
    pub(crate) fn read_range(&self, range: Range<u64>) -> Result<Bytes> {
        let RangedRecordings { blocks, counts, max_record_bytes, .. } = self.shared;
        let len = range.end.saturating_sub(range.start);
        check_record_bytes(len, *max_record_bytes)?;
        let at = self.at.saturating_add(range.start);
        let bytes = self.file.bytes(at..at.saturating_add(len), blocks, self.permits)?;
        counts.reads.fetch_add(1, Ordering::Relaxed);
        counts.bytes.fetch_add(len, Ordering::Relaxed);
        self.n_read.set(self.n_read.get() + len);
        Ok(bytes)
    }

    /// Requests the ends of a recording that will be opened by them, so that the latencies of two requests do
    /// not add up.
    pub(crate) fn announce_ends(&self) {
        // The bytes of samples in these files end with the file, and their length is found there.
        const BY_BOTH_ENDS: [&str; 4] = ["flac", "mp3", "oga", "ogg"];
        let path = self.file.path();
        let is_told = path
            .extension()
            .is_some_and(|found| BY_BOTH_ENDS.iter().any(|of| found.eq_ignore_ascii_case(of)));
        if is_told && urls::is_url(path) {
            for range in RangeIndex::ends(self.len).into_iter().flatten() {
                self.file.will_need(self.at + range.start, range.end - range.start);
            }
        }
    }

    /// The bytes that were read so far.
    pub(crate) fn n_read(&self) -> u64 {
        self.n_read.get()
    }

    /// The resolved path, by which the index is kept; of a member that of the archive and the member's place,
    /// after a byte that no path has. So is the number of a track that was chosen.
    pub(crate) fn resolved(&self) -> Option<std::path::PathBuf> {
        let (_, is_archived, _) = self.key;
        let path = self.file.resolved().ok()?;
        let mut path = path.into_os_string();
        if is_archived {
            path.push(format!("\0{}+{}", self.at, self.len));
        }
        if let Some(track) = self.shared.track {
            path.push(format!("\0track {track}"));
        }
        Some(path.into())
    }

    /// The most bytes of a read.
    pub(crate) fn most(&self) -> u64 {
        self.shared.max_record_bytes
    }
}
