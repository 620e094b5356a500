//! [`Shared`]: the state that the threads of a run share; [`Completion`]: the duty to answer for each
//! admitted record.
//!
//! Every admitted ticket is answered exactly once, unless the run ends first: a record that is dropped is
//! answered with an error, and a panic ends the run ([`guard`]). All waits end with [`Shared::stop`].

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use crossbeam_channel::Sender;

use crate::sync::plain::Mutex;
use crate::{
    Error, ErrorKind, Result,
    contract::{Record, Source},
    engine::{
        flow::channel_limit::ChannelLimit,
        flow::demand::{Demand, ExtraRead},
        flow::sequencer::Sequencer,
        observe::activity::{Activities, Role, State, ThreadState},
        observe::queues::QueueSizes,
        observe::stall::Snapshot,
        observe::stats::Counters,
        threads::parking::Parking,
    },
    error::Place,
    order::Schedule,
    shuffle::ConcurrentShuffleBuffer,
};

type Places = Box<dyn Fn(u64) -> Place + Send + Sync>;

/// The state shared by all threads of a run.
pub(crate) struct Shared<E> {
    /// One for each stream.
    pub(crate) buffers: Vec<ConcurrentShuffleBuffer<E>>,
    pub(crate) demand: Demand,
    pub(crate) counters: Arc<Counters>,
    /// Complete batches that were not taken.
    pub(crate) ready: AtomicUsize,
    pub(crate) parking: Parking,
    pub(crate) bytes: Arc<ChannelLimit>,
    pub(crate) sequencer: Sequencer,
    /// Bytes held by records and by reads in progress.
    pub(super) bytes_in_use: Box<dyn Fn() -> usize + Send + Sync>,
    pub(super) stopped: AtomicBool,
    /// Dropped at the stop, to end waits for the channel.
    pub(super) open: Mutex<Option<Sender<()>>>,
    pub(super) fatal: OnceLock<Error>,
    pub(crate) activities: Arc<Activities>,
    /// Finds the row of the ticket that the collator waits for.
    pub(super) schedule: Schedule,
    pub(super) place: Places,
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

    /// The amount of data between the threads.
    pub(crate) fn queues(&self) -> QueueSizes {
        let (records, record_bytes) = self.bytes.held();
        let examples = self.buffers.iter().map(ConcurrentShuffleBuffer::len).sum();
        let batches = self.ready.load(Ordering::Relaxed);
        QueueSizes { records, record_bytes, read_bytes: (self.bytes_in_use)(), examples, batches }
    }

    /// The states of all threads, with the facts that decide which one waits for which.
    pub(crate) fn look(&self) -> Snapshot {
        let mut threads = self.activities.look();
        for thread in &mut threads {
            let ThreadState { role, state, detail, item, place, .. } = thread;
            if let (State::Example, Some(stream)) = (*state, *detail) {
                let ticket = self.buffers.get(stream as usize).and_then(ConcurrentShuffleBuffer::wanted);
                *item = ticket.map(|ticket| self.schedule.clone().assign(stream as usize, ticket).row);
            }
            if matches!(role, Role::Reader | Role::Worker) || *state == State::Example {
                *place = item.map(&self.place).and_then(|place| place.shard.zip(place.row));
            }
        }
        let words = self.activities.words;
        Snapshot { threads, n_queued: self.bytes.held().0, turn: self.sequencer.job(), words }
    }

    /// The error that ended the run; `None` if the user ended it.
    pub(crate) fn fatal(&self) -> Option<&Error> {
        self.fatal.get()
    }

    /// Why a channel of the run is closed: the error that ended the run, or that it was stopped.
    ///
    /// A thread that panics closes its channels while it unwinds, before its panic becomes the run's error
    /// ([`guard`]). Nothing else closes them without a stop, so the call waits for that error.
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
    /// Panics while it holds every lock of the run, which poisons them: for tests.
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

#[derive(Debug, Clone, Copy)]
pub(crate) enum Destination {
    Ticket { stream: usize, ticket: u64 },
    ExtraRead(ExtraRead),
}

/// The outcome of a record requested besides the tickets.
pub(crate) type FromExtraRead<E> = (ExtraRead, Result<E>);

/// The duty to answer for an admitted record, fulfilled once: by [`Completion::give`], or with an error by
/// drop. A thread that unwinds ends the run instead ([`guard`]).
pub(crate) struct Completion<E> {
    pub(crate) destination: Option<Destination>,
    pub(crate) shared: Arc<Shared<E>>,
    pub(crate) extra_reads: Sender<FromExtraRead<E>>,
}

impl<E> Completion<E> {
    pub(crate) fn give(mut self, outcome: Result<E>) {
        if let Some(destination) = self.destination.take() {
            self.send(destination, outcome);
        }
    }

    fn send(&self, destination: Destination, outcome: Result<E>) {
        match destination {
            // A closed buffer drops the outcome: the run is over.
            Destination::Ticket { stream, ticket } => drop(self.shared.buffers[stream].push(ticket, outcome)),
            // So does the channel of a dropped consumer.
            Destination::ExtraRead(extra) => drop(self.extra_reads.send((extra, outcome))),
        }
    }
}

impl<E> Drop for Completion<E> {
    fn drop(&mut self) {
        // A stopped run drops records in many places, and its buffers may not be closed yet: no thread waits
        // for these answers. A thread that unwinds gives no answer either: its guard is about to report the
        // panic, and an answer would precede it.
        if self.shared.is_stopped() || std::thread::panicking() {
            return;
        }
        if let Some(destination) = self.destination.take() {
            let lost = Error::new(
                ErrorKind::Panic,
                "a record was dropped without an answer: a bug of forebay, please report it",
            );
            self.send(destination, Err(lost));
        }
    }
}

/// A record in the channel, with the duty to answer for it.
pub(crate) struct Admitted<P, E> {
    pub(crate) record: Record<P>,
    /// Bytes taken from the limit when it was sent.
    pub(crate) bytes: usize,
    pub(crate) completion: Completion<E>,
}

/// Ends the run with an error if `work` panics.
pub(crate) fn guard<E>(shared: &Arc<Shared<E>>, work: impl FnOnce(&Arc<Shared<E>>)) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(shared))) {
        shared.fail(panicked(&*panic));
    }
}

/// The error of a thread that panicked.
pub fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let what = panic_message(panic);
    Error::new(
        ErrorKind::Panic,
        format!("a thread of the pipeline panicked ({what}): a bug of forebay, please report it"),
    )
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// Adds the place of its record to an error.
pub fn located<S: Source>(mut error: Error, source: &S, row: u64) -> Error {
    // An error that has a place keeps it.
    if error.place.index.is_some() {
        return error;
    }
    error.place = Place { index: Some(row), byte: error.place.byte, ..source.place(row) };
    error
}

/// The error of a loader that was closed.
pub fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the loader is closed; make a new one to go on")
}
