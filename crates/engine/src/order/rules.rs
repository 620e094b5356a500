//! What determines a [`Schedule`](super::Schedule), and what it answers.

use super::{Batching, Mixture};

/// The order of the examples of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Files and rows as given.
    Sequential,
    /// Shards in a new order each epoch, rows in storage order, mixed by a window.
    Window,
    /// A new permutation of all rows each epoch.
    Global,
    /// A new permutation within each era of `length` rows.
    Era { length: u64 },
    /// Row groups dealt out to streams, each mixed by a window.
    Groups,
}

impl Order {
    /// The order's name, as in the user's parameter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Window => "window",
            Self::Global => "global",
            Self::Era { .. } => "era",
            Self::Groups => "groups",
        }
    }

    /// Whether consecutive tickets are scattered in storage, so that each costs a read.
    pub fn is_scattered(self) -> bool {
        matches!(self, Self::Global | Self::Era { .. })
    }

    /// Whether it is defined over canonical streams, which are divided among ranks; else over positions.
    pub fn is_streamed(self) -> bool {
        matches!(self, Self::Window | Self::Groups)
    }
}

/// How batches are divided among ranks and streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankLayout {
    /// The number of this process, from 0.
    pub rank: u64,
    pub world_size: u64,
    /// Rows of a batch on each rank.
    pub batch_size: u64,
    /// V, the number of canonical streams: a multiple of the world size that divides the global batch; 1 if
    /// the order has none.
    pub n_streams: u64,
}

impl RankLayout {
    /// G, the rows of a batch over all ranks; the order is defined over these batches.
    pub fn global_batch(&self) -> u64 {
        self.batch_size * self.world_size
    }
}

#[derive(Debug, Clone)]
pub struct MixedSources {
    /// Maps a position to a source and its sample.
    pub mixture: Mixture,
    /// `starts[s]` is the first row of source `s`, or the first copy; one more entry than sources.
    pub starts: Vec<u64>,
}

/// What determines a schedule, besides the rows of the shards.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The user's seed; for a finite pass of a mixture, a seed derived for the pass.
    pub seed: u64,
    /// The order; for a mixture, the order within each source.
    pub order: Order,
    pub batching: Batching,
    pub layout: RankLayout,
    /// Slots of each stream's window; 1 if the order has no streams.
    pub window: u64,
    /// The epoch of a finite pass; the first epoch of an infinite one.
    pub epoch: u64,
    pub infinite: bool,
    /// Whether a last batch with fewer rows than the others is left out.
    pub drop_last: bool,
}

impl Rules {
    /// Whether draws come from canonical streams, which are divided among ranks; else from positions, and the
    /// rank has one stream.
    pub fn is_streamed(&self) -> bool {
        self.order.is_streamed() && !self.batching.is_cut()
    }

    /// Whether consecutive tickets are scattered in storage, so that each costs a read.
    pub fn is_scattered(&self) -> bool {
        self.order.is_scattered() || self.batching.is_cut()
    }
}

/// The record of a ticket, with its random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// The row number over the files as given.
    pub row: u64,
    /// The number of rows, from this one on, that are consecutive in storage and in the order of tickets.
    pub run: u64,
    /// The number of tickets that these rows have: more than rows, if some come several times.
    pub tickets: u64,
    /// Whether the next ticket has the same row.
    pub repeats: bool,
    /// The random bits that place the crop.
    pub seed: u64,
    pub epoch: u64,
}

/// A draw from a stream of this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    /// The stream, counted from 0 on this rank.
    pub stream: usize,
    /// The draw's number in its stream.
    pub number: u64,
    pub ticket: u64,
}
