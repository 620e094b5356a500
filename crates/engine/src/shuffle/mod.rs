//! [`ConcurrentShuffleBuffer`]: where workers put examples and the consumer takes them in the seeded order.
//!
//! Workers push finished examples under their tickets, in any order; the consumer pops them in the order that
//! the seeded [`Window`] chose before any of them arrived. A pop waits for one ticket, so the order is a pure
//! function of `(seed, min_size)` and does not depend on timing. A failed record keeps its place in the
//! order: the consumer gets its error there.
//!
//! Invariant: with every ticket pushed once, by producers that each push in rising order, and `capacity >=
//! min_size`, no thread waits forever. The ticket of draw `k` is at most `k + min_size - 1`, and a push of
//! ticket `t` blocks only while `t >= draws + capacity`. So the push that the consumer waits for never
//! blocks.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::PoisonError,
    time::{Duration, Instant},
};

use crate::{
    Error, ErrorKind, Result,
    order::Window,
    seed,
    sync::{Condvar, Mutex, MutexGuard},
};

#[derive(Debug)]
pub enum Popped<T> {
    /// The example of the next draw.
    Item(T),
    /// The record of the next draw is bad, or its source failed. It counts as a draw.
    Failed {
        ticket: u64,
        /// The error that its producer pushed.
        error: Error,
    },
    /// The ticket of the next draw has not arrived in time; nothing changed.
    TimedOut,
    /// Every ticket of a finite stream was drawn.
    Finished,
    /// The buffer was closed, and all its content has been drawn.
    Closed,
}

/// A bounded buffer that many threads fill and one consumer empties in a seeded order.
#[derive(Debug)]
pub struct ConcurrentShuffleBuffer<T> {
    capacity: u64,
    state: Mutex<BufferState<T>>,
    arrived: Condvar,
    room: Condvar,
}

#[derive(Debug)]
pub(crate) struct BufferState<T> {
    window: Window,
    /// The ticket of the next draw, once the window has drawn it.
    wanted: Option<u64>,
    inside: HashMap<u64, Result<T>, BuildHasherDefault<TicketHasher>>,
    draws: u64,
    /// One more than the highest ticket pushed.
    pushed: u64,
    /// Pushes that wait for room.
    waiting: usize,
    closed: bool,
}

impl<T> ConcurrentShuffleBuffer<T> {
    /// Creates a buffer over an infinite stream. It draws from `min_size` tickets (0 and 1: in ticket order)
    /// and holds tickets up to `capacity` ahead of the draws.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if `capacity` is 0 or less than `min_size`.
    pub fn new(capacity: usize, min_size: usize, seed: u64) -> Result<Self> {
        Self::over(capacity as u64, Window::new(seed, 0, 0, min_size as u64, None))
    }

