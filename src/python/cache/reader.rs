//! Reading a cache, for `forebay.cache.TreeStore`.

use std::path::PathBuf;

use numpy::PyArray1;
use pyo3::prelude::*;

use crate::{
    Error, ErrorKind, Result,
    cache::CacheReader,
    fallible_alloc,
    python::{SLICE, ending::detach, errors::to_python, interruptible::run_interruptible},
};

/// An open split of a cache.
#[pyclass(module = "forebay._core", name = "_CacheReader", frozen)]
pub struct _CacheReader(CacheReader);

/// Bytes of values; the end of each document, in values; its shape.
type Parts<'py> = (Bound<'py, PyArray1<u8>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

#[pymethods]
impl _CacheReader {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, split: String) -> PyResult<Self> {
        run_interruptible(py, "forebay-open", move || CacheReader::open(&path, &split)).map(Self)
    }

    /// Name, type and number of axes of each field.
    fn fields(&self) -> Vec<(String, &'static str, usize)> {
        self.0.fields().iter().map(|field| (field.name.clone(), field.dtype.name(), field.rank())).collect()
    }

    /// Shard, row, kind and reason of the first documents left out, at the current commit.
    fn errors(&self, py: Python<'_>) -> PyResult<Vec<(String, u64, String, String)>> {
        let skipped = self.read(py, CacheReader::skipped)?;
        Ok(skipped.listed.into_iter().map(|one| (one.shard, one.row, one.kind, one.reason)).collect())
    }

    /// The number of documents left out.
    fn n_errors(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.read(py, CacheReader::skipped)?.documents)
    }

    /// The number of documents at the last check of the ledger, and whether it is final.
    fn length(&self, py: Python<'_>) -> PyResult<(u64, bool)> {
        let length = detach(py, || self.0.length()).map_err(|error| to_python(py, &error))?;
        Ok((length.documents, length.is_final))
    }

    /// Checks the ledger; returns the number of documents, and whether it is final.
    fn refresh(&self, py: Python<'_>) -> PyResult<(u64, bool)> {
        let length = detach(py, || self.0.refresh()).map_err(|error| to_python(py, &error))?;
        Ok((length.documents, length.is_final))
    }

    /// Waits until there are `documents`, or the length is final; returns the length.
    fn wait(&self, py: Python<'_>, documents: u64) -> PyResult<(u64, bool)> {
        loop {
            py.check_signals()?;
            let begin = std::time::Instant::now();
            let wait = || self.0.wait_until(documents, &|| begin.elapsed() >= SLICE);
            let length = detach(py, wait).map_err(|error| to_python(py, &error))?;
            if length.is_final || length.documents >= documents {
                return Ok((length.documents, length.is_final));
            }
        }
    }

    /// The number of values of a field.
    fn flat_len(&self, py: Python<'_>, field: usize) -> PyResult<u64> {
        self.check(py, field)?;
        self.values(py, field)
    }

    /// The bytes of the values `start` to `stop`, over all documents.
    fn flat<'py>(
        &self,
        py: Python<'py>,
        field: usize,
        start: u64,
        stop: u64,
    ) -> PyResult<Bound<'py, PyArray1<u8>>> {
        self.check(py, field)?;
        let bytes = self.0.fields()[field].dtype.bytes() as u64;
        let values = self.values(py, field)?;
        if start > stop || stop > values {
            let message = format!("values {start} to {stop} are requested, but there are {values}");
            return Err(to_python(py, &Error::new(ErrorKind::Index, message)));
        }
        let read = move |reader: &CacheReader| {
            // The numpy binding panics at sizes that numpy does not support.
            let mut out = fallible_alloc::zero_bytes(
                usize::try_from((stop - start).saturating_mul(bytes)).unwrap_or(usize::MAX),
            )?;
            reader.read_flat(field, start, &mut out)?;
            Ok(out.into_vec())
        };
        Ok(PyArray1::from_vec(py, self.read(py, read)?))
    }

    /// The values of a field in these documents.
    fn documents<'py>(&self, py: Python<'py>, field: usize, indices: Vec<u64>) -> PyResult<Parts<'py>> {
        self.check(py, field)?;
        let found = self.read(py, move |reader| reader.documents(field, &indices))?;
        let numbers = |all: Vec<u64>| PyArray1::from_vec(py, all.into_iter().map(|n| n as i64).collect());
        Ok((PyArray1::from_vec(py, found.data), numbers(found.ends), numbers(found.shapes)))
    }
}

impl _CacheReader {
    /// Reads from the cache; by URL so that Ctrl-C works while a server does not answer.
    fn read<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&CacheReader) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        if self.0.is_remote() {
            let reader = self.0.clone();
            return run_interruptible(py, "forebay-read", move || work(&reader));
        }
        detach(py, || work(&self.0)).map_err(|error| to_python(py, &error))
    }

    fn values(&self, py: Python<'_>, field: usize) -> PyResult<u64> {
        detach(py, || self.0.flat_len(field)).map_err(|error| to_python(py, &error))
    }

    fn check(&self, py: Python<'_>, field: usize) -> PyResult<()> {
        if field < self.0.fields().len() {
            return Ok(());
        }
        let message = format!("field {field} is requested, but there are {}", self.0.fields().len());
        Err(to_python(py, &Error::new(ErrorKind::Index, message)))
    }
}
