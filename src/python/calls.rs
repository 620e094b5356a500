//! Calls of the user's functions from forebay's threads, and the end of the interpreter.
//!
//! A worker attaches to Python only for the duration of such a call. A thread inside a call while the
//! interpreter ends would crash the process. So calls are counted; at the end of the interpreter they are
//! awaited, and no new call begins.
//!
//! A thread that attaches makes a thread state under a lock of the interpreter, without the GIL. Before
//! Python 3.11.8 a child that is forked at that moment waits for this lock forever, inside `os.fork()`
//! (gh-112275). So a fork waits until no thread attaches, and threads attach after it.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use pyo3::{prelude::*, types::PyDict};

use crate::{
    Error, ErrorKind, Result,
    engine::{State, as_process, during},
    float_mode,
};

/// Running calls, and the process that they belong to.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static CALLS_OF: AtomicU32 = AtomicU32::new(0);
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// The longest time that the end of the interpreter waits for a user's function to return.
const LAST_CALL: Duration = Duration::from_secs(10);

/// Threads that attach at this moment.
static ATTACHING: AtomicUsize = AtomicUsize::new(0);
/// Forks under way.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// The pause between two looks at a fork, or at threads that attach.
const FORK_PAUSE: Duration = Duration::from_micros(50);

/// Makes forks of this process wait for threads that attach, and these for forks.
///
/// # Errors
/// The exception of `os.register_at_fork`.
pub fn order_forks(py: Python<'_>) -> PyResult<()> {
    let os = py.import("os")?;
    if !os.hasattr("register_at_fork")? {
        return Ok(()); // no forks on this system
    }
    let hooks = PyDict::new(py);
    hooks.set_item("before", wrap_pyfunction!(before_fork, py)?)?;
    hooks.set_item("after_in_parent", wrap_pyfunction!(after_fork_in_parent, py)?)?;
    hooks.set_item("after_in_child", wrap_pyfunction!(after_fork_in_child, py)?)?;
    os.call_method("register_at_fork", (), Some(&hooks)).map(drop)
}

#[pyfunction]
fn before_fork(py: Python<'_>) {
    FORKS.fetch_add(1, Ordering::SeqCst);
    py.detach(|| {
        while ATTACHING.load(Ordering::SeqCst) > 0 {
            thread::sleep(FORK_PAUSE);
        }
    });
}

#[pyfunction]
fn after_fork_in_parent() {
    // Zero already if a C extension called the hooks after a fork, but not those before it.
    let _ = FORKS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |forks| forks.checked_sub(1));
}

#[pyfunction]
fn after_fork_in_child() {
    FORKS.store(0, Ordering::SeqCst);
    ATTACHING.store(0, Ordering::SeqCst);
}

/// A thread between its decision to attach and having the GIL.
struct Attaching;

impl Attaching {
    /// Waits for forks under way.
    fn begin() -> Self {
        loop {
            ATTACHING.fetch_add(1, Ordering::SeqCst);
            let attaching = Self;
            if FORKS.load(Ordering::SeqCst) == 0 {
                return attaching;
            }
            drop(attaching);
            thread::sleep(FORK_PAUSE);
        }
    }
}

impl Drop for Attaching {
    fn drop(&mut self) {
        ATTACHING.fetch_sub(1, Ordering::SeqCst);
    }
}

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
/// The function runs as on a thread of its process: with the scheduling policy of the process, which threads
/// and processes that it starts inherit, and on a caller's thread in the caller's float mode. The thread's own
/// policy and mode are restored after it, whatever the function did. Niceness cannot be lowered again, so
/// workers that call functions have that of the process, and every thread of forebay has the stack of a
/// thread of Python.
///
/// # Errors
/// [`ErrorKind::Callback`] with the exception as its cause, [`ErrorKind::Closed`] once the interpreter is
/// ending.
pub fn call<T>(failed: &str, function: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
    let ending = || Error::new(ErrorKind::Closed, "the interpreter is ending");
    let _call = Call::begin().ok_or_else(ending)?;
    let attached = || {
        let attaching = Attaching::begin();
        Python::try_attach(|py| {
            drop(attaching);
            as_process(|| float_mode::theirs(|| function(py)))
        })
    };
    match during(State::Python, attached) {
        Some(Ok(made)) => Ok(made),
        Some(Err(raised)) => Err(Error::new(ErrorKind::Callback, failed).because(raised)),
        None => Err(ending()),
    }
}
