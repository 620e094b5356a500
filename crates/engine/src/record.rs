//! The types and traits between the stages of the pipeline: records in, examples and batches out.
//!
//! Stages share only what is defined here, so a stage never depends on its neighbour.

use std::{
    fmt::Debug,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use forebay_audio::{SharedSpans, SpanBytes};

use crate::{
    Error, ErrorKind, Result,
    error::Place,
    fields::{Row, Value},
    histogram::Histogram,
};

/// The words of messages for the work of a task's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskLabels {
    /// A worker's activity, such as "decoding".
    pub work: &'static str,
    /// What readers and workers take at a time, such as "row".
    pub item: &'static str,
    /// What to do if this work limits the loader and no core is free.
    pub cheaper: &'static str,
    /// What to do if copying into batches limits the loader.
    pub smaller: &'static str,
    /// What to do if only one thread can read and limits the loader.
    pub readable: &'static str,
    /// What to do if no thread limits the loader but the room for what is made ahead.
    pub roomier: &'static str,
}

impl TaskLabels {
    /// The words for recordings in files.
    pub const DEFAULT: Self = Self {
        work: "decoding",
        item: "row",
        cheaper: "make examples cheaper (sample_rate, clip_seconds, a format that decodes faster)",
        smaller: "make examples smaller (n_mels, clip_seconds, hop_length)",
        readable: "use Arrow files without compression, or faster storage",
        roomier: "raise shuffle_buffer_size, so that more examples can be made ahead",
    };
}

/// The label of a row whose label is null.
pub const NO_LABEL: i64 = -1;

/// The default limit of a record's bytes: 1 GiB.
pub const MAX_RECORD_BYTES: u64 = 1 << 30;

