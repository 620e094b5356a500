//! One run: the I/O threads, the channel, the workers and the shuffle buffers between them, from start to stop.
//!
//! Every admitted ticket is answered exactly once ([`Answer`] answers for a thread that panics), workers block on nothing but
//! their input, and an I/O thread blocks only on credit, channel and bytes, all of which end with [`Shared::stop`].

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError};

use super::{
    ExampleOf, Plan,
    admission::Admission,
    budget::Budget,
    crew::Crew,
    demand::{Aside, Demand, Errand, Substitute},
    inject::Delays,
    meter::Stopwatch,
    policy::Policy,
    stats::{Counters, Queues},
    threads::Threads,
    turns::Turns,
};
use crate::{
    Error, ErrorKind, Result,
    memory::MOST_READERS,
    order::{Assignment, Schedule},
    record::{Held, RawRecord, ReadRecords, Record, Source, Stage, Task},
    shuffle::ConcurrentShuffleBuffer,
};

/// What all threads of a run share.
pub(super) struct Shared<E> {
    /// One for each stream.
    pub(super) buffers: Vec<ConcurrentShuffleBuffer<E>>,
    pub(super) demand: Demand,
    pub(super) counters: Arc<Counters>,
    /// Batches that are complete and were not taken.
    pub(super) ready: AtomicUsize,
    pub(super) crew: Crew,
    bytes: Budget,
    turns: Turns,
    /// Bytes that records and reads under way hold.
    bytes_in_use: Box<dyn Fn() -> usize + Send + Sync>,
    stopped: AtomicBool,
    /// Dropped to end a wait for the channel.
    open: Mutex<Option<Sender<()>>>,
    fatal: OnceLock<Error>,
}

impl<E> Shared<E> {
    /// Ends every thread of the run and wakes the consumer.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.demand.stop();
        self.bytes.close();
        self.crew.end();
        self.turns.close();
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.buffers.iter().for_each(ConcurrentShuffleBuffer::close);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// What lies between the threads.
    pub(super) fn queues(&self) -> Queues {
        let (records, record_bytes) = self.bytes.held();
        let examples = self.buffers.iter().map(ConcurrentShuffleBuffer::len).sum();
        let batches = self.ready.load(Ordering::Relaxed);
        Queues { records, record_bytes, read_bytes: (self.bytes_in_use)(), examples, batches }
    }

    /// What ended the run, if it was not the user.
    pub(super) fn fatal(&self) -> Option<&Error> {
        self.fatal.get()
    }

    /// Ends the run with an error that belongs to no record.
    fn fail(&self, error: Error) {
        // Of several, the first is told.
        let _ = self.fatal.set(error);
        self.stop();
    }
}

/// Where an outcome goes.
#[derive(Debug, Clone, Copy)]
enum Slot {
    Ticket { stream: usize, ticket: u64 },
    Aside(Aside),
}

/// The outcome of what was asked for beside the tickets.
pub(super) type FromAside<E> = (Aside, Result<E>);

/// The duty to answer for an admitted record, fulfilled once: by [`Answer::give`], or by drop if the thread unwinds.
struct Answer<E> {
    slot: Option<Slot>,
    shared: Arc<Shared<E>>,
    asides: Sender<FromAside<E>>,
}

impl<E> Answer<E> {
    fn give(mut self, outcome: Result<E>) {
        if let Some(slot) = self.slot.take() {
            self.send(slot, outcome);
        }
    }

    fn send(&self, slot: Slot, outcome: Result<E>) {
        match slot {
            // A closed buffer drops the outcome: the run is over.
            Slot::Ticket { stream, ticket } => drop(self.shared.buffers[stream].push(ticket, outcome)),
            // So does a consumer that is gone.
            Slot::Aside(aside) => drop(self.asides.send((aside, outcome))),
        }
    }
}

impl<E> Drop for Answer<E> {
    fn drop(&mut self) {
        // A run that is stopped lets go of records everywhere, and its buffers may not be closed yet: nobody waits for these.
        if self.shared.is_stopped() {
            return;
        }
        if let Some(slot) = self.slot.take() {
            let lost = Error::new(
                ErrorKind::Panic,
                "a record was lost on its way: a bug of forebay, please report it",
            );
            self.send(slot, Err(lost));
        }
    }
}

