//! [`ChannelLimit`] bounds the bytes of records read and not yet processed, besides the channel's bound in
//! records; and it parks threads that find the channel full.
//!
//! Threads whose records are not sent in turn take a *place* in the channel before they choose a record
//! ([`ChannelLimit::place`]), so a thread that waits for room holds no record that another thread waits for.
//! A record that was read is then sent without a wait for room. Threads that send in turn wait for room with
//! the record ([`ChannelLimit::rest`]): places taken ahead of the turn could leave none for the thread whose
//! turn it is.
//!
//! A small record takes its bytes when it is sent. For a large one, bytes are requested before it is read
//! ([`crate::engine::flow::permits`]), and released when the last holder drops them. One record of any size
//! is admitted if no bytes are on their way to the workers. Bytes held by threads that wait for their turn,
//! and bytes that a reader keeps for later rows, are *parked*, as long as they are kept ([`Kept`]): they are
//! counted, but no request waits for them, since they may be released only after the current requests are
//! granted. Requests are granted in order, so that small records do not starve a large one.
//!
//! A thread that finds the channel full is parked until half of it is empty, not until there is room for one
//! record: waking a thread costs more than handing over a record, so it is woken once for many.

use std::sync::{
    Arc, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::{
    contract::{GrantedMemory, Kept},
    sync::{Condvar, Mutex, MutexGuard},
};

#[derive(Debug, Default)]
pub(crate) struct Held {
    bytes: usize,
    /// The parked bytes among them: no request waits for these.
    parked: usize,
    records: usize,
    /// Numbers in the queue for bytes that were given out, and those served.
    queued: u64,
    served: u64,
    /// Threads that wait for bytes, and threads that wait for room in the channel.
    starved: usize,
    resting: usize,
    /// Places taken in the channel, before a record is chosen and until a worker has it; and threads that
    /// wait for one.
    taken: usize,
    unplaced: usize,
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
        self.queued > self.served
    }
}

/// The bound on records in the channel or about to be sent, and on all large records, from before they are
/// read until the last holder drops them.
#[derive(Debug)]
pub struct ChannelLimit {
    limit: usize,
    /// Places in the channel: one for each of its records, and one for the record of each sender.
    places: usize,
    /// A parked thread is woken at this number of records or places taken, or fewer.
    half: usize,
    held: Mutex<Held>,
    freed: Condvar,
    /// A place became free. Threads that wait for one are woken one by one.
    vacated: Condvar,
}

#[derive(Debug)]
pub struct Permit {
    channel_limit: Arc<ChannelLimit>,
    /// Both change only under the limit's lock.
    bytes: AtomicUsize,
    /// How often the bytes are kept: they are parked while it is above 0.
    keepers: AtomicUsize,
}

impl ChannelLimit {
    /// For at most `limit` bytes in a channel of `channel_size` records with this number of `senders`.
    pub fn new(limit: usize, channel_size: usize, senders: usize) -> Self {
        Self {
            limit,
            places: channel_size + senders,
            half: channel_size / 2 + senders,
            held: Mutex::default(),
            freed: Condvar::new(),
            vacated: Condvar::new(),
        }
    }

    /// Takes a place in the channel if one is free; returns whether it did.
    pub fn try_place(&self) -> bool {
        let mut held = self.lock();
        let is_free = held.taken < self.places && !held.closed;
        held.taken += usize::from(is_free);
        is_free
    }

    /// Takes a place in the channel, for a record that is not chosen yet. Parks the thread while all places
    /// are taken, until half of the channel is empty. Returns false once closed.
    ///
    /// The thread returns the place with [`ChannelLimit::vacate`] if it sends no record;
    /// [`ChannelLimit::release`] returns it otherwise.
    pub fn place(&self) -> bool {
        let mut held = self.lock();
        if held.taken >= self.places {
            while !held.closed && held.taken > self.half {
                held.unplaced += 1;
                held = self.vacated.wait(held).unwrap_or_else(PoisonError::into_inner);
                held.unplaced -= 1;
            }
        }
        if held.closed {
            return false;
        }
        held.taken += 1;
        self.wake_unplaced(held);
        true
    }

    /// Returns a place for which no record is sent.
    pub fn vacate(&self) {
        let mut held = self.lock();
        held.taken -= 1;
        self.wake_unplaced(held);
    }

    /// Wakes one thread that waits for a place, if half of the channel is empty. That thread wakes the next:
    /// waking all at once would let the first ones take the places that the others were woken for.
    fn wake_unplaced(&self, held: MutexGuard<'_, Held>) {
        let wake = held.unplaced > 0 && held.taken <= self.half;
        drop(held);
        if wake {
            self.vacated.notify_one();
        }
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
        (!held.closed).then(|| self.permit(held, bytes, 0))
    }

    /// As [`Self::admit`], for memory that a reader keeps.
    pub fn keep(self: &Arc<Self>, bytes: usize, own: usize) -> Option<Kept> {
        let held = self.wait_for(bytes, own);
        (!held.closed).then(|| Kept::adopt(self.permit(held, bytes, 1)))
    }

    /// Takes `bytes` at once, beyond the limit if need be: for a caller that must not wait, because other
    /// threads wait for bytes that it holds.
    pub(crate) fn force(self: &Arc<Self>, bytes: usize) -> Arc<Permit> {
        self.permit(self.lock(), bytes, 0)
    }

    /// As [`Self::force`], for memory that a reader keeps.
    pub fn kept(self: &Arc<Self>, bytes: usize) -> Kept {
        Kept::adopt(self.permit(self.lock(), bytes, 1))
    }

