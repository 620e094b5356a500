//! [`Access`]: clips of any rows, in any order, made on threads of its own.
//!
//! It runs a loader's stages without the engine: a thread of a `ThreadPool` reads a row and makes its example
//! by the same [`ClipMaker`], and the caller's thread puts it into its row of the batch by the same
//! [`RowCollate`]. So the bytes are those of a loader, for the same row and crop. A batch does not depend on
//! the threads, and of several bad rows the first one that was asked for is the error. In memory are the
//! batches, one record for each thread, and the examples that the caller has not yet put into its batch.

mod column;
mod index_build;
mod thread_pool;

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use crate::sync::plain::{Mutex, MutexGuard};
use crate::{
    Error, ErrorKind, Result,
    batch::{Example, RowCollate},
    contract::{BatchSlot, Collate, ReadRecords, Task},
    engine::located,
    fallible_alloc,
    fields::{ColumnPool, Columns, Field},
    seed::{Purpose, hash},
    source::{PayloadSource, Record},
    tasks::{AudioTask, ClipMaker, ClipStart, Section, Take, Waveform},
};
pub use column::column;
pub use index_build::{Bad, IndexBuild, Totals};
use thread_pool::{PoolWork, ThreadPool};

/// The sizes of batches whose memory is kept.
const POOLS: usize = 4;
/// The most rows that a reader is told of.
const MOST_RUN: usize = 256;
/// The batches of each size whose memory is kept.
const SLOTS: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clip {
    /// The row number over the files as given.
    pub row: u64,
    /// The seconds at which it begins; `None`: where the rule of the crop says.
    pub start: Option<f64>,
}

/// Random access to the clips of a source.
#[derive(Debug)]
pub struct Access<S: PayloadSource> {
    shared: Arc<AccessShared<S>>,
    threads: ThreadPool<AccessWorker<S>>,
    /// By number of rows, the last one used at the end.
    pools: Mutex<Vec<Arc<ColumnPool>>>,
}

struct AccessShared<S> {
    source: Arc<S>,
    task: AudioTask,
    seed: u64,
    closed: AtomicBool,
    /// Calls that have begun and not ended, readers that are being made, and parts of work that are being
    /// done: everything that may hold a lock.
    busy: AtomicUsize,
}

impl<S> fmt::Debug for AccessShared<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("task", &self.task).field("busy", &self.busy).finish_non_exhaustive()
    }
}

/// Counts as busy until it is dropped.
struct Busy<S>(Arc<AccessShared<S>>);

impl<S> Busy<S> {
    fn new(shared: &Arc<AccessShared<S>>) -> Self {
        shared.busy.fetch_add(1, Ordering::SeqCst);
        Self(shared.clone())
    }
}

impl<S> Drop for Busy<S> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a thread keeps from row to row.
struct AccessWorker<S: PayloadSource> {
    reader: S::Reader,
    maker: ClipMaker,
}

impl<S: PayloadSource> AccessWorker<S> {
    /// Reads a row and makes something of its record; an error names file and row.
    fn make<T>(
        &mut self,
        shared: &AccessShared<S>,
        (row, run): (u64, u64),
        take: Take,
        of: impl FnOnce(&mut ClipMaker, &Record) -> Result<T>,
    ) -> Result<T> {
        let seed = shared.seed_of(row);
        let record = self.reader.read(row, run, &shared.task.request(take));
        record
            .and_then(|record| of(&mut self.maker, &record.numbered(row, seed, 0)))
            .map_err(|error| located(error, &*shared.source, row))
    }
}

