//! Examples become batches: memory of its own per field, each example written once into its row.
//!
//! [`ArenaPool`] and [`FieldPool`] have the memory and know nothing of what is in it; what belongs together in a batch, and which
//! row of it an example fills, is the business of [`AudioCollate`] and [`TokenCollate`].

mod arena;
#[cfg(feature = "audio")]
mod clips;
mod field;
mod free_list;
mod token_ids;
mod tokens;

pub use arena::{ARENA_ALIGN, Arena, ArenaPool, Element, Slot};
#[cfg(feature = "audio")]
pub use clips::{AudioBatch, AudioCollate, AudioExample, AudioPool, Features, SpareBuffers};
pub use field::{Field, FieldPool, Memory, SMALL};
pub use free_list::FreeList;
pub use token_ids::{IdType, Ids, TokenPool};
pub use tokens::{
    Extras, PackMeter, PackPlan, Packing, Part, SpareTokens, TokenBatch, TokenCollate, TokenExample,
};
