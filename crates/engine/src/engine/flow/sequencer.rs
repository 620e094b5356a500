//! The [`Sequencer`] makes several I/O threads send their records in the order of their jobs: each job
//! waits for its turn.
//!
//! So workers get records as if one thread had read them. Records that the consumer needs first come first: a
//! descheduled thread that holds one keeps later records out of the channel. And slices of one block are
//! adjacent in the channel. A turn lasts until the job's last record is sent; if its read stalls, the
//! other threads wait with what they have read.

use std::sync::PoisonError;

use crate::sync::{Condvar, Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(crate) struct SequencerState {
    /// The job whose turn it is.
    job: u64,
    waiting: usize,
    closed: bool,
}

#[derive(Debug, Default)]
pub struct Sequencer {
    state: Mutex<SequencerState>,
    changed: Condvar,
}

impl Sequencer {
    /// Whether it is the turn of `job`.
    pub fn has_come(&self, job: u64) -> bool {
        self.lock().job == job
    }

    /// The job whose turn it is.
    pub fn job(&self) -> u64 {
        self.lock().job
    }

    /// Waits for the turn of `job`; false once closed.
    pub fn wait(&self, job: u64) -> bool {
        let mut state = self.lock();
        while state.job != job && !state.closed {
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        !state.closed
    }

    pub fn pass(&self, job: u64) {
        let mut state = self.lock();
        state.job = job + 1;
        // A notification costs a system call even if no thread waits.
        let wake = state.waiting > 0;
        drop(state);
        if wake {
            // All, since one condition variable cannot tell which of them has the next job.
            self.changed.notify_all();
        }
    }

    /// Wakes all threads; later waits return at once.
    pub fn close(&self) {
        // Under the lock: a thread between its check and its wait would miss the wake-up.
        self.lock().closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SequencerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, thread};

    #[test]
    fn turns_come_in_order_whoever_is_first() {
        let sequencer = Arc::new(Sequencer::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = (0..8)
            .rev()
            .map(|run| {
                let (sequencer, order) = (sequencer.clone(), order.clone());
                thread::spawn(move || {
                    assert!(sequencer.wait(run));
                    order.lock().unwrap().push(run);
                    sequencer.pass(run);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*order.lock().unwrap(), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn close_wakes() {
        let sequencer = Arc::new(Sequencer::default());
        let waiter = thread::spawn({
            let sequencer = sequencer.clone();
            move || sequencer.wait(3)
        });
        sequencer.close();
        assert!(!waiter.join().unwrap());
    }
}
