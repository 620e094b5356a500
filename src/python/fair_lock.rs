//! A fair lock that is awaited in slices, so that waiting threads can check signals.
//!
//! The lock is granted in the order of requests. A `next()` that waits for data releases it after every slice
//! and requests it again. So another thread waits for one slice per earlier request, and is never starved as
//! with a mutex. A thread keeps its place in the queue between slices, until it takes the value or drops the
//! [`Turn`].
//!
//! Between slices a signal handler may run. It may request the lock too: its place is before that of the call
//! that it interrupts, since that call goes on after it. Or it may wait for another thread that requests the
//! lock: a place counts only while its thread waits, so other threads get the value meanwhile. They also do
//! when a thread parks for good at the end of the interpreter, and leaves its place behind.

use std::{
    collections::VecDeque,
    ops::{Deref, DerefMut},
    sync::PoisonError,
    thread::{self, ThreadId},
    time::Duration,
};

use crate::sync::plain::{Condvar, Count, Mutex, MutexGuard};

/// A value that one thread at a time may take.
#[derive(Debug)]
pub struct FairLock<T> {
    state: Mutex<FairLockState<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct FairLockState<T> {
    value: Option<T>,
    /// In order of arrival, but places of the same thread the other way round.
    line: VecDeque<QueuedThread>,
    next_ticket: u64,
}

/// A call that waits for the value.
#[derive(Debug)]
struct QueuedThread {
    ticket: u64,
    thread: ThreadId,
    /// Whether the thread is in [`Turn::take`].
    is_waiting: bool,
}

/// A place in the queue for the value.
pub struct Turn<'a, T> {
    lock: &'a FairLock<T>,
    ticket: u64,
}

/// The taken value, which is returned to the lock on drop.
pub struct FairLockGuard<'a, T> {
    value: Option<T>,
    lock: &'a FairLock<T>,
    /// It counts as a lock that this thread holds.
    _count: Count,
}

impl<T> FairLock<T> {
    pub fn new(value: T) -> Self {
        let state = FairLockState { value: Some(value), line: VecDeque::new(), next_ticket: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub fn queue(&self) -> Turn<'_, T> {
        let (mut state, here) = (self.lock(), thread::current().id());
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let interrupted = state.line.iter().position(|place| place.thread == here);
        let at = interrupted.unwrap_or(state.line.len());
        state.line.insert(at, QueuedThread { ticket, thread: here, is_waiting: false });
        Turn { lock: self, ticket }
    }

    fn lock(&self) -> MutexGuard<'_, FairLockState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a, T> Turn<'a, T> {
    /// Waits for the value, at most `timeout`; taking it ends the place in the queue.
    pub fn take(&mut self, timeout: Duration) -> Option<FairLockGuard<'a, T>> {
        let (lock, ticket) = (self.lock, self.ticket);
        let is_next = |state: &FairLockState<T>| {
            let next = state.line.iter().find(|place| place.is_waiting);
            state.value.is_some() && next.is_some_and(|next| next.ticket == ticket)
        };
        let mut state = lock.lock();
        state.set_waiting(ticket, true);
        let (mut state, _) = lock
            .changed
            .wait_timeout_while(state, timeout, |state| !is_next(state))
            .unwrap_or_else(PoisonError::into_inner);
        if !is_next(&state) {
            // The next place, if there is one and the value is free, was woken when it became free.
            state.set_waiting(ticket, false);
            return None;
        }
        state.line.retain(|place| place.ticket != ticket);
        state.value.take().map(|value| FairLockGuard { value: Some(value), lock, _count: Count::new() })
    }
}

impl<T> FairLockState<T> {
    fn set_waiting(&mut self, ticket: u64, is_waiting: bool) {
        if let Some(place) = self.line.iter_mut().find(|place| place.ticket == ticket) {
            place.is_waiting = is_waiting;
        }
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut state = self.lock.lock();
        if let Some(at) = state.line.iter().position(|place| place.ticket == self.ticket) {
            state.line.remove(at);
            // The first in the queue may now take a free value.
            self.lock.changed.notify_all();
        }
    }
}

impl<T> Drop for FairLockGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.lock().value = self.value.take();
        self.lock.changed.notify_all();
    }
}

impl<T> Deref for FairLockGuard<'_, T> {
    type Target = T;

    #[expect(clippy::unwrap_used, reason = "the value leaves in drop only")]
    fn deref(&self) -> &T {
        self.value.as_ref().unwrap()
    }
}

impl<T> DerefMut for FairLockGuard<'_, T> {
    #[expect(clippy::unwrap_used, reason = "the value leaves in drop only")]
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().unwrap()
    }
}
