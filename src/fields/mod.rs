//! Fields: the named values of records, examples and batches, each with a type and a shape that are known
//! beforehand.
//!
//! A [`Field`] describes; a [`Value`] is one field of one row, on its way from a source through a worker to a
//! batch; a [`Column`] is one field of all rows of a batch. All loaders and datasets use these, so a new
//! field is an entry in a list of fields and the code that makes its value.
//!
//! A field whose rows all have one shape is stacked, `[rows, *shape]`. Any other is jagged: the values of all
//! rows one after the other, and where each ends. Each column has memory of its own ([`Buffer`]), recycled by
//! a [`ColumnPool`] when its last user drops it.

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
pub use field::Field;
pub use free_list::FreeList;
pub use value::{Row, Value};
