//! An I/O thread: takes jobs from [`Demand`](crate::engine::flow::demand::Demand), reads records, and
//! sends them to the workers.

use std::sync::Arc;

use crossbeam_channel::{Sender, TrySendError};

use crate::{
    ErrorKind, Result,
    contract::{Payload, PayloadOf, RawRecord, ReadRecords, Source, TaskFor},
    engine::{
        ExampleOf, Plan,
        failures::policy::Policy,
        flow::demand::{ExtraRead, ReadJob, Substitute},
        flow::permits::{ReaderLimiter, RecordPermits},
        flow::shared::{Admitted, Completion, Destination, FromExtraRead, Shared, located},
        observe::activity::State,
        observe::meter::Stopwatch,
        observe::stats::Counters,
        plan::MOST_READERS,
    },
    order::{Assignment, ReadingPlace, Schedule},
};

/// How the I/O threads of a plan read a source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReaderPlan {
    pub(crate) n_readers: usize,
    /// Runs allowed at a time at first, and at most.
    pub(crate) first_runs: usize,
    pub(crate) most_runs: usize,
    /// Whether records are sent in the order of the jobs.
    pub(crate) in_turn: bool,
    /// How many threads could read at a time if the user allowed it.
    most_readers: usize,
}

impl ReaderPlan {
    pub(crate) fn new<S: Source>(plan: &Plan, source: &Arc<S>) -> Self {
        if plan.is_scattered() {
            let n_readers = source.scattered_readers(plan.n_readers);
            let most_runs = usize::MAX;
            return Self {
                n_readers,
                first_runs: most_runs,
                most_runs,
                in_turn: false,
                most_readers: MOST_READERS,
            };
        }
        let most_readers = source.most_blocks();
        let n_readers = if most_readers > 1 { plan.n_readers } else { 1 };
        let most_runs = most_readers.min(n_readers);
        let first_runs = most_runs.min(FIRST_RUNS);
        Self { n_readers, first_runs, most_runs, in_turn: n_readers > 1, most_readers }
    }

    /// How many threads read at a time once a pass has begun, and how many could.
    pub(crate) fn steady(&self) -> [usize; 2] {
        [self.n_readers.min(self.most_runs), self.most_readers]
    }
}

/// Runs allowed at a time before a read was late.
const FIRST_RUNS: usize = 4;
/// A thread ahead of its turn stops reading once it holds this many bytes.
const IN_HAND: usize = 4 << 20;

/// A record or the error of its read, and where it goes.
struct Fetched<P> {
    destination: Destination,
    row: u64,
    seed: u64,
    epoch: u64,
    outcome: Result<RawRecord<P>>,
    permits: RecordPermits,
}

pub(crate) struct Reader<S: Source, K: TaskFor<S>> {
    pub(crate) watch: Stopwatch,
    pub(crate) task: Arc<K>,
    pub(crate) source: Arc<S>,
    /// One reader, or one for each stream.
    pub(crate) readers: Vec<S::Reader>,
    pub(crate) limiter: Arc<ReaderLimiter<ExampleOf<K>>>,
    pub(crate) in_turn: bool,
    pub(crate) policy: Policy,
    pub(crate) schedule: Schedule,
    /// Another one, for what is read later: a schedule remembers its last epoch only.
    pub(crate) later: Schedule,
    pub(crate) shared: Arc<Shared<ExampleOf<K>>>,
    pub(crate) to_workers: Sender<Admitted<PayloadOf<S>, ExampleOf<K>>>,
    pub(crate) extra_reads: Sender<FromExtraRead<ExampleOf<K>>>,
}

