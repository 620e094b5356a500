//! The values of `exclude`: row numbers, or a report of `forebay check`.

use std::sync::Arc;

use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyByteArray, PyBytes},
};
use serde_json::{Value, json};

use super::arguments::{Argument, ArgumentError, items, path};
use crate::{Error, ErrorKind, Result, config::Exclude, error::shown, report, seed::mix, source::Shard};

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

impl Exclude {
    /// The excluded rows in ascending order, each once.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a row that does not exist, or a report of other shards.
    pub fn rows(&self, shards: &[Shard]) -> Result<Arc<[u64]>> {
        let mut rows = match self {
            Self::Report(path) => report::bad_rows(path, shards)?,
            Self::Rows(rows) => {
                let n_rows = shards.last().map_or(0, |shard| shard.first_row + shard.n_rows);
                let known = |&row: &i64| {
                    u64::try_from(row).ok().filter(|&row| row < n_rows).ok_or_else(|| {
                        let message = format!(
                            "exclude names row {}, must be 0 to {}",
                            shown(row),
                            n_rows.saturating_sub(1)
                        );
                        Error::new(ErrorKind::Config, message)
                    })
                };
                rows.iter().map(known).collect::<Result<_>>()?
            }
        };
        rows.sort_unstable();
        rows.dedup();
        Ok(rows.into())
    }
}

/// The entry of a state for the excluded rows; none if there are none.
pub fn identity(rows: &[u64]) -> Option<Value> {
    let digest = rows.iter().fold(0, |state, &row| mix(state ^ mix(row)));
    (!rows.is_empty()).then(|| json!(format!("{} rows, {digest:016x}", rows.len())))
}
