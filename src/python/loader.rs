//! `forebay.Loader`.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crossbeam_channel::RecvTimeoutError;
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyList, PyType},
};

use super::{Control, SLICE, arrays::array, baton::Baton, errors::to_python, logging, remember};
use crate::{
    Error, ErrorKind, LoaderConfig,
    batch::AudioBatch,
    pipeline::{AudioPlan, AudioTask, Engine, Step, default_float_mode},
    source::{ArrowOptions, ArrowSource},
};

type AudioEngine = Engine<ArrowSource, AudioTask>;

/// Shuffled log-mel batches of the recordings in Arrow shards.
///
/// One I/O thread reads records, `n_workers` threads decode a crop of each and compute its spectrogram, and iteration yields dicts
/// of numpy arrays: `spectrogram` float32 `[batch, n_mels, n_frames]` (natural log), `label` int64 `[batch]` (-1 where null;
/// absent without a label column), `index` int64 `[batch]` (row number over the files as given). Arrays are C-contiguous, writable and
/// the caller's to keep. The GIL is released while waiting and while a batch is put together; threads start with the first batch.
///
/// Batches are a pure function of files and parameters, bit for bit, for any `n_workers`, `raw_channel_size` and
/// `shuffle_buffer_size`.
///
/// Parameters
/// ----------
/// arrow_files : path or sequence of paths
///     Arrow IPC streams (Hugging Face `datasets` shards) or files.
/// seed : int
///     The number that all randomness comes from, 0 to 2**64 - 1.
/// batch_size : int
///     Examples per batch; the last batch of a finite pass may be shorter.
/// shuffle_buffer_size : int
///     Examples that may lie ready (memory, not content). 4 * n_mels * n_frames bytes each.
/// shuffle_min_size : int
///     Candidates of every draw: how well examples are mixed. 0 keeps the reading order.
/// sample_rate, clip_seconds : int, float
///     Rate (Hz) and length of the clips; recordings are resampled, cut or padded with zeros.
/// n_mels, n_fft, hop_length : int
///     Mel bands, samples per Fourier transform, samples from frame to frame.
/// n_workers, raw_channel_size : int
///     Threads that decode; records that may wait for them.
/// infinite : bool
///     Epoch after epoch without end, bad records replaced; or one pass per `iter()`, bad records left out.
/// augment : bool
///     Random crops (zeros behind short recordings); or center crops (zeros on both sides).
/// audio_column, label_column : str, optional
///     Columns by name; otherwise the schema's Audio feature or `audio`, and `label`.
///
/// Raises
/// ------
/// ConfigError
///     A parameter is out of range, a file is not Arrow or has no audio column. Names every parameter at fault.
/// FileNotFoundError
///     A file does not exist.
#[pyclass(module = "forebay", name = "Loader", frozen, weakref)]
pub struct Loader {
    engine: Baton<AudioEngine>,
    control: Arc<Control>,
    source: Arc<ArrowSource>,
    config: LoaderConfig,
    shape: [usize; 2],
    process: u32,
}

