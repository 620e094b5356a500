//! [`Demand`] gives jobs to the I/O threads: from the draws that the consumer made in each stream, and the
//! records that it needs besides.
//!
//! Tickets out of turn are jobs of one record; those in reading order are given out as runs, each a block
//! for one thread. Runs are numbered, and single tickets too while the window fills: records of several
//! threads are sent in the order of these numbers ([`crate::engine::flow::sequencer`]). While reads are late,
//! more runs are allowed at a time, from a few up to the maximum.
//!
//! Read-ahead is limited by credit, which begins small and is raised by need: when the consumer waits for an
//! example of a stream, no record is left for the workers, and a thread waits for credit of that stream
//! ([`Demand::starve`]). Each of the three states is entered by another thread, which looks for the other
//! two; a worker looks when it finds the channel empty, not when it empties it. A raise that is missed costs
//! time only.

use std::{
    collections::VecDeque,
    sync::{PoisonError, atomic::Ordering::SeqCst},
};

use crate::engine::{
    flow::admission::{Admission, Next},
    observe::activity::State,
    observe::meter::{Stopwatch, Total},
};
use crate::{
    order::Draw,
    sync::{AtomicUsize, Condvar, Mutex, MutexGuard},
};

/// A record that replaces the bad record of a draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Substitute {
    /// The draw whose record is bad.
    pub draw: Draw,
    /// The row of the batch that it is for.
    pub row: usize,
    /// The attempt, counted from 1.
    pub attempt: u64,
}

/// A record that is read besides the tickets; its outcome has a channel of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtraRead {
    Substitute(Substitute),
    /// The collator held it where the run starts, as the `nth` of its stream.
    Held {
        stream: usize,
        /// Its number among the held records of the stream.
        nth: usize,
        /// The row over the files as given.
        row: u64,
        /// How many rows from it on are worth reading together: up to the next held row, if that is near.
        run: u64,
        /// The pass of the stream that its example depends on.
        epoch: u64,
    },
}

/// The next job of an I/O thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadJob {
    /// Fetch the record of a ticket.
    Ticket {
        stream: usize,
        ticket: u64,
        /// Its number among the jobs that are sent in order, if it has one.
        number: Option<u64>,
    },
    Run {
        stream: usize,
        /// Its number among the jobs that are sent in order.
        number: u64,
    },
    /// Fetch a record requested besides the tickets.
    ExtraRead(ExtraRead),
}

/// One stream: its draws, and which of its tickets were admitted.
#[derive(Debug)]
struct StreamState {
    draws: u64,
    admission: Admission,
    /// The number of draws before which the stream has no job.
    idle_until: u64,
    lacks_credit: bool,
}

#[derive(Debug)]
pub(crate) struct DemandState {
    streams: Vec<StreamState>,
    /// The stream to try first.
    turn: usize,
    extra_reads: VecDeque<ExtraRead>,
    /// Runs in progress; how many are allowed now, and at most.
    runs: usize,
    allowed_runs: usize,
    most_runs: usize,
    n_numbered: u64,
    waiting: usize,
    stopped: bool,
}

/// What the consumer needs next; I/O threads wait on it for jobs.
#[derive(Debug)]
pub struct Demand {
    state: Mutex<DemandState>,
    changed: Condvar,
    /// The stream of the example that the consumer waits for, from 1 on; 0 if it does not wait.
    starved: AtomicUsize,
    /// As `DemandState::waiting`.
    waiting: AtomicUsize,
}

