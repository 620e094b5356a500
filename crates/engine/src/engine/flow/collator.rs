//! The collator: the thread that makes batches ahead of the consumer; and [`Pass`], which takes them.
//!
//! It draws examples, writes them into rows, and sends complete batches through a channel, each with its
//! number and its bad records. It begins the next batch when fewer than `prefetch_batches` are ready. Usually
//! a requested batch is ready: then the hand-over moves some pointers, for any size. An error is delivered at
//! its position, after all earlier batches.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, select};

use crate::{
    Error, ErrorKind, Result,
    contract::{BatchSizes, Collate, ExampleMaker, Source, StreamPositions, StreamShare, TaskFor},
    engine::{
        Plan,
        failures::policy::Tally,
        flow::assembler::{Assembler, Complete, RunStart, Step},
        flow::run::Run,
        flow::shared::Shared,
        flow::shared::closed,
        observe::activity::State,
        observe::stats::{Counters, Delivered, cores},
        observe::trace::ThreadTrack,
        threads::autoscale::{Autoscaler, Sums, cpu_s},
        threads::owned::Threads,
    },
    order::Schedule,
};

/// The longest single wait for examples; their arrival ends it earlier.
const SLICE: Duration = Duration::from_millis(50);

/// A batch or the error in its place, with the bad records found meanwhile.
struct CollatedBatch<B> {
    outcome: Result<BatchOutcome<B>>,
    bad: Vec<Error>,
    /// Counts to deliver besides those of the batch itself.
    rest: Delivered,
    /// When it was complete.
    at: Instant,
}

enum BatchOutcome<B> {
    /// A batch; `None` if it is left out, which moves the position all the same.
    Batch(u64, Option<Complete<B>>),
    /// The pass is over; received only if its number of batches was unknown.
    End,
}

/// A running pass, from the batch at which it was started.
pub(crate) struct Pass<C: Collate> {
    run: Run<C::Example>,
    /// `None` only during drop.
    made: Option<Receiver<CollatedBatch<C::Batch>>>,
    /// Wakes the collator if it waits for room. `None` only during drop.
    taken: Option<Sender<()>>,
    n_batches: Option<u64>,
    first: u64,
    next: u64,
    is_over: bool,
    /// Counts since the last batch handed out: of batches left out, and of the end of the pass.
    rest: Delivered,
    fatal: Option<Error>,
    /// When the last batch was handed out; `None` once the next one is requested.
    handed: Option<Instant>,
    /// The time waited for the requested batch so far.
    starved: Duration,
    /// The loop's track in a trace.
    track: ThreadTrack,
}

pub(crate) struct Start<'a> {
    pub(crate) batch: u64,
    /// The positions of its streams, if its number does not determine them.
    pub(crate) stream_positions: Option<&'a StreamPositions>,
    pub(crate) tally: Tally,
}

impl<C: Collate + 'static> Pass<C> {
    /// Starts all threads of the pass.
    pub(crate) fn start<S: Source, K: TaskFor<S, Collate = C>>(
        plan: &Plan,
        schedule: Schedule,
        Start { batch, stream_positions, tally }: Start<'_>,
        source: &Arc<S>,
        task: &Arc<K>,
        counters: &Arc<Counters>,
    ) -> Result<Self>
    where
        K::Maker: ExampleMaker<Example = C::Example>,
    {
        let asked = Instant::now();
        // No batch of a finite pass has more rows than the pass.
        let is_planned = schedule.rules().batching.is_planned();
        let rows = if plan.infinite || !is_planned { u64::MAX } else { schedule.positions() };
        let size = (plan.batching.most_rows() as u64).min(rows) as usize;
        let n_streams = schedule.n_streams();
        let collate = task.collate(BatchSizes { size, n_streams, ahead: plan.prefetch_batches });
        let n_batches = schedule.n_batches();
        let (draws, held) = match stream_positions {
            Some(stream_positions) => stream_positions.iter().map(|at| (at.draws, at.held.clone())).unzip(),
            None if is_planned => {
                ((0..n_streams).map(|stream| schedule.draws_before(stream, batch)).collect(), Vec::new())
            }
            // bounded: by `n_streams`, as the schedule is.
            None => (vec![0; n_streams], Vec::new()),
        };
        let (mut run, ends) = Run::start(plan, &schedule, &draws, &held, source, task, counters)?;
        let shares = match stream_positions {
            Some(stream_positions) => stream_positions.iter().map(|at| at.share).collect(),
            // bounded: as `draws`.
            None => vec![StreamShare::default(); n_streams],
        };
        let begin = RunStart { batch, draws, held, shares };
        let policy = plan.policy.clone();
        let assembler =
            Assembler::new(run.shared.clone(), ends.extra_reads, collate, schedule, begin, policy, tally);
        // One slot of slack: the collator must never find the channel full.
        let (to_user, made) = crossbeam_channel::bounded(plan.prefetch_batches + 1);
        let (taken, room) = crossbeam_channel::bounded(1);
        let now = Instant::now();
        let sums = sums(counters, now);
        let autoscaler = Autoscaler::new(plan.auto, plan.numbers(), cores(), counters.numbers(), now, sums);
        run.spawn(run.shared.activities.collator().clone(), move |shared, _| {
            let collator = Collator { shared, assembler, autoscaler, to_user, room, stopped: ends.stopped };
            collator.make_ahead();
        })?;
        Ok(Self {
            run,
            made: Some(made),
            taken: Some(taken),
            n_batches,
            first: batch,
            next: batch,
            is_over: false,
            rest: Delivered::default(),
            fatal: None,
            handed: None,
            starved: asked.elapsed(),
            track: counters.trace.track("consumer"),
        })
    }
}

