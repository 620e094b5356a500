//! [`ThreadPool`]: threads that wait for work, and do it in parts.
//!
//! They start with the first work, as many as it has parts, and stay until the pool is dropped. Parts are
//! done in the order in which they were given, those of several callers in turn. A pool belongs to one
//! process: after a fork its threads exist only in the parent, so a child makes another.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError},
};

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::sync::plain::Mutex;
use crate::{
    Error, Result,
    engine::{Threads, panicked},
};

/// Work in parts, on any of a pool's threads.
pub(super) trait PoolWork<W>: Send + Sync {
    fn part(&self, worker: &mut W, part: usize);

    /// Called instead of the rest of a part that panicked.
    fn lost(&self, part: usize, error: Error);
}

type Job<W> = (Arc<dyn PoolWork<W>>, usize);

/// Threads, each with a worker `W` that it keeps from part to part.
pub(super) struct ThreadPool<W> {
    jobs: Sender<Job<W>>,
    queue: Receiver<Job<W>>,
    worker: Arc<dyn Fn() -> W + Send + Sync>,
    most: usize,
    threads: Mutex<Started>,
}

#[derive(Default)]
struct Started {
    n: usize,
    threads: Threads,
}

impl<W> fmt::Debug for ThreadPool<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool").field("most", &self.most).finish_non_exhaustive()
    }
}

impl<W: 'static> ThreadPool<W> {
    /// A pool of at most `most` threads, none of which is started; each calls `worker` once.
    pub(super) fn new(most: usize, worker: impl Fn() -> W + Send + Sync + 'static) -> Self {
        let (jobs, queue) = unbounded();
        Self { jobs, queue, worker: Arc::new(worker), most: most.max(1), threads: Mutex::default() }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Begins the parts `0..parts` of some work, in order.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if there is no thread and the system cannot start one.
    pub(super) fn begin(&self, work: &Arc<impl PoolWork<W> + 'static>, parts: usize) -> Result<()> {
        self.start(parts.min(self.most))?;
        for part in 0..parts {
            // Never closed: `self` has a receiver.
            let _ = self.jobs.send((work.clone(), part));
        }
        Ok(())
    }

    /// Starts threads until there are `n`.
    fn start(&self, n: usize) -> Result<()> {
        let mut started = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        while started.n < n {
            let name = format!("forebay-access-{}", started.n);
            let (queue, worker) = (self.queue.clone(), self.worker.clone());
            match started.threads.spawn(name, move || labour(&queue, &*worker)) {
                Ok(()) => started.n += 1,
                // Fewer threads do all of the work, too.
                Err(error) if started.n > 0 => {
                    log::warn!("{error}");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Does parts until the pool is dropped.
fn labour<W>(queue: &Receiver<Job<W>>, new: &dyn Fn() -> W) {
    let mut worker = new();
    while let Ok((work, part)) = queue.recv() {
        let done = catch_unwind(AssertUnwindSafe(|| work.part(&mut worker, part)));
        if let Err(panic) = done {
            worker = new();
            work.lost(part, panicked(&*panic as &(dyn Any + Send)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::ErrorKind;

    /// Sends what a worker did: its number of parts so far, and the part; part 3 panics.
    struct Counting(Mutex<mpsc::Sender<(usize, usize, Option<ErrorKind>)>>);

    impl PoolWork<usize> for Counting {
        fn part(&self, done: &mut usize, part: usize) {
            assert_ne!(part, 3, "a test asked for it");
            *done += 1;
            self.0.lock().unwrap().send((part, *done, None)).unwrap();
        }

        fn lost(&self, part: usize, error: Error) {
            self.0.lock().unwrap().send((part, 0, Some(error.kind))).unwrap();
        }
    }

    #[test]
    fn workers_stay_and_a_panic_is_an_error_of_its_part() {
        let pool = ThreadPool::new(1, || 0);
        let (sender, found) = mpsc::channel();
        let work = Arc::new(Counting(Mutex::new(sender)));
        pool.begin(&work, 3).unwrap();
        pool.begin(&work, 5).unwrap();
        let expected = [(0, 1), (1, 2), (2, 3), (0, 4), (1, 5), (2, 6), (3, 0), (4, 1)];
        for (part, done) in expected {
            let kind = (part == 3).then_some(ErrorKind::Panic);
            assert_eq!(found.recv().unwrap(), (part, done, kind));
        }
    }

    #[test]
    fn no_more_threads_than_parts() {
        let pool = ThreadPool::new(4, || 0);
        for (parts, n) in [(0, 0), (1, 1), (3, 3), (2, 3), (9, 4)] {
            pool.start(usize::min(parts, pool.most())).unwrap();
            assert_eq!(pool.threads.lock().unwrap().n, n);
        }
    }
}
