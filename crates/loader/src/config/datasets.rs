//! The parameters of a loader of datasets.

use super::{
    bound_cpus, prefetched, rank_problem,
    table::{check, choices, config_struct, first, identity_word, value},
    workers,
};
use crate::{
    Error, ErrorKind, Result,
    engine::{Auto, Plan, Policy},
    memory::RAW_CHANNEL_BYTES,
    tasks::DatasetShare,
};

/// Hands the rows of the table of `forebay.cache.DataLoader` to a macro.
#[macro_export]
#[doc(hidden)]
macro_rules! row_parameters {
    ($with:ident) => {
        $crate::parameter_table! { $with
        /// Parameters of a loader of datasets, in the order of its signature.
        #[derive(Debug, Clone, PartialEq)]
        struct DatasetConfig as "DataLoader" {
        /// The dataset to read. A mixture without a block_size uses the global batch as its block, so that
        /// each batch has fixed counts.
        dataset: Dataset, state(dataset), elsewhere(ds, data, source, data_source);
        /// Rows per batch on this rank.
        batch_size: Int, state(global_batch_size), range(1, 1 << 20), elsewhere(batchsize, bs, batch);
        /// Rank of this process among those that share each batch, from 0.
        rank: Int = 0, free, elsewhere(shard_id, local_rank, process_index, process_id, node_rank);
        /// Number of processes that share each batch.
        world_size: Int = 1, state(global_batch_size), range(1, 1 << 20),
            elsewhere(num_replicas, num_shards, process_count, n_ranks, num_processes);
        /// Number of the first batch, counted across passes from 0. If passes of a mixture differ in length,
        /// they are counted one by one, up to 2**20 passes.
        start_step: Int = 0, free, range(0, 1 << 40),
            elsewhere(start, initial_step, start_batch, skip_batches);
        /// Batches prefetched ahead of the loop.
        prefetch_batches: CountOrAuto = 4, free, range(1, 1024),
            elsewhere(prefetch, prefetch_factor, prefetch_size, max_buffered_batches, num_prefetch);
        "*";
        /// Threads that make batches.
        n_workers: CountOrAuto = 4, free, range(1, 1024),
            elsewhere(num_workers, workers, worker_count, num_threads, n_threads, num_proc, n_jobs);
        /// Drops an incomplete last batch.
        drop_last: Bool = false, state, elsewhere(drop_last_batch, drop_remainder);
        /// Type of the fields of whole numbers: `"int32"`, `"int64"`, `"uint16"` or `"uint32"`. Numbers are
        /// converted while they are read; a number that does not fit raises ConfigError with row and number.
        /// None: that of the dataset, int32 for windows of tokens.
        dtype: OptionalText = None, free, one_of("int32", "int64", "uint16", "uint32"),
            elsewhere(torch_dtype, output_dtype);
        /// Added to the niceness of the threads that make batches, so that the training loop comes first
        /// where all cores are busy: 0 to 19; 0 gives them the same share of the cores. Linux only. Does not
        /// affect batches.
        worker_nice: Int = 10, free, range(0, 19), elsewhere(nice, niceness, priority, thread_priority);
        /// The CPUs that the loader's threads run on, as a list such as `"0-7,16"`: processes of one machine
        /// share its cores out, each near its accelerator. `n_workers="auto"` is at most their number. Linux
        /// only. Does not affect batches. None: all that the process may use.
        cpus: OptionalText = None, free, elsewhere(cpu_affinity, affinity, cpu_set, cpuset);
        /// Seconds after which a waiting `next()` logs a warning that names the thread it waits for, and
        /// again after ten times as long. Does not affect batches. None: never.
        stall_warning_s: OptionalFloat = 30.0, free, above(0), elsewhere(stall_timeout);
        } }
    };
}

crate::row_parameters!(config_struct);

impl DatasetConfig {
    /// A configuration with this batch size and the defaults.
    pub fn new(batch_size: i64) -> Self {
        Self { batch_size, ..Self::default() }
    }

    /// The plan of the engine, whose examples are batches, and this rank's part of each batch.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names every wrong parameter.
    pub fn check(&self) -> Result<(Plan, DatasetShare)> {
        let mut problems = self.problems();
        problems.extend(rank_problem(self.rank, self.world_size));
        let cpus = bound_cpus(self.cpus.as_deref(), &mut problems);
        let (n_workers, auto_workers) = workers(self.n_workers, None, cpus.as_ref(), &mut problems);
        let (prefetch, auto_prefetch) = prefetched(self.prefetch_batches);
        if !problems.is_empty() {
            return Err(Error::new(ErrorKind::Config, problems.join("; ")));
        }
        let plan = Plan {
            n_workers: n_workers as usize,
            // A record is a batch: the one in progress, and one that waits for its hand-over.
            records_per_worker: 2,
            worker_nice: self.worker_nice as u8,
            cpus,
            channel_size: n_workers as usize,
            channel_bytes: RAW_CHANNEL_BYTES as usize,
            prefetch_batches: prefetch as usize,
            auto: Auto { workers: auto_workers, prefetch: auto_prefetch },
            // A record is a batch, and leaving a batch out would change the training data.
            policy: Policy { skip_bad: false, ..Policy::default() },
            ..Plan::default()
        };
        let share = DatasetShare {
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
    use super::{super::CountOrAuto, *};

    #[test]
    fn all_problems_are_told_at_once() {
        let config = DatasetConfig {
            rank: 2,
            world_size: 2,
            start_step: -1,
            prefetch_batches: CountOrAuto::Exactly(0),
            ..DatasetConfig::new(0)
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
