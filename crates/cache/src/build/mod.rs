//! Builds a cache: many threads read and process shards, one thread writes the batches in a fixed order.
//!
//! ```text
//! builder ── ShardOrder ──▶ n workers ──────────────▶ ShardOrder ──▶ ordered writer
//! (a call)   which shard    take a shard's reader,    by shard       appends in order,
//!            next?          read a batch, return the  and piece      commits
//!                           reader, process the batch
//! ```
//!
//! The *builder* is the call that starts the threads and holds a [`Build`]. The *shard order* (`shard_order`)
//! determines which shard is read next. Each worker has a *batch processor* of its own. The *ordered writer*
//! takes batches in an order that follows from the shards alone, so number and speed of workers change no
//! byte. Readers wait while `BACKLOG_DOCUMENTS` or `BACKLOG_BYTES` are queued for the writer. Only the batch
//! that the writer waits for is always read.
//!
//! The unit of reading and processing is a [`DocumentPiece`]: a batch, or a part of one if its documents are
//! large and the processor handles each alone. So memory is bounded in bytes, while order and resume are
//! defined by batches. No commit falls inside a batch.

pub mod inputs;
pub mod passthrough;
pub mod recordings;
mod skips;
pub mod tokens;
mod shard_order;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use self::shard_order::{PieceOutcome, ShardQueue};
pub use self::{shard_order::Interleaving, skips::Skips};
use super::{
    batch::Processed,
    ledger::Ledger,
    writer::{CacheWriter, WriterOptions},
};
use crate::sync::plain::{Condvar, Mutex};
use crate::{
    Error, ErrorKind, Result,
    engine::{FailureList, LISTED, MaxErrors, Policy, Tally, Threads},
    fields::DataType,
    seed::mix,
};

/// The first commit is due after this part of the time between commits.
const FIRST_COMMIT: u32 = 5;
/// The least ratio of the time between commits, if no more documents are due, to the time of the last commit.
const COMMIT_SHARE: u32 = 9;
/// The most documents that are queued for the writer.
const BACKLOG_DOCUMENTS: u64 = 3 * 8192;
/// The most bytes of processed documents that are queued for the writer.
const BACKLOG_BYTES: usize = 512 << 20;

/// The source of documents, divided into shards.
pub trait Shards: Send + Sync + 'static {
    type Batch: Send + 'static;

    /// The name of each shard, in order; no two are equal.
    fn names(&self) -> &[String];

    /// Opens a shard after its first `skip` batches of `size` documents.
    ///
    /// # Errors
    /// Any; the build ends with it.
    fn open(&self, shard: usize, skip: u64, size: u64) -> Result<Box<dyn ReadShard<Self::Batch>>>;
}

/// Documents that are read and processed together: a batch, or a part of one.
#[derive(Debug)]
pub struct DocumentPiece<B> {
    pub documents: B,
    /// Their number, including those that the reader left out.
    pub rows: u64,
    /// Whether this is the last piece of its batch.
    pub ends_batch: bool,
}

impl<B> DocumentPiece<B> {
    pub fn whole(documents: B, rows: u64) -> Self {
        Self { documents, rows, ends_batch: true }
    }
}

/// Reads a shard from the start to the end.
pub trait ReadShard<B>: Send {
    /// Reads the next documents; None at the end of the shard. The pieces of a batch have together the
    /// requested number of rows, fewer at the end of the shard. How a batch is cut changes no document.
    ///
    /// # Errors
    /// As [`Shards::open`].
    fn next(&mut self, skips: &mut Skips<'_>) -> Result<Option<DocumentPiece<B>>>;

    /// The part of the shard that has been read, from 0 to 1, if it is known.
    fn part(&self) -> Option<f64> {
        None
    }
}

/// Processes batches: tokens, features, or any other arrays.
pub trait Processor<B>: Send + Sync + 'static {
    /// The part that one worker owns.
    fn worker(&self) -> Box<dyn Process<B>>;
}

