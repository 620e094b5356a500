//! [`DatasetTask`] loads rows of a dataset: each worker makes a whole batch.
//!
//! Records of this task are the numbers of batches. Rows of a batch are mapped and read together, so that
//! adjacent rows are one read and a user's leaf is called once. Workers make different batches, and none
//! waits for another. So the engine's order is `sequential`, and it counts batches. The task handles ranks:
//! it makes this rank's rows of each batch.
//!
//! A dataset may be written in Python. Its methods are called by workers, and by the caller's thread before
//! the engine is taken ([`DatasetSource::update_lengths`]): a method may call the loader, and a signal
//! handler may interrupt it.
//!
//! While rows are still added, the number of batches is unknown: the pass then has [`UNCOUNTED`] batches, and
//! the first batch past the end ends it ([`ErrorKind::PastEnd`]).

use std::{
    sync::{
        Arc, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    Error, ErrorKind, Result, cancel,
    contract::{
        BatchSizes, BatchSlot, Collate, ExampleMaker, RawRecord, ReadRecords, Record, RowStore, Source, Task,
        TaskLabels,
    },
    dataset::{Dataset, LeafLength},
    engine::{State, during},
    error::Place,
    fields::{ColumnPool, Columns, Row},
    memory::batch_slots,
    order::Assignment,
    sync::plain::{Mutex, MutexGuard},
};

/// The number of batches of a pass whose end is unknown.
pub const UNCOUNTED: u64 = 1 << 40;

/// How batches and ranks divide the rows of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatasetShare {
    /// The number of this process, from 0.
    pub rank: u64,
    pub world_size: u64,
    /// Rows of a batch on each rank.
    pub batch_size: u64,
    /// Whether a last batch with fewer rows is left out.
    pub drop_last: bool,
}

impl DatasetShare {
    /// Rows of a batch over all ranks.
    pub fn global_batch(&self) -> u64 {
        self.batch_size * self.world_size
    }

    /// The number of batches of a pass over `rows` rows.
    pub fn n_batches(&self, rows: u64) -> u64 {
        if self.drop_last { rows / self.global_batch() } else { rows.div_ceil(self.global_batch()) }
    }

    /// This rank's positions in a batch, of a dataset of `rows` rows; `None` if there is no such batch.
    fn positions(&self, batch: u64, rows: u64) -> Option<std::ops::Range<u64>> {
        if batch >= self.n_batches(rows) {
            return None;
        }
        let Self { rank, world_size, .. } = *self;
        let begin = batch * self.global_batch();
        let n = u128::from((rows - begin).min(self.global_batch()));
        let cut = |part: u64| begin + (n * u128::from(part) / u128::from(world_size)) as u64;
        Some(cut(rank)..cut(rank + 1))
    }
}

/// The batches of a dataset as records, by number.
#[derive(Debug)]
pub struct DatasetSource {
    /// For arithmetic only; its leaves are not called.
    dataset: Mutex<Dataset>,
    leaves: Dataset,
    /// The lengths of the leaves when they were last asked.
    lengths: Mutex<Arc<[LeafLength]>>,
    share: DatasetShare,
}

impl DatasetSource {
    /// Creates the source of the batches of `dataset`.
    ///
    /// # Errors
    /// Those of leaves.
    pub fn new(dataset: Dataset, share: DatasetShare) -> Result<Self> {
        let lengths = Mutex::new(dataset.lengths()?.into());
        Ok(Self { dataset: Mutex::new(dataset.clone()), leaves: dataset, lengths, share })
    }

    /// Asks the leaves for their lengths, unless these are final.
    ///
    /// # Errors
    /// Those of leaves.
    pub fn update_lengths(&self) -> Result<()> {
        if self.lengths().iter().all(|length| length.is_final) {
            return Ok(());
        }
        let found = self.leaves.lengths()?.into();
        *self.lengths.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }

