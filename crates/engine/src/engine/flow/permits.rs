//! Permits of an I/O thread for large reads ([`MemoryLimiter`]): its part of the run's
//! [`ChannelLimit`](crate::engine::flow::channel_limit::ChannelLimit).
//!
//! Memory is granted before it is allocated, and counted until the last holder drops it. A thread ahead of
//! its turn is granted bytes, parked, while half of the limit has room; beyond that it waits for its turn,
//! and then like others until there is room or no bytes are on their way. A record that a reader keeps for
//! later rows is parked until the reader drops it. So a thread that waits for bytes holds none that another
//! thread waits for: its bytes are parked, or excluded as its own. `docs/design.md` has the argument.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::{
    Result,
    contract::{GrantedMemory, Kept, MemoryLimiter, Permit, Retained, SMALL_READ},
    engine::{
        flow::channel_limit,
        flow::shared::Shared,
        flow::shared::closed,
        observe::activity::{Activity, State},
        observe::meter::Stopwatch,
    },
};

/// The number of a job without a turn.
const NONE: u64 = u64::MAX;

/// The limiter of one I/O thread.
pub(crate) struct ReaderLimiter<E> {
    shared: Arc<Shared<E>>,
    /// The number of the current job, or `NONE`.
    number: AtomicU64,
    /// Bytes granted, and neither parked nor handed over.
    own: AtomicUsize,
    /// Bytes granted of the records that the thread's readers keep for later rows.
    retained: Arc<AtomicUsize>,
    /// Whether the record is in memory that was granted before.
    is_covered: AtomicBool,
    /// Whether `asked` may have content.
    has_asked: AtomicBool,
    asked: Mutex<PermitRequests>,
    activity: Arc<Activity>,
}

#[derive(Debug, Default)]
struct PermitRequests {
    permits: Vec<HeldPermit>,
    waits: Vec<(For, Instant, Duration)>,
}

/// Memory granted for a record that is not handed over yet.
#[derive(Debug)]
struct HeldPermit {
    permit: Arc<channel_limit::Permit>,
    /// The bytes that it added to [`ReaderLimiter::own`]: the permit may have shrunk since.
    own: usize,
    /// Whether it is parked until it is handed over.
    is_parked: bool,
}

/// What keeps a record's memory, and the count of [`ReaderLimiter::retained`].
#[derive(Debug)]
struct KeptRecord {
    _kept: Vec<Kept>,
    bytes: usize,
    retained: Arc<AtomicUsize>,
}

impl Drop for KeptRecord {
    fn drop(&mut self) {
        self.retained.fetch_sub(self.bytes, Relaxed);
    }
}

#[derive(Debug, Clone, Copy)]
enum For {
    Turn,
    Bytes,
}

/// The memory granted for the record of a read.
#[derive(Debug, Default)]
pub(crate) struct RecordPermits {
    permits: Vec<HeldPermit>,
    /// Whether the record's bytes are counted already.
    pub(crate) is_counted: bool,
}

impl<E> ReaderLimiter<E> {
    pub(crate) fn new(shared: Arc<Shared<E>>, activity: Arc<Activity>) -> Self {
        Self {
            shared,
            number: AtomicU64::new(NONE),
            own: AtomicUsize::new(0),
            retained: Arc::default(),
            is_covered: AtomicBool::new(false),
            has_asked: AtomicBool::new(false),
            asked: Mutex::default(),
            activity,
        }
    }

    /// Starts a job, with its number in the order of turns if it has one.
    pub(crate) fn begin(&self, number: Option<u64>) {
        self.number.store(number.unwrap_or(NONE), Relaxed);
    }

    /// Takes the permits granted since the last call, for the record just read; adds the waits to the
    /// thread's watch.
    pub(crate) fn take(&self, watch: &mut Stopwatch) -> RecordPermits {
        let is_covered = self.is_covered.load(Relaxed);
        let has_asked = self.has_asked.load(Relaxed);
        if !is_covered && !has_asked {
            return RecordPermits::default();
        }
        self.is_covered.store(false, Relaxed);
        self.has_asked.store(false, Relaxed);
        let PermitRequests { permits, waits } = mem::take(&mut *self.asked());
        let meters = &self.shared.counters.meters;
        for (what, begin, time) in waits {
            let total = match what {
                For::Turn => &meters.turn,
                For::Bytes => &meters.bytes,
            };
            watch.waited(total, begin, time);
        }
        RecordPermits { is_counted: is_covered || !permits.is_empty(), permits }
    }

