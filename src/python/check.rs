//! The core's part of `forebay check`: decodes every recording, on all cores, in the order of rows.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use pyo3::{prelude::*, types::PyList};

use super::{
    arguments::argument,
    engine_handle::{AnyEngine, EngineHandle, shards},
    errors::to_python,
    interruptible::run_interruptible,
    logging,
};
use crate::sync::plain::Mutex;
use crate::{
    Error, ErrorKind,
    audio::Info,
    config::{DamageConfig, track_number},
    contract::RowStore,
    engine::Engine,
    error::Place,
    source::{AllowPaths, ColumnChoice, PayloadColumn, Recordings, RecordingsReader, SourceOptions},
    tasks::{CHECKED_TOGETHER, CheckTask, Finding},
};

#[derive(IntoPyObject)]
pub struct ReportRow {
    index: u64,
    shard: String,
    row: u64,
    path: Option<String>,
    bytes: Option<u64>,
    codec: Option<String>,
    rate: Option<u32>,
    channels: Option<u16>,
    seconds: Option<f64>,
    /// The length that the container declares; None if it declares none.
    declared_seconds: Option<f64>,
    /// The largest magnitude, and the shares of values at full scale and below one step of 16 bits; None if
    /// nothing was decoded.
    peak: Option<f32>,
    clipping: Option<f64>,
    silence: Option<f64>,
    /// Whether samples are NaN or infinite.
    nan: bool,
    /// Samples per channel that were cut or filled with zeros where time stamps contradict the samples; None
    /// if the recording is bad.
    repaired: Option<u64>,
    kind: Option<&'static str>,
    reason: Option<String>,
    /// How the container's declarations contradict the end of the bytes; None if they do not.
    truncated: Option<String>,
    warnings: Vec<String>,
}

/// Decodes every recording of shards, in the order of rows. `audio_column`, `allow_paths`, `damage`,
/// `max_damage` and `track`, a number, are as in `Loader`.
#[pyclass(module = "forebay._core", frozen)]
pub struct _Check {
    engine: EngineHandle<Recordings, CheckTask>,
    source: Arc<Recordings>,
    paths: Arc<Mutex<RecordingsReader>>,
}

