//! Which record comes next: index arithmetic without I/O, without state, without threads.
//!
//! A *stream* is a sequence of *tickets* 0, 1, 2, …: its records in reading order, epoch after epoch. [`Reading`] says which row
//! a ticket is; [`Window`] says which ticket a *draw* takes. Training sees draws, the reader sees tickets, and both are pure
//! functions of `(seed, rows per shard)`, so that neither timing nor threads can change a batch.
//!
//! There is one stream so far; its number is already part of every hash, so that further streams change nothing of it.

mod reading;
mod window;

pub use reading::{Place, Reading, ShardOrder};
pub use window::Window;

/// The stream of a loader that has only one.
pub const FIRST_STREAM: u64 = 0;
