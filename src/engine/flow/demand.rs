//! [`Demand`] gives errands to the I/O threads: from the draws that the consumer made in each stream, and the
//! records that it needs besides.
//!
//! Tickets out of turn are errands of one record; those in reading order are given out as runs, each a block
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
pub enum Aside {
    /// It replaces a bad record.
    Substitute(Substitute),
    /// The collator held it where the run starts, as the `nth` of its stream.
    Held {
        /// The stream.
        stream: usize,
        /// Its number among the held records of the stream.
        nth: usize,
        /// The row over the files as given.
        row: u64,
        /// How many rows from it on are worth reading together: up to the next held row, if that is near.
        run: u64,
    },
}

/// The next errand of an I/O thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// Fetch the record of a ticket.
    Ticket {
        /// The stream.
        stream: usize,
        /// The ticket.
        ticket: u64,
        /// Its number among the errands that are sent in order, if it has one.
        number: Option<u64>,
    },
    /// Fetch the listed tickets.
    Run {
        /// The stream.
        stream: usize,
        /// Its number among the errands that are sent in order.
        number: u64,
    },
    /// Fetch a record requested besides the tickets.
    Aside(Aside),
}

/// One stream: its draws, and which of its tickets were admitted.
#[derive(Debug)]
struct Account {
    draws: u64,
    admission: Admission,
    /// The number of draws before which the stream has no errand.
    idle_until: u64,
    /// Whether credit is the reason.
    lacks_credit: bool,
}

#[derive(Debug)]
pub(crate) struct Wants {
    streams: Vec<Account>,
    /// The stream to try first.
    turn: usize,
    asides: VecDeque<Aside>,
    /// Runs in progress; how many are allowed now, and at most.
    runs: usize,
    allowed_runs: usize,
    most_runs: usize,
    /// Numbered errands so far.
    n_numbered: u64,
    waiting: usize,
    stopped: bool,
}

/// What the consumer needs next; I/O threads wait on it for errands.
#[derive(Debug)]
pub struct Demand {
    wants: Mutex<Wants>,
    changed: Condvar,
    /// The stream of the example that the consumer waits for, from 1 on; 0 if it does not wait.
    starved: AtomicUsize,
    /// As `Wants::waiting`.
    waiting: AtomicUsize,
}

