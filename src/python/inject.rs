//! What tests inject through Python. In no release build: see `engine/threads/inject.rs`.

use std::time::Duration;

use pyo3::prelude::*;

use crate::engine;

/// Makes every worker of passes that start from now on sleep per record: `fixed_ms` plus a random part of
/// `random_ms`. For tests that timing changes nothing.
#[pyfunction]
#[pyo3(signature = (fixed_ms=0.0, random_ms=0.0))]
fn _inject_delays(fixed_ms: f64, random_ms: f64) {
    let ms = |value: f64| Duration::from_secs_f64(value.clamp(0.0, 60_000.0) / 1e3);
    engine::inject_delays(ms(fixed_ms), ms(random_ms));
}

/// For tests: a worker of a loader that starts from now on panics when it gets `row`, while it holds all
/// locks of the loader.
#[pyfunction]
#[pyo3(signature = (row=None))]
fn _inject_panic(row: Option<u64>) {
    engine::inject_panic_at(row);
}

/// For tests: logs `n` records without the GIL, as forebay's threads do.
#[pyfunction]
fn _inject_records(py: Python<'_>, n: u64) {
    py.detach(|| (0..n).for_each(|number| log::debug!("record {number} of a test")));
}

/// Adds the functions to the module.
pub(super) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_inject_delays, module)?)?;
    module.add_function(wrap_pyfunction!(_inject_panic, module)?)?;
    module.add_function(wrap_pyfunction!(_inject_records, module)?)
}
