//! The [`Assembler`] puts drawn examples into the rows of batches: the consumer's side of a run.
//!
//! It holds the batch in progress, so an interrupted call loses nothing and the next call continues. Bad
//! records are reported with their batch, in position order, however late they were found.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::{
    Error, ErrorKind, Result,
    contract::{BatchSlot, CarriedRecord, Collate, PackRows, StreamPosition, StreamPositions, StreamShare},
    engine::{
        failures::list::LISTED,
        failures::policy::{Policy, Tally},
        flow::demand::{ExtraRead, Substitute},
        flow::shared::closed,
        flow::shared::{FromExtraRead, Shared},
        observe::activity::State,
        observe::meter::Stopwatch,
        observe::stats::{Counters, Delivered},
    },
    order::{Draw, Schedule},
    shuffle::Popped,
};

/// The maximum number of substitutes for one bad record; then the run ends with an error.
pub const SUBSTITUTES: u64 = 16;

/// The outcome of a call for the next batch.
#[derive(Debug)]
pub enum Step<B> {
    /// The next batch, complete, and its number in the pass.
    Batch(u64, B),
    /// Not ready within the time given; nothing is lost.
    TimedOut,
    End,
}

pub(crate) struct Complete<B> {
    pub(crate) batch: B,
    /// The positions of the streams after it, if its number does not determine them.
    pub(crate) stream_positions: Option<StreamPositions>,
    /// Counts to add when the batch is handed out.
    pub(crate) counts: Delivered,
}

/// A record that the collator held where the run starts, to be read again.
struct Returning<E> {
    held: CarriedRecord,
    /// `None` until it has arrived.
    example: Option<E>,
}

pub(crate) struct RunStart {
    pub(crate) batch: u64,
    /// Draws made before it, by stream.
    pub(crate) draws: Vec<u64>,
    /// The records that the collator held, by stream; they were requested.
    pub(crate) held: Vec<Vec<CarriedRecord>>,
    /// A packer's share of each stream.
    pub(crate) shares: Vec<StreamShare>,
}

/// Assembles the batches of one run on the collator's thread.
pub(crate) struct Assembler<C: Collate> {
    shared: Arc<Shared<C::Example>>,
    extra_reads: Receiver<FromExtraRead<C::Example>>,
    /// By stream; empty once all have arrived.
    returning: Vec<Vec<Returning<C::Example>>>,
    collate: C,
    schedule: Schedule,
    /// The number of the batch in progress.
    batch: u64,
    /// Draws made, by stream.
    draws: Vec<u64>,
    /// Draws made by the end of the batch in progress, by stream; empty before its first draw, and with a
    /// packer.
    due: Vec<u64>,
    /// The stream of the next draw, without a packer.
    stream: usize,
    /// Draws for the batch in progress, and its filled rows.
    drawn: usize,
    filled: usize,
    /// Requested records besides the tickets that have not arrived.
    pending: usize,
    policy: Policy,
    tally: Tally,
    /// The counts of the current batch so far.
    counts: Delivered,
    /// Failed records of the batch in progress, by row and attempt.
    bad: Vec<(usize, u64, Error)>,
    /// Failed draws of each stream since its last good one.
    failing: Vec<u64>,
    /// Errors of substitutes that end the run once all substitutes of the batch have arrived, by row.
    ending: Vec<(usize, Error)>,
    fatal: Option<Error>,
    /// The stopwatch of the collator's thread.
    pub(crate) watch: Stopwatch,
}