impl<S> AccessShared<S> {
    /// The bits that place a random crop: those of the row in a loader's epoch 0.
    fn seed_of(&self, row: u64) -> u64 {
        hash(self.seed, Purpose::Crop, [0, row])
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

impl<S: PayloadSource> Access<S> {
    /// Clips of `source` by `task`, on at most `n_threads` threads, which start when they are needed. `seed`
    /// is that of random crops.
    pub fn new(source: Arc<S>, task: AudioTask, n_threads: usize, seed: u64) -> Self {
        let shared =
            AccessShared { source, task, seed, closed: AtomicBool::new(false), busy: AtomicUsize::new(0) };
        Self::over(Arc::new(shared), n_threads)
    }

    fn over(shared: Arc<AccessShared<S>>, n_threads: usize) -> Self {
        let of = shared.clone();
        let worker = move || {
            let _busy = Busy::new(&of);
            AccessWorker { reader: of.source.reader(), maker: of.task.maker() }
        };
        Self { threads: ThreadPool::new(n_threads, worker), shared, pools: Mutex::default() }
    }

    /// The same, with threads of its own.
    #[must_use]
    pub fn again(&self) -> Self {
        let AccessShared { source, task, seed, .. } = &*self.shared;
        Self::new(source.clone(), task.clone(), self.threads.most(), *seed)
    }

    /// Whether any thread is in a call or at work for one. If none was at a fork, no lock is held in the
    /// child.
    pub fn is_busy(&self) -> bool {
        self.shared.busy.load(Ordering::SeqCst) > 0
    }

    pub fn fields(&self) -> &Arc<[Field]> {
        self.shared.task.fields()
    }

    /// Ends the threads, as soon as they have finished the record at hand; calls that wait return an error.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
    }

    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// The memory of batches of `rows` rows. A smaller batch does not take the memory of a larger one, since
    /// the user may keep many of them.
    fn pool(&self, rows: usize) -> Arc<ColumnPool> {
        let mut pools: MutexGuard<'_, Vec<_>> = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pools.iter().position(|pool: &Arc<ColumnPool>| pool.rows() == rows);
        let pool = match known {
            Some(at) => pools.remove(at),
            None => Arc::new(ColumnPool::new(self.fields().clone(), rows, SLOTS)),
        };
        if pools.len() == POOLS {
            pools.remove(0);
        }
        pools.push(pool.clone());
        pool
    }

    /// Begins a batch of these clips, in this order.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after `close`, [`ErrorKind::Io`] if the system cannot start a thread.
    pub fn batch(&self, clips: &[Clip]) -> Result<PendingBatch<S>> {
        self.check_open()?;
        let busy = Busy::new(&self.shared);
        let (replies, received) = unbounded();
        let mut wanted = fallible_alloc::with_room(clips.len())?;
        wanted.extend(clips.iter().enumerate().map(|(place, clip)| RequestedClip { place, clip: *clip }));
        // In storage order, so that rows of one block or page are read once.
        wanted.sort_by_key(|wanted| wanted.clip.row);
        let n = wanted.len();
        let in_part =
            if self.shared.source.random_access() { 1 } else { n.div_ceil(self.threads.most()).max(1) };
        let work = Arc::new(ClipBatch {
            shared: self.shared.clone(),
            wanted,
            in_part,
            replies,
            failed: AtomicUsize::new(usize::MAX),
            stopped: AtomicBool::new(false),
        });
        let collate = self.shared.task.collate_in(self.pool(n));
        self.threads.begin(&work, n.div_ceil(in_part))?;
        Ok(PendingBatch { work, received, collate, left: n, failed: None, is_partial: false, _busy: busy })
    }

    /// Begins to decode a section of a row's recording.
    ///
    /// # Errors
    /// As [`Self::batch`].
    pub fn waveform(&self, row: u64, section: Section) -> Result<PendingWaveform<S>> {
        self.check_open()?;
        let busy = Busy::new(&self.shared);
        let (reply, received) = unbounded();
        self.threads.begin(&Arc::new(One { shared: self.shared.clone(), row, section, reply }), 1)?;
        Ok(PendingWaveform { received, _busy: busy })
    }

    fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }
}

/// The error of a dataset that was closed.
pub fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the dataset is closed; make a new one to go on")
}

/// A clip, and its row in the batch.
#[derive(Debug, Clone, Copy)]
struct RequestedClip {
    place: usize,
    clip: Clip,
}

/// The examples of a batch, as work for the threads.
struct ClipBatch<S> {
    shared: Arc<AccessShared<S>>,
    /// In storage order.
    wanted: Vec<RequestedClip>,
    /// Clips of a part; the last part may have fewer.
    in_part: usize,
    /// For each clip its place and example; nothing, if the call ends with another error anyway.
    replies: Sender<(usize, Option<Result<Example>>)>,
    /// The first place whose clip failed.
    failed: AtomicUsize,
    /// Whether the caller is gone.
    stopped: AtomicBool,
}

impl<S> ClipBatch<S> {
    fn of_part(&self, part: usize) -> Range<usize> {
        let first = part * self.in_part;
        first..(first + self.in_part).min(self.wanted.len())
    }

    /// Answers for a clip. A caller that is gone needs no answer.
    fn answer(&self, place: usize, made: Option<Result<Example>>) {
        if matches!(made, Some(Err(_))) {
            self.failed.fetch_min(place, Ordering::Relaxed);
        }
        let _ = self.replies.send((place, made));
    }
}

