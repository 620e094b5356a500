//! A bound in bytes on what waits in the channel, beside its bound in records.

use std::sync::{Condvar, Mutex, PoisonError};

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    closed: bool,
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

    /// Waits until `bytes` fit, or nothing else is held; returns false once closed.
    pub fn acquire(&self, bytes: usize) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while !held.closed && held.bytes > 0 && held.bytes.saturating_add(bytes) > self.limit {
            held = self.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        held.bytes += bytes;
        !held.closed
    }

    /// Gives back what [`ByteBudget::acquire`] took.
    pub fn release(&self, bytes: usize) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).bytes -= bytes;
        self.freed.notify_one();
    }

    /// Wakes the waiting thread for good.
    pub fn close(&self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.freed.notify_all();
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