impl Demand {
    /// Creates the demand of a consumer: for each stream, the draws made and the admission at that point;
    /// `asides` are read first. At most `allowed_runs` are in progress at a time, and up to `most_runs` while
    /// reads are late.
    pub fn new(
        streams: impl IntoIterator<Item = (u64, Admission)>,
        asides: VecDeque<Aside>,
        allowed_runs: usize,
        most_runs: usize,
    ) -> Self {
        let account = |(draws, admission)| Account { draws, admission, idle_until: 0, lacks_credit: false };
        let wants = Wants {
            streams: streams.into_iter().map(account).collect(),
            turn: 0,
            asides,
            runs: 0,
            allowed_runs,
            most_runs,
            n_numbered: 0,
            waiting: 0,
            stopped: false,
        };
        Self {
            wants: Mutex::new(wants),
            changed: Condvar::new(),
            starved: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Notes that the consumer waits for an example of `stream`, or no longer waits.
    pub(crate) fn set_starved(&self, stream: Option<usize>) {
        self.starved.store(stream.map_or(0, |stream| stream + 1), SeqCst);
    }

    /// Whether the consumer waits for an example while threads wait for errands.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved.load(SeqCst) > 0 && self.waiting.load(SeqCst) > 0
    }

    /// Raises the credit of the stream whose example the consumer waits for, if a thread waits for it. Call
    /// it when there are no records for the workers: more credit gives them work.
    pub(crate) fn starve(&self) {
        self.change(|wants| wants.raise_credit(self.starved.load(SeqCst)));
    }

    /// Counts a draw of `stream`: credit for one more ticket.
    pub fn drew(&self, stream: usize) {
        self.change(|wants| {
            let account = &mut wants.streams[stream];
            account.draws += 1;
            account.draws >= account.idle_until
        });
    }

    /// Allows more runs at a time, since the reads of a run were late.
    pub fn late(&self) {
        self.change(|wants| {
            let before = wants.allowed_runs;
            wants.allowed_runs = (2 * before).min(wants.most_runs);
            wants.allowed_runs > before
        });
    }

    /// Requests a record besides the tickets.
    pub fn aside(&self, aside: Aside) {
        self.change(|wants| {
            wants.asides.push_back(aside);
            true
        });
    }

    /// Ends the I/O threads.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Waits for the next errand, and adds the time to `waited`; `None` when stopped, or when all tickets of
    /// a finite pass were admitted.
    ///
    /// `tickets` holds those of the thread's last run, which is over, and receives those of its next one.
    /// `best` gives the best length of a run, for a stream and its first ticket; `has_records` whether there
    /// are records for the workers.
    pub(crate) fn errand(
        &self,
        tickets: &mut Vec<u64>,
        mut best: impl FnMut(usize, u64) -> u64,
        has_records: impl Fn() -> bool,
        watch: &mut Stopwatch,
        waited: &Total,
    ) -> Option<Errand> {
        let mut wants = self.lock();
        if !tickets.is_empty() {
            wants.runs -= 1;
            tickets.clear();
        }
        loop {
            if wants.stopped {
                return None;
            }
            match wants.next(tickets, &mut best) {
                Ok(errand) => {
                    // There may be an errand for another thread, which needs the lock.
                    let wake = wants.waiting > 0 && wants.may_have_more();
                    drop(wants);
                    if wake {
                        self.changed.notify_one();
                    }
                    return Some(errand);
                }
                Err(Idle::Done) => {
                    self.changed.notify_all();
                    return None;
                }
                Err(Idle::Wait) => {
                    wants.waiting += 1;
                    self.waiting.store(wants.waiting, SeqCst);
                    if self.is_starved() && !has_records() && wants.raise_credit(self.starved.load(SeqCst)) {
                        wants.waiting -= 1;
                        self.waiting.store(wants.waiting, SeqCst);
                        continue;
                    }
                    wants = watch.wait(State::Credit, waited, || {
                        self.changed.wait(wants).unwrap_or_else(PoisonError::into_inner)
                    });
                    wants.waiting -= 1;
                    self.waiting.store(wants.waiting, SeqCst);
                }
            }
        }
    }

    /// Makes a change; `change` returns whether a waiting thread may find an errand now.
    fn change(&self, change: impl FnOnce(&mut Wants) -> bool) {
        let mut wants = self.lock();
        let wake = change(&mut wants) && wants.waiting > 0;
        drop(wants);
        if wake {
            self.changed.notify_one();
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Wants> {
        self.wants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is no errand.
enum Idle {
    /// None before the next draw.
    Wait,
    /// Every ticket of a finite pass was admitted.
    Done,
}

impl Wants {
    /// Chooses an errand. Records besides the tickets go first, since the consumer waits for them; then the
    /// streams in turn, without those that lack credit.
    fn next(
        &mut self,
        tickets: &mut Vec<u64>,
        best: &mut impl FnMut(usize, u64) -> u64,
    ) -> Result<Errand, Idle> {
        if let Some(aside) = self.asides.pop_front() {
            return Ok(Errand::Aside(aside));
        }
        let n = self.streams.len();
        let mut idle = Idle::Done;
        for stream in (self.turn..n).chain(0..self.turn) {
            let Account { draws, admission, idle_until, lacks_credit } = &mut self.streams[stream];
            *idle_until = 0;
            let may_run = self.runs < self.allowed_runs;
            let best = may_run.then_some(|ticket| best(stream, ticket));
            let fills = admission.fills();
            let mut number = || {
                self.n_numbered += 1;
                self.n_numbered - 1
            };
            let errand = match admission.next(*draws, best, tickets) {
                Next::Run => {
                    self.runs += 1;
                    Errand::Run { stream, number: number() }
                }
                // After the window has filled it is unnumbered: the consumer waits for it already, so it must
                // not wait for other threads' blocks.
                Next::Demanded(ticket) => Errand::Ticket { stream, ticket, number: fills.then(number) },
                Next::Done => continue,
                Next::Wait(until) => {
                    (*idle_until, *lacks_credit) = (until, may_run);
                    idle = Idle::Wait;
                    continue;
                }
            };
            self.turn = (stream + 1) % n;
            return Ok(errand);
        }
        Err(idle)
    }

    /// Raises the credit of a stream (its number from 1 on) whose credit a thread waits for; returns whether
    /// there may be an errand now.
    fn raise_credit(&mut self, starved: usize) -> bool {
        let Some(account) = starved.checked_sub(1).and_then(|stream| self.streams.get_mut(stream)) else {
            return false;
        };
        let Account { draws, admission, idle_until, lacks_credit } = account;
        let is_short = self.waiting > 0 && *idle_until > *draws && *lacks_credit;
        let is_raised = is_short && admission.raise_credit();
        *idle_until = if is_raised { 0 } else { *idle_until };
        is_raised
    }

    /// Whether another thread may find an errand.
    fn may_have_more(&self) -> bool {
        !self.asides.is_empty()
            || self.streams.iter().any(|Account { draws, admission, idle_until, .. }| {
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
    /// in [`Demand::errand`].
    fn reader(demand: &Arc<Demand>, has_records: bool) -> mpsc::Receiver<u64> {
        let (sender, tickets) = mpsc::channel();
        let demand = demand.clone();
        thread::spawn(move || {
            let (meter, total) = (Meter::new("read"), Total::new("wait"));
            let activity = Arc::new(Activity::new("a reader", Role::Reader, Instant::now()));
            let mut watch = Stopwatch::start(&meter, &Arc::default(), &activity);
            let mut run = Vec::new();
            while demand.errand(&mut run, |_, _| 1, || has_records, &mut watch, &total).is_some() {
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
