//! What flows through the pipeline: a record's bytes go in, an example comes out.
//!
//! The types here are all that neighbouring stages share, so a stage knows these and never its neighbour.

use bytes::Bytes;

/// An undecoded row of a shard, as a source reads it.
#[derive(Debug, Clone)]
pub struct RawRecord {
    /// The encoded recording. A slice of a larger block where rows were read together; never empty.
    pub bytes: Bytes,
    /// The class, or [`NO_LABEL`].
    pub label: i64,
}

/// The label of a row whose label is null.
pub const NO_LABEL: i64 = -1;