#[pymethods]
impl Loader {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "one per parameter of the Python signature")]
    #[pyo3(signature = (
        arrow_files, seed=0, batch_size=64, shuffle_buffer_size=10000, shuffle_min_size=8000, sample_rate=32000,
        clip_seconds=5.0, n_mels=128, n_fft=1024, hop_length=320, n_workers=8, raw_channel_size=256, infinite=true,
        augment=true, *, audio_column=None, label_column=None
    ))]
    fn new(
        py: Python<'_>,
        arrow_files: &Bound<'_, PyAny>,
        seed: i128,
        batch_size: i64,
        shuffle_buffer_size: i64,
        shuffle_min_size: i64,
        sample_rate: i64,
        clip_seconds: f64,
        n_mels: i64,
        n_fft: i64,
        hop_length: i64,
        n_workers: i64,
        raw_channel_size: i64,
        infinite: bool,
        augment: bool,
        audio_column: Option<String>,
        label_column: Option<String>,
    ) -> PyResult<Self> {
        let files = paths(arrow_files)?;
        let seed_in_range = u64::try_from(seed);
        let config = LoaderConfig {
            seed: seed_in_range.unwrap_or_default(),
            batch_size,
            shuffle_buffer_size,
            shuffle_min_size,
            sample_rate,
            clip_seconds,
            n_mels,
            n_fft,
            hop_length,
            n_workers,
            raw_channel_size,
            infinite,
            augment,
        };
        let mut problems = Vec::new();
        if files.is_empty() {
            problems.push("arrow_files is empty, must name at least one shard".to_owned());
        }
        if seed_in_range.is_err() {
            problems.push(format!("seed is {seed}, must be 0 to {}", u64::MAX));
        }
        let plans = config.check().map_err(|error| problems.push(error.message));
        let (Ok((plan, audio)), true) = (plans, problems.is_empty()) else {
            return Err(to_python(py, &Error::new(ErrorKind::Config, problems.join("; "))));
        };
        let raise = |error: Error| to_python(py, &error);
        let options = ArrowOptions { audio_column, label_column, ..ArrowOptions::default() };
        let (task, source) = open(py, audio, files, options)?;
        let (shape, source) = (task.shape(), Arc::new(source));
        let engine = Engine::new(source.clone(), task, plan).map_err(raise)?;
        let control = engine.control();
        remember(Arc::downgrade(&control));
        logging::emit(py)?;
        Ok(Self { engine: Baton::new(engine), control, source, config, shape, process: std::process::id() })
    }

    /// A loader for training: endless, shuffled within 8000 of 10000 examples, random crops, 8 workers. `overrides` are parameters of
    /// `Loader`.
    #[classmethod]
    #[pyo3(signature = (arrow_files, **overrides))]
    fn train<'py>(
        class: &Bound<'py, PyType>,
        arrow_files: &Bound<'py, PyAny>,
        overrides: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        preset(class, arrow_files, &LoaderConfig::train(), overrides)
    }

    /// A loader for evaluation: one pass in order, center crops, at most 1000 examples ahead, 4 workers. `overrides` are parameters
    /// of `Loader`.
    #[classmethod]
    #[pyo3(signature = (arrow_files, **overrides))]
    fn eval<'py>(
        class: &Bound<'py, PyType>,
        arrow_files: &Bound<'py, PyAny>,
        overrides: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        preset(class, arrow_files, &LoaderConfig::eval(), overrides)
    }

    /// Infinite: goes on with the next batch. Finite: begins the next pass, or the same one anew if it was left early.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        slf.get().with_engine(slf.py(), AudioEngine::rewind)?;
        Ok(slf.clone())
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        loop {
            let step = self.with_engine(py, |engine| engine.next(SLICE))?;
            // A signal that came while the batch was made, or a handler that raises, would lose it on the way to the caller.
            let pause = logging::emit(py).and_then(|()| py.check_signals());
            match (step, pause) {
                (Ok(Step::Batch(batch)), Err(interrupt)) => {
                    self.give_back(py, batch);
                    return Err(interrupt);
                }
                (_, Err(interrupt)) => return Err(interrupt),
                (Ok(Step::Batch(batch)), Ok(())) => return self.to_dict(py, batch).map(Some),
                (Ok(Step::End), Ok(())) => return Ok(None),
                (Ok(Step::TimedOut), Ok(())) => {}
                (Err(error), Ok(())) => return Err(to_python(py, &error)),
            }
        }
    }

    /// The exact number of batches of a finite pass.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        if self.config.infinite {
            return Err(PyTypeError::new_err(
                "an infinite loader has no len(); batches_per_epoch tells how many batches make an epoch",
            ));
        }
        self.batches_per_epoch(py).map(|n| n as usize)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// Ends all threads within half a second. A `next()` that waits in another thread raises, as every later one does.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_forked() {
            return Ok(());
        }
        self.control.close();
        self.with_engine(py, AudioEngine::close)?;
        logging::emit(py)
    }

    /// Whether `close()` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.control.is_closed()
    }

    /// The bad records met so far, each once, in row order: dicts with `index` (row over all files), `shard`, `row` (within the
    /// shard), `path` (the recording's own, if the shard has one), `kind` and `reason`.
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        logging::emit(py)?;
        let bad: Vec<Error> = self.with_engine(py, |engine| engine.errors().cloned().collect())?;
        let mut reader = self.source.reader();
        let list = PyList::empty(py);
        for error in bad {
            let index = error.place.index;
            // A path that cannot be read is no path; why the record is bad is in `reason`.
            py.check_signals()?;
            let path = py.detach(|| index.and_then(|index| reader.path(index).ok().flatten()));
            let dict = PyDict::new(py);
            dict.set_item("index", index)?;
            dict.set_item("shard", error.place.shard.as_ref().map(|shard| shard.display().to_string()))?;
            dict.set_item("row", error.place.row)?;
            dict.set_item("path", path)?;
            dict.set_item("kind", error.kind.name())?;
            dict.set_item("reason", error.reason())?;
            list.append(dict)?;
        }
        Ok(list)
    }

    /// Counts since construction: `records_read`, `records_decoded`, `records_failed`, `substitutes`, `batches`, and
    /// `decoded_at_first_batch`, how many records had been decoded when the first batch was complete.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.with_engine(py, |engine| engine.stats())?;
        let dict = PyDict::new(py);
        dict.set_item("records_read", stats.records_read)?;
        dict.set_item("records_decoded", stats.records_decoded)?;
        dict.set_item("records_failed", stats.records_failed)?;
        dict.set_item("substitutes", stats.substitutes)?;
        dict.set_item("batches", stats.batches)?;
        dict.set_item("decoded_at_first_batch", stats.decoded_at_first_batch)?;
        Ok(dict)
    }

    /// Rows of all shards.
    #[getter]
    fn num_records(&self) -> u64 {
        self.source.n_rows()
    }

    /// Batches that make an epoch.
    #[getter]
    fn batches_per_epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.with_engine(py, |engine| engine.batches_per_epoch())
    }

    /// The epoch of the next position, counted from 0. An infinite loader's window mixes neighbouring epochs; its epoch says how
    /// often as many examples as there are records were drawn.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.with_engine(py, |engine| engine.epoch())
    }

    /// Chooses the pass that the next `iter()` begins; finite loaders only.
    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        self.with_engine(py, |engine| engine.set_epoch(epoch))?.map_err(|error| to_python(py, &error))?;
        Ok(())
    }

    /// The names of the classes, by label; None without a ClassLabel feature.
    #[getter]
    fn class_names(&self) -> Option<Vec<String>> {
        self.source.class_names().map(<[String]>::to_vec)
    }

    /// The shards in the order given: dicts with `path`, `first_row`, `num_rows` and `damage` (None, or what is wrong with the file).
    #[getter]
    fn shards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for shard in self.source.shards() {
            let dict = PyDict::new(py);
            dict.set_item("path", shard.path.display().to_string())?;
            dict.set_item("first_row", shard.first_row)?;
            dict.set_item("num_rows", shard.n_rows)?;
            dict.set_item("damage", shard.damage.as_ref().map(ToString::to_string))?;
            list.append(dict)?;
        }
        Ok(list)
    }

    fn __repr__(&self) -> String {
        let [n_mels, n_frames] = self.shape;
        format!(
            "<forebay.Loader: {} records in {} shards, batches of {} x [{n_mels}, {n_frames}], {}{}>",
            self.source.n_rows(),
            self.source.shards().len(),
            self.config.batch_size,
            if self.config.infinite { "infinite" } else { "finite" },
            if self.closed() { ", closed" } else { "" },
        )
    }
}

