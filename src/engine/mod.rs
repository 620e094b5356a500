//! The engine: runs a [`Task`] over a [`Source`], in a given order, on threads of its own.
//!
//! ```text
//!            tickets            records                examples                 rows
//!  Admission ───────▶ I/O thread ───────▶ n workers ──────────▶ Concurrent-   ──────▶ Assembler ──▶ batch
//!      ▲              (Source)   bounded  (ExampleMaker)  by    ShuffleBuffer by draw (Collate)
//!      └──────────────────── credit: draws made, substitutes wanted ──────────────────┘
//! ```
//!
//! Records move to the right, counts move to the left. Backpressure acts in one place, at the I/O thread: a
//! worker never blocks inside the engine, and the ticket that the collator waits for is always on its way.
//! The engine knows neither audio nor Arrow: a task says how a record becomes an example and examples a
//! batch, a source where records come from. `docs/design.md` has the proofs and the ways out.
//!
//! | file | what a reader finds there | thread | may wait for |
//! |---|---|---|---|
//! | `mod.rs` | `Engine`: passes, the batch that is handed out; `Control`: ends it from any thread | the caller's | a batch, in slices |
//! | `plan.rs` | the user's choices: order, sizes, limits | | |
//! | `position.rs` | where the engine stands; resume, seek, skip | the caller's | |
//! | `replay.rs` | one batch, record by record: the oracle | the caller's | the file system |
//! | `headspace.rs` | the speed with a loop that does nothing | the caller's | a batch |
//! | `flow/run.rs` | starts the threads of a pass | the collator's or the caller's | |
//! | `flow/shared.rs` | what these threads share; the answer that each record is owed | all | |
//! | `flow/admission.rs` | which ticket is read next | I/O | |
//! | `flow/demand.rs` | what the collator needs, as errands of the I/O threads | I/O, collator | credit |
//! | `flow/reader.rs` | an I/O thread: reads, sends | I/O | the file system, its turn, bytes, the channel |
//! | `flow/sequencer.rs` | hands what several threads read over in one order | I/O | its turn |
//! | `flow/permits.rs` | memory for a large read, before it is allocated | I/O | bytes |
//! | `flow/channel_limit.rs` | the bound in bytes; parking for a full channel | I/O | bytes |
//! | `flow/worker.rs` | a worker: makes examples | worker | a record; a wake-up; the user's code |
//! | `flow/collator.rs` | makes batches ahead | collator | room for a batch |
//! | `flow/assembler.rs` | draws become rows of a batch | collator | an example, a substitute |
//! | `threads/owned.rs` | names, starts and joins threads | the caller's | their end, 0.5 s |
//! | `threads/parking.rs` | which workers are parked | worker, collator | a wake-up |
//! | `threads/autoscale.rs` | how many workers and batches ahead | collator | |
//! | `threads/inject.rs` | faults for tests; not in release builds | worker | a delay |
//! | `observe/activity.rs` | what each thread does now, and since when | all | |
//! | `observe/stall.rs` | who waits for whom, in words | the caller's | |
//! | `observe/meter.rs` | time of work and waits | all | |
//! | `observe/stats.rs` | totals of a loader | all | |
//! | `observe/queues.rs` | how much lies between the stages | | |
//! | `observe/trace.rs` | spans of all threads, as a file | all; its own writes | |
//! | `observe/verdict.rs` | what limits the loader, in words | the caller's | |
//! | `failures/policy.rs` | what becomes of bad records | collator | |
//! | `failures/list.rs` | the bad records that were delivered | the caller's | |

mod failures;
mod flow;
mod headspace;
mod observe;
mod plan;
mod position;
mod replay;
mod threads;

