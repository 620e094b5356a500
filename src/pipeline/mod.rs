//! The pipeline: the only place that connects stages and owns threads.
//!
//! ```text
//!            tickets            records              examples                rows
//!  Admission ───────▶ I/O thread ───────▶ n workers ─────────▶ Concurrent-  ─────▶ Consumer ──▶ batch
//!      ▲              (Source)   bounded  (Stage)    by ticket ShuffleBuffer by draw (Collate)
//!      └───────────────────────── credit: draws made, substitutes wanted ─────────────────┘
//! ```
//!
//! Data moves to the right; only counts move to the left. Backpressure acts in one place, at the reader, so that a worker never
//! blocks inside the pipeline and a consumer's ticket is always on its way. Nothing here knows audio: a [`Task`] says how
//! a record becomes an example and examples a batch, a [`Source`] where records come from. `docs/design.md` has what each
//! thread may block on, and the ways out.

mod admission;
#[cfg(feature = "audio")]
mod audio;
mod budget;
mod collator;
mod consumer;
mod demand;
mod headspace;
mod inject;
mod meter;
mod replay;
mod run;
mod stats;
mod threads;
mod verdict;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

#[cfg(feature = "audio")]
pub use audio::{AudioPlan, AudioStage, AudioTask};
pub use consumer::{SUBSTITUTES, Step};
pub use headspace::Headspace;
pub use inject::delays as inject_delays;
pub use meter::Times;
pub use replay::Replay;
pub use stats::{Counters, Queues, Report, StageTimes, Stats};
pub use threads::JOIN_TIMEOUT;

use crate::{
    Error, ErrorKind, Result,
    order::{self, Layout, Mixture, Order, Rules, Schedule, Sources, Stop},
    record::{Collate, Source, Stage, Task},
    seed::{Purpose, hash},
};
use collator::Pass;
use consumer::closed;
use run::Shared;
use threads::Retired;

/// How records are ordered, grouped and carried. The last six fields change no batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The user's seed.
    pub seed: u64,
    /// How records follow one another, in a mixture those of each source.
    pub order: Order,
    /// Several sources, mixed.
    pub mixture: Option<MixturePlan>,
    /// Slots of the shuffle window of this rank as it first starts; at most the rows of an epoch are used.
    pub window: u64,
    /// Rows of a batch on this rank.
    pub batch_size: usize,
    /// This process among all.
    pub rank: u64,
    /// How many processes share each batch.
    pub world_size: u64,
    /// Canonical streams of [`Order::Window`]; `None` for the world size of the first start.
    pub n_streams: Option<u64>,
    /// Whether epochs follow one another without end, and bad records are replaced.
    pub infinite: bool,
    /// Whether a short last batch is left out.
    pub drop_last: bool,
    /// How far tickets may be ahead of the draws, if the window does not need more.
    pub buffer_size: u64,
    /// Worker threads.
    pub n_workers: usize,
    /// I/O threads where each record is a read of its own; else there is one.
    pub n_readers: usize,
    /// Records in the channel.
    pub channel_size: usize,
    /// Bytes in the channel.
    pub channel_bytes: usize,
    /// Batches that are made ahead, at least 1.
    pub prefetch_batches: usize,
}

/// How many ranges of batches to skip may lie ahead.
pub const SKIPS: usize = 16;

/// How sources are mixed.
#[derive(Debug, Clone, PartialEq)]
pub struct MixturePlan {
    /// From which position on which weights hold, one for each source.
    pub stages: Vec<order::Stage>,
    /// Positions over which the weights hold exactly.
    pub block: u64,
    /// Where a finite pass ends.
    pub stop: Stop,
    /// The first row of each source, and the number of all rows.
    pub starts: Vec<u64>,
}

impl MixturePlan {
    /// Says which rows the sources have; without weights they weigh what they hold.
    pub fn over(&mut self, starts: Vec<u64>) {
        if self.stages.is_empty() {
            let weights = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
            self.stages = vec![order::Stage { start: 0, weights }];
        }
        self.starts = starts;
    }
}

