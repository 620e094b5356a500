//! Whose turn it is: which shard a worker reads next, and which batch the writer takes next.
//!
//! The order of batches is a pure function of the shards. *Round robin*: the shards in the order given, a batch of each, and again;
//! who has no more drops out. *Concat*: one shard behind the other. A worker takes what the writer will need soonest of those
//! shards that nobody reads at the moment, so that several are read at a time.
//!
//! Nothing can deadlock: the batch that the writer waits for is read whatever waits already, and it waits for nothing else.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use super::ReadShard;
use crate::{
    Error,
    cache::{batch::Processed, ledger::Standing},
};

/// The order in which batches of shards follow each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// A batch of each shard in turn.
    #[default]
    RoundRobin,
    /// One shard behind the other.
    Concat,
}

/// What became of a batch.
#[derive(Debug)]
pub enum Outcome {
    /// Documents.
    Done(Processed),
    /// There is no such batch: the shard has no more.
    End,
    /// The build ends with it.
    Failed(Error),
}

/// A shard's reader, lent to a worker, and which batch is next.
pub struct Turn<B> {
    pub shard: usize,
    pub batch: u64,
    pub reader: Option<Box<dyn ReadShard<B>>>,
}

/// Shared by workers and the writer.
pub struct Turns<B> {
    order: Order,
    most_batches: u64,
    most_bytes: usize,
    state: Mutex<State<B>>,
    /// A worker may find a turn.
    free: Condvar,
    /// The writer may find its batch.
    ready: Condvar,
}

impl<B> std::fmt::Debug for Turns<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turns").field("order", &self.order).finish_non_exhaustive()
    }
}

struct State<B> {
    shards: Vec<Shard<B>>,
    /// Batches that are read and not yet written.
    under_way: u64,
    /// Bytes of those that are processed.
    bytes: usize,
    is_stopped: bool,
}

struct Shard<B> {
    reader: Option<Box<dyn ReadShard<B>>>,
    is_taken: bool,
    /// The next batch to be read.
    next: u64,
    /// Whether the reader has come to its end, or failed.
    has_ended: bool,
    /// Batches that are written.
    written: u64,
    is_finished: bool,
    outcomes: BTreeMap<u64, Outcome>,
    part: f64,
}

impl<B> Turns<B> {
    /// Begins where the shards stand; holds readers back beyond so many batches or bytes.
    pub fn new(order: Order, standings: Vec<Standing>, most_batches: u64, most_bytes: usize) -> Self {
        let shard = |standing: Standing| Shard {
            reader: None,
            is_taken: false,
            next: standing.batches,
            has_ended: standing.is_finished,
            written: standing.batches,
            is_finished: standing.is_finished,
            outcomes: BTreeMap::new(),
            part: if standing.is_finished { 1.0 } else { 0.0 },
        };
        let shards = standings.into_iter().map(shard).collect();
        Self {
            order,
            most_batches,
            most_bytes,
            state: Mutex::new(State { shards, under_way: 0, bytes: 0, is_stopped: false }),
            free: Condvar::new(),
            ready: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first of the shards that `is_one` holds for, in the order of `place`.
    fn first(
        &self,
        state: &State<B>,
        is_one: impl Fn(&Shard<B>) -> bool,
        place: impl Fn(&Shard<B>) -> u64,
    ) -> Option<usize> {
        let mut shards = state.shards.iter().enumerate().filter(|(_, shard)| is_one(shard));
        match self.order {
            Order::Concat => shards.next().map(|(at, _)| at),
            Order::RoundRobin => shards.min_by_key(|(_, shard)| place(shard)).map(|(at, _)| at),
        }
    }

    /// The shard that the writer waits for.
    fn needed(&self, state: &State<B>) -> Option<usize> {
        self.first(state, |shard| !shard.is_finished, |shard| shard.written)
    }

    /// A shard to be read; waits for one. None if there is nothing more to do.
    pub fn take(&self) -> Option<Turn<B>> {
        let mut state = self.lock();
        loop {
            if state.is_stopped || state.shards.iter().all(|shard| shard.has_ended) {
                return None;
            }
            let free = |shard: &Shard<B>| !shard.has_ended && !shard.is_taken;
            let room = state.under_way < self.most_batches && state.bytes < self.most_bytes;
            let found = self.first(&state, free, |shard| shard.next).filter(|&at| {
                let shard = &state.shards[at];
                room || (self.needed(&state) == Some(at) && shard.next == shard.written)
            });
            if let Some(at) = found {
                state.under_way += 1;
                let shard = &mut state.shards[at];
                shard.is_taken = true;
                return Some(Turn { shard: at, batch: shard.next, reader: shard.reader.take() });
            }
            state = self.free.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives a reader back; `goes_on` if it gave a batch.
    pub fn give_back(&self, turn: Turn<B>, goes_on: bool) {
        let part = turn.reader.as_ref().and_then(|reader| reader.part());
        let mut state = self.lock();
        let shard = &mut state.shards[turn.shard];
        shard.is_taken = false;
        shard.has_ended |= !goes_on;
        shard.next = turn.batch + 1;
        shard.part = if goes_on { part.unwrap_or(0.0) } else { 1.0 };
        let reader = turn.reader.filter(|_| goes_on);
        shard.reader = reader;
        drop(state);
        self.free.notify_all();
    }

    /// Hands over what became of a batch.
    pub fn answer(&self, shard: usize, batch: u64, outcome: Outcome) {
        let mut state = self.lock();
        state.bytes += bytes(&outcome);
        state.shards[shard].outcomes.insert(batch, outcome);
        drop(state);
        self.ready.notify_all();
    }

    /// The next batch of the order, and its shard; waits for it, until `due`. None then, when stopped, or when all is done.
    pub fn next(&self, due: Option<Instant>) -> Option<(usize, Outcome)> {
        let mut state = self.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            let at = self.needed(&state)?;
            let shard = &mut state.shards[at];
            let written = shard.written;
            if let Some(outcome) = shard.outcomes.remove(&written) {
                match outcome {
                    Outcome::Done(_) => shard.written += 1,
                    _ => shard.is_finished = true,
                }
                state.under_way -= 1;
                state.bytes -= bytes(&outcome);
                drop(state);
                self.free.notify_all();
                return Some((at, outcome));
            }
            state = match due {
                None => self.ready.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    let left = due.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    self.ready.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Ends all waits.
    pub fn stop(&self) {
        self.lock().is_stopped = true;
        self.free.notify_all();
        self.ready.notify_all();
    }

    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }

    /// Whether all shards are written.
    pub fn is_finished(&self) -> bool {
        self.lock().shards.iter().all(|shard| shard.is_finished)
    }

    /// Shards that are written, all shards, and the part of all that is read.
    pub fn standing(&self) -> (u64, u64, f64) {
        let state = self.lock();
        let finished = state.shards.iter().filter(|shard| shard.is_finished).count() as u64;
        let part: f64 = state.shards.iter().map(|shard| shard.part).sum();
        let n = state.shards.len();
        (finished, n as u64, if n == 0 { 1.0 } else { part / n as f64 })
    }
}

fn bytes(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Done(processed) => processed.columns.iter().map(|column| column.data.len()).sum(),
        _ => 0,
    }
}
