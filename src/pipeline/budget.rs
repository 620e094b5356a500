//! A bound in bytes on what waits in the channel, beside its bound in records; and a rest for whoever finds it full.
//!
//! A thread that finds the channel full rests until half of it was emptied, and not until there is room for one: it is woken once
//! for many records, where waking costs more than handing over.

use std::sync::PoisonError;

use crate::sync::{Condvar, Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(super) struct Held {
    bytes: usize,
    records: usize,
    /// Threads that wait for bytes, and for room in the channel.
    starved: usize,
    resting: usize,
    /// How often something was given back.
    released: u64,
    closed: bool,
}

impl Held {
    fn fits(&self, bytes: usize, limit: usize) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= limit
    }

    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.records += 1;
    }
}

/// What is in the channel, or in the hands of a thread that is about to send it. One record is always admitted, however large.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    /// Records at which a resting thread goes on.
    half: usize,
    held: Mutex<Held>,
    freed: Condvar,
}

impl Budget {
    /// A budget of `limit` bytes for a channel of `channel_size` records that so many threads send to.
    pub fn new(limit: usize, channel_size: usize, senders: usize) -> Self {
        Self { limit, half: channel_size / 2 + senders, held: Mutex::default(), freed: Condvar::new() }
    }

    /// Takes `bytes` if they fit, or nothing else is held.
    pub fn try_acquire(&self, bytes: usize) -> bool {
        let mut held = self.lock();
        let fits = !held.closed && held.fits(bytes, self.limit);
        if fits {
            held.add(bytes);
        }
        fits
    }

    /// Waits until `bytes` fit, or nothing else is held; returns false once closed.
    pub fn acquire(&self, bytes: usize) -> bool {
        let mut held = self.lock();
        while !held.closed && !held.fits(bytes, self.limit) {
            held.starved += 1;
            held = self.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
            held.starved -= 1;
        }
        held.add(bytes);
        !held.closed
    }

    /// How often something was given back, to be asked before the channel is.
    pub fn released(&self) -> u64 {
        self.lock().released
    }

    /// For a thread that found the channel full: waits until something was given back since [`Budget::released`] was asked, and half
    /// of the channel is empty. Returns false once closed.
    pub fn rest(&self, released: u64) -> bool {
        let mut held = self.lock();
        while !held.closed && (held.released == released || held.records > self.half) {
            held.resting += 1;
            held = self.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
            held.resting -= 1;
        }
        !held.closed
    }

    /// Gives back what [`Budget::acquire`] took.
    pub fn release(&self, bytes: usize) {
        let mut held = self.lock();
        held.bytes -= bytes;
        held.records -= 1;
        held.released += 1;
        // Waking nobody is a system call as well.
        let wake = held.starved > 0 || held.resting > 0 && held.records <= self.half;
        drop(held);
        if wake {
            self.freed.notify_all();
        }
    }

    /// Wakes the waiting thread for good.
    pub fn close(&self) {
        self.lock().closed = true;
        self.freed.notify_all();
    }

    /// Records and bytes that are held.
    pub fn held(&self) -> (usize, usize) {
        let held = self.lock();
        (held.records, held.bytes)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, thread, time::Duration};

    #[test]
    fn one_record_always_fits_and_the_next_waits() {
        let budget = Arc::new(Budget::new(10, 8, 1));
        assert!(budget.acquire(100));
        let waiter = thread::spawn({
            let budget = budget.clone();
            move || budget.acquire(1)
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished());
        budget.release(100);
        assert!(waiter.join().unwrap());
    }

    #[test]
    fn close_wakes() {
        let budget = Arc::new(Budget::new(1, 8, 1));
        assert!(budget.acquire(1));
        let waiter = thread::spawn({
            let budget = budget.clone();
            move || budget.acquire(1)
        });
        budget.close();
        assert!(!waiter.join().unwrap());
    }

    #[test]
    fn a_rest_ends_when_half_of_the_channel_is_empty() {
        let budget = Arc::new(Budget::new(1000, 8, 1));
        (0..9).for_each(|_| assert!(budget.acquire(1)));
        let released = budget.released();
        let rester = thread::spawn({
            let budget = budget.clone();
            move || budget.rest(released)
        });
        thread::sleep(Duration::from_millis(20));
        (0..3).for_each(|_| budget.release(1));
        thread::sleep(Duration::from_millis(20));
        assert!(!rester.is_finished(), "six are held");
        budget.release(1);
        assert!(rester.join().unwrap());
        (0..9).for_each(|_| assert!(budget.acquire(1)));
        let rester = thread::spawn({
            let budget = budget.clone();
            move || budget.rest(budget.released())
        });
        budget.close();
        assert!(!rester.join().unwrap());
    }
}
