//! How many requests are in flight: as many as latency and rate need.
//!
//! A link is used in full while as many requests wait as it answers during one latency. So the limit begins
//! at [`LEAST`] and grows with latency x answers a second, up to [`MOST`]. It never shrinks; bytes in flight
//! are bounded elsewhere.

use std::{
    io,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::failure::Failure;

const LEAST: usize = 32;
const MOST: usize = 128;
/// The requests for each one that latency and rate need: a link that is not yet in full use shows a lower
/// rate.
const SPARE: f64 = 2.0;
/// The time over which a rate is measured.
const MEASURED: Duration = Duration::from_millis(100);

/// The requests of a source.
pub(super) struct Flight {
    permits: Semaphore,
    measured: Mutex<Measured>,
}

struct Measured {
    /// The limit.
    most: usize,
    /// The least so far: others have waited for the link.
    latency: Duration,
    /// Answers since `since`.
    n: u64,
    since: Instant,
}

impl Measured {
    /// Adds an answer; returns by how many requests the limit grows.
    fn add(&mut self, latency: Duration, now: Instant) -> usize {
        self.latency = self.latency.min(latency);
        self.n += 1;
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed < MEASURED {
            return 0;
        }
        // Answers in one latency.
        let needed = self.n as f64 * self.latency.as_secs_f64() / elapsed.as_secs_f64();
        let wanted = ((needed * SPARE) as usize).clamp(self.most, MOST);
        let more = wanted - self.most;
        *self = Self { most: wanted, latency: self.latency, n: 0, since: now };
        more
    }
}

impl Default for Flight {
    fn default() -> Self {
        let measured = Measured { most: LEAST, latency: Duration::MAX, n: 0, since: Instant::now() };
        Self { permits: Semaphore::new(LEAST), measured: Mutex::new(measured) }
    }
}

impl Flight {
    /// Waits until a request may be sent.
    pub(super) async fn begin(&self) -> Result<SemaphorePermit<'_>, Failure> {
        self.permits.acquire().await.map_err(|_| Failure::new(io::ErrorKind::Other, "the source is closed"))
    }

    /// Notes an answer that began after `latency`.
    pub(super) fn answered(&self, latency: Duration) {
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let more = measured.add(latency, Instant::now());
        self.permits.add_permits(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit after answers that come at `rate` a second.
    fn limit(latency_ms: u64, rate: u32) -> usize {
        let begin = Instant::now();
        let mut measured = Measured { most: LEAST, latency: Duration::MAX, n: 0, since: begin };
        for n in 1..=1000 {
            measured.add(Duration::from_millis(latency_ms), begin + Duration::from_secs(1) * n / rate);
        }
        measured.most
    }

    #[test]
    fn the_limit_follows_latency_and_rate() {
        assert_eq!(limit(1, 500), LEAST);
        assert_eq!(limit(50, 100), LEAST);
        // 500 answers a second at 50 ms: 25 wait at a time, and as many again.
        assert!((45..=52).contains(&limit(50, 500)), "{}", limit(50, 500));
        assert_eq!(limit(200, 1000), MOST);
    }

    #[test]
    fn a_short_latency_counts_for_the_others() {
        let begin = Instant::now();
        let mut measured = Measured { most: LEAST, latency: Duration::MAX, n: 0, since: begin };
        for n in 1..=1000 {
            // All but the first have waited for the link.
            let latency = Duration::from_millis(if n == 1 { 1 } else { 500 });
            measured.add(latency, begin + Duration::from_millis(n));
        }
        assert_eq!(measured.most, LEAST);
    }
}
