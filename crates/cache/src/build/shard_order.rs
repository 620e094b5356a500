//! The order of reading and writing: which shard a worker reads next, and which batch the writer takes next.
//!
//! The order of batches is a pure function of the shards. *Round robin*: one batch of each shard in the given
//! order, repeatedly; an exhausted shard drops out. *Concat*: one shard after the other. Of the shards that
//! no worker is reading, a worker takes the one that the writer will need first, so that several shards are
//! read at the same time. A batch may come in pieces; then the writer stays with its shard until the last
//! piece.
//!
//! No deadlock is possible: the batch that the writer waits for is read regardless of how many batches are
//! queued, and the writer waits only for that batch.
//!
//! The turns of the engine (`engine/flow/sequencer.rs`) are simpler: jobs are numbered when they are
//! requested, and handed over by number. Here a batch's position in the order is unknown until the earlier
//! shards have ended.

use std::{collections::BTreeMap, sync::PoisonError, time::Instant};

use super::ReadShard;
use crate::sync::plain::{Condvar, Mutex, MutexGuard};
use crate::{Error, batch::Processed, ledger::Standing};

/// The order in which batches of shards follow each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Interleaving {
    /// One batch of each shard in turn.
    #[default]
    RoundRobin,
    Concat,
}

/// The result of a piece of a batch.
#[derive(Debug)]
pub(super) enum PieceOutcome {
    Done {
        processed: Processed,
        /// The errors of the documents left out.
        left_out: Vec<Error>,
        /// Whether this is the last piece of its batch.
        ends_batch: bool,
    },
    /// No piece: the shard is exhausted.
    End,
    /// The error that ends the build.
    Failed(Error),
}

/// A shard's reader, lent to a worker, and its next read.
pub(super) struct ReadTurn<B> {
    pub shard: usize,
    pub batch: u64,
    /// Rows of the batch that were read before.
    pub row: u64,
    /// The number of the piece among those of the shard that this build reads.
    pub piece: u64,
    pub reader: Option<Box<dyn ReadShard<B>>>,
}

/// Shared by workers and the writer.
pub(super) struct ShardQueue<B> {
    order: Interleaving,
    most_batches: u64,
    most_bytes: usize,
    state: Mutex<QueueState<B>>,
    /// Notified when a worker may find a turn.
    free: Condvar,
    /// Notified when the writer may find its batch.
    ready: Condvar,
}

impl<B> std::fmt::Debug for ShardQueue<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardOrder").field("order", &self.order).finish_non_exhaustive()
    }
}

struct QueueState<B> {
    shards: Vec<QueuedShard<B>>,
    /// Pieces taken by a worker and not yet written.
    under_way: u64,
    /// Bytes of the processed ones.
    bytes: usize,
    is_stopped: bool,
}

struct QueuedShard<B> {
    reader: Option<Box<dyn ReadShard<B>>>,
    is_taken: bool,
    /// The batch to be read next, the row in it, and the number of the piece.
    next: u64,
    next_row: u64,
    next_piece: u64,
    /// Whether the reader has reached the end, or failed.
    has_ended: bool,
    written: u64,
    written_pieces: u64,
    is_finished: bool,
    outcomes: BTreeMap<u64, PieceOutcome>,
    part: f64,
}

