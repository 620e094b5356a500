//! `forebay.Loader`.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use numpy::PyArray1;
use pyo3::{
    IntoPyObjectExt,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyList, PyTuple, PyType},
};

use super::{
    arguments::{Parameters, arguments, bind, entries, preset, signature},
    arrays::array,
    batches::Batches,
    errors::to_python,
    extract::int64,
    face::{Face, shards},
    interruptible::run_interruptible,
    logging,
    parameters::batch_number,
    state::{self, Facts},
    torch_workers::check_share,
};
use crate::{
    Error, ErrorKind, LoaderConfig,
    batch::AudioBatch,
    config::{Exclude, Sources, loader::loader_parameters, shown},
    dtype::Typed,
    engine::{Engine, closed, epoch_out_of_range},
    source::{ArrowOptions, Recordings},
    state::Identity,
    tasks::{AudioPlan, AudioTask},
};

loader_parameters!(arguments);

type AudioEngine = Engine<Recordings, AudioTask>;

#[doc = loader_parameters!(signature)]
/// Shuffled log-mel batches of the recordings in Arrow shards.
///
/// `n_readers` threads read records, `n_workers` threads decode a crop of each and compute its spectrogram,
/// and iteration yields dicts of numpy arrays: `spectrogram` float32 `[batch, n_mels, n_frames]` (natural
/// log; see `dtype`, `layout`), `label` int64 `[batch]` (-1 where null; absent without a label column),
/// `index` int64 `[batch]` (row number, counted over all files in the given order). Arrays are C-contiguous
/// and writable, and the caller may keep them. The GIL is released during waits and while a batch is
/// assembled; threads start with the first batch.
///
/// Batches are a pure function of files and parameters, bit for bit, for any `n_workers`, `raw_channel_size`
/// and `shuffle_buffer_size`.
///
/// Parameters
/// ----------
#[doc = loader_parameters!(entries)]
/// Raises
/// ------
/// ConfigError
///     A parameter is out of range, or a file is not Arrow or has no audio column. Lists every problem.
/// OSError
///     A file cannot be opened or read; `FileNotFoundError` if it does not exist. `errno` and `filename` are
///     set.
///
/// Iteration raises `OSError` if a shard can no longer be read, `DecodeError` if a bad record of an infinite
/// stream cannot be replaced or too many records fail, `MemoryError` if an allocation failed, and
/// `ForebayError` after the loader is closed.
#[pyclass(module = "forebay", name = "Loader", frozen, weakref)]
pub struct Loader {
    face: Face<Recordings, AudioTask>,
    source: Arc<Recordings>,
    config: LoaderConfig,
    identity: Identity,
    shape: [usize; 2],
}

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(signature = (*args, **kwargs), text_signature = None)]
    fn new(py: Python<'_>, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        logging::emitting(py, || {
            let (mut config, mut problems) = bind::<LoaderConfig>(args, kwargs)?;
            let Sources { names, groups } = &config.arrow_files;
            if groups.iter().all(Vec::is_empty) {
                problems.push("arrow_files is empty, must name at least one shard".to_owned());
            }
            if let Some(at) = groups.iter().flatten().position(|file| file.as_os_str().is_empty()) {
                problems.push(format!("arrow_files is '' at position {at}, must be the path of a shard"));
            }
            if names.is_none() && !config.weights.0.is_empty() {
                return Err(PyTypeError::new_err(
                    "weights need sources to weigh: give arrow_files as a dict of names and files",
                ));
            }
            if names.is_none() && (config.mixture_block.is_some() || config.stop.is_some()) {
                problems.push(
                    "mixture_block and stop need sources to mix: give arrow_files as a dict".to_owned(),
                );
            }
            let plans = config.check().map_err(|error| problems.push(error.message));
            let (Ok((mut plan, audio)), true) = (plans, problems.is_empty()) else {
                return Err(to_python(py, &Error::new(ErrorKind::Config, problems.join("; "))));
            };
            let raise = |error: Error| to_python(py, &error);
            let options = ArrowOptions {
                audio_column: config.audio_column.clone(),
                label_column: config.label_column.clone(),
                mmap: config.mmap,
                max_record_bytes: config.max_record_bytes as u64,
                allow_paths: config.allow_paths.clone(),
                ..ArrowOptions::default()
            };
            let (task, source) = open(py, audio.clone(), config.arrow_files.groups.clone(), options)?;
            config.fit(&mut plan, &audio, source.n_rows()).map_err(raise)?;
            let exclude = config.exclude.rows(source.shards()).map_err(raise)?;
            config.exclude = Exclude::Rows(exclude.iter().map(|&row| row as i64).collect());
            let identity =
                Facts { config: &config, audio: &audio, source: &source, exclude: &exclude }.identity();
            plan.policy.exclude = exclude;
            let (shape, source) = (task.shape(), Arc::new(source));
            if let Some(mixture) = &mut plan.mixture {
                mixture.over(source.group_starts());
            }
            let engine = Engine::new(source.clone(), task, plan).map_err(|error| {
                let damage = source.shards().iter().find_map(|shard| shard.damage.clone());
                raise(match damage {
                    Some(damage) if source.n_rows() == 0 => error.because(damage),
                    _ => error,
                })
            })?;
            Ok(Self { face: Face::new(engine), identity, config, shape, source })
        })
    }

    /// A loader for training: endless, shuffled within 8000 of 10000 examples, random crops, 8 workers.
    /// `overrides` are parameters of `Loader`.
    #[classmethod]
    #[pyo3(signature = (arrow_files, **overrides))]
    fn train<'py>(
        class: &Bound<'py, PyType>,
        arrow_files: &Bound<'py, PyAny>,
        overrides: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        preset(class, arrow_files, &LoaderConfig::train(), overrides)
    }

    /// A loader for evaluation: one pass in order, center crops, at most 1000 examples ahead, 4 workers.
    /// `overrides` are parameters of `Loader`.
    #[classmethod]
    #[pyo3(signature = (arrow_files, **overrides))]
    fn eval<'py>(
        class: &Bound<'py, PyType>,
        arrow_files: &Bound<'py, PyAny>,
        overrides: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        preset(class, arrow_files, &LoaderConfig::eval(), overrides)
    }

    /// Infinite: continues with the next batch. Finite: begins the next pass, or the same one again if it was
    /// left early; after `load_state_dict` or `seek` it continues there. Raises `ConfigError` in one of
    /// several workers of a torch `DataLoader`, unless `rank` and `world_size` give each worker a share.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Batches>> {
        let py = slf.py();
        check_share(py, slf.get().config.rank, slf.get().config.world_size)?;
        slf.get().face.ask(py, AudioEngine::rewind)?;
        Batches::of(slf)
    }

    /// The next batch. Raises `ForebayError` if the loader is closed, even if another thread closes it during
    /// the wait.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.face.next(py)?.map(|batch| self.to_dict(py, batch)).transpose()
    }

    /// The number of batches of the current finite pass. It includes batches that one process leaves out
    /// because all their records are bad. For a mixture it may differ from pass to pass if blocks are larger
    /// than a batch. An infinite loader raises `TypeError`.
    fn __len__(&self) -> PyResult<usize> {
        if self.config.infinite {
            return Err(PyTypeError::new_err(
                "an infinite loader has no len(); batches_per_epoch tells how many batches make an epoch. For PyTorch: \
                 DataLoader(forebay.torch.IterableDataset(loader), batch_size=None)",
            ));
        }
        Ok(self.batches_per_epoch() as usize)
    }

    /// Always True, also without `len()`, so that `if loader:` tests whether there is a loader.
    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// Ends all threads within half a second. A `next()` that waits in another thread raises `ForebayError`,
    /// and so does every later one. `stats()` and `errors()` still work. Closing twice does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.face.close(py)
    }

    /// Whether `close()` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.face.control().is_closed()
    }

    /// The records that failed so far, each once, in row order: dicts with `index` (row over all files),
    /// `shard`, `row` (within the shard), `path` (the recording's own, if the shard has one), `kind` and
    /// `reason`. At most 10000, or as many as `max_errors` allows. The kinds: `unreadable` (a null, a path
    /// that leads nowhere), `truncated` (past the end of the shard), `unsupported`, `corrupt`, `empty`,
    /// `too_short`, `non_finite`, `too_large`, `io` and `not_found` (the system).
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut reader = self.source.reader();
        // A path that cannot be read is None; `reason` says why the record is bad.
        self.face.errors(py, move |index| reader.path(index).ok().flatten())
    }

    /// Counts, times by stage, queue depths, and a verdict. Totals are since construction.
    ///
    /// - `delivered`, for the returned batches only: `batches`, `examples` (rows), `substitutes`, and the
    ///   records that were left out or replaced, `records_failed`, `records_excluded` and `records_lost` (to
    ///   the system). The same in every run, for any number of threads; a resumed loader counts from zero.
    /// - Work done, including batches that lie ready or were discarded, so it depends on timing:
    ///   `records_read`, `records_decoded`, `records_failed`, `records_excluded`, `records_lost`, `retries`
    ///   (reads that failed temporarily), `substitutes`; `decoded_at_first_batch`, how many records had been
    ///   decoded when the first batch was complete. `batches` were handed over.
    /// - `verdict`: what limits the loader and which parameter to change: idle, starting, consumer-bound,
    ///   CPU-bound, I/O-bound or buffer-bound. It covers the last 5 to 10 s before the last batch was handed
    ///   out.
    /// - `stages`: `read`, `decode`, `collate` and `consumer` (your loop), each with `threads`, `items`
    ///   (records; batches in the last two), `busy_s` and `blocked_s` over all threads, `blocked_on` by
    ///   reason of the wait, `p50_s` and `p99_s` of the work on an item (within 12 %), and for the last 5 to
    ///   10 s `items_per_s`, `busy_share` and `blocked_share`. A wait counts when it ends.
    /// - `n_workers`, `prefetch_batches`, now: the workers at work, and the limit of batches made ahead.
    /// - `queues`, now: `records` and `record_bytes` that wait for a worker, `examples` in the shuffle
    ///   buffers, `batches` that lie ready.
    /// - `batch_times`: `ready_p50_s`, `ready_p99_s`, how long a batch lay ready; `starved_p50_s`,
    ///   `starved_p99_s`, how long `next()` waited for it, without the first batch of a pass; `start_s`, the
    ///   sum of the waits for first batches.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.face.stats(py)
    }

    /// Records the activity of every thread for the next `seconds` (0 to 3600) and writes it to `path`: trace
    /// events as JSON, for ui.perfetto.dev or chrome://tracing. Returns at once; the loop continues
    /// meanwhile. The file is written when the time is over or the loader closes, which waits for it, and
    /// gets its name when it is complete. Each thread has a line with its work (`read`, `decode`, `collate`,
    /// `loop`) and its waits, each shown after it ended; curves show the queues between them, and the workers
    /// at work. At most 262144 spans are kept; the file says how many were left out. Raises `OSError` if the
    /// file cannot be written, `StateError` if another trace is being recorded.
    #[pyo3(signature = (path, seconds=5.0))]
    fn trace(&self, py: Python<'_>, path: PathBuf, seconds: f64) -> PyResult<()> {
        self.face.trace(py, path, seconds)
    }

    /// Measures the loader's speed with a loop that does nothing, for `seconds` (0 to 3600), on a copy that
    /// begins at the same batch, with its own threads and buffers. The loader's position does not change.
    /// Best called before the loop, or while it is paused.
    ///
    /// Returns a dict: `examples_per_s` handed out; `decoded_per_s`, which is higher while a shuffle window
    /// fills, and is the rate after that; `handover_per_s`, measured with one cached batch: the upper limit
    /// of `next()`; `seconds` from the first batch on; `verdict`, what limits the copy. A loop that runs near
    /// `decoded_per_s` waits for the loader; one far below it does not.
    #[pyo3(signature = (seconds=2.0))]
    fn headspace<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Bound<'py, PyDict>> {
        self.face.headspace(py, seconds, |batch| batch.index.len(), |batch| self.to_dict(py, batch))
    }

    /// The number of rows in all shards.
    #[getter]
    fn num_records(&self) -> u64 {
        self.source.n_rows()
    }

    /// The number of batches in an epoch, the same on every rank.
    #[getter]
    fn batches_per_epoch(&self) -> u64 {
        self.face.control().batches_per_epoch()
    }

    /// The names of the sources of a mixture, by the numbers in a batch's `source`; None for a single one.
    #[getter]
    fn source_names(&self) -> Option<Vec<String>> {
        self.config.arrow_files.names.clone()
    }

    /// The fields that hold the bits of bfloat16, which numpy does not have, as uint16.
    #[getter]
    fn _bfloat16_fields(&self) -> Vec<&'static str> {
        if self.config.dtype == "bfloat16" { vec!["spectrogram"] } else { Vec::new() }
    }

    /// The number of the next batch: within the pass if finite, over all passes if infinite.
    /// `batches_per_epoch` after the last batch.
    #[getter]
    fn batch(&self, py: Python<'_>) -> PyResult<u64> {
        self.face.with_engine(py, |engine| engine.batch())
    }

    /// The loader's position: a dict that JSON can hold, under 1 KB for any data. It covers the returned
    /// batches, not the prefetched ones, and one rank's state serves all ranks. After the last batch of a
    /// pass it is the start of the next pass.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let position = self.face.with_engine(py, |engine| engine.position())?;
        state::to_python(py, &self.identity.state(&position))
    }

    /// Resumes at the position of `state`, bit for bit, with any `n_workers`, buffer and channel sizes, and
    /// with any rank and world size of the same global batch (order "window": a world size that divides its
    /// `n_streams`).
    ///
    /// Reads no data; the next batch is made without the earlier ones. Raises `StateError` that names the
    /// difference.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let position = state::from_python(state)?.and_then(|state| self.identity.position(&state));
        let position = position.map_err(|error| to_python(py, &error))?;
        self.face.ask(py, move |engine| engine.restore(position.clone()))
    }

    /// Makes batch number `batch` the next one (or, if it is to be skipped, the one after it): counted within
    /// the pass if finite, over all passes if infinite. Raises `ConfigError` if there is no such batch.
    fn seek(&self, py: Python<'_>, #[pyo3(from_py_with = int64)] batch: i64) -> PyResult<()> {
        let batch = batch_number(py, batch)?;
        self.face.ask(py, |engine| engine.seek(batch))
    }

    /// Puts back the batch that was returned last, if it did not reach the caller: `next()` makes it again.
    fn _take_back(&self, py: Python<'_>) -> PyResult<()> {
        self.face.take_back(py)
    }

    /// Leaves out the batches in `ranges`, pairs of (first, end) with the end not included, numbered as in
    /// `seek`: for example those around a loss spike. They replace earlier ranges; an empty list removes
    /// them. The state keeps them; the next pass of a finite loader has all batches again. Raises
    /// `ConfigError` for more than 8, or beyond the end of the pass.
    fn skip(&self, py: Python<'_>, ranges: &Bound<'_, PyAny>) -> PyResult<()> {
        let ranges = state::ranges(ranges)?.map_err(|error| to_python(py, &error))?;
        self.face.ask(py, |engine| engine.skip(&ranges))
    }

    /// Returns batch number `batch`, past or future, without a change of position. Takes as long as
    /// `batch_size` records on one thread. A batch in which all records are bad has no rows.
    fn replay<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = int64)] batch: i64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let batch = batch_number(py, batch)?;
        let replay = self.face.ask(py, |engine| engine.replay(batch))?;
        let control = self.face.control().clone();
        let made = run_interruptible(py, "forebay-replay", move |stop| {
            replay.run(|| !stop.load(Ordering::Relaxed) && !control.is_closed())
        })?;
        match made {
            Some(batch) => self.to_dict(py, batch),
            None => Err(to_python(py, &closed())),
        }
    }

    /// The row numbers of this rank's next `n` examples, int64 `[n]`, without reading any data; bad records
    /// are not known in advance. Fewer if the pass ends earlier.
    fn plan<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = int64)] n: i64,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let n = usize::try_from(n).ok().filter(|&n| n <= 1 << 32).ok_or_else(|| {
            let message = format!("n is {}, must be 0 to {}", shown(n), 1u64 << 32);
            to_python(py, &Error::new(ErrorKind::Config, message))
        })?;
        let upcoming = self.face.ask(py, |engine| engine.upcoming())?;
        let control = self.face.control().clone();
        let rows = run_interruptible(py, "forebay-plan", move |stop| {
            upcoming.rows(n, || !stop.load(Ordering::Relaxed) && !control.is_closed())
        })?;
        Ok(PyArray1::from_vec(py, rows.ok_or_else(|| to_python(py, &closed()))?))
    }

    /// The pass of a finite loader, counted from 0: the current one until `iter()` begins the next. The
    /// window of an infinite loader mixes adjacent epochs; its epoch is the number of examples drawn, divided
    /// by the number of records.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.face.with_engine(py, |engine| engine.epoch())
    }

    /// Chooses the pass that the next `iter()` begins, 0 to 2**62. Raises `StateError` if the loader is
    /// infinite.
    fn set_epoch(&self, py: Python<'_>, #[pyo3(from_py_with = int64)] epoch: i64) -> PyResult<()> {
        let set = match u64::try_from(epoch) {
            Ok(number) if epoch < i64::MAX => self.face.with_engine(py, |engine| engine.set_epoch(number))?,
            _ => Err(epoch_out_of_range(shown(epoch))),
        };
        set.map_err(|error| to_python(py, &error))
    }

    /// The names of the classes, by label; None without a ClassLabel feature.
    #[getter]
    fn class_names(&self) -> Option<Vec<String>> {
        self.source.class_names().map(<[String]>::to_vec)
    }

    /// The shards in the order given: dicts with `path`, `first_row`, `num_rows`, `num_bytes` and `damage`
    /// (None, or what is wrong with the file).
    #[getter]
    fn shards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        shards(py, self.source.shards())
    }

    /// Pickles configuration and state; the copy reads the same paths and resumes at this loader's position.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let keywords = this.config.keywords(py, None)?;
        let new = py.import("copyreg")?.getattr("__newobj_ex__")?;
        let arguments = (slf.get_type(), PyTuple::empty(py), keywords);
        (new, arguments, this.state_dict(py)?).into_bound_py_any(py)
    }

    fn __setstate__(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        self.load_state_dict(py, state)
    }

    fn __repr__(&self) -> String {
        let plural = |n: u64| if n == 1 { "" } else { "s" };
        let (records, shards) = (self.source.n_rows(), self.source.shards().len());
        let verdict = self.face.verdict();
        format!(
            "<forebay.Loader: {records} record{} in {shards} shard{}, batches of {} x {:?} {}, {}{}{verdict}>",
            plural(records),
            plural(shards as u64),
            self.config.batch_size,
            self.shape,
            self.config.dtype,
            if self.config.infinite { "infinite" } else { "finite" },
            if self.closed() { ", closed" } else { "" },
        )
    }
}

