//! [`Plan`]: how records are ordered, grouped into batches and transported, from the user's parameters.

use std::sync::Arc;

use crate::{
    engine::{
        failures::policy::Policy,
        threads::{
            autoscale::{Auto, Numbers},
            cpus::Cpus,
        },
    },
    order::{self, Batching, Groups, Order, Stop, WeightedRows},
};

/// Batches whose examples may be made ahead of the draws before the credit is raised.
const BATCHES_AHEAD: u64 = 3;
/// The largest number of I/O threads.
pub const MOST_READERS: usize = 256;

/// How many tickets may be ahead of the draws: at first, and at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credit {
    pub first: u64,
    /// At most: it is raised by need.
    pub most: u64,
}

/// The credit beyond the window at first: a read for each I/O thread, the records on hand for the workers,
/// and a few batches.
pub fn credit_ahead(n_readers: usize, on_hand: u64, per_batch: u64) -> u64 {
    (n_readers as u64).saturating_add(on_hand).saturating_add(BATCHES_AHEAD.saturating_mul(per_batch))
}

/// How records are ordered, grouped into batches and transported, and how failed ones are handled. The
/// fields from `buffer_size` on change no batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub seed: u64,
    /// The order of records; in a mixture, of the records of each source.
    pub order: Order,
    /// How several sources are mixed, if there are several.
    pub mixture: Option<MixturePlan>,
    /// The weights of the rows, if they have any: of all, or of each source of the mixture.
    pub weights: Option<Arc<[Arc<WeightedRows>]>>,
    pub groups: Option<Arc<Groups>>,
    /// Slots of this rank's shuffle window at the first start; at most the rows of an epoch are used.
    pub window: u64,
    /// Which draws become a batch of this rank.
    pub batching: Batching,
    /// The number of this process, from 0.
    pub rank: u64,
    /// The number of processes that share each batch.
    pub world_size: u64,
    /// Canonical streams, for orders that have them; `None` for the world size of the first start.
    pub n_streams: Option<u64>,
    /// Whether epochs repeat without end and bad records are replaced.
    pub infinite: bool,
    /// Whether a short last batch is left out.
    pub drop_last: bool,
    /// How failed and excluded records are handled.
    pub policy: Policy,
    /// How many tickets may be ahead of the draws at most; raised if window and workers need more.
    pub buffer_size: u64,
    /// Worker threads; the maximum if the loader chooses the number.
    pub n_workers: usize,
    /// Records for each worker, in the worker and in the queues: enough to keep it busy. As many examples may
    /// be in memory.
    pub records_per_worker: u64,
    /// What is added to the niceness of the workers.
    pub worker_nice: u8,
    /// The CPUs that the threads may run on; `None`: those of the process.
    pub cpus: Option<Cpus>,
    /// The maximum number of I/O threads. In storage order it is 1 if several threads cannot read the source.
    pub n_readers: usize,
    /// The maximum number of records in the channel to the workers.
    pub channel_size: usize,
    /// The maximum number of bytes in flight to the workers.
    pub channel_bytes: usize,
    /// Batches made ahead, at least 1; the maximum if the loader chooses the number.
    pub prefetch_batches: usize,
    /// Which of these numbers the loader chooses itself.
    pub auto: Auto,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MixturePlan {
    /// The weights, one for each source, and the position from which they hold.
    pub stages: Vec<order::WeightStage>,
    /// The number of positions over which the weights hold exactly.
    pub block: u64,
    pub stop: Stop,
    /// The first row of each source, then the total number of rows.
    pub starts: Vec<u64>,
}

impl MixturePlan {
    /// Sets the rows of the sources. Without weights, each source is weighted by its number of rows.
    pub fn over(&mut self, starts: Vec<u64>) {
        if self.stages.is_empty() {
            let weights = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
            self.stages = vec![order::WeightStage { start: 0, weights }];
        }
        self.starts = starts;
    }
}

impl Default for Plan {
    /// One pass over a source in storage order, in batches of one row, by a thread for each stage.
    fn default() -> Self {
        Self {
            seed: 0,
            order: Order::Sequential,
            mixture: None,
            weights: None,
            groups: None,
            window: 1,
            batching: Batching::Rows(1),
            rank: 0,
            world_size: 1,
            n_streams: None,
            infinite: false,
            drop_last: false,
            policy: Policy::default(),
            buffer_size: 1,
            n_workers: 1,
            records_per_worker: 8,
            worker_nice: 0,
            cpus: None,
            n_readers: 1,
            channel_size: 1,
            channel_bytes: 1 << 20,
            prefetch_batches: 1,
            auto: Auto::default(),
        }
    }
}

impl Plan {
    /// Whether each record costs a read of its own: by the order, or because rows of one length lie apart.
    pub fn is_scattered(&self) -> bool {
        self.order.is_scattered() || self.batching.is_cut()
    }

    /// Whether ranks divide canonical streams, whose number the first start fixes.
    pub(crate) fn has_streams(&self) -> bool {
        self.order.is_streamed() || self.batching.is_cut()
    }

    /// The credit of a stream with a window of `size` slots, read by `n_readers` threads, of which a batch
    /// has `per_batch` examples.
    pub(crate) fn credit(&self, size: u64, n_readers: usize, per_batch: u64) -> Credit {
        let on_hand = self.on_hand();
        let most = self.buffer_size.max(size + on_hand);
        let ahead = credit_ahead(n_readers, on_hand, per_batch);
        Credit { first: size.saturating_add(ahead).min(most), most }
    }

    /// Records for all workers, in the workers and in the queues.
    pub fn on_hand(&self) -> u64 {
        self.records_per_worker * self.n_workers as u64
    }

    /// The maximum numbers of workers and of batches ahead.
    pub(crate) fn numbers(&self) -> Numbers {
        Numbers { workers: self.n_workers, prefetch: self.prefetch_batches }
    }
}
