//! Calls of the user's functions from forebay's threads, and the end of the interpreter.
//!
//! A worker attaches to Python only for the duration of such a call. A thread inside a call while the
//! interpreter ends would crash the process. So calls are counted; at the end of the interpreter they are
//! awaited, and no new call begins.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use pyo3::prelude::*;

use crate::{
    Error, ErrorKind, Result,
    engine::{State, during},
};

/// Running calls, and the process that they belong to.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static CALLS_OF: AtomicU32 = AtomicU32::new(0);
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// The longest time that the end of the interpreter waits for a user's function to return.
const LAST_CALL: Duration = Duration::from_secs(10);

/// Counts the calls of this process from here on. In a fork the count is reset, since the parent's calls
/// never end here.
pub fn expect_calls() {
    if CALLS_OF.swap(std::process::id(), Ordering::SeqCst) != std::process::id() {
        CALLS.store(0, Ordering::SeqCst);
    }
}

/// Waits for the running calls.
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

/// A running call.
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

/// Calls a user's function; `failed` is the message of the error if the function raises.
///
/// # Errors
/// [`ErrorKind::Callback`] with the exception as its cause, [`ErrorKind::Closed`] once the interpreter is
/// ending.
pub fn call<T>(failed: &str, function: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
    let ending = || Error::new(ErrorKind::Closed, "the interpreter is ending");
    let _call = Call::begin().ok_or_else(ending)?;
    match during(State::Python, || Python::try_attach(function)) {
        Some(Ok(made)) => Ok(made),
        Some(Err(raised)) => Err(Error::new(ErrorKind::Callback, failed).because(raised)),
        None => Err(ending()),
    }
}
