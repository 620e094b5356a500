//! [`RunQueue`]: how long the threads of a loader were ready to run and waited for a core.
//!
//! A thread that was woken counts as waiting until it runs, and one that is descheduled counts as working. So
//! on a busy machine the meters alone cannot tell a slow stage from one that other processes keep off the
//! cores. Linux counts this wait for each thread in `/proc/self/task/<tid>/schedstat`: nanoseconds on a core,
//! nanoseconds ready without one, time slices. A sample reads it for all threads of the loader. A thread that
//! ends adds its last figure; running threads do nothing for it. On other systems, and where the file cannot
//! be read, the wait is unknown.

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use crate::engine::{observe::activity::Role, threads::autoscale::cpu_s};
use crate::sync::plain::Mutex;

/// The number of a thread, as the system has it.
pub(crate) type Tid = i32;

/// A running thread of the loader.
#[derive(Debug)]
struct Thread {
    tid: Tid,
    role: Role,
    /// Nanoseconds that were added to the total of its role.
    counted: AtomicU64,
}

/// The waits of all threads of one loader, over all its runs.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    /// Nanoseconds by role: I/O threads, workers, the collator.
    totals: [AtomicU64; 3],
    is_known: AtomicBool,
    /// Locked while a thread starts or ends and while the list is copied, never while a file is read.
    threads: Mutex<Vec<Arc<Thread>>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitSample {
    pub(crate) at: Instant,
    /// Seconds of the I/O threads, of the workers and of the collator; `None` if the system does not tell.
    pub(crate) waited_s: Option<[f64; 3]>,
    /// The thread that takes batches, and its seconds.
    pub(crate) consumer: Option<(Tid, f64)>,
    pub(crate) cpu_s: f64,
}

impl RunQueue {
    /// Counts the current thread, until the guard is dropped.
    pub(crate) fn enter(&self, role: Role) -> impl Drop + use<'_> {
        struct Leaves<'a>(&'a RunQueue, Option<Arc<Thread>>);
        impl Drop for Leaves<'_> {
            fn drop(&mut self) {
                if let Some(thread) = &self.1 {
                    self.0.count(thread);
                    let mut threads = self.0.threads.lock().unwrap_or_else(PoisonError::into_inner);
                    threads.retain(|other| !Arc::ptr_eq(other, thread));
                }
            }
        }
        let thread = own_tid().map(|tid| Arc::new(Thread { tid, role, counted: AtomicU64::new(0) }));
        if let Some(thread) = &thread {
            self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread.clone());
        }
        Leaves(self, thread)
    }

    /// Reads the files of all threads, and of `consumer`: some microseconds each.
    pub(crate) fn sample(&self, consumer: Option<Tid>) -> WaitSample {
        // Do not wait for the lock: after a fork it may stay locked forever.
        let threads = self.threads.try_lock().map(|threads| threads.clone()).unwrap_or_default();
        threads.iter().for_each(|thread| self.count(thread));
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        WaitSample {
            at: Instant::now(),
            waited_s: self
                .is_known
                .load(Relaxed)
                .then(|| self.totals.each_ref().map(|total| seconds(total.load(Relaxed)))),
            consumer: consumer.and_then(|tid| Some((tid, seconds(waited(tid)?)))),
            cpu_s: cpu_s(),
        }
    }

    /// Adds what a thread has waited since it was counted last. Two threads may do so at a time.
    fn count(&self, thread: &Thread) {
        let Some(waited) = waited(thread.tid) else { return };
        let total = match thread.role {
            Role::Reader => &self.totals[0],
            Role::Worker => &self.totals[1],
            Role::Collator => &self.totals[2],
            // Not a thread of the loader: each sample names it.
            Role::Consumer => return,
        };
        total.fetch_add(waited.saturating_sub(thread.counted.fetch_max(waited, Relaxed)), Relaxed);
        self.is_known.store(true, Relaxed);
    }
}

/// The number of the current thread; `None` where the system has no such files.
pub(crate) fn own_tid() -> Option<Tid> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the call has no arguments and always succeeds.
        Some(unsafe { libc::gettid() })
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Nanoseconds that a thread of this process was ready and had no core.
fn waited(tid: Tid) -> Option<u64> {
    parse(&std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).ok()?)
}

/// The second number; `None` if the system does not count (all are 0).
fn parse(schedstat: &str) -> Option<u64> {
    let mut numbers = schedstat.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(on_core)), Some(Ok(waited))) = (numbers.next(), numbers.next()) else { return None };
    (on_core > 0 || waited > 0).then_some(waited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_wait() {
        assert_eq!(parse("953514166 1139076026 284\n"), Some(1_139_076_026));
        assert_eq!(parse("953514166 0 1\n"), Some(0));
        for unknown in ["0 0 0\n", "", "7", "one two three", "-1 5 1"] {
            assert_eq!(parse(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_thread_counts_once_and_after_its_end() {
        let queue = RunQueue::default();
        assert!(queue.sample(None).waited_s.is_none(), "no thread was counted");
        let guard = queue.enter(Role::Collator);
        let first = queue.sample(own_tid());
        let threads = queue.threads.lock().unwrap().clone();
        drop(guard);
        assert!(queue.threads.lock().unwrap().is_empty());
        let last = queue.sample(None);
        assert_eq!((last.waited_s.is_some(), last.consumer), (first.waited_s.is_some(), None));
        // Not on every system.
        if let (Some([read, decode, collate]), Some([.., ended])) = (first.waited_s, last.waited_s) {
            assert_eq!((read, decode), (0.0, 0.0));
            assert!(ended >= collate && first.consumer.is_some());
            assert_eq!(ended, threads[0].counted.load(Relaxed) as f64 / 1e9, "each nanosecond once");
        }
    }

    #[test]
    fn a_thread_that_is_gone_has_no_figure() {
        assert_eq!(waited(Tid::MAX), None);
        assert!(RunQueue::default().sample(Some(Tid::MAX)).consumer.is_none());
    }
}
