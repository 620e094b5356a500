//! The amount of data between the stages.

/// The amount of data between the stages now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueSizes {
    /// Records that wait for a worker.
    pub records: usize,
    /// Bytes of these records, and of large records from before they are read until they are processed.
    pub record_bytes: usize,
    /// Bytes of memory for reads in progress and data read: these records, those in the workers, and
    /// read-ahead.
    pub read_bytes: usize,
    pub examples: usize,
    pub batches: usize,
}
