//! The engine runs a [`Task`] over a [`Source`] in a given order, on its own threads, and hands out batches.
//!
//! ```text
//!            tickets            records                examples                 rows
//!  Admission ───────▶ I/O thread ───────▶ n workers ──────────▶ Concurrent-   ──────▶ Assembler ──▶ batch
//!      ▲              (Source)   bounded  (ExampleMaker)  by    ShuffleBuffer by draw (Collate)
//!      └──────────────────── credit: draws made, substitutes wanted ──────────────────┘
//! ```
//!
//! Records move to the right, counts move to the left. Backpressure acts in one place, at the I/O thread: a
//! worker never blocks inside the engine, and the ticket that the collator waits for is always in flight. The
//! engine knows neither audio nor Arrow: the source reads records, the task turns records into examples and
//! examples into batches. `docs/design.md` has the proofs and the ways in which a run ends.
//!
//! | file | what is in it | thread | may wait for |
//! |---|---|---|---|
//! | `mod.rs` | `Engine`: passes, batches for the caller | the caller's | a batch, in slices |
//! | `control.rs` | `Control`: closes and observes the engine | any | |
//! | `plan.rs` | `Plan`: order, sizes and limits as configured | | |
//! | `position.rs` | the position in the data; resume, seek, skip | the caller's | |
//! | `schedules.rs` | the schedule of each pass, by the plan | the caller's | |
//! | `failed_pass.rs` | whether too many records of a pass failed | the caller's | |
//! | `replay.rs` | makes one batch record by record; the tests' oracle | the caller's | the file system |
//! | `headspace.rs` | measures the speed with an empty loop | the caller's | a batch |
//! | `flow/run.rs` | starts the threads of a pass | the collator's or the caller's | |
//! | `flow/shared.rs` | state shared by these threads; the answer for each admitted record | all | |
//! | `flow/admission.rs` | chooses the ticket to read next | I/O | |
//! | `flow/demand.rs` | turns the collator's draws and requests into jobs of the I/O threads | I/O, collator | credit |
//! | `flow/reader.rs` | an I/O thread: reads records, sends them to the workers | I/O | the file system, its turn, bytes, the channel |
//! | `flow/sequencer.rs` | makes several I/O threads send in one order | I/O | its turn |
//! | `flow/permits.rs` | grants memory for a large read before it is allocated | I/O | bytes |
//! | `flow/channel_limit.rs` | bounds the bytes in flight; parks senders while the channel is full | I/O | bytes, room |
//! | `flow/worker.rs` | a worker: makes examples | worker | a record; a wake-up; the user's code |
//! | `flow/collator.rs` | makes batches ahead | collator | room for a batch |
//! | `flow/assembler.rs` | puts drawn examples into the rows of a batch | collator | an example, a substitute |
//! | `threads/owned.rs` | names, starts and joins threads | the caller's | their end, 0.5 s |
//! | `threads/parking.rs` | parks and wakes workers | worker, collator | a wake-up |
//! | `threads/cpus.rs` | binds threads to CPUs | each thread, once | |
//! | `threads/scheduling.rs` | policy and niceness of threads | each thread, once | |
//! | `threads/autoscale.rs` | chooses the number of workers and of batches ahead | collator | |
//! | `threads/inject.rs` | injects faults for tests; not in release builds | worker | a delay |
//! | `observe/activity.rs` | the current state of each thread, with its begin | all | |
//! | `observe/stall.rs` | which thread waits for which, in words | the caller's | |
//! | `observe/meter.rs` | times of work and of waits | all | |
//! | `observe/stats.rs` | counts and times since construction; recent rates | all | |
//! | `observe/queues.rs` | the amount of data between the stages | | |
//! | `observe/run_queue.rs` | how long these threads waited for a core | the caller's; all, when they end | |
//! | `observe/trace.rs` | records spans of all threads; writes them to a file | all; its own writes | the end of the recording |
//! | `observe/verdict.rs` | which stage limits the loader, in words | the caller's | |
//! | `failures/policy.rs` | which bad records are skipped, and how many may be | collator | |
//! | `failures/list.rs` | the bad records of the batches handed out | the caller's | |

mod control;
mod failed_pass;
mod failures;
mod flow;
mod headspace;
mod observe;
mod plan;
mod position;
mod replay;
mod schedules;
mod threads;

