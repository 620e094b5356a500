//! Locks of objects that still work in a child after a fork: datasets, caches, tokenizers.
//!
//! A fork copies the memory and only the calling thread. A lock that another thread held at that moment stays
//! locked in the child forever, and the guarded data may be half written. So a child waits for a lock of its
//! parent at most `LIMIT`; then the call returns an error that says what to do. A lock that the child was
//! the first to use, or has had alone, is awaited without a limit. Taking a free lock costs the same in both.
//!
//! A value that is made at its first use ([`OnceLock`]) has no such limit: a child could not make it again.
//! So a fork waits for threads that are making one ([`Undivided`]).
//!
//! Loaders do not need this: in a child every call is refused before it touches a lock.

use std::{
    cell::Cell,
    process,
    sync::{
        LockResult, PoisonError, TryLockError, TryLockResult,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{Error, ErrorKind, Result, sync::plain as sync};

/// How long a child waits for a lock of its parent. The holder may be a thread of the child or one that no
/// longer exists.
const LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// A mutex that knows the process whose threads may hold it.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    lock: sync::Mutex<T>,
    owner: OwnerProcess,
}

/// A lock for readers and writers that knows the process whose threads may hold it.
#[derive(Debug, Default)]
pub struct RwLock<T> {
    lock: sync::RwLock<T>,
    owner: OwnerProcess,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self { lock: sync::Mutex::new(value), owner: OwnerProcess::new() }
    }
}

impl<T> RwLock<T> {
    pub const fn new(value: T) -> Self {
        Self { lock: sync::RwLock::new(value), owner: OwnerProcess::new() }
    }
}

/// The process whose threads may hold a lock; 0 before its first use.
#[derive(Debug, Default)]
struct OwnerProcess(AtomicU32);

impl OwnerProcess {
    const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Makes this process the owner of a lock that was not used yet. To be called before the lock is taken:
    /// then a lock that is held at a fork has an owner.
    fn note(&self) {
        if self.0.load(Ordering::Relaxed) == 0 {
            let _ = self.0.compare_exchange(0, process::id(), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Makes this process the owner of a lock that the calling thread has alone: no thread of the parent
    /// has it.
    fn take(&self) {
        if self.is_other() {
            self.0.store(process::id(), Ordering::Relaxed);
        }
    }

    /// Whether the lock was used before the fork that made this process, so that its holder may not exist.
    fn is_other(&self) -> bool {
        self.0.load(Ordering::Relaxed) != process::id()
    }
}

/// Locks a mutex, even if it is poisoned.
///
/// # Errors
/// [`ErrorKind::Closed`] in a child, if a thread of the parent may have locked it and it stays locked.
pub fn lock<T>(mutex: &Mutex<T>) -> Result<sync::MutexGuard<'_, T>> {
    taken(|| mutex.lock.try_lock(), || mutex.lock.lock(), &mutex.owner).inspect(|_| mutex.owner.take())
}

/// Locks for reading, even if it is poisoned.
///
/// # Errors
/// As [`lock`].
pub fn read<T>(lock: &RwLock<T>) -> Result<sync::RwLockReadGuard<'_, T>> {
    // The owner stays: another reader of the parent may not have left.
    taken(|| lock.lock.try_read(), || lock.lock.read(), &lock.owner)
}

/// Locks for writing, even if it is poisoned.
///
/// # Errors
/// As [`lock`].
pub fn write<T>(lock: &RwLock<T>) -> Result<sync::RwLockWriteGuard<'_, T>> {
    taken(|| lock.lock.try_write(), || lock.lock.write(), &lock.owner).inspect(|_| lock.owner.take())
}

