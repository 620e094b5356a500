//! Faults that tests inject into workers: delays, to show that timing changes no batch, a panic that holds
//! all locks, and a thread that the system does not start.
//!
//! Compiled only with debug assertions, as in profile `ci`; not in release wheels. Off unless [`delays`] or
//! [`panic_at`] was called; a run uses what was set when it started.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use crate::seed;

static FIXED_US: AtomicU64 = AtomicU64::new(0);
static RANDOM_US: AtomicU64 = AtomicU64::new(0);
const NEVER: u64 = u64::MAX;
static PANIC_AT: AtomicU64 = AtomicU64::new(NEVER);

/// Makes each worker of later runs sleep `fixed` plus a uniformly random part of `random` per record.
pub fn delays(fixed: Duration, random: Duration) {
    FIXED_US.store(fixed.as_micros() as u64, Ordering::Relaxed);
    RANDOM_US.store(random.as_micros() as u64, Ordering::Relaxed);
}

/// Makes the worker that gets `row` in a later run panic while it holds every lock of the run; `None` for no
/// row.
pub fn panic_at(row: Option<u64>) {
    PANIC_AT.store(row.unwrap_or(NEVER), Ordering::Relaxed);
}

thread_local! {
    static STARTS: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Makes the system refuse a thread to this one, after it has started `n` more; `None`: never.
pub fn refuse_thread_after(n: Option<usize>) {
    STARTS.set(n);
}

/// Whether the system is to refuse the next thread; counts it.
pub(super) fn refuses_thread() -> bool {
    let left = STARTS.get();
    STARTS.set(left.map(|left| left.saturating_sub(1)));
    left == Some(0)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Injected {
    fixed_us: u64,
    random_us: u64,
    panic_at: u64,
}

impl Injected {
    pub(crate) fn current() -> Self {
        Self {
            fixed_us: FIXED_US.load(Ordering::Relaxed),
            random_us: RANDOM_US.load(Ordering::Relaxed),
            panic_at: PANIC_AT.load(Ordering::Relaxed),
        }
    }

    /// Sleeps; `salt` chooses the random part.
    pub(crate) fn sleep(self, salt: u64) {
        let us = self.fixed_us + seed::below(seed::mix(salt), self.random_us);
        if us > 0 {
            thread::sleep(Duration::from_micros(us));
        }
    }

    /// Whether the worker that got `row` is to panic.
    pub(crate) fn panics_at(self, row: u64) -> bool {
        self.panic_at == row && row != NEVER
    }
}
