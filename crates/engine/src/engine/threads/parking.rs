//! [`Parking`] parks the workers of a run that are not needed, and wakes them.
//!
//! All threads start with the run, so a thread that cannot be started is reported then. A parked worker waits
//! only for its wake-up or the end, and holds no record: it checks whether it is needed before it takes one.
//! The first worker is never parked, so records always move.

use std::sync::PoisonError;

use crate::sync::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering};

/// Which workers are awake: those with numbers below a count.
#[derive(Debug)]
pub struct Parking {
    at_work: AtomicUsize,
    has_ended: Mutex<bool>,
    called: Condvar,
}

impl Parking {
    /// Starts with `at_work` workers awake, at least one.
    pub fn new(at_work: usize) -> Self {
        Self {
            at_work: AtomicUsize::new(at_work.max(1)),
            has_ended: Mutex::new(false),
            called: Condvar::new(),
        }
    }

    /// Sets the number of workers that are awake; surplus workers park after their current record.
    pub fn set(&self, at_work: usize) {
        // Under the lock: a worker that checked the old value is already waiting.
        let lock = self.lock();
        self.at_work.store(at_work.max(1), Ordering::Relaxed);
        drop(lock);
        self.called.notify_all();
    }

    /// Whether worker `n` is to be awake and take records.
    pub(crate) fn is_called(&self, n: usize) -> bool {
        n < self.at_work.load(Ordering::Relaxed)
    }

    /// Parks worker `n` until it is needed; false if the run has ended.
    pub fn rest(&self, n: usize) -> bool {
        let mut has_ended = self.lock();
        while !*has_ended && !self.is_called(n) {
            has_ended = self.called.wait(has_ended).unwrap_or_else(PoisonError::into_inner);
        }
        !*has_ended
    }

    /// Wakes all workers for good: the run is stopped, or there are no more records.
    pub fn end(&self) {
        *self.lock() = true;
        self.called.notify_all();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, bool> {
        self.has_ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::until;
    use std::{sync::Arc, thread, time::Duration};

    #[test]
    fn who_is_not_called_rests_until_the_end() {
        let parking = Arc::new(Parking::new(1));
        let resters: Vec<_> = (0..4)
            .map(|n| {
                let parking = parking.clone();
                thread::spawn(move || parking.rest(n))
            })
            .collect();
        let resting = || resters.iter().filter(|rester| !rester.is_finished()).count();
        let rest = |n| {
            until("the workers that are needed wake", || resting() <= n);
            thread::sleep(Duration::from_millis(30));
            assert_eq!(resting(), n);
        };
        rest(3);
        parking.set(3);
        rest(1);
        parking.set(0);
        assert!(parking.is_called(0), "someone must work");
        rest(1);
        parking.end();
        let called: Vec<_> = resters.into_iter().map(|rester| rester.join().unwrap()).collect();
        assert_eq!(called, [true, true, true, false]);
    }
}
