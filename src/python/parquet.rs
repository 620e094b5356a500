//! Reads row groups of text for `forebay.tokens`, whose iterators are written in Python.

use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Instant};

use bytes::Bytes;
use pyo3::{exceptions::PyIndexError, prelude::*, types::PyString};

use super::{
    SLICE, arguments::Argument, ending::detach, errors::to_python, interruptible::run_interruptible,
    paths::Holds,
};
use crate::{
    Error, ErrorKind, Result,
    contract::ReadRecords,
    fork_lock,
    source::{
        self, OpenFiles, SourceOptions, WholeRecord,
        parquet::{ParquetReader, ParquetSource, Split, split},
        paths::Reads,
    },
    storage::{PathOrUrl, StoreOptions},
};

/// The files of one split among `paths`: "train" or "val"; `val` names the files for validation.
#[pyfunction]
#[pyo3(signature = (paths, part, val=None))]
pub fn _parquet_files(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    part: &str,
    val: Option<Vec<String>>,
) -> PyResult<Vec<PathBuf>> {
    let paths = super::paths::paths("data_dir", paths, Vec::<PathBuf>::EXPECTED, Holds::Texts)?;
    let files = || {
        let storage = PathOrUrl::files(&StoreOptions::default(), None);
        let part = match part {
            "train" => Split::Train,
            "val" => Split::Val,
            other => {
                let message = format!("split is {other:?}, expected \"train\" or \"val\"");
                return Err(Error::new(ErrorKind::Config, message));
            }
        };
        split(&source::paths::expand(&paths, Reads::Documents, &storage)?, part, val.as_deref())
    };
    detach(py, files).map_err(|error| to_python(py, &error))
}

/// The files that `given`, the value of the parameter `name`, stands for: the shards of `reads`,
/// "recordings", "documents" or "inputs".
#[pyfunction]
pub fn _shards(py: Python<'_>, name: &str, given: &Bound<'_, PyAny>, reads: &str) -> PyResult<Vec<OsString>> {
    let paths = super::paths::paths(name, given, Vec::<PathBuf>::EXPECTED, Holds::Recordings)?;
    let reads = match reads {
        "recordings" => Reads::Recordings,
        "inputs" => Reads::Inputs,
        _ => Reads::Documents,
    };
    let files = run_interruptible(py, "forebay-shards", move || {
        source::paths::expand(&paths, reads, &PathOrUrl::files(&StoreOptions::default(), None))
    })?;
    Ok(files.into_iter().map(PathBuf::into_os_string).collect())
}

/// Reads the text column of Parquet files, a row group at a time.
#[pyclass(frozen, module = "forebay._core")]
pub struct _ParquetText {
    source: Arc<ParquetSource>,
    reader: fork_lock::Mutex<ParquetReader>,
}

#[pymethods]
impl _ParquetText {
    #[new]
    fn new(py: Python<'_>, files: Vec<PathBuf>, text_column: &str) -> PyResult<Self> {
        let options = SourceOptions::text(text_column);
        let open = || ParquetSource::open(&files, &options);
        let source = Arc::new(detach(py, open).map_err(|error| to_python(py, &error))?);
        let reader = fork_lock::Mutex::new(source.reader());
        Ok(Self { source, reader })
    }

    /// The number of row groups of each file.
    fn row_groups(&self) -> Vec<usize> {
        (0..self.source.shards().len()).map(|shard| self.source.row_groups_of(shard).len()).collect()
    }

    /// The texts of a row group; nulls are left out.
    fn texts<'py>(
        &self,
        py: Python<'py>,
        file: usize,
        row_group: usize,
    ) -> PyResult<Vec<Bound<'py, PyString>>> {
        let groups = (file < self.source.shards().len()).then(|| self.source.row_groups_of(file));
        let Some(group) = groups.and_then(|groups| groups.get(row_group)) else {
            return Err(PyIndexError::new_err(format!("file {file} has no row group {row_group}")));
        };
        let (mut row, end) = (group.first_row, group.first_row + group.n_rows);
        let mut texts = Vec::new();
        while row < end {
            row = detach(py, || self.read(row, end, &mut texts)).map_err(|error| to_python(py, &error))?;
            py.check_signals()?;
        }
        let text = |bytes: Bytes| PyString::from_bytes(py, &bytes);
        texts.into_iter().map(text).collect()
    }
}

impl _ParquetText {
    /// Reads some rows from `row` on; returns the row at which it stopped.
    fn read(&self, row: u64, end: u64, texts: &mut Vec<Bytes>) -> Result<u64> {
        let mut reader = fork_lock::lock(&self.reader)?;
        let start = Instant::now();
        for row in row..end {
            match reader.read(row, end - row + 1, &WholeRecord::ONCE) {
                Ok(record) => texts.push(record.payload.bytes),
                Err(error) if error.kind == ErrorKind::Empty => texts.push(Bytes::new()),
                Err(error) if matches!(error.kind, ErrorKind::Null | ErrorKind::Unreadable) => {}
                Err(error) => return Err(error),
            }
            if start.elapsed() > SLICE {
                return Ok(row + 1);
            }
        }
        Ok(end)
    }
}
