//! [`Threads`]: a set of threads with one owner, named, started in a known floating-point mode and
//! scheduling policy and with a known stack, joined together.
//!
//! A thread ends when its input disconnects or the run is stopped, without polling. [`Threads::join`] waits a
//! bounded time, then detaches threads that are still in a call, of the system or a long one of the decoder.
//! Such a thread ends when its call returns, and until then uses only shared state that it owns a part of.
//! Several sets share one deadline ([`Retired`]).

use std::{
    io,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::scheduling;
use crate::sync::plain::{Condvar, Mutex};
use crate::{Error, ErrorKind, Result, float_mode};

/// The stack of a thread that may call a function of the user: as large as that of a thread of Python, in
/// which the function ran when it was tested. It is address space until it is used.
const STACK: usize = if cfg!(target_os = "macos") { 16 << 20 } else { 8 << 20 };

/// The beginning of every thread that may call a function of the user.
pub fn builder(name: String) -> thread::Builder {
    thread::Builder::new().name(name).stack_size(STACK)
}

/// How long a join waits for threads before it detaches them.
pub const JOIN_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct ThreadCount {
    count: Mutex<usize>,
    ended: Condvar,
}

/// Counts its thread down, however the thread ends.
struct ThreadEnd(Arc<ThreadCount>, Arc<str>);

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        log::debug!("{} ends", self.1);
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_all();
    }
}

/// A set of threads with one owner; dropping it joins them.
#[derive(Debug)]
pub struct Threads {
    running: Arc<ThreadCount>,
    handles: Vec<JoinHandle<()>>,
    process: u32,
}

impl Default for Threads {
    fn default() -> Self {
        Self { running: Arc::default(), handles: Vec::new(), process: std::process::id() }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if self.is_ours() {
            self.end(Instant::now(), JOIN_TIMEOUT);
        } else {
            self.handles.drain(..).for_each(std::mem::forget);
        }
    }
}

static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Notes that the process is ending: threads that are still at work then are no news.
pub fn note_end() {
    IS_ENDING.store(true, Ordering::Relaxed);
}

/// Threads of abandoned runs that are ending. Dropping it joins them all, within one [`JOIN_TIMEOUT`].
#[derive(Debug, Default)]
pub(crate) struct Retired(Vec<Threads>);

impl Retired {
    /// Adds a set, and removes sets that have ended.
    pub(crate) fn add(&mut self, threads: Threads) {
        self.0.retain(|threads| !threads.have_ended());
        self.0.push(threads);
    }

    /// Joins all, within one [`JOIN_TIMEOUT`].
    pub(crate) fn join(&mut self) {
        let begin = Instant::now();
        // Their drop does not wait again: a joined set has no handles.
        self.0.drain(..).filter(Threads::is_ours).for_each(|mut threads| threads.end(begin, JOIN_TIMEOUT));
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        self.join();
    }
}

impl Threads {
    /// Starts a thread named `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the system cannot start a thread.
    pub fn spawn(&mut self, name: String, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let refused = |error: io::Error| {
            Error::new(ErrorKind::Io, "the system cannot start another thread; lower n_workers")
                .because(error)
        };
        #[cfg(debug_assertions)]
        if super::inject::refuses_thread() {
            return Err(refused(io::ErrorKind::WouldBlock.into()));
        }
        *self.running.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let ends = ThreadEnd(self.running.clone(), name.as_str().into());
        let handle = builder(name)
            .spawn(move || {
                log::debug!("{} starts", ends.1);
                let _ends = ends;
                scheduling::never_preempt_on_wake();
                float_mode::own(work);
            })
            .map_err(refused)?;
        self.handles.push(handle);
        Ok(())
    }

    /// Waits until all threads have ended, up to `timeout` after `begin`, and logs those that it detached.
    pub(crate) fn end(&mut self, begin: Instant, timeout: Duration) {
        let names = self.join(begin + timeout);
        let (Some(first), n) = (names.first(), names.len()) else { return };
        let others = if n > 1 { format!(" and {} more threads", n - 1) } else { String::new() };
        // At the end of the process nothing can be done about it, and a thread that decodes a long clip is
        // usual.
        let level = if IS_ENDING.load(Ordering::Relaxed) { log::Level::Debug } else { log::Level::Warn };
        log::log!(
            level,
            "{first}{others} did not end within {} s, and are detached: each ends with its current record or call",
            timeout.as_secs_f64()
        );
    }

    /// Waits until all threads have ended, up to `deadline`; returns the names of those that it detached.
    fn join(&mut self, deadline: Instant) -> Vec<String> {
        if self.handles.is_empty() {
            return Vec::new();
        }
        let mut count = self.running.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            count = self.running.ended.wait_timeout(count, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let all_ended = *count == 0;
        drop(count);
        let mut release = Vec::new();
        for handle in self.handles.drain(..) {
            if all_ended || handle.is_finished() {
                // The thread has already delivered the payload of its panic.
                let _ = handle.join();
            } else {
                release.push(handle.thread().name().unwrap_or_default().to_owned());
            }
        }
        release
    }

    /// Whether the threads belong to this process; after a fork they exist only in the parent.
    pub fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    pub(crate) fn have_ended(&self) -> bool {
        self.handles.iter().all(JoinHandle::is_finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::{undisturbed, until};
    use std::sync::{atomic::AtomicBool, atomic::Ordering, mpsc};

    /// For threads that end, however late the system lets them.
    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn join_waits_for_the_living_and_lets_go_of_the_hung() {
        let (release, hang) = mpsc::channel::<()>();
        let mut threads = Threads::default();
        threads.spawn("slow".into(), || thread::sleep(Duration::from_millis(30))).unwrap();
        assert!(threads.join(Instant::now() + SOON).is_empty());
        threads.spawn("quick".into(), || ()).unwrap();
        until("quick has ended", || threads.have_ended());
        threads
            .spawn("hung".into(), move || {
                let _ = hang.recv();
            })
            .unwrap();
        assert_eq!(threads.join(Instant::now() + JOIN_TIMEOUT), ["hung"]);
        drop(release);
        assert!(threads.join(Instant::now() + JOIN_TIMEOUT).is_empty());
    }

    #[test]
    fn many_hung_sets_share_one_deadline() {
        let trial = || {
            let mut retired = Retired::default();
            let releases: Vec<_> = (0..6)
                .map(|_| {
                    let (release, hang) = mpsc::channel::<()>();
                    let mut threads = Threads::default();
                    threads.spawn("quick".into(), || ()).unwrap();
                    threads.spawn("hung".into(), move || hang.recv().unwrap_or_default()).unwrap();
                    retired.add(threads);
                    release
                })
                .collect();
            let start = Instant::now();
            drop(retired);
            let waited = start.elapsed();
            drop(releases);
            assert!(waited >= JOIN_TIMEOUT, "{waited:?}");
            waited
        };
        undisturbed(trial, |&waited| waited < 2 * JOIN_TIMEOUT);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn threads_keep_denormals_whatever_the_parent_does() {
        let kept = Arc::new(AtomicBool::new(false));
        float_mode::flushing(|| {
            let mut threads = Threads::default();
            threads
                .spawn("float".into(), {
                    let kept = kept.clone();
                    move || kept.store(std::hint::black_box(f32::MIN_POSITIVE) / 2.0 > 0.0, Ordering::Relaxed)
                })
                .unwrap();
            assert!(threads.join(Instant::now() + SOON).is_empty());
        });
        assert!(kept.load(Ordering::Relaxed));
    }
}
