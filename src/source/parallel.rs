//! The same work for each file of a list, on several threads.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use crate::Result;

/// Does `work` for each item on up to `threads` threads; the results in the order of the items.
///
/// # Errors
/// The first in the order of the items. No item is begun once one has failed.
pub(crate) fn each<T: Sync, R: Send + Sync>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let results: Vec<OnceLock<Result<R>>> = items.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let run = || {
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(item), Some(result)) = (items.get(at), results.get(at)) else { break };
            let outcome = work(item);
            if outcome.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            // Each place is filled once: `next` gives it to one thread.
            let _ = result.set(outcome);
        }
    };
    thread::scope(|scope| {
        for n in 1..threads.min(items.len()) {
            let thread = thread::Builder::new().name(format!("forebay-index-{n}"));
            // With fewer threads than wished the work is done as well.
            if let Err(error) = thread.spawn_scoped(scope, run) {
                log::warn!("cannot start a thread to read headers: {error}");
                break;
            }
        }
        run();
    });
    // Items are taken in order, so those left out come after the one that failed.
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}