impl Loader {
    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Calls `work` with the engine, detached; waits for another thread that has it in slices, between looks at signals.
    fn with_engine<T: Send>(
        &self,
        py: Python<'_>,
        mut work: impl FnMut(&mut AudioEngine) -> T + Send,
    ) -> PyResult<T> {
        if self.is_forked() {
            return Err(super::errors::ForebayError::new_err(
                "this loader was made before a fork, and its threads stayed in the parent; make the loader in the process that \
                 uses it",
            ));
        }
        loop {
            py.check_signals()?;
            if let Some(done) = py.detach(|| self.engine.take(SLICE).map(|mut engine| work(&mut engine))) {
                return Ok(done);
            }
        }
    }

    /// Hands a batch back to the engine, whatever signals are pending.
    fn give_back(&self, py: Python<'_>, batch: AudioBatch) {
        let mut batch = Some(batch);
        py.detach(|| {
            while let Some(undelivered) = batch.take() {
                match self.engine.take(SLICE) {
                    Some(mut engine) => engine.give_back(undelivered),
                    None => batch = Some(undelivered),
                }
            }
        });
    }

    fn to_dict<'py>(&self, py: Python<'py>, batch: AudioBatch) -> PyResult<Bound<'py, PyDict>> {
        let [n_mels, n_frames] = self.shape;
        let dict = PyDict::new(py);
        let rows = batch.index.len();
        dict.set_item("spectrogram", array(py, batch.spectrogram, [rows, n_mels, n_frames])?)?;
        if self.source.has_labels() {
            dict.set_item("label", array(py, batch.label, [rows])?)?;
        }
        dict.set_item("index", array(py, batch.index, [rows])?)?;
        Ok(dict)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Joining can take a moment; others may run meanwhile. Without an interpreter to give way to, the engine's own drop does it.
        // After a fork nothing may be touched: what another thread had locked stays locked.
        if !self.is_forked() {
            self.control.close();
            Python::try_attach(|py| py.detach(|| self.engine.take(SLICE).map(|mut engine| engine.close())));
        }
    }
}

