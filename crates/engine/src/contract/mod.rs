//! The types and traits between the stages of the pipeline: records in, examples and batches out.
//!
//! Stages share only what is defined here, so a stage never depends on its neighbour.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | `Source` and `ReadRecords`, `Task` and `ExampleMaker` |
//! | `record.rs` | what a source reads for a row, and what a worker takes |
//! | `request.rs` | what a task needs of a record that is about to be read |
//! | `collate.rs` | how examples become batches |
//! | `memory.rs` | memory for large reads |
//! | `traffic.rs` | what the files of a source cost |
//! | `labels.rs` | the words of messages |

mod collate;
mod labels;
mod memory;
mod record;
mod request;
mod traffic;

use std::{fmt::Debug, ops::Range, sync::Arc};

pub use collate::{BatchSizes, BatchSlot, CarriedRecord, Collate, PackRows, StreamPosition, StreamPositions};
pub use labels::TaskLabels;
pub use memory::{GrantedMemory, Kept, MemoryLimiter, Permit, Retained, SMALL_READ};
pub use record::{
    FileRecording, MAX_RECORD_BYTES, NO_LABEL, RawRecord, Record, Segment, WindowRun, check_record_bytes,
};
pub use request::{Excerpt, HEAD_BYTES, ReadRequest, RunRequest, WholeRecord};
pub use traffic::{BLOCKS_AHEAD, MOST_REQUESTED, Traffic, scattered_readers};

use crate::{Result, error::Place, fields::Row};

/// A set of shards whose rows can be read by number.
pub trait Source: Send + Sync + 'static {
    /// The state of one I/O thread: open files, the current record batch, recycled blocks.
    type Reader: ReadRecords;

    /// The number of rows of each shard in the pass `epoch`, in the order given. Passes may differ.
    ///
    /// While rows are still added it is the most that there may be, and the first read past the end ends the
    /// pass ([`crate::ErrorKind::PastEnd`]); the engine then asks again.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if the pass is impossible.
    fn shard_rows(&self, epoch: u64) -> Result<Vec<u64>>;

    /// The shard of `row` (a number over all files), the row within it, and the path of its recording, as far
    /// as it has them, for messages.
    fn place(&self, row: u64) -> Place;

    /// Whether one row can be read without its neighbours.
    fn random_access(&self) -> bool;

    /// Checks that rows can be read in a random order at an acceptable cost.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if they cannot; the message says why and what to do.
    fn check_scattered(&self) -> Result<()> {
        Ok(())
    }

    /// How many of the `run` rows from `row` on one thread should read together.
    fn block_rows(&self, _row: u64, _run: u64) -> u64 {
        1
    }

    /// The number of blocks in storage order that are worth reading at the same time, one per thread.
    fn most_blocks(&self) -> usize {
        1
    }

    /// Bytes of memory that records and reads in flight hold now; 0 if unknown.
    fn bytes_in_use(&self) -> usize {
        0
    }

    /// Ends the threads that its files need. They start again if they are needed.
    fn rest(&self) {}

    /// What its files cost so far.
    fn traffic(&self) -> Arc<Traffic> {
        Arc::default()
    }

    /// A new reader for one thread.
    fn reader(self: &Arc<Self>) -> Self::Reader;
}

/// Reads rows for one thread.
pub trait ReadRecords: Send {
    /// Sets the limiter from which the reader requests memory for large reads. Without a limiter it allocates
    /// without limit.
    fn set_limiter(&mut self, _gate: Arc<dyn MemoryLimiter>) {}

    /// Notes that the next run ends before row `end`, after which `row` will be read: a source may announce
    /// what it will need.
    fn hint_next(&mut self, _end: u64, _row: Option<u64>) {}

    /// Notes that the thread's job is over, and that another thread may read the rows after it: a record
    /// that is kept for these is dropped.
    fn end_job(&mut self) {}

    /// Reads `row`. The next reads will be the `run` rows from `row` on, in storage order (1: this row only).
    /// Of a large record a source may read only what is wanted.
    ///
    /// # Errors
    /// With a kind for which [`crate::ErrorKind::is_record`] holds, the row is bad;
    /// [`crate::ErrorKind::PastEnd`] ends the pass before the batch of this row; any other kind ends the run.
    fn read(&mut self, row: u64, run: u64, request: &dyn ReadRequest) -> Result<RawRecord>;
}

/// Makes examples of records, for one worker.
pub trait ExampleMaker {
    type Example: Send + 'static;

    /// Makes the example of `record`. A stage that waits returns soon after
    /// [`forebay_base::cancel::is_stopped`] is true, with any error.
    ///
    /// # Errors
    /// As [`ReadRecords::read`].
    fn run(&mut self, record: &Record) -> Result<Self::Example>;
}

/// A kind of loading: how examples are made and how they become batches.
pub trait Task: Send + Sync + 'static {
    /// The words of messages for the threads' work.
    const WORDS: TaskLabels = TaskLabels::DEFAULT;

    /// Whether [`Task::span`] says which samples of a recording are needed.
    const TAKES_SPANS: bool = false;

    type Maker: ExampleMaker;
    /// The stage of the collator's thread.
    type Collate: Collate<Example = <Self::Maker as ExampleMaker>::Example> + 'static;

    /// A stage for one worker, called on the worker's thread.
    fn maker(&self) -> Self::Maker;

    /// The [`Excerpt`] of a record, for the positions `at` that are all of this record; the first has this
    /// `seed`. By default all of it.
    fn excerpt(&self, _head: &[u8], _size: u64, _at: Range<u64>, _seed: u64) -> Option<Range<u64>> {
        None
    }

    /// The samples that are needed of a row with this rate, length and values, for the positions `at`: see
    /// [`ReadRequest::span`].
    fn span(&self, _of: (u32, u64, &Row), _at: Range<u64>, _seed: u64) -> Option<Range<u64>> {
        None
    }

    /// A collator of batches of that number and size.
    fn collate(&self, batches: BatchSizes) -> Self::Collate;
}

/// What a task wants of the record at position `at`, with this `seed`.
#[derive(Debug)]
pub(crate) struct TaskRequest<'a, K> {
    pub task: &'a K,
    pub at: u64,
    pub seed: u64,
    pub repeats: bool,
}

impl<K: Task> ReadRequest for TaskRequest<'_, K> {
    fn excerpt(&self, head: &[u8], size: u64) -> Option<Range<u64>> {
        // The next one wants another excerpt.
        if self.repeats { None } else { self.excerpt_of(1, head, size) }
    }

    fn repeats(&self) -> bool {
        self.repeats
    }

    fn takes_spans(&self) -> bool {
        K::TAKES_SPANS
    }

    fn span(&self, sample_rate: u32, n_samples: u64, values: &Row) -> Option<Range<u64>> {
        self.span_of(1, sample_rate, n_samples, values)
    }

    fn excerpt_of(&self, n: u64, head: &[u8], size: u64) -> Option<Range<u64>> {
        self.task.excerpt(head, size, self.at..self.at + n, self.seed)
    }

    fn span_of(&self, n: u64, sample_rate: u32, n_samples: u64, values: &Row) -> Option<Range<u64>> {
        self.task.span((sample_rate, n_samples, values), self.at..self.at + n, self.seed)
    }
}

pub type ExampleOf<K> = <<K as Task>::Maker as ExampleMaker>::Example;

pub type BatchOf<K> = <<K as Task>::Collate as Collate>::Batch;