/// Checks the size of a record before its bytes are read.
///
/// # Errors
/// [`ErrorKind::TooLarge`] for more than `limit`.
pub fn check_record_bytes(size: u64, limit: u64) -> Result<()> {
    if size <= limit {
        return Ok(());
    }
    let message = format!("the record has {size} bytes, max_record_bytes allows {limit}");
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// An undecoded row of a shard, as a source reads it.
#[derive(Debug, Clone)]
pub struct RawRecord {
    /// The encoded recording, or the document in UTF-8; never empty. A slice of a larger block where rows
    /// were read together. If only an [`Excerpt`] was read, the bytes outside it are unspecified.
    pub bytes: Bytes,
    /// What a recording in a file of its own has besides; then `bytes` may be empty.
    pub file: Option<Box<FileRecording>>,
    /// The row's other columns, in the source's order.
    pub values: Row,
    /// What it shares with the records of neighbouring windows of its recording.
    pub window_run: Option<Arc<WindowRun>>,
}

/// What the records of a run of windows of one recording share.
#[derive(Debug)]
pub struct WindowRun {
    pub positions: Range<u64>,
    pub spans: SharedSpans,
}

impl WindowRun {
    /// Of the windows at these positions.
    pub fn new(positions: Range<u64>) -> Self {
        Self { positions, spans: SharedSpans::default() }
    }
}

impl FileRecording {
    /// The bytes of the span.
    pub fn len(&self) -> usize {
        self.span_bytes.as_ref().map_or(0, SpanBytes::len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all of the recording was read.
    pub fn is_whole(&self) -> bool {
        self.span_bytes.is_none()
    }
}

impl RawRecord {
    /// A row of these bytes and columns.
    pub fn new(bytes: Bytes, values: Row) -> Self {
        Self { bytes, values, file: None, window_run: None }
    }

    /// The record that a worker takes.
    pub fn numbered(self, index: u64, seed: u64, epoch: u64) -> Record {
        let Self { bytes, file, values, window_run } = self;
        Record { bytes, file, values, window_run, index, seed, epoch }
    }

    pub fn n_bytes(&self) -> usize {
        self.bytes.len() + self.file.as_ref().map_or(0, |file| file.len())
    }

    /// The label; [`NO_LABEL`] if it is null or the source has no labels.
    pub fn label(&self) -> i64 {
        self.values.first().and_then(Value::as_int).unwrap_or(NO_LABEL)
    }
}

/// The bytes of a record that a source reads before it calls an [`Excerpt`].
pub const HEAD_BYTES: usize = 4096;

/// Returns the range of a record's bytes that is needed besides its first [`HEAD_BYTES`], given those and the
/// record's size; `None` if all bytes are needed.
pub type Excerpt<'a> = &'a dyn Fn(&[u8], u64) -> Option<Range<u64>>;

/// What a task needs of a record that is about to be read.
pub trait ReadRequest {
    /// As [`Excerpt`].
    fn excerpt(&self, _head: &[u8], _size: u64) -> Option<Range<u64>> {
        None
    }

    /// Whether [`ReadRequest::span`] says which samples are needed; otherwise whole recordings are read.
    fn takes_spans(&self) -> bool;

    /// Whether the same row will be read next.
    fn repeats(&self) -> bool {
        false
    }

    /// The samples that are needed of a row with this rate and length, and these values of other columns;
    /// `None` if all are, or if the row is bad. A row that is a segment has the segment's length, and the
    /// range is counted from its start.
    fn span(&self, _sample_rate: u32, _n_samples: u64, _values: &Row) -> Option<Range<u64>> {
        None
    }

    /// As [`ReadRequest::excerpt`], for this position and the following `n - 1`, which are of the same
    /// record.
    fn excerpt_of(&self, _n: u64, _head: &[u8], _size: u64) -> Option<Range<u64>> {
        None
    }

    /// As [`ReadRequest::span`], for this position and the following `n - 1`, which are of the same record.
    fn span_of(&self, _n: u64, _sample_rate: u32, _n_samples: u64, _values: &Row) -> Option<Range<u64>> {
        None
    }
}

/// Wants what several neighbouring positions of one record need together.
pub struct RunRequest<'a> {
    /// The request of the first position.
    pub request: &'a dyn ReadRequest,
    pub n: u64,
}

impl ReadRequest for RunRequest<'_> {
    fn excerpt(&self, head: &[u8], size: u64) -> Option<Range<u64>> {
        self.request.excerpt_of(self.n, head, size)
    }

    fn takes_spans(&self) -> bool {
        self.request.takes_spans()
    }

    fn span(&self, sample_rate: u32, n_samples: u64, values: &Row) -> Option<Range<u64>> {
        self.request.span_of(self.n, sample_rate, n_samples, values)
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct WholeRecord;

impl ReadRequest for WholeRecord {
    fn takes_spans(&self) -> bool {
        false
    }
}

/// A recording in a file of its own. Its row may be a segment of it.
#[derive(Debug, Clone, Default)]
pub struct FileRecording {
    /// The bytes that a span needs, if not all were read.
    pub span_bytes: Option<SpanBytes>,
    /// The samples of the recording that are the row's; `None`: all.
    pub segment: Option<Segment>,
}

/// The samples of a recording that are a row's: from `start` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Segment {
    /// In seconds, rounded to the nearest sample; an infinite end is that of the recording.
    Seconds(f64, f64),
    /// In samples; `u64::MAX` is the end of the recording.
    Samples(u64, u64),
}

impl Segment {
    /// The samples in a recording of this rate and length; one that ends after the recording ends with it.
    ///
    /// # Errors
    /// [`ErrorKind::Empty`] if there are none.
    pub fn samples(self, sample_rate: u32, n_samples: u64) -> Result<Range<u64>> {
        let rate = f64::from(sample_rate);
        let (start, end) = match self {
            // `as` limits what is beyond the range.
            Self::Seconds(start, end) => ((start * rate).round() as u64, (end * rate).round() as u64),
            Self::Samples(start, end) => (start, end),
        };
        let range = start..end.min(n_samples);
        if range.start < range.end {
            return Ok(range);
        }
        let length = n_samples as f64 / rate;
        let message = match self {
            Self::Seconds(start, end) => {
                format!("the segment {start} to {end} s has no samples: the recording has {length:.3} s")
            }
            Self::Samples(start, end) => {
                format!("the segment {start} to {end} has no samples: the recording has {n_samples}")
            }
        };
        Err(Error::new(ErrorKind::Empty, message))
    }
}

/// Reads of at most this many bytes need no permit: each thread has one in flight, and a block of recordings
/// is no larger.
pub const SMALL_READ: u64 = 4 << 20;

/// The most blocks read at the same time: with some 3 MiB each, 1 GB/s where a read takes 50 ms.
pub const BLOCKS_AHEAD: usize = 16;

/// The I/O threads that read single records: more by URL, since each waits for an answer.
pub fn scattered_readers(n_readers: usize, is_remote: bool) -> usize {
    if is_remote && n_readers > 1 { 2 * n_readers } else { n_readers }
}

/// The most bytes of a source that are requested from servers ahead of time and not yet read, or kept.
pub const MOST_REQUESTED: u64 = 128 << 20;

/// Memory that was granted before it was allocated. It is counted until the last share is dropped.
pub trait GrantedMemory: Debug + Send + Sync {
    /// Parks the memory: no request waits for it until as many calls of [`GrantedMemory::release`]. See
    /// [`Kept`].
    fn keep(&self);

    /// Ends a [`GrantedMemory::keep`]. The memory is released with the last record that shares it.
    fn release(&self);

    /// Reduces the counted memory to `bytes`.
    fn shrink(&self, bytes: u64);
}

pub type Permit = Arc<dyn GrantedMemory>;

/// Granted memory that a thread keeps while it may wait: no request waits for that memory, since the thread
/// might release it only after the request is granted.
#[derive(Debug)]
pub struct Kept(Permit);

impl Kept {
    pub fn new(permit: Permit) -> Self {
        permit.keep();
        Self(permit)
    }

    /// The memory of a permit whose [`GrantedMemory::keep`] was called already.
    pub(crate) fn adopt(permit: Permit) -> Self {
        Self(permit)
    }

    pub fn permit(&self) -> &Permit {
        &self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A record's memory that a reader keeps for later rows: see [`MemoryLimiter::retain`].
#[derive(Debug, Default)]
pub struct Retained {
    /// Whether the memory was granted. If so, [`MemoryLimiter::mark_counted`] belongs to each further record
    /// in it.
    pub is_granted: bool,
    pub(crate) _kept: Option<Box<dyn Debug + Send>>,
}

/// Grants a reader's requests for memory of more than [`SMALL_READ`] bytes. Calls block, so that the memory
/// of all readers together stays bounded; one record of any size is always granted.
pub trait MemoryLimiter: Send + Sync {
    /// Requests the memory of the record that is being read, preferably in one call. The data read holds the
    /// permit.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the run is stopped.
    fn admit(&self, bytes: u64) -> Result<Permit>;

    /// Requests memory that the reader will keep, for this record and later ones.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the run is stopped.
    fn keep(&self, bytes: u64) -> Result<Kept>;

    /// As [`MemoryLimiter::keep`], for memory that is already allocated because its size was unknown before.
    fn kept(&self, bytes: u64) -> Kept;

    /// Notes that the record being read is in memory that was granted before.
    fn mark_counted(&self);

    /// Keeps the memory that [`MemoryLimiter::admit`] granted for the record just read, for a reader that
    /// keeps the record for later rows. `None` if it must not keep the record: the thread's other readers
    /// keep too much already.
    fn retain(&self) -> Option<Retained>;
}

/// A record as it is sent through the channel to a worker.
#[derive(Debug, Clone)]
pub struct Record {
    /// The encoded recording or the document.
    pub bytes: Bytes,
    /// What a recording in a file of its own has besides.
    pub file: Option<Box<FileRecording>>,
    /// The row's other columns, in the source's order.
    pub values: Row,
    /// What it shares with the records of neighbouring windows of its recording.
    pub window_run: Option<Arc<WindowRun>>,
    /// The row number over the files as given.
    pub index: u64,
    /// 64 random bits of this record in this epoch, which determine the crop.
    pub seed: u64,
    pub epoch: u64,
}

impl Record {
    pub fn n_bytes(&self) -> usize {
        self.bytes.len() + self.file.as_ref().map_or(0, |file| file.len())
    }
}

/// Counts of what the files of a source cost.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Calls and requests that failed transiently and were tried again.
    pub retries: AtomicU64,
    /// Requests to servers, with those that failed.
    pub requests: AtomicU64,
    /// Bytes that servers sent, without headers.
    pub received_bytes: AtomicU64,
    /// Times from a request to the begin of its answer.
    pub first_byte: Histogram,
    /// Whether what servers send is kept on a local disk.
    pub is_cached: AtomicBool,
    pub cache_hits: AtomicU64,
    pub cached_bytes: AtomicU64,
}

impl Traffic {
    /// Whether a request was sent to a server.
    pub fn is_remote(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }
}

/// A set of shards whose rows can be read by number.
pub trait Source: Send + Sync + 'static {
    /// The state of one I/O thread: open files, the current record batch, recycled blocks.
    type Reader: ReadRecords;

    /// The number of rows of each shard in the pass `epoch`, in the order given. Passes may differ.
    ///
    /// While rows are still added it is the most that there may be, and the first read past the end ends the
    /// pass ([`ErrorKind::PastEnd`]); the engine then asks again.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the pass is impossible.
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
    /// With a kind for which [`crate::ErrorKind::is_record`] holds, the row is bad; [`ErrorKind::PastEnd`]
    /// ends the pass before the batch of this row; any other kind ends the run.
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

/// A record that a collator holds for later batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarriedRecord {
    /// The row number over the files as given.
    pub row: u64,
    /// How much of its example is in batches already, in the collator's unit.
    pub used: u32,
}

/// The position of a stream between two batches, if its batches take as many records as they need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamPosition {
    pub draws: u64,
    /// The records that the collator holds, in the collator's order.
    pub held: Vec<CarriedRecord>,
}

/// The [`StreamPosition`] of each stream of a rank.
pub type StreamPositions = Arc<[StreamPosition]>;

/// The place of an example in the current batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSlot {
    pub stream: usize,
    /// The row, if the order determines it.
    pub row: usize,
    /// The number of its draw in the batch. Rows after a bad record of a finite pass have smaller numbers.
    pub draw: usize,
}

