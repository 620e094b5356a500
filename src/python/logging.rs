//! Log records of the core go to Python's `logging`, under the logger `forebay`.
//!
//! A thread of ours never attaches to Python: it queues its records here, and calls that are attached anyway (`next()`,
//! `errors()`, `close()`) emit them. The queue is bounded; when it is full the oldest record makes room.

use std::sync::OnceLock;

use crossbeam::queue::ArrayQueue;
use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;

const QUEUED: usize = 1024;

struct Queue(ArrayQueue<(Level, String)>);

static QUEUE: OnceLock<Queue> = OnceLock::new();

fn queue() -> &'static Queue {
    QUEUE.get_or_init(|| Queue(ArrayQueue::new(QUEUED)))
}

impl Log for Queue {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("forebay")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.force_push((record.level(), record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

/// Makes the queue the destination of the core's log records.
pub fn install() {
    if log::set_logger(queue()).is_ok() {
        log::set_max_level(LevelFilter::Debug);
    }
}

/// What `body` gives, after the records that it queued were handed to Python, for they would otherwise wait for the next call.
///
/// # Errors
/// What `body` or a handler raises: as from a `finally`, a handler's exception comes with that of `body` as its context.
pub fn emitting<T>(py: Python<'_>, body: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
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

/// Hands the queued records to Python.
///
/// # Errors
/// What a handler raises, a `KeyboardInterrupt` above all. The records behind that one wait for the next call.
pub fn emit(py: Python<'_>) -> PyResult<()> {
    let queue = &queue().0;
    if queue.is_empty() {
        return Ok(());
    }
    let logger = py.import("logging")?.call_method1("getLogger", ("forebay",))?;
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
