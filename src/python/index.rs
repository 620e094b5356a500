//! The core's part of `forebay index`: opens every recording, on all cores.

use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Instant};

use pyo3::{prelude::*, types::PyList};

use super::{
    SLICE, arguments::argument, ending::detach, engine_handle::shards, errors::to_python,
    interruptible::run_interruptible, logging,
};
use crate::{
    Error, Result,
    access::{IndexBuild, Totals, closed},
    config::track_number,
    contract::RowStore,
    engine,
    error::Place,
    fork_lock,
    source::{AllowPaths, PayloadColumn, Recordings, SourceOptions},
};

/// The most classes that are listed.
const MOST_CLASSES: usize = 1000;

#[derive(IntoPyObject)]
struct BadRow {
    index: u64,
    file: String,
    row: u64,
    path: Option<String>,
    kind: &'static str,
    reason: String,
}

/// Path or URL, seconds and class.
type FoundRecording = (Option<OsString>, f32, Option<String>);

#[derive(IntoPyObject)]
struct IndexTotals {
    recordings: u64,
    bytes: u64,
    /// Rate, recordings, samples of each channel.
    rates: Vec<(u32, u64, u64)>,
    channels: Vec<(u16, u64)>,
    codecs: Vec<(String, u64)>,
    /// The classes with the most rows, with their numbers and names.
    classes: Vec<(i64, Option<String>, u64)>,
    n_classes: usize,
    found: u64,
    written: u64,
    needless: u64,
    unwritten: u64,
    why_unwritten: Option<String>,
    n_bad: u64,
    bad: Vec<BadRow>,
}

/// Opens every recording of a source, and writes the indexes of those in files of their own.
/// `audio_column`, `label_column`, `allow_paths` and `track`, a number, are as in `Loader`. With `lengths`,
/// `recordings()` has the length of each.
#[pyclass(module = "forebay._core", frozen)]
pub struct _Index {
    source: Arc<Recordings>,
    n_recordings: u64,
    /// None after `close()`.
    build: fork_lock::Mutex<Option<IndexBuild>>,
}