impl Plan {
    /// How far tickets of a stream may be ahead of its draws with a window of `size` slots: enough to keep every worker busy.
    fn credit(&self, size: u64) -> u64 {
        self.buffer_size.max(size + 8 * self.n_workers as u64)
    }
}

/// What stays as it was at the first start, whatever the number of ranks becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canon {
    /// V, the streams that [`Order::Window`] is defined over; 1 in any other order.
    pub n_streams: u64,
    /// The world size then: it fixes how the window is shared among the streams.
    pub world_size: u64,
}

impl Canon {
    /// One stream, whatever the world: where the order is one of positions.
    const ONE: Self = Self { n_streams: 1, world_size: 1 };

    /// What a stream gets of a number that is meant for a rank of the first start.
    fn per_stream(self, number: u64) -> u64 {
        (u128::from(number) * u128::from(self.world_size) / u128::from(self.n_streams)) as u64
    }
}

/// Where a loader stands: the number of the next batch, and what that number means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The pass of a finite loader; 0 for an endless one.
    pub epoch: u64,
    /// The next batch of the pass.
    pub batch: u64,
    /// What fixes the streams.
    pub canon: Canon,
    /// Batches of the pass that will be left out, in rising order, apart from one another.
    pub skip: Vec<Range<u64>>,
}

type ExampleOf<K> = <<K as Task>::Stage as Stage>::Example;
type BatchOf<K> = <<K as Task>::Collate as Collate>::Batch;

/// Loads batches: order, run, batches under way and the account of bad records.
pub struct Engine<S: Source, K: Task> {
    plan: Plan,
    canon: Canon,
    shard_rows: Vec<u64>,
    source: Arc<S>,
    task: Arc<K>,
    epoch: u64,
    /// The batches of the pass; `None` without end.
    n_batches: Option<u64>,
    /// The batch that the next run begins with.
    start: u64,
    skip: Vec<Range<u64>>,
    pass: Option<Pass<K::Collate>>,
    /// Batches that were given back, by number.
    held: BTreeMap<u64, BatchOf<K>>,
    /// Threads of passes that were left, on their way out.
    retired: Retired,
    control: Arc<Control<ExampleOf<K>>>,
    counters: Arc<Counters>,
    bad: BTreeMap<u64, Error>,
    /// Reasons that were logged, by kind.
    told: HashMap<ErrorKind, HashSet<String>>,
}

/// Ends an engine from any thread, even one whose `next` is under way elsewhere.
pub struct Control<E> {
    closed: AtomicBool,
    batches_per_epoch: AtomicU64,
    current: Mutex<Weak<Shared<E>>>,
}

