//! The values of `exclude`: row numbers, or a report of `forebay check`.

use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyByteArray, PyBytes},
};

use super::arguments::{Argument, ArgumentError, items, path};
use crate::config::Exclude;

impl Argument for Exclude {
    const EXPECTED: &'static str = "the path of a report by `forebay check`, or a sequence of row numbers";

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if given.is_instance_of::<PyBytes>() || given.is_instance_of::<PyByteArray>() {
            return Err(ArgumentError::Type);
        }
        if let Some(path) = path(given)? {
            return Ok(Self::Report(path));
        }
        let rows = items(given)?.ok_or(ArgumentError::Type)?;
        let rows = rows.map(|row| i64::read(name, &row?, problems));
        Ok(Self::Rows(rows.collect::<Result<_, _>>()?))
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Rows(rows) if rows.is_empty() => Ok(py.None().into_bound(py)),
            Self::Rows(rows) => rows.into_bound_py_any(py),
            Self::Report(path) => path.into_bound_py_any(py),
        }
    }
}
