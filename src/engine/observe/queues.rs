//! How much lies between the stages.

/// What lies between the stages now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queues {
    /// Records that wait for a worker.
    pub records: usize,
    /// Their bytes, and those of large records from before they are read until they are processed.
    pub record_bytes: usize,
    /// Bytes of memory that is read into, or holds what was read: for these records, those in the workers,
    /// and what was read ahead.
    pub read_bytes: usize,
    /// Outcomes in the shuffle buffers.
    pub examples: usize,
    /// Complete batches.
    pub batches: usize,
}
