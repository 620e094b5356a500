//! One run: the I/O threads, the channel, the workers and the shuffle buffers between them, from start to stop.
//!
//! Every admitted ticket is answered exactly once ([`Answer`] answers for a thread that panics), workers block on nothing but
//! their input, and an I/O thread blocks only on credit, channel and bytes, all of which end with [`Shared::stop`].

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use crossbeam_channel::{Receiver, Sender};

use crate::{
    Error, ErrorKind, Result,
    engine::{
        Plan,
        flow::admission::Admission,
        flow::assembler::closed,
        flow::channel_limit::ChannelLimit,
        flow::demand::{Aside, Demand},
        flow::permits::ReaderGate,
        flow::reader::{Reader, Reading},
        flow::sequencer::Sequencer,
        flow::worker::{Input, Worker},
        observe::activity::{Activities, Activity, Role, State, ThreadState},
        observe::meter::Stopwatch,
        observe::stall::Snapshot,
        observe::stats::{Counters, Queues},
        threads::owned::Threads,
        threads::parking::Parking,
    },
    order::Schedule,
    record::{ExampleMaker, Held, ReadRecords, Record, Source, Task},
    shuffle::ConcurrentShuffleBuffer,
};

/// Finds the shard of a row, and the row in it; None where items are no rows.
type Places = Box<dyn Fn(u64) -> Option<(Arc<Path>, u64)> + Send + Sync>;

/// What all threads of a run share.
pub(crate) struct Shared<E> {
    /// One for each stream.
    pub(crate) buffers: Vec<ConcurrentShuffleBuffer<E>>,
    pub(crate) demand: Demand,
    pub(crate) counters: Arc<Counters>,
    /// Batches that are complete and were not taken.
    pub(crate) ready: AtomicUsize,
    pub(crate) parking: Parking,
    pub(crate) bytes: Arc<ChannelLimit>,
    pub(crate) sequencer: Sequencer,
    /// Bytes that records and reads under way hold.
    bytes_in_use: Box<dyn Fn() -> usize + Send + Sync>,
    stopped: AtomicBool,
    /// Dropped to end a wait for the channel.
    open: Mutex<Option<Sender<()>>>,
    fatal: OnceLock<Error>,
    pub(crate) activities: Arc<Activities>,
    /// For what the collator waits for.
    schedule: Schedule,
    place: Places,
}

impl<E> Shared<E> {
    /// Ends every thread of the run and wakes the consumer.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.demand.stop();
        self.bytes.close();
        self.parking.end();
        self.sequencer.close();
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.buffers.iter().for_each(ConcurrentShuffleBuffer::close);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// What lies between the threads.
    pub(crate) fn queues(&self) -> Queues {
        let (records, record_bytes) = self.bytes.held();
        let examples = self.buffers.iter().map(ConcurrentShuffleBuffer::len).sum();
        let batches = self.ready.load(Ordering::Relaxed);
        Queues { records, record_bytes, read_bytes: (self.bytes_in_use)(), examples, batches }
    }

    /// What the threads are doing, and what decides who waits for whom.
    pub(crate) fn look(&self) -> Snapshot {
        let mut threads = self.activities.look();
        for thread in &mut threads {
            let ThreadState { role, state, detail, item, place, .. } = thread;
            if let (State::Example, Some(stream)) = (*state, *detail) {
                let ticket = self.buffers.get(stream as usize).and_then(ConcurrentShuffleBuffer::wanted);
                *item = ticket.map(|ticket| self.schedule.clone().assign(stream as usize, ticket).row);
            }
            if matches!(role, Role::Reader | Role::Worker) || *state == State::Example {
                *place = item.and_then(&self.place);
            }
        }
        let words = self.activities.words;
        Snapshot { threads, n_queued: self.bytes.held().0, turn: self.sequencer.errand(), words }
    }

    /// What ended the run, if it was not the user.
    pub(crate) fn fatal(&self) -> Option<&Error> {
        self.fatal.get()
    }

    /// Why a channel of the run is closed: the error that ended the run, or that it was stopped.
    ///
    /// A thread that panics closes its channels while it unwinds, before its panic is the run's error
    /// ([`guard`]). Nothing else closes them without a stop, so that error is waited for.
    pub(crate) fn ended(&self) -> Error {
        if !self.is_stopped() {
            self.fatal.wait();
        }
        self.fatal().cloned().unwrap_or_else(closed)
    }

    /// Ends the run with an error that belongs to no record.
    fn fail(&self, error: Error) {
        // Of several errors, the first is reported.
        let _ = self.fatal.set(error);
        self.stop();
    }
}

impl<E> Shared<E> {
    /// Leaves every lock of the run poisoned: for tests.
    #[cfg(debug_assertions)]
    #[allow(clippy::panic, reason = "what was asked for")]
    pub(crate) fn panic_with_locks(&self) -> ! {
        // None of them is ever taken while another one is held, so no thread waits here for long.
        let _locks = (
            self.demand.lock(),
            self.bytes.lock(),
            self.parking.lock(),
            self.sequencer.lock(),
            self.open.lock(),
        );
        let _buffers: Vec<_> = self.buffers.iter().map(ConcurrentShuffleBuffer::lock).collect();
        panic!("a test asked for it");
    }
}

/// Where an outcome goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Slot {
    Ticket { stream: usize, ticket: u64 },
    Aside(Aside),
}

/// The outcome of what was asked for beside the tickets.
pub(crate) type FromAside<E> = (Aside, Result<E>);

/// The duty to answer for an admitted record, fulfilled once: by [`Answer::give`], or by drop if it gets lost. A thread that unwinds
/// ends the run instead ([`guard`]).
pub(crate) struct Answer<E> {
    pub(crate) slot: Option<Slot>,
    pub(crate) shared: Arc<Shared<E>>,
    pub(crate) asides: Sender<FromAside<E>>,
}