impl<C: Collate> Pass<C> {
    pub(crate) fn run(&self) -> &Run<C::Example> {
        &self.run
    }

    /// The number of the batch that the next call returns.
    pub(crate) fn batch(&self) -> u64 {
        self.next
    }

    /// The error that ended the pass early.
    pub(crate) fn fatal(&self) -> Option<&Error> {
        self.fatal.as_ref()
    }

    /// Returns the counts since the last batch handed out, and resets them.
    pub(crate) fn take_rest(&mut self) -> Delivered {
        std::mem::take(&mut self.rest)
    }

    /// Waits up to `timeout` for the next batch, `None` for one that is left out; passes bad records to
    /// `report`, in the order of rows.
    pub(crate) fn next(
        &mut self,
        timeout: Duration,
        report: impl FnMut(Error),
    ) -> Result<Step<Option<Complete<C::Batch>>>> {
        let mut step = self.receive(timeout, report)?;
        if let Step::Batch(_, Some(complete)) = &mut step {
            complete.counts = complete.counts + self.take_rest();
        }
        Ok(step)
    }

    fn receive(
        &mut self,
        timeout: Duration,
        report: impl FnMut(Error),
    ) -> Result<Step<Option<Complete<C::Batch>>>> {
        if let Some(error) = &self.fatal {
            return Err(error.clone());
        }
        if self.is_over || self.n_batches.is_some_and(|n| self.next >= n) {
            return Ok(Step::End);
        }
        let (Some(made), Some(taken)) = (&self.made, &self.taken) else { return Err(closed()) };
        let counters = self.run.shared.counters.clone();
        let asked = Instant::now();
        if let Some(handed) = self.handed.take() {
            counters.meters.consumer.add(asked.duration_since(handed));
            if counters.trace.is_on() {
                counters.trace.span(&self.track, counters.meters.consumer.name(), handed..asked, None);
            }
        }
        let received = match made.try_recv() {
            Err(TryRecvError::Empty) => {
                let consumer = self.run.shared.activities.consumer();
                // The slices of one wait count as one.
                if consumer.state() != State::Batch {
                    consumer.on(self.next);
                    consumer.enter(State::Batch, asked);
                }
                let (received, time) = counters.meters.hunger.wait(asked, || made.recv_timeout(timeout));
                self.starved += time;
                if counters.trace.is_on() {
                    let what = counters.meters.batches.name();
                    counters.trace.span(&self.track, what, asked..asked + time, Some(self.next));
                }
                received
            }
            received => received.map_err(|_| RecvTimeoutError::Disconnected),
        };
        if !matches!(received, Err(RecvTimeoutError::Timeout)) {
            self.run.shared.activities.consumer().enter(State::Loop, Instant::now());
        }
        match received {
            Ok(CollatedBatch { outcome, bad, rest, at }) => {
                self.rest = self.rest + rest;
                self.run.shared.ready.fetch_sub(1, Ordering::AcqRel);
                // If the channel is full, the collator is already woken.
                let _ = taken.try_send(());
                bad.into_iter().for_each(report);
                match outcome {
                    Ok(BatchOutcome::Batch(number, complete)) => {
                        if complete.is_some() {
                            self.hand_out(&counters, at);
                        } else if number == self.first {
                            self.first += 1;
                        }
                        self.next = number + 1;
                        Ok(Step::Batch(number, complete))
                    }
                    Ok(BatchOutcome::End) => {
                        self.is_over = true;
                        // If the data ended before the schedule, records past the end are still in flight.
                        self.run.shared.stop();
                        Ok(Step::End)
                    }
                    Err(error) => {
                        self.fatal = (error.kind != ErrorKind::Closed).then(|| error.clone());
                        Err(error)
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => Ok(Step::TimedOut),
            // The collator ends without a last message only if the run was stopped, or if it panics.
            Err(RecvTimeoutError::Disconnected) => Err(self.run.shared.ended()),
        }
    }

    /// Meters a batch that is handed out now and was complete `at`.
    fn hand_out(&mut self, counters: &Counters, at: Instant) {
        let now = Instant::now();
        let (meters, starved) = (&counters.meters, std::mem::take(&mut self.starved));
        meters.ready.add(now.duration_since(at));
        if self.next == self.first {
            meters.starts.add(starved);
        } else {
            meters.batches.add(starved);
            meters.starved.add(starved);
        }
        Counters::add(&counters.batches);
        counters.handed_out(now);
        if counters.trace.is_on() {
            let workers = counters.numbers().workers;
            counters.trace.queues(&self.track, now, self.run.shared.queues(), workers);
        }
        self.handed = Some(now);
    }

    /// Stops the run and returns its threads, which end on their own.
    pub(crate) fn retire(mut self) -> Threads {
        self.run.retire()
    }
}

impl<C: Collate> Drop for Pass<C> {
    fn drop(&mut self) {
        // After a fork the collator exists only in the parent; locks that it held stay locked here.
        if !self.run.is_ours() {
            std::mem::forget((self.made.take(), self.taken.take()));
        }
    }
}

/// The sums that the autoscaler decides by.
fn sums(counters: &Counters, now: Instant) -> Sums {
    let meters = &counters.meters;
    Sums {
        batches: counters.read().batches,
        starved_s: meters.hunger.seconds(now),
        piled_s: meters.room.seconds(),
        busy_s: meters.decode.busy_s(),
        cpu_s: cpu_s(),
    }
}

struct Collator<'a, C: Collate> {
    shared: &'a Shared<C::Example>,
    assembler: Assembler<C>,
    autoscaler: Autoscaler,
    to_user: Sender<CollatedBatch<C::Batch>>,
    /// Receives a message when a batch was taken.
    room: Receiver<()>,
    stopped: Receiver<()>,
}

impl<C: Collate> Collator<'_, C> {
    /// Makes batches until the pass ends, fails, or is stopped.
    fn make_ahead(mut self) {
        let counters = &self.shared.counters;
        let mut bad = Vec::new();
        while self.await_room() {
            let (begin, number) = (self.assembler.watch.mark(), self.assembler.batch());
            self.assembler.watch.on(number);
            let outcome = loop {
                match self.assembler.next(SLICE, |error| bad.push(error)) {
                    Ok(Step::TimedOut) => self.adapt(Instant::now()),
                    Ok(Step::End) => break Ok(BatchOutcome::End),
                    Ok(Step::Batch(number, complete)) => break Ok(BatchOutcome::Batch(number, complete)),
                    Err(error) => break Err(error),
                }
            };
            let is_over = !matches!(outcome, Ok(BatchOutcome::Batch(..)));
            let at = self.assembler.watch.item(&counters.meters.collate, number);
            self.assembler.watch.spanning("batch", begin, number);
            self.shared.ready.fetch_add(1, Ordering::AcqRel);
            let (bad, rest) = (std::mem::take(&mut bad), self.assembler.take_rest());
            let made = CollatedBatch { outcome, bad, rest, at };
            // The channel is never full.
            if self.to_user.try_send(made).is_err() || is_over {
                return;
            }
            self.adapt(at);
        }
    }

    /// Waits until there is room for a batch; false if the run is stopped.
    fn await_room(&mut self) -> bool {
        let (shared, room, stopped) = (self.shared, &self.room, &self.stopped);
        // One batch is in progress.
        let has_room = || shared.ready.load(Ordering::Acquire) < shared.counters.numbers().prefetch;
        has_room()
            || self.assembler.watch.wait(State::Room, &shared.counters.meters.room, || {
                loop {
                    select! {
                        recv(room) -> taken => if taken.is_err() { return false },
                        recv(stopped) -> _ => return false,
                    }
                    if has_room() {
                        return true;
                    }
                }
            })
    }

    /// Adapts the numbers of workers and of batches ahead to the loop.
    fn adapt(&mut self, now: Instant) {
        if !self.autoscaler.is_due(now) {
            return;
        }
        let waiting = self.shared.queues().records;
        if let Some(numbers) = self.autoscaler.decide(now, sums(&self.shared.counters, now), waiting) {
            self.shared.parking.set(numbers.workers);
            self.shared.counters.change(numbers);
        }
    }
}
