//! [`ProgressLog`]: what a long loop over recordings logs while it runs. Source: own.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// The time before the first message, and between two.
const EVERY: Duration = Duration::from_secs(10);

/// Counts what several threads have done, and logs it every 10 s; the first time as a warning.
pub(crate) struct ProgressLog {
    n_total: u64,
    /// What the warning advises.
    advice: &'static str,
    n_done: AtomicU64,
    n_messages: AtomicU64,
    started: Instant,
}

impl ProgressLog {
    pub(crate) fn new(n_total: u64, advice: &'static str) -> Self {
        let (n_done, n_messages) = Default::default();
        Self { n_total, advice, n_done, n_messages, started: Instant::now() }
    }

    /// Counts `n` more recordings, and logs a message if one is due.
    pub(crate) fn add(&self, n: u64) {
        let n_done = self.n_done.fetch_add(n, Ordering::Relaxed) + n;
        let Some((is_first, elapsed)) = self.due(self.started.elapsed()) else { return };
        let message = format!(
            "{n_done} of {} recordings are opened for their lengths after {} s",
            self.n_total,
            elapsed.as_secs()
        );
        match is_first {
            true => log::warn!("{message}{}", self.advice),
            false => log::info!("{message}"),
        }
    }

    /// Whether a message is due, for one of the threads, and whether it is the first.
    fn due(&self, elapsed: Duration) -> Option<(bool, Duration)> {
        let n_messages = self.n_messages.load(Ordering::Relaxed);
        let n_due = elapsed.as_secs() / EVERY.as_secs();
        let is_mine = n_due > n_messages
            && self
                .n_messages
                .compare_exchange(n_messages, n_due, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        is_mine.then_some((n_messages == 0, elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_due_once_in_ten_seconds() {
        let progress = ProgressLog::new(100, "");
        let due = |seconds| progress.due(Duration::from_secs(seconds)).map(|(is_first, _)| is_first);
        assert_eq!([0, 9, 10, 10, 19].map(due), [None, None, Some(true), None, None]);
        assert_eq!([45, 45, 49, 50].map(due), [Some(false), None, None, Some(false)]);
    }
}