impl<E> Answer<E> {
    pub(crate) fn give(mut self, outcome: Result<E>) {
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
        // A stopped run drops records everywhere, and its buffers may not be closed yet: no thread waits for
        // these answers. A thread that unwinds needs no answer either: its guard is about to report the
        // panic, and an answer would come before it.
        if self.shared.is_stopped() || std::thread::panicking() {
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
pub(crate) struct Admitted<E> {
    pub(crate) record: Record,
    /// Bytes taken when it was sent.
    pub(crate) bytes: usize,
    pub(crate) answer: Answer<E>,
}

/// A started run, as its owner holds it.
pub(crate) struct Run<E> {
    pub(crate) shared: Arc<Shared<E>>,
    pub(crate) threads: Threads,
}

/// What the collator holds of a run.
pub(crate) struct Ends<E> {
    /// Outcomes of what was asked for beside the tickets.
    pub(crate) asides: Receiver<FromAside<E>>,
    /// Disconnected when the run is stopped.
    pub(crate) stopped: Receiver<()>,
}

impl<E: Send + 'static> Run<E> {
    /// Starts the threads of a pass, after so many draws of each stream; `held` is asked for beside the tickets.
    pub(crate) fn start<S: Source, K: Task>(
        plan: &Plan,
        schedule: &Schedule,
        draws: &[u64],
        held: &[Vec<Held>],
        source: &Arc<S>,
        task: &Arc<K>,
        counters: &Arc<Counters>,
    ) -> Result<(Self, Ends<E>)>
    where
        K::Maker: ExampleMaker<Example = E>,
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
        let words = K::WORDS;
        let shared = Arc::new(Shared {
            buffers,
            demand: Demand::new(accounts, asides(held), first_runs, most_runs),
            bytes: Arc::new(ChannelLimit::new(plan.channel_bytes, plan.channel_size, n_readers)),
            parking: Parking::new(counters.numbers().workers),
            sequencer: Sequencer::default(),
            bytes_in_use: {
                let source = source.clone();
                Box::new(move || source.bytes_in_use())
            },
            counters: counters.clone(),
            ready: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            open: Mutex::new(Some(open)),
            fatal: OnceLock::new(),
            activities: Arc::new(Activities::new(n_readers, plan.n_workers, words)),
            schedule: schedule.clone(),
            place: {
                let source = source.clone();
                Box::new(move |row| (words.item == "row").then(|| source.locate(row)))
            },
        });
        let (to_workers, records) = crossbeam_channel::bounded(plan.channel_size);
        let (asides_tx, asides) = crossbeam_channel::unbounded();
        // Dropped on error, `run` ends what was started.
        let mut run = Self { shared: shared.clone(), threads: Threads::default() };
        for n in 0..n_readers {
            let activity = shared.activities.reader(n);
            // One thread alone keeps its place in each stream; of several, each reads a block to its end.
            let places = if n_readers == 1 { schedule.n_streams() } else { 1 };
            let gate = Arc::new(ReaderGate::new(shared.clone(), activity.clone()));
            let reader = Reader {
                watch: Stopwatch::start(&counters.meters.read, &counters.trace, activity),
                task: task.clone(),
                source: source.clone(),
                records: (0..places)
                    .map(|_| {
                        let mut reader = source.reader();
                        reader.ask(gate.clone());
                        reader
                    })
                    .collect(),
                gate,
                in_turn,
                policy: plan.policy.clone(),
                schedule: schedule.clone(),
                shared: shared.clone(),
                to_workers: to_workers.clone(),
                asides: asides_tx.clone(),
            };
            run.spawn(activity.clone(), move |_, _| reader.run())?;
        }
        #[cfg(debug_assertions)]
        let injected = crate::engine::threads::inject::Injected::current();
        for n in 0..plan.n_workers {
            let (source, task) = (source.clone(), task.clone());
            let input = Input { records: records.clone(), stopped: stopped.clone() };
            run.spawn(shared.activities.worker(n).clone(), move |shared, activity| {
                Worker {
                    n,
                    shared,
                    source: &*source,
                    task: &*task,
                    input,
                    #[cfg(debug_assertions)]
                    injected,
                    activity,
                }
                .run();
            })?;
        }
        Ok((run, Ends { asides, stopped }))
    }
}

impl<E: Send + 'static> Run<E> {
    /// Starts the thread of `activity`.
    pub(crate) fn spawn(
        &mut self,
        activity: Arc<Activity>,
        work: impl FnOnce(&Arc<Shared<E>>, &Arc<Activity>) + Send + 'static,
    ) -> Result<()> {
        let shared = self.shared.clone();
        self.threads.spawn(activity.name().to_string(), move || {
            let _ends = activity.begin();
            guard(&shared, |shared| work(shared, &activity));
        })
    }
}

impl<E> Run<E> {
    /// Stops the run and hands over its threads, which end on their own.
    pub(crate) fn retire(&mut self) -> Threads {
        self.shared.stop();
        std::mem::take(&mut self.threads)
    }

    /// Whether the threads are of this process.
    pub(crate) fn is_ours(&self) -> bool {
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
fn guard<E>(shared: &Arc<Shared<E>>, work: impl FnOnce(&Arc<Shared<E>>)) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(shared))) {
        shared.fail(panicked(&*panic));
    }
}

pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
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

/// If two held rows are at most this far apart, the rows between them are read as well: they are usually in
/// the same row group, which costs more to open than to continue.
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

/// Completes an error with the place of its record.
pub(crate) fn located<S: Source>(mut error: Error, source: &S, row: u64) -> Error {
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
