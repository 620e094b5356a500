//! Small parts of objects, kept for all readers of a source.
//!
//! Each reader of a shard needs the headers of its record batches, and a request for some hundred bytes takes
//! as long as one for a page. So small reads are requested as whole pages, once for all readers, and the last
//! [`MOST`] answers are kept: at most 16 MiB.

use std::{
    collections::VecDeque,
    io,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

use super::answer::AnswerSlot;

/// The bytes of a page; longer reads are requests of their own.
pub(super) const PAGE: u64 = 16 << 10;
/// The most answers that are kept, each of one or two pages.
const MOST: usize = 512;
/// The most bytes that are kept.
pub(super) const MOST_BYTES: u64 = 2 * PAGE * MOST as u64;

/// The whole pages around a range of an object of `size` bytes.
pub(super) fn around(range: Range<u64>, size: u64) -> Range<u64> {
    range.start / PAGE * PAGE..range.end.next_multiple_of(PAGE).min(size)
}

struct KeptPage {
    object: u64,
    range: Range<u64>,
    slot: Arc<AnswerSlot<Bytes>>,
}

/// The answers, the last one used at the end.
#[derive(Default)]
pub(super) struct Pages(Mutex<VecDeque<KeptPage>>);

impl Pages {
    /// The slot of a range: one that is kept, or a new one that `request` fills.
    pub(super) fn slot(
        &self,
        object: u64,
        range: &Range<u64>,
        request: impl FnOnce(Arc<AnswerSlot<Bytes>>) -> io::Result<()>,
    ) -> io::Result<Arc<AnswerSlot<Bytes>>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().rposition(|kept| kept.object == object && kept.range == *range);
        if let Some(found) = found.and_then(|at| kept.remove(at)) {
            let slot = found.slot.clone();
            kept.push_back(found);
            return Ok(slot);
        }
        let slot = Arc::new(AnswerSlot::default());
        request(slot.clone())?;
        if kept.len() == MOST {
            kept.pop_front();
        }
        // bounded: `MOST`.
        kept.push_back(KeptPage { object, range: range.clone(), slot: slot.clone() });
        Ok(slot)
    }

    /// Keeps a page that was not requested by itself.
    pub(super) fn keep(&self, object: u64, range: Range<u64>, bytes: Bytes) {
        // Whole pages only: others are found by no read.
        if around(0..1, range.end) == range {
            let slot = self.slot(object, &range, |_| Ok(()));
            slot.into_iter().for_each(|slot| slot.fill(Ok(bytes.clone())));
        }
    }

    /// Forgets an answer that is an error.
    pub(super) fn forget(&self, slot: &Arc<AnswerSlot<Bytes>>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|kept| !Arc::ptr_eq(&kept.slot, slot));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn pages_are_whole_and_end_with_the_object() {
        assert_eq!(around(0..8, 1 << 20), 0..PAGE);
        assert_eq!(around(PAGE - 1..PAGE + 1, 1 << 20), 0..2 * PAGE);
        assert_eq!(around(PAGE..2 * PAGE, 1 << 20), PAGE..2 * PAGE);
        assert_eq!(around(5..100, 100), 0..100);
    }

    #[test]
    fn the_same_range_is_requested_once_while_it_is_kept() {
        let (pages, n_requests) = (Pages::default(), Cell::new(0));
        let slot = |object, at: u64| {
            let asked = |_| {
                n_requests.set(n_requests.get() + 1);
                Ok(())
            };
            pages.slot(object, &(at * PAGE..(at + 1) * PAGE), asked).unwrap()
        };
        let first = slot(0, 0);
        assert!(Arc::ptr_eq(&first, &slot(0, 0)));
        for at in 1..MOST as u64 {
            slot(0, at);
        }
        // One more: the oldest goes, which is not the one that was just used.
        assert!(Arc::ptr_eq(&first, &slot(0, 0)));
        slot(1, 0);
        assert!(Arc::ptr_eq(&first, &slot(0, 0)));
        slot(0, 1);
        assert_eq!(n_requests.get(), MOST + 2);
        pages.forget(&first);
        assert!(!Arc::ptr_eq(&first, &slot(0, 0)));
    }
}
