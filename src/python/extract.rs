//! Whole numbers of any size, so that one that is too large is a value out of range and not an
//! `OverflowError` of the conversion.
//!
//! For use as `from_py_with`. Accepts any object with `__index__`, except bool, which is a mistake where a
//! number is expected; any other object is a TypeError. A number that does not fit becomes the nearest one
//! that does, which [`crate::error::shown`] marks in messages.

use pyo3::{
    IntoPyObjectExt,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyFloat, PyString},
};

use super::errors::to_python;
use crate::{Error, ErrorKind, config::Count, engine::MaxErrors};

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

/// Names the parameter of a wrong type, as pyo3 does for a direct argument.
pub fn named<T>(py: Python<'_>, name: &str, extracted: PyResult<T>) -> PyResult<T> {
    extracted.map_err(|error| match error.is_instance_of::<PyTypeError>(py) {
        true => PyTypeError::new_err(format!("argument '{name}': {}", error.value(py))),
        false => error,
    })
}

/// The value of `"auto"` between the signature, where a default must be a literal number, and [`chosen`].
const AUTO: i64 = i64::MIN + 1;

/// The value that [`n_workers`] or [`prefetch_batches`] parsed.
pub fn chosen(n: i64) -> Count {
    if n == AUTO { Count::Auto } else { Count::Exactly(n) }
}

/// `n_workers`: a number or `"auto"`.
pub fn n_workers(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    count("n_workers", object)
}

/// `prefetch_batches`: a number or `"auto"`.
pub fn prefetch_batches(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    count("prefetch_batches", object)
}

/// `prefetch`: a number or `"auto"`.
pub fn prefetch(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    count("prefetch", object)
}

fn count(name: &str, object: &Bound<'_, PyAny>) -> PyResult<i64> {
    let Ok(text) = object.cast::<PyString>() else { return int64(object) };
    if text == "auto" {
        return Ok(AUTO);
    }
    let message = format!("{name} is {}, must be a whole number or \"auto\"", text.repr()?);
    Err(to_python(object.py(), &Error::new(ErrorKind::Config, message)))
}

/// `max_errors`: a number, a share, or None.
pub fn max_errors(object: &Bound<'_, PyAny>) -> PyResult<Option<MaxErrors>> {
    match object.cast::<PyFloat>() {
        Ok(share) => Ok(Some(MaxErrors::Share(share.extract()?))),
        Err(_) => Ok(optional_int64(object)?.map(MaxErrors::Count)),
    }
}

impl<'py> IntoPyObject<'py> for MaxErrors {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Count(n) => n.into_bound_py_any(py),
            Self::Share(share) => share.into_bound_py_any(py),
        }
    }
}

impl<'py> IntoPyObject<'py> for Count {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Exactly(n) => n.into_bound_py_any(py),
            Self::Auto => "auto".into_bound_py_any(py),
        }
    }
}

impl<'py> IntoPyObject<'py> for &Count {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        (*self).into_pyobject(py)
    }
}