/// One worker's part of a [`Processor`].
pub trait Process<B>: Send {
    /// Processes a batch; returns any number of documents, without those that it leaves out.
    ///
    /// # Errors
    /// Any; the build ends with it.
    fn process(&mut self, batch: B, skips: &mut Skips<'_>) -> Result<Processed>;
}

/// When a build commits: at its end, and meanwhile after so many documents or so much time. Determines what
/// readers see and what a killed build keeps, never a byte of the finished cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commits {
    /// New documents after which the build commits.
    pub documents: u64,
    /// The time after which the build commits if there are new documents; the first commit comes earlier.
    pub time: Duration,
}

impl Default for Commits {
    fn default() -> Self {
        Self { documents: 8192, time: Duration::from_secs(10) }
    }
}

#[derive(Debug, Clone)]
pub struct BuildPlan {
    pub path: PathBuf,
    pub split: String,
    pub batch_size: u64,
    pub order: Interleaving,
    pub n_workers: usize,
    /// The fields to keep, converted to their types where given; None for all, unconverted.
    pub fields: Option<Vec<(String, Option<DataType>)>>,
    /// Whether bad documents are left out; only `skip_bad` and a `max_errors` that is a number are used.
    pub policy: Policy,
    pub commits: Commits,
    /// How the cache is written. Its shards are taken from [`Shards`].
    pub options: WriterOptions,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Progress {
    /// Documents written; not all of them are committed.
    pub documents: u64,
    /// Documents committed, including those of earlier builds: what readers see, and where a build resumes.
    pub committed: u64,
    /// Documents written by earlier builds.
    pub documents_before: u64,
    /// Documents left out, including by earlier builds.
    pub skipped: u64,
    pub values: u64,
    /// Values written by earlier builds.
    pub values_before: u64,
    pub finished_shards: u64,
    pub n_shards: u64,
    /// The part of the shards that is read, from 0 to 1, as far as it is known.
    pub part: f64,
    /// The part that earlier builds read.
    pub part_before: f64,
    pub seconds: f64,
}

/// A running build, on its own threads. Dropping it cancels it; documents written by then are committed.
pub struct Build {
    shared: Arc<dyn AnyBuild>,
    /// Joined by its drop, after the build was cancelled.
    threads: Threads,
}

/// The part of [`BuildShared`] that does not depend on the type of batches.
trait AnyBuild: Send + Sync {
    fn cancel(&self);
    fn progress(&self) -> Progress;
    fn wait(&self, at_most: Duration) -> Option<Result<u64>>;
}

struct BuildShared<B> {
    shard_order: ShardQueue<B>,
    fields: Option<Vec<(String, Option<DataType>)>>,
    policy: Policy,
    commits: Commits,
    begin: Instant,
    before: Progress,
    documents: AtomicU64,
    committed: AtomicU64,
    skipped: AtomicU64,
    values: AtomicU64,
    /// The number of documents, or the error that ended the build; None while it runs.
    result: Mutex<Option<Result<u64>>>,
    ended: Condvar,
}

impl<B: Send> AnyBuild for BuildShared<B> {
    fn cancel(&self) {
        self.shard_order.stop();
    }

    fn progress(&self) -> Progress {
        let (finished_shards, n_shards, part) = self.shard_order.standing();
        Progress {
            documents: self.documents.load(Ordering::Relaxed),
            committed: self.committed.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            values: self.values.load(Ordering::Relaxed),
            finished_shards,
            n_shards,
            part,
            seconds: self.begin.elapsed().as_secs_f64(),
            ..self.before
        }
    }

