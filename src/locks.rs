//! Locks of objects that still work in a child after a fork: datasets, caches, tokenizers.
//!
//! A fork copies the memory and only the calling thread. A lock that another thread held at that moment stays
//! locked in the child forever, and the guarded data may be half written. So a child waits for a lock at most
//! [`LIMIT`]; then the call returns an error that says what to do. Other processes wait without a limit.
//! Taking a free lock costs the same in both.
//!
//! Loaders do not need this: in a child every call is refused before it touches a lock.

use std::{
    process,
    sync::{
        LockResult, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
        TryLockResult,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{Error, ErrorKind, Result};

/// How long a child waits for a lock. The holder may be a thread of the child or one that no longer exists.
const LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// The process of the first call; 0 before it.
static HOME: AtomicU32 = AtomicU32::new(0);

/// Whether this process is a child, by fork, of one that called this before.
pub(crate) fn is_forked() -> bool {
    let here = process::id();
    match HOME.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => false,
        Err(home) => home != here,
    }
}

/// Locks a mutex, even if it is poisoned.
///
/// # Errors
/// [`ErrorKind::Closed`] in a child, if it stays locked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    taken(|| mutex.try_lock(), || mutex.lock(), is_forked)
}

/// Locks for reading, even if it is poisoned.
///
/// # Errors
/// As [`lock`].
pub(crate) fn read<T>(lock: &RwLock<T>) -> Result<RwLockReadGuard<'_, T>> {
    taken(|| lock.try_read(), || lock.read(), is_forked)
}

/// Locks for writing, even if it is poisoned.
///
/// # Errors
/// As [`lock`].
pub(crate) fn write<T>(lock: &RwLock<T>) -> Result<RwLockWriteGuard<'_, T>> {
    taken(|| lock.try_write(), || lock.write(), is_forked)
}

fn taken<G>(
    look: impl Fn() -> TryLockResult<G>,
    wait: impl FnOnce() -> LockResult<G>,
    is_forked: impl FnOnce() -> bool,
) -> Result<G> {
    let looked = || match look() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    };
    if let Some(guard) = looked() {
        return Ok(guard);
    }
    if !is_forked() {
        return Ok(wait().unwrap_or_else(PoisonError::into_inner));
    }
    let begin = Instant::now();
    while begin.elapsed() < LIMIT {
        if let Some(guard) = looked() {
            return Ok(guard);
        }
        thread::sleep(PAUSE);
    }
    Err(Error::new(
        ErrorKind::Closed,
        "a thread of the parent process used this object at the moment of the fork, so it is unusable in this process; \
         open it again here, or fork while no thread reads",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_does_not_wait_for_ever() {
        let mutex = Mutex::new(3);
        assert_eq!(*lock(&mutex).unwrap(), 3);
        let held = lock(&mutex).unwrap();
        let error = taken(|| mutex.try_lock(), || mutex.lock(), || true).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Closed);
        assert!(error.message.contains("open it again"), "{error}");
        drop(held);
        assert_eq!(*taken(|| mutex.try_lock(), || mutex.lock(), || true).unwrap(), 3);
    }

    #[test]
    fn a_parent_waits_as_ever() {
        let shared = RwLock::new(0);
        let held = write(&shared).unwrap();
        thread::scope(|scope| {
            let other = scope.spawn(|| *read(&shared).unwrap());
            drop(held);
            assert_eq!(other.join().unwrap(), 0);
        });
        assert!(!is_forked());
    }
}
