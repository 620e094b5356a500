//! `forebay.LoaderBase`: the methods of all loaders.
//!
//! A loader is a pyclass that extends [`LoaderBase`] and implements [`LoaderImpl`]: it adds its parameters,
//! the dict of a batch and the meaning of a state. Why a base class and not a macro over three pyclasses:
//! users see one class in `help()`, in annotations and in `isinstance`.

use std::{
    borrow::Cow,
    env,
    ops::Deref,
    path::PathBuf,
    sync::{
        PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use pyo3::{
    PyClass,
    exceptions::PyTypeError,
    prelude::*,
    pyclass::boolean_struct::True,
    types::{PyDict, PyTuple},
};

use super::{
    arguments::argument, batches::Batches, ending::Inside, engine_handle::AnyEngine, errors::to_python,
    state, torch_callers::check_iteration,
};
use crate::sync::plain::Mutex;
use crate::{
    Error, ErrorKind, Result,
    engine::{MAX_EPOCH, Position, epoch_out_of_range},
    error::shown,
    state::Identity,
};

/// The part of a loader that differs between the classes.
pub trait LoaderImpl: Send + Sync {
    fn engine(&self) -> &dyn AnyEngine;

    /// The data and the batches, for `repr`.
    fn describe(&self) -> String;

    /// The next batch as a dict; `None` at the end of a pass.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>>;

    /// The number of batches of a pass.
    fn length(&self, py: Python<'_>) -> PyResult<usize>;

    /// Measures the speed with a loop that does nothing.
    fn headspace<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Bound<'py, PyDict>>;

    /// The values on which the batches depend.
    fn identity(&self, py: Python<'_>) -> PyResult<Cow<'_, Identity>>;

    /// Whether it has one pass, which does not end.
    fn is_infinite(&self) -> bool;

    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.engine().epoch(py)
    }

    /// Called before a pass is chosen. May call the user's code, which is never called with the engine taken.
    fn before_pass(&self, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }

    /// Adds the figures of this class to `stats`.
    fn add_stats(&self, _stats: &Bound<'_, PyDict>) -> PyResult<()> {
        Ok(())
    }

    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let position = self.engine().position(py)?;
        state::to_python(py, &self.identity(py)?.state(&position))
    }

    fn position_of(&self, state: &Bound<'_, PyAny>) -> PyResult<Position> {
        let py = state.py();
        let identity = self.identity(py)?;
        let position = state::from_python(state)?.and_then(|state| identity.position(&state));
        position.map_err(|error| to_python(py, &error))
    }
}

/// Base class with the common methods of `Loader`, `TokenLoader` and `cache.DataLoader`; not for direct use.
///
/// A loader owns threads, which start with its first batch. They end with `close()`, at the end of a `with`
/// block, when the loader is dropped, or with the interpreter. Several threads may use a loader; they share
/// its batches. In a fork of the process that made the loader, calls that need the engine (batches, position,
/// state) raise `ForebayError`.
#[pyclass(module = "forebay", name = "LoaderBase", subclass, frozen, weakref)]
pub struct LoaderBase {
    /// Returns the part of the loader that depends on its class.
    kind: for<'a> fn(&'a Bound<'_, LoaderBase>) -> PyResult<&'a dyn LoaderImpl>,
    batch_size: i64,
    /// `rank` and `world_size`.
    share: (i64, i64),
    iterations: Iterations,
}

/// The calls of `iter()` on an infinite loader, which frameworks number as epochs.
///
/// The count begins at 0, and after a restore at the number of the first `set_epoch`.
struct Iterations(Mutex<Option<u64>>);

impl Iterations {
    fn started(&self) {
        let mut n = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *n = n.map(|n| n + 1);
    }

    fn restored(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Checks that `epoch` is the next iteration or the current one, or the loader's `own` epoch.
    fn check(&self, epoch: u64, own: u64) -> Result<()> {
        let n = *self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(epoch);
        if [n, n.saturating_sub(1), own].contains(&epoch) {
            return Ok(());
        }
        let message = format!(
            "epoch is {epoch}, but an infinite loader continues from its position: it is at epoch {own}, and {n} \
             iterations were started; set_epoch chooses a pass of a finite loader"
        );
        Err(Error::new(ErrorKind::State, message))
    }
}

/// Warns once, for a loader of training that was given no rank, if a launcher has started several processes.
pub fn warn_without_rank(name: &str, share: (i64, i64)) {
    static IS_WARNED: AtomicBool = AtomicBool::new(false);
    let started = env::var("WORLD_SIZE").ok().and_then(|n| n.parse::<u64>().ok()).unwrap_or(1);
    if started > 1 && share == (0, 1) && !IS_WARNED.swap(true, Ordering::Relaxed) {
        log::warn!(
            "{name}: the environment has WORLD_SIZE={started}, and rank and world_size are not given, so each process gets the \
             same batches; pass rank and world_size, as forebay.torch.rank_and_world_size() returns them"
        );
    }
}

impl LoaderBase {
    /// A new object of the class of `loader`, with batches of `batch_size` rows on rank `share.0` of
    /// `share.1`.
    pub fn under<T>(loader: T, batch_size: i64, share: (i64, i64)) -> PyClassInitializer<T>
    where
        T: LoaderImpl + PyClass<BaseType = Self, Frozen = True>,
    {
        let base = Self {
            kind: |slf| Ok(slf.cast::<T>()?.get()),
            batch_size,
            share,
            iterations: Iterations(Mutex::new(Some(0))),
        };
        PyClassInitializer::from(base).add_subclass(loader)
    }
}

/// The part of a loader that depends on its class, during a call.
struct LoaderCall<'a> {
    loader: &'a dyn LoaderImpl,
    _inside: Inside,
}

impl<'a> Deref for LoaderCall<'a> {
    type Target = dyn LoaderImpl + 'a;

    fn deref(&self) -> &Self::Target {
        self.loader
    }
}

fn kind<'a>(slf: &'a Bound<'_, LoaderBase>) -> PyResult<LoaderCall<'a>> {
    let _inside = Inside::begin(slf.py());
    Ok(LoaderCall { loader: (slf.get().kind)(slf)?, _inside })
}

#[pymethods]
impl LoaderBase {
    /// Returns an iterator over batches. An infinite loader continues with the next batch. A finite loader
    /// begins the next pass, also if this one was left early, unless no batch was taken of it. After
    /// `load_state_dict`, `seek` or with `start_step` it continues there. Raises `ConfigError` in one of
    /// several workers of a torch `DataLoader`, unless `rank` and `world_size` give each worker a share.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Batches>> {
        let (py, this, (rank, world_size)) = (slf.py(), kind(slf)?, slf.get().share);
        check_iteration(slf, rank, world_size)?;
        if this.is_infinite() {
            this.engine().batch(py)?; // raises in a fork
            slf.get().iterations.started();
        } else {
            this.before_pass(py)?;
            this.engine().rewind(py)?;
        }
        Batches::of(slf)
    }

    /// The next batch. Raises `ForebayError` if the loader is closed, even if another thread closes it during
    /// the wait.
    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyDict>>> {
        kind(slf)?.next(slf.py())
    }

    /// The number of batches of the current finite pass. Includes batches that one process leaves out because
    /// all their records are bad. For a mixture it may differ from pass to pass if blocks are larger than a
    /// batch. Raises `TypeError` if the loader is infinite, if the data still grow, or for a `TokenLoader`,
    /// since the number of packed rows is known only after packing.
    fn __len__(slf: &Bound<'_, Self>) -> PyResult<usize> {
        kind(slf)?.length(slf.py())
    }

    /// Raises `TypeError`: a loader is an iterable of batches. It exists for `loader[0]` and for
    /// `torch.utils.data.DataLoader(loader)`, which would index the loader.
    fn __getitem__(slf: &Bound<'_, Self>, _index: &Bound<'_, PyAny>) -> PyResult<()> {
        let name = slf.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "{name} is an iterable of batches and has no rows to index: iterate it, or use \
             forebay.torch.DataLoader(loader) in place of torch.utils.data.DataLoader(loader); for the Trainer of \
             Hugging Face, forebay.transformers.TrainerMixin"
        )))
    }

    /// Always True, even if `len()` raises, so that `if loader:` means `is not None`.
    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        Self::close(slf)
    }

    /// Ends all threads within half a second; a running call of your own function is finished first. A
    /// `next()` that waits in another thread, and every later one, raises `ForebayError`. `stats()` (and
    /// `errors()`, where it exists) still works. A second `close()` does nothing.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        kind(slf)?.engine().close(slf.py())
    }

    /// Whether `close()` was called.
    #[getter]
    fn closed(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Ok(kind(slf)?.engine().is_closed())
    }

    /// The parameter `batch_size`: rows per batch on this rank; a batch may have fewer. With `batching`, the
    /// most rows of a batch.
    #[getter]
    fn batch_size(&self) -> i64 {
        self.batch_size
    }

    /// The rank, the parameter: which share of each global batch this loader returns.
    #[getter]
    fn rank(&self) -> i64 {
        self.share.0
    }

    /// The number of ranks, the parameter.
    #[getter]
    fn world_size(&self) -> i64 {
        self.share.1
    }

    /// The number of the next batch, from 0: within the pass if finite, over all passes if infinite. After
    /// the last batch of a pass it is the number of batches.
    #[getter]
    fn batch(slf: &Bound<'_, Self>) -> PyResult<u64> {
        kind(slf)?.engine().batch(slf.py())
    }

    /// The current pass of a finite loader, counted from 0. `iter()` adds one if a batch of it was taken.
    ///
    /// For an infinite loader, the number of examples drawn divided by the number of records, rounded down:
    /// the window mixes examples of adjacent epochs. For a `TokenLoader`, the number of times that its
    /// slowest packer has read all its documents.
    #[getter]
    fn epoch(slf: &Bound<'_, Self>) -> PyResult<u64> {
        kind(slf)?.epoch(slf.py())
    }

    /// Sets the pass that the next `iter()` begins, 0 to 2**62. After `load_state_dict` or `seek`, the
    /// position is kept if `epoch` is the current pass, so the usual loop over epochs can resume.
    ///
    /// An infinite loader cannot jump to an epoch. It accepts its own epoch and the number of loops started
    /// so far (or one less), so that frameworks may call it, and changes nothing. After `load_state_dict`,
    /// the first `epoch` given sets the number of loops. Raises `StateError` for any other number.
    fn set_epoch(slf: &Bound<'_, Self>, #[pyo3(from_py_with = argument::epoch)] epoch: i64) -> PyResult<()> {
        let (py, this) = (slf.py(), kind(slf)?);
        let Some(number) = u64::try_from(epoch).ok().filter(|&number| number <= MAX_EPOCH) else {
            return Err(to_python(py, &epoch_out_of_range(shown(epoch))));
        };
        if this.is_infinite() {
            let own = this.epoch(py)?;
            return slf.get().iterations.check(number, own).map_err(|error| to_python(py, &error));
        }
        this.before_pass(py)?;
        this.engine().set_epoch(py, number)
    }

    /// Moves to batch number `batch`, at any distance: `next()` returns it, or the batch after it if it is in
    /// a skipped range. Batches are counted within the pass if finite, over all passes if infinite. Raises
    /// `ConfigError` if there is no such batch. A `TokenLoader` can seek only to its first batch, since a
    /// packed batch depends on all earlier ones; save states to return to others.
    fn seek(slf: &Bound<'_, Self>, #[pyo3(from_py_with = argument::batch)] batch: u64) -> PyResult<()> {
        kind(slf)?.engine().seek(slf.py(), batch)
    }

    /// Skips the batches in `ranges`: pairs (first, end), end not included, numbered as in `seek`. For
    /// example, skips batches around a loss spike. New ranges replace earlier ones; an empty list removes
    /// them. Adjacent and overlapping ranges are joined. The state keeps all ranges of the pass, also one
    /// that the position is in; the next pass of a finite loader has all batches again. Raises `ConfigError`
    /// if more than 8 ranges are left after joining, for ranges beyond the end of the pass, or for a
    /// `TokenLoader`.
    fn skip(slf: &Bound<'_, Self>, ranges: &Bound<'_, PyAny>) -> PyResult<()> {
        let ranges = state::ranges(ranges)?.map_err(|error| to_python(slf.py(), &error))?;
        kind(slf)?.engine().skip(slf.py(), &ranges)
    }

    /// Returns counts, times by stage, queue depths, and a verdict. Totals are since construction.
    ///
    /// - `delivered`, for the returned batches only: `batches`, `examples` (rows), `substitutes`, and the
    ///   records that were left out or replaced: `records_failed`, `records_excluded` and `records_lost` (the
    ///   system failed to read them); `records_good`, those that became examples. `failed_kinds`: the failed
    ///   and lost ones by their kind in `errors()`. The same in every run, for any number of threads; a
    ///   resumed loader counts from zero.
    /// - Work done, including prefetched and discarded batches, so it depends on timing: `records_read`,
    ///   `records_decoded`, `records_failed`, `records_excluded`, `records_lost`, `retries` (reads that
    ///   failed temporarily), `requests` and `received_bytes` (to and from servers, for recordings by URL),
    ///   `cache_hits` and `cached_bytes` (reads of ranges from `cache_dir`, and their bytes), `substitutes`;
    ///   `decoded_at_first_batch`, the records decoded when the first batch was complete; `batches` handed
    ///   over. A record of `TokenLoader` is a document, a record of `cache.DataLoader` a batch.
    /// - `verdict`: what limits the loader and which parameter to change: idle, starting, consumer-bound,
    ///   CPU-bound, I/O-bound, network-bound or buffer-bound. It covers the last 5 to 10 s before the last
    ///   batch was handed out.
    /// - `stages`: `read`, `decode`, `collate` and `consumer` (your loop), each with `threads`, `items`
    ///   (records; batches in the last two), `busy_s` and `blocked_s` over all threads, `blocked_on` by
    ///   reason of the wait, `p50_s` and `p99_s` of the work on an item (within 12 %), and for the last 5 to
    ///   10 s `items_per_s`, `busy_share`, `blocked_share` and `run_queue_share`. A wait counts when it ends.
    ///   `run_queue_share`, a part of the other two, is the share of the threads' time in which they were
    ///   ready to run and had no core: high if other processes use the machine. None if the system does not
    ///   report it (only Linux does), and for the consumer if another thread took the batches.
    /// - `n_workers`, `prefetch_batches`, now: the workers that are not parked, and the limit of batches made
    ///   ahead.
    /// - `queues`, now: `records` and `record_bytes` that wait for a worker, `read_bytes` of memory that
    ///   holds read data, `examples` in the shuffle buffers, `batches` that are ready.
    /// - `batch_times`: `ready_p50_s`, `ready_p99_s`, the time from a batch's completion to its return;
    ///   `starved_p50_s`, `starved_p99_s`, the time that `next()` waited for a batch, without the first batch
    ///   of a pass; `start_s`, the sum of the waits for first batches.
    /// - `request_times`: `first_byte_p50_s`, `first_byte_p99_s`, the time from a request to the begin of its
    ///   answer (within 12 %).
    /// - `threads`, now, even while another thread waits in `next()`: a dict for each thread of the current
    ///   or last pass, and for the `consumer` (your loop), with `name`, `state`, `since` (seconds in this
    ///   state), `item` (a row over all files; for the collator and the consumer a batch, or, if the state is
    ///   "waiting for an example", the example's row), `shard` and `row` of such a row. None if there is no
    ///   value. Empty before the first batch, and in a fork. docs/hangs.md lists the states.
    /// - `TokenLoader`: `packing`, as of the last batch made, which may not be returned yet: `documents` and
    ///   `tokens` that the packers of this rank hold, the `bytes` that they take, and since construction the
    ///   tokens `delivered` in rows and `dropped`: the rests of cropped documents, and what is longer than a
    ///   row, counted when its document is read.
    /// - `cache.DataLoader`: the `rows` and `bytes` read, including those for `headspace`.
    /// - `Loader` of recordings in files: `files`, since construction, with the files `opened`, the `reads`
    ///   of them and their `read_bytes`, the indexes made (`indexed`) and found on disk (`index_hits`); and
    ///   now, the files that are `open` besides those being read, the `indexes` in memory and their
    ///   `index_bytes`.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let this = kind(slf)?;
        let stats = this.engine().stats(slf.py())?;
        this.add_stats(&stats)?;
        Ok(stats)
    }

    /// Records the activity of every thread for the next `seconds` (0 to 3600) and writes a trace to `path`:
    /// trace events as JSON, for ui.perfetto.dev or chrome://tracing. Returns at once; the loop continues
    /// meanwhile. The file is written when the time is over, or when the loader closes, which waits for it;
    /// the file gets its name when it is complete. Each thread has a line with its work (`read`, `decode`,
    /// `collate`, `loop`) and its waits, each shown after it ended. Curves show the queues between threads
    /// and the number of active workers. At most 262144 spans are kept; the file has the number of spans left
    /// out. Raises `OSError` if the file cannot be written, `StateError` if another trace is being recorded.
    #[pyo3(signature = (path, seconds=5.0))]
    fn trace(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = argument::path)] path: PathBuf,
        #[pyo3(from_py_with = argument::seconds)] seconds: f64,
    ) -> PyResult<()> {
        kind(slf)?.engine().trace(slf.py(), path, seconds)
    }

    /// Measures the loader's throughput without a training loop, for `seconds` (0 to 3600), on a copy that
    /// begins at the same batch, with its own threads and buffers. The loader's position does not change.
    /// Best called before the loop, or while it is paused. First it waits until the shuffle window is full,
    /// at most `seconds` after the first batch.
    ///
    /// Returns a dict:
    ///
    /// - `examples_per_s`: rows handed out.
    /// - `decoded_per_s`: records (as in `stats`) that the workers made. A training loop whose rate is near
    ///   it waits for the loader; a loop whose rate is far below it does not.
    /// - `handover_per_s`: rows handed out of one cached batch, the upper limit of `next()`.
    /// - `seconds`: the measured time.
    /// - `fill_seconds`: the time from the first batch until the window was full.
    /// - `filled`: whether the window was full in time. If not, the figures cover the fill from the first
    ///   batch on: `examples_per_s` is too low; after the fill it would be near `decoded_per_s`.
    /// - `verdict`: what limits the copy, and whether the window was full.
    #[pyo3(signature = (seconds=2.0))]
    fn headspace<'py>(
        slf: &Bound<'py, Self>,
        #[pyo3(from_py_with = argument::seconds)] seconds: f64,
    ) -> PyResult<Bound<'py, PyDict>> {
        kind(slf)?.headspace(slf.py(), seconds)
    }

    /// Iterates as the loader itself does, and shows on `file` (None: standard error) how far the loop is:
    /// batches done, examples per second, the share of the time that the loop waited for batches, and the
    /// first words of the verdict; rate and waits are those of 10 seconds. On a terminal one line is drawn
    /// over itself; elsewhere a line is written every 10 seconds, and one at the end.
    ///
    /// `total` is the number of batches that the loop will take; None: those of the pass, if it has an end.
    /// Raises `ConfigError` for a `total` below 1.
    #[pyo3(signature = (total=None, file=None))]
    fn progress<'py>(
        slf: &Bound<'py, Self>,
        total: Option<Bound<'py, PyAny>>,
        file: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("forebay._progress")?.call_method1("batches", (slf, total, file))
    }

    /// What it reads, how far it is, and its fields, for notebooks.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("forebay._pictures")?.call_method1("loader_page", (slf,))
    }

    /// Returns the loader's position as a dict that JSON can hold. It covers the returned batches, not the
    /// prefetched ones. After the last batch of a pass it is the start of the next pass. One rank's state
    /// serves all ranks, and is 1 to 2 KB for any data (it names parameters, not rows), except for a
    /// `TokenLoader`.
    ///
    /// For a `TokenLoader`, every rank saves its own state. `packers` has the documents that each packer of
    /// the rank holds, for exact resume, 3 to 7 KB for 1000 documents. `reading` is for information only:
    /// `shard`, `row_group` and `epoch` (from 0) at which the rank's first packer reads. The call takes some
    /// tens of microseconds, so a state may be taken with every batch.
    fn state_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        kind(slf)?.state(slf.py())
    }

    /// Resumes at the position of `state`, bit for bit. Number of threads, buffer and channel sizes may
    /// differ, and so may rank and world size with the same global batch (order "window": a world size that
    /// divides its `n_streams`). Reads no data; the next batch is made without the earlier ones. Raises
    /// `StateError` that names the difference if the state belongs to another loader.
    ///
    /// A `TokenLoader` takes its rank's state, or a list of the states of all ranks, saved after the same
    /// batch, for any world size that divides their number of packers. Only the documents that packers held
    /// are read again. A dict with `pq_idx`, `rg_idx` and `epoch` (from 1) has the same meaning as in
    /// nanochat: every packer continues at its first row group after that one, which must exist, with an
    /// empty buffer, so some documents are lost.
    fn load_state_dict(slf: &Bound<'_, Self>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let this = kind(slf)?;
        let position = this.position_of(state)?;
        this.before_pass(slf.py())?;
        this.engine().restore(slf.py(), position)?;
        slf.get().iterations.restored();
        Ok(())
    }

    fn __setstate__(slf: &Bound<'_, Self>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::load_state_dict(slf, state)
    }

    /// Puts back the last returned batch if it did not reach the caller: `next()` makes it again.
    fn _take_back(slf: &Bound<'_, Self>) -> PyResult<()> {
        kind(slf)?.engine().take_back(slf.py())
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (name, this) = (slf.get_type().fully_qualified_name()?, kind(slf)?);
        let verdict = if this.engine().is_closed() { ", closed".into() } else { this.engine().verdict() };
        Ok(format!("<{name}: {}{verdict}>", this.describe()))
    }
}