/// Plans the features and opens the source on a thread of its own: in the default float mode, whatever the caller's is, and such
/// that Ctrl-C works however slow the file system is.
fn open(
    py: Python<'_>,
    plan: AudioPlan,
    files: Vec<PathBuf>,
    options: ArrowOptions,
) -> PyResult<(AudioTask, ArrowSource)> {
    let stop = Arc::new(AtomicBool::new(false));
    let (opened_tx, opened) = crossbeam_channel::bounded(1);
    thread::Builder::new().name("forebay-index".into()).spawn({
        let stop = stop.clone();
        move || {
            default_float_mode();
            let open = || Ok((AudioTask::new(plan)?, ArrowSource::open(&files, &options, &stop)?));
            // Whoever asked may have been interrupted.
            let _ = opened_tx.send(open());
        }
    })?;
    loop {
        if let Err(interrupt) = py.check_signals() {
            stop.store(true, Ordering::Relaxed);
            return Err(interrupt);
        }
        match py.detach(|| opened.recv_timeout(SLICE)) {
            Ok(made) => return made.map_err(|error| to_python(py, &error)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let lost = Error::new(
                    ErrorKind::Panic,
                    "indexing the shards panicked: a bug of forebay, please report it",
                );
                return Err(to_python(py, &lost));
            }
        }
    }
}

/// One path, or a sequence of paths.
fn paths(files: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    if let Ok(path) = files.extract() {
        return Ok(vec![path]);
    }
    let each = files.try_iter().map_err(|_| {
        PyTypeError::new_err(format!(
            "arrow_files must be a path or a sequence of paths, not {}",
            files.get_type()
        ))
    })?;
    each.map(|path| path?.extract()).collect()
}

/// Calls the class with a preset's parameters, overridden.
fn preset<'py>(
    class: &Bound<'py, PyType>,
    arrow_files: &Bound<'py, PyAny>,
    config: &LoaderConfig,
    overrides: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let parameters = to_dict(class.py(), config)?;
    if let Some(overrides) = overrides {
        parameters.update(overrides.as_mapping())?;
    }
    class.call((arrow_files,), Some(&parameters))
}

/// The parameters as keywords.
pub fn to_dict<'py>(py: Python<'py>, config: &LoaderConfig) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    macro_rules! set {
        ($($parameter:ident)*) => { $(dict.set_item(stringify!($parameter), config.$parameter)?;)* };
    }
    set! {
        seed batch_size shuffle_buffer_size shuffle_min_size sample_rate clip_seconds n_mels n_fft hop_length n_workers
        raw_channel_size infinite augment
    }
    Ok(dict)
}