    /// Bytes that this thread holds and other threads may wait for.
    pub(crate) fn own(&self) -> usize {
        self.own.load(Relaxed)
    }

    /// Hands over the permits of a record that is sent or failed: its holders release them.
    pub(crate) fn hand_over(&self, permits: RecordPermits) {
        for HeldPermit { permit, own, is_parked } in permits.permits {
            self.own.fetch_sub(own, Relaxed);
            if is_parked {
                permit.release();
            }
        }
    }

    fn asked(&self) -> MutexGuard<'_, PermitRequests> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<T>(&self, what: For, wait: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let state = match what {
            For::Turn => State::Turn,
            For::Bytes => State::Memory,
        };
        self.activity.enter(state, begin);
        let outcome = wait();
        let time = begin.elapsed();
        self.activity.work(begin + time);
        self.has_asked.store(true, Relaxed);
        self.asked().waits.push((what, begin, time));
        outcome
    }

    fn granted(&self, permit: Arc<channel_limit::Permit>, own: usize, is_parked: bool) -> Permit {
        self.own.fetch_add(own, Relaxed);
        self.has_asked.store(true, Relaxed);
        self.asked().permits.push(HeldPermit { permit: permit.clone(), own, is_parked });
        permit
    }
}

/// Bytes as the limit counts them, capped, since a file may claim any number.
fn counted(bytes: u64) -> usize {
    bytes.min(1 << 48) as usize
}

impl<E: Send> MemoryLimiter for ReaderLimiter<E> {
    fn admit(&self, bytes: u64) -> Result<Permit> {
        let Shared { bytes: channel_limit, sequencer, .. } = &*self.shared;
        let bytes = counted(bytes);
        let number = self.number.load(Relaxed);
        if number != NONE && !sequencer.has_come(number) {
            if let Some(permit) = channel_limit.park(bytes) {
                return Ok(self.granted(permit, 0, true));
            }
            if !self.wait(For::Turn, || sequencer.wait(number)) {
                return Err(closed());
            }
        }
        let own = self.own();
        // Out of turn no thread waits while it holds bytes: two such threads might wait for each other.
        let permit = match number {
            NONE if own > 0 => channel_limit.force(bytes),
            _ => self.wait(For::Bytes, || channel_limit.admit(bytes, own)).ok_or_else(closed)?,
        };
        Ok(self.granted(permit, bytes, false))
    }

    fn keep(&self, bytes: u64) -> Result<Kept> {
        let (channel_limit, own) = (&self.shared.bytes, self.own());
        match self.number.load(Relaxed) {
            // As for `admit`.
            NONE if own > 0 => Ok(channel_limit.kept(counted(bytes))),
            _ => self.wait(For::Bytes, || channel_limit.keep(counted(bytes), own)).ok_or_else(closed),
        }
    }

    fn kept(&self, bytes: u64) -> Kept {
        self.shared.bytes.kept(counted(bytes))
    }

    fn mark_counted(&self) {
        self.is_covered.store(true, Relaxed);
    }

    fn retain(&self) -> Option<Retained> {
        let is_covered = self.is_covered.load(Relaxed);
        if !self.has_asked.load(Relaxed) {
            return Some(Retained { is_granted: is_covered, _kept: None });
        }
        let mut asked = self.asked();
        let is_granted = is_covered || !asked.permits.is_empty();
        // Only the limiter has the permits of memory that is dropped already.
        let is_used = |held: &HeldPermit| Arc::strong_count(&held.permit) > 1;
        let used = asked.permits.iter().filter(|held| is_used(held));
        let bytes: usize = used.map(|held| held.permit.bytes()).sum();
        if bytes == 0 {
            return Some(Retained { is_granted, _kept: None });
        }
        // As small reads need no permit, a small copy out of a large read may be kept in any case.
        let others = self.retained.load(Relaxed);
        if others > 0 && bytes as u64 > SMALL_READ && others + bytes > self.shared.bytes.limit() / 2 {
            return None;
        }
        let mut kept = Vec::new();
        for held in asked.permits.iter_mut().filter(|held| is_used(held)) {
            // Parked until it is sent, too: the reader may drop the record before.
            if !mem::replace(&mut held.is_parked, true) {
                self.own.fetch_sub(mem::take(&mut held.own), Relaxed);
                held.permit.keep();
            }
            kept.push(Kept::new(held.permit.clone()));
        }
        self.retained.fetch_add(bytes, Relaxed);
        let record = KeptRecord { _kept: kept, bytes, retained: self.retained.clone() };
        Some(Retained { is_granted, _kept: Some(Box::new(record)) })
    }
}
