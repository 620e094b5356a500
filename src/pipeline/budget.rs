//! A bound in bytes on what waits in the channel, beside its bound in records.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    records: usize,
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

/// Bytes that are in the channel. One record is always admitted, however large.
#[derive(Debug)]
pub struct ByteBudget {
    limit: usize,
    held: Mutex<Held>,
    freed: Condvar,
}

impl ByteBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, held: Mutex::default(), freed: Condvar::new() }
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
            held = self.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        held.add(bytes);
        !held.closed
    }

    /// Gives back what [`ByteBudget::acquire`] took.
    pub fn release(&self, bytes: usize) {
        let mut held = self.lock();
        held.bytes -= bytes;
        held.records -= 1;
        drop(held);
        self.freed.notify_one();
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

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, thread, time::Duration};

    #[test]
    fn one_record_always_fits_and_the_next_waits() {
        let budget = Arc::new(ByteBudget::new(10));
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
        let budget = Arc::new(ByteBudget::new(1));
        assert!(budget.acquire(1));
        let waiter = thread::spawn({
            let budget = budget.clone();
            move || budget.acquire(1)
        });
        budget.close();
        assert!(!waiter.join().unwrap());
    }
}
