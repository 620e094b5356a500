//! Converts whole numbers of any size: a number that is too large is out of range, not an `OverflowError`.
//!
//! For use as `from_py_with`. Accepts any object with `__index__`, except bool, which is a mistake where a
//! number is expected. Any other object is a TypeError. A number that does not fit becomes the nearest one
//! that does; [`crate::error::shown`] marks it in messages.

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyBool};

pub fn int64(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    let nearest = |n: i128| n.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    int128(object).map(nearest)
}

pub fn optional_int64(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_none() { Ok(None) } else { int64(object).map(Some) }
}

pub fn int128(object: &Bound<'_, PyAny>) -> PyResult<i128> {
    if object.is_instance_of::<PyBool>() || !object.hasattr("__index__")? {
        let found = object.get_type();
        return Err(PyTypeError::new_err(format!("a whole number is expected, not {}", found.name()?)));
    }
    let whole = object.py().import("operator")?.call_method1("index", (object,))?;
    match whole.extract() {
        Ok(value) => Ok(value),
        Err(_) if whole.lt(0)? => Ok(i128::MIN),
        Err(_) => Ok(i128::MAX),
    }
}

/// Adds the parameter's name to a TypeError, as pyo3 does for a direct argument.
pub fn named<T>(py: Python<'_>, name: &str, extracted: PyResult<T>) -> PyResult<T> {
    extracted.map_err(|error| match error.is_instance_of::<PyTypeError>(py) {
        true => PyTypeError::new_err(format!("argument '{name}': {}", error.value(py))),
        false => error,
    })
}
