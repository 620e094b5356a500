//! A recording in a file or an archive: where its bytes are, and reads of them.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

use super::FilesSource;
use crate::{
    Result, block::BlockPool, memory_permits::MemoryPermits, record_rules::check_record_bytes,
    storage::StoredFile, urls,
};
use forebay_audio::RangeIndex;

/// A file of a table: the number of the table, whether it is an archive, and its number.
pub(super) type Key = (usize, bool, u32);

#[derive(Debug, Default)]
pub(super) struct AtomicReadCounts {
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

/// The bytes of a recording: a file, or a member of an archive.
pub(super) struct RecordingFile<'a> {
    pub file: Arc<StoredFile>,
    pub at: u64,
    pub len: u64,
    pub key: Key,
    pub source: &'a FilesSource,
    pub permits: &'a MemoryPermits,
    /// The bytes that were read of it.
    pub n_read: Cell<u64>,
}

impl RecordingFile<'_> {
    /// Reads a range.
    ///
    /// # Errors
    /// [`Truncated`](crate::ErrorKind::Truncated) if the file ends before; those of the system and of memory.
    pub(super) fn read_range(&self, range: std::ops::Range<u64>) -> Result<Bytes> {
        let len = range.end.saturating_sub(range.start);
        check_record_bytes(len, self.source.max_record_bytes)?;
        let len = len as usize;
        let permit = self.permits.admit(BlockPool::size_of(len) as u64)?;
        let block = self.source.blocks.take(len, permit)?;
        let bytes = self.file.read_block(block, self.at.saturating_add(range.start))?;
        let counts = self.source.opened.counted();
        counts.reads.fetch_add(1, Ordering::Relaxed);
        counts.bytes.fetch_add(len as u64, Ordering::Relaxed);
        self.n_read.set(self.n_read.get() + len as u64);
        Ok(bytes)
    }

    /// Requests the ends of a recording that will be opened by them, so that the latencies of two requests do
    /// not add up.
    pub(super) fn announce_ends(&self) {
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
    pub(super) fn n_read(&self) -> u64 {
        self.n_read.get()
    }

    /// The resolved path, by which the index is kept; of a member that of the archive and the member's place,
    /// after a byte that no path has. So is the number of a track that was chosen.
    pub(super) fn resolved(&self) -> Option<std::path::PathBuf> {
        let (_, is_archived, _) = self.key;
        let path = self.source.files.storage.resolve(self.file.path()).ok()?;
        let mut path = path.into_os_string();
        if is_archived {
            path.push(format!("\0{}+{}", self.at, self.len));
        }
        if let Some(track) = self.source.track {
            path.push(format!("\0track {track}"));
        }
        Some(path.into())
    }

    /// The most bytes of a read.
    pub(super) fn most(&self) -> u64 {
        self.source.max_record_bytes
    }
}