fn taken<G>(
    look: impl Fn() -> TryLockResult<G>,
    wait: impl FnOnce() -> LockResult<G>,
    owner: &OwnerProcess,
) -> Result<G> {
    owner.note();
    let looked = || match look() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    };
    if let Some(guard) = looked() {
        return Ok(guard);
    }
    if !owner.is_other() {
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

/// Threads in sections that no fork divides, and forks under way.
static UNDIVIDED: AtomicUsize = AtomicUsize::new(0);
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// The pause between two looks at a fork, or at threads for which it waits.
const FORK_PAUSE: Duration = Duration::from_micros(50);
/// The longest time that a section waits for a fork, and a fork for sections. Without a limit they would
/// wait for each other forever if a hook of another library waits for a lock that the section's thread holds.
const FORK_LIMIT: Duration = Duration::from_secs(1);

fn fork_limit() -> Duration {
    #[cfg(debug_assertions)]
    if inject::is_slow() {
        return 60 * FORK_LIMIT;
    }
    FORK_LIMIT
}

thread_local! {
    /// Whether this thread is in such a section: an inner one begins even if a fork waits for the outer one.
    static IS_WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// A section that no fork divides: a fork waits until it ends, and it begins after a fork under way, both at
/// most for `FORK_LIMIT`. It must be short; it may wait for Python, which the forking thread does not hold
/// while it waits.
#[derive(Debug)]
pub struct Undivided {
    is_outer: bool,
}

impl Undivided {
    /// Begins a section, after forks under way.
    pub fn begin() -> Self {
        let is_outer = !IS_WITHIN.replace(true);
        if is_outer {
            let begin = Instant::now();
            UNDIVIDED.fetch_add(1, Ordering::SeqCst);
            while FORKS.load(Ordering::SeqCst) > 0 && begin.elapsed() < fork_limit() {
                UNDIVIDED.fetch_sub(1, Ordering::SeqCst);
                thread::sleep(FORK_PAUSE);
                UNDIVIDED.fetch_add(1, Ordering::SeqCst);
            }
        }
        Self { is_outer }
    }
}

impl Drop for Undivided {
    fn drop(&mut self) {
        if self.is_outer {
            IS_WITHIN.set(false);
            UNDIVIDED.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Announces a fork; it may begin once [`await_undivided`] has returned.
pub fn announce_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

/// Waits for sections that no fork divides.
pub fn await_undivided() {
    let begin = Instant::now();
    while UNDIVIDED.load(Ordering::SeqCst) > 0 && begin.elapsed() < fork_limit() {
        thread::sleep(FORK_PAUSE);
    }
}

/// Called in the parent after a fork.
pub fn end_fork() {
    // Zero already if a C extension called the hooks after a fork, but not those before it.
    let _ = FORKS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |forks| forks.checked_sub(1));
}

/// Called in the child after a fork.
pub fn end_fork_in_child() {
    FORKS.store(0, Ordering::SeqCst);
    UNDIVIDED.store(0, Ordering::SeqCst);
}

/// A value that one thread makes at its first use; a fork waits until it is made.
#[derive(Debug)]
pub struct OnceLock<T>(std::sync::OnceLock<T>);

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceLock<T> {
    pub const fn new() -> Self {
        Self(std::sync::OnceLock::new())
    }

    /// The value, if it is made.
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(made) = self.get() {
            return made;
        }
        let _undivided = Undivided::begin();
        self.0.get_or_init(|| {
            #[cfg(debug_assertions)]
            inject::pause();
            make()
        })
    }
}

/// For tests of forks: makes values slowly.
#[cfg(debug_assertions)]
pub mod inject {
    use std::sync::atomic::Ordering;
    use std::{sync::atomic::AtomicU64, thread, time::Duration};

    static PAUSE_MS: AtomicU64 = AtomicU64::new(0);

    /// How long a thread pauses before it makes a value. Forks and sections then wait longer for each other,
    /// so that tests do not depend on how busy the machine is.
    pub fn slow_values(pause_ms: u64) {
        PAUSE_MS.store(pause_ms, Ordering::SeqCst);
    }

    /// The threads that make a value now.
    pub fn in_the_making() -> usize {
        super::UNDIVIDED.load(Ordering::SeqCst)
    }

    pub(super) fn is_slow() -> bool {
        PAUSE_MS.load(Ordering::SeqCst) > 0
    }

    pub(super) fn pause() {
        let ms = PAUSE_MS.load(std::sync::atomic::Ordering::SeqCst);
        if ms > 0 {
            thread::sleep(Duration::from_millis(ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_fork_waits_for_values_in_the_making_and_values_for_a_fork() {
        static OUTER: OnceLock<u32> = OnceLock::new();
        static INNER: OnceLock<u32> = OnceLock::new();
        let (is_making, making) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let (is_forked, forked) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                OUTER.get_or_init(|| {
                    is_making.send(()).unwrap();
                    released.recv().unwrap();
                    // The fork waits for this thread, which needs another value.
                    INNER.get_or_init(|| 1) + 1
                })
            });
            making.recv().unwrap();
            announce_fork();
            scope.spawn(move || {
                await_undivided();
                is_forked.send(OUTER.get().copied()).unwrap();
            });
            release.send(()).unwrap();
            assert_eq!(forked.recv().unwrap(), Some(2));
            let later = scope.spawn(|| drop(Undivided::begin()));
            assert!(!later.is_finished(), "it waits for the fork");
            end_fork();
            later.join().unwrap();
        });
    }

    /// As if the process that used the lock last were another one.
    fn inherited(owner: &OwnerProcess) {
        owner.0.store(process::id().wrapping_add(1), Ordering::Relaxed);
    }

    #[test]
    fn a_child_does_not_wait_for_ever_for_a_lock_of_its_parent() {
        let mutex = Mutex::new(3);
        assert_eq!(*lock(&mutex).unwrap(), 3);
        inherited(&mutex.owner);
        let held = mutex.lock.lock().unwrap();
        let error = lock(&mutex).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Closed);
        assert!(error.message.contains("open it again"), "{error}");
        drop(held);
        assert_eq!(*lock(&mutex).unwrap(), 3);
        assert!(
            !mutex.owner.is_other(),
            "the child has had it alone, so the parent's threads do not hold it"
        );
    }

    #[test]
    fn readers_of_a_child_do_not_prove_that_no_reader_of_the_parent_is_left() {
        let shared = RwLock::new(0);
        assert_eq!(*write(&shared).unwrap(), 0);
        inherited(&shared.owner);
        assert_eq!(*read(&shared).unwrap(), 0);
        assert!(shared.owner.is_other());
        assert_eq!(*write(&shared).unwrap(), 0);
        assert!(!shared.owner.is_other());
    }

    #[test]
    fn its_own_lock_is_awaited_as_long_as_it_takes() {
        let shared = RwLock::new(0);
        let held = write(&shared).unwrap();
        thread::scope(|scope| {
            let other = scope.spawn(|| *read(&shared).unwrap());
            drop(held);
            assert_eq!(other.join().unwrap(), 0);
        });
        assert!(!shared.owner.is_other());
    }
}
