//! What a user has chosen: how records are ordered, grouped and carried.

use std::sync::Arc;

use crate::{
    engine::{
        failures::policy::Policy,
        threads::autoscale::{Auto, Numbers},
    },
    order::{self, Groups, Order, Stop},
    record::Task,
};

/// The most threads that read.
pub const MOST_READERS: usize = 256;

/// How records are ordered, grouped and carried, and what becomes of those that fail. The last seven fields
/// change no batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The user's seed.
    pub seed: u64,
    /// How records follow one another, in a mixture those of each source.
    pub order: Order,
    /// Several sources, mixed.
    pub mixture: Option<MixturePlan>,
    /// The row groups of [`Order::Groups`].
    pub groups: Option<Arc<Groups>>,
    /// Slots of the shuffle window of this rank as it first starts; at most the rows of an epoch are used.
    pub window: u64,
    /// Rows of a batch on this rank.
    pub batch_size: usize,
    /// This process among all.
    pub rank: u64,
    /// How many processes share each batch.
    pub world_size: u64,
    /// Canonical streams of an order that has them; `None` for the world size of the first start.
    pub n_streams: Option<u64>,
    /// Whether epochs follow one another without end, and bad records are replaced.
    pub infinite: bool,
    /// Whether a short last batch is left out.
    pub drop_last: bool,
    /// What becomes of records that cannot be had.
    pub policy: Policy,
    /// How far tickets may be ahead of the draws, if the window does not need more.
    pub buffer_size: u64,
    /// Worker threads; the most that are at work if the loader may choose.
    pub n_workers: usize,
    /// I/O threads at most: where each record is a read of its own, at the start of a pass, and for the
    /// blocks read ahead. One, if the source cannot be read by several.
    pub n_readers: usize,
    /// Records in the channel.
    pub channel_size: usize,
    /// Bytes in the channel.
    pub channel_bytes: usize,
    /// Batches that are made ahead, at least 1; the most if the loader may choose.
    pub prefetch_batches: usize,
    /// Which of these numbers the loader finds by itself.
    pub auto: Auto,
}

/// How sources are mixed.
#[derive(Debug, Clone, PartialEq)]
pub struct MixturePlan {
    /// From which position on which weights hold, one for each source.
    pub stages: Vec<order::WeightStage>,
    /// Positions over which the weights hold exactly.
    pub block: u64,
    /// Where a finite pass ends.
    pub stop: Stop,
    /// The first row of each source, and the number of all rows.
    pub starts: Vec<u64>,
}

impl MixturePlan {
    /// Says which rows the sources have; without weights they weigh what they hold.
    pub fn over(&mut self, starts: Vec<u64>) {
        if self.stages.is_empty() {
            let weights = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
            self.stages = vec![order::WeightStage { start: 0, weights }];
        }
        self.starts = starts;
    }
}

impl Plan {
    /// How far tickets of a stream may be ahead of its draws with a window of `size` slots: enough to keep
    /// every worker busy.
    pub(crate) fn credit<K: Task>(&self, size: u64) -> u64 {
        self.buffer_size.max(size + K::ON_HAND * self.n_workers as u64)
    }

    /// The most workers and batches ahead.
    pub(crate) fn numbers(&self) -> Numbers {
        Numbers { workers: self.n_workers, prefetch: self.prefetch_batches }
    }
}
