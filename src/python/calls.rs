//! Calls of functions of the user's from threads of ours, and the end of the interpreter.
//!
//! They are the one thing for which a worker attaches to Python, for as long as the call takes. A thread that is inside one while the
//! interpreter ends would end the process badly, so calls are counted, awaited at the end, and none begins any more from then on.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use pyo3::prelude::*;

use crate::{Error, ErrorKind, Result};

/// Calls that are under way, and the process that they are of.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static CALLS_OF: AtomicU32 = AtomicU32::new(0);
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// The longest that the end of the interpreter waits for a function of the user's to return.
const LAST_CALL: Duration = Duration::from_secs(10);

/// Counts from here on the calls of this process; of those of a parent before a fork nobody will tell the end.
pub fn expect_calls() {
    if CALLS_OF.swap(std::process::id(), Ordering::SeqCst) != std::process::id() {
        CALLS.store(0, Ordering::SeqCst);
    }
}

/// Waits for the calls that are under way.
pub fn await_calls() {
    IS_ENDING.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    while CALLS_OF.load(Ordering::SeqCst) == std::process::id()
        && CALLS.load(Ordering::SeqCst) > 0
        && begin.elapsed() < LAST_CALL
    {
        thread::sleep(Duration::from_millis(1));
    }
}

/// A call that is under way.
struct Call;

impl Call {
    /// None once the interpreter is ending.
    fn begin() -> Option<Self> {
        CALLS.fetch_add(1, Ordering::SeqCst);
        let call = Self;
        if IS_ENDING.load(Ordering::SeqCst) { None } else { Some(call) }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Calls a function of the user's; `failed` says what it means if it raises.
///
/// # Errors
/// [`ErrorKind::Callback`] with what was raised as the cause, [`ErrorKind::Closed`] once the interpreter is ending.
pub fn call<T>(failed: &str, function: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
    let ending = || Error::new(ErrorKind::Closed, "the interpreter is ending");
    let _call = Call::begin().ok_or_else(ending)?;
    match Python::try_attach(function) {
        Some(Ok(made)) => Ok(made),
        Some(Err(raised)) => Err(Error::new(ErrorKind::Callback, failed).because(raised)),
        None => Err(ending()),
    }
}
