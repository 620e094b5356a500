//! The types and traits between the stages of the pipeline: records in, examples and batches out.
//!
//! Stages share only what is defined here, so a stage never depends on its neighbour. What a record holds
//! ([`Payload`]) and what a task may ask of a reader (`Request`) are types of the source and the task: the
//! engine passes both on.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | `RowStore`, `Source` and `ReadRecords`, `Task` and `ExampleMaker` |
//! | `record.rs` | what a source reads for a row, and what a worker takes |
//! | `collate.rs` | how examples become batches |
//! | `memory.rs` | memory for large reads |
//! | `labels.rs` | the words of messages |

mod collate;
mod labels;
mod memory;
mod record;

use std::sync::Arc;

pub use collate::{
    BatchSizes, BatchSlot, CarriedRecord, Collate, PackRows, StreamPosition, StreamPositions, StreamShare,
};
pub use labels::{StorageLabels, TaskLabels};
pub use memory::{GrantedMemory, Kept, MemoryLimiter, Permit, Retained, SMALL_READ};
pub use record::{Payload, RawRecord, Record};

use crate::{Result, error::Place, order::Assignment};

/// A set of shards: how many rows they have, where these are, and what reading them costs.
pub trait RowStore: Send + Sync + 'static {
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

    /// The I/O threads for reads of single records, if the user asks for `n_readers`.
    fn scattered_readers(&self, n_readers: usize) -> usize {
        n_readers
    }

    /// Bytes of memory that records and reads in flight hold now; 0 if unknown.
    fn bytes_in_use(&self) -> usize {
        0
    }

    /// Ends the threads that its files need. They start again if they are needed.
    fn end_threads(&self) {}

    /// What limits its reads, in the words of messages.
    fn storage_labels(&self) -> StorageLabels {
        StorageLabels::LOCAL
    }
}

/// A set of shards whose rows can be read by number.
pub trait Source: RowStore {
    /// The state of one I/O thread: open files, the current record batch, recycled blocks.
    type Reader: ReadRecords;

    /// A new reader for one thread.
    fn reader(self: &Arc<Self>) -> Self::Reader;
}

/// Reads rows for one I/O thread, and keeps what it has opened from row to row.
pub trait ReadRecords: Send {
    /// What a record holds besides its columns.
    type Payload: Payload;
    /// What may be asked of a record, so that not all of it need be read.
    type Request<'a>: ?Sized;

    /// Sets the limiter from which the reader requests memory for large reads. Without a limiter it allocates
    /// without limit.
    fn set_limiter(&mut self, _limiter: Arc<dyn MemoryLimiter>) {}

    /// Notes that the next run ends before row `end`, after which `row` will be read: a source may announce
    /// what it will need.
    fn hint_next(&mut self, _end: u64, _row: Option<u64>) {}

    /// Notes that the thread's job is over, and that another thread may read the rows after it: a record
    /// that is kept for these is dropped.
    fn end_job(&mut self) {}

    /// Reads `row`. The next reads will be the `run` rows from `row` on, in storage order (1: this row only).
    /// Of a large record a source may read only what `request` says.
    ///
    /// # Errors
    /// With a kind for which [`crate::ErrorKind::is_record`] holds, the row is bad;
    /// [`crate::ErrorKind::PastEnd`] ends the pass before the batch of this row; any other kind ends the run.
    fn read(&mut self, row: u64, run: u64, request: &Self::Request<'_>) -> Result<RawRecord<Self::Payload>>;
}

/// Makes examples of records, for one worker.
pub trait ExampleMaker {
    /// As [`ReadRecords::Payload`].
    type Payload;
    type Example: Send + 'static;

    /// Makes the example of `record`. A stage that waits returns soon after
    /// [`forebay_base::cancel::is_stopped`] is true, with any error.
    ///
    /// # Errors
    /// As [`ReadRecords::read`].
    fn run(&mut self, record: &Record<Self::Payload>) -> Result<Self::Example>;
}

/// A kind of loading: how examples are made and how they become batches.
pub trait Task: Send + Sync + 'static {
    /// The words of messages for the threads' work.
    const WORDS: TaskLabels = TaskLabels::DEFAULT;

    /// As [`ReadRecords::Payload`].
    type Payload: Payload;
    /// As [`ReadRecords::Request`].
    type Request<'a>: ?Sized;
    type Maker: ExampleMaker<Payload = Self::Payload>;
    /// The stage of the collator's thread.
    type Collate: Collate<Example = <Self::Maker as ExampleMaker>::Example> + 'static;

    /// Calls `read` with what the task needs of the record that is `assigned`.
    fn request<R>(&self, assigned: &Assignment, read: impl FnOnce(&Self::Request<'_>) -> R) -> R;

    /// A maker for one worker, called on the worker's thread.
    fn maker(&self) -> Self::Maker;

    /// A collator of batches of that number and size.
    fn collate(&self, batches: BatchSizes) -> Self::Collate;
}

/// A task that takes the records of a source `S`.
pub trait TaskFor<S: Source>: for<'a> Task<Payload = PayloadOf<S>, Request<'a> = RequestOf<'a, S>> {}

impl<S: Source, K: for<'a> Task<Payload = PayloadOf<S>, Request<'a> = RequestOf<'a, S>>> TaskFor<S> for K {}

pub type PayloadOf<S> = <<S as Source>::Reader as ReadRecords>::Payload;

pub type RequestOf<'a, S> = <<S as Source>::Reader as ReadRecords>::Request<'a>;

pub type ExampleOf<K> = <<K as Task>::Maker as ExampleMaker>::Example;

pub type BatchOf<K> = <<K as Task>::Collate as Collate>::Batch;