impl Demand {
    /// Creates the demand of a consumer: for each stream, the draws made and the admission at that point;
    /// `extra_reads` are read first. At most `allowed_runs` are in progress at a time, and up to `most_runs`
    /// while reads are late.
    pub fn new(
        streams: impl IntoIterator<Item = (u64, Admission)>,
        extra_reads: VecDeque<ExtraRead>,
        allowed_runs: usize,
        most_runs: usize,
    ) -> Self {
        let stream_state =
            |(draws, admission)| StreamState { draws, admission, idle_until: 0, lacks_credit: false };
        let state = DemandState {
            streams: streams.into_iter().map(stream_state).collect(),
            turn: 0,
            extra_reads,
            runs: 0,
            allowed_runs,
            most_runs,
            n_numbered: 0,
            waiting: 0,
            stopped: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            starved: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Notes that the consumer waits for an example of `stream`, or no longer waits.
    pub(crate) fn set_starved(&self, stream: Option<usize>) {
        // Sequentially consistent, as `waiting` is: consumer and I/O thread each store their own state and
        // then load the other's, so one of them sees both.
        self.starved.store(stream.map_or(0, |stream| stream + 1), SeqCst);
    }

    /// Whether the consumer waits for an example while threads wait for jobs.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved.load(SeqCst) > 0 && self.waiting.load(SeqCst) > 0
    }

    /// Raises the credit of the stream whose example the consumer waits for, if a thread waits for it. Call
    /// it when there are no records for the workers: more credit gives them work.
    pub(crate) fn starve(&self) {
        self.change(|state| state.raise_credit(self.starved.load(SeqCst)));
    }

    /// Counts a draw of `stream`: credit for one more ticket.
    pub fn drew(&self, stream: usize) {
        self.change(|state| {
            let stream_state = &mut state.streams[stream];
            stream_state.draws += 1;
            // Before that draw a woken thread would find no job.
            stream_state.draws >= stream_state.idle_until
        });
    }

    /// Allows more runs at a time, since the reads of a run were late.
    pub fn late(&self) {
        self.change(|state| {
            let before = state.allowed_runs;
            state.allowed_runs = (2 * before).min(state.most_runs);
            state.allowed_runs > before
        });
    }

    /// Requests a record besides the tickets.
    pub(crate) fn request_extra(&self, extra: ExtraRead) {
        self.change(|state| {
            state.extra_reads.push_back(extra);
            true
        });
    }

    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Waits for the next job, and adds the time to `waited`; `None` when stopped, or when all tickets of
    /// a finite pass were admitted.
    ///
    /// `tickets` holds those of the thread's last run, which is over, and receives those of its next one.
    /// `best` gives the best length of a run, for a stream and its first ticket; `has_records` whether there
    /// are records for the workers.
    pub(crate) fn job(
        &self,
        tickets: &mut Vec<u64>,
        mut best: impl FnMut(usize, u64) -> u64,
        has_records: impl Fn() -> bool,
        watch: &mut Stopwatch,
        waited: &Total,
    ) -> Option<ReadJob> {
        let mut state = self.lock();
        if !tickets.is_empty() {
            // A run is in progress until its thread asks for the next job.
            state.runs -= 1;
            tickets.clear();
        }
        loop {
            if state.stopped {
                return None;
            }
            match state.next(tickets, &mut best) {
                Ok(job) => {
                    // There may be a job for another thread, which needs the lock.
                    let wake = state.waiting > 0 && state.may_have_more();
                    drop(state);
                    if wake {
                        self.changed.notify_one();
                    }
                    return Some(job);
                }
                // The end is final: every waiting thread has to see it.
                Err(Idle::Done) => {
                    self.changed.notify_all();
                    return None;
                }
                Err(Idle::Wait) => {
                    state.waiting += 1;
                    // Before the look at `starved`; see `set_starved`.
                    self.waiting.store(state.waiting, SeqCst);
                    if self.is_starved() && !has_records() && state.raise_credit(self.starved.load(SeqCst)) {
                        state.waiting -= 1;
                        self.waiting.store(state.waiting, SeqCst);
                        continue;
                    }
                    state = watch.wait(State::Credit, waited, || {
                        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
                    });
                    state.waiting -= 1;
                    self.waiting.store(state.waiting, SeqCst);
                }
            }
        }
    }

    /// Makes a change; `change` returns whether a waiting thread may find a job now.
    fn change(&self, change: impl FnOnce(&mut DemandState) -> bool) {
        let mut state = self.lock();
        // One thread is enough: it wakes the next if there may be more jobs (`job`).
        let wake = change(&mut state) && state.waiting > 0;
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, DemandState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Idle {
    Wait,
    /// Every ticket of a finite pass was admitted.
    Done,
}

impl DemandState {
    /// Chooses a job. Records besides the tickets go first, since the consumer waits for them; then the
    /// streams in turn, without those that lack credit.
    fn next(
        &mut self,
        tickets: &mut Vec<u64>,
        best: &mut impl FnMut(usize, u64) -> u64,
    ) -> Result<ReadJob, Idle> {
        if let Some(extra) = self.extra_reads.pop_front() {
            return Ok(ReadJob::ExtraRead(extra));
        }
        let n = self.streams.len();
        let mut idle = Idle::Done;
        for stream in (self.turn..n).chain(0..self.turn) {
            let StreamState { draws, admission, idle_until, lacks_credit } = &mut self.streams[stream];
            *idle_until = 0;
            let may_run = self.runs < self.allowed_runs;
            let best = may_run.then_some(|ticket| best(stream, ticket));
            let fills = admission.fills();
            let mut number = || {
                self.n_numbered += 1;
                self.n_numbered - 1
            };
            let job = match admission.next(*draws, best, tickets) {
                Next::Run => {
                    self.runs += 1;
                    ReadJob::Run { stream, number: number() }
                }
                // After the window has filled it is unnumbered: the consumer waits for it already, so it must
                // not wait for other threads' blocks.
                Next::Demanded(ticket) => ReadJob::Ticket { stream, ticket, number: fills.then(number) },
                Next::Done => continue,
                Next::Wait(until) => {
                    // If no run may begin, the wait is for the end of one, which credit does not bring
                    // closer.
                    (*idle_until, *lacks_credit) = (until, may_run);
                    idle = Idle::Wait;
                    continue;
                }
            };
            // The next search begins behind this stream, so that none is starved.
            self.turn = (stream + 1) % n;
            return Ok(job);
        }
        Err(idle)
    }

    /// Raises the credit of a stream (its number from 1 on) whose credit a thread waits for; returns whether
    /// there may be a job now.
    fn raise_credit(&mut self, starved: usize) -> bool {
        let Some(stream_state) = starved.checked_sub(1).and_then(|stream| self.streams.get_mut(stream))
        else {
            return false;
        };
        let StreamState { draws, admission, idle_until, lacks_credit } = stream_state;
        let is_short = self.waiting > 0 && *idle_until > *draws && *lacks_credit;
        let is_raised = is_short && admission.raise_credit();
        *idle_until = if is_raised { 0 } else { *idle_until };
        is_raised
    }

    /// Whether another thread may find a job.
    fn may_have_more(&self) -> bool {
        !self.extra_reads.is_empty()
            || self.streams.iter().any(|StreamState { draws, admission, idle_until, .. }| {
                *idle_until > 0 && draws >= idle_until || admission.is_ready(*draws)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::{
            observe::{activity::Activity, activity::Role, meter::Meter},
            plan::Credit,
        },
        order::Window,
        patience::until,
    };
    use std::{
        sync::{Arc, mpsc},
        thread,
        time::Instant,
    };

    /// A thread that fetches tickets of a stream in ticket order, and sends their numbers; `has_records` as
    /// in [`Demand::job`].
    fn reader(demand: &Arc<Demand>, has_records: bool) -> mpsc::Receiver<u64> {
        let (sender, tickets) = mpsc::channel();
        let demand = demand.clone();
        thread::spawn(move || {
            let (meter, total) = (Meter::new("read"), Total::new("wait"));
            let activity = Arc::new(Activity::new("a reader", Role::Reader, Instant::now()));
            let mut watch = Stopwatch::start(&meter, &Arc::default(), &activity);
            let mut run = Vec::new();
            while demand.job(&mut run, |_, _| 1, || has_records, &mut watch, &total).is_some() {
                if run.iter().any(|&ticket| sender.send(ticket).is_err()) {
                    return;
                }
            }
        });
        tickets
    }

    fn demand(first: u64, most: u64) -> Arc<Demand> {
        let admission = Admission::new(Window::new(1, 0, 0, 1, None), None, Credit { first, most }, 6, false);
        Arc::new(Demand::new([(0, admission)], VecDeque::new(), 4, 4))
    }

    fn waits(demand: &Demand) {
        until("the reader waits for credit", || demand.lock().waiting == 1);
    }

    #[test]
    fn credit_is_raised_if_the_consumer_is_starved_and_the_workers_have_nothing() {
        let demand = demand(3, 8);
        let tickets = reader(&demand, false);
        waits(&demand);
        assert_eq!(tickets.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
        // A worker without a record changes nothing while the consumer has what it needs.
        assert!(!demand.is_starved());
        demand.starve();
        waits(&demand);
        assert_eq!(tickets.try_iter().next(), None);
        // The reader itself finds both from then on, and reads as far as allowed.
        demand.set_starved(Some(0));
        assert!(demand.is_starved());
        demand.starve();
        let read = (3..8).map(|_| tickets.recv().unwrap()).collect::<Vec<_>>();
        assert_eq!(read, [3, 4, 5, 6, 7]);
        waits(&demand);
        demand.starve();
        demand.set_starved(None);
        // Each draw allows one more; none beyond the maximum was read before.
        demand.drew(0);
        assert_eq!(tickets.recv().unwrap(), 8);
        demand.stop();
        assert!(tickets.recv().is_err());
    }

    #[test]
    fn credit_stays_while_workers_have_records() {
        let demand = demand(3, 8);
        demand.set_starved(Some(0));
        let tickets = reader(&demand, true);
        waits(&demand);
        assert_eq!(tickets.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
        // The last record is taken by a worker, which notes it.
        demand.starve();
        assert_eq!([tickets.recv().unwrap(), tickets.recv().unwrap()], [3, 4]);
        demand.stop();
        assert!(tickets.recv().is_err());
    }
}
