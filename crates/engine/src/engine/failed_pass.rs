//! Whether too many records of a pass failed.

use super::{Engine, SUBSTITUTES};
use crate::{
    Error, ErrorKind, Result,
    contract::{Source, TaskFor},
};

/// Failures are logged once they are at least one in so many of the records that were tried,
const WARN_SHARE: u64 = 10;
/// and so many were tried, or a pass has ended.
pub(super) const WARN_FROM: u64 = 100;

impl<S: Source, K: TaskFor<S>> Engine<S, K> {
    /// Checks at the end of a pass that some of its records were good.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`] if all failed. One of several ranks has few records where the data are few, so
    /// for up to [`SUBSTITUTES`] of them it is only logged.
    pub(super) fn check_pass(&mut self) -> Result<()> {
        let (so_far, policy) = (self.so_far.unwrap_or_default(), &self.plan.policy);
        let Some((kind, _)) = so_far.kinds.occurred().first().copied().filter(|_| policy.logs) else {
            return Ok(());
        };
        if so_far.records_good > 0 {
            self.warn_of_failures(0);
            return Ok(());
        }
        let first = self.failures.first(kind);
        let told = so_far.told().unwrap_or_default();
        let of_rank = match self.plan.world_size {
            1 => String::new(),
            _ => format!(" on rank {}", self.plan.rank),
        };
        let message = format!(
            "the pass has no good record{of_rank}: {told}; check {}; the first {kind} record",
            K::WORDS.suspects
        );
        let error = Error::new(ErrorKind::TooMany, message);
        let error = match first {
            Some(first) => error.because(first.clone()),
            None => error,
        };
        if self.plan.world_size > 1 && so_far.failures() <= SUBSTITUTES {
            log::warn!("{error}");
            return Ok(());
        }
        Err(error)
    }

    /// Logs once that a tenth of the records or more failed, of at least `least` records.
    pub(super) fn warn_of_failures(&mut self, least: u64) {
        if self.has_warned || !self.plan.policy.logs {
            return;
        }
        let delivered = self.counters.delivered();
        if delivered.tried() < least || delivered.failures() * WARN_SHARE < delivered.tried() {
            return;
        }
        let Some(told) = delivered.told() else { return };
        self.has_warned = true;
        log::warn!("{told}; {}; max_errors= sets a limit", K::WORDS.listed);
    }
}
