//! Byte ranges of an array in its shard.

use std::sync::Arc;

/// A range of bytes of a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub at: u64,
    pub len: u64,
}

/// The byte ranges of one array of a batch, one for each buffer.
#[derive(Debug, Clone)]
pub(crate) struct ArraySpans {
    pub n_values: u64,
    pub buffers: Arc<[Span]>,
}