impl<E> Control<E> {
    /// Stops the threads and wakes a blocked `next`, which then fails as all later ones do.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(shared) = current {
            shared.stop();
        }
    }

    /// Batches of one epoch; in a finite pass their exact number.
    pub fn batches_per_epoch(&self) -> u64 {
        self.batches_per_epoch.load(Ordering::Relaxed)
    }

    /// What lies between the stages; nothing if no pass is under way.
    pub fn queues(&self) -> Queues {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        current.map(|shared| shared.queues()).unwrap_or_default()
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

/// How many different reasons of one kind are logged; all are listed and counted.
const TOLD_OF_A_KIND: usize = 8;

/// Logs a bad record, each reason once.
fn tell(told: &mut HashMap<ErrorKind, HashSet<String>>, error: &Error) {
    let reasons = told.entry(error.kind).or_default();
    if reasons.len() < TOLD_OF_A_KIND && reasons.insert(error.message.clone()) {
        let only = if reasons.len() < TOLD_OF_A_KIND { "ones like it" } else { "ones of this kind" };
        log::warn!(
            "skipped a bad record ({}): {error}; further {only} are only counted and listed",
            error.kind
        );
    }
}

impl<S: Source, K: Task> Engine<S, K> {
    /// An engine that has not started a thread yet; the first call for a batch does.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the source has no rows, or fewer than there are streams, or its sources cannot be mixed as
    /// planned, or its rows cannot be read in the order planned.
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
        let canon = match plan.order {
            Order::Window => {
                Canon { n_streams: plan.n_streams.unwrap_or(plan.world_size), world_size: plan.world_size }
            }
            _ => Canon::ONE,
        };
        let mut engine = Self {
            canon,
            counters: Arc::new(Counters::new(&plan)),
            plan,
            shard_rows,
            source,
            task,
            epoch: 0,
            n_batches: None,
            start: 0,
            skip: Vec::new(),
            pass: None,
            held: BTreeMap::new(),
            retired: Retired::default(),
            control: Arc::new(Control {
                closed: AtomicBool::new(false),
                batches_per_epoch: AtomicU64::new(0),
                current: Mutex::new(Weak::new()),
            }),
            bad: BTreeMap::new(),
            told: HashMap::new(),
        };
        engine.begin(0)?;
        Ok(engine)
    }

    /// Waits for the next batch, at most `timeout`. Starts the pass if it has not begun.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after [`Control::close`]; an error that ends the run, after all batches before it, again and again.
    pub fn next(&mut self, timeout: Duration) -> Result<Step<BatchOf<K>>> {
        if self.control.is_closed() {
            return Err(closed());
        }
        self.skip_ahead()?;
        if let Some((number, batch)) = self.held.pop_first() {
            return Ok(Step::Batch(number, batch));
        }
        let pass = match &mut self.pass {
            Some(pass) => pass,
            None => {
                let started = self.start()?;
                self.pass.insert(started)
            }
        };
        let (bad, told) = (&mut self.bad, &mut self.told);
        pass.next(timeout, |error| {
            tell(told, &error);
            if let Some(index) = error.place.index {
                bad.entry(index).or_insert(error);
            }
        })
    }

    /// What Python's `iter()` means: an infinite engine goes on; a finite one begins the next pass if the last one is over, and
    /// the same pass anew if it was left early. A pass that was sought or restored and has not gone on yet stays where it is.
    ///
    /// # Errors
    /// None that [`Engine::new`] would not have found.
    pub fn rewind(&mut self) -> Result<()> {
        if self.plan.infinite {
            return Ok(());
        }
        let is_ended = self.n_batches.is_some_and(|n| self.batch() >= n);
        match &self.pass {
            _ if is_ended => self.begin(self.epoch + 1),
            Some(pass) if !pass.is_fresh() => {
                self.leave(0);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Stands at the beginning of the pass `epoch`.
    fn begin(&mut self, epoch: u64) -> Result<()> {
        let schedule = self.schedule(epoch)?;
        self.enter(epoch, 0, &schedule);
        Ok(())
    }

    /// Stands at `batch` of the pass `epoch`, whose schedule is given.
    fn enter(&mut self, epoch: u64, batch: u64, schedule: &Schedule) {
        self.leave(batch);
        self.epoch = epoch;
        self.n_batches = schedule.n_batches();
        self.skip.clear();
        let per_epoch = self.n_batches.unwrap_or_else(|| self.rows().div_ceil(self.global_batch()));
        self.control.batches_per_epoch.store(per_epoch, Ordering::Relaxed);
    }

    /// Takes back a batch that could not be delivered: the next call for one gets it.
    pub fn give_back(&mut self, number: u64, batch: BatchOf<K>) {
        self.held.insert(number, batch);
    }

    /// Leaves the pass without waiting for its threads; the next one begins at `batch`.
    fn leave(&mut self, batch: u64) {
        self.start = batch;
        self.held.clear();
        if let Some(pass) = self.pass.take() {
            self.retired.add(pass.retire());
        }
    }

    /// Chooses the pass that the next `iter()` or `next()` begins.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if the engine is infinite: its epochs follow from its position. [`ErrorKind::Config`] above [`MAX_EPOCH`].
    pub fn set_epoch(&mut self, epoch: u64) -> Result<()> {
        if self.plan.infinite {
            return Err(Error::new(
                ErrorKind::State,
                "set_epoch() chooses the pass of a finite loader; an infinite one counts its epochs itself",
            ));
        }
        if epoch > MAX_EPOCH {
            return Err(epoch_out_of_range(epoch));
        }
        let is_fresh = self.pass.as_ref().is_none_or(Pass::is_fresh);
        if self.epoch == epoch && is_fresh && self.start == 0 { Ok(()) } else { self.begin(epoch) }
    }

    /// Makes `batch`, counted from the start of the pass, the next one.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the pass has fewer batches.
    pub fn seek(&mut self, batch: u64) -> Result<()> {
        self.check_batch(batch, true)?;
        if self.batch() != batch || !self.held.is_empty() {
            self.leave(batch);
        }
        Ok(())
    }

    /// Leaves out the batches of these numbers, counted from the start of the pass.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if more than [`SKIPS`] ranges lie ahead, for a state is to stay small.
    pub fn skip(&mut self, ranges: &[Range<u64>]) -> Result<()> {
        let skip = merged(self.skip.iter().chain(ranges).cloned().collect(), 0);
        let ahead = merged(skip.clone(), self.batch()).len();
        if ahead > SKIPS {
            let message = format!("{ahead} ranges to skip lie ahead, at most {SKIPS} may; join some");
            return Err(Error::new(ErrorKind::Config, message));
        }
        self.skip = skip;
        Ok(())
    }

    /// Passes over the batches that are to be left out.
    fn skip_ahead(&mut self) -> Result<()> {
        let batch = self.batch();
        let Some(range) = self.skip.iter().find(|range| range.contains(&batch)) else { return Ok(()) };
        let to = self.n_batches.map_or(range.end, |n| range.end.min(n));
        self.seek(to)
    }

    /// The highest batch of an endless pass that can be chosen: no count of examples from there on overflows.
    fn farthest(&self) -> u64 {
        MAX_EPOCH / self.global_batch()
    }

    fn check_batch(&self, batch: u64, or_end: bool) -> Result<()> {
        let most = self.n_batches.unwrap_or_else(|| self.farthest()) - u64::from(!or_end);
        if batch <= most {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Config, format!("there is no batch {batch}, the last one is {most}")))
    }

    /// Where the engine stands. After the last batch of a pass that is the start of the next one.
    pub fn position(&self) -> Position {
        let (mut epoch, mut batch, mut skip) = (self.epoch, self.batch(), self.skip.clone());
        if self.n_batches.is_some_and(|n| batch >= n) {
            (epoch, batch, skip) = (epoch + 1, 0, Vec::new());
        }
        Position { epoch, batch, canon: self.canon, skip: merged(skip, batch) }
    }

    /// Goes on at a position, of this engine or of another one over the same data.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if the streams cannot be shared by the ranks, or there can be no such batch.
    pub fn restore(&mut self, position: Position) -> Result<()> {
        let Position { epoch, batch, canon, skip } = position;
        let wrong = |message| Err(Error::new(ErrorKind::State, message));
        if epoch > MAX_EPOCH || batch > self.farthest() {
            return wrong(format!(
                "the state stands at batch {batch} of epoch {epoch}, which no loader reaches"
            ));
        }
        let canon = if self.plan.order == Order::Window { canon } else { Canon::ONE };
        let is_shared = self.plan.order != Order::Window || canon.n_streams % self.plan.world_size == 0;
        if canon.n_streams == 0 || !is_shared {
            return wrong(format!(
                "the state has {} streams, which {} ranks cannot share evenly; choose a world_size that divides {}",
                canon.n_streams, self.plan.world_size, canon.n_streams
            ));
        }
        if self.plan.n_streams.is_some_and(|n| n != canon.n_streams) {
            return wrong(format!(
                "the state has {} streams, n_streams is {}; leave n_streams out to take the state's",
                canon.n_streams,
                self.plan.n_streams.unwrap_or_default()
            ));
        }
        let before = std::mem::replace(&mut self.canon, canon);
        let schedule = match self.schedule(epoch) {
            Ok(schedule) if schedule.n_batches().is_none_or(|n| batch < n) => schedule,
            found => {
                self.canon = before;
                return match found {
                    Ok(_) => {
                        wrong(format!("the state stands at batch {batch}, which the pass does not have"))
                    }
                    Err(error) => Err(error),
                };
            }
        };
        self.enter(epoch, batch, &schedule);
        self.skip = merged(skip, batch);
        Ok(())
    }

    /// The rows of the next `n` examples of this rank, as they will be unless records are bad; fewer if the pass ends before.
    pub fn upcoming(&self, n: usize) -> Result<Vec<u64>> {
        let mut schedule = self.schedule(self.epoch)?;
        let mut batch = self.batch();
        let mut windows = schedule.windows(batch);
        let mut rows = Vec::with_capacity(n.min(1 << 20));
        while rows.len() < n && self.n_batches.is_none_or(|end| batch < end) {
            if let Some(range) = self.skip.iter().find(|range| range.contains(&batch)) {
                batch = range.end;
                windows = schedule.windows(batch);
                continue;
            }
            for (stream, window) in windows.iter_mut().enumerate() {
                let draws = schedule.draws_before(stream, batch + 1) - schedule.draws_before(stream, batch);
                let tickets = std::iter::from_fn(|| window.draw()).take(draws as usize);
                rows.extend(tickets.map(|ticket| schedule.assign(stream, ticket).row));
            }
            batch += 1;
        }
        rows.truncate(n);
        Ok(rows)
    }

    /// A batch of this pass once more, or in advance, made on the side.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the pass has fewer batches, [`ErrorKind::Closed`].
    pub fn replay(&self, batch: u64) -> Result<Replay<S, K>> {
        if self.control.is_closed() {
            return Err(closed());
        }
        self.check_batch(batch, false)?;
        let schedule = self.schedule(self.epoch)?;
        Ok(Replay { schedule, batch, source: self.source.clone(), task: self.task.clone() })
    }

    /// Another engine that stands where this one does, with threads and counts of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`].
    pub fn aside(&self) -> Result<Self> {
        if self.control.is_closed() {
            return Err(closed());
        }
        let mut aside = Self::over(self.source.clone(), self.task.clone(), self.plan.clone())?;
        aside.restore(self.position())?;
        Ok(aside)
    }

    /// The number of the next batch, counted from the start of the pass.
    pub fn batch(&self) -> u64 {
        let next = self.pass.as_ref().map_or(self.start, Pass::batch);
        self.held.keys().next().copied().unwrap_or(next)
    }

    /// The epoch of the next position, counted from 0: how often an infinite stream's length was drawn.
    pub fn epoch(&self) -> u64 {
        if !self.plan.infinite {
            return self.epoch;
        }
        self.batch().saturating_mul(self.global_batch()) / self.rows()
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

    /// The bad records that were met so far, each once, by row.
    pub fn errors(&self) -> impl Iterator<Item = &Error> {
        self.bad.values()
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

    /// Ends all threads, within [`JOIN_TIMEOUT`].
    pub fn close(&mut self) {
        self.control.close();
        self.leave(self.batch());
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
        let pass = Pass::start(&plan, schedule, self.start, &self.source, &self.task, &self.counters)?;
        *self.control.current.lock().unwrap_or_else(PoisonError::into_inner) =
            Arc::downgrade(&pass.run().shared);
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
        Schedule::new(rules, &self.shard_rows, sources.transpose()?)
    }
}

/// Ranges in rising order, joined where they touch, without what lies before `from`.
fn merged(mut ranges: Vec<Range<u64>>, from: u64) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut apart: Vec<Range<u64>> = Vec::new();
    for range in
        ranges.into_iter().map(|range| range.start.max(from)..range.end).filter(|range| !range.is_empty())
    {
        match apart.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}