/// A record in the channel, with the duty to answer for it.
struct Admitted<E> {
    record: Record,
    answer: Answer<E>,
}

/// A started run, as its owner holds it.
pub(super) struct Run<E> {
    pub(super) shared: Arc<Shared<E>>,
    pub(super) threads: Threads,
}

/// What the collator holds of a run.
pub(super) struct Ends<E> {
    /// Outcomes of what was asked for beside the tickets.
    pub(super) asides: Receiver<FromAside<E>>,
    /// Disconnected when the run is stopped.
    pub(super) stopped: Receiver<()>,
}

impl<E: Send + 'static> Run<E> {
    /// Starts the threads of a pass, after so many draws of each stream; `held` is asked for beside the tickets.
    pub(super) fn start<S: Source, K: Task>(
        plan: &Plan,
        schedule: &Schedule,
        draws: &[u64],
        held: &[Vec<Held>],
        source: &Arc<S>,
        task: &Arc<K>,
        counters: &Arc<Counters>,
    ) -> Result<(Self, Ends<E>)>
    where
        K::Stage: Stage<Example = E>,
    {
        let Reading { n_readers, first_runs, most_runs, in_turn, .. } = Reading::new(plan, source);
        let look_ahead = 3 * schedule.per_batch() as usize;
        let demand_first = source.random_access();
        let (mut buffers, mut accounts) = (Vec::new(), Vec::new());
        for (stream, &draws) in draws.iter().enumerate() {
            let window = schedule.window(stream, draws);
            let credit = plan.credit::<K>(window.size());
            let end = schedule.end(stream);
            let admission = Admission::new(window.clone(), end, credit, look_ahead, demand_first);
            accounts.push((window.draws(), admission));
            buffers.push(ConcurrentShuffleBuffer::over(credit, window)?);
        }
        let (open, stopped) = crossbeam_channel::bounded(0);
        let shared = Arc::new(Shared {
            buffers,
            demand: Demand::new(accounts, asides(held), first_runs, most_runs),
            bytes: Budget::new(plan.channel_bytes, plan.channel_size, n_readers),
            crew: Crew::new(counters.numbers().workers),
            turns: Turns::default(),
            bytes_in_use: {
                let source = source.clone();
                Box::new(move || source.bytes_in_use())
            },
            counters: counters.clone(),
            ready: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            open: Mutex::new(Some(open)),
            fatal: OnceLock::new(),
        });
        let (to_workers, records) = crossbeam_channel::bounded(plan.channel_size);
        let (asides_tx, asides) = crossbeam_channel::unbounded();
        // Dropped on error, `run` ends what was started.
        let mut run = Self { shared: shared.clone(), threads: Threads::default() };
        for n in 0..n_readers {
            let name = if n == 0 { "forebay-io".into() } else { format!("forebay-io-{n}") };
            // One thread alone keeps its place in each stream; of several, each reads a block to its end.
            let places = if n_readers == 1 { schedule.n_streams() } else { 1 };
            let reader = Reader {
                watch: Stopwatch::start(&counters.meters.read, &counters.trace, name.as_str()),
                task: task.clone(),
                source: source.clone(),
                records: (0..places).map(|_| source.reader()).collect(),
                in_turn,
                policy: plan.policy.clone(),
                schedule: schedule.clone(),
                shared: shared.clone(),
                to_workers: to_workers.clone(),
                asides: asides_tx.clone(),
            };
            let shared = shared.clone();
            run.threads.spawn(name, move || guard(&shared, |_| reader.run()))?;
        }
        let delays = Delays::current();
        for n in 0..plan.n_workers {
            let (source, task, records, shared) =
                (source.clone(), task.clone(), records.clone(), run.shared.clone());
            run.threads.spawn(format!("forebay-worker-{n}"), move || {
                guard(&shared, |shared| work(n, shared, &*source, &*task, &records, delays));
            })?;
        }
        Ok((run, Ends { asides, stopped }))
    }
}

