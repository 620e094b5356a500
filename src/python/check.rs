//! What `forebay check` asks the core for: every recording decoded, on all cores, in the order of rows.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::{prelude::*, types::PyList};

use super::{
    errors::to_python,
    face::{Face, shards},
    logging,
    side::on_the_side,
    whole::int64,
};
use crate::{
    Error, ErrorKind,
    pipeline::{CHECKED_TOGETHER, CheckTask, Engine, Finding},
    record::Source,
    source::{
        ArrowOptions, ArrowSource, Payload, Shard,
        parquet::{ParquetOptions, ParquetSource},
    },
};

/// A row of the report.
#[derive(IntoPyObject)]
pub struct Row {
    index: u64,
    shard: String,
    row: u64,
    path: Option<String>,
    bytes: Option<u64>,
    codec: Option<String>,
    rate: Option<u32>,
    channels: Option<u16>,
    seconds: Option<f64>,
    /// The largest magnitude, and the shares of values at full scale and below one step of 16 bits; None if nothing was decoded.
    peak: Option<f32>,
    clipping: Option<f64>,
    silence: Option<f64>,
    /// Whether samples are NaN or infinite.
    nan: bool,
    kind: Option<&'static str>,
    reason: Option<String>,
}

/// Finds the path that a row names.
type FindPath = Box<dyn FnMut(u64) -> Option<String> + Send>;

/// Decodes every recording of Arrow shards, or of Parquet files if `parquet` says so, from row `first_row` on, which is one that
/// `next()` began with. `audio_column` names the column; otherwise it is found as `Loader` finds it.
#[pyclass(module = "forebay._core", frozen)]
pub struct _Check {
    scan: Box<dyn Scan>,
    shards: Vec<Shard>,
    path: Arc<Mutex<FindPath>>,
    /// Whether a path costs little beside its record.
    has_paths: bool,
}

#[pymethods]
impl _Check {
    #[new]
    #[pyo3(signature = (files, *, parquet=false, first_row=0, audio_column=None))]
    fn new(
        py: Python<'_>,
        files: Vec<PathBuf>,
        parquet: bool,
        #[pyo3(from_py_with = int64)] first_row: i64,
        audio_column: Option<String>,
    ) -> PyResult<Self> {
        let _emit = logging::EmitAtEnd(py);
        let first = (first_row.max(0) as u64).div_ceil(CHECKED_TOGETHER as u64);
        if parquet {
            let options = ParquetOptions { payload: Payload::Audio(audio_column), ..ParquetOptions::audio() };
            let source =
                on_the_side(py, "forebay-index", move |stop| ParquetSource::open(&files, &options, stop))?;
            let source = Arc::new(source);
            let mut reader = source.reader();
            let path: FindPath = Box::new(move |row| reader.path(row).ok().flatten());
            return Self::over(py, &source, source.shards().to_vec(), first, path, false);
        }
        // Labels are not looked at.
        let options =
            ArrowOptions { audio_column, label_column: Some(String::new()), ..ArrowOptions::default() };
        let source = Arc::new(on_the_side(py, "forebay-index", move |stop| {
            ArrowSource::open(&files, &options, stop)
        })?);
        let mut reader = source.reader();
        let path: FindPath = Box::new(move |row| reader.path(row).ok().flatten());
        Self::over(py, &source, source.shards().to_vec(), first, path, true)
    }

