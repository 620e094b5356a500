//! Which record comes next: index arithmetic without I/O, without state, without threads.
//!
//! A *stream* is a sequence of *tickets* 0, 1, 2, …: its records in reading order, epoch after epoch. A
//! [`Window`] says which ticket a *draw* takes, and a [`Schedule`] which draws of which streams make up a
//! rank's batch, and which row each ticket is. Training sees batches, the reader sees tickets, and both are
//! pure functions of `(seed, rows per shard)`, so that neither timing nor threads nor the number of ranks can
//! change a batch, and any batch can be had without those before it.

mod bijection;
mod era;
mod groups;
mod mixture;
mod reading;
mod schedule;
mod window;

pub use bijection::Bijection;
pub use era::Eras;
pub use groups::{Groups, Stride};
pub use mixture::{Mixture, Stop, WeightStage};
pub use reading::{Place, Reading, ShardOrder};
pub use schedule::{Assignment, Draw, Layout, Order, Rules, Schedule, Sources};
pub use window::Window;