impl<E> Run<E> {
    /// Stops the run and hands over its threads, which end on their own.
    pub(super) fn retire(&mut self) -> Threads {
        self.shared.stop();
        std::mem::take(&mut self.threads)
    }

    /// Whether the threads are of this process.
    pub(super) fn is_ours(&self) -> bool {
        self.threads.is_ours()
    }
}

impl<E> Drop for Run<E> {
    fn drop(&mut self) {
        // After a fork the threads are in the parent, and a lock that one of them held stays locked in the child.
        if self.threads.is_ours() {
            self.shared.stop();
        }
    }
}

/// Turns a panic of a thread into the run's end.
pub(super) fn guard<E>(shared: &Arc<Shared<E>>, work: impl FnOnce(&Arc<Shared<E>>)) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(shared))) {
        shared.fail(panicked(&*panic));
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let what = panic_message(panic);
    Error::new(
        ErrorKind::Panic,
        format!("a thread of the pipeline panicked ({what}): a bug of forebay, please report it"),
    )
}

/// The text of a panic.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// How a plan's threads read a source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    /// I/O threads.
    n_readers: usize,
    /// Runs that may be under way at first, and at most.
    first_runs: usize,
    most_runs: usize,
    /// Whether what they read goes on in the order of the runs.
    in_turn: bool,
    /// How many threads could read all the time.
    most_readers: usize,
}

