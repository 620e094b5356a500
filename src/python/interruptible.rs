//! Work on a separate thread, while the caller's thread checks signals.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crossbeam_channel::RecvTimeoutError;
use pyo3::prelude::*;

use super::{
    SLICE,
    ending::{Inside, detach},
    errors::to_python,
};
use crate::{Error, ErrorKind, Result, cancel, engine::builder, float_mode};

/// Runs `work` on a separate thread, so that Ctrl-C works even if the file system is slow. On Ctrl-C
/// [`cancel::is_stopped`] is true for `work`.
pub fn run_interruptible<T: Send + 'static>(
    py: Python<'_>,
    name: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let _inside = Inside::begin(py);
    let stop = Arc::new(AtomicBool::new(false));
    let (done_tx, done) = crossbeam_channel::bounded(1);
    let flag = stop.clone();
    builder(name.into()).spawn(move || {
        let is_stopped = move || flag.load(Ordering::Relaxed);
        let done = float_mode::own(|| cancel::during(Some(Arc::new(is_stopped)), work));
        // The caller may have been interrupted.
        let _ = done_tx.send(done);
    })?;
    loop {
        if let Err(interrupt) = py.check_signals() {
            stop.store(true, Ordering::Relaxed);
            return Err(interrupt);
        }
        match detach(py, || done.recv_timeout(SLICE)) {
            Ok(made) => return made.map_err(|error| to_python(py, &error)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let lost = format!("{name} panicked: a bug of forebay, please report it");
                return Err(to_python(py, &Error::new(ErrorKind::Panic, lost)));
            }
        }
    }
}
