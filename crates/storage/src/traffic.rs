//! [`Traffic`]: what the files of a source cost, and how much is read ahead of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_base::histogram::Histogram;

use crate::contract::StorageLabels;

/// The most blocks read at the same time: with some 3 MiB each, 1 GB/s where a read takes 50 ms.
pub const BLOCKS_AHEAD: usize = 16;

/// The I/O threads that read single records: more by URL, since each waits for an answer.
pub fn scattered_readers(n_readers: usize, is_remote: bool) -> usize {
    if is_remote && n_readers > 1 { 2 * n_readers } else { n_readers }
}

/// The most bytes of a source that are requested from servers ahead of time and not yet read, or kept.
pub const MOST_REQUESTED: u64 = 128 << 20;

/// Counts of what the files of a source cost.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Calls and requests that failed transiently and were tried again.
    pub retries: AtomicU64,
    /// Requests to servers, with those that failed.
    pub requests: AtomicU64,
    /// Bytes that servers sent, without headers.
    pub received_bytes: AtomicU64,
    /// Times from a request to the begin of its answer.
    pub first_byte: Histogram,
    /// Whether what servers send is kept on a local disk.
    pub is_cached: AtomicBool,
    pub cache_hits: AtomicU64,
    pub cached_bytes: AtomicU64,
}

impl Traffic {
    /// Whether a request was sent to a server.
    pub fn is_remote(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// What limits reads, in the words of messages.
    pub fn labels(&self) -> StorageLabels {
        if !self.is_remote() {
            return StorageLabels::LOCAL;
        }
        let faster = match self.is_cached.load(Ordering::Relaxed) {
            true => "copy the shards to a local disk or a nearer server",
            false => {
                "set cache_dir to a folder on a local disk, from which later epochs are read, or copy the shards to a nearer server"
            }
        };
        StorageLabels { bound: "network-bound", faster }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_names_a_cache_only_where_there_is_none() {
        let traffic = Traffic::default();
        assert_eq!(traffic.labels(), StorageLabels::LOCAL);
        traffic.requests.store(1, Ordering::Relaxed);
        let labels = traffic.labels();
        assert!(labels.bound == "network-bound" && labels.faster.starts_with("set cache_dir to a folder"));
        traffic.is_cached.store(true, Ordering::Relaxed);
        assert!(!traffic.labels().faster.contains("cache_dir"));
    }
}