#[pymethods]
impl _Index {
    #[new]
    #[pyo3(signature = (
        files, *, audio_column=None, label_column=None, allow_paths=None, track=None, lengths=false
    ))]
    fn new(
        py: Python<'_>,
        files: Vec<PathBuf>,
        audio_column: Option<String>,
        label_column: Option<String>,
        #[pyo3(from_py_with = argument::allow_paths)] allow_paths: Option<AllowPaths>,
        #[pyo3(from_py_with = argument::track)] track: Option<i64>,
        lengths: bool,
    ) -> PyResult<Self> {
        logging::emitting(py, || {
            let allow_paths = allow_paths.unwrap_or_default();
            let options = SourceOptions {
                payload: PayloadColumn::Audio(audio_column),
                track: track_number(track).map_err(|error| to_python(py, &error))?,
                label_column: label_column.into(),
                allow_paths,
                ..SourceOptions::default()
            };
            let (source, build) = run_interruptible(py, "forebay-index", move || {
                let source = Arc::new(Recordings::open(&[files], &options)?);
                let build = IndexBuild::begin(source.clone(), engine::cores(), lengths)?;
                Ok((source, build))
            })?;
            Ok(Self { source, n_recordings: build.n_recordings(), build: fork_lock::Mutex::new(Some(build)) })
        })
    }

    /// Waits for a moment; returns the recordings opened so far, the bad ones among them, and whether these
    /// are all.
    fn next(&self, py: Python<'_>) -> PyResult<(u64, u64, bool)> {
        let next = || -> Result<_> {
            let mut build = fork_lock::lock(&self.build)?;
            let build = build.as_mut().ok_or_else(closed)?;
            let is_over = build.wait(Instant::now() + SLICE)?;
            Ok((build.totals().recordings, build.totals().n_bad, is_over))
        };
        let next = detach(py, next).map_err(|error: Error| to_python(py, &error));
        logging::emit(py)?;
        py.check_signals()?;
        next
    }

    /// What was found so far.
    fn totals(&self, py: Python<'_>) -> PyResult<IndexTotals> {
        let found = || -> Result<_> {
            let build = fork_lock::lock(&self.build)?;
            Ok(self.found(build.as_ref().ok_or_else(closed)?.totals()))
        };
        detach(py, found).map_err(|error: Error| to_python(py, &error))
    }

    /// The good recordings in files once all were opened, `most` of them from number `first` on: path or URL,
    /// None within an archive; seconds; class of the first row, if it has one.
    fn recordings(&self, py: Python<'_>, first: usize, most: usize) -> PyResult<Vec<FoundRecording>> {
        let found = || -> Result<_> {
            let build = fork_lock::lock(&self.build)?;
            let lengths = &build.as_ref().ok_or_else(closed)?.totals().lengths;
            let Some(files) = self.source.tables() else { return Ok(Vec::new()) };
            let one = |&(row, seconds): &(u64, f32)| {
                let class = files.label(row)?.and_then(|label| self.class_name(label));
                Ok((files.path(row).map(PathBuf::into_os_string), seconds, class))
            };
            lengths.iter().skip(first).take(most).map(one).collect()
        };
        detach(py, found).map_err(|error: Error| to_python(py, &error))
    }

    /// Ends all threads.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // Its threads are awaited without the lock.
        let closed = detach(py, || {
            let build = fork_lock::lock(&self.build)?.take();
            drop(build);
            Ok(())
        });
        closed.map_err(|error: Error| to_python(py, &error))?;
        logging::emit(py)
    }

    /// The number of rows.
    #[getter]
    fn n_rows(&self) -> u64 {
        self.source.n_rows()
    }

    /// The number of recordings: rows may name one several times.
    #[getter]
    fn n_recordings(&self) -> u64 {
        self.n_recordings
    }

    /// Whether the recordings are in files, which have indexes.
    #[getter]
    fn has_indexes(&self) -> bool {
        self.source.tables().is_some()
    }

    /// The folder of indexes; None for shards, and if the user has none.
    #[getter]
    fn folder(&self) -> Option<PathBuf> {
        self.source.index_folder().map(Into::into)
    }

    /// The shards: dicts with `path`, `first_row`, `num_rows`, `num_bytes` and `damage`.
    #[getter]
    fn shards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        shards(py, self.source.shards())
    }
}

impl _Index {
    fn class_name(&self, label: i64) -> Option<String> {
        let names = self.source.contents().class_names.first()?;
        names.get(usize::try_from(label).ok()?).cloned()
    }

    fn found(&self, totals: &Totals) -> IndexTotals {
        let mut labels: Vec<(i64, u64)> = totals.labels.iter().map(|(&label, &n)| (label, n)).collect();
        labels.sort_by_key(|&(label, n)| (std::cmp::Reverse(n), label));
        let bad = totals.bad.iter().map(|(&index, bad)| {
            let Place { shard, row, .. } = self.source.place(index);
            BadRow {
                index,
                file: shard.unwrap_or_default().display().to_string(),
                row: row.unwrap_or_default(),
                path: bad.path.clone(),
                kind: bad.error.kind.name(),
                reason: bad.error.reason(),
            }
        });
        IndexTotals {
            recordings: totals.recordings,
            bytes: totals.bytes,
            rates: totals.rates.iter().map(|(&rate, &(n, samples))| (rate, n, samples)).collect(),
            channels: totals.channels.iter().map(|(&channels, &n)| (channels, n)).collect(),
            codecs: totals.codecs.iter().map(|(codec, &n)| (codec.clone(), n)).collect(),
            n_classes: labels.len(),
            classes: labels
                .into_iter()
                .take(MOST_CLASSES)
                .map(|(label, n)| (label, self.class_name(label), n))
                .collect(),
            found: totals.found,
            written: totals.written,
            needless: totals.needless,
            unwritten: totals.unwritten,
            why_unwritten: totals.why_unwritten.clone(),
            n_bad: totals.n_bad,
            bad: bad.collect(),
        }
    }
}
