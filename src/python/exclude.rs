//! The values of `exclude`: row numbers, or the report of `forebay check`.

use std::{path::PathBuf, sync::Arc};

use pyo3::{exceptions::PyTypeError, prelude::*};
use serde_json::{Value, json};

use super::extract::int64;
use crate::{Error, ErrorKind, Result, error::shown, report, seed::mix, source::Shard};

/// Rows to leave out, as given by the user.
pub enum Exclude {
    /// Row numbers over all files in the given order.
    Rows(Vec<i64>),
    /// A report, whose bad records are excluded.
    Report(PathBuf),
}

impl Exclude {
    /// A path, or a sequence of row numbers; None for nothing.
    pub fn extract(exclude: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(exclude) = exclude else { return Ok(Self::Rows(Vec::new())) };
        if let Ok(path) = exclude.extract() {
            return Ok(Self::Report(path));
        }
        let rows = exclude.try_iter().map_err(|_| {
            PyTypeError::new_err(
                "exclude must be the path of a report by `forebay check`, or a sequence of row numbers",
            )
        })?;
        Ok(Self::Rows(rows.map(|row| int64(&row?)).collect::<PyResult<_>>()?))
    }

    /// The rows, in rising order, each once.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a row that does not exist, or a report of other shards.
    pub fn rows(self, shards: &[Shard]) -> Result<Arc<[u64]>> {
        let mut rows = match self {
            Self::Report(path) => report::bad_rows(&path, shards)?,
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
