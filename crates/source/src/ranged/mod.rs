//! Recordings of which parts are read: files, members of archives, large ones in shards.
//!
//! | file | what |
//! |---|---|
//! | `stored_recording` | where the bytes of a recording are, and reads of them |
//! | `indexes` | indexes of recordings, in memory and on disk |
//! | `lru`, `sidecar` | what keeps them |

mod indexes;
mod lru;
pub(crate) mod sidecar;
mod stored_recording;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::block::BlockPool;

pub use indexes::IndexLocation;
pub(crate) use indexes::Indexes;
pub(crate) use lru::Lru;
pub use stored_recording::ReadCounts;
pub(crate) use stored_recording::{AtomicReadCounts, Key, StoredRecording};

/// What the readers of a source's recordings share.
#[derive(Debug)]
pub(crate) struct RangedRecordings {
    pub(crate) blocks: Arc<BlockPool>,
    pub(crate) max_record_bytes: u64,
    /// As in [`SourceOptions`](crate::SourceOptions).
    pub(crate) track: Option<u32>,
    pub(crate) indexes: Indexes,
    pub(crate) counts: AtomicReadCounts,
}

impl RangedRecordings {
    /// What the readers did so far, but for open files.
    pub(crate) fn read_counts(&self) -> ReadCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let AtomicReadCounts { opened, reads, bytes } = &self.counts;
        let mut counts =
            ReadCounts { opened: of(opened), reads: of(reads), bytes: of(bytes), ..ReadCounts::default() };
        self.indexes.add_to(&mut counts);
        counts
    }
}