impl<S: PayloadSource> PoolWork<AccessWorker<S>> for ClipBatch<S> {
    fn part(&self, worker: &mut AccessWorker<S>, part: usize) {
        let _busy = Busy::new(&self.shared);
        let wanted = &self.wanted[self.of_part(part)];
        for (at, &RequestedClip { place, clip: Clip { row, start } }) in wanted.iter().enumerate() {
            let is_useless = self.stopped.load(Ordering::Relaxed)
                || self.shared.is_closed()
                || place > self.failed.load(Ordering::Relaxed);
            if is_useless {
                self.answer(place, None);
                continue;
            }
            let following =
                wanted[at..].iter().take(MOST_RUN).zip(row..).take_while(|(next, row)| next.clip.row == *row);
            let begin = start.map_or(ClipStart::rule(row, self.shared.seed_of(row)), ClipStart::At);
            let run = following.count() as u64;
            let made = worker.make(&self.shared, (row, run), Take::Clip(begin), |maker, record| {
                maker.example(record, begin)
            });
            self.answer(place, Some(made));
        }
    }

    fn lost(&self, part: usize, error: Error) {
        // Clips of the part that were answered before the panic are answered twice; the error is first.
        let first = self.wanted[self.of_part(part)].iter().map(|wanted| wanted.place).min();
        if let Some(place) = first {
            self.answer(place, Some(Err(error)));
        }
    }
}

/// A batch that is being made. Dropping it ends the work.
pub struct PendingBatch<S: PayloadSource> {
    work: Arc<ClipBatch<S>>,
    received: Receiver<(usize, Option<Result<Example>>)>,
    collate: RowCollate,
    left: usize,
    failed: Option<(usize, Error)>,
    /// Whether a clip was not made.
    is_partial: bool,
    _busy: Busy<S>,
}

impl<S: PayloadSource> Drop for PendingBatch<S> {
    fn drop(&mut self) {
        self.work.stopped.store(true, Ordering::Relaxed);
    }
}

impl<S: PayloadSource> PendingBatch<S> {
    /// Waits until the batch is complete, at most until `deadline`: then `None`.
    ///
    /// # Errors
    /// That of the first clip, in the order of the call, that cannot be made, with file and row;
    /// [`ErrorKind::Closed`].
    pub fn wait(&mut self, deadline: Instant) -> Result<Option<Columns>> {
        while self.left > 0 {
            if self.work.shared.is_closed() {
                return Err(closed());
            }
            let (place, made) = match self.received.recv_deadline(deadline) {
                Ok(reply) => reply,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(closed()),
            };
            self.left -= 1;
            match made {
                // A batch that fails needs no more rows.
                Some(Ok(example)) if self.failed.is_none() => {
                    self.collate.put(BatchSlot::at_row(place), example)?
                }
                Some(Err(error)) if error.kind == ErrorKind::Panic => return Err(error),
                Some(Err(error)) if self.failed.as_ref().is_none_or(|(first, _)| place < *first) => {
                    self.failed = Some((place, error));
                }
                None => self.is_partial = true,
                _ => {}
            }
        }
        if let Some((_, error)) = self.failed.take() {
            return Err(error);
        }
        // Without an error of an earlier clip: the access was closed while the last answers were awaited.
        if self.is_partial {
            return Err(closed());
        }
        let rows = self.work.wanted.len();
        self.collate.complete(rows)?;
        Ok(Some(self.collate.take(rows)))
    }
}

/// A section of a recording, as work for the threads.
struct One<S> {
    shared: Arc<AccessShared<S>>,
    row: u64,
    section: Section,
    reply: Sender<Result<Waveform>>,
}

impl<S: PayloadSource> PoolWork<AccessWorker<S>> for One<S> {
    fn part(&self, worker: &mut AccessWorker<S>, _part: usize) {
        let _busy = Busy::new(&self.shared);
        let made = worker.make(&self.shared, (self.row, 1), Take::Section(self.section), |maker, record| {
            maker.waveform(record, &self.section)
        });
        // The caller may be gone.
        let _ = self.reply.send(made);
    }

    fn lost(&self, _part: usize, error: Error) {
        let _ = self.reply.send(Err(error));
    }
}

/// A section of a recording that is being decoded.
pub struct PendingWaveform<S> {
    received: Receiver<Result<Waveform>>,
    _busy: Busy<S>,
}

impl<S> PendingWaveform<S> {
    /// Waits until it is decoded, at most until `deadline`: then `None`.
    ///
    /// # Errors
    /// As [`PendingBatch::wait`].
    pub fn wait(&mut self, deadline: Instant) -> Result<Option<Waveform>> {
        match self.received.recv_deadline(deadline) {
            Ok(made) => made.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(closed()),
        }
    }
}