impl BatchSlot {
    /// The place of an example in a batch of one stream without bad records.
    pub fn at_row(row: usize) -> Self {
        Self { stream: 0, row, draw: row }
    }
}

/// Puts examples into the rows of a batch.
pub trait Collate: Send {
    type Example: Send + 'static;
    type Batch: Send + 'static;

    /// Whether a batch of a finite pass without rows, since all its records are bad, is left out if there are
    /// no other ranks. False for tasks that number the batches by their hand-over.
    const LEAVES_OUT_EMPTY: bool = true;

    /// Adds `example` to the current batch: in the row of `slot`, each row once, or wherever a [`PackRows`]
    /// puts it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Memory`] if the batch cannot be allocated, which ends the run.
    fn put(&mut self, slot: BatchSlot, example: Self::Example) -> Result<()>;

    /// Called before [`Collate::take`], with the same number of rows: allocates what only a complete batch
    /// shows.
    ///
    /// # Errors
    /// As [`Collate::put`].
    fn complete(&mut self, _rows: usize) -> Result<()> {
        Ok(())
    }

    /// Returns the current batch, cut to its first `rows` rows, and begins the next.
    fn take(&mut self, rows: usize) -> Self::Batch;

    /// The number of examples in `batch`, as the user counts them; the batch was cut to `rows`.
    fn examples(_batch: &Self::Batch, rows: usize) -> usize {
        rows
    }