    /// What was found of the next rows, in their order, a dict each; None after the last.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Vec<Row>>> {
        let Some((findings, failed)) = self.scan.next(py)? else { return Ok(None) };
        let mut rows: Vec<Row> = findings.into_iter().map(|finding| self.row(finding)).collect();
        rows.extend(failed.iter().filter_map(|error| self.failed(error)));
        rows.sort_unstable_by_key(|row| row.index);
        let wanted = rows.iter().map(|row| (self.has_paths || row.kind.is_some()).then_some(row.index));
        let (wanted, find): (Vec<_>, _) = (wanted.collect(), self.path.clone());
        // Aside, for a read may take as long as it likes.
        let paths = on_the_side(py, "forebay-paths", move |_| {
            let mut find = find.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(wanted.into_iter().map(|row| row.and_then(&mut *find)).collect::<Vec<_>>())
        })?;
        rows.iter_mut().zip(paths).for_each(|(row, path)| row.path = path);
        Ok(Some(rows))
    }

    /// Ends all threads.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.scan.close(py)
    }

    /// How many rows `next()` gives at a time.
    #[getter]
    fn step(&self) -> usize {
        CHECKED_TOGETHER
    }

    /// The shards: dicts with `path`, `first_row`, `num_rows`, `num_bytes` and `damage`.
    #[getter]
    fn shards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        shards(py, &self.shards)
    }
}

impl _Check {
    fn over<S: Source>(
        py: Python<'_>,
        source: &Arc<S>,
        shards: Vec<Shard>,
        first: u64,
        path: FindPath,
        has_paths: bool,
    ) -> PyResult<Self> {
        let raise = |error: Error| to_python(py, &error);
        let mut engine = Engine::new(source.clone(), CheckTask, CheckTask::plan()).map_err(raise)?;
        engine.seek(first).map_err(raise)?;
        Ok(Self { scan: Box::new(Face::new(engine)), shards, path: Arc::new(Mutex::new(path)), has_paths })
    }

    /// The place of a row: shard and row within it.
    fn place(&self, row: u64) -> (usize, u64) {
        let shard = self.shards.partition_point(|shard| shard.first_row + shard.n_rows <= row);
        (shard, row - self.shards.get(shard).map_or(0, |shard| shard.first_row))
    }

    /// A row of which nothing is known yet.
    fn blank(&self, index: u64) -> Row {
        let (shard_number, row) = self.place(index);
        let shard = self.shards.get(shard_number).map(|shard| shard.path.display().to_string());
        Row {
            index,
            shard: shard.unwrap_or_default(),
            row,
            path: None,
            bytes: None,
            codec: None,
            rate: None,
            channels: None,
            seconds: None,
            peak: None,
            clipping: None,
            silence: None,
            nan: false,
            kind: None,
            reason: None,
        }
    }

    fn row(&self, finding: Finding) -> Row {
        let Finding { index, n_bytes, info, peak, n_values, n_clipped, n_silent, error } = finding;
        let share = |n: u64| (n_values > 0).then(|| n as f64 / n_values as f64);
        Row {
            bytes: Some(n_bytes),
            codec: info.map(|info| info.codec.to_string()),
            rate: info.map(|info| info.sample_rate),
            channels: info.map(|info| info.channels),
            seconds: info.map(|info| info.n_samples as f64 / f64::from(info.sample_rate)),
            peak: (n_values > 0).then_some(peak),
            clipping: share(n_clipped),
            silence: share(n_silent),
            nan: error.as_ref().is_some_and(|error| error.kind == ErrorKind::NonFinite),
            kind: error.as_ref().map(|error| error.kind.name()),
            reason: error.as_ref().map(Error::reason),
            ..self.blank(index)
        }
    }

    /// A record that could not be read.
    fn failed(&self, error: &Error) -> Option<Row> {
        let (kind, reason) = (Some(error.kind.name()), Some(error.reason()));
        Some(Row { kind, reason, ..self.blank(error.place.index?) })
    }
}

/// A pass over a source of any kind.
trait Scan: Send + Sync {
    /// The next findings, and what could not be read among these rows.
    fn next(&self, py: Python<'_>) -> PyResult<Option<(Vec<Finding>, Vec<Error>)>>;
    /// Ends the threads.
    fn close(&self, py: Python<'_>) -> PyResult<()>;
}

impl<S: Source> Scan for Face<S, CheckTask> {
    fn next(&self, py: Python<'_>) -> PyResult<Option<(Vec<Finding>, Vec<Error>)>> {
        let Some(findings) = self.next(py)? else { return Ok(None) };
        let failed = self.with_engine(py, Engine::take_errors)?;
        Ok(Some((findings, failed)))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.close(py)
    }
}
