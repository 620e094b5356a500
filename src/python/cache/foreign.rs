//! Metadata of caches that other programs wrote, for `forebay.cache.ForeignDataset`: the ledger, the names of
//! the fields and `zarr.json` are read within the same limits as those of forebay.

use std::{path::PathBuf, sync::Arc};

use pyo3::prelude::*;
use serde_json::{Value, to_string};

use crate::{
    Error, ErrorKind, Result,
    cache::{Ledger, array_metadata, field_names},
    python::{ending::detach, errors::to_python},
    storage::{LocalFiles, Storage},
};

/// The number of documents; whether it is final; the parameters that made the cache, as JSON; name, type and
/// number of axes of each field; the error that ended the build.
type LedgerTuple = (u64, bool, String, Vec<(String, &'static str, usize)>, Option<String>);

/// The ledger in the folder of a split; None if there is none.
#[pyfunction]
pub fn _cache_ledger(py: Python<'_>, folder: PathBuf) -> PyResult<Option<LedgerTuple>> {
    let read = || -> Result<Option<LedgerTuple>> {
        let Some(ledger) = Ledger::read(&folder)? else { return Ok(None) };
        let fields = ledger.fields.into_iter().map(|field| {
            let rank = field.rank();
            (field.name, field.dtype.name(), rank)
        });
        let made_by = json(&Value::Object(ledger.made_by))?;
        Ok(Some((ledger.documents, ledger.is_finished, made_by, fields.collect(), ledger.failure)))
    };
    detach(py, read).map_err(|error| to_python(py, &error))
}

/// The names of the fields that the ledger of a split does not name, sorted.
#[pyfunction]
pub fn _cache_fields(py: Python<'_>, folder: PathBuf) -> PyResult<Vec<String>> {
    detach(py, || field_names(&folder)).map_err(|error| to_python(py, &error))
}

/// The metadata of the Zarr array in a folder, as JSON.
#[pyfunction]
pub fn _array_metadata(py: Python<'_>, folder: PathBuf) -> PyResult<String> {
    let read = || {
        let storage: Arc<dyn Storage> = Arc::new(LocalFiles);
        json(&array_metadata(&storage, &folder)?)
    };
    detach(py, read).map_err(|error| to_python(py, &error))
}

fn json(value: &Value) -> Result<String> {
    to_string(value).map_err(|error| Error::new(ErrorKind::Format, "cannot write JSON").because(error))
}