impl Reading {
    pub(super) fn new<S: Source>(plan: &Plan, source: &Arc<S>) -> Self {
        if plan.order.is_scattered() {
            let Plan { n_readers, .. } = *plan;
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

    /// How many threads read all the time, once a pass has begun, and how many could.
    pub(super) fn steady(&self) -> [usize; 2] {
        [self.n_readers.min(self.most_runs), self.most_readers]
    }
}

/// How many runs may be under way before a read came late.
const FIRST_RUNS: usize = 4;
/// A thread whose turn has not come reads no further than the record with which it holds so many bytes.
const IN_HAND: usize = 4 << 20;

/// A record that was read, or not, and where it goes.
struct Fetched {
    slot: Slot,
    row: u64,
    seed: u64,
    epoch: u64,
    outcome: Result<RawRecord>,
}

/// An I/O thread.
struct Reader<S: Source, K: Task> {
    watch: Stopwatch,
    task: Arc<K>,
    source: Arc<S>,
    /// One, or one for each stream.
    records: Vec<S::Reader>,
    in_turn: bool,
    policy: Policy,
    schedule: Schedule,
    shared: Arc<Shared<ExampleOf<K>>>,
    to_workers: Sender<Admitted<ExampleOf<K>>>,
    asides: Sender<FromAside<ExampleOf<K>>>,
}

impl<S: Source, K: Task> Reader<S, K> {
    fn run(mut self) {
        let counters = self.shared.counters.clone();
        let (mut tickets, mut hand) = (Vec::new(), Vec::new());
        loop {
            let (schedule, source, in_turn) = (&mut self.schedule, &self.source, self.in_turn);
            let best = |stream, ticket| {
                if !in_turn {
                    return 1;
                }
                let Assignment { row, run, .. } = schedule.assign(stream, ticket);
                source.block_rows(row, run).min(run)
            };
            let demand = &self.shared.demand;
            let Some(errand) = demand.errand(&mut tickets, best, &mut self.watch, &counters.meters.credit)
            else {
                return;
            };
            let goes_on = match errand {
                Errand::Run { stream, number } => self.fetch_run(stream, number, &tickets, &mut hand),
                Errand::Ticket { stream, ticket, number } => {
                    let assigned = Assignment { run: 1, ..self.schedule.assign(stream, ticket) };
                    let fetched = self.fetch(Slot::Ticket { stream, ticket }, stream, assigned);
                    match number.filter(|_| self.in_turn) {
                        Some(number) => {
                            hand.push(fetched);
                            self.take_turn(number, &mut hand) && {
                                self.shared.turns.pass(number);
                                true
                            }
                        }
                        None => self.hand_over(fetched),
                    }
                }
                Errand::Aside(aside @ Aside::Substitute(Substitute { draw, attempt, .. })) => {
                    let assigned = self.schedule.substitute(draw, attempt);
                    let fetched = self.fetch(Slot::Aside(aside), draw.stream, assigned);
                    self.hand_over(fetched)
                }
                Errand::Aside(aside @ Aside::Held { stream, row, run, .. }) => {
                    let assigned = Assignment { row, run, seed: 0, epoch: 0 };
                    let mut fetched = self.fetch(Slot::Aside(aside), stream, assigned);
                    if let Ok(record) = &mut fetched.outcome {
                        // A slice would hold on to rows that nobody wants.
                        record.bytes = Bytes::copy_from_slice(&record.bytes);
                    }
                    self.hand_over(fetched)
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Reads a record.
    fn fetch(&mut self, slot: Slot, stream: usize, assigned: Assignment) -> Fetched {
        let Assignment { row, run, seed, epoch } = assigned;
        let excerpt = |head: &[u8], size| self.task.excerpt(head, size, seed);
        let at = stream % self.records.len();
        let outcome = self.policy.check(row).and_then(|()| self.records[at].read(row, run, &excerpt));
        Fetched { slot, row, seed, epoch, outcome }
    }

    /// Reads the records of run `number`, ahead of its turn as far as it may, and hands them over in its turn; false if the pass was
    /// stopped.
    fn fetch_run(&mut self, stream: usize, number: u64, tickets: &[u64], hand: &mut Vec<Fetched>) -> bool {
        let mut has_turn = !self.in_turn;
        let mut in_hand = 0;
        let last = tickets.last().copied().unwrap_or_default();
        for &ticket in tickets {
            if self.shared.is_stopped() {
                return false;
            }
            let assigned = self.schedule.assign(stream, ticket);
            // Where others read on, what follows is theirs.
            let run = if self.in_turn { assigned.run.min(last - ticket + 1) } else { assigned.run };
            let assigned = Assignment { run, ..assigned };
            let fetched = self.fetch(Slot::Ticket { stream, ticket }, stream, assigned);
            if !has_turn {
                in_hand += fetched.outcome.as_ref().map_or(0, |record| record.bytes.len());
                hand.push(fetched);
                has_turn = self.shared.turns.has_come(number);
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
        if self.in_turn {
            self.shared.turns.pass(number);
        }
        true
    }

    /// Waits for the turn of errand `number` and hands over what is in hand.
    fn take_turn(&mut self, number: u64, hand: &mut Vec<Fetched>) -> bool {
        let turns = &self.shared.turns;
        (turns.has_come(number) || self.watch.wait(&self.shared.counters.meters.turn, || turns.wait(number)))
            && hand.drain(..).all(|fetched| self.hand_over(fetched))
    }

    /// Sends a record to the workers, or tells why there is none; false if the pass was stopped.
    fn hand_over(&mut self, fetched: Fetched) -> bool {
        let Fetched { slot, row, seed, epoch, outcome } = fetched;
        let shared = self.shared.clone();
        let Shared { counters, bytes: budget, .. } = &*shared;
        let answer = Answer { slot: Some(slot), shared: self.shared.clone(), asides: self.asides.clone() };
        match outcome {
            Err(error) => {
                match error.kind {
                    ErrorKind::Excluded => Counters::add(&counters.records_excluded),
                    kind if kind.is_record() => Counters::add(&counters.records_failed),
                    _ => {}
                }
                answer.give(Err(located(error, &*self.source, row)));
            }
            Ok(RawRecord { bytes, label }) => {
                Counters::add(&counters.records_read);
                let size = bytes.len();
                let record = Record { bytes, label, index: row, seed, epoch };
                let is_admitted = budget.try_acquire(size)
                    || self.watch.wait(&counters.meters.bytes, || budget.acquire(size));
                if !is_admitted || !self.send(Admitted { record, answer }) {
                    return false;
                }
            }
        }
        self.watch.item(&counters.meters.read, row);
        true
    }

    /// Waits for room in the channel; false if the run was stopped.
    fn send(&mut self, mut admitted: Admitted<ExampleOf<K>>) -> bool {
        let Shared { bytes, counters, .. } = &*self.shared;
        let mut released = 0;
        loop {
            admitted = match self.to_workers.try_send(admitted) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(admitted)) => admitted,
            };
            // The first time this returns at once, and the channel is asked again.
            if !self.watch.wait(&counters.meters.channel, || bytes.rest(released)) {
                return false;
            }
            released = bytes.released();
        }
    }
}

/// Of two rows held that are no farther apart, those in between are read as well: they are in a row group, as a rule, which costs more
/// to begin than to go on with.
const NEAR: u64 = 1024;

/// What is held, in storage order, which costs the least to read.
fn asides(held: &[Vec<Held>]) -> VecDeque<Aside> {
    let mut asides = VecDeque::new();
    for (stream, held) in held.iter().enumerate() {
        let mut rows: Vec<_> = held.iter().map(|held| held.row).enumerate().collect();
        rows.sort_unstable_by_key(|&(_, row)| row);
        let next = rows.iter().skip(1).map(|&(_, next)| Some(next)).chain([None]);
        asides.extend(rows.iter().zip(next).map(|(&(nth, row), next)| {
            let run = next.map_or(1, |next| next - row + 1);
            Aside::Held { stream, nth, row, run: if run <= NEAR { run } else { 1 } }
        }));
    }
    asides
}

/// Worker thread `n`: works and rests until there are no more records, or the run is stopped.
fn work<S: Source, K: Task>(
    n: usize,
    shared: &Arc<Shared<ExampleOf<K>>>,
    source: &S,
    task: &K,
    records: &Receiver<Admitted<ExampleOf<K>>>,
    delays: Delays,
) {
    let meters = &shared.counters.meters;
    let name = format!("forebay-worker-{n}");
    let mut watch = Stopwatch::start(&meters.decode, &shared.counters.trace, name);
    loop {
        if !shared.crew.is_called(n) && !watch.wait(&meters.rest, || shared.crew.rest(n)) {
            return;
        }
        if !take_turn(n, shared, source, task, records, delays, &mut watch) {
            shared.crew.end();
            return;
        }
    }
}

/// Works as long as worker `n` is called, with a stage of its own; false when there is nothing more to do.
fn take_turn<S: Source, K: Task>(
    n: usize,
    shared: &Arc<Shared<ExampleOf<K>>>,
    source: &S,
    task: &K,
    records: &Receiver<Admitted<ExampleOf<K>>>,
    delays: Delays,
    watch: &mut Stopwatch,
) -> bool {
    let mut stage = task.stage();
    let meters = &shared.counters.meters;
    loop {
        let received = match records.try_recv() {
            Err(TryRecvError::Empty) => watch.wait(&meters.records, || records.recv().ok()),
            received => received.ok(),
        };
        let Some(Admitted { record, answer }) = received else { return false };
        shared.bytes.release(record.bytes.len());
        if shared.is_stopped() {
            return false;
        }
        delays.sleep(record.seed);
        let outcome = catch_unwind(AssertUnwindSafe(|| stage.run_until(&record, &|| shared.is_stopped())))
            .unwrap_or_else(|panic| {
                // The panic is told at its record's place; until then others get what they need from a stage that is whole.
                stage = task.stage();
                Err(panicked(&*panic))
            });
        let counter = match outcome {
            Ok(_) => &shared.counters.records_decoded,
            Err(_) => &shared.counters.records_failed,
        };
        Counters::add(counter);
        answer.give(outcome.map_err(|error| located(error, source, record.index)));
        watch.item(&meters.decode, record.index);
        if !shared.crew.is_called(n) {
            return true;
        }
    }
}

/// Completes an error with the place of its record.
pub(super) fn located<S: Source>(mut error: Error, source: &S, row: u64) -> Error {
    // One that knows its place keeps it.
    if error.place.index.is_some() {
        return error;
    }
    let (shard, row_in_shard) = source.locate(row);
    error.place.index = Some(row);
    error.place.shard = Some(shard);
    error.place.row = Some(row_in_shard);
    error
}