impl<B> ShardQueue<B> {
    /// Begins at the standings; readers wait while `most_batches` pieces or `most_bytes` are queued.
    pub(super) fn new(
        order: Interleaving,
        standings: Vec<Standing>,
        most_batches: u64,
        most_bytes: usize,
    ) -> Self {
        let shard = |standing: Standing| QueuedShard {
            reader: None,
            is_taken: false,
            next: standing.batches,
            next_row: 0,
            next_piece: 0,
            has_ended: standing.is_finished,
            written: standing.batches,
            written_pieces: 0,
            is_finished: standing.is_finished,
            outcomes: BTreeMap::new(),
            part: if standing.is_finished { 1.0 } else { 0.0 },
        };
        let shards = standings.into_iter().map(shard).collect();
        Self {
            order,
            most_batches,
            most_bytes,
            state: Mutex::new(QueueState { shards, under_way: 0, bytes: 0, is_stopped: false }),
            free: Condvar::new(),
            ready: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first of the shards for which `is_one` holds, in the order of `place`.
    fn first(
        &self,
        state: &QueueState<B>,
        is_one: impl Fn(&QueuedShard<B>) -> bool,
        place: impl Fn(&QueuedShard<B>) -> u64,
    ) -> Option<usize> {
        let mut shards = state.shards.iter().enumerate().filter(|(_, shard)| is_one(shard));
        match self.order {
            Interleaving::Concat => shards.next().map(|(at, _)| at),
            Interleaving::RoundRobin => shards.min_by_key(|(_, shard)| place(shard)).map(|(at, _)| at),
        }
    }

    /// The shard that the writer waits for.
    fn needed(&self, state: &QueueState<B>) -> Option<usize> {
        self.first(state, |shard| !shard.is_finished, |shard| shard.written)
    }

    /// Takes a shard to be read; waits until one is available. None if no shard is left, or when stopped.
    pub(super) fn take(&self) -> Option<ReadTurn<B>> {
        let mut state = self.lock();
        loop {
            if state.is_stopped || state.shards.iter().all(|shard| shard.has_ended) {
                return None;
            }
            let free = |shard: &QueuedShard<B>| !shard.has_ended && !shard.is_taken;
            let room = state.under_way < self.most_batches && state.bytes < self.most_bytes;
            let found = self.first(&state, free, |shard| shard.next).filter(|&at| {
                let shard = &state.shards[at];
                room || (self.needed(&state) == Some(at) && shard.next_piece == shard.written_pieces)
            });
            if let Some(at) = found {
                state.under_way += 1;
                let shard = &mut state.shards[at];
                shard.is_taken = true;
                let (batch, row, piece) = (shard.next, shard.next_row, shard.next_piece);
                return Some(ReadTurn { shard: at, batch, row, piece, reader: shard.reader.take() });
            }
            state = self.free.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns a reader, with the number of rows read and whether they end a batch; None at the end of the
    /// shard.
    pub(super) fn give_back(&self, turn: ReadTurn<B>, read: Option<(u64, bool)>) {
        let goes_on = read.is_some();
        let part = turn.reader.as_ref().and_then(|reader| reader.part());
        let mut state = self.lock();
        let shard = &mut state.shards[turn.shard];
        shard.is_taken = false;
        shard.has_ended |= !goes_on;
        (shard.next, shard.next_row) = match read {
            Some((rows, false)) => (turn.batch, turn.row.saturating_add(rows)),
            _ => (turn.batch.saturating_add(1), 0),
        };
        shard.next_piece = turn.piece + 1;
        shard.part = if goes_on { part.unwrap_or(0.0) } else { 1.0 };
        let reader = turn.reader.filter(|_| goes_on);
        shard.reader = reader;
        drop(state);
        self.free.notify_all();
    }

    /// Hands over the result of a piece.
    pub(super) fn answer(&self, shard: usize, piece: u64, outcome: PieceOutcome) {
        let mut state = self.lock();
        state.bytes += bytes(&outcome);
        state.shards[shard].outcomes.insert(piece, outcome);
        drop(state);
        self.ready.notify_all();
    }

    /// The next piece in order, with its shard; waits for it until `due`. None at `due`, when stopped, or
    /// when all shards are written.
    pub(super) fn next(&self, due: Option<Instant>) -> Option<(usize, PieceOutcome)> {
        let mut state = self.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            let at = self.needed(&state)?;
            let shard = &mut state.shards[at];
            let written = shard.written_pieces;
            if let Some(outcome) = shard.outcomes.remove(&written) {
                shard.written_pieces += 1;
                match outcome {
                    PieceOutcome::Done { ends_batch, .. } => shard.written += u64::from(ends_batch),
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

    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.free.notify_all();
        self.ready.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }

    pub(super) fn is_finished(&self) -> bool {
        self.lock().shards.iter().all(|shard| shard.is_finished)
    }

    /// Shards written, all shards, and the part of all shards that is read.
    pub(super) fn standing(&self) -> (u64, u64, f64) {
        let state = self.lock();
        let finished = state.shards.iter().filter(|shard| shard.is_finished).count() as u64;
        let part: f64 = state.shards.iter().map(|shard| shard.part).sum();
        let n = state.shards.len();
        (finished, n as u64, if n == 0 { 1.0 } else { part / n as f64 })
    }
}

fn bytes(outcome: &PieceOutcome) -> usize {
    match outcome {
        PieceOutcome::Done { processed, .. } => {
            processed.columns.iter().map(|column| column.data.len()).sum()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread, time::Duration};

    use proptest::prelude::*;

    use super::*;
    use crate::build::DocumentPiece;

    /// A shard of so many batches; the reader is never called.
    struct Batches(u64);

    impl ReadShard<()> for Batches {
        fn next(&mut self, _skips: &mut super::super::Skips<'_>) -> crate::Result<Option<DocumentPiece<()>>> {
            let left = self.0.checked_sub(1);
            self.0 = left.unwrap_or_default();
            Ok(left.map(|_| DocumentPiece::whole((), 1)))
        }
    }

    fn shard_order(
        order: Interleaving,
        standings: &[Standing],
        most_batches: u64,
        most_bytes: usize,
    ) -> ShardQueue<()> {
        ShardQueue::new(order, standings.to_vec(), most_batches, most_bytes)
    }

    fn at(batches: u64) -> Standing {
        Standing { documents: 0, batches, is_finished: false }
    }

    /// A batch of so many bytes, with its number as the number of documents.
    fn done(number: u64, bytes: usize) -> PieceOutcome {
        let column = crate::BatchColumn::flat("x", crate::fields::DataType::Uint8, vec![0; bytes], vec![]);
        let processed = Processed { documents: number, columns: vec![column] };
        PieceOutcome::Done { processed, left_out: Vec::new(), ends_batch: true }
    }

    /// The number of pieces of a batch.
    fn pieces(shard: usize, batch: u64) -> u64 {
        1 + (shard as u64 + batch) % 3
    }

    /// A worker: takes turns until there are none, and answers them; a shard has `batches`, each of some
    /// pieces of 5 rows.
    fn work(shard_order: &ShardQueue<()>, batches: &[u64]) {
        while let Some(turn) = shard_order.take() {
            let ReadTurn { shard, batch, row, piece, .. } = turn;
            let goes_on = batch < batches[shard];
            let ends = row / 5 + 1 == pieces(shard, batch);
            shard_order.give_back(turn, goes_on.then_some((5, ends)));
            if batch % 3 == 1 {
                thread::yield_now();
            }
            let done = match done(batch, 8) {
                PieceOutcome::Done { processed, left_out, .. } => {
                    PieceOutcome::Done { processed, left_out, ends_batch: ends }
                }
                other => other,
            };
            shard_order.answer(shard, piece, if goes_on { done } else { PieceOutcome::End });
        }
    }

    /// The order, computed slowly: batches of each shard from its standing on, and its end.
    fn expected(order: Interleaving, begun: &[u64], batches: &[u64]) -> Vec<(usize, Option<u64>)> {
        let again = |shard: usize, batch: u64| (0..pieces(shard, batch)).map(move |_| Some(batch));
        let numbers = |shard: usize| {
            (begun[shard]..batches[shard]).flat_map(move |batch| again(shard, batch)).chain([None])
        };
        let mut all: Vec<(usize, Option<u64>)> =
            (0..batches.len()).flat_map(|shard| numbers(shard).map(move |number| (shard, number))).collect();
        if order == Interleaving::RoundRobin {
            all.sort_by_key(|&(shard, number)| (number.unwrap_or(batches[shard]), shard));
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_order_is_that_of_the_shards(
            shards in proptest::collection::vec((0u64..6, 0u64..12), 1..6), n_workers in 1usize..5, most in 1u64..9, concat: bool,
        ) {
            let order = if concat { Interleaving::Concat } else { Interleaving::RoundRobin };
            let (begun, more): (Vec<u64>, Vec<u64>) = shards.into_iter().unzip();
            let batches: Vec<u64> = begun.iter().zip(&more).map(|(begun, more)| begun + more).collect();
            let standings: Vec<_> = begun.iter().map(|&batches| at(batches)).collect();
            let shard_order = shard_order(order, &standings, most, 30);
            let found = thread::scope(|scope| {
                for _ in 0..n_workers {
                    scope.spawn(|| work(&shard_order, &batches));
                }
                let mut found = Vec::new();
                while let Some((shard, outcome)) = shard_order.next(None) {
                    found.push((shard, match outcome {
                        PieceOutcome::Done { processed, .. } => Some(processed.documents),
                        _ => None,
                    }));
                }
                found
            });
            prop_assert_eq!(found, expected(order, &begun, &batches));
            prop_assert!(shard_order.is_finished());
            prop_assert_eq!(shard_order.standing(), (batches.len() as u64, batches.len() as u64, 1.0));
        }
    }

    #[test]
    fn a_finished_shard_is_passed_over() {
        let finished = Standing { is_finished: true, ..at(4) };
        let shard_order = shard_order(Interleaving::Concat, &[finished, at(2)], 9, 9);
        let turn = shard_order.take().unwrap();
        assert_eq!((turn.shard, turn.batch), (1, 2));
    }

    #[test]
    fn readers_are_held_back_but_for_the_batch_that_is_needed() {
        for (most_batches, most_bytes) in [(2, 1 << 20), (9, 15)] {
            let shard_order = Arc::new(shard_order(
                Interleaving::RoundRobin,
                &[at(0), at(0), at(0)],
                most_batches,
                most_bytes,
            ));
            // The first batch is slow; two others are done and use up the limit.
            let first = shard_order.take().unwrap();
            for shard in [1, 2] {
                if shard_order.lock().under_way == most_batches {
                    break;
                }
                let turn = shard_order.take().unwrap();
                assert_eq!((turn.shard, turn.batch), (shard, 0));
                shard_order.give_back(turn, Some((1, true)));
                shard_order.answer(shard, 0, done(0, 8));
            }
            let (shards, held) = {
                let state = shard_order.lock();
                (state.under_way, state.under_way >= most_batches || state.bytes >= most_bytes)
            };
            assert!(held, "{shards} batches");
            let waiter = thread::spawn({
                let shard_order = shard_order.clone();
                move || shard_order.take().map(|turn| (turn.shard, turn.batch))
            });
            assert!(shard_order.next(Some(Instant::now() + Duration::from_millis(5))).is_none());
            assert_eq!(shard_order.lock().under_way, shards, "a worker read ahead");
            shard_order.give_back(first, Some((1, true)));
            shard_order.answer(0, 0, done(0, 8));
            for shard in 0..shards as usize {
                let next = shard_order.next(None);
                assert!(matches!(next, Some((at, PieceOutcome::Done { .. })) if at == shard));
            }
            assert!(waiter.join().unwrap().is_some());
        }
    }

    #[test]
    fn a_reader_is_lent_and_comes_back() {
        let shard_order = shard_order(Interleaving::Concat, &[at(0)], 9, 9);
        let mut turn = shard_order.take().unwrap();
        assert!(turn.reader.is_none(), "not opened yet");
        turn.reader = Some(Box::new(Batches(1)));
        shard_order.give_back(turn, Some((1, true)));
        let turn = shard_order.take().unwrap();
        assert!(turn.batch == 1 && turn.reader.is_some());
        shard_order.give_back(turn, None);
        assert!(shard_order.take().is_none(), "the shard is exhausted");
    }

    #[test]
    fn stop_wakes_all() {
        let shard_order = Arc::new(shard_order(Interleaving::Concat, &[at(0)], 9, 9));
        let taken = shard_order.take();
        let waiters = [true, false].map(|reads| {
            let shard_order = shard_order.clone();
            thread::spawn(
                move || if reads { shard_order.take().is_none() } else { shard_order.next(None).is_none() },
            )
        });
        shard_order.stop();
        assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
        drop(taken);
    }
}
