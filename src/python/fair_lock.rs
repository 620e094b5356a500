//! A fair lock that is awaited in slices, so that waiting threads can check signals.
//!
//! The lock is granted in the order of requests. A `next()` that waits for data releases it after every slice
//! and requests it again. So another thread waits for one slice per earlier request, and is never starved as
//! with a mutex. A thread keeps its place in the queue between slices, until it takes the value or drops the
//! [`Turn`].

use std::{
    collections::VecDeque,
    ops::{Deref, DerefMut},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A value that one thread at a time may take.
#[derive(Debug)]
pub struct FairLock<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    /// Waiting threads, in order of arrival.
    line: VecDeque<u64>,
    next_ticket: u64,
}

/// A place in the queue for the value.
pub struct Turn<'a, T> {
    lock: &'a FairLock<T>,
    ticket: u64,
}

/// The taken value, which is returned to the lock on drop.
pub struct Taken<'a, T> {
    value: Option<T>,
    lock: &'a FairLock<T>,
}

impl<T> FairLock<T> {
    pub fn new(value: T) -> Self {
        let state = State { value: Some(value), line: VecDeque::new(), next_ticket: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Joins the queue.
    pub fn queue(&self) -> Turn<'_, T> {
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.line.push_back(ticket);
        Turn { lock: self, ticket }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a, T> Turn<'a, T> {
    /// Waits for the value, at most `timeout`; taking it ends the place in the queue.
    pub fn take(&mut self, timeout: Duration) -> Option<Taken<'a, T>> {
        let (lock, ticket) = (self.lock, self.ticket);
        let not_yet = |state: &mut State<T>| state.value.is_none() || state.line.front() != Some(&ticket);
        let (mut state, _) = lock
            .changed
            .wait_timeout_while(lock.lock(), timeout, not_yet)
            .unwrap_or_else(PoisonError::into_inner);
        if not_yet(&mut state) {
            return None;
        }
        state.line.pop_front();
        state.value.take().map(|value| Taken { value: Some(value), lock })
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut state = self.lock.lock();
        if let Some(at) = state.line.iter().position(|&ticket| ticket == self.ticket) {
            state.line.remove(at);
            // The first in the queue may now take a free value.
            self.lock.changed.notify_all();
        }
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        self.lock.lock().value = self.value.take();
        self.lock.changed.notify_all();
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    #[expect(clippy::unwrap_used, reason = "the value leaves in drop only")]
    fn deref(&self) -> &T {
        self.value.as_ref().unwrap()
    }
}

impl<T> DerefMut for Taken<'_, T> {
    #[expect(clippy::unwrap_used, reason = "the value leaves in drop only")]
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().unwrap()
    }
}
