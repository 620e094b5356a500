//! Converts states between Python's dicts and the core's JSON.

use std::ops::Range;

use pyo3::{
    exceptions::{PyRecursionError, PyTypeError, PyValueError},
    prelude::*,
    types::{PyDict, PyString},
};
use serde_json::Value;

use super::{
    arguments::{items, named},
    sources::pair,
};
use crate::{Error, ErrorKind, Result};

pub fn to_python<'py>(py: Python<'py>, state: &Value) -> PyResult<Bound<'py, PyDict>> {
    Ok(py.import("json")?.call_method1("loads", (state.to_string(),))?.cast_into()?)
}

/// The object of a recipe that `description` describes.
pub fn made<'py>(py: Python<'py>, description: Option<&Value>) -> PyResult<Bound<'py, PyAny>> {
    let Some(description) = description else { return Ok(py.None().into_bound(py)) };
    py.import("forebay._part")?.call_method1("made", (to_python(py, description)?,))
}

/// An object of plain values as JSON.
pub fn json(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    let text: String = object.py().import("json")?.call_method1("dumps", (object,))?.extract()?;
    serde_json::from_str(&text).map_err(|error| PyValueError::new_err(format!("not JSON: {error}")))
}

pub fn from_python(state: &Bound<'_, PyAny>) -> PyResult<Result<Value>> {
    let py = state.py();
    let text = py.import("json")?.call_method1("dumps", (state,)).map_err(|error| {
        // Other exceptions, such as KeyboardInterrupt, are passed on.
        let is_about_the_state = error.is_instance_of::<PyTypeError>(py)
            || error.is_instance_of::<PyValueError>(py)
            || error.is_instance_of::<PyRecursionError>(py);
        if !is_about_the_state {
            return error;
        }
        let expected = PyTypeError::new_err(format!(
            "a state is a dict as state_dict() returns it: {}",
            error.value(py)
        ));
        expected.set_cause(py, Some(error));
        expected
    })?;
    let text = text.cast::<PyString>()?.to_str()?.to_owned();
    Ok(serde_json::from_str(&text)
        .map_err(|error| Error::new(ErrorKind::State, "the state is not valid JSON").because(error)))
}

/// Ranges of batch numbers from pairs (first, end), end not included.
pub fn ranges(ranges: &Bound<'_, PyAny>) -> PyResult<Result<Vec<Range<u64>>>> {
    let expected =
        || PyTypeError::new_err("ranges are pairs (first, end) of batch numbers, end not included");
    let mut found = Vec::new();
    for range in items(ranges)?.ok_or_else(expected)? {
        let [first, end] = pair(&range?)?.ok_or_else(expected)?;
        let (first, end): (u64, u64) = (named("a range's first", &first)?, named("a range's end", &end)?);
        if first > end {
            let message = format!("the range ({first}, {end}) ends before it begins, expected first <= end");
            return Ok(Err(Error::new(ErrorKind::Config, message)));
        }
        found.push(first..end);
    }
    Ok(Ok(found))
}
