//! Examples become batches: each example is written once, into the memory of its batch.
//!
//! The memory is that of [`fields`](crate::fields). Which row an example fills is decided here: the order
//! says so for [`RowCollate`], and [`TokenCollate`] packs several documents into a row.

mod packed;
mod packed_fields;
#[cfg(feature = "audio")]
mod rows;

pub use packed::{PackMeter, Packing, Part, SpareTokens, TokenBatch, TokenCollate, TokenExample};
pub use packed_fields::{Extras, PackPlan, token_fields};
#[cfg(feature = "audio")]
pub use rows::{Example, RowCollate, SpareBuffers};
