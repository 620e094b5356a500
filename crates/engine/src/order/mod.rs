//! The order of records: index arithmetic without I/O, state or threads.
//!
//! A *stream* is a sequence of *tickets* 0, 1, 2, …: its records in reading order, epoch after epoch. A
//! [`Window`] chooses the ticket of each *draw*. A [`Schedule`] maps tickets to rows and, except for packed
//! batches, batches of a rank to draws of its streams. All of this is a pure function of `(seed, rows per
//! shard)`: timing, threads and the number of ranks change no batch, and any such batch can be computed
//! without those before it.

mod batching;
mod bijection;
mod buckets;
mod chapter;
mod cuts;
mod era;
mod groups;
mod mixture;
mod permutation;
mod reading;
mod rules;
mod schedule;
mod weighted;
mod window;

pub use batching::Batching;
pub use bijection::Bijection;
pub use buckets::{Bins, BucketLimit, Buckets, Budget, CHAPTER, Length, Lengths, Stretch};
pub use chapter::{BucketTotals, Chapter, ChapterRules, CutTotals};
pub use cuts::ChapterStart;
pub(crate) use cuts::{Cuts, MOST_KNOWN, SCANNED};
pub use era::Eras;
pub use groups::{Groups, Stride};
pub use mixture::{Mixture, Stop, WeightStage};
pub use reading::{Reading, ReadingPlace, ShardOrder};
pub use rules::{Assignment, Draw, MixedSources, Order, RankLayout, Rules};
pub use schedule::Schedule;
pub use weighted::{Copies, WeightedRows};
pub use window::Window;
