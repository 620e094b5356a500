//! [`SharedOnce`]: values that several workers need, each made by one of them.
//!
//! A thread that needs a part makes it, unless another one is making it: then it waits for that. A worker
//! waits only after it has made every part that it began, so that no two wait for each other. A part is
//! dropped when its last user leaves. Source: own.

use std::{mem, ops::Range};

use smallvec::SmallVec;

use crate::sync::{Condvar, Mutex, MutexGuard};

#[derive(Debug)]
enum SharedPart<T> {
    Open,
    Begun,
    Made(T),
    /// It could not be made, or all its users have left.
    Gone,
}

#[derive(Debug)]
struct CountedPart<T> {
    part: SharedPart<T>,
    /// Users that have not left.
    users: u32,
}

/// Parts that users of neighbouring ranges share. Cloning one must be cheap.
#[derive(Debug)]
pub struct SharedOnce<T> {
    parts: Mutex<Vec<CountedPart<T>>>,
    changed: Condvar,
}

/// Marks a part that is begun as gone, unless it was made: also when `make` panics.
struct Begun<'a, T> {
    parts: &'a SharedOnce<T>,
    at: usize,
}

impl<T> Drop for Begun<'_, T> {
    fn drop(&mut self) {
        let mut parts = self.parts.lock();
        if matches!(parts[self.at].part, SharedPart::Begun) {
            parts[self.at].part = SharedPart::Gone;
        }
        drop(parts);
        self.parts.changed.notify_all();
    }
}

impl<T: Clone> SharedOnce<T> {
    /// Parts with these numbers of users, each of which calls [`SharedOnce::get`] and then
    /// [`SharedOnce::leave`].
    pub fn new(users: impl IntoIterator<Item = u32>) -> Self {
        let counted = |users| CountedPart { part: SharedPart::Open, users };
        Self { parts: Mutex::new(users.into_iter().map(counted).collect()), changed: Condvar::new() }
    }

    /// The parts of a range; `None` if one of them is gone. `make` is called without a lock, for those not
    /// yet begun; `None` of it makes the part gone.
    ///
    /// # Panics
    /// If there are no such parts.
    pub fn get(
        &self,
        range: Range<usize>,
        mut make: impl FnMut(usize) -> Option<T>,
    ) -> Option<SmallVec<[T; 8]>> {
        let mut at = range.start;
        while at < range.end {
            let mut parts = self.lock();
            while at < range.end && !matches!(parts[at].part, SharedPart::Open) {
                at += 1;
            }
            if at < range.end {
                parts[at].part = SharedPart::Begun;
                drop(parts);
                let begun = Begun { parts: self, at };
                if let Some(made) = make(at) {
                    self.lock()[at].part = SharedPart::Made(made);
                }
                drop(begun);
            }
        }
        let mut parts = self.lock();
        while parts[range.clone()].iter().any(|counted| matches!(counted.part, SharedPart::Begun)) {
            parts = self.changed.wait(parts).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        let made = |counted: &CountedPart<T>| match &counted.part {
            SharedPart::Made(made) => Some(made.clone()),
            _ => None,
        };
        parts[range].iter().map(made).collect()
    }

    /// Notes that a user of a range needs it no longer; calls `last` with each part that has no other user.
    ///
    /// # Panics
    /// If there are no such parts.
    pub fn leave(&self, range: Range<usize>, mut last: impl FnMut(T)) {
        for at in range {
            let mut parts = self.lock();
            let counted = &mut parts[at];
            counted.users = counted.users.saturating_sub(1);
            if counted.users == 0 && !matches!(counted.part, SharedPart::Begun) {
                let part = mem::replace(&mut counted.part, SharedPart::Gone);
                drop(parts);
                if let SharedPart::Made(made) = part {
                    last(made);
                }
            }
        }
    }
}

impl<T> SharedOnce<T> {
    fn lock(&self) -> MutexGuard<'_, Vec<CountedPart<T>>> {
        self.parts.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
    };

    use super::*;

    #[test]
    fn each_part_is_made_once_and_dropped_by_its_last_user() {
        let parts = SharedOnce::new([1, 2, 1]);
        let made = AtomicUsize::new(0);
        let get = |range| {
            parts.get(range, |at| {
                made.fetch_add(1, Ordering::Relaxed);
                Some(Arc::new(at))
            })
        };
        let first = get(0..2).unwrap();
        assert_eq!(first.iter().map(|part| **part).collect::<Vec<_>>(), [0, 1]);
        assert!(Arc::ptr_eq(&first[1], &get(1..3).unwrap()[0]));
        assert_eq!(made.load(Ordering::Relaxed), 3);
        let mut last = Vec::new();
        parts.leave(0..2, |part| last.push(*part));
        assert_eq!(last, [0]);
        parts.leave(1..3, |part| last.push(*part));
        assert_eq!(last, [0, 1, 2]);
        assert_eq!(get(0..1), None, "nobody is left to free it");
    }

    #[test]
    fn a_part_that_fails_is_gone_for_all() {
        let parts = SharedOnce::new([2, 2]);
        let caught =
            catch_unwind(AssertUnwindSafe(|| parts.get(0..2, |_| -> Option<u8> { panic!("at work") })));
        assert!(caught.is_err());
        assert_eq!(parts.get(0..1, |_| Some(1)), None);
        assert_eq!(parts.get(1..2, |_| None), None);
        assert_eq!(parts.get(0..2, |_| Some(1)), None);
    }

    #[test]
    fn many_threads_share_all_parts() {
        let (n, width, threads) = (200, 5, 8);
        let users =
            (0..n + width - 1).map(|at: usize| (at.min(n - 1) - at.saturating_sub(width - 1) + 1) as u32);
        let parts = SharedOnce::new(users);
        let (next, made) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        if at >= n {
                            break;
                        }
                        let make = |at| {
                            made.fetch_add(1, Ordering::Relaxed);
                            Some(Arc::new(at))
                        };
                        let found = parts.get(at..at + width, make).unwrap();
                        assert!(found.iter().zip(at..).all(|(part, at)| **part == at));
                        drop(found);
                        parts.leave(at..at + width, |part| assert_eq!(Arc::strong_count(&part), 1));
                    }
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), n + width - 1);
    }
}
