//! What the threads do and how long it takes: meters, totals, traces, and a verdict in words.

pub(crate) mod meter;
pub(crate) mod stats;
pub(crate) mod trace;
pub(crate) mod verdict;
