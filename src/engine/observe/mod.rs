//! What the threads do and how long it takes: states now, meters, totals, traces; a verdict and a stall in
//! words.

pub(crate) mod activity;
pub(crate) mod meter;
pub(crate) mod queues;
pub(crate) mod stall;
pub(crate) mod stats;
pub(crate) mod trace;
pub(crate) mod verdict;