impl<C: Collate> Assembler<C> {
    /// Creates the consumer of a run.
    pub(crate) fn new(
        shared: Arc<Shared<C::Example>>,
        extra_reads: Receiver<FromExtraRead<C::Example>>,
        mut collate: C,
        schedule: Schedule,
        RunStart { batch, draws, held, shares }: RunStart,
        policy: Policy,
        tally: Tally,
    ) -> Self {
        let Counters { meters, trace, .. } = &*shared.counters;
        let watch = Stopwatch::start(&meters.collate, trace, shared.activities.collator());
        let pending = held.iter().map(Vec::len).sum();
        if let Some(packer) = collate.packer() {
            packer.begin(batch, &shares);
        }
        let returning =
            |held: Vec<CarriedRecord>| held.into_iter().map(|held| Returning { held, example: None });
        Self {
            shared,
            extra_reads,
            returning: held.into_iter().map(|held| returning(held).collect()).collect(),
            collate,
            schedule,
            batch,
            // bounded: by `n_streams`, as the schedule is.
            failing: vec![0; draws.len()],
            draws,
            due: Vec::new(),
            stream: 0,
            drawn: 0,
            filled: 0,
            pending,
            policy,
            tally,
            counts: Delivered::default(),
            bad: Vec::new(),
            ending: Vec::new(),
            fatal: None,
            watch,
        }
    }

    /// Waits up to `timeout` for the next batch; passes its bad records to `report`, in position order.
    /// `None` in place of a batch: it is left out, because all its records are bad.
    pub(crate) fn next(
        &mut self,
        timeout: Duration,
        mut report: impl FnMut(Error),
    ) -> Result<Step<Option<Complete<C::Batch>>>> {
        if let Some(error) = &self.fatal {
            return Err(error.clone());
        }
        if self.schedule.n_batches().is_some_and(|n| self.batch >= n) {
            return Ok(Step::End);
        }
        let deadline = Instant::now() + timeout;
        let step = self.steps(deadline);
        match step {
            Ok(false) => return Ok(Step::TimedOut),
            Ok(true) => {}
            Err(error) if error.kind == ErrorKind::PastEnd => return Ok(Step::End),
            Err(error) => {
                if error.kind != ErrorKind::Closed {
                    self.report_bad(&mut report);
                    self.fatal = Some(error.clone());
                }
                return Err(error);
            }
        }
        self.report_bad(&mut report);
        let rules = self.schedule.rules();
        let is_infinite = rules.infinite;
        let (drop_last, world_size, most_rows) =
            (rules.drop_last, rules.layout.world_size, rules.layout.batch_size);
        let rows = match self.packer() {
            Some(packer) => packer.rows(),
            None if is_infinite => self.drawn,
            None => self.filled,
        };
        if self.is_packed() && (rows == 0 || drop_last && (rows as u64) < most_rows) {
            if let Some(packer) = self.packer() {
                packer.finish();
            }
            return self.end_of_packed(rows).map(|()| Step::End);
        }
        // Ranks must take the same number of batches, so with several ranks an empty batch is handed out.
        let is_left_out = rows == 0 && world_size == 1 && C::LEAVES_OUT_EMPTY;
        let examples = std::mem::take(&mut self.filled);
        (self.stream, self.drawn) = (0, 0);
        self.due.clear();
        self.batch += 1;
        if is_left_out {
            return Ok(Step::Batch(self.batch - 1, None));
        }
        self.shared.counters.made(examples);
        self.collate.complete(rows)?;
        let batch = self.collate.take(rows);
        let draws = std::mem::take(&mut self.draws);
        let stream_positions = self.packer().map(|packer| {
            let stream_position = |(stream, &draws)| StreamPosition {
                draws,
                share: packer.share(stream),
                held: packer.held(stream),
            };
            draws.iter().enumerate().map(stream_position).collect()
        });
        self.draws = draws;
        let examples = C::examples(&batch, rows) as u64;
        let counts = Delivered { batches: 1, examples, ..std::mem::take(&mut self.counts) };
        Ok(Step::Batch(self.batch - 1, Some(Complete { batch, stream_positions, counts })))
    }

    /// Returns the counts since the last batch handed out, and resets them: for batches left out, and after
    /// the last batch.
    pub(crate) fn take_rest(&mut self) -> Delivered {
        std::mem::take(&mut self.counts)
    }

