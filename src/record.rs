//! What flows through the pipeline: a record's bytes go in, an example comes out.
//!
//! The types and traits here are all that neighbouring stages share, so a stage knows these and never its
//! neighbour.

use std::{
    fmt::Debug,
    ops::Range,
    path::Path,
    sync::{Arc, atomic::AtomicU64},
};

use bytes::Bytes;

use crate::{
    Error, ErrorKind, Result,
    fields::{Row, Value},
};

/// What the threads of a task work on, in the user's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    /// What a worker does with an item.
    pub work: &'static str,
    /// An item of readers and workers: a row of the files, or a batch.
    pub item: &'static str,
}

impl Words {
    /// Those of recordings in files.
    pub const DEFAULT: Self = Self { work: "decoding", item: "row" };
}

/// The label of a row whose label is null.
pub const NO_LABEL: i64 = -1;

/// The default limit of a record's bytes: 1 GiB.
pub const MAX_RECORD_BYTES: u64 = 1 << 30;

/// Checks the size of a record before its bytes are read.
///
/// # Errors
/// [`ErrorKind::TooLarge`] for more than `limit`.
pub(crate) fn check_record_bytes(size: u64, limit: u64) -> Result<()> {
    if size <= limit {
        return Ok(());
    }
    let message = format!("the record has {size} bytes, max_record_bytes allows {limit}");
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// An undecoded row of a shard, as a source reads it.
#[derive(Debug, Clone)]
pub struct RawRecord {
    /// The encoded recording, or the document in UTF-8, never empty; a slice of a larger block where rows
    /// were read together. If only an [`Excerpt`] was read, bytes outside of it are unspecified.
    pub bytes: Bytes,
    /// Its other columns, as the source lists them.
    pub values: Row,
}

impl RawRecord {
    /// The class; [`NO_LABEL`] if it is null, or its source has no labels.
    pub fn label(&self) -> i64 {
        self.values.first().and_then(Value::as_int).unwrap_or(NO_LABEL)
    }
}

/// How many bytes of a record a source reads before it calls an [`Excerpt`].
pub const HEAD_BYTES: usize = 4096;

/// Returns which bytes of a record are needed besides its first [`HEAD_BYTES`], given these and the record's
/// size; `None` if all are.
pub type Excerpt<'a> = &'a dyn Fn(&[u8], u64) -> Option<Range<u64>>;

/// Reads of at most this many bytes need no permit: each thread has one in flight, and a block of recordings
/// is no larger.
pub const SMALL_READ: u64 = 4 << 20;

/// How many blocks are read at the same time: with some 3 MiB each, a gigabyte a second where a read takes 50
/// ms.
pub const BLOCKS_AHEAD: usize = 16;

/// Memory that was granted before it was allocated. It is counted until the last share is dropped.
pub trait Granted: Debug + Send + Sync {
    /// Called when the reader no longer keeps it for later rows: it is released when the records that share
    /// it are done.
    fn let_go(&self);

    /// No more than `bytes` of it are needed from now on.
    fn shrink(&self, bytes: u64);
}

/// A share of [`Granted`] memory.
pub type Permit = Arc<dyn Granted>;

/// Grants a reader's requests for memory of more than [`SMALL_READ`] bytes. Its calls wait, so that the
/// memory of all readers together stays bounded; one record of any size is always granted.
pub trait Gate: Send + Sync {
    /// Requests the memory of the record that is being read, best once for all of it. The data read holds the
    /// permit.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the run is stopped.
    fn admit(&self, bytes: u64) -> Result<Permit>;

    /// Requests memory that the reader will keep, for this record and later ones, until [`Granted::let_go`].
    /// For one thread only, and with no other calls than [`Gate::admit`] since the last read.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the run is stopped.
    fn keep(&self, bytes: u64) -> Result<Permit>;

    /// As [`Gate::keep`], for memory that is allocated already, because its size was unknown before.
    fn kept(&self, bytes: u64) -> Permit;

    /// Notes that the record being read lies in memory that was granted before.
    fn covers(&self);

    /// Whether the run is stopped: a long read then ends soon, with or without an error.
    fn is_stopped(&self) -> bool;
}

/// A record on its way to a worker: what crosses the channel.
#[derive(Debug, Clone)]
pub struct Record {
    /// The encoded recording.
    pub bytes: Bytes,
    /// Its other columns, as the source lists them.
    pub values: Row,
    /// The row number over the files as given.
    pub index: u64,
    /// 64 random bits that belong to this record in this epoch: they place the crop.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
}

/// A set of shards whose rows can be read by number.
pub trait Source: Send + Sync + 'static {
    /// What one I/O thread keeps: open files, the current record batch, recycled blocks.
    type Reader: ReadRecords;

    /// The number of rows of each shard, in the order given.
    fn shard_rows(&self) -> Vec<u64>;

    /// The rows of each shard in `epoch`, if epochs differ or rows are still added: asked before each pass.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if there can be no such pass.
    fn shard_rows_in(&self, _epoch: u64) -> Result<Vec<u64>> {
        Ok(self.shard_rows())
    }

    /// The shard of `row` (a number over all files) and the row within it.
    fn locate(&self, row: u64) -> (Arc<Path>, u64);

    /// Whether one row can be read without its neighbours.
    fn random_access(&self) -> bool;

    /// Whether rows may be read in any order at a bearable cost.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if they may not; says why, and what to do.
    fn check_scattered(&self) -> Result<()> {
        Ok(())
    }

    /// How many of the `run` rows from `row` on are best read together, by one thread.
    fn block_rows(&self, _row: u64, _run: u64) -> u64 {
        1
    }

    /// How many threads may read rows in storage order at a gain, each a block of its own.
    fn most_blocks(&self) -> usize {
        1
    }

    /// Bytes of memory that records and reads under way hold now; 0 if it is not known.
    fn bytes_in_use(&self) -> usize {
        0
    }

    /// How often a call to the system failed for a moment and was made again, now and later.
    fn retries(&self) -> Arc<AtomicU64> {
        Arc::default()
    }

    /// A reader of its own for one thread.
    fn reader(self: &Arc<Self>) -> Self::Reader;
}