    fn lengths(&self) -> Arc<[LeafLength]> {
        self.lengths.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The dataset, for arithmetic with [`Self::lengths`].
    fn dataset(&self) -> MutexGuard<'_, Dataset> {
        self.dataset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the search for the batch that is `step` batches after the first one of the first pass.
    ///
    /// # Errors
    /// As [`Self::length`]; [`ErrorKind::Config`] if there is no such batch, or it is more than
    /// [`COUNTED_PASSES`] passes away and they differ in length.
    pub fn steps_to(&self, step: u64) -> Result<Steps> {
        let length = self.length(0)?;
        if !length.is_final || length.is_endless() {
            if step >= UNCOUNTED {
                let message = format!(
                    "start_step is {step}, and the dataset has no end (yet): the last batch that you can choose is {}",
                    UNCOUNTED - 1
                );
                return Err(Error::new(ErrorKind::Config, message));
            }
            return Ok(Steps { epoch: 0, left: step, all_alike: Some(UNCOUNTED) });
        }
        let lengths = self.lengths();
        let (least, most) = self.dataset().length_bounds_of(&lengths)?;
        let [least, most] = [least, most].map(|rows| self.share.n_batches(rows));
        if least != most && step / most.max(1) > COUNTED_PASSES {
            let message = format!(
                "start_step is {step}, more than {COUNTED_PASSES} passes of at most {most} batches away, and passes of this mixture \
                 differ in length; leave start_step out, and choose the pass by set_epoch() and the batch by seek()"
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok(Steps { epoch: 0, left: step, all_alike: (least == most).then_some(least) })
    }

    /// The number of rows in `epoch` as of the last [`Self::update_lengths`].
    ///
    /// # Errors
    /// As [`Dataset::length_of`].
    pub fn length(&self, epoch: u64) -> Result<LeafLength> {
        let lengths = self.lengths();
        self.dataset().length_of(epoch, &lengths)
    }
}

/// The maximum number of passes that are counted one by one.
pub const COUNTED_PASSES: u64 = 1 << 20;

/// The search for a batch whose number counts from the first pass.
#[derive(Debug)]
pub struct Steps {
    epoch: u64,
    /// Batches left to count, from the start of this pass.
    left: u64,
    /// The batches of each pass, if all have the same number.
    all_alike: Option<u64>,
}

impl Steps {
    /// Continues the search: the pass and the number of the batch in it; `None` if it was not found within
    /// `time`.
    ///
    /// # Errors
    /// As [`RowStore::shard_rows`].
    pub fn go_on(&mut self, source: &DatasetSource, time: Duration) -> Result<Option<(u64, u64)>> {
        if let Some(n @ 1..) = self.all_alike {
            return Ok(Some((self.epoch + self.left / n, self.left % n)));
        }
        let begin = Instant::now();
        loop {
            let n: u64 = source.shard_rows(self.epoch)?.iter().sum();
            if self.left < n {
                return Ok(Some((self.epoch, self.left)));
            }
            self.left -= n;
            self.epoch += 1;
            if begin.elapsed() >= time {
                return Ok(None);
            }
        }
    }
}

impl RowStore for DatasetSource {
    fn shard_rows(&self, epoch: u64) -> Result<Vec<u64>> {
        let length = self.length(epoch)?;
        if !length.is_final || length.is_endless() {
            return Ok(vec![UNCOUNTED]);
        }
        match self.share.n_batches(length.rows) {
            0 => Err(Error::new(
                ErrorKind::Config,
                format!(
                    "there is no batch: the dataset has {} rows, a batch of all ranks has {}{}",
                    length.rows,
                    self.share.global_batch(),
                    if self.share.drop_last { ", and drop_last leaves a shorter one out" } else { "" }
                ),
            )),
            n => Ok(vec![n]),
        }
    }

    fn place(&self, _row: u64) -> Place {
        Place::default()
    }

    fn random_access(&self) -> bool {
        true
    }
}

impl Source for DatasetSource {
    type Reader = NumberReader;

    fn reader(self: &Arc<Self>) -> NumberReader {
        NumberReader
    }
}

/// Reads nothing: a worker needs only the number of its batch.
#[derive(Debug)]
pub struct NumberReader;

impl ReadRecords for NumberReader {
    type Payload = ();
    type Request<'a> = ();

    fn read(&mut self, _row: u64, _run: u64, _request: &()) -> Result<RawRecord<()>> {
        Ok(RawRecord::new((), Row::new()))
    }
}

#[derive(Debug)]
pub struct DatasetTask {
    source: Arc<DatasetSource>,
    slots: usize,
    /// Created with the first batch, when the fields are known.
    pool: OnceLock<ColumnPool>,
    /// Rows and bytes read since construction.
    made: [AtomicU64; 2],
}

impl DatasetTask {
    /// Creates a task for the batches of `source`, of which up to `ahead` are made ahead.
    pub fn new(source: Arc<DatasetSource>, ahead: usize) -> Self {
        let slots = batch_slots(ahead);
        Self { source, slots, pool: OnceLock::new(), made: Default::default() }
    }

    /// The memory for batches.
    ///
    /// # Errors
    /// As [`Dataset::fields`].
    pub fn pool(&self) -> Result<&ColumnPool> {
        if let Some(pool) = self.pool.get() {
            return Ok(pool);
        }
        let DatasetSource { leaves, share, .. } = &*self.source;
        let made = ColumnPool::new(leaves.fields()?, share.batch_size as usize, self.slots);
        Ok(self.pool.get_or_init(|| made))
    }

    /// Rows and bytes read since construction.
    pub fn made(&self) -> [u64; 2] {
        [0, 1].map(|n| self.made[n].load(Ordering::Relaxed))
    }
}

/// A task that the engine and the Python loader share.
#[derive(Debug, Clone)]
pub struct SharedTask(pub Arc<DatasetTask>);

impl Task for SharedTask {
    const WORDS: TaskLabels = TaskLabels {
        work: "reading documents",
        item: "batch",
        cheaper: "make get_batch() of the dataset faster",
        smaller: "make rows smaller",
        readable: "use faster storage",
        suspects: "the rows of the dataset and exclude",
        roomier: "raise prefetch_batches",
        listed: "see errors()",
    };

    type Payload = ();
    type Request<'a> = ();
    type Maker = DatasetBatchMaker;
    type Collate = Handover;

    fn request<R>(&self, _: &Assignment, read: impl FnOnce(&()) -> R) -> R {
        read(&())
    }

    fn maker(&self) -> DatasetBatchMaker {
        DatasetBatchMaker { dataset: self.0.source.leaves.clone(), task: self.0.clone() }
    }

    fn collate(&self, _batches: BatchSizes) -> Handover {
        Handover(None)
    }
}

/// One worker's part of a [`DatasetTask`].
#[derive(Debug)]
pub struct DatasetBatchMaker {
    /// The worker's own copy, with its memos of blocks and permutations.
    dataset: Dataset,
    task: Arc<DatasetTask>,
}

impl DatasetBatchMaker {
    /// This rank's rows of a batch.
    fn rows(&mut self, epoch: u64, batch: u64) -> Result<Columns> {
        let Self { dataset, task } = self;
        let DatasetSource { share, .. } = &*task.source;
        // The batch is known to be full only when its last row exists.
        let end = batch.saturating_add(1).saturating_mul(share.global_batch());
        let length = during(State::Rows, || dataset.wait(epoch, end, &cancel::is_stopped))?;
        if !length.is_final && length.rows < end {
            return Err(Error::new(ErrorKind::Closed, "the pass was abandoned while it waited for rows"));
        }
        let Some(positions) = share.positions(batch, length.rows) else {
            // The engine counts the batches of the pass again.
            task.source.update_lengths()?;
            return Err(Error::new(ErrorKind::PastEnd, "the pass ended before this batch"));
        };
        let pool = task.pool()?;
        let picks = dataset.locate(epoch, positions)?;
        let columns = dataset.read(&picks, pool).map_err(|error| {
            let rows: Vec<_> = picks.iter().take(SHOWN).map(|pick| pick.row.to_string()).collect();
            let more = if picks.len() > SHOWN { ", ..." } else { "" };
            Error { message: format!("{}, rows [{}{more}]", error.message, rows.join(", ")), ..error }
        })?;
        task.made[0].fetch_add(columns.rows as u64, Ordering::Relaxed);
        task.made[1].fetch_add(columns.bytes() as u64, Ordering::Relaxed);
        Ok(columns)
    }
}

/// How many rows an error names.
const SHOWN: usize = 16;

/// Adds the batch, and this rank's indices in it, to an error. Any error ends the run: without a row of a
/// cache, training would see other data.
fn at_batch(mut error: Error, epoch: u64, batch: u64, share: &DatasetShare) -> Error {
    if error.kind == ErrorKind::Closed {
        return error;
    }
    // Saturating: the number of an unreachable batch may be large.
    let begin = batch.saturating_mul(share.global_batch()).saturating_add(share.rank * share.batch_size);
    let end = begin.saturating_add(share.batch_size);
    error.message = format!("{} (batch {batch} of epoch {epoch}, indices {begin} to {end})", error.message);
    if error.kind.is_record() {
        error.kind = ErrorKind::Format;
    }
    error.place.index.get_or_insert(batch);
    error
}

impl ExampleMaker for DatasetBatchMaker {
    type Payload = ();
    type Example = Columns;

    fn run(&mut self, record: &Record<()>) -> Result<Columns> {
        let made = self.rows(record.epoch, record.index);
        made.map_err(|error| at_batch(error, record.epoch, record.index, &self.task.source.share))
    }
}

/// Hands over a worker's rows: a batch of the engine is one example.
#[derive(Debug)]
pub struct Handover(Option<Columns>);

impl Collate for Handover {
    type Example = Columns;
    type Batch = Columns;

    fn put(&mut self, _slot: BatchSlot, example: Columns) -> Result<()> {
        self.0 = Some(example);
        Ok(())
    }

    fn take(&mut self, _rows: usize) -> Columns {
        self.0.take().unwrap_or_default()
    }

    fn examples(batch: &Columns, _rows: usize) -> usize {
        batch.rows
    }
}
