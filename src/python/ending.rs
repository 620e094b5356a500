//! Threads of Python that are in a call of forebay when the interpreter ends.
//!
//! Before Python 3.14 a daemon thread that needs the interpreter after its end is ended by the C library,
//! which unwinds the frames of that thread. Rust's frames cannot be unwound that way, so the process would
//! abort. So threads in a call count themselves while they are attached ([`Inside`]), and at exit
//! `_close_all` first closes the loaders, so that waiting calls return with an error ([`await_callers`]), and
//! then waits until no thread is attached. From then on a thread that would attach again, or begins a call,
//! parks for good, as from Python 3.14 on each thread does that attaches too late.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use pyo3::prelude::*;

use crate::sync::check_none_held;

/// Between two looks at the calls of other threads.
const PAUSE: Duration = Duration::from_millis(2);

/// Threads in a call, without those that are detached.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Threads in a call that are detached.
static AWAY: AtomicUsize = AtomicUsize::new(0);
static IS_ENDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Calls of forebay on this thread: more than one if a call runs user code, which calls forebay.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread may attach during the end: the one that runs it, and those whose end it awaits.
    static MAY_ATTACH: Cell<bool> = const { Cell::new(false) };
}

/// A call of forebay on a thread of Python.
pub struct Inside(());

impl Inside {
    /// Begins a call; parks for good once the interpreter is ending.
    pub fn begin(py: Python<'_>) -> Self {
        if DEPTH.get() == 0 && !is_let_in() {
            py.detach(park);
        }
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
        if DEPTH.get() == 0 {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Calls `work` detached. Once the interpreter is ending, parks for good instead of returning.
pub fn detach<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    check_none_held();
    let _away = Away::begin();
    py.detach(|| {
        let _back = Back;
        work()
    })
}

/// A thread whose calls do not count, since it is detached.
struct Away {
    depth: usize,
}

impl Away {
    fn begin() -> Self {
        let depth = DEPTH.replace(0);
        AWAY.fetch_add(1, Ordering::SeqCst);
        if depth > 0 {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
        Self { depth }
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        // Attached again, and counted by `Back`.
        // A child of a fork forgot the calls that its thread was in.
        let _ = AWAY.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |away| away.checked_sub(1));
        DEPTH.set(self.depth);
        if self.depth == 0 {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The return of a detached thread, also by a panic.
struct Back;

impl Drop for Back {
    fn drop(&mut self) {
        if !is_let_in() {
            park();
        }
    }
}

/// Counts this thread as inside, unless the interpreter is ending.
fn is_let_in() -> bool {
    INSIDE.fetch_add(1, Ordering::SeqCst);
    if is_ending() && !MAY_ATTACH.get() {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        return false;
    }
    true
}

fn park() -> ! {
    loop {
        thread::park();
    }
}

/// Lets this thread attach although the interpreter is ending, until it is dropped.
pub struct MayAttach(bool);

impl MayAttach {
    pub fn begin() -> Self {
        Self(MAY_ATTACH.replace(true))
    }
}

impl Drop for MayAttach {
    fn drop(&mut self) {
        MAY_ATTACH.set(self.0);
    }
}

/// Waits, at most for `most`, until the calls of other threads have returned, of which those of a closed
/// loader do so with an error. Other handlers of `atexit` may wait for these threads, so they must not park.
/// Call it detached.
pub fn await_callers(most: Duration) {
    let begin = Instant::now();
    let is_any = || AWAY.load(Ordering::SeqCst) > 0 || is_anyone_inside();
    while is_any() && begin.elapsed() < most {
        thread::sleep(PAUSE);
    }
}

/// Begins the end of the interpreter, on the thread that ends it.
pub fn begin() {
    MAY_ATTACH.set(true);
    IS_ENDING.store(true, Ordering::SeqCst);
}

pub fn is_ending() -> bool {
    IS_ENDING.load(Ordering::SeqCst)
}

/// Whether a thread is in a call and attached, or about to be.
pub fn is_anyone_inside() -> bool {
    INSIDE.load(Ordering::SeqCst) > 0
}

/// In a child after a fork: its only thread is this one.
pub fn forget_others() {
    INSIDE.store(usize::from(DEPTH.get() > 0), Ordering::SeqCst);
    AWAY.store(0, Ordering::SeqCst);
}