/// Reads rows for one thread.
pub trait ReadRecords: Send {
    /// From now on the reader requests memory for a large read from `gate`. Without a gate it allocates
    /// without limit.
    fn ask(&mut self, _gate: Arc<dyn Gate>) {}

    /// Reads `row`; `run` rows from it on will be wanted next in storage order (1: this one only). Of a large
    /// record a source may read the `excerpt` alone.
    ///
    /// # Errors
    /// A kind for which [`crate::ErrorKind::is_record`] holds condemns the row, any other the run.
    fn read(&mut self, row: u64, run: u64, excerpt: Excerpt<'_>) -> Result<RawRecord>;
}

/// Makes examples of records, one worker at a time.
pub trait ExampleMaker {
    /// A model-ready item.
    type Example: Send + 'static;

    /// Makes the example of `record`, whose values it may take.
    ///
    /// # Errors
    /// A kind for which [`crate::ErrorKind::is_record`] holds condemns the record, any other the run.
    fn run(&mut self, record: &Record) -> Result<Self::Example>;

    /// As [`ExampleMaker::run`], for a stage that may wait: it fails, in whatever way, soon after
    /// `is_stopped`.
    ///
    /// # Errors
    /// As there.
    fn run_until(&mut self, record: &Record, _is_stopped: &dyn Fn() -> bool) -> Result<Self::Example> {
        self.run(record)
    }
}

/// A record that a collator holds back for later batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The row number over the files as given.
    pub row: u64,
    /// How much of its example went into batches; what that means is the collator's.
    pub used: u32,
}

/// Where a stream stands between two batches, if its batches take as many records as they need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Draws made.
    pub draws: u64,
    /// What the collator holds, in an order of its own.
    pub held: Vec<Held>,
}

