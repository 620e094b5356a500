//! What the threads do and how long it takes: current states, meters, totals, traces; the verdict and stalls
//! in words.

pub(crate) mod activity;
pub(crate) mod meter;
pub(crate) mod queues;
pub(crate) mod run_queue;
pub(crate) mod stall;
pub(crate) mod stats;
pub(crate) mod trace;
pub(crate) mod verdict;