use std::{
    mem,
    ops::Range,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

pub use crate::histogram::Times;
pub use control::Control;
pub use failures::{
    list::{FailureList, LISTED, Losses, Lost, NAMED},
    policy::{MaxErrors, Policy, Tally},
};
pub use flow::assembler::{SUBSTITUTES, Step};
pub use flow::shared::{closed, located, panicked};
pub use headspace::Headspace;
pub use observe::activity::{Role, State, ThreadState, during};
pub use observe::meter::meter_examples;
pub use observe::queues::QueueSizes;
pub use observe::stall::Stall;
pub use observe::stats::{Counters, Delivered, FailureCounts, Report, StageTimes, Stats, cores};
pub use plan::{MOST_READERS, MixturePlan, Plan, credit_ahead};
pub use position::{CutPosition, MAX_WORLD, Position, SKIPS, StreamLayout, Upcoming};
pub use replay::Replay;
pub use threads::autoscale::{AUTO_PREFETCH, Auto};
#[cfg(debug_assertions)]
pub use threads::inject::{
    delays as inject_delays, panic_at as inject_panic_at, refuse_thread_after as inject_refused_thread,
};
pub use threads::{
    cpus::Cpus,
    owned::{JOIN_TIMEOUT, Threads, builder, note_end},
    scheduling::as_process,
};
#[cfg(loom)]
pub use {
    flow::{channel_limit::ChannelLimit, sequencer::Sequencer},
    threads::parking::Parking,
};

use crate::{
    Error, ErrorKind, Result,
    contract::{Source, StreamPositions, Task, TaskFor},
    order::{CutTotals, Cuts, Order, Schedule, WeightedRows},
};
use failed_pass::WARN_FROM;
use flow::assembler::Complete;
use flow::collator::{Pass, Start};
use flow::reader::ReaderPlan;
use observe::trace::Tracing;
use threads::owned::Retired;

pub use crate::contract::{BatchOf, ExampleOf};

/// Loads batches: owns the order, the run, the batches in progress and the list of bad records.
pub struct Engine<S: Source, K: Task> {
    plan: Plan,
    layout: StreamLayout,
    /// Rows of the first pass.
    rows: u64,
    source: Arc<S>,
    task: Arc<K>,
    epoch: u64,
    /// The number of batches of the pass; `None` if it is infinite or unknown (packed batches).
    n_batches: Option<u64>,
    /// Whether a pass with an unknown number of batches has ended.
    is_over: bool,
    /// The batch at which the threads start: 0, or set by seek, skip, restore or `take_back`.
    start: u64,
    /// Whether a batch was taken since the pass began, or since a seek or restore within it; one that
    /// `take_back` put back does not count.
    has_taken: bool,
    /// Whether a pass was left early before; only the first time is logged.
    has_left: bool,
    /// The batches of the pass, if they follow from the lengths of rows.
    cuts: Option<Arc<Cuts<Schedule>>>,
    /// The positions of the streams after the last batch taken, if its number does not determine them.
    stream_positions: Option<StreamPositions>,
    /// The engine's position before that batch. Cleared by any call that leaves the pass.
    before: Option<PreviousPosition>,
    /// The counts of the pass so far; `None` if it was not begun at its first batch.
    so_far: Option<Delivered>,
    /// Whether it was logged that many records fail.
    has_warned: bool,
    /// The schedule that [`Engine::places`] used last, with its epoch and streams.
    asked: Option<(u64, StreamLayout, Schedule)>,
    skip: Vec<Range<u64>>,
    pass: Option<Pass<K::Collate>>,
    /// A batch that was received and not taken yet, and its number.
    held: Option<(u64, Complete<BatchOf<K>>)>,
    tracing: Tracing,
    /// Threads of abandoned passes that are ending.
    retired: Retired,
    control: Arc<Control<ExampleOf<K>>>,
    counters: Arc<Counters>,
    failures: FailureList,
}

/// The engine's position before the last batch taken.
struct PreviousPosition {
    batch: u64,
    stream_positions: Option<StreamPositions>,
    counts: Delivered,
    /// [`Engine::has_taken`] then.
    had_taken: bool,
}

/// The highest epoch that can be chosen: from there on no count overflows.
pub const MAX_EPOCH: u64 = 1 << 62;

/// The error of an epoch that cannot be chosen.
pub fn epoch_out_of_range(epoch: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, format!("epoch is {epoch}, must be 0 to {MAX_EPOCH}"))
}