    /// Continues the batch; false if time ran out.
    fn steps(&mut self, deadline: Instant) -> Result<bool> {
        if !self.returning.is_empty() {
            if !self.await_extra_reads(deadline)? {
                return Ok(false);
            }
            for (stream, returning) in std::mem::take(&mut self.returning).into_iter().enumerate() {
                for (held, example) in
                    returning.into_iter().filter_map(|Returning { held, example }| Some((held, example?)))
                {
                    if let Some(packer) = self.packer() {
                        packer.hold(stream, held, example)?;
                    }
                }
            }
        }
        let is_drawn = self.draw_rows(deadline).inspect_err(|_| {
            // Which substitutes of earlier rows have arrived depends on timing: none are reported.
            self.bad.retain(|&(_, attempt, _)| attempt == 0);
        })?;
        if !is_drawn || !self.await_extra_reads(deadline)? {
            return Ok(false);
        }
        self.bad.sort_unstable_by_key(|&(row, attempt, _)| (row, attempt));
        let mut substitutes = self.bad.iter().filter(|&&(_, attempt, _)| attempt > 0);
        substitutes.try_for_each(|(_, _, error)| self.tally.bad(error, true))?;
        Ok(true)
    }

    /// Ends a packed pass whose last `rows` rows make no batch: an error if the pass had no batch at all.
    ///
    /// With several ranks it is a warning: a rank has only its own documents, and other ranks may have had
    /// batches.
    fn end_of_packed(&mut self, rows: usize) -> Result<()> {
        if self.batch > 0 {
            return Ok(());
        }
        let layout = self.schedule.rules().layout;
        let Delivered { records_failed, records_excluded, records_lost, .. } = self.counts;
        let good =
            self.draws.iter().sum::<u64>().saturating_sub(records_failed + records_excluded + records_lost);
        // The engine ends a pass of only bad documents with an error.
        if good == 0 {
            return Ok(());
        }
        let (documents, of_rank) =
            (good, if layout.world_size > 1 { format!(" of rank {}", layout.rank) } else { String::new() });
        let message = match rows {
            0 => format!(
                "the pass has no batch: its {documents} documents{of_rank} fill no row; lower seq_len, or give more documents \
                 (if fit=\"pad\" skips them, since they are longer than a row: raise seq_len, or set on_long to \"cut\" or \"split\")"
            ),
            rows => format!(
                "drop_last leaves no batch: the pass has {documents} documents{of_rank}, which fill {rows} rows, and batch_size is {}; \
                 lower it, or leave drop_last out",
                layout.batch_size
            ),
        };
        if layout.world_size > 1 {
            log::warn!("{message}");
            return Ok(());
        }
        let error = Error::new(ErrorKind::Config, message);
        self.fatal = Some(error.clone());
        Err(error)
    }

    /// The number of the batch in progress.
    pub(crate) fn batch(&self) -> u64 {
        self.batch
    }

    fn report_bad(&mut self, report: &mut impl FnMut(Error)) {
        self.bad.sort_unstable_by_key(|&(row, attempt, _)| (row, attempt));
        self.bad.drain(..).for_each(|(_, _, error)| report(error));
    }

