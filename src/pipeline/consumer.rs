//! The consumer's side of a run: draws become rows of a batch.
//!
//! A batch under way lives here and not in the caller, so a call that is interrupted leaves it where it is and the next call
//! goes on. Bad records are reported with the batch that they belong to, in position order, whenever they were found.

use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;

use super::{Plan, demand::Substitute, run::Run, stats::Counters, threads::Threads};
use crate::{Error, ErrorKind, Result, record::Collate, shuffle::Popped};

/// How often a bad record is replaced before the loader gives up.
pub const SUBSTITUTES: u64 = 16;

/// What a call for the next batch came to.
#[derive(Debug)]
pub enum Step<B> {
    /// The next batch, complete.
    Batch(B),
    /// Not ready within the time given; nothing is lost.
    TimedOut,
    /// The pass is over.
    End,
}

/// Assembles the batches of one run.
pub(super) struct Consumer<C: Collate> {
    pub(super) run: Run<C::Example>,
    collate: C,
    batch_size: usize,
    infinite: bool,
    /// Rows of an epoch and the epoch of ticket 0: they tell a ticket's epoch.
    rows: u64,
    epoch: u64,
    draws: u64,
    /// Draws that belong to the batch under way, and rows that are filled.
    drawn: usize,
    filled: usize,
    /// Substitutes that were asked for and have not come.
    pending: usize,
    /// Bad records of the batch under way, by draw and attempt.
    bad: Vec<(u64, u64, Error)>,
    /// Errors of substitutes that end the run once all substitutes of the batch have come, by draw.
    ending: Vec<(u64, Error)>,
    fatal: Option<Error>,
    ended: bool,
}

impl<C: Collate> Consumer<C> {
    pub(super) fn new(run: Run<C::Example>, collate: C, plan: &Plan, rows: u64, epoch: u64) -> Self {
        Self {
            run,
            collate,
            batch_size: plan.batch_size,
            infinite: plan.infinite,
            rows,
            epoch,
            draws: 0,
            drawn: 0,
            filled: 0,
            pending: 0,
            bad: Vec::new(),
            ending: Vec::new(),
            fatal: None,
            ended: false,
        }
    }

    /// Whether the pass stands at its beginning.
    pub(super) fn is_fresh(&self) -> bool {
        self.draws == 0 && self.fatal.is_none()
    }

    /// Whether the pass is over and its last batch handed out.
    pub(super) fn is_ended(&self) -> bool {
        !self.infinite && self.draws == self.rows && self.drawn == 0
    }

    /// Stops the run; its threads end on their own.
    pub(super) fn retire(self) -> Threads {
        self.run.retire()
    }

    /// The epoch of the next position.
    pub(super) fn epoch(&self) -> u64 {
        if self.infinite { self.epoch + self.draws / self.rows } else { self.epoch }
    }

    /// Waits for the next batch, at most `timeout`; hands the batch's bad records to `report`, in position order.
    pub(super) fn next(
        &mut self,
        timeout: Duration,
        mut report: impl FnMut(Error),
    ) -> Result<Step<C::Batch>> {
        if let Some(error) = &self.fatal {
            return Err(error.clone());
        }
        let deadline = Instant::now() + timeout;
        let step = self
            .draw_rows(deadline)
            .and_then(|complete| if complete { self.await_substitutes(deadline) } else { Ok(false) });
        match step {
            Ok(false) => return Ok(Step::TimedOut),
            Ok(true) => {}
            Err(error) => {
                if error.kind != ErrorKind::Closed {
                    self.report_bad(&mut report);
                    self.fatal = Some(error.clone());
                }
                return Err(error);
            }
        }
        if self.drawn == 0 {
            return Ok(Step::End);
        }
        self.report_bad(&mut report);
        let rows = if self.infinite { self.drawn } else { self.filled };
        (self.drawn, self.filled) = (0, 0);
        self.run.shared.counters.batch();
        Ok(Step::Batch(self.collate.take(rows)))
    }

    fn report_bad(&mut self, report: &mut impl FnMut(Error)) {
        self.bad.sort_unstable_by_key(|&(draw, attempt, _)| (draw, attempt));
        self.bad.drain(..).for_each(|(_, _, error)| report(error));
    }

    /// Draws until the batch is complete or the stream ends; false if time ran out.
    fn draw_rows(&mut self, deadline: Instant) -> Result<bool> {
        while self.drawn < self.batch_size && !self.ended {
            let popped = self.run.shared.buffer.try_pop(deadline.saturating_duration_since(Instant::now()));
            if self.run.shared.is_stopped() {
                return Err(self.stopped());
            }
            match popped {
                Popped::Item(example) => {
                    let row = if self.infinite { self.drawn } else { self.filled };
                    self.collate.put(row, example)?;
                    self.filled += 1;
                }
                Popped::Failed { ticket, error } => {
                    let epoch = self.epoch + ticket / self.rows;
                    self.note(Substitute { draw: self.draws, attempt: 0, epoch }, error)?;
                }
                Popped::TimedOut => return Ok(false),
                Popped::Finished => {
                    self.ended = true;
                    break;
                }
                Popped::Closed => return Err(self.stopped()),
            }
            self.draws += 1;
            self.drawn += 1;
            self.run.shared.demand.drew();
            // Copying a large batch takes a while, however ready its examples are.
            if self.drawn < self.batch_size && Instant::now() >= deadline {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for the substitutes of the batch; false if time ran out. Of several that end the run, the first by draw is told.
    fn await_substitutes(&mut self, deadline: Instant) -> Result<bool> {
        while self.pending > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.run.substituted.recv_timeout(left) {
                Ok((substitute, outcome)) => {
                    self.pending -= 1;
                    match outcome {
                        Ok(example) => {
                            let first = self.draws - self.drawn as u64;
                            self.collate.put((substitute.draw - first) as usize, example)?;
                            self.filled += 1;
                            Counters::add(&self.run.shared.counters.substitutes);
                        }
                        Err(error) => {
                            if let Err(error) = self.note(substitute, error) {
                                self.ending.push((substitute.draw, error));
                            }
                        }
                    }
                }
                // The threads hold the sender until they end, which they do without being asked only by a failure.
                Err(RecvTimeoutError::Disconnected) => return Err(self.stopped()),
                Err(RecvTimeoutError::Timeout) if self.run.shared.is_stopped() => return Err(self.stopped()),
                Err(RecvTimeoutError::Timeout) => return Ok(false),
            }
        }
        match self.ending.drain(..).min_by_key(|&(draw, _)| draw) {
            Some((_, error)) => Err(error),
            None => Ok(true),
        }
    }

    /// Takes down a bad record; an infinite stream asks for the next substitute.
    fn note(&mut self, failed: Substitute, error: Error) -> Result<()> {
        if !error.kind.is_record() {
            return Err(error);
        }
        let (kind, what) = (error.kind, error.to_string());
        self.bad.push((failed.draw, failed.attempt, error));
        if !self.infinite {
            return Ok(());
        }
        if failed.attempt == SUBSTITUTES {
            return Err(Error::new(
                ErrorKind::Exhausted,
                format!(
                    "{SUBSTITUTES} substitutes in a row were bad as well, the last one {kind}: {what}. Check the shards and the \
                     audio column"
                ),
            ));
        }
        self.pending += 1;
        self.run.shared.demand.substitute(Substitute { attempt: failed.attempt + 1, ..failed });
        Ok(())
    }

    fn stopped(&self) -> Error {
        self.run.shared.fatal().cloned().unwrap_or_else(closed)
    }
}

/// The error of a loader that was closed.
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the loader is closed; make a new one to go on")
}
