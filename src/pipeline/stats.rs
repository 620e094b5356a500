//! Counts of what went through a loader.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that the threads of all runs of one loader raise.
#[derive(Debug, Default)]
pub struct Counters {
    pub(super) records_read: AtomicU64,
    pub(super) records_decoded: AtomicU64,
    pub(super) records_failed: AtomicU64,
    pub(super) substitutes: AtomicU64,
    pub(super) batches: AtomicU64,
    batches_made: AtomicU64,
    pub(super) decoded_at_first_batch: AtomicU64,
}

/// A loader's counts since its construction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records that the I/O thread put into the channel.
    pub records_read: u64,
    /// Records that became examples.
    pub records_decoded: u64,
    /// Records that were found bad, by the I/O thread or by a worker.
    pub records_failed: u64,
    /// Bad records that a substitute replaced.
    pub substitutes: u64,
    /// Batches handed out.
    pub batches: u64,
    /// How many records had become examples when the first batch was complete.
    pub decoded_at_first_batch: u64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A batch is complete.
    pub(super) fn made(&self) {
        if self.batches_made.fetch_add(1, Ordering::Relaxed) == 0 {
            let decoded = self.records_decoded.load(Ordering::Relaxed);
            self.decoded_at_first_batch.store(decoded, Ordering::Relaxed);
        }
    }

    /// The counts so far.
    pub fn read(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            records_read: get(&self.records_read),
            records_decoded: get(&self.records_decoded),
            records_failed: get(&self.records_failed),
            substitutes: get(&self.substitutes),
            batches: get(&self.batches),
            decoded_at_first_batch: get(&self.decoded_at_first_batch),
        }
    }
}