use std::{
    mem,
    ops::Range,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

pub(crate) use failures::list::FailureList;
pub(crate) use failures::list::NAMED;
pub use failures::list::{LISTED, Losses, Lost};
pub(crate) use failures::policy::Tally;
pub use failures::policy::{MaxErrors, Policy};
pub use flow::assembler::{SUBSTITUTES, Step};
pub use headspace::Headspace;
pub(crate) use observe::activity::during;
pub use observe::activity::{Role, State, ThreadState};
pub use observe::meter::{Times, meter_examples};
pub use observe::queues::Queues;
pub use observe::stall::Stall;
pub use observe::stats::{Counters, Delivered, Report, StageTimes, Stats, cores};
pub use plan::{MOST_READERS, MixturePlan, Plan};
pub(crate) use position::MAX_WORLD;
pub use position::{Canon, Position, SKIPS, Upcoming};
pub use replay::Replay;
pub use threads::autoscale::{AUTO_PREFETCH, Auto};
#[cfg(debug_assertions)]
pub use threads::inject::{delays as inject_delays, panic_at as inject_panic_at};
pub use threads::owned::JOIN_TIMEOUT;
pub(crate) use threads::owned::Threads;
#[cfg(loom)]
pub use {
    flow::{channel_limit::ChannelLimit, sequencer::Sequencer},
    threads::parking::Parking,
};

use crate::{
    Error, ErrorKind, Result,
    order::{Layout, Mixture, Rules, Schedule, Sources},
    record::{Source, Standings, Task},
    seed::{Purpose, hash},
};
use flow::assembler::Complete;
use flow::collator::{Pass, Start};
use flow::reader::Reading;
use flow::shared::Shared;
#[cfg(feature = "python")]
pub(crate) use flow::shared::closed;
#[cfg(not(feature = "python"))]
use flow::shared::closed;
use observe::activity::Activities;
use observe::trace::Tracing;
use threads::owned::Retired;

pub use crate::record::{BatchOf, ExampleOf};

/// Loads batches: order, run, batches under way and the account of bad records.
pub struct Engine<S: Source, K: Task> {
    plan: Plan,
    canon: Canon,
    shard_rows: Vec<u64>,
    source: Arc<S>,
    task: Arc<K>,
    epoch: u64,
    /// The batches of the pass; `None` without end, or if they are not counted.
    n_batches: Option<u64>,
    /// Whether a pass of which they are not counted has come to its end.
    is_over: bool,
    /// The batch that the pass was started at, sought or restored at.
    start: u64,
    /// Where the streams stand after the last batch that was taken, if its number does not tell.
    standings: Option<Standings>,
    /// The engine's position before that batch. Cleared by any call that leaves the pass.
    before: Option<Before>,
    /// Calls of `iter()` on an infinite engine; `None` after a restore, up to the first epoch that is set.
    iterations: Option<u64>,
    /// The schedule that [`Engine::places`] asked last, and of which pass and streams it is.
    asked: Option<(u64, Canon, Schedule)>,
    skip: Vec<Range<u64>>,
    pass: Option<Pass<K::Collate>>,
    /// A batch that came and was not taken yet, and its number.
    held: Option<(u64, Complete<BatchOf<K>>)>,
    /// Ends a trace when dropped.
    tracing: Tracing,
    /// Threads of passes that were left, on their way out.
    retired: Retired,
    control: Arc<Control<ExampleOf<K>>>,
    counters: Arc<Counters>,
    failures: FailureList,
}

/// An engine's position before the batch that was taken last.
struct Before {
    /// The number of that batch.
    batch: u64,
    standings: Option<Standings>,
    /// The counts since then.
    counts: Delivered,
}

/// Ends an engine from any thread, even one whose `next` is under way elsewhere.
pub struct Control<E> {
    closed: AtomicBool,
    batches_per_epoch: AtomicU64,
    current: Mutex<Current<E>>,
}

/// The run that is under way, or was last.
struct Current<E> {
    shared: Weak<Shared<E>>,
    /// Kept when the run is gone.
    activities: Option<Arc<Activities>>,
}

impl<E> Control<E> {
    /// Stops the threads and wakes a blocked `next`, which then fails as all later ones do.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(shared) = self.shared() {
            shared.stop();
        }
    }

    /// Batches of one epoch; in a finite pass their exact number.
    pub fn batches_per_epoch(&self) -> u64 {
        self.batches_per_epoch.load(Ordering::Relaxed)
    }

    /// What lies between the stages; nothing if no pass is under way.
    pub fn queues(&self) -> Queues {
        self.shared().map(|shared| shared.queues()).unwrap_or_default()
    }

    /// What each thread of the pass is doing, or was when the last pass ended; empty before the first one.
    pub fn threads(&self) -> Vec<ThreadState> {
        match self.shared() {
            Some(shared) => shared.look().threads,
            None => {
                self.current().activities.as_ref().map(|activities| activities.look()).unwrap_or_default()
            }
        }
    }

    /// Who waits for whom, if a call waits for a batch.
    pub fn stall(&self) -> Option<Stall> {
        Stall::of(&self.shared()?.look())
    }

    /// The call that waited for a batch has given up. One that times out is seen as waiting until the next
    /// one.
    pub fn give_up(&self) {
        if let Some(activities) = &self.current().activities {
            activities.consumer().enter(State::Loop, Instant::now());
        }
    }

    fn shared(&self) -> Option<Arc<Shared<E>>> {
        self.current().shared.upgrade()
    }

    fn current(&self) -> MutexGuard<'_, Current<E>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether [`Control::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// The highest epoch that can be chosen: no count from there on overflows.
