//! Whole numbers of any size, so that one that is too large is a value out of range and not an `OverflowError` at the door.
//!
//! To be named as `from_py_with`. Takes whatever has `__index__`, except bool, which is a slip where a number is meant; anything
//! else is a TypeError. What does not fit becomes the nearest number that does, which [`crate::config::shown`] shows as such.

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyBool};

pub fn int64(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    let nearest = |n: i128| n.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    int128(object).map(nearest)
}

pub fn optional_int64(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_none() { Ok(None) } else { int64(object).map(Some) }
}

pub fn int128(object: &Bound<'_, PyAny>) -> PyResult<i128> {
    if object.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err("a whole number is expected, not a bool"));
    }
    let whole = object.py().import("operator")?.call_method1("index", (object,))?;
    match whole.extract() {
        Ok(value) => Ok(value),
        Err(_) if whole.lt(0)? => Ok(i128::MIN),
        Err(_) => Ok(i128::MAX),
    }
}