    /// Draws until the batch is complete; false if time ran out.
    fn draw_rows(&mut self, deadline: Instant) -> Result<bool> {
        let mut has_drawn = false;
        loop {
            let wanted = match self.packer() {
                Some(packer) => packer.wants()?,
                None => self.unfilled(),
            };
            let Some(stream) = wanted else { return Ok(true) };
            let is_over =
                self.is_packed() && self.schedule.end(stream).is_some_and(|end| self.draws[stream] >= end);
            if let Some(packer) = self.packer().filter(|_| is_over) {
                packer.end(stream);
                continue;
            }
            // Copying a large batch takes time even if all examples are ready, so check the deadline.
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() && has_drawn {
                return Ok(false);
            }
            let buffer = &self.shared.buffers[stream];
            let popped = match buffer.try_pop(Duration::ZERO) {
                Popped::TimedOut => {
                    let waited = &self.shared.counters.meters.examples;
                    self.watch.of(Some(stream as u64));
                    let what = [stream as u64, self.draws[stream]];
                    let Shared { demand, bytes, .. } = &*self.shared;
                    demand.set_starved(Some(stream));
                    if demand.is_starved() && bytes.is_empty() {
                        demand.starve();
                    }
                    let popped = self.watch.wait_on(State::Example, what, waited, || buffer.try_pop(left));
                    demand.set_starved(None);
                    popped
                }
                popped => popped,
            };
            if self.shared.is_stopped() {
                return Err(self.stopped());
            }
            match popped {
                Popped::Item(example) => {
                    let row = if self.schedule.rules().infinite { self.drawn } else { self.filled };
                    self.collate.put(BatchSlot { stream, row, draw: self.drawn }, example)?;
                    self.filled += 1;
                    self.failing[stream] = 0;
                    self.tally.good();
                    self.counts.records_good += 1;
                }
                Popped::Failed { ticket, error } => {
                    if let Some(packer) = self.packer() {
                        packer.miss(stream, error.place.index.unwrap_or_default());
                    }
                    let draw = Draw { stream, number: self.draws[stream], ticket };
                    self.note(Substitute { draw, row: self.drawn, attempt: 0 }, error)?;
                }
                Popped::TimedOut => return Ok(false),
                Popped::Finished | Popped::Closed => return Err(self.stopped()),
            }
            has_drawn = true;
            self.draws[stream] += 1;
            self.drawn += 1;
            self.shared.demand.drew(stream);
        }
    }