pub const MAX_EPOCH: u64 = 1 << 62;

/// The error of an epoch that cannot be chosen.
pub(crate) fn epoch_out_of_range(epoch: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, format!("epoch is {epoch}, must be 0 to {MAX_EPOCH}"))
}

impl<S: Source, K: Task> Engine<S, K> {
    /// An engine that has not started a thread yet; the first call for a batch does.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the source has no rows, or fewer than there are streams, or its sources
    /// cannot be mixed as planned, or its rows cannot be read in the order planned.
    pub fn new(source: Arc<S>, task: K, plan: Plan) -> Result<Self> {
        Self::over(source, Arc::new(task), plan)
    }

    /// An engine over a task that others may use as well.
    fn over(source: Arc<S>, task: Arc<K>, plan: Plan) -> Result<Self> {
        let shard_rows = source.shard_rows();
        if shard_rows.iter().sum::<u64>() == 0 {
            return Err(Error::new(
                ErrorKind::Config,
                "the shards hold no rows at all; check that the right files were given",
            ));
        }
        if plan.order.is_scattered() {
            source.check_scattered()?;
        }
        let rows = shard_rows.iter().sum::<u64>();
        if plan.policy.exclude.len() as u64 >= rows {
            return Err(Error::new(
                ErrorKind::Config,
                format!("exclude leaves nothing: there are {rows} rows, and all of them are excluded"),
            ));
        }
        let failures = FailureList::new(plan.rank, plan.policy.listed(rows));
        let canon = Canon::first(&plan);
        let counters =
            Arc::new(Counters::new(&plan, Reading::new(&plan, &source).steady(), source.retries()));
        let mut engine = Self {
            canon,
            tracing: Tracing::of(&counters.trace),
            counters,
            plan,
            shard_rows,
            source,
            task,
            epoch: 0,
            n_batches: None,
            is_over: false,
            start: 0,
            standings: None,
            before: None,
            iterations: Some(0),
            asked: None,
            skip: Vec::new(),
            pass: None,
            held: None,
            retired: Retired::default(),
            control: Arc::new(Control {
                closed: AtomicBool::new(false),
                batches_per_epoch: AtomicU64::new(0),
                current: Mutex::new(Current { shared: Weak::new(), activities: None }),
            }),
            failures,
        };
        engine.begin(0)?;
        Ok(engine)
    }

