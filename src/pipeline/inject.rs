//! Delays that tests inject into workers, to show that timing changes nothing.
//!
//! Off unless [`delays`] was called; then a run takes the delays that were set when it started.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use crate::seed;

static FIXED_US: AtomicU64 = AtomicU64::new(0);
static RANDOM_US: AtomicU64 = AtomicU64::new(0);

/// Makes every worker of the runs that start from now on sleep `fixed` plus a uniform part of `random` per record.
pub fn delays(fixed: Duration, random: Duration) {
    FIXED_US.store(fixed.as_micros() as u64, Ordering::Relaxed);
    RANDOM_US.store(random.as_micros() as u64, Ordering::Relaxed);
}

/// The delays of one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delays {
    fixed_us: u64,
    random_us: u64,
}

impl Delays {
    pub(super) fn current() -> Self {
        Self { fixed_us: FIXED_US.load(Ordering::Relaxed), random_us: RANDOM_US.load(Ordering::Relaxed) }
    }

    /// Sleeps; `salt` chooses the random part.
    pub(super) fn sleep(self, salt: u64) {
        let us = self.fixed_us + seed::below(seed::mix(salt), self.random_us);
        if us > 0 {
            thread::sleep(Duration::from_micros(us));
        }
    }
}
