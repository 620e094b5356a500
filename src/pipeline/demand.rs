//! What the consumer tells the I/O threads: how far it is in each stream, and which records it needs beside.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use super::{
    admission::{Admission, Next},
    meter::{Stopwatch, Total},
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
    },
}

/// The next errand of an I/O thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// Fetch the record of a ticket; `in_order` if its neighbours follow.
    Ticket {
        /// The stream.
        stream: usize,
        /// The ticket.
        ticket: u64,
        /// Whether the tickets behind it follow.
        in_order: bool,
    },
    /// Fetch what was asked for beside the tickets.
    Aside(Aside),
}

/// One stream's account: what was drawn, what was admitted.
#[derive(Debug)]
struct Account {
    draws: u64,
    admission: Admission,
}

#[derive(Debug)]
struct Wants {
    streams: Vec<Account>,
    /// The stream that is asked first.
    turn: usize,
    asides: VecDeque<Aside>,
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
    /// An account of a consumer that has made so many draws of each stream, with the admission that stands there, and wants `asides`
    /// first.
    pub fn new(streams: impl IntoIterator<Item = (u64, Admission)>, asides: VecDeque<Aside>) -> Self {
        let streams = streams.into_iter().map(|(draws, admission)| Account { draws, admission }).collect();
        let wants = Wants { streams, turn: 0, asides, waiting: 0, stopped: false };
        Self { wants: Mutex::new(wants), changed: Condvar::new() }
    }

    /// One more draw of `stream` was made: credit for one more ticket.
    pub fn drew(&self, stream: usize) {
        self.change(|wants| wants.streams[stream].draws += 1);
    }

    /// Asks for a record beside the tickets.
    pub fn aside(&self, aside: Aside) {
        self.change(|wants| wants.asides.push_back(aside));
    }

    /// Ends the I/O threads.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Waits for something to do, and adds the time to `waited`; `None` when stopped, or when nothing can be asked for any more.
    pub(super) fn errand(&self, watch: &mut Stopwatch, waited: &Total) -> Option<Errand> {
        let mut wants = self.lock();
        loop {
            if wants.stopped {
                return None;
            }
            match wants.next() {
                Ok(errand) => {
                    // There may be more to do for the others, who want the lock.
                    let wake = wants.waiting > 0;
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
                    wants = watch
                        .wait(waited, || self.changed.wait(wants).unwrap_or_else(PoisonError::into_inner));
                    wants.waiting -= 1;
                }
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Wants)) {
        let mut wants = self.lock();
        change(&mut wants);
        let wake = wants.waiting > 0;
        drop(wants);
        if wake {
            self.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Wants> {
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
    /// What lies beside the tickets first: the consumer waits for it. Then the streams in turn; one without credit is passed over.
    fn next(&mut self) -> Result<Errand, Idle> {
        if let Some(aside) = self.asides.pop_front() {
            return Ok(Errand::Aside(aside));
        }
        let n = self.streams.len();
        let mut idle = Idle::Done;
        for stream in (self.turn..n).chain(0..self.turn) {
            let Account { draws, admission } = &mut self.streams[stream];
            let (ticket, in_order) = match admission.next(*draws) {
                Next::InOrder(ticket) => (ticket, true),
                Next::Demanded(ticket) => (ticket, false),
                Next::Done => continue,
                Next::Wait => {
                    idle = Idle::Wait;
                    continue;
                }
            };
            self.turn = (stream + 1) % n;
            return Ok(Errand::Ticket { stream, ticket, in_order });
        }
        Err(idle)
    }
}