    /// Waits for the next batch, at most `timeout`, and takes it.
    ///
    /// # Errors
    /// As [`Engine::fetch`].
    pub fn next(&mut self, timeout: Duration) -> Result<Step<BatchOf<K>>> {
        Ok(match self.fetch(timeout)? {
            Step::Batch(..) => {
                self.take().map_or(Step::TimedOut, |(number, batch)| Step::Batch(number, batch))
            }
            Step::TimedOut => Step::TimedOut,
            Step::End => Step::End,
        })
    }

    /// Waits for the next batch, at most `timeout`, and keeps it for [`Engine::take`]; until then the
    /// position is before it. Starts the pass if it has not begun.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after [`Control::close`]; an error that ends the run, after all batches before
    /// it, again and again.
    pub fn fetch(&mut self, timeout: Duration) -> Result<Step<()>> {
        if self.control.is_closed() {
            return Err(closed());
        }
        self.skip_ahead()?;
        if let Some((number, _)) = self.held {
            return Ok(Step::Batch(number, ()));
        }
        let pass = match &mut self.pass {
            Some(pass) => pass,
            None => {
                let started = self.start()?;
                self.pass.insert(started)
            }
        };
        let (failures, policy) = (&mut self.failures, &self.plan.policy);
        let step = pass.next(timeout, |error| {
            let is_skipped = policy.skips(error.kind);
            failures.enter(error, is_skipped);
        });
        Ok(match step? {
            Step::Batch(number, complete) => {
                self.held = Some((number, complete));
                Step::Batch(number, ())
            }
            Step::TimedOut => Step::TimedOut,
            Step::End => {
                if !mem::replace(&mut self.is_over, true) {
                    log::debug!("the pass of epoch {} is over after {} batches", self.epoch, pass.batch());
                }
                let rest = pass.rest();
                self.counters.deliver(rest);
                if let Some(before) = &mut self.before {
                    before.counts = before.counts + rest;
                }
                Step::End
            }
        })
    }

    /// Hands out the fetched batch; `None` if there is none any more, because of a `seek` or `close` since
    /// then.
    pub fn take(&mut self) -> Option<(u64, BatchOf<K>)> {
        let (number, Complete { batch, standings, counts }) = self.held.take()?;
        let standings = mem::replace(&mut self.standings, standings);
        self.before = Some(Before { batch: number, standings, counts });
        self.counters.deliver(counts);
        Some((number, batch))
    }

    /// Puts back the batch that was taken last, if it did not reach the caller: it is made again as the next
    /// one. Does nothing if no batch was taken since the position changed.
    pub fn take_back(&mut self) {
        if let Some(Before { batch, standings, counts }) = self.before.take() {
            self.counters.take_back(counts);
            self.leave(batch);
            self.is_over = false;
            self.standings = standings;
        }
    }

    /// Implements Python's `iter()`: an infinite engine continues. A finite one begins the next pass if the
    /// last one is over, and the same pass again if it was left early. After `seek` or a restore, with no
    /// batch taken since, the position stays.
    ///
    /// # Errors
    /// None that [`Engine::new`] would not have found.
    pub fn rewind(&mut self) -> Result<()> {
        if self.plan.infinite {
            self.iterations = self.iterations.map(|n| n + 1);
            return Ok(());
        }
        if self.is_over() {
            return self.begin(self.epoch + 1);
        }
        if !self.is_fresh() {
            self.leave(0);
        }
        Ok(())
    }

    /// Whether the pass has come to its end.
    fn is_over(&self) -> bool {
        self.is_over || self.n_batches.is_some_and(|n| self.batch() >= n)
    }

    /// Whether the pass stands where it was started, sought or restored.
    fn is_fresh(&self) -> bool {
        self.pass.as_ref().is_none_or(|pass| pass.fatal().is_none()) && self.next_batch() == self.start
    }

