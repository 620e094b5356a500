//! How many bytes are requested and not yet received: as many as latency and rate need.
//!
//! A link is used in full while the bytes that it sends during one latency are on their way. Requests that
//! begin at the same time share the link and end at the same time, after which it would be idle for a
//! latency. So a request holds its bytes only until they arrive: the next request begins while the answers
//! before it are received. Requests begin in the order in which they were made.
//!
//! The limit begins at [`LEAST`] and grows with latency x rate, up to [`MOST`]. It never shrinks.

use std::{
    io,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::failure::Failure;

/// Bytes are counted in these; a smaller request counts as one.
const UNIT: u64 = 256 << 10;
/// The limit at first: 8 MiB, or 32 small requests.
const LEAST: usize = 32;
/// The largest limit: 64 MiB, or 256 small requests.
const MOST: usize = 256;
/// The units for each one that latency and rate need: a link that is not yet in full use shows a lower rate.
const SPARE: f64 = 3.0;
/// The time over which a rate is measured.
const MEASURED: Duration = Duration::from_millis(100);

pub(super) struct Flight {
    permits: Semaphore,
    measured: Mutex<Measured>,
}

struct Measured {
    /// The limit, units.
    most: usize,
    /// The least so far: others have waited for the link.
    latency: Duration,
    /// Units received since `since`.
    n: u64,
    since: Instant,
}

impl Measured {
    /// Adds the first byte of an answer.
    fn begun(&mut self, latency: Duration) {
        self.latency = self.latency.min(latency);
    }

    /// Adds `n` units; returns by how many the limit grows.
    fn add(&mut self, n: usize, now: Instant) -> usize {
        self.n += n as u64;
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed < MEASURED {
            return 0;
        }
        // Units in one latency.
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

/// A request of a number of bytes.
pub(super) struct Request<'a> {
    flight: &'a Flight,
    /// The units that have not arrived.
    left: SemaphorePermit<'a>,
    since: Instant,
    /// Bytes that arrived since the last whole unit.
    received: u64,
}

impl Flight {
    /// Waits until a request of `len` bytes may be sent.
    pub(super) async fn begin(&self, len: u64) -> Result<Request<'_>, Failure> {
        // A longer request than the limit waits for all others.
        let n = len.div_ceil(UNIT).clamp(1, LEAST as u64) as u32;
        let closed = |_| Failure::new(io::ErrorKind::Other, "the source is closed");
        let left = self.permits.acquire_many(n).await.map_err(closed)?;
        Ok(Request { flight: self, left, since: Instant::now(), received: 0 })
    }

    fn measured<R>(&self, note: impl FnOnce(&mut Measured) -> R) -> R {
        note(&mut self.measured.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn arrived(&self, n: usize) {
        let more = self.measured(|measured| measured.add(n, Instant::now()));
        self.permits.add_permits(more);
    }
}

impl Request<'_> {
    pub(super) fn answered(&self) {
        self.flight.measured(|measured| measured.begun(self.since.elapsed()));
    }

    /// Notes that `len` bytes arrived. The last unit is held until the request ends.
    pub(super) fn received(&mut self, len: u64) {
        self.received += len;
        let n = (self.received / UNIT).min(self.left.num_permits() as u64 - 1) as usize;
        if n > 0 {
            self.received -= n as u64 * UNIT;
            drop(self.left.split(n));
            self.flight.arrived(n);
        }
    }

    pub(super) fn ended(self) {
        self.flight.arrived(self.left.num_permits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit after units that come at `rate` a second.
    fn limit(latency_ms: u64, rate: u32) -> usize {
        let begin = Instant::now();
        let mut measured = Measured { most: LEAST, latency: Duration::MAX, n: 0, since: begin };
        for n in 1..=1000 {
            measured.begun(Duration::from_millis(latency_ms));
            measured.add(1, begin + Duration::from_secs(1) * n / rate);
        }
        measured.most
    }

    #[test]
    fn the_limit_follows_latency_and_rate() {
        assert_eq!(limit(1, 500), LEAST);
        assert_eq!(limit(50, 100), LEAST);
        // 500 units a second at 50 ms: 25 are on their way at a time, and twice as many more.
        assert!((70..=77).contains(&limit(50, 500)), "{}", limit(50, 500));
        assert_eq!(limit(200, 1000), MOST);
    }

    #[test]
    fn a_short_latency_counts_for_the_others() {
        let begin = Instant::now();
        let mut measured = Measured { most: LEAST, latency: Duration::MAX, n: 0, since: begin };
        for n in 1..=1000 {
            // All but the first have waited for the link.
            measured.begun(Duration::from_millis(if n == 1 { 1 } else { 500 }));
            measured.add(1, begin + Duration::from_millis(n));
        }
        assert_eq!(measured.most, LEAST);
    }

    #[test]
    fn a_request_holds_what_has_not_arrived() {
        let flight = Flight::default();
        let free = || flight.permits.available_permits();
        let begin = |len| futures_util::FutureExt::now_or_never(flight.begin(len));
        let mut long = begin(3 * UNIT + 1).unwrap().ok().unwrap();
        assert_eq!(free(), LEAST - 4);
        long.received(UNIT - 1);
        assert_eq!(free(), LEAST - 4);
        long.received(UNIT + 1);
        assert_eq!(free(), LEAST - 2);
        // The server sends more bytes than were requested.
        long.received(100 * UNIT);
        assert_eq!(free(), LEAST - 1);
        long.ended();
        assert_eq!(free(), LEAST);

        // A longer one than all, and one that fails.
        let all = begin(1 << 40).unwrap().ok().unwrap();
        assert_eq!(free(), 0);
        assert!(begin(0).is_none());
        drop(all);
        assert_eq!(free(), LEAST);
    }
}