impl<S: Source, K: TaskFor<S>> Reader<S, K> {
    pub(crate) fn run(mut self) {
        let counters = self.shared.counters.clone();
        let (mut tickets, mut hand) = (Vec::new(), Vec::new());
        loop {
            let (schedule, source, in_turn) = (&mut self.schedule, &self.source, self.in_turn);
            let best = |stream, ticket| {
                if !in_turn {
                    return 1;
                }
                let Assignment { row, run, tickets, .. } = schedule.assign(stream, ticket);
                let block = source.block_rows(row, run);
                if block < run { schedule.tickets_of(stream, ticket, block) } else { tickets }
            };
            let Shared { demand, bytes, .. } = &*self.shared;
            // Before the job: a thread that waits for room must not hold a record that the consumer waits
            // for.
            if !in_turn
                && !bytes.try_place()
                && !self.watch.wait(State::Place, &counters.meters.channel, || bytes.place())
            {
                return;
            }
            let has_records = || !self.to_workers.is_empty();
            let credit = &counters.meters.credit;
            let Some(job) = demand.job(&mut tickets, best, has_records, &mut self.watch, credit) else {
                self.vacate();
                return;
            };
            let number = match job {
                ReadJob::Run { number, .. } => in_turn.then_some(number),
                ReadJob::Ticket { number, .. } => number.filter(|_| in_turn),
                ReadJob::ExtraRead(_) => None,
            };
            self.limiter.begin(number);
            self.watch.of(number);
            let goes_on = match job {
                ReadJob::Run { stream, number } => self.fetch_run(stream, number, &tickets, &mut hand),
                ReadJob::Ticket { stream, ticket, number } => {
                    let assigned =
                        Assignment { run: 1, repeats: false, ..self.schedule.assign(stream, ticket) };
                    let fetched = self.fetch(Destination::Ticket { stream, ticket }, stream, assigned);
                    match number.filter(|_| self.in_turn) {
                        Some(number) => {
                            hand.push(fetched);
                            self.take_turn(number, &mut hand)
                        }
                        None => self.hand_over(fetched),
                    }
                }
                ReadJob::ExtraRead(extra @ ExtraRead::Substitute(Substitute { draw, attempt, .. })) => {
                    let assigned = self.schedule.substitute(draw, attempt);
                    let fetched = self.fetch(Destination::ExtraRead(extra), draw.stream, assigned);
                    self.hand_over(fetched)
                }
                ReadJob::ExtraRead(extra @ ExtraRead::Held { stream, row, run, epoch, .. }) => {
                    let seed = self.schedule.seed_of(ReadingPlace { epoch, row, following: 0, copy: row });
                    let assigned = Assignment { row, run, tickets: run, repeats: false, seed, epoch };
                    let mut fetched = self.fetch(Destination::ExtraRead(extra), stream, assigned);
                    if let Ok(record) = &mut fetched.outcome
                        && !fetched.permits.is_counted
                    {
                        // A slice would keep unneeded rows of its block in memory.
                        record.payload.detach();
                    }
                    self.hand_over(fetched)
                }
            };
            if !goes_on {
                return;
            }
            // A single thread reads on, with a reader for each stream.
            if self.in_turn {
                // Before the turn passes: the next thread requests memory without what these readers keep.
                self.readers.iter_mut().for_each(ReadRecords::end_job);
                if let Some(number) = number {
                    self.shared.sequencer.pass(number);
                }
            }
        }
    }

    fn fetch(
        &mut self,
        destination: Destination,
        stream: usize,
        assigned: Assignment,
    ) -> Fetched<PayloadOf<S>> {
        let Assignment { row, run, seed, epoch, .. } = assigned;
        self.watch.on(row);
        let at = stream % self.readers.len();
        let reader = &mut self.readers[at];
        let mut read = || self.task.request(&assigned, |request| reader.read(row, run, request));
        let outcome = self.policy.check(row).and_then(|()| read());
        let permits = self.limiter.take(&mut self.watch);
        Fetched { destination, row, seed, epoch, outcome, permits }
    }

    /// Reads the records of run `number`, ahead of its turn as far as allowed, and sends them in its turn;
    /// false if the pass was stopped.
    fn fetch_run(
        &mut self,
        stream: usize,
        number: u64,
        tickets: &[u64],
        hand: &mut Vec<Fetched<PayloadOf<S>>>,
    ) -> bool {
        let mut has_turn = !self.in_turn;
        let mut in_hand = 0;
        let last = tickets.last().copied().unwrap_or_default();
        let end = self.schedule.place(stream, last).row;
        self.announce(stream, tickets);
        for (n, &ticket) in tickets.iter().enumerate() {
            if self.shared.is_stopped() {
                return false;
            }
            let mut assigned = self.schedule.assign(stream, ticket);
            // With several threads, the rows after the job belong to other jobs, copies included.
            if self.in_turn {
                assigned.repeats &= tickets.get(n + 1) == Some(&(ticket + 1));
                if end >= assigned.row {
                    assigned.run = assigned.run.min(end - assigned.row + 1);
                }
            }
            let fetched = self.fetch(Destination::Ticket { stream, ticket }, stream, assigned);
            if !has_turn {
                in_hand += fetched.outcome.as_ref().map_or(0, |record| record.payload.n_bytes());
                hand.push(fetched);
                has_turn = self.shared.sequencer.has_come(number);
                if has_turn && hand.len() == 1 && self.to_workers.is_empty() {
                    self.shared.demand.late();
                }
                if (has_turn || in_hand >= IN_HAND || ticket == last) && !self.take_turn(number, hand) {
                    return false;
                }
                has_turn |= hand.is_empty();
            } else if !self.hand_over(fetched) {
                return false;
            }
        }
        true
    }

