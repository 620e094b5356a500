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
use numpy::{PyArray1, PyArrayMethods};
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyByteArray, PyBytes, PyDict, PyList, PyType},
};

use super::{
    Control, SLICE,
    baton::Baton,
    errors::to_python,
    logging, remember,
    whole::{int64, int128},
};
use crate::{
    Error, ErrorKind, LoaderConfig,
    batch::AudioBatch,
    config::shown,
    float_mode,
    pipeline::{AudioPlan, AudioTask, Counters, Engine, Step, epoch_out_of_range},
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
/// OSError
///     A file cannot be opened or read; `FileNotFoundError` if it does not exist. `errno` and `filename` are set.
///
/// Iteration raises `OSError` if a shard cannot be read any more, `DecodeError` if a bad record of an infinite stream cannot be
/// replaced, `MemoryError` if a batch cannot be had, and `ForebayError` once the loader is closed.
#[pyclass(module = "forebay", name = "Loader", frozen, weakref)]
pub struct Loader {
    engine: Baton<AudioEngine>,
    control: Arc<Control>,
    source: Arc<ArrowSource>,
    counters: Arc<Counters>,
    config: LoaderConfig,
    shape: [usize; 2],
    batches_per_epoch: u64,
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
        #[pyo3(from_py_with = int128)] seed: i128,
        #[pyo3(from_py_with = int64)] batch_size: i64,
        #[pyo3(from_py_with = int64)] shuffle_buffer_size: i64,
        #[pyo3(from_py_with = int64)] shuffle_min_size: i64,
        #[pyo3(from_py_with = int64)] sample_rate: i64,
        clip_seconds: f64,
        #[pyo3(from_py_with = int64)] n_mels: i64,
        #[pyo3(from_py_with = int64)] n_fft: i64,
        #[pyo3(from_py_with = int64)] hop_length: i64,
        #[pyo3(from_py_with = int64)] n_workers: i64,
        #[pyo3(from_py_with = int64)] raw_channel_size: i64,
        infinite: bool,
        augment: bool,
        audio_column: Option<String>,
        label_column: Option<String>,
    ) -> PyResult<Self> {
        let _emit = logging::EmitAtEnd(py);
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
        if let Some(at) = files.iter().position(|file| file.as_os_str().is_empty()) {
            problems.push(format!("arrow_files is '' at position {at}, must be the path of a shard"));
        }
        if seed_in_range.is_err() {
            let beyond = [i128::MIN, i128::MAX].contains(&seed);
            let seed = if beyond { "beyond int128".to_owned() } else { seed.to_string() };
            problems.push(format!("seed is {seed}, must be 0 to {}", u64::MAX));
        }
        let plans = config.check().map_err(|error| problems.push(error.message));
        let (Ok((plan, audio)), true) = (plans, problems.is_empty()) else {
            return Err(to_python(py, &Error::new(ErrorKind::Config, problems.join("; "))));
        };
        let raise = |error: Error| to_python(py, &error);
        let options = ArrowOptions { audio_column, label_column, ..ArrowOptions::default() };
        let (task, source) = open(py, audio.clone(), files, options)?;
        config.check_rows(&audio, source.n_rows()).map_err(raise)?;
        let (shape, source) = (task.shape(), Arc::new(source));
        let engine = Engine::new(source.clone(), task, plan).map_err(|error| {
            let damage = source.shards().iter().find_map(|shard| shard.damage.clone());
            raise(match damage {
                Some(damage) if source.n_rows() == 0 => error.because(damage),
                _ => error,
            })
        })?;
        let control = engine.control();
        remember(Arc::downgrade(&control));
        logging::emit(py)?;
        Ok(Self {
            control,
            source,
            counters: engine.counters(),
            config,
            shape,
            batches_per_epoch: engine.batches_per_epoch(),
            process: std::process::id(),
            engine: Baton::new(engine),
        })
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

    /// The next batch. Raises `ForebayError` if the loader is closed, also by another thread while this one waits.
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

    /// The exact number of batches of a finite pass; an infinite loader has none and raises `TypeError`.
    fn __len__(&self) -> PyResult<usize> {
        if self.config.infinite {
            return Err(PyTypeError::new_err(
                "an infinite loader has no len(); batches_per_epoch tells how many batches make an epoch",
            ));
        }
        Ok(self.batches_per_epoch as usize)
    }

    /// True: a loader without `len()` is one as well, and `if loader:` asks whether there is one.
    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// Ends all threads within half a second. A `next()` that waits in another thread raises `ForebayError`, as every later one does.
    /// Counts and errors can still be asked for. Closing twice does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_forked() {
            return Ok(());
        }
        // Before the engine is asked for: it wakes a thread that has it.
        py.detach(|| self.control.close());
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
        let stats = self.counters.read();
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
    fn batches_per_epoch(&self) -> u64 {
        self.batches_per_epoch
    }

    /// The epoch of the next position, counted from 0. An infinite loader's window mixes neighbouring epochs; its epoch says how
    /// often as many examples as there are records were drawn.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.with_engine(py, |engine| engine.epoch())
    }

    /// Chooses the pass that the next `iter()` begins, 0 to 2**62. Raises `StateError` if the loader is infinite.
    fn set_epoch(&self, py: Python<'_>, #[pyo3(from_py_with = int64)] epoch: i64) -> PyResult<()> {
        let set = match u64::try_from(epoch) {
            Ok(number) if epoch < i64::MAX => self.with_engine(py, |engine| engine.set_epoch(number))?,
            _ => Err(epoch_out_of_range(shown(epoch))),
        };
        set.map_err(|error| to_python(py, &error))
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
        let plural = |n: u64| if n == 1 { "" } else { "s" };
        let (records, shards) = (self.source.n_rows(), self.source.shards().len());
        format!(
            "<forebay.Loader: {records} record{} in {shards} shard{}, batches of {} x [{n_mels}, {n_frames}], {}{}>",
            plural(records),
            plural(shards as u64),
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
        let mut turn = None;
        loop {
            if let Err(interrupt) = py.check_signals() {
                py.detach(|| drop(turn));
                return Err(interrupt);
            }
            let turn = &mut turn;
            let done = py.detach(|| {
                let taken = turn.get_or_insert_with(|| self.engine.queue()).take(SLICE);
                let done = taken.map(|mut engine| work(&mut engine));
                if done.is_some() {
                    *turn = None;
                }
                done
            });
            if let Some(done) = done {
                return Ok(done);
            }
        }
    }

    /// Hands a batch back to the engine, whatever signals are pending.
    fn give_back(&self, py: Python<'_>, batch: AudioBatch) {
        py.detach(|| {
            let mut turn = self.engine.queue();
            loop {
                if let Some(mut engine) = turn.take(SLICE) {
                    engine.give_back(batch);
                    return;
                }
            }
        });
    }

    fn to_dict<'py>(&self, py: Python<'py>, batch: AudioBatch) -> PyResult<Bound<'py, PyDict>> {
        let [n_mels, n_frames] = self.shape;
        let dict = PyDict::new(py);
        let rows = batch.index.len();
        let spectrogram = PyArray1::from_vec(py, batch.spectrogram).reshape([rows, n_mels, n_frames])?;
        dict.set_item("spectrogram", spectrogram)?;
        if self.source.has_labels() {
            dict.set_item("label", PyArray1::from_vec(py, batch.label))?;
        }
        dict.set_item("index", PyArray1::from_vec(py, batch.index))?;
        Ok(dict)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // After a fork nothing may be touched: what another thread had locked stays locked.
        if self.is_forked() {
            return;
        }
        let end = || {
            self.control.close();
            if let Some(mut engine) = self.engine.queue().take(SLICE) {
                engine.close();
            }
        };
        // Joining can take a moment; others may run meanwhile, if there is an interpreter to give way to.
        if Python::try_attach(|py| py.detach(end)).is_none() {
            end();
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
            float_mode::set_default();
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
    let wrong = |name: &str, found: &Bound<'_, PyAny>| {
        let found = found.get_type();
        let expected = "must be a path (str or os.PathLike) or a sequence of paths";
        PyTypeError::new_err(match found.name() {
            Ok(found) => format!("{name} {expected}, not {found}"),
            Err(_) => format!("{name} {expected}, not {found}"),
        })
    };
    if files.is_instance_of::<PyBytes>() || files.is_instance_of::<PyByteArray>() {
        return Err(wrong("arrow_files", files));
    }
    let each = files.try_iter().map_err(|_| wrong("arrow_files", files))?;
    each.enumerate()
        .map(|(at, path)| {
            let path = path?;
            path.extract().map_err(|_| wrong(&format!("arrow_files[{at}]"), &path))
        })
        .collect()
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