    /// The number of the next batch, be it one to skip.
    fn next_batch(&self) -> u64 {
        let next = self.pass.as_ref().map_or(self.start, Pass::batch);
        self.held.as_ref().map_or(next, |&(number, _)| number)
    }

    /// Stands at the beginning of the pass `epoch`.
    fn begin(&mut self, epoch: u64) -> Result<()> {
        let schedule = self.schedule(epoch)?;
        if schedule.n_batches() == Some(0) {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "drop_last leaves no batch: there are {} rows, batches of all ranks have {}",
                    schedule.positions(),
                    self.global_batch()
                ),
            ));
        }
        self.enter(epoch, 0, &schedule);
        Ok(())
    }

    /// Stands at `batch` of the pass `epoch`, whose schedule is given.
    fn enter(&mut self, epoch: u64, batch: u64, schedule: &Schedule) {
        self.leave(batch);
        self.epoch = epoch;
        self.n_batches = schedule.n_batches();
        self.is_over = false;
        self.skip.clear();
        let per_epoch = self.n_batches.unwrap_or_else(|| self.rows().div_ceil(self.global_batch()));
        self.control.batches_per_epoch.store(per_epoch, Ordering::Relaxed);
    }

    /// Leaves the pass without waiting for its threads; the next one begins at `batch`, the first one or, if
    /// batches are not counted, the next.
    fn leave(&mut self, batch: u64) {
        if batch == 0 {
            self.standings = None;
        }
        self.start = batch;
        self.before = None;
        self.held = None;
        if let Some(pass) = self.pass.take() {
            if !self.is_over {
                log::debug!("the pass of epoch {} is left before batch {}", self.epoch, pass.batch());
            }
            self.retired.add(pass.retire());
        }
    }

    /// Chooses the pass that the next `iter()` or `next()` begins. A pass that was restored or sought, and of
    /// which no batch was taken since, keeps its position if its own number is chosen.
    ///
    /// An infinite engine continues and does not change: `epoch` may be its own, or that of a framework that
    /// counts its calls of `iter()`. The count begins at 0; after a restore at the number of the first call.
    ///
    /// # Errors
    /// [`ErrorKind::State`] for any other epoch of an infinite engine, [`ErrorKind::Config`] above
    /// [`MAX_EPOCH`].
    pub fn set_epoch(&mut self, epoch: u64) -> Result<()> {
        if epoch > MAX_EPOCH {
            return Err(epoch_out_of_range(epoch));
        }
        if self.plan.infinite {
            let iterations = *self.iterations.get_or_insert(epoch);
            if [iterations, iterations.saturating_sub(1), self.epoch()].contains(&epoch) {
                return Ok(());
            }
            return Err(Error::new(
                ErrorKind::State,
                format!(
                    "epoch is {epoch}, but an infinite loader continues from its position: it is at epoch {}, and \
                     {iterations} iterations were started; use infinite=False to choose epochs, or seek() to \
                     choose a batch",
                    self.epoch()
                ),
            ));
        }
        if self.epoch == epoch && self.is_fresh() { Ok(()) } else { self.begin(epoch) }
    }

    /// Counts the batches of the pass anew, where rows were still added as it began; those past its end are
    /// forgotten.
    ///
    /// # Errors
    /// None that [`Engine::new`] would not have found.
    pub fn recount(&mut self) -> Result<()> {
        self.n_batches = self.schedule(self.epoch)?.n_batches();
        if let Some(n) = self.n_batches {
            self.control.batches_per_epoch.store(n, Ordering::Relaxed);
            if self.next_batch() >= n {
                self.leave(n);
            }
        }
        Ok(())
    }

    /// Rows of all shards.
    pub fn rows(&self) -> u64 {
        self.shard_rows.iter().sum()
    }

    /// Batches of one epoch; in a finite pass their exact number.
    pub fn batches_per_epoch(&self) -> u64 {
        self.control.batches_per_epoch()
    }

    fn global_batch(&self) -> u64 {
        self.plan.batch_size as u64 * self.plan.world_size
    }

    /// The records that could not be had so far, each once, by row: the first [`LISTED`], or all of as many
    /// as are allowed.
    pub fn errors(&self) -> impl Iterator<Item = &Error> {
        self.failures.errors()
    }

    /// Takes the list of [`Engine::errors`] and clears it: for callers that need all of them, in any number.
    pub fn take_errors(&mut self) -> Vec<Error> {
        self.failures.take()
    }

    /// Counts since construction.
    pub fn stats(&self) -> Stats {
        self.counters.read()
    }

    /// The counters behind [`Engine::stats`], to be read while another thread is in [`Engine::next`].
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// The handle that ends this engine.
    pub fn control(&self) -> Arc<Control<ExampleOf<K>>> {
        self.control.clone()
    }

    /// Traces what the threads do for `length` from now on, while batches are asked for as ever, and writes
    /// the file at `path` when that time is over or the engine closes: trace events as JSON.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if a trace is being taken already, [`ErrorKind::Io`] if the file cannot be
    /// written, [`ErrorKind::Closed`].
    pub fn trace(&mut self, path: &Path, length: Duration) -> Result<()> {
        if self.control.is_closed() {
            return Err(closed());
        }
        self.tracing.start(path, length)
    }

    /// Ends all threads, within [`JOIN_TIMEOUT`]; a trace that is being taken ends, and its file is waited
    /// for.
    pub fn close(&mut self) {
        self.control.close();
        self.leave(self.next_batch());
        self.tracing.finish();
        self.retired.join();
    }

    fn start(&self) -> Result<Pass<K::Collate>> {
        if self.control.is_closed() {
            return Err(closed());
        }
        self.counters.asked();
        let schedule = self.schedule(self.epoch)?;
        let plan =
            Plan { buffer_size: self.canon.per_stream(self.plan.buffer_size).max(1), ..self.plan.clone() };
        let tally = Tally::new(&plan.policy, self.rows(), self.failures.rows());
        let start = Start { batch: self.start, standings: self.standings.as_ref(), tally };
        let pass = Pass::start(&plan, schedule, start, &self.source, &self.task, &self.counters)?;
        let shared = &pass.run().shared;
        *self.control.current() =
            Current { shared: Arc::downgrade(shared), activities: Some(shared.activities.clone()) };
        log::debug!(
            "the pass of epoch {} begins at batch {}: {} I/O threads, {} workers, a collator",
            self.epoch,
            self.start,
            shared.activities.n_readers,
            plan.n_workers
        );
        Ok(pass)
    }

    /// The schedule of the pass `epoch`, or of the endless one.
    fn schedule(&self, epoch: u64) -> Result<Schedule> {
        let Plan { seed, order, infinite, drop_last, rank, world_size, .. } = self.plan;
        // Each pass of a mixture is one of its own, though its sources' epochs count from 0 in each.
        let seed = match self.plan.mixture {
            Some(_) if !infinite => hash(seed, Purpose::Pass, [epoch]),
            _ => seed,
        };
        let sources = self.plan.mixture.as_ref().map(|plan| {
            let MixturePlan { stages, block, stop, starts } = plan;
            let lengths: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
            Mixture::new(seed, stages, *block, *stop, &lengths)
                .map(|mixture| Sources { mixture, starts: starts.clone() })
        });
        let rules = Rules {
            seed,
            order,
            layout: Layout {
                rank,
                world_size,
                batch_size: self.plan.batch_size as u64,
                n_streams: self.canon.n_streams,
            },
            window: self.canon.per_stream(self.plan.window).max(1),
            epoch,
            infinite,
            drop_last,
        };
        match &self.plan.groups {
            Some(groups) => Schedule::dealt(rules, groups),
            None => Schedule::new(rules, &self.source.shard_rows_in(epoch)?, sources.transpose()?),
        }
    }
}
