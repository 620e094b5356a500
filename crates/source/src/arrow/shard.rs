//! The open shards and cached windows of small buffers, shared by all readers of a source.
//!
//! A file is opened once for all readers, and closed when the last reader drops it. Windows of offsets,
//! validity and labels are cached, some 12 bytes a row, so that reading a random row soon costs a single
//! read.

use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak, atomic::AtomicBool},
};

use bytes::Bytes;

use super::index::ShardIndex;
use crate::{
    Result, fallible_alloc,
    memory_permits::MemoryPermits,
    storage::{Storage, StoredFile},
};

/// The most bytes of cached windows.
const KEPT: usize = 32 << 20;
/// The bytes of a window's entry without its content.
const OVERHEAD: usize = 128;

/// A shard's number and an offset in it.
type Place = (usize, u64);

/// Windows of small buffers, by their start.
#[derive(Debug, Default)]
struct BufferWindows {
    by_place: HashMap<Place, Bytes>,
    /// The oldest is first.
    places: VecDeque<Place>,
    bytes: usize,
}

impl BufferWindows {
    fn keep(&mut self, place: Place, window: Bytes) {
        self.bytes += window.len() + OVERHEAD;
        match self.by_place.insert(place, window) {
            None => self.places.push_back(place),
            Some(before) => self.bytes -= before.len() + OVERHEAD,
        }
        while self.bytes > KEPT
            && let Some(oldest) = self.places.pop_front()
        {
            self.bytes -= self.by_place.remove(&oldest).map_or(0, |window| window.len() + OVERHEAD);
        }
    }
}

/// The open files and windows that the readers of a source share.
#[derive(Debug)]
pub(crate) struct OpenShards {
    /// One for each shard. Locked while the file is opened, so that other threads that need it wait.
    files: Box<[Mutex<Weak<StoredFile>>]>,
    windows: Mutex<BufferWindows>,
    max_record_bytes: u64,
}

impl OpenShards {
    pub(crate) fn new(n_shards: usize, max_record_bytes: u64) -> Arc<Self> {
        let files = (0..n_shards).map(|_| Mutex::default()).collect();
        Arc::new(Self { files, windows: Mutex::default(), max_record_bytes })
    }

    /// Opens shard `number` at `path`, or shares its open file.
    pub(crate) fn open(
        self: &Arc<Self>,
        number: usize,
        storage: &Arc<dyn Storage>,
        path: &Arc<Path>,
        index: &Arc<ShardIndex>,
    ) -> Result<OpenShard> {
        let mut known = self.files[number].lock().unwrap_or_else(PoisonError::into_inner);
        let file = match known.upgrade() {
            Some(file) => file,
            None => {
                let file = Arc::new(StoredFile::reopen(storage, path, index.version)?);
                *known = Arc::downgrade(&file);
                file
            }
        };
        Ok(OpenShard {
            number,
            file,
            index: Arc::clone(index),
            permits: MemoryPermits::default(),
            is_kept: false,
            has_granted: AtomicBool::new(false),
            all: Arc::clone(self),
        })
    }

    fn windows(&self) -> std::sync::MutexGuard<'_, BufferWindows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct OpenShard {
    pub number: usize,
    pub file: Arc<StoredFile>,
    pub index: Arc<ShardIndex>,
    /// The limiter of its reader for the memory of decompressed buffers, and whether these are kept for later
    /// rows.
    pub permits: MemoryPermits,
    pub is_kept: bool,
    /// Whether any memory was granted yet: most shards never need a permit.
    pub has_granted: AtomicBool,
    all: Arc<OpenShards>,
}

impl OpenShard {
    /// The most bytes that a record may have.
    pub(crate) fn max_record_bytes(&self) -> u64 {
        self.all.max_record_bytes
    }

    /// Reads `len` bytes at `at` through the cache of windows.
    pub(crate) fn window(&self, at: u64, len: usize) -> Result<Bytes> {
        let known = self.all.windows().by_place.get(&(self.number, at)).cloned();
        if let Some(window) = known.filter(|window| window.len() >= len) {
            return Ok(window);
        }
        // The cache is not locked during the read. Now and then two threads read the same window.
        let mut bytes = fallible_alloc::zero_bytes(len)?;
        self.file.read_exact(&mut bytes, at)?;
        let window = Bytes::from(bytes);
        self.all.windows().keep((self.number, at), window.clone());
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_counted() {
        let mut windows = BufferWindows::default();
        let window = Bytes::from(vec![0; 1 << 20]);
        for at in (0..100).chain(90..100) {
            windows.keep((0, at), window.clone());
        }
        let n = KEPT / ((1 << 20) + OVERHEAD);
        assert_eq!((windows.by_place.len(), windows.places.len()), (n, n));
        assert_eq!(windows.bytes, n * ((1 << 20) + OVERHEAD));
        assert!(windows.by_place.contains_key(&(0, 99)) && !windows.by_place.contains_key(&(0, 0)));
    }
}
