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
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use pyo3::{prelude::*, types::PyDict};

use super::ending::{self, MayAttach};
use crate::{
    Error, ErrorKind, Result,
    engine::{State, as_process, during},
    float_mode,
    fork_lock::{self, Undivided},
    sync::check_none_held,
};

/// Running calls, and the process that they belong to.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static CALLS_OF: AtomicU32 = AtomicU32::new(0);

/// The longest time that the end of the interpreter waits for a user's function to return.
const LAST_CALL: Duration = Duration::from_secs(10);

/// Makes forks of this process wait for threads that attach or are in another section that no fork divides,
/// and these for forks.
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
    fork_lock::announce_fork();
    // Not `ending::detach`: a fork under way would never end if its thread parked.
    py.detach(fork_lock::await_undivided);
}

#[pyfunction]
fn after_fork_in_parent() {
    fork_lock::end_fork();
}

#[pyfunction]
fn after_fork_in_child() {
    fork_lock::end_fork_in_child();
    ending::forget_others();
}

/// Counts the calls of this process from here on. In a fork the count is reset, since the parent's calls
/// never end here.
pub fn expect_calls() {
    if CALLS_OF.swap(std::process::id(), Ordering::SeqCst) != std::process::id() {
        CALLS.store(0, Ordering::SeqCst);
    }
}

/// Waits for the running calls, and until no other thread of Python is in a call of forebay.
pub fn await_calls() {
    let begin = Instant::now();
    let are_running =
        || CALLS_OF.load(Ordering::SeqCst) == std::process::id() && CALLS.load(Ordering::SeqCst) > 0;
    while (are_running() || ending::is_anyone_inside()) && begin.elapsed() < LAST_CALL {
        thread::sleep(Duration::from_millis(1));
    }
}

struct Call;

impl Call {
    /// None once the interpreter is ending.
    fn begin() -> Option<Self> {
        CALLS.fetch_add(1, Ordering::SeqCst);
        let call = Self;
        if ending::is_ending() { None } else { Some(call) }
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
/// and processes that it starts inherit, and on a caller's thread in the caller's float mode. The thread's
/// own policy and mode are restored after it, whatever the function did. Niceness cannot be lowered again, so
/// workers that call functions have that of the process, and every thread of forebay has the stack of a
/// thread of Python.
///
/// # Errors
/// [`ErrorKind::Callback`] with the exception as its cause, [`ErrorKind::Closed`] once the interpreter is
/// ending.
pub fn call<T>(failed: &str, function: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
    let is_over = || Error::new(ErrorKind::Closed, "the interpreter is ending");
    check_none_held();
    let _call = Call::begin().ok_or_else(is_over)?;
    // Its end is awaited.
    let _may_attach = MayAttach::begin();
    let attached = || {
        let attaching = Undivided::begin();
        Python::try_attach(|py| {
            drop(attaching);
            as_process(|| float_mode::theirs(|| function(py)))
        })
    };
    match during(State::Python, attached) {
        Some(Ok(made)) => Ok(made),
        Some(Err(raised)) => Err(Error::new(ErrorKind::Callback, failed).because(raised)),
        None => Err(is_over()),
    }
}