/// The standings of all streams of a rank.
pub type Standings = Arc<[Standing]>;

/// Puts examples into the rows of a batch.
///
/// Most batches have a row for each example, and the order says which. A collator that [`Collate::wants`]
/// examples instead takes as many of each stream as it needs to fill the rows that belong to the stream, and
/// may hold some back; the methods from there on are for such a one alone.
pub trait Collate: Send {
    /// What a stage makes.
    type Example: Send + 'static;
    /// What the user gets.
    type Batch: Send + 'static;

    /// Whether a batch of a finite pass without rows, since all its records are bad, is left out if there are
    /// no other ranks. Not for tasks that count batches as they come.
    const LEAVES_OUT_EMPTY: bool = true;

    /// Writes `example` into `row` of the batch under way, each row once; or takes it for its stream, if it
    /// is a wanted one.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Memory`] if there is none for the batch. It ends the run.
    fn put(&mut self, stream: usize, row: usize, example: Self::Example) -> Result<()>;

    /// Hands out the batch under way, cut to its first `rows` rows, and begins the next.
    fn take(&mut self, rows: usize) -> Self::Batch;

    /// The rows of `batch` for the user; it was cut to `rows`.
    fn examples(_batch: &Self::Batch, rows: usize) -> usize {
        rows
    }

    /// Does what can be done for the batch under way, and tells whether it takes another example of `stream`;
    /// `None` if that is a matter of counting.
    ///
    /// # Errors
    /// As [`Collate::put`].
    fn wants(&mut self, _stream: usize) -> Result<Option<bool>> {
        Ok(None)
    }

    /// Learns that the record of `row`, which was next in `stream`, is bad.
    fn miss(&mut self, _stream: usize, _row: u64) {}

    /// Learns that no further example of `stream` comes in this pass, whatever it wants.
    fn end(&mut self, _stream: usize) {}

    /// The rows of the batch under way that are complete.
    fn rows(&self) -> usize {
        0
    }

    /// What it holds of `stream` between two batches.
    fn held(&self, _stream: usize) -> Vec<Held> {
        Vec::new()
    }

    /// Takes up again what was held of `stream`, one after another in the same order.
    ///
    /// # Errors
    /// [`crate::ErrorKind::State`] if the example cannot have been used so far.
    fn hold(&mut self, _stream: usize, _held: Held, _example: Self::Example) -> Result<()> {
        Ok(())
    }
}

/// The batches that a collator makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches {
    /// Rows at most.
    pub size: usize,
    /// Streams that fill them; if batches are not counted, each has the same number of rows.
    pub n_streams: usize,
    /// How many are made before they are asked for: the memory of that many, and of some that were in use, is
    /// worth keeping when the user lets go of them.
    pub ahead: usize,
}

/// A kind of loading: how examples are made and how they become batches.
pub trait Task: Send + Sync + 'static {
    /// How many records a worker has before it, in its hands and in the queues: enough to be busy, and as
    /// many examples in memory.
    const ON_HAND: u64 = 8;

    /// What the threads work on, in words for the user.
    const WORDS: Words = Words::DEFAULT;

    /// The workers' part.
    type Maker: ExampleMaker;
    /// The consumer's part.
    type Collate: Collate<Example = <Self::Maker as ExampleMaker>::Example> + 'static;

    /// A stage for one worker, called on the worker's thread.
    fn maker(&self) -> Self::Maker;

    /// The [`Excerpt`] of a record that will carry `seed`. By default all of it.
    fn excerpt(&self, _head: &[u8], _size: u64, _seed: u64) -> Option<Range<u64>> {
        None
    }

    /// A collator of such batches.
    fn collate(&self, batches: Batches) -> Self::Collate;
}

/// What a task's workers make.
pub type ExampleOf<K> = <<K as Task>::Maker as ExampleMaker>::Example;
/// What a task's collator makes.
pub type BatchOf<K> = <<K as Task>::Collate as Collate>::Batch;