impl Loader {
    fn to_dict<'py>(&self, py: Python<'py>, batch: AudioBatch) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let rows = batch.index.len();
        let shape = [rows, self.shape[0], self.shape[1]];
        let spectrogram = match batch.spectrogram {
            Typed::Float32(values) => array(py, values, shape)?.into_any(),
            Typed::Float16(values) => array(py, values, shape)?.into_any(),
            Typed::Bfloat16(values) => array(py, values.into_bits(), shape)?.into_any(),
        };
        dict.set_item("spectrogram", spectrogram)?;
        if self.source.has_labels() {
            dict.set_item("label", array(py, batch.label, [rows])?)?;
        }
        if self.config.arrow_files.names.is_some() {
            dict.set_item("source", PyArray1::from_vec(py, self.source.group_of(&batch.index)))?;
        }
        dict.set_item("index", array(py, batch.index, [rows])?)?;
        Ok(dict)
    }
}

/// Plans the features and opens the source, in the default float mode, for any float mode of the caller.
fn open(
    py: Python<'_>,
    plan: AudioPlan,
    groups: Vec<Vec<PathBuf>>,
    options: ArrowOptions,
) -> PyResult<(AudioTask, Recordings)> {
    run_interruptible(py, "forebay-index", move |stop| {
        Ok((AudioTask::new(plan)?, Recordings::open(&groups, &options, stop)?))
    })
}