    fn wait(&self, at_most: Duration) -> Option<Result<u64>> {
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ended.wait_timeout_while(result, at_most, |result| result.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

impl Build {
    /// Opens the cache and starts the threads; a finished cache needs no work.
    ///
    /// # Errors
    /// As [`CacheWriter::open`]; [`ErrorKind::State`] and [`ErrorKind::TooMany`] if more documents were left
    /// out than the policy allows; [`ErrorKind::Config`] if shards have the same name; [`ErrorKind::Io`] if
    /// threads cannot be started.
    pub fn start<S: Shards>(plan: BuildPlan, shards: S, processor: impl Processor<S::Batch>) -> Result<Self> {
        let names = shards.names().to_vec();
        let mut sorted: Vec<_> = names.iter().collect();
        sorted.sort();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("the shard {:?} is given twice; name each once", pair[0]);
            return Err(Error::new(ErrorKind::Config, message));
        }
        let mut options = WriterOptions { shards: names.clone(), ..plan.options };
        options.made_by.insert("shards".into(), order_of(&names).into());
        let writer = CacheWriter::open(&plan.path, &plan.split, options)?;
        let skipped = writer.ledger().skipped.documents;
        if skipped > 0 && !plan.policy.skip_bad {
            let message = format!(
                "{skipped} documents were left out of the cache {}, which on_error=\"raise\" forbids; pass on_error=\"skip\" to \
                 continue it, or overwrite=True to build it again",
                plan.path.join(&plan.split).display()
            );
            return Err(Error::new(ErrorKind::State, message));
        }
        if let Some(MaxErrors::Count(most)) = plan.policy.max_errors
            && skipped > most.max(0) as u64
        {
            let message = format!(
                "{skipped} records failed before, max_errors allows {most}; see errors() of the cache"
            );
            return Err(Error::new(ErrorKind::TooMany, message));
        }
        let standings =
            names.iter().map(|name| writer.ledger().shards.get(name).copied().unwrap_or_default());
        let most = (BACKLOG_DOCUMENTS / plan.batch_size).max(2 * plan.n_workers as u64);
        let shard_order = ShardQueue::new(plan.order, standings.collect(), most, BACKLOG_BYTES);
        let part_before = shard_order.standing().2;
        let shared = Arc::new(BuildShared {
            shard_order,
            fields: plan.fields,
            policy: plan.policy,
            commits: plan.commits,
            begin: Instant::now(),
            before: Progress {
                documents_before: writer.documents(),
                values_before: writer.values(),
                part_before,
                ..Progress::default()
            },
            documents: AtomicU64::new(writer.documents()),
            committed: AtomicU64::new(writer.documents()),
            skipped: AtomicU64::new(skipped),
            values: AtomicU64::new(writer.values()),
            result: Mutex::default(),
            ended: Condvar::new(),
        });
        // If a later step fails, the drop of `build` ends the threads already started.
        let mut build = Self { shared: shared.clone(), threads: Threads::default() };
        let (shards, processor) = (Arc::new(shards), Arc::new(processor));
        for n in 0..plan.n_workers {
            let (shared, shards, processor) = (shared.clone(), shards.clone(), processor.clone());
            let work = move || work(&shared, &*shards, &*processor, plan.batch_size);
            build.threads.spawn(format!("forebay-cache-{n}"), work)?;
        }
        build.threads.spawn("forebay-writer".into(), move || {
            let written = catch_unwind(AssertUnwindSafe(|| write(&shared, writer, &names)));
            let result = written.unwrap_or_else(|_| Err(panicked("the writer of the cache")));
            shared.shard_order.stop();
            *shared.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            shared.ended.notify_all();
        })?;
        Ok(build)
    }

    pub fn progress(&self) -> Progress {
        self.shared.progress()
    }

    /// Waits at most `at_most` for the end; returns the number of documents, or None if the build still runs.
    ///
    /// # Errors
    /// The error that ended the build; [`ErrorKind::Closed`] if it was cancelled. Committed documents stay,
    /// and a build with the same parameters resumes after them.
    pub fn wait(&self, at_most: Duration) -> Option<Result<u64>> {
        self.shared.wait(at_most)
    }

    /// Makes the build end after the batches in progress; documents written by then are committed.
    pub fn cancel(&self) {
        self.shared.cancel();
    }
}

impl std::fmt::Debug for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Build").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The number of shards and a hash of their names in this order, which determines the order of documents.
fn order_of(names: &[String]) -> String {
    let hash = names.iter().fold(0, |state, name| {
        name.bytes().fold(mix(state ^ mix(name.len() as u64)), |state, byte| mix(state ^ u64::from(byte)))
    });
    format!("{} in the order {hash:016x}", names.len())
}

fn panicked(who: &str) -> Error {
    Error::new(ErrorKind::Panic, format!("{who} panicked: a bug of forebay, please report it"))
}

/// A worker: reads and processes one batch after the other.
fn work<S: Shards>(
    shared: &BuildShared<S::Batch>,
    shards: &S,
    processor: &impl Processor<S::Batch>,
    size: u64,
) {
    let mut process = None;
    while let Some(mut turn) = shared.shard_order.take() {
        let guarded = |work: &mut dyn FnMut() -> Result<PieceOutcome>| {
            catch_unwind(AssertUnwindSafe(work))
                .unwrap_or_else(|_| Err(panicked("a worker")))
                .unwrap_or_else(PieceOutcome::Failed)
        };
        let mut skips = Skips::new(&shared.policy, turn.batch.saturating_mul(size).saturating_add(turn.row));
        let mut piece = None;
        let read = guarded(&mut || {
            let reader = match &mut turn.reader {
                Some(reader) => reader,
                None => turn.reader.insert(shards.open(turn.shard, turn.batch, size)?),
            };
            piece = reader.next(&mut skips)?;
            Ok(PieceOutcome::End)
        });
        let (shard, batch, number) = (turn.shard, turn.batch, turn.piece);
        let Some(DocumentPiece { documents, rows, ends_batch }) = piece else {
            shared.shard_order.give_back(turn, None);
            shared.shard_order.answer(shard, number, in_shard(read, &shards.names()[shard]));
            continue;
        };
        shared.shard_order.give_back(turn, Some((rows, ends_batch)));
        let mut documents = Some(documents);
        let made = guarded(&mut || {
            let process = process.get_or_insert_with(|| processor.worker());
            let Some(documents) = documents.take() else { return Ok(PieceOutcome::End) };
            let mut processed = process.process(documents, &mut skips)?;
            if let Some(fields) = &shared.fields {
                processed.select(fields)?;
            }
            processed.check()?;
            Ok(PieceOutcome::Done { processed, left_out: Vec::new(), ends_batch })
        });
        let made = match made {
            PieceOutcome::Done { processed, .. } => {
                PieceOutcome::Done { processed, left_out: skips.into_errors(), ends_batch }
            }
            ended => in_batch(in_shard(ended, &shards.names()[shard]), batch, size),
        };
        shared.shard_order.answer(shard, number, made);
    }
}

fn in_shard(outcome: PieceOutcome, name: &str) -> PieceOutcome {
    match outcome {
        PieceOutcome::Failed(error) if error.place.shard.is_none() => {
            PieceOutcome::Failed(error.in_shard(name))
        }
        outcome => outcome,
    }
}

/// Adds the rows of the batch to an error without a row.
fn in_batch(outcome: PieceOutcome, batch: u64, size: u64) -> PieceOutcome {
    match outcome {
        PieceOutcome::Failed(mut error) if error.place.row.is_none() => {
            let begin = batch.saturating_mul(size);
            let last = begin.saturating_add(size - 1);
            error.message = format!("{} (documents {begin} to {last})", error.message);
            PieceOutcome::Failed(error)
        }
        outcome => outcome,
    }
}

fn write<B: Send>(shared: &BuildShared<B>, mut writer: CacheWriter, names: &[String]) -> Result<u64> {
    let result = append_all(shared, &mut writer, names);
    if let Err(error) = &result
        && error.kind != ErrorKind::Closed
        && let Err(untold) = writer.fail(error)
    {
        // If the disk is full this may fail as well; the error is reported all the same.
        log::warn!("cannot record in the ledger that the build failed: {untold}");
    }
    result
}

/// The last commit's documents, and when the next commit is due if there are new ones.
struct Pace {
    documents: u64,
    due: Instant,
}

/// Commits all documents so far. Slow storage delays the next commit, so that commits leave time to write.
fn commit<B>(shared: &BuildShared<B>, writer: &mut CacheWriter) -> Result<Pace> {
    let begin = Instant::now();
    writer.commit()?;
    shared.committed.store(writer.documents(), Ordering::Relaxed);
    let wait = shared.commits.time.max(begin.elapsed() * COMMIT_SHARE);
    Ok(Pace { documents: writer.documents(), due: Instant::now() + wait })
}

fn append_all<B: Send>(shared: &BuildShared<B>, writer: &mut CacheWriter, names: &[String]) -> Result<u64> {
    let mut pace =
        Pace { documents: writer.documents(), due: shared.begin + shared.commits.time / FIRST_COMMIT };
    let (mut account, before) = (FailureList::new(0, LISTED), writer.ledger().skipped.documents);
    let mut tally = Tally::new(&shared.policy, u64::MAX, 0..before).advising("see errors() of the cache");
    // Whether a part of a batch was written after the last commit; a resumed build could not continue it.
    let mut is_torn = false;
    loop {
        let is_new = !is_torn && writer.documents() > pace.documents;
        let due = is_new.then_some(pace.due);
        let Some((shard, outcome)) = shared.shard_order.next(due) else {
            if shared.shard_order.is_stopped() {
                if !is_torn {
                    commit(shared, writer)?;
                }
                return Err(Error::new(ErrorKind::Closed, "the build was cancelled; build again to resume"));
            }
            if shared.shard_order.is_finished() {
                writer.finish()?;
                shared.committed.store(writer.documents(), Ordering::Relaxed);
                return Ok(writer.documents());
            }
            pace = commit(shared, writer)?;
            continue;
        };
        let name = &names[shard];
        match outcome {
            PieceOutcome::Done { processed, left_out, ends_batch } => {
                let numbered = |(error, number): (Error, u64)| {
                    let mut error = error.in_shard(name);
                    error.place.index = Some(number);
                    error
                };
                let left_out: Vec<_> =
                    left_out.into_iter().zip(writer.ledger().skipped.documents..).map(numbered).collect();
                if let Some(too_many) = left_out.iter().find_map(|error| tally.bad(error, false).err()) {
                    if !is_torn {
                        commit(shared, writer)?;
                    }
                    return Err(too_many);
                }
                if !is_torn && !ends_batch {
                    // Commits the documents before the batch; the next commit comes after the whole batch.
                    pace = commit(shared, writer)?;
                }
                is_torn = !ends_batch;
                for error in left_out {
                    writer.leave_out(name, &error);
                    account.enter(error, true);
                }
                writer.append(name, Some(processed))?;
                if ends_batch {
                    writer.advance(name, false);
                }
            }
            PieceOutcome::End => writer.advance(name, true),
            PieceOutcome::Failed(error) => {
                if !is_torn {
                    commit(shared, writer)?;
                }
                return Err(error);
            }
        }
        shared.documents.store(writer.documents(), Ordering::Relaxed);
        shared.skipped.store(writer.ledger().skipped.documents, Ordering::Relaxed);
        shared.values.store(writer.values(), Ordering::Relaxed);
        let new = writer.documents() - pace.documents;
        if !is_torn && new > 0 && (new >= shared.commits.documents || Instant::now() >= pace.due) {
            pace = commit(shared, writer)?;
        }
    }
}

/// Whether the cache in `path` is finished.
///
/// # Errors
/// As [`Ledger::read`].
pub fn is_finished(path: &std::path::Path, split: &str) -> Result<bool> {
    Ok(Ledger::read(&path.join(split))?.is_some_and(|ledger| ledger.is_finished))
}