    /// Creates a buffer that draws in the order of `window`; a window with an end makes a finite stream.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if `capacity` is 0 or less than the window.
    pub fn over(capacity: u64, window: Window) -> Result<Self> {
        if capacity == 0 || capacity < window.size() {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "a shuffle buffer of capacity {capacity} cannot hold a window of {}; give a capacity of at least {}",
                    window.size(),
                    window.size().max(1)
                ),
            ));
        }
        let state = BufferState {
            draws: window.draws(),
            window,
            wanted: None,
            inside: HashMap::default(),
            pushed: 0,
            waiting: 0,
            closed: false,
        };
        Ok(Self { capacity, state: Mutex::new(state), arrived: Condvar::new(), room: Condvar::new() })
    }

    /// Pushes the outcome of `ticket`; each ticket once. Waits while the ticket is `capacity` or more ahead
    /// of the draws.
    ///
    /// Returns false, and drops the outcome, if the buffer is closed.
    pub fn push(&self, ticket: u64, outcome: Result<T>) -> bool {
        let mut state = self.lock();
        while !state.closed && ticket >= state.draws.saturating_add(self.capacity) {
            state.waiting += 1;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        if state.closed {
            return false;
        }
        state.inside.insert(ticket, outcome);
        state.pushed = state.pushed.max(ticket + 1);
        // A consumer waits only after it has drawn from the window, so `wanted` is set whenever it must be
        // woken.
        let wake = state.wanted == Some(ticket);
        // The woken thread needs the lock.
        drop(state);
        if wake {
            self.arrived.notify_all();
        }
        true
    }

    /// Takes the next draw, waiting for its ticket for at most `timeout`.
    pub fn try_pop(&self, timeout: Duration) -> Popped<T> {
        let deadline = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            if state.wanted.is_none() {
                state.wanted = state.window.draw();
            }
            let Some(ticket) = state.wanted else {
                return if state.closed { Popped::Closed } else { Popped::Finished };
            };
            if let Some(outcome) = state.inside.remove(&ticket) {
                state.wanted = None;
                state.draws += 1;
                // A wake-up without a waiting thread is a system call as well.
                let wake = state.waiting > 0;
                drop(state);
                if wake {
                    self.room.notify_all();
                }
                return outcome.map_or_else(|error| Popped::Failed { ticket, error }, Popped::Item);
            }
            if state.closed {
                if state.inside.is_empty() {
                    return Popped::Closed;
                }
                state.wanted = None; // this ticket will not arrive; the other content still drains
                continue;
            }
            let now = Instant::now();
            if now >= deadline {
                return Popped::TimedOut;
            }
            state =
                self.arrived.wait_timeout(state, deadline - now).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the input and wakes all threads: a push returns false, pops drain the content and then return
    /// [`Popped::Closed`].
    pub fn close(&self) {
        let mut state = self.lock();
        if !state.closed {
            state.closed = true;
            let end = state.pushed;
            state.window.end_at(end);
            drop(state);
            self.arrived.notify_all();
            self.room.notify_all();
        }
    }

    /// The ticket of the next draw, once a pop waits for it.
    pub fn wanted(&self) -> Option<u64> {
        self.lock().wanted
    }

    pub fn len(&self) -> usize {
        self.lock().inside.len()
    }

    pub(crate) fn window_size(&self) -> u64 {
        self.lock().window.size()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A poisoned lock is usable: no foreign code runs under it, so no panic leaves the state half changed.
    pub(crate) fn lock(&self) -> MutexGuard<'_, BufferState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tickets are already distinct integers; one round of mixing spreads them.
#[derive(Debug, Default)]
struct TicketHasher(u64);

impl Hasher for TicketHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = seed::mix(self.0 ^ u64::from(byte));
        }
    }
    fn write_u64(&mut self, ticket: u64) {
        self.0 = seed::mix(ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, thread};

    const SOON: Duration = Duration::from_secs(120);
    const NOW: Duration = Duration::ZERO;

    fn drain(buffer: &ConcurrentShuffleBuffer<u64>) -> Vec<u64> {
        let mut drawn = Vec::new();
        while let Popped::Item(ticket) = buffer.try_pop(SOON) {
            drawn.push(ticket);
        }
        drawn
    }

    #[test]
    fn the_order_does_not_depend_on_who_pushes_when() {
        let window = || Window::new(7, 0, 0, 50, Some(1000));
        let mut oracle = window();
        let expected: Vec<u64> = std::iter::from_fn(|| oracle.draw()).collect();
        for threads in [1, 2, 8] {
            let buffer = Arc::new(ConcurrentShuffleBuffer::over(50 + threads, window()).unwrap());
            let pushers: Vec<_> = (0..threads)
                .map(|first| {
                    let buffer = buffer.clone();
                    thread::spawn(move || {
                        for ticket in (first..1000).step_by(threads as usize) {
                            if seed::mix(ticket).is_multiple_of(50) {
                                thread::sleep(Duration::from_micros(300));
                            }
                            assert!(buffer.push(ticket, Ok(ticket)));
                        }
                    })
                })
                .collect();
            assert_eq!(drain(&buffer), expected);
            assert!(matches!(buffer.try_pop(NOW), Popped::Finished));
            pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        }
    }

    #[test]
    fn a_failure_takes_its_turn() {
        let buffer = ConcurrentShuffleBuffer::new(4, 0, 0).unwrap();
        buffer.push(1, Ok(1));
        assert!(matches!(buffer.try_pop(NOW), Popped::TimedOut), "ticket 0 is due first");
        buffer.push(0, Err(Error::new(ErrorKind::Corrupt, "bad")));
        assert!(
            matches!(buffer.try_pop(NOW), Popped::Failed { ticket: 0, error } if error.kind == ErrorKind::Corrupt)
        );
        assert!(matches!(buffer.try_pop(NOW), Popped::Item(1)));
    }

    #[test]
    fn close_drains_whatever_the_minimum() {
        let buffer = ConcurrentShuffleBuffer::new(100, 50, 3).unwrap();
        for ticket in [0, 1, 2, 5, 9] {
            assert!(buffer.push(ticket, Ok(ticket)));
        }
        buffer.close();
        assert!(!buffer.push(3, Ok(3)));
        let mut drawn = drain(&buffer);
        drawn.sort_unstable();
        assert_eq!(drawn, [0, 1, 2, 5, 9]);
        assert!(matches!(buffer.try_pop(SOON), Popped::Closed));
    }

    #[test]
    fn close_wakes_both_sides() {
        let buffer = Arc::new(ConcurrentShuffleBuffer::new(1, 1, 0).unwrap());
        let popper = thread::spawn({
            let buffer = buffer.clone();
            move || buffer.try_pop(Duration::from_secs(60))
        });
        let pusher = thread::spawn({
            let buffer = buffer.clone();
            move || buffer.push(5, Ok(0u8))
        });
        thread::sleep(Duration::from_millis(30));
        buffer.close();
        assert!(matches!(popper.join().unwrap(), Popped::Closed));
        assert!(!pusher.join().unwrap());
    }

    #[test]
    fn push_waits_for_room_and_never_for_the_wanted_ticket() {
        let buffer = Arc::new(ConcurrentShuffleBuffer::new(2, 2, 1).unwrap());
        let pusher = thread::spawn({
            let buffer = buffer.clone();
            move || (0..200).for_each(|ticket| assert!(buffer.push(ticket, Ok(ticket))))
        });
        for _ in 0..199 {
            assert!(buffer.len() <= 2);
            assert!(matches!(buffer.try_pop(SOON), Popped::Item(_)));
        }
        pusher.join().unwrap();
    }

    #[test]
    fn bad_sizes_are_refused() {
        for (capacity, min_size) in [(0, 0), (0, 1), (3, 4)] {
            let error = ConcurrentShuffleBuffer::<u8>::new(capacity, min_size, 0).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Config);
        }
    }
}
