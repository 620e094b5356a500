//! Runs the same work for each file of a list on several threads.

use std::{
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use super::urls;
use crate::{Result, cancel};

/// The least threads for URLs: each waits for an answer most of the time.
pub const OF_URLS: usize = 32;

/// How many threads read the headers of files, if `threads` read those of local ones.
pub(crate) fn threads_for(paths: &[Arc<Path>], threads: usize) -> usize {
    if paths.iter().any(|path| urls::is_url(path)) { threads.max(OF_URLS) } else { threads }
}

/// Runs `work` for each item on up to `threads` threads; the results are in the order of the items.
///
/// # Errors
/// The first error in the order of the items. After a failure no further item is begun.
pub fn each<T: Sync, R: Send + Sync>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let results: Vec<OnceLock<Result<R>>> = items.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let stop = cancel::current();
    let read = || {
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(item), Some(result)) = (items.get(at), results.get(at)) else { break };
            let outcome = work(item);
            if outcome.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            // Each result is set once: `next` assigns its index to one thread.
            let _ = result.set(outcome);
        }
    };
    let run = || cancel::during(stop.clone(), read);
    thread::scope(|scope| {
        for n in 1..threads.min(items.len()) {
            let thread = thread::Builder::new().name(format!("forebay-index-{n}"));
            // Fewer threads do all of the work, too.
            if let Err(error) = thread.spawn_scoped(scope, run) {
                log::warn!("cannot start a thread to read headers: {error}");
                break;
            }
        }
        run();
    });
    // Items are taken in order, so those without a result come after the one that failed.
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}
