//! [`ChannelLimit`] bounds the bytes of records read and not yet processed, besides the channel's bound in
//! records; and it parks threads that find the channel full.
//!
//! A small record takes its bytes when it is sent. For a large one, bytes are requested before it is read
//! ([`crate::engine::flow::permits`]), and released when the last holder drops them. One record of any size
//! is admitted if no bytes are on their way to the workers. Bytes held by threads that wait for their turn,
//! and bytes that a reader keeps for later rows, are *parked*: they are counted, but no request waits for
//! them, since they are released only after the current requests are granted. Requests are granted in order,
//! so that small records do not starve a large one.
//!
//! A thread that finds the channel full is parked until half of it is empty, not until there is room for one
//! record: waking a thread costs more than handing over a record, so it is woken once for many.

use std::sync::{
    Arc, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use crate::{
    record::Granted,
    sync::{Condvar, Mutex, MutexGuard},
};

#[derive(Debug, Default)]
pub(crate) struct Held {
    bytes: usize,
    /// The parked bytes among them: no request waits for these.
    parked: usize,
    records: usize,
    /// Places in the queue given out, and places served.
    places: u64,
    served: u64,
    /// Threads that wait for bytes, and threads that wait for room in the channel.
    starved: usize,
    resting: usize,
    /// The number of records taken from the channel.
    released: u64,
    closed: bool,
}

impl Held {
    /// Whether there is room, or only the caller's `own` bytes are on their way.
    fn fits(&self, bytes: usize, own: usize, limit: usize) -> bool {
        self.bytes.saturating_add(bytes) <= limit || self.bytes - self.parked <= own
    }

    fn has_line(&self) -> bool {
        self.places > self.served
    }
}

/// The bound on records in the channel or about to be sent, and on all large records, from before they are
/// read until the last holder drops them.
#[derive(Debug)]
pub struct ChannelLimit {
    limit: usize,
    /// A parked thread is woken at this number of records or fewer.
    half: usize,
    held: Mutex<Held>,
    freed: Condvar,
}

/// Bytes granted before a read.
#[derive(Debug)]
pub struct Permit {
    channel_limit: Arc<ChannelLimit>,
    /// Both change only under the budget's lock.
    bytes: AtomicUsize,
    is_parked: AtomicBool,
}

impl ChannelLimit {
    /// A budget of `limit` bytes for a channel of `channel_size` records with this number of `senders`.
    pub fn new(limit: usize, channel_size: usize, senders: usize) -> Self {
        Self { limit, half: channel_size / 2 + senders, held: Mutex::default(), freed: Condvar::new() }
    }

    /// Takes `bytes` for a record to send, if that needs no wait; returns whether it did. Of the bytes on
    /// their way, `own` are the caller's.
    pub fn try_acquire(&self, bytes: usize, own: usize) -> bool {
        let mut held = self.lock();
        // With 0 bytes (taken before the read) only the record is counted.
        let may = bytes == 0 || (own > 0 || !held.has_line()) && held.fits(bytes, own, self.limit);
        if may && !held.closed {
            held.bytes += bytes;
            held.records += 1;
        }
        may && !held.closed
    }

    /// Waits until `bytes` fit, or no other bytes are on their way; returns false once closed.
    pub fn acquire(&self, bytes: usize, own: usize) -> bool {
        let mut held = self.wait_for(bytes, own);
        held.bytes += bytes;
        held.records += 1;
        !held.closed
    }

    /// Waits until `bytes` fit, or no other bytes are on their way, and takes them for a read; `None` once
    /// closed.
    pub fn admit(self: &Arc<Self>, bytes: usize, own: usize) -> Option<Arc<Permit>> {
        let held = self.wait_for(bytes, own);
        (!held.closed).then(|| self.permit(held, bytes, false))
    }

    /// As [`Self::admit`], for memory that a reader keeps: parked, so that no request waits for it until
    /// [`Granted::let_go`].
    pub fn keep(self: &Arc<Self>, bytes: usize) -> Option<Arc<Permit>> {
        let held = self.wait_for(bytes, 0);
        (!held.closed).then(|| self.permit(held, bytes, true))
    }

    /// Takes `bytes` at once, beyond the limit if need be: for a caller that must not wait, because other
    /// threads wait for bytes that it holds.
    pub fn force(self: &Arc<Self>, bytes: usize, is_parked: bool) -> Arc<Permit> {
        self.permit(self.lock(), bytes, is_parked)
    }

    /// Takes `bytes`, parked, for a thread ahead of its turn, if half of the budget has room for them; else
    /// `None`.
    pub fn park(self: &Arc<Self>, bytes: usize) -> Option<Arc<Permit>> {
        let held = self.lock();
        let has_room = held.bytes.saturating_add(bytes) <= self.limit
            && held.parked.saturating_add(bytes) <= self.limit / 2;
        (has_room && !held.has_line() && !held.closed).then(|| self.permit(held, bytes, true))
    }

    fn permit(
        self: &Arc<Self>,
        mut held: MutexGuard<'_, Held>,
        bytes: usize,
        is_parked: bool,
    ) -> Arc<Permit> {
        held.bytes += bytes;
        held.parked += if is_parked { bytes } else { 0 };
        let (bytes, is_parked) = (AtomicUsize::new(bytes), AtomicBool::new(is_parked));
        Arc::new(Permit { channel_limit: Arc::clone(self), bytes, is_parked })
    }

    /// Waits until `bytes` fit, or only the caller's `own` bytes are on their way, or the budget is closed. A
    /// caller that holds bytes does not queue: earlier requests might wait for these bytes.
    fn wait_for(&self, bytes: usize, own: usize) -> MutexGuard<'_, Held> {
        let mut held = self.lock();
        if bytes == 0 {
            return held;
        }
        let place = (own == 0).then_some(held.places);
        held.places += u64::from(place.is_some());
        let is_next = |held: &Held| place.is_none_or(|place| place == held.served);
        while !(held.closed || is_next(&held) && held.fits(bytes, own, self.limit)) {
            held.starved += 1;
            held = self.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
            held.starved -= 1;
        }
        if place.is_some() {
            held.served += 1;
            // There may be room for the next request, too.
            if held.starved > 0 {
                self.freed.notify_all();
            }
        }
        held
    }

    /// The number of records taken from the channel so far; read it before trying to send.
    pub fn released(&self) -> u64 {
        self.lock().released
    }

    /// Parks a thread that found the channel full, until a record was taken since its call of
    /// [`ChannelLimit::released`] and half of the channel is empty. Returns false once closed.
    pub fn rest(&self, released: u64) -> bool {
        let mut held = self.lock();
        while !held.closed && (held.released == released || held.records > self.half) {
            held.resting += 1;
            held = self.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
            held.resting -= 1;
        }
        !held.closed
    }

    /// Releases the bytes of [`ChannelLimit::acquire`]; call it when a record was taken from the channel.
    pub fn release(&self, bytes: usize) {
        let mut held = self.lock();
        held.bytes -= bytes;
        held.records -= 1;
        held.released += 1;
        // A wake-up without a waiting thread is a system call as well.
        let wake = held.starved > 0 || held.resting > 0 && held.records <= self.half;
        drop(held);
        if wake {
            self.freed.notify_all();
        }
    }

    /// Wakes all waiting threads; later calls do not wait.
    pub fn close(&self) {
        self.lock().closed = true;
        self.freed.notify_all();
    }

    /// Records in the channel, and bytes held.
    pub fn held(&self) -> (usize, usize) {
        let held = self.lock();
        (held.records, held.bytes)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// Releases all but `left` bytes.
    fn reduce(&self, left: usize) {
        let mut held = self.channel_limit.lock();
        let before = self.bytes.load(Relaxed);
        let less = before.saturating_sub(left);
        self.bytes.store(before - less, Relaxed);
        held.bytes -= less;
        held.parked -= if self.is_parked.load(Relaxed) { less } else { 0 };
        let wake = held.starved > 0;
        drop(held);
        if wake {
            self.channel_limit.freed.notify_all();
        }
    }
}

impl Granted for Permit {
    fn let_go(&self) {
        let mut held = self.channel_limit.lock();
        if self.is_parked.swap(false, Relaxed) {
            held.parked -= self.bytes.load(Relaxed);
        }
    }

    fn shrink(&self, bytes: u64) {
        self.reduce(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.reduce(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::until;
    use std::{thread, time::Duration};

    #[test]
    fn one_record_always_fits_and_the_next_waits() {
        let channel_limit = Arc::new(ChannelLimit::new(10, 8, 1));
        assert!(channel_limit.acquire(100, 0));
        let waiter = thread::spawn({
            let channel_limit = channel_limit.clone();
            move || channel_limit.acquire(1, 0)
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished());
        channel_limit.release(100);
        assert!(waiter.join().unwrap());
    }

    #[test]
    fn close_wakes() {
        let channel_limit = Arc::new(ChannelLimit::new(1, 8, 1));
        assert!(channel_limit.acquire(1, 0));
        let waiter = thread::spawn({
            let channel_limit = channel_limit.clone();
            move || channel_limit.acquire(1, 0)
        });
        channel_limit.close();
        assert!(!waiter.join().unwrap());
    }

    #[test]
    fn a_rest_ends_when_half_of_the_channel_is_empty() {
        let channel_limit = Arc::new(ChannelLimit::new(1000, 8, 1));
        (0..9).for_each(|_| assert!(channel_limit.acquire(1, 0)));
        let released = channel_limit.released();
        let rester = thread::spawn({
            let channel_limit = channel_limit.clone();
            move || channel_limit.rest(released)
        });
        thread::sleep(Duration::from_millis(20));
        (0..3).for_each(|_| channel_limit.release(1));
        thread::sleep(Duration::from_millis(20));
        assert!(!rester.is_finished(), "six are held");
        channel_limit.release(1);
        assert!(rester.join().unwrap());
        (0..9).for_each(|_| assert!(channel_limit.acquire(1, 0)));
        let rester = thread::spawn({
            let channel_limit = channel_limit.clone();
            move || channel_limit.rest(channel_limit.released())
        });
        channel_limit.close();
        assert!(!rester.join().unwrap());
    }

    #[test]
    fn what_is_parked_is_not_waited_for_and_has_half_of_the_bytes() {
        let channel_limit = Arc::new(ChannelLimit::new(100, 8, 1));
        let parked = channel_limit.park(50).unwrap();
        assert!(channel_limit.park(1).is_none());
        // No bytes are on their way.
        let large = channel_limit.admit(1000, 0).unwrap();
        assert_eq!(channel_limit.held(), (0, 1050));
        assert!(!channel_limit.try_acquire(1, 0), "the large one is on its way");
        assert!(channel_limit.try_acquire(1, 1000), "but it is the caller's own");
        channel_limit.release(1);
        large.shrink(40);
        assert_eq!(channel_limit.held(), (0, 90));
        drop(large);
        parked.let_go();
        assert!(!channel_limit.try_acquire(60, 0), "it is on its way now");
        assert!(channel_limit.try_acquire(50, 0));
        drop(parked);
        channel_limit.release(50);
        assert_eq!(channel_limit.held(), (0, 0));
        assert!(channel_limit.park(51).is_none());
    }

    #[test]
    fn who_asks_is_served_in_order() {
        let channel_limit = Arc::new(ChannelLimit::new(100, 8, 1));
        let first = channel_limit.admit(90, 0).unwrap();
        let ask = |bytes| {
            let channel_limit = channel_limit.clone();
            thread::spawn(move || channel_limit.admit(bytes, 0).map(|permit| permit.bytes.load(Relaxed)))
        };
        let large = ask(1000);
        until("the large one waits", || channel_limit.lock().places == 2);
        assert!(
            !channel_limit.try_acquire(1, 0) && channel_limit.park(1).is_none(),
            "one byte after a large request"
        );
        assert!(channel_limit.try_acquire(0, 0), "what was taken before is only counted");
        let small = ask(1);
        until("the small one waits", || channel_limit.lock().places == 3);
        assert!(!large.is_finished() && !small.is_finished());
        drop(first);
        assert_eq!((large.join().unwrap(), small.join().unwrap()), (Some(1000), Some(1)));
        channel_limit.close();
        assert!(
            channel_limit.admit(1, 0).is_none()
                && channel_limit.park(1).is_none()
                && channel_limit.keep(1).is_none()
        );
    }
}
