//! Faults and delays that tests inject through Python. Not in release builds: see `engine/threads/inject.rs`.

use std::time::Duration;

use pyo3::prelude::*;

use super::ending::detach;
use crate::{engine, fork_lock};

/// For tests that batches do not depend on timing: each worker of a later pass sleeps per record, for
/// `fixed_ms` plus a random part of `random_ms`.
#[pyfunction]
#[pyo3(signature = (fixed_ms=0.0, random_ms=0.0))]
fn _inject_delays(fixed_ms: f64, random_ms: f64) {
    let ms = |value: f64| Duration::from_secs_f64(value.clamp(0.0, 60_000.0) / 1e3);
    engine::inject_delays(ms(fixed_ms), ms(random_ms));
}

/// For tests: a worker of a loader that starts later panics at `row`, while it holds all locks of the loader.
#[pyfunction]
#[pyo3(signature = (row=None))]
fn _inject_panic(row: Option<u64>) {
    engine::inject_panic_at(row);
}

/// For tests: logs `n` records without the GIL, as forebay's threads do.
#[pyfunction]
fn _inject_records(py: Python<'_>, n: u64) {
    detach(py, || (0..n).for_each(|number| log::debug!("record {number} of a test")));
}

/// For tests: makes each thread pause before it makes a value that all threads share from its first use on.
#[pyfunction]
fn _inject_slow_values(pause_ms: u64) {
    fork_lock::inject::slow_values(pause_ms);
}

/// For tests: the threads that make such a value now.
#[pyfunction]
fn _values_in_the_making() -> usize {
    fork_lock::inject::in_the_making()
}

/// Adds the functions to the module.
pub(super) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_inject_delays, module)?)?;
    module.add_function(wrap_pyfunction!(_inject_panic, module)?)?;
    module.add_function(wrap_pyfunction!(_inject_slow_values, module)?)?;
    module.add_function(wrap_pyfunction!(_values_in_the_making, module)?)?;
    module.add_function(wrap_pyfunction!(_inject_records, module)?)
}
