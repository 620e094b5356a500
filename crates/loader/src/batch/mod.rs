//! Collators turn examples into batches: each example is written once, into the memory of its batch.
//!
//! The memory comes from [`fields`](crate::fields). [`RowCollate`] writes each example into the row that the
//! order gives it; [`TokenCollate`] packs several documents into a row.

mod packed;
mod packed_fields;
mod padded;
mod pairs;
mod remix;
mod rows;
mod shares;
mod values;
mod written;

pub use packed::{DocumentPart, PackMeter, Packing, SpareTokens, TokenBatch, TokenCollate, TokenExample};
pub use packed_fields::{Extras, LossPlan, PackPlan, token_fields};
pub use padded::PadTo;
pub use pairs::MixedPairs;
pub use remix::RemixedGroups;
pub use rows::{Example, RowCollate, RowMixing, SpareBuffers};
pub use shares::{MixEnd, SourceCounts, SourceMeter, SourceMix};
pub(crate) use values::bytes_of;
