//! What the consumer tells the reader: how far it is, and which substitutes it needs.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use super::admission::{Admission, Next};

/// A record that stands in for the bad record of a draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Substitute {
    /// The draw whose record is bad.
    pub draw: u64,
    /// Counts from 1.
    pub attempt: u64,
    /// The epoch of the record that is replaced.
    pub epoch: u64,
}

/// The reader's next errand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// Fetch the record of a ticket; `in_order` if its neighbours follow.
    Ticket {
        /// The ticket.
        ticket: u64,
        /// Whether the tickets behind it follow.
        in_order: bool,
    },
    /// Fetch a substitute.
    Substitute(Substitute),
}

#[derive(Debug, Default)]
struct Wants {
    draws: u64,
    substitutes: VecDeque<Substitute>,
    reader_waits: bool,
    stopped: bool,
}

/// The consumer's account, which the reader waits on.
#[derive(Debug, Default)]
pub struct Demand {
    wants: Mutex<Wants>,
    changed: Condvar,
}

impl Demand {
    /// An account of a consumer that has made `draws` draws.
    pub fn new(draws: u64) -> Self {
        Self { wants: Mutex::new(Wants { draws, ..Wants::default() }), changed: Condvar::new() }
    }

    /// One more draw was made: credit for one more ticket.
    pub fn drew(&self) {
        self.change(|wants| wants.draws += 1);
    }

    /// Asks for a substitute.
    pub fn substitute(&self, substitute: Substitute) {
        self.change(|wants| wants.substitutes.push_back(substitute));
    }

    /// Ends the reader.
    pub fn stop(&self) {
        self.change(|wants| wants.stopped = true);
    }

    /// Waits for something to do; `None` when stopped, or when nothing can be asked for any more.
    pub fn errand(&self, admission: &mut Admission) -> Option<Errand> {
        let mut wants = self.lock();
        loop {
            if wants.stopped {
                return None;
            }
            if let Some(substitute) = wants.substitutes.pop_front() {
                return Some(Errand::Substitute(substitute));
            }
            match admission.next(wants.draws) {
                Next::InOrder(ticket) => return Some(Errand::Ticket { ticket, in_order: true }),
                Next::Demanded(ticket) => return Some(Errand::Ticket { ticket, in_order: false }),
                Next::Done => return None,
                Next::Wait => {
                    wants.reader_waits = true;
                    wants = self.changed.wait(wants).unwrap_or_else(PoisonError::into_inner);
                    wants.reader_waits = false;
                }
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Wants)) {
        let mut wants = self.lock();
        change(&mut wants);
        let wake = wants.reader_waits;
        drop(wants);
        if wake {
            self.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Wants> {
        self.wants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
