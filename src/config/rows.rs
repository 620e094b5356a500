//! The parameters of a loader of datasets.

use super::{Count, STALL_WARNING_S, check_stall_warning, shown, workers};
use crate::{
    Error, ErrorKind, Result,
    engine::{AUTO_PREFETCH, Auto, Plan, Policy},
    memory::RAW_CHANNEL_BYTES,
    order::Order,
    tasks::RowShare,
};

/// Parameters of a loader of datasets, in the order of its signature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowConfig {
    /// Rows of a batch on this rank.
    pub batch_size: i64,
    /// This process, counted from 0.
    pub rank: i64,
    /// How many processes share each batch.
    pub world_size: i64,
    /// The batch to begin with, counted on from pass to pass.
    pub start_step: i64,
    /// Batches that are made ahead.
    pub prefetch_batches: Count,
    /// Threads that make batches.
    pub n_workers: Count,
    /// Whether a last batch with fewer rows is left out.
    pub drop_last: bool,
    /// Seconds of waiting for a batch after which a warning says which thread is waited for; none if not given.
    pub stall_warning_s: Option<f64>,
}

impl RowConfig {
    /// With the defaults.
    pub fn new(batch_size: i64) -> Self {
        Self {
            batch_size,
            rank: 0,
            world_size: 1,
            start_step: 0,
            prefetch_batches: Count::Exactly(4),
            n_workers: Count::Exactly(4),
            drop_last: false,
            stall_warning_s: STALL_WARNING_S,
        }
    }

    /// The plan of the engine, whose examples are batches, and the part of each that is this rank's.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names every parameter at fault.
    pub fn check(&self) -> Result<(Plan, RowShare)> {
        let mut problems = Vec::new();
        let (n_workers, auto_workers) = workers(self.n_workers, None, &mut problems);
        let mut whole = |name: &str, value: i64, from: i64, to: i64| {
            if !(from..=to).contains(&value) {
                problems.push(format!("{name} is {}, must be {from} to {to}", shown(value)));
            }
        };
        let prefetch_batches = match self.prefetch_batches {
            Count::Auto => AUTO_PREFETCH[1] as i64,
            Count::Exactly(n) => n,
        };
        whole("batch_size", self.batch_size, 1, 1 << 20);
        whole("world_size", self.world_size, 1, 1 << 20);
        whole("rank", self.rank, 0, (self.world_size - 1).clamp(0, 1 << 20));
        whole("start_step", self.start_step, 0, 1 << 40);
        whole("prefetch_batches", prefetch_batches, 1, 1024);
        check_stall_warning(self.stall_warning_s, &mut problems);
        if !problems.is_empty() {
            return Err(Error::new(ErrorKind::Config, problems.join("; ")));
        }
        let plan = Plan {
            seed: 0,
            order: Order::Sequential,
            mixture: None,
            groups: None,
            window: 1,
            batch_size: 1,
            rank: 0,
            world_size: 1,
            n_streams: None,
            infinite: false,
            drop_last: false,
            buffer_size: 1,
            n_workers: n_workers as usize,
            n_readers: 1,
            channel_size: n_workers as usize,
            channel_bytes: RAW_CHANNEL_BYTES as usize,
            prefetch_batches: prefetch_batches as usize,
            auto: Auto { workers: auto_workers, prefetch: self.prefetch_batches == Count::Auto },
            // A batch is a record: to leave one out would be to train on other data.
            policy: Policy { skip_bad: false, ..Policy::default() },
        };
        let share = RowShare {
            rank: self.rank as u64,
            world_size: self.world_size as u64,
            batch_size: self.batch_size as u64,
            drop_last: self.drop_last,
        };
        Ok((plan, share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_told_at_once() {
        let config = RowConfig {
            rank: 2,
            world_size: 2,
            start_step: -1,
            prefetch_batches: Count::Exactly(0),
            ..RowConfig::new(0)
        };
        let message = config.check().unwrap_err().message;
        for part in [
            "batch_size is 0, must be 1",
            "rank is 2, must be 0 to 1",
            "start_step is -1",
            "prefetch_batches is 0",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
