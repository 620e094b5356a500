//! Trials with damaged and deceptive files: how the files are made, and the limits of each trial.

#![allow(dead_code, reason = "each binary uses a part")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the figures of `docs/reliability.md`, and what a test hangs at"
)]

pub mod lies;
pub mod meter;
pub mod mutate;

use std::{collections::BTreeMap, env, fmt, time::Duration};

use meter::Cost;

/// The most processor time for a record.
pub const MOST_TIME: Duration = Duration::from_secs(2);

/// Trials of each kind: 500, and 10 000 under `make soak`.
pub fn trials() -> u64 {
    500 * env::var("FOREBAY_SOAK").map_or(1, |n| n.parse::<u64>().unwrap())
}

/// The outcomes of the trials of one kind.
#[derive(Default)]
pub struct Tally {
    trials: u64,
    outcomes: BTreeMap<&'static str, u64>,
    worst: Cost,
}

impl Tally {
    /// Counts a trial and asserts its limits.
    pub fn count(&mut self, what: &str, outcome: &'static str, cost: Cost, most_bytes: usize) {
        self.trials += 1;
        *self.outcomes.entry(outcome).or_default() += 1;
        self.worst.time = self.worst.time.max(cost.time);
        self.worst.peak = self.worst.peak.max(cost.peak);
        assert!(cost.time < MOST_TIME, "{what} ({outcome}) took {:?}", cost.time);
        assert!(cost.peak < most_bytes, "{what} ({outcome}) took {} MiB", cost.peak >> 20);
    }

    pub fn n_good(&self) -> u64 {
        self.outcomes.get("ok").copied().unwrap_or_default()
    }

    pub fn trials(&self) -> u64 {
        self.trials
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost { time, peak, .. } = self.worst;
        write!(
            f,
            "{} trials {:?}, {:.0?} and {:.1} MiB at most",
            self.trials,
            self.outcomes,
            time,
            peak as f64 / 1048576.0
        )
    }
}