#[pymethods]
impl _Check {
    #[new]
    #[pyo3(signature = (
        files, *, audio_column=None, allow_paths=None, damage="silence", max_damage=0.1, track=None
    ))]
    fn new(
        py: Python<'_>,
        files: Vec<PathBuf>,
        audio_column: Option<String>,
        #[pyo3(from_py_with = argument::allow_paths)] allow_paths: Option<AllowPaths>,
        damage: &str,
        max_damage: f64,
        #[pyo3(from_py_with = argument::track)] track: Option<i64>,
    ) -> PyResult<Self> {
        logging::emitting(py, || {
            let raise = |error: Error| to_python(py, &error);
            let damage = DamageConfig { damage, max_damage }.check().map_err(raise)?;
            // Labels are not read.
            let options = SourceOptions {
                payload: PayloadColumn::Audio(audio_column),
                track: track_number(track).map_err(raise)?,
                label_column: ColumnChoice::Nothing,
                allow_paths: allow_paths.unwrap_or_default(),
                ..SourceOptions::default()
            };
            let source =
                run_interruptible(py, "forebay-index", move || Recordings::open(&[files], &options))?;
            let source = Arc::new(source);
            let engine =
                Engine::new(source.clone(), CheckTask { damage }, CheckTask::plan()).map_err(raise)?;
            Ok(Self {
                engine: EngineHandle::new(engine, source.traffic().clone(), None),
                paths: Arc::new(Mutex::new(source.reader())),
                source,
            })
        })
    }

    /// Makes `first_row`, the first row of some `next()`, the next one.
    fn seek(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::first_row)] first_row: i64,
    ) -> PyResult<()> {
        self.engine.seek(py, (first_row.max(0) as u64).div_ceil(CHECKED_TOGETHER as u64))
    }

    /// The findings of the next rows, in row order, a dict each; None after the last.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Vec<ReportRow>>> {
        let Some(findings) = self.engine.next(py)? else { return Ok(None) };
        let failed = self.engine.with_engine(py, Engine::take_errors)?;
        let mut rows: Vec<ReportRow> = findings.into_iter().map(|finding| self.row(finding)).collect();
        rows.extend(failed.iter().filter_map(|error| self.failed(error)));
        rows.sort_unstable_by_key(|row| row.index);
        let all = self.source.has_cheap_paths();
        let wanted = rows.iter().map(|row| (all || row.kind.is_some()).then_some(row.index));
        let (wanted, reader): (Vec<_>, _) = (wanted.collect(), self.paths.clone());
        // On a separate thread, since a read may take any time.
        let paths = run_interruptible(py, "forebay-paths", move || {
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            // A path that cannot be read is None; `reason` says why the record is bad.
            let mut path = |row| reader.path(row).ok().flatten();
            Ok(wanted.into_iter().map(|row| row.and_then(&mut path)).collect::<Vec<_>>())
        })?;
        rows.iter_mut().zip(paths).for_each(|(row, path)| row.path = path);
        Ok(Some(rows))
    }

    /// A hash of the rows and files, the same on another machine with the same ones.
    #[getter]
    fn fingerprint(&self) -> u64 {
        self.source.fingerprint()
    }

    /// Ends all threads.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.engine.close(py)
    }

    /// The number of rows that `next()` returns.
    #[getter]
    fn step(&self) -> usize {
        CHECKED_TOGETHER
    }

    /// The shards: dicts with `path`, `first_row`, `num_rows`, `num_bytes` and `damage`.
    #[getter]
    fn shards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        shards(py, self.source.shards())
    }
}

impl _Check {
    fn blank(&self, index: u64) -> ReportRow {
        let Place { shard, row, .. } = self.source.place(index);
        ReportRow {
            index,
            shard: shard.unwrap_or_default().display().to_string(),
            row: row.unwrap_or_default(),
            path: None,
            bytes: None,
            codec: None,
            rate: None,
            channels: None,
            seconds: None,
            declared_seconds: None,
            peak: None,
            clipping: None,
            silence: None,
            nan: false,
            repaired: None,
            kind: None,
            reason: None,
            truncated: None,
            warnings: Vec::new(),
        }
    }

    fn row(&self, finding: Finding) -> ReportRow {
        let Finding { index, n_bytes, info, claims, peak, n_values, n_clipped, n_silent, repairs, error } =
            finding;
        let seconds = |info: Info, n: u64| n as f64 / f64::from(info.sample_rate);
        let share = |n: u64| (n_values > 0).then(|| n as f64 / n_values as f64);
        ReportRow {
            bytes: Some(n_bytes),
            codec: info.map(|info| info.codec.to_string()),
            rate: info.map(|info| info.sample_rate),
            channels: info.map(|info| info.channels),
            seconds: info.map(|info| seconds(info, info.n_samples)),
            declared_seconds: info.and_then(|info| Some(seconds(info, claims.declared?))),
            truncated: claims.cut_short,
            warnings: claims.notices,
            peak: (n_values > 0).then_some(peak),
            clipping: share(n_clipped),
            silence: share(n_silent),
            nan: error.as_ref().is_some_and(|error| error.kind == ErrorKind::NonFinite),
            repaired: error.is_none().then_some(repairs.cut + repairs.filled),
            kind: error.as_ref().map(|error| error.kind.name()),
            reason: error.as_ref().map(Error::reason),
            ..self.blank(index)
        }
    }

    /// A record that could not be read.
    fn failed(&self, error: &Error) -> Option<ReportRow> {
        let (kind, reason) = (Some(error.kind.name()), Some(error.reason()));
        Some(ReportRow { kind, reason, ..self.blank(error.place.index?) })
    }
}