    /// Tells the reader of records what follows the run of these tickets.
    fn announce(&mut self, stream: usize, tickets: &[u64]) {
        let Some(&first) = tickets.first() else { return };
        // Of single rows there is nothing to announce.
        if self.schedule.rules().is_scattered() {
            return;
        }
        let Assignment { row, run, tickets, .. } = self.schedule.assign(stream, first);
        let next = first.saturating_add(tickets);
        let has_next = self.schedule.end(stream).is_none_or(|end| next < end);
        let next = has_next.then(|| self.later.place(stream, next).row);
        let at = stream % self.readers.len();
        self.readers[at].hint_next(row.saturating_add(run), next);
    }

    /// Waits for the turn of job `number` and sends the records in `hand`; false if the pass was stopped.
    fn take_turn(&mut self, number: u64, hand: &mut Vec<Fetched<PayloadOf<S>>>) -> bool {
        let sequencer = &self.shared.sequencer;
        (sequencer.has_come(number)
            || self.watch.wait(State::Turn, &self.shared.counters.meters.turn, || sequencer.wait(number)))
            && hand.drain(..).all(|fetched| self.hand_over(fetched))
    }

    /// Sends a record to the workers, or answers with the error of its read; false if the pass was stopped.
    fn hand_over(&mut self, fetched: Fetched<PayloadOf<S>>) -> bool {
        let Fetched { destination, row, seed, epoch, outcome, permits } = fetched;
        let shared = self.shared.clone();
        let is_counted = permits.is_counted;
        if is_counted {
            self.limiter.hand_over(permits);
        }
        let Shared { counters, bytes: channel_limit, .. } = &*shared;
        let completion = Completion {
            destination: Some(destination),
            shared: self.shared.clone(),
            extra_reads: self.extra_reads.clone(),
        };
        match outcome {
            // Whatever ended the read.
            Err(_) if shared.is_stopped() => return false,
            Err(error) => {
                match error.kind {
                    ErrorKind::Excluded => Counters::add(&counters.records_excluded),
                    kind if kind.is_record() => Counters::add(&counters.records_failed),
                    _ => {}
                }
                completion.give(Err(located(error, &*self.source, row)));
                self.vacate();
            }
            Ok(record) => {
                Counters::add(&counters.records_read);
                // Permits granted before the read are released when the record is dropped.
                let size = if is_counted { 0 } else { record.payload.n_bytes() };
                let record = record.numbered(row, seed, epoch);
                let own = self.limiter.own();
                let is_admitted = channel_limit.try_acquire(size, own)
                    || self
                        .watch
                        .wait(State::Memory, &counters.meters.bytes, || channel_limit.acquire(size, own));
                if !is_admitted || !self.send(Admitted { record, bytes: size, completion }) {
                    return false;
                }
            }
        }
        self.watch.item(&counters.meters.read, row);
        true
    }

    /// Returns the place in the channel that was taken for a job without a record.
    fn vacate(&self) {
        if !self.in_turn {
            self.shared.bytes.vacate();
        }
    }

    /// Sends a record, waiting for room in the channel; false if the run was stopped. Only a thread that
    /// sends in turn may find the channel full: the others have a place.
    fn send(&mut self, mut admitted: Admitted<PayloadOf<S>, ExampleOf<K>>) -> bool {
        let Shared { bytes, counters, .. } = &*self.shared;
        let mut released = 0;
        loop {
            admitted = match self.to_workers.try_send(admitted) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(admitted)) => admitted,
            };
            debug_assert!(self.in_turn, "the channel has more records than places");
            // The first time this returns at once, and the send is tried again.
            if !self.watch.wait(State::Channel, &counters.meters.channel, || bytes.rest(released)) {
                return false;
            }
            released = bytes.released();
        }
    }
}
