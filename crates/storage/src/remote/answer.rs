//! Answers of requests: a slot is filled by the request and emptied by the thread that waits for it.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use super::failure::Failure;
use crate::cancel;

/// The time between two checks for a stopped run.
const CHECKED: Duration = Duration::from_millis(50);

pub(super) struct AnswerSlot<T> {
    answer: Mutex<Option<Result<T, Failure>>>,
    arrived: Condvar,
}

impl<T> Default for AnswerSlot<T> {
    fn default() -> Self {
        Self { answer: Mutex::default(), arrived: Condvar::new() }
    }
}

impl<T: Clone> AnswerSlot<T> {
    /// Stores the answer. The first one stays.
    pub(super) fn fill(&self, answer: Result<T, Failure>) {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(answer);
        self.arrived.notify_all();
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// That of the request, or one that is not transient once the thread's work is stopped.
    pub(super) fn wait(&self) -> io::Result<T> {
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*answer {
                Some(Ok(answer)) => return Ok(answer.clone()),
                Some(Err(failure)) => return Err(failure.clone().into()),
                None if cancel::is_stopped() => return Err(io::Error::other("the read was stopped")),
                None => {}
            }
            answer = self.arrived.wait_timeout(answer, CHECKED).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Fills a slot with an error if its request ends without an answer.
pub(super) struct PendingAnswer<T: Clone>(pub Arc<AnswerSlot<T>>);

impl<T: Clone> Drop for PendingAnswer<T> {
    fn drop(&mut self) {
        self.0.fill(Err(match thread::panicking() {
            // The next try would end in the same way.
            true => Failure::new(
                io::ErrorKind::Other,
                "the client of the store failed, as for a setting that it cannot use; standard error has its message",
            ),
            false => Failure::transient("the request was given up"),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_panics_is_not_sent_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let kind = |is_wrong: bool| {
            let slot = Arc::new(AnswerSlot::<()>::default());
            let pending = PendingAnswer(slot.clone());
            let request = async move {
                let _pending = pending;
                assert!(!is_wrong, "a panic of a client");
            };
            assert_eq!(runtime.block_on(runtime.spawn(request)).is_err(), is_wrong);
            slot.wait().unwrap_err().kind()
        };
        assert_eq!([kind(false), kind(true)], [io::ErrorKind::TimedOut, io::ErrorKind::Other]);
    }
}