    /// Decides how many examples a batch takes, with [`Batching::Collator`](crate::order::Batching).
    fn packer(&mut self) -> Option<&mut dyn PackRows<Example = Self::Example>> {
        None
    }
}

/// Takes as many examples of each stream as it needs to fill the stream's rows of a batch, and may hold some
/// for later batches.
pub trait PackRows {
    type Example;

    /// Fills the current batch as far as possible, and returns whether it needs another example of `stream`.
    ///
    /// # Errors
    /// As [`Collate::put`].
    fn wants(&mut self, stream: usize) -> Result<bool>;

    /// Called instead of [`Collate::put`] if the next record of `stream` is bad; `row` is counted over the
    /// files as given.
    fn miss(&mut self, _stream: usize, _row: u64) {}

    /// Called when `stream` has no further example in this pass.
    fn end(&mut self, stream: usize);

    /// The number of complete rows of the current batch.
    fn rows(&self) -> usize;

    /// The records of `stream` that it holds between two batches.
    fn held(&self, stream: usize) -> Vec<CarriedRecord>;

    /// Restores a held record of `stream`; called once for each, in the order of [`PackRows::held`].
    ///
    /// # Errors
    /// [`crate::ErrorKind::State`] if the example cannot have been used so far.
    fn hold(&mut self, stream: usize, held: CarriedRecord, example: Self::Example) -> Result<()>;
}

/// The number and size of the batches that a collator makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSizes {
    /// The most rows of a batch.
    pub size: usize,
    /// Streams that fill a batch. With a [`PackRows`] each stream fills the same number of rows.
    pub n_streams: usize,
    /// Batches made ahead: a pool should keep the memory of as many released batches, and of a few more.
    pub ahead: usize,
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
