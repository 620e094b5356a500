//! What the consumer tells the I/O threads: how far it is in each stream, and which records it needs beside.
//!
//! Tickets out of turn are errands of one record; those in reading order are given out as runs, each a block
//! for one thread. Runs are numbered, and while the window fills the single tickets are as well, so that what
//! several threads read goes on in that order ([`crate::engine::flow::sequencer`]). How many runs may be
//! under way grows from a few to the most while reads come late.

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

/// A record that stands in for the bad record of a draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Substitute {
    /// The draw whose record is bad.
    pub draw: Draw,
    /// The row of the batch that it is for.
    pub row: usize,
    /// Counts from 1.
    pub attempt: u64,
}

/// A record that is read beside the tickets, and comes back on a way of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aside {
    /// It stands in for a bad one.
    Substitute(Substitute),
    /// The collator held it where the run was started, as the `nth` of its stream.
    Held {
        /// The stream.
        stream: usize,
        /// Which of those that are held.
        nth: usize,
        /// The row over the files as given.
        row: u64,
        /// How many rows from it on are worth reading together: those up to the next that was held, if it is
        /// near.
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
        /// Its place among the errands that go on in order, if it is one of them.
        number: Option<u64>,
    },
    /// Fetch the tickets that were listed.
    Run {
        /// The stream.
        stream: usize,
        /// Its place among the errands that go on in order.
        number: u64,
    },
    /// Fetch what was asked for beside the tickets.
    Aside(Aside),
}

/// One stream's account: what was drawn, what was admitted.
#[derive(Debug)]
struct Account {
    draws: u64,
    admission: Admission,
    /// The draws before which there is nothing to do.
    idle_until: u64,
}

#[derive(Debug)]
pub(crate) struct Wants {
    streams: Vec<Account>,
    /// The stream that is asked first.
    turn: usize,
    asides: VecDeque<Aside>,
    /// Runs under way, and how many may be, now and ever.
    runs: usize,
    allowed_runs: usize,
    most_runs: usize,
    /// Errands so far that go on in order.
    n_numbered: u64,
    waiting: usize,
    stopped: bool,
}

/// The consumer's account, which the I/O threads wait on.
#[derive(Debug)]
pub struct Demand {
    wants: Mutex<Wants>,
    changed: Condvar,
}

impl Demand {
    /// An account of a consumer that has made so many draws of each stream, with the admission that stands
    /// there, and wants `asides` first. At most `allowed_runs` are under way at a time, while reads come late
    /// up to `most_runs`.
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

    /// One more draw of `stream` was made: credit for one more ticket.
    pub fn drew(&self, stream: usize) {
        self.change(|wants| {
            let account = &mut wants.streams[stream];
            account.draws += 1;
            account.draws >= account.idle_until
        });
    }

    /// The reads of a run came late: more may be under way.
    pub fn late(&self) {
        self.change(|wants| {
            let before = wants.allowed_runs;
            wants.allowed_runs = (2 * before).min(wants.most_runs);
            wants.allowed_runs > before
        });
    }

    /// Asks for a record beside the tickets.
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

    /// Waits for something to do, and adds the time to `waited`; `None` when stopped, or when nothing can be
    /// asked for any more.
    ///
    /// `tickets` has those of the thread's last run, which is over, and gets those of its next one; `best`
    /// says how many tickets of a stream from one on make a good run.
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
                    // There may be more to do for the others, who want the lock.
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

    /// Makes a change, which says whether there may be something to do for a thread that waits.
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
    /// Not before the next draw.
    Wait,
    /// Every ticket of a finite pass was admitted.
    Done,
}

impl Wants {
    /// What lies beside the tickets first: the consumer waits for it. Then the streams in turn; one without
    /// credit is passed over.
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
                // Later the consumer waits for it already, and it need not wait for the blocks of others.
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

    /// Whether another thread may find something to do.
    fn may_have_more(&self) -> bool {
        !self.asides.is_empty()
            || self.streams.iter().any(|Account { draws, admission, idle_until }| {
                *idle_until > 0 && draws >= idle_until || admission.is_ready(*draws)
            })
    }
}