impl<S: Source, K: TaskFor<S>> Engine<S, K> {
    /// Creates an engine. Its threads start with the first call for a batch.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the source has no rows or fewer rows than streams, if all are excluded, if
    /// `drop_last` leaves no batch, if its sources cannot be mixed as planned, or if its rows cannot be read
    /// in the planned order.
    pub fn new(source: Arc<S>, task: K, plan: Plan) -> Result<Self> {
        Self::over(source, Arc::new(task), plan)
    }

    /// Creates an engine with a task that other engines may share.
    fn over(source: Arc<S>, task: Arc<K>, plan: Plan) -> Result<Self> {
        let rows = source.shard_rows(0)?.iter().sum::<u64>();
        if rows == 0 {
            return Err(Error::new(
                ErrorKind::Config,
                "the files contain no rows; check that these are the right files",
            ));
        }
        if plan.is_scattered() {
            source.check_scattered()?;
        }
        let is_packed = !plan.batching.is_planned();
        if [plan.order == Order::Groups, plan.groups.is_some()] != [is_packed; 2] {
            return Err(Error::new(
                ErrorKind::Config,
                "the order `groups`, row groups and batches that a collator counts belong together",
            ));
        }
        if let Some(weights) = &plan.weights
            && weights.iter().map(|weights| weights.n_rows()).sum::<u64>() != rows
        {
            let n: u64 = weights.iter().map(|weights| weights.n_rows()).sum();
            return Err(Error::new(ErrorKind::Config, format!("there are {n} weights for {rows} rows")));
        }
        if plan.policy.exclude.len() as u64 >= rows {
            return Err(Error::new(
                ErrorKind::Config,
                format!("exclude leaves no rows: all {rows} rows are excluded"),
            ));
        }
        let failures = FailureList::new(plan.rank, plan.policy.listed(rows));
        let failures = if plan.policy.logs { failures } else { failures.silent() };
        let layout = StreamLayout::first(&plan);
        let counters = Arc::new(Counters::new(&plan, K::WORDS, ReaderPlan::new(&plan, &source).steady()));
        let mut engine = Self {
            layout,
            tracing: Tracing::of(&counters.trace),
            counters,
            plan,
            rows,
            source,
            task,
            epoch: 0,
            n_batches: None,
            is_over: false,
            start: 0,
            has_taken: false,
            has_left: false,
            cuts: None,
            stream_positions: None,
            before: None,
            so_far: Some(Delivered::default()),
            has_warned: false,
            asked: None,
            skip: Vec::new(),
            pass: None,
            held: None,
            retired: Retired::default(),
            control: Arc::default(),
            failures,
        };
        engine.begin(0)?;
        Ok(engine)
    }

    /// Waits up to `timeout` for the next batch, and takes it.
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

    /// Waits up to `timeout` for the next batch, and keeps it for [`Engine::take`]; until then the position
    /// is before it. Starts the pass if it has not begun.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after [`Control::close`]. An error that ends the run is returned after all
    /// batches before it, and by each later call.
    pub fn fetch(&mut self, timeout: Duration) -> Result<Step<()>> {
        let deadline = Instant::now() + timeout;
        loop {
            if self.control.is_closed() {
                return Err(closed());
            }
            // Also after a batch that was left out: the next one may be one to skip.
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
            let left = deadline.saturating_duration_since(Instant::now());
            let step = pass.next(left, |error| {
                let is_skipped = policy.skips(error.kind);
                failures.enter(error, is_skipped);
            });
            match step? {
                Step::Batch(number, Some(complete)) => {
                    self.held = Some((number, complete));
                    return Ok(Step::Batch(number, ()));
                }
                Step::Batch(_, None) if left.is_zero() => return Ok(Step::TimedOut),
                Step::Batch(_, None) => {}
                Step::TimedOut => return Ok(Step::TimedOut),
                Step::End => {
                    let batch = pass.batch();
                    if !mem::replace(&mut self.is_over, true) {
                        log::debug!("the pass of epoch {} is over after {batch} batches", self.epoch);
                    }
                    self.deliver_rest();
                    self.check_pass()?;
                    if self.n_batches.is_some_and(|n| batch < n) {
                        // Rows were still added when the pass began.
                        self.count(&self.schedule(self.epoch)?);
                    }
                    return Ok(Step::End);
                }
            }
        }
    }

    /// Counts the records of batches that were left out since the last batch handed out.
    pub(crate) fn deliver_rest(&mut self) {
        let Some(pass) = &mut self.pass else { return };
        let rest = pass.take_rest();
        self.deliver(rest);
        if let Some(before) = &mut self.before {
            before.counts = before.counts + rest;
        }
    }

