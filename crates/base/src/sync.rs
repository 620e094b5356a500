//! Locks: the standard library's; loom's for code with a model in `tests/loom`, under `--cfg loom`; and with
//! debug assertions, the standard library's with a count of the guards that a thread has ([`plain`]).
//!
//! User code may call any method of forebay, and a signal handler may interrupt it, so a thread that calls
//! user code must hold no lock of forebay. [`check_none_held`] asserts that, where Python is attached. Locks
//! of `source/` and `decode/` are not counted: neither calls Python, nor anything that does.

#[cfg(loom)]
pub use loom::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
pub use plain::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub use std::sync::{
    Arc,
    atomic::{AtomicPtr, AtomicUsize, Ordering},
};

/// The locks for code without a model.
pub mod plain {
    #[cfg(all(not(loom), debug_assertions))]
    pub use super::counted::{Condvar, Count, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    #[cfg(any(loom, not(debug_assertions)))]
    pub use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

    #[cfg(any(loom, not(debug_assertions)))]
    #[derive(Debug)]
    pub struct Count;

    #[cfg(any(loom, not(debug_assertions)))]
    #[allow(clippy::new_without_default, reason = "the other one counts")]
    impl Count {
        pub fn new() -> Self {
            Self
        }
    }
}

/// Asserts, with debug assertions, that this thread holds no lock of forebay.
#[inline]
pub fn check_none_held() {
    #[cfg(all(not(loom), debug_assertions))]
    assert_eq!(counted::held(), 0, "a thread that holds a lock of forebay attaches to Python");
}

/// The standard library's locks, whose guards are counted by thread.
#[cfg(all(not(loom), debug_assertions))]
mod counted {
    use std::{
        cell::Cell,
        ops::{Deref, DerefMut},
        sync::{self, LockResult, PoisonError, TryLockError, TryLockResult, WaitTimeoutResult},
        time::Duration,
    };

    thread_local! {
        static HELD: Cell<usize> = const { Cell::new(0) };
    }

    /// The guards that this thread has.
    pub(super) fn held() -> usize {
        HELD.try_with(Cell::get).unwrap_or(0)
    }

    /// Counts as one guard until it is dropped.
    #[derive(Debug)]
    pub struct Count;

    #[allow(clippy::new_without_default, reason = "it counts")]
    impl Count {
        pub fn new() -> Self {
            let _ = HELD.try_with(|held| held.set(held.get() + 1));
            Self
        }
    }

    impl Drop for Count {
        fn drop(&mut self) {
            let _ = HELD.try_with(|held| held.set(held.get().saturating_sub(1)));
        }
    }

    fn locked<G, C>(result: LockResult<G>, counted: impl Fn(G) -> C) -> LockResult<C> {
        match result {
            Ok(guard) => Ok(counted(guard)),
            Err(poisoned) => Err(PoisonError::new(counted(poisoned.into_inner()))),
        }
    }

    fn tried<G, C>(result: TryLockResult<G>, counted: impl Fn(G) -> C) -> TryLockResult<C> {
        match result {
            Ok(guard) => Ok(counted(guard)),
            Err(TryLockError::Poisoned(poisoned)) => {
                Err(TryLockError::Poisoned(PoisonError::new(counted(poisoned.into_inner()))))
            }
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    /// A guard of the standard library, counted.
    macro_rules! guard {
        ($name:ident) => {
            #[derive(Debug)]
            pub struct $name<'a, T: ?Sized> {
                guard: sync::$name<'a, T>,
                #[allow(dead_code, reason = "counts until it is dropped")]
                count: Count,
            }

            impl<'a, T: ?Sized> $name<'a, T> {
                fn new(guard: sync::$name<'a, T>) -> Self {
                    Self { guard, count: Count::new() }
                }
            }

            impl<T: ?Sized> Deref for $name<'_, T> {
                type Target = T;

                fn deref(&self) -> &T {
                    &self.guard
                }
            }
        };
    }

    guard!(MutexGuard);
    guard!(RwLockReadGuard);
    guard!(RwLockWriteGuard);

    impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.guard
        }
    }

    impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.guard
        }
    }

    #[derive(Debug, Default)]
    pub struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub const fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
        }

        pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            locked(self.0.lock(), MutexGuard::new)
        }

        pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
            tried(self.0.try_lock(), MutexGuard::new)
        }

        pub fn get_mut(&mut self) -> LockResult<&mut T> {
            self.0.get_mut()
        }

        pub fn into_inner(self) -> LockResult<T> {
            self.0.into_inner()
        }
    }

    #[derive(Debug, Default)]
    pub struct RwLock<T>(sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub const fn new(value: T) -> Self {
            Self(sync::RwLock::new(value))
        }

        pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
            locked(self.0.read(), RwLockReadGuard::new)
        }

        pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
            locked(self.0.write(), RwLockWriteGuard::new)
        }

        pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
            tried(self.0.try_read(), RwLockReadGuard::new)
        }

        pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
            tried(self.0.try_write(), RwLockWriteGuard::new)
        }
    }

    #[derive(Debug, Default)]
    pub struct Condvar(sync::Condvar);

    impl Condvar {
        pub const fn new() -> Self {
            Self(sync::Condvar::new())
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }

        pub fn wait<'a, T>(&self, held: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
            let MutexGuard { guard, count: _count } = held;
            locked(self.0.wait(guard), MutexGuard::new)
        }

        pub fn wait_while<'a, T>(
            &self,
            held: MutexGuard<'a, T>,
            condition: impl FnMut(&mut T) -> bool,
        ) -> LockResult<MutexGuard<'a, T>> {
            let MutexGuard { guard, count: _count } = held;
            locked(self.0.wait_while(guard, condition), MutexGuard::new)
        }

        pub fn wait_timeout<'a, T>(
            &self,
            held: MutexGuard<'a, T>,
            timeout: Duration,
        ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
            let MutexGuard { guard, count: _count } = held;
            locked(self.0.wait_timeout(guard, timeout), |(guard, waited)| (MutexGuard::new(guard), waited))
        }

        pub fn wait_timeout_while<'a, T>(
            &self,
            held: MutexGuard<'a, T>,
            timeout: Duration,
            condition: impl FnMut(&mut T) -> bool,
        ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
            let MutexGuard { guard, count: _count } = held;
            let waited = self.0.wait_timeout_while(guard, timeout, condition);
            locked(waited, |(guard, waited)| (MutexGuard::new(guard), waited))
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn guards_are_counted_by_thread_and_through_waits() {
            let (mutex, shared, changed) = (Mutex::new(0), RwLock::new(0), Condvar::new());
            assert_eq!(held(), 0);
            let mut guard = mutex.lock().unwrap();
            *guard += 1;
            assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
            let both = (shared.read().unwrap(), shared.try_read().unwrap());
            assert_eq!(held(), 3);
            drop(both);
            let (guard, waited) = changed.wait_timeout(guard, Duration::ZERO).unwrap();
            assert!(waited.timed_out());
            std::thread::scope(|scope| assert_eq!(scope.spawn(held).join().unwrap(), 0));
            let (guard, _) = changed.wait_timeout_while(guard, Duration::ZERO, |n| *n > 0).unwrap();
            assert_eq!((held(), *guard), (1, 1));
            drop(guard);
            *shared.write().unwrap() += 1;
            assert_eq!(held(), 0);
        }
    }
}
