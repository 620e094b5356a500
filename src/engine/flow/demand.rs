//! [`Demand`] gives errands to the I/O threads: from the draws that the consumer made in each stream, and the
//! records that it needs besides.
//!
//! Tickets out of turn are errands of one record; those in reading order are given out as runs, each a block
//! for one thread. Runs are numbered, and single tickets too while the window fills: records of several
//! threads are sent in the order of these numbers ([`crate::engine::flow::sequencer`]). While reads are late,
//! more runs are allowed at a time, from a few up to the maximum.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::engine::{
    flow::admission::{Admission, Next},
    observe::activity::State,
    observe::meter::{Stopwatch, Total},
};
use crate::order::Draw;

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
        let account = |(draws, admission)| Account { draws, admission, idle_until: 0 };
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
        Self { wants: Mutex::new(wants), changed: Condvar::new() }
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
    /// `best` gives the best length of a run, for a stream and its first ticket.
    pub(crate) fn errand(
        &self,
        tickets: &mut Vec<u64>,
        mut best: impl FnMut(usize, u64) -> u64,
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
                    wants = watch.wait(State::Credit, waited, || {
                        self.changed.wait(wants).unwrap_or_else(PoisonError::into_inner)
                    });
                    wants.waiting -= 1;
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
            let Account { draws, admission, idle_until } = &mut self.streams[stream];
            *idle_until = 0;
            let best = (self.runs < self.allowed_runs).then_some(|ticket| best(stream, ticket));
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
                    *idle_until = until;
                    idle = Idle::Wait;
                    continue;
                }
            };
            self.turn = (stream + 1) % n;
            return Ok(errand);
        }
        Err(idle)
    }

    /// Whether another thread may find an errand.
    fn may_have_more(&self) -> bool {
        !self.asides.is_empty()
            || self.streams.iter().any(|Account { draws, admission, idle_until }| {
                *idle_until > 0 && draws >= idle_until || admission.is_ready(*draws)
            })
    }
}
