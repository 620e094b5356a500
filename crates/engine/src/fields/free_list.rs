//! [`FreeList`]: a lock-free set of free items that any thread may take from or return to.
//!
//! It has a few places, each of which is empty, holds one item or is closed. A call tries one place after the
//! other with a compare-and-swap each, so it never waits for another thread; everything written to an item
//! before it was returned is visible to the thread that takes it. The cost is linear in the number of places,
//! about the number of batches that a loader keeps ready. A library's queue would do, but cannot be checked
//! by loom: `tests/loom` has the models of this list. Source: own.

use std::{fmt, marker::PhantomData, ptr};

use crate::sync::{AtomicPtr, Ordering};

/// The mark of a closed place: an address where no box can be.
static CLOSED: u8 = 0;

/// A set of at most `capacity` free items.
pub struct FreeList<T> {
    places: Box<[AtomicPtr<T>]>,
    owns: PhantomData<Box<T>>,
}

// SAFETY: the list moves things from one thread to another and never shares them.
unsafe impl<T: Send> Sync for FreeList<T> {}

impl<T> FreeList<T> {
    /// An empty list with `capacity` places.
    pub fn new(capacity: usize) -> Self {
        let places = (0..capacity).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Self { places, owns: PhantomData }
    }

    /// Takes an item, if there is one. It may miss an item that is returned meanwhile.
    pub fn take(&self) -> Option<Box<T>> {
        self.places.iter().find_map(|place| {
            let found = place.load(Ordering::Relaxed);
            let taken = !found.is_null()
                && found != closed()
                && place
                    .compare_exchange(found, ptr::null_mut(), Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            // SAFETY: only boxes are put into places, and only the thread whose exchange empties a place owns
            // its box. The box may have been taken and returned between load and exchange; that makes no
            // difference.
            taken.then(|| unsafe { Box::from_raw(found) })
        })
    }

    /// Puts `item` into the list, or returns it if no place is empty or the list is closed. It may miss a
    /// place that becomes empty meanwhile.
    pub fn leave(&self, item: Box<T>) -> Option<Box<T>> {
        let item = Box::into_raw(item);
        let left = self.places.iter().any(|place| {
            place.compare_exchange(ptr::null_mut(), item, Ordering::Release, Ordering::Relaxed).is_ok()
        });
        // SAFETY: the pointer comes from a box and is in no place.
        (!left).then(|| unsafe { Box::from_raw(item) })
    }

    /// Drops all items; the list accepts none from now on.
    pub fn close(&self) {
        for place in &self.places {
            let found = place.swap(closed(), Ordering::Acquire);
            if !found.is_null() && found != closed() {
                // SAFETY: as in `take`.
                drop(unsafe { Box::from_raw(found) });
            }
        }
    }

    pub fn len(&self) -> usize {
        let places = self.places.iter().map(|place| place.load(Ordering::Relaxed));
        places.filter(|&found| !found.is_null() && found != closed()).count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A pointer that is compared and never dereferenced.
fn closed<T>() -> *mut T {
    (&raw const CLOSED).cast_mut().cast()
}

impl<T> Drop for FreeList<T> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<T> fmt::Debug for FreeList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeList").field("len", &self.len()).field("capacity", &self.places.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
        thread,
    };

    #[test]
    fn holds_as_many_as_it_has_places() {
        let list = FreeList::new(2);
        assert!(list.take().is_none());
        assert!(list.leave(Box::new(1)).is_none());
        assert!(list.leave(Box::new(2)).is_none());
        assert_eq!(list.leave(Box::new(3)), Some(Box::new(3)));
        assert_eq!(list.len(), 2);
        let mut taken = [list.take().unwrap(), list.take().unwrap()];
        taken.sort_unstable();
        assert_eq!(taken, [Box::new(1), Box::new(2)]);
        assert!(list.is_empty());
        assert_eq!(FreeList::new(0).leave(Box::new(3)), Some(Box::new(3)));
    }

    #[test]
    fn a_closed_list_keeps_nothing() {
        let item = Arc::new(());
        let list = FreeList::new(2);
        list.leave(Box::new(item.clone()));
        list.close();
        assert_eq!(Arc::strong_count(&item), 1);
        assert!(list.leave(Box::new(item.clone())).is_some());
        assert!(list.take().is_none());
        list.close();
        assert_eq!(Arc::strong_count(&item), 1);
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        static DROPPED: AtomicUsize = AtomicUsize::new(0);
        struct Counted(usize);
        impl Drop for Counted {
            fn drop(&mut self) {
                DROPPED.fetch_add(1, Relaxed);
            }
        }
        let list = FreeList::new(3);
        thread::scope(|scope| {
            for thread in 0..4 {
                let list = &list;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let mut item = list.take().unwrap_or_else(|| {
                            MADE.fetch_add(1, Relaxed);
                            Box::new(Counted(0))
                        });
                        item.0 = thread;
                        std::hint::spin_loop();
                        assert_eq!(item.0, thread, "another thread has it, too");
                        list.leave(item);
                    }
                });
            }
        });
        drop(list);
        assert_eq!(MADE.load(Relaxed), DROPPED.load(Relaxed));
    }
}
