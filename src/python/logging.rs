//! Passes log records of the core to Python's `logging`, to the logger `forebay`.
//!
//! A thread of forebay does not attach to Python for a log record. It queues the record here, and calls that
//! are attached anyway (`next()`, `errors()`, `close()`) emit it. The queue is bounded: when it is full, the
//! oldest record is dropped. Debug records take at most half of it.

use std::{
    process, ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use crossbeam::queue::ArrayQueue;
use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::{prelude::*, sync::PyOnceLock};

use super::ending::Inside;
use crate::sync::check_none_held;

const QUEUED: usize = 1024;

struct Queue {
    records: ArrayQueue<(Level, String)>,
    process: u32,
}

static QUEUE: AtomicPtr<Queue> = AtomicPtr::new(ptr::null_mut());

/// The queue of this process. A forked child gets a new queue: if a thread of the parent was in a push at the
/// fork, that entry would stay incomplete in the child, and a reader would wait for it forever.
fn queue() -> &'static Queue {
    let found = QUEUE.load(Ordering::Acquire);
    // SAFETY: the pointer comes from a box that is never dropped.
    if let Some(queue) = unsafe { found.as_ref() }
        && queue.process == process::id()
    {
        return queue;
    }
    let made = Box::into_raw(Box::new(Queue { records: ArrayQueue::new(QUEUED), process: process::id() }));
    match QUEUE.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: as above; the previous queue stays allocated, since another thread may be using it.
        Ok(_) => unsafe { &*made },
        Err(other) => {
            // SAFETY: no other thread has seen `made`. `other` is the current queue, so it is never dropped.
            unsafe {
                drop(Box::from_raw(made));
                &*other
            }
        }
    }
}

/// The logger of the core: the queue of the current process.
struct Sink;

impl Log for Sink {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("forebay")
    }

    fn log(&self, record: &Record<'_>) {
        let queue = &queue().records;
        // Debug records of many threads that start and end must not displace a warning.
        let is_in_place = record.level() < Level::Debug || queue.len() < QUEUED / 2;
        if self.enabled(record.metadata()) && is_in_place {
            queue.force_push((record.level(), record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

/// Makes the queue the destination of the core's log records.
///
/// # Errors
/// Those of `logging.getLogger`.
pub fn install(py: Python<'_>) -> PyResult<()> {
    logger(py)?;
    if log::set_logger(&Sink).is_ok() {
        log::set_max_level(LevelFilter::Debug);
    }
    Ok(())
}

/// Runs `body` and passes its queued records to Python; otherwise they would wait for the next call.
///
/// # Errors
/// The exception of `body` or of a log handler. As from a `finally`, the handler's exception has that of
/// `body` as its context.
pub fn emitting<T>(py: Python<'_>, body: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    let _inside = Inside::begin(py);
    let made = body();
    match emit(py) {
        Ok(()) => made,
        Err(raised) => {
            if let Err(error) = made {
                raised.set_context(py, Some(error));
            }
            Err(raised)
        }
    }
}

/// The logger `forebay`. It is kept: `getLogger` takes a lock for the whole of `logging`, which Python never
/// gives back if Ctrl-C comes at the wrong moment in it; all other threads that log would then wait for ever.
fn logger<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyAny>> {
    static LOGGER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = || PyResult::Ok(py.import("logging")?.call_method1("getLogger", ("forebay",))?.unbind());
    Ok(LOGGER.get_or_try_init(py, made)?.bind(py))
}

/// Passes the queued records to Python.
///
/// # Errors
/// The exception of a log handler, such as `KeyboardInterrupt`. Later records wait for the next call.
pub fn emit(py: Python<'_>) -> PyResult<()> {
    check_none_held();
    let queue = &queue().records;
    if queue.is_empty() {
        return Ok(());
    }
    let _inside = Inside::begin(py);
    let logger = logger(py)?;
    while let Some((level, message)) = queue.pop() {
        let level = match level {
            Level::Error => 40,
            Level::Warn => 30,
            Level::Info => 20,
            Level::Debug | Level::Trace => 10,
        };
        logger.call_method1("log", (level, "%s", message))?;
    }
    Ok(())
}
