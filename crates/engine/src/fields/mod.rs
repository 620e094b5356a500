//! Fields: the named values of records, examples and batches, each with a type and a shape that are known
//! before the first batch.
//!
//! A [`Field`] is the description; a [`Value`] is one field of one row, which a source or a worker makes for
//! a batch; a [`Column`] is one field of all rows of a batch. All loaders and datasets use these, so a new
//! field is an entry in a list of fields and the code that makes its value.
//!
//! The axes of a row have a [`Dim`] each. A field whose rows all have one shape is stacked, `[rows, *shape]`.
//! One with a padded axis is stacked too, with the longest row of each batch. Any other is jagged: the values
//! of all rows one after the other, with offsets. Each column has its own memory ([`Buffer`]); a
//! [`ColumnPool`] recycles that of stacked fields when its last user drops it.

mod arena;
mod buffer;
mod columns;
mod data_type;
mod field;
mod free_list;
mod value;

pub use arena::{ARENA_ALIGN, Arena, ArenaPool, Element, Slot};
pub use buffer::{Buffer, BufferPool, Memory, SMALL};
pub use columns::{Column, ColumnPool, Columns, SharedPool};
pub use data_type::DataType;
pub use field::{Dim, Field};
pub use free_list::FreeList;
pub use value::{Row, Runs, Sparse, Value, ValueRun};
