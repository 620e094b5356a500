//! The order of `forebay.AsyncDataLoader`, which is written in Python: values of a keyed bijection.

use numpy::PyArray1;
use pyo3::{exceptions::PyValueError, prelude::*};

use super::ending::detach;
use crate::{order::Bijection, seed::Purpose};

/// The rows at the positions `start` to `stop` of the pass `epoch` over `n` rows: int64 `[stop - start]`.
///
/// The order is that of `Loader(order="global")`. Positions before `start` are not computed, and nothing is
/// cached.
#[pyfunction]
#[pyo3(signature = (seed, epoch, n, start=0, stop=None))]
pub fn _permutation(
    py: Python<'_>,
    seed: u64,
    epoch: u64,
    n: u64,
    start: u64,
    stop: Option<u64>,
) -> PyResult<Bound<'_, PyArray1<i64>>> {
    let stop = stop.unwrap_or(n);
    if n > Bijection::MAX || stop > n || start > stop {
        return Err(PyValueError::new_err(format!(
            "positions {start} to {stop} of {n} rows, expected 0 <= start <= stop <= n <= 2**62"
        )));
    }
    let rows = detach(py, || {
        let order = Bijection::new(seed, Purpose::Global, [epoch, 0], n);
        (start..stop).map(|position| order.at(position) as i64).collect()
    });
    Ok(PyArray1::from_vec(py, rows))
}