    /// Takes `bytes`, parked until [`GrantedMemory::release`], for a thread ahead of its turn, if half of the
    /// limit has room for them; else `None`.
    pub fn park(self: &Arc<Self>, bytes: usize) -> Option<Arc<Permit>> {
        let held = self.lock();
        let has_room = held.bytes.saturating_add(bytes) <= self.limit
            && held.parked.saturating_add(bytes) <= self.limit / 2;
        (has_room && !held.has_line() && !held.closed).then(|| self.permit(held, bytes, 1))
    }

    fn permit(self: &Arc<Self>, mut held: MutexGuard<'_, Held>, bytes: usize, keepers: usize) -> Arc<Permit> {
        held.bytes += bytes;
        held.parked += if keepers > 0 { bytes } else { 0 };
        let (bytes, keepers) = (AtomicUsize::new(bytes), AtomicUsize::new(keepers));
        Arc::new(Permit { channel_limit: Arc::clone(self), bytes, keepers })
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Waits until `bytes` fit, or only the caller's `own` bytes are on their way, or the limit is closed. A
    /// caller that holds bytes does not queue: earlier requests might wait for these bytes.
    fn wait_for(&self, bytes: usize, own: usize) -> MutexGuard<'_, Held> {
        let mut held = self.lock();
        if bytes == 0 {
            return held;
        }
        let number = (own == 0).then_some(held.queued);
        held.queued += u64::from(number.is_some());
        let is_next = |held: &Held| number.is_none_or(|number| number == held.served);
        while !(held.closed || is_next(&held) && held.fits(bytes, own, self.limit)) {
            held.starved += 1;
            held = self.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
            held.starved -= 1;
        }
        if number.is_some() {
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

    /// Releases the bytes of [`ChannelLimit::acquire`] and the record's place; call it when a record was
    /// taken from the channel.
    pub fn release(&self, bytes: usize) {
        let mut held = self.lock();
        held.bytes -= bytes;
        held.records -= 1;
        held.released += 1;
        // None is taken where records are sent in turn.
        held.taken = held.taken.saturating_sub(1);
        // A wake-up without a waiting thread is a system call as well.
        let wake = held.starved > 0 || held.resting > 0 && held.records <= self.half;
        self.wake_unplaced(held);
        if wake {
            self.freed.notify_all();
        }
    }

    /// Wakes all waiting threads; later calls do not wait.
    pub fn close(&self) {
        self.lock().closed = true;
        self.freed.notify_all();
        self.vacated.notify_all();
    }

    /// Whether no record is in the channel or about to be sent.
    pub fn is_empty(&self) -> bool {
        self.lock().records == 0
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
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    fn reduce(&self, left: usize) {
        let mut held = self.channel_limit.lock();
        let before = self.bytes.load(Relaxed);
        let less = before.saturating_sub(left);
        self.bytes.store(before - less, Relaxed);
        held.bytes -= less;
        held.parked -= if self.keepers.load(Relaxed) > 0 { less } else { 0 };
        let wake = held.starved > 0;
        drop(held);
        if wake {
            self.channel_limit.freed.notify_all();
        }
    }
}

impl GrantedMemory for Permit {
    fn keep(&self) {
        let mut held = self.channel_limit.lock();
        if self.keepers.fetch_add(1, Relaxed) > 0 {
            return;
        }
        held.parked += self.bytes.load(Relaxed);
        // A request may have waited for these bytes.
        let wake = held.starved > 0;
        drop(held);
        if wake {
            self.channel_limit.freed.notify_all();
        }
    }

    fn release(&self) {
        let mut held = self.channel_limit.lock();
        if self.keepers.fetch_sub(1, Relaxed) == 1 {
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
        parked.release();
        assert!(!channel_limit.try_acquire(60, 0), "it is on its way now");
        assert!(channel_limit.try_acquire(50, 0));
        drop(parked);
        channel_limit.release(50);
        assert_eq!(channel_limit.held(), (0, 0));
        assert!(channel_limit.park(51).is_none());
    }

    #[test]
    fn what_is_kept_after_its_grant_is_parked_and_wakes_who_waits_for_it() {
        let channel_limit = Arc::new(ChannelLimit::new(100, 8, 1));
        let sent = channel_limit.admit(90, 0).unwrap();
        let waiter = thread::spawn({
            let channel_limit = channel_limit.clone();
            move || channel_limit.admit(50, 0).is_some()
        });
        until("it waits", || channel_limit.lock().starved == 1);
        let kept = [sent.clone(), sent.clone()].map(|permit| Kept::new(permit));
        assert!(waiter.join().unwrap());
        sent.shrink(80);
        let [one, other] = kept;
        drop((sent, one));
        assert!(channel_limit.try_acquire(30, 0), "one share is still kept");
        channel_limit.release(30);
        drop(other);
        assert_eq!(channel_limit.held(), (0, 0));
        assert_eq!(channel_limit.lock().parked, 0);
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
        until("the large one waits", || channel_limit.lock().queued == 2);
        assert!(
            !channel_limit.try_acquire(1, 0) && channel_limit.park(1).is_none(),
            "one byte after a large request"
        );
        assert!(channel_limit.try_acquire(0, 0), "what was taken before is only counted");
        let small = ask(1);
        until("the small one waits", || channel_limit.lock().queued == 3);
        assert!(!large.is_finished() && !small.is_finished());
        drop(first);
        assert_eq!((large.join().unwrap(), small.join().unwrap()), (Some(1000), Some(1)));
        channel_limit.close();
        assert!(
            channel_limit.admit(1, 0).is_none()
                && channel_limit.park(1).is_none()
                && channel_limit.keep(1, 0).is_none()
        );
    }
}
