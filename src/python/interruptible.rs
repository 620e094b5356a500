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

/// Runs `work` on a separate thread, so that Ctrl-C works even if the file system is slow. On Ctrl-C `work`
/// gets a stop request.
pub fn run_interruptible<T: Send + 'static>(
    py: Python<'_>,
    name: &str,
    work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let _inside = Inside::begin(py);
    let stop = Arc::new(AtomicBool::new(false));
    let (done_tx, done) = crossbeam_channel::bounded(1);
    builder(name.into()).spawn({
        let stop = stop.clone();
        move || {
            let is_stopped = stop.clone();
            let is_stopped = move || is_stopped.load(Ordering::Relaxed);
            let done = float_mode::own(|| cancel::during(Some(Arc::new(is_stopped)), || work(&stop)));
            // The caller may have been interrupted.
            let _ = done_tx.send(done);
        }
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