    /// Hands out the fetched batch; `None` if a `seek` or `close` since then discarded it.
    pub fn take(&mut self) -> Option<(u64, BatchOf<K>)> {
        let (number, Complete { batch, stream_positions, counts }) = self.held.take()?;
        let stream_positions = mem::replace(&mut self.stream_positions, stream_positions);
        let had_taken = mem::replace(&mut self.has_taken, true);
        self.before = Some(PreviousPosition { batch: number, stream_positions, counts, had_taken });
        self.deliver(counts);
        self.warn_of_failures(WARN_FROM);
        Some((number, batch))
    }

    /// Adds the counts of what was handed out.
    fn deliver(&mut self, counts: Delivered) {
        self.counters.deliver(counts);
        self.so_far = self.so_far.map(|so_far| so_far + counts);
    }

    /// Puts back the last batch taken, for a batch that did not reach the caller: it is made again and comes
    /// next. Does nothing if no batch was taken since the position changed.
    pub fn take_back(&mut self) {
        if let Some(PreviousPosition { batch, stream_positions, counts, had_taken }) = self.before.take() {
            self.counters.take_back(counts);
            self.leave(batch);
            self.is_over = false;
            self.stream_positions = stream_positions;
            self.has_taken = had_taken;
        }
    }

    /// Implements Python's `iter()`: an infinite engine continues. A finite one begins the next pass, also if
    /// this one was left early. If no batch was taken since the pass began, or since a seek or restore, the
    /// position stays; an error that ended the run is forgotten.
    ///
    /// # Errors
    /// Only those of [`Engine::new`].
    pub fn rewind(&mut self) -> Result<()> {
        if self.plan.infinite {
            return Ok(());
        }
        if self.is_over() {
            return self.begin(self.epoch + 1);
        }
        if self.has_taken {
            if !mem::replace(&mut self.has_left, true) {
                let of = self.n_batches.map_or(String::new(), |n| format!(" of {n}"));
                log::info!(
                    "pass {} was left after {}{of} batches; the next one begins (further ones are not logged)",
                    self.epoch,
                    self.batch(),
                );
            }
            return self.begin(self.epoch + 1);
        }
        if !self.is_fresh() {
            self.leave(self.next_batch());
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.is_over || self.n_batches.is_some_and(|n| self.batch() >= n)
    }

    /// Whether no batch was taken and no error ended the run since the pass began, or since a seek or
    /// restore. Batches that were left out or skipped meanwhile do not count.
    fn is_fresh(&self) -> bool {
        self.pass.as_ref().is_none_or(|pass| pass.fatal().is_none()) && !self.has_taken
    }

    /// The number of the next batch, even if it is one to skip.
    fn next_batch(&self) -> u64 {
        let next = self.pass.as_ref().map_or(self.start, Pass::batch);
        self.held.as_ref().map_or(next, |&(number, _)| number)
    }

    /// Moves the position to the start of the pass `epoch`.
    fn begin(&mut self, epoch: u64) -> Result<()> {
        let schedule = self.schedule(epoch)?;
        if schedule.n_batches() == Some(0) {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "drop_last leaves no batch: there are {} rows, a batch of all ranks needs {}; lower batch_size, or \
                     set drop_last=False",
                    schedule.positions(),
                    self.global_batch()
                ),
            ));
        }
        self.enter(epoch, 0, &schedule);
        Ok(())
    }

    /// Moves the position to `batch` of the pass `epoch` with this schedule.
    fn enter(&mut self, epoch: u64, batch: u64, schedule: &Schedule) {
        self.leave(batch);
        self.epoch = epoch;
        self.is_over = false;
        self.skip.clear();
        self.count(schedule);
    }

    /// Sets the number of batches of the current pass.
    fn count(&mut self, schedule: &Schedule) {
        self.cuts = schedule.cuts().cloned();
        self.n_batches = schedule.n_batches();
        let per_epoch = self.n_batches.unwrap_or_else(|| match &self.cuts {
            Some(cuts) => cuts.about_per_epoch(),
            None => self.per_epoch().div_ceil(self.global_batch()),
        });
        self.control.set_batches_per_epoch(per_epoch);
    }

    /// Abandons the pass without waiting for its threads. The next one begins at `batch`; if batches are not
    /// counted, that is the first batch or the next one.
    fn leave(&mut self, batch: u64) {
        if batch == 0 {
            self.stream_positions = None;
        }
        self.start = batch;
        self.has_taken = false;
        self.before = None;
        self.so_far = (batch == 0).then(Delivered::default);
        self.held = None;
        if let Some(pass) = self.pass.take() {
            if !self.is_over {
                log::debug!("the pass of epoch {} is abandoned before batch {}", self.epoch, pass.batch());
            }
            self.retired.add(pass.retire());
        }
    }

    /// Chooses the pass that the next `iter()` or `next()` begins. If `epoch` is the current pass and no
    /// batch was taken since a restore or seek, the position stays.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if the engine is infinite: its epochs follow from its position.
    /// [`ErrorKind::Config`] above [`MAX_EPOCH`].
    pub fn set_epoch(&mut self, epoch: u64) -> Result<()> {
        if epoch > MAX_EPOCH {
            return Err(epoch_out_of_range(epoch));
        }
        if self.plan.infinite {
            return Err(Error::new(
                ErrorKind::State,
                "an infinite engine has one pass, and counts its epochs itself",
            ));
        }
        if self.epoch == epoch && self.is_fresh() { Ok(()) } else { self.begin(epoch) }
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Examples of an epoch: rows, or with weights their copies.
    fn per_epoch(&self) -> u64 {
        let copies =
            |weights: &Arc<[Arc<WeightedRows>]>| weights.iter().map(|weights| weights.n_copies()).sum();
        self.plan.weights.as_ref().map_or_else(|| self.rows(), copies)
    }

    /// Batches of one epoch; in a finite pass their exact number.
    pub fn batches_per_epoch(&self) -> u64 {
        self.control.batches_per_epoch()
    }

    /// What the batches of an epoch hold, or of its first chapters, of which the number is given; to be
    /// called without the engine. `None` if boundaries do not follow from lengths.
    pub fn cut_totals(&self) -> Option<impl FnOnce(u64) -> CutTotals + Send + use<S, K>> {
        let cuts = self.cuts.clone()?;
        Some(move |most_chapters| cuts.totals(most_chapters))
    }

    fn global_batch(&self) -> u64 {
        self.plan.batching.most_rows() as u64 * self.plan.world_size
    }

    /// The failed records so far, each once, by row: up to [`LISTED`], or more if `max_errors` allows more.
    pub fn errors(&self) -> impl Iterator<Item = &Error> {
        self.failures.errors()
    }

    /// Returns the list of [`Engine::errors`] and clears it, so that a caller can collect any number of them.
    pub fn take_errors(&mut self) -> Vec<Error> {
        self.failures.take()
    }

    pub fn stats(&self) -> Stats {
        self.counters.read()
    }

    /// The counters behind [`Engine::stats`], readable while another thread is in [`Engine::next`].
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// The handle that closes this engine.
    pub fn control(&self) -> Arc<Control<ExampleOf<K>>> {
        self.control.clone()
    }

    /// Records a trace of all threads for `length` from now on, and writes it to `path` as JSON trace events
    /// when that time is over or the engine closes. Batches are requested as usual meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if a trace is already being recorded or `path` has a file that is not a trace,
    /// [`ErrorKind::Io`] if the file cannot be written, [`ErrorKind::Closed`].
    pub fn trace(&mut self, path: &Path, length: Duration) -> Result<()> {
        if self.control.is_closed() {
            return Err(closed());
        }
        self.tracing.start(path, length)
    }

    /// Ends all threads, waiting up to [`JOIN_TIMEOUT`]. A trace that is being recorded ends; the call waits
    /// for its file.
    pub fn close(&mut self) {
        self.control.close();
        self.leave(self.next_batch());
        self.tracing.finish();
        self.retired.join();
        self.source.end_threads();
    }

    fn start(&self) -> Result<Pass<K::Collate>> {
        if self.control.is_closed() {
            return Err(closed());
        }
        self.counters.asked();
        let schedule = self.schedule(self.epoch)?;
        let plan =
            Plan { buffer_size: self.layout.per_stream(self.plan.buffer_size).max(1), ..self.plan.clone() };
        let tally = Tally::new(&plan.policy, self.rows(), self.failures.rows()).advising(K::WORDS.listed);
        let start = Start { batch: self.start, stream_positions: self.stream_positions.as_ref(), tally };
        let pass = Pass::start(&plan, schedule, start, &self.source, &self.task, &self.counters)?;
        let shared = &pass.run().shared;
        self.control.observe(shared);
        log::debug!(
            "the pass of epoch {} begins at batch {}: {} I/O threads, {} workers, a collator",
            self.epoch,
            self.start,
            shared.activities.n_readers,
            plan.n_workers
        );
        Ok(pass)
    }
}
