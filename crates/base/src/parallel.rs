//! The same work for each item of a list, on several threads: the parallel loop of all code beside the
//! engine.
//!
//! A free thread takes the next item, so that a long item does not delay the others. The caller's thread
//! works too. Results are in the order of the items, and do not depend on the threads. All threads have the
//! stop flag of the caller's ([`cancel`]).

use std::{
    iter,
    sync::{
        PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::{Error, ErrorKind, Result, cancel, sync::plain::Mutex};

/// Runs `work` for each item on up to `n_threads` threads, those besides the caller's named `name` and a
/// number.
///
/// # Errors
/// The first error in the order of the items. After a failure no further item is begun.
/// [`ErrorKind::Panic`] if one of the other threads panics.
pub fn each<T: Send, R: Send>(
    name: &str,
    items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator + Send>,
    n_threads: usize,
    work: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    each_with(name, items, n_threads, || (), |(), item| work(item))
}

/// As [`each`], with a value that each thread makes by `start` and keeps from item to item.
///
/// # Errors
/// As [`each`].
pub fn each_with<W, T: Send, R: Send>(
    name: &str,
    items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator + Send>,
    n_threads: usize,
    start: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let items = items.into_iter();
    let n_threads = n_threads.min(items.len());
    let items = Mutex::new(items.enumerate());
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let has_failed = AtomicBool::new(false);
    let stop = cancel::current();
    let run = || {
        cancel::during(stop.clone(), || {
            let (mut own, mut results) = (start(), Vec::new());
            // The lock is released before the work begins.
            while let Some((at, item)) = if has_failed.load(Ordering::Relaxed) { None } else { next() } {
                let result = work(&mut own, item);
                if result.is_err() {
                    has_failed.store(true, Ordering::Relaxed);
                }
                results.push((at, result));
            }
            results
        })
    };
    let mut results = thread::scope(|scope| {
        let start = |n| thread::Builder::new().name(format!("{name}-{n}")).spawn_scoped(scope, run);
        // Fewer threads do all of the work, too.
        let warn = |error| log::warn!("cannot start another thread {name}: {error}");
        let others: Vec<_> = (1..n_threads).map_while(|n| start(n).map_err(warn).ok()).collect();
        let own = run();
        let panicked =
            |_| Error::new(ErrorKind::Panic, "a thread panicked: a bug of forebay, please report it");
        let others = others.into_iter().map(|other| other.join().map_err(panicked));
        iter::once(Ok(own)).chain(others).collect::<Result<Vec<_>>>().map(|all| all.into_iter().flatten())
    })?
    .collect::<Vec<_>>();
    results.sort_unstable_by_key(|&(at, _)| at);
    // Items are taken in order, so those without a result come after the one that failed.
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_items() {
        for n_threads in [0, 1, 3, 200] {
            let squares = each("test", 0..100u32, n_threads, |n| Ok(n * n)).unwrap();
            assert_eq!(squares, (0..100).map(|n| n * n).collect::<Vec<u32>>());
        }
        assert!(each("test", &[] as &[u8], 3, |_| Ok(())).unwrap().is_empty());
    }

    #[test]
    fn items_may_be_owned_and_written_to() {
        let mut values = [0; 10];
        each("test", values.chunks_mut(3), 2, |part| {
            part.fill(part.len());
            Ok(())
        })
        .unwrap();
        assert_eq!(values, [3, 3, 3, 3, 3, 3, 3, 3, 3, 1]);
    }

    #[test]
    fn the_first_error_is_returned() {
        for n_threads in [1, 4] {
            let error = each("test", 0..100, n_threads, |n| match n {
                7 | 8 | 60.. => Err(Error::new(ErrorKind::Corrupt, n.to_string())),
                _ => Ok(()),
            });
            assert_eq!(error.unwrap_err().message, "7");
        }
    }

    #[test]
    fn each_thread_keeps_its_value() {
        let seen = each_with(
            "test",
            0..50,
            4,
            || 0,
            |n, _| {
                *n += 1;
                Ok(*n)
            },
        )
        .unwrap();
        // Of each thread 1, 2, 3, ...
        let most = seen.iter().max().copied().unwrap();
        for n in 1..most {
            assert!(seen.iter().filter(|&&m| m == n).count() >= seen.iter().filter(|&&m| m == n + 1).count());
        }
    }

    #[test]
    fn all_threads_have_the_callers_stop_flag() {
        let stopped =
            cancel::during(Some(Arc::new(|| true)), || each("test", 0..20, 4, |_| Ok(cancel::is_stopped())));
        assert_eq!(stopped.unwrap(), [true; 20]);
    }

    #[test]
    fn a_panic_of_another_thread_is_an_error() {
        let caller = thread::current().id();
        let barrier = std::sync::Barrier::new(2);
        let outcome = each("test", 0..2, 2, |_| {
            barrier.wait();
            assert_eq!(thread::current().id(), caller, "a test asked for it");
            Ok(())
        });
        assert_eq!(outcome.unwrap_err().kind, ErrorKind::Panic);
    }
}