    /// Waits for records requested besides the tickets; false if time ran out. Of several substitutes that
    /// end the run, the first by row is reported.
    fn await_extra_reads(&mut self, deadline: Instant) -> Result<bool> {
        while self.pending > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let waited = &self.shared.counters.meters.examples;
            let state = if self.returning.is_empty() { State::Substitute } else { State::Held };
            let what = [self.batch, self.pending as u64];
            match self.watch.wait_on(state, what, waited, || self.extra_reads.recv_timeout(left)) {
                Ok((ExtraRead::Held { stream, nth, .. }, outcome)) => {
                    self.pending -= 1;
                    self.returning[stream][nth].example = Some(outcome.map_err(lost)?);
                }
                Ok((ExtraRead::Substitute(substitute), outcome)) => {
                    self.pending -= 1;
                    match outcome {
                        Ok(example) => {
                            let Substitute { draw: Draw { stream, .. }, row, .. } = substitute;
                            self.collate.put(BatchSlot { stream, row, draw: row }, example)?;
                            self.filled += 1;
                            Counters::add(&self.shared.counters.substitutes);
                            self.counts.substitutes += 1;
                            self.counts.records_good += 1;
                        }
                        Err(error) => {
                            if let Err(error) = self.note(substitute, error) {
                                self.ending.push((substitute.row, error));
                            }
                        }
                    }
                }
                // The I/O threads hold the sender until they end; without a stop they end early only by a
                // failure.
                Err(RecvTimeoutError::Disconnected) => return Err(self.shared.ended()),
                Err(RecvTimeoutError::Timeout) if self.shared.is_stopped() => return Err(self.stopped()),
                Err(RecvTimeoutError::Timeout) => return Ok(false),
            }
        }
        match self.ending.drain(..).min_by_key(|&(row, _)| row) {
            Some((_, error)) => Err(error),
            None => Ok(true),
        }
    }

    /// Records a failure; in an infinite pass, requests the next substitute.
    fn note(&mut self, failed: Substitute, error: Error) -> Result<()> {
        let Substitute { draw, row, attempt } = failed;
        let is_substitute = attempt > 0;
        let is_planned = self.schedule.rules().batching.is_planned();
        let exhausted = match attempt {
            SUBSTITUTES => Some(exhausted(&error, self.shared.activities.words.suspects)),
            _ => self.dried_up(draw.stream, &error),
        };
        let skips = self.policy.skips(error.kind);
        if error.kind != ErrorKind::Excluded {
            if skips && error.kind.is_io() {
                Counters::add(&self.shared.counters.records_lost);
            }
            let is_listed = skips || error.kind.is_record();
            // A packed batch may skip any number of documents: further ones are only counted.
            if is_listed && (is_planned || self.bad.len() < LISTED) {
                self.bad.push((row, attempt, error.clone()));
            }
            if skips && !is_substitute {
                self.tally.bad(&error, false)?;
            }
        }
        if !skips {
            return Err(error);
        }
        if let Some(error) = exhausted {
            return Err(error);
        }
        let count = match error.kind {
            ErrorKind::Excluded => &mut self.counts.records_excluded,
            kind if kind.is_io() => &mut self.counts.records_lost,
            _ => &mut self.counts.records_failed,
        };
        *count += 1;
        self.counts.kinds.count(error.kind);
        if !self.schedule.rules().infinite || !is_planned {
            return Ok(());
        }
        self.pending += 1;
        self.shared
            .demand
            .request_extra(ExtraRead::Substitute(Substitute { attempt: failed.attempt + 1, ..failed }));
        Ok(())
    }

    /// The error of an infinite stream of documents once every row has failed; `None` before.
    fn dried_up(&mut self, stream: usize, last: &Error) -> Option<Error> {
        if self.schedule.rules().batching.is_planned() {
            return None;
        }
        self.failing[stream] += 1;
        let (rules, rows) = (self.schedule.rules(), self.schedule.rows_of(stream));
        // In so many draws each row occurs at least once.
        let is_dry = rules.infinite && self.failing[stream] >= rows + rules.window;
        is_dry.then(|| {
            let message = format!(
                "none of the {rows} records of a stream is usable; the last one is {}: {last}. Check the shards, the column and \
                 exclude",
                last.kind
            );
            Error::new(ErrorKind::Exhausted, message)
        })
    }

    fn is_packed(&self) -> bool {
        !self.schedule.rules().batching.is_planned()
    }

    /// The packer, if it decides how many draws a batch takes.
    fn packer(&mut self) -> Option<&mut dyn PackRows<Example = C::Example>> {
        if self.is_packed() { self.collate.packer() } else { None }
    }

    /// The stream of the next draw, if the number of the batch determines the draws of each.
    fn unfilled(&mut self) -> Option<usize> {
        while self.stream < self.draws.len() && self.draws[self.stream] >= self.due(self.stream) {
            self.stream += 1;
        }
        (self.stream < self.draws.len()).then_some(self.stream)
    }

    /// The draws of a stream by the end of the batch in progress, whose number determines them.
    fn due(&mut self, stream: usize) -> u64 {
        if self.due.is_empty() {
            let (schedule, end) = (&self.schedule, self.batch + 1);
            self.due.extend((0..self.draws.len()).map(|stream| schedule.draws_before(stream, end)));
        }
        self.due[stream]
    }

    fn stopped(&self) -> Error {
        self.shared.fatal().cloned().unwrap_or_else(closed)
    }
}

/// The error of a draw with [`SUBSTITUTES`] bad substitutes in a row; `suspects` are to be looked at.
pub(crate) fn exhausted(last: &Error, suspects: &str) -> Error {
    Error::new(
        ErrorKind::Exhausted,
        format!(
            "{SUBSTITUTES} substitutes in a row were bad as well; the last one is {}: {last}. Check {suspects}",
            last.kind
        ),
    )
}

/// The error of a record that a state holds and that is bad now.
fn lost(mut error: Error) -> Error {
    if !error.kind.is_record() {
        return error;
    }
    // One error names the place, not both.
    let place = std::mem::take(&mut error.place);
    let message = "a record that the state holds is bad now; use the shards that the state was saved with";
    Error { place, ..Error::new(ErrorKind::State, message) }.because(error)
}
