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
mod consumer;
mod demand;
mod inject;
mod run;
mod stats;
mod threads;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

#[cfg(feature = "audio")]
pub use audio::{AudioPlan, AudioStage, AudioTask};
pub use consumer::{SUBSTITUTES, Step};
pub use inject::delays as inject_delays;
pub use stats::{Counters, Stats};
pub use threads::JOIN_TIMEOUT;

use crate::{
    Error, ErrorKind, Result,
    order::ShardOrder,
    record::{Collate, Source, Stage, Task},
};
use consumer::{Consumer, closed};
use run::{Run, Shared};
use threads::Retired;

/// How records are ordered, grouped and carried. Only the first five fields can change a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The user's seed.
    pub seed: u64,
    /// How shards follow one another.
    pub shard_order: ShardOrder,
    /// Slots of the shuffle window; at most the rows of an epoch are used.
    pub window: u64,
    /// Rows of a batch.
    pub batch_size: usize,
    /// Whether epochs follow one another without end, and bad records are replaced.
    pub infinite: bool,
    /// How far tickets may be ahead of the draws, if the window does not need more.
    pub buffer_size: u64,
    /// Worker threads.
    pub n_workers: usize,
    /// Records in the channel.
    pub channel_size: usize,
    /// Bytes in the channel.
    pub channel_bytes: usize,
}

impl Plan {
    /// How far tickets may be ahead of the draws with a window of `size` slots: enough to keep every worker busy.
    pub fn credit(&self, size: u64) -> u64 {
        self.buffer_size.max(size + 8 * self.n_workers as u64)
    }
}

type ExampleOf<K> = <<K as Task>::Stage as Stage>::Example;
type BatchOf<K> = <<K as Task>::Collate as Collate>::Batch;

/// Loads batches: order, run, batches under way and the account of bad records.
pub struct Engine<S: Source, K: Task> {
    plan: Plan,
    rows: u64,
    source: Arc<S>,
    task: Arc<K>,
    epoch: u64,
    pass: Option<Consumer<K::Collate>>,
    /// A batch that was given back.
    held: Option<BatchOf<K>>,
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
    /// [`ErrorKind::Config`] if the source has no rows.
    pub fn new(source: Arc<S>, task: K, plan: Plan) -> Result<Self> {
        let rows = source.shard_rows().iter().sum();
        if rows == 0 {
            return Err(Error::new(
                ErrorKind::Config,
                "the shards hold no rows at all; check that the right files were given",
            ));
        }
        Ok(Self {
            plan,
            rows,
            source,
            task: Arc::new(task),
            epoch: 0,
            pass: None,
            held: None,
            retired: Retired::default(),
            control: Arc::new(Control { closed: AtomicBool::new(false), current: Mutex::new(Weak::new()) }),
            counters: Arc::default(),
            bad: BTreeMap::new(),
            told: HashMap::new(),
        })
    }

    /// Waits for the next batch, at most `timeout`. Starts the pass if it has not begun.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after [`Control::close`]; an error that ends the run, after all batches before it, again and again.
    pub fn next(&mut self, timeout: Duration) -> Result<Step<BatchOf<K>>> {
        let pass = match &mut self.pass {
            Some(pass) => pass,
            None => {
                let started = self.start()?;
                self.pass.insert(started)
            }
        };
        if self.control.is_closed() {
            return Err(closed());
        }
        if let Some(batch) = self.held.take() {
            return Ok(Step::Batch(batch));
        }
        let (bad, told) = (&mut self.bad, &mut self.told);
        pass.next(timeout, |error| {
            tell(told, &error);
            if let Some(index) = error.place.index {
                bad.entry(index).or_insert(error);
            }
        })
    }

    /// What Python's `iter()` means: an infinite engine goes on; a finite one begins the next pass if the last one is over, and
    /// the same pass anew if it was left early.
    pub fn rewind(&mut self) {
        if self.plan.infinite {
            return;
        }
        let left_early = self.held.is_some();
        match &self.pass {
            Some(pass) if pass.is_ended() && !left_early => {
                self.epoch += 1;
                self.leave();
            }
            Some(pass) if !pass.is_fresh() => self.leave(),
            _ => {}
        }
    }

    /// Takes back a batch that could not be delivered: the next call for one gets it.
    pub fn give_back(&mut self, batch: BatchOf<K>) {
        self.held = Some(batch);
    }

    /// Leaves the pass without waiting for its threads.
    fn leave(&mut self) {
        self.held = None;
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
        if self.epoch != epoch || self.pass.as_ref().is_some_and(|pass| !pass.is_fresh()) {
            self.leave();
        }
        self.epoch = epoch;
        Ok(())
    }

    /// The epoch of the next position, counted from 0: how often the stream's length was drawn.
    pub fn epoch(&self) -> u64 {
        self.pass.as_ref().map_or(self.epoch, Consumer::epoch)
    }

    /// Rows of all shards.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Batches of one epoch; in a finite pass their exact number.
    pub fn batches_per_epoch(&self) -> u64 {
        self.rows.div_ceil(self.plan.batch_size as u64)
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
        self.leave();
        self.retired.join();
    }

    fn start(&self) -> Result<Consumer<K::Collate>> {
        if self.control.is_closed() {
            return Err(closed());
        }
        let run = Run::start(&self.plan, self.epoch, &self.source, &self.task, &self.counters)?;
        *self.control.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&run.shared);
        // A pass has no batch of more rows than there are.
        let rows = if self.plan.infinite { u64::MAX } else { self.rows };
        let collate = self.task.collate((self.plan.batch_size as u64).min(rows) as usize);
        Ok(Consumer::new(run, collate, &self.plan, self.rows, self.epoch))
    }
}
