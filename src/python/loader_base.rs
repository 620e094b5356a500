//! `forebay.LoaderBase`: the methods of all loaders.
//!
//! A loader is a pyclass that extends [`LoaderBase`] and implements [`Loads`]: it adds its parameters, the
//! dict of a batch and the meaning of a state. A base class instead of a macro over three pyclasses: users
//! see one class in `help()`, in annotations and in `isinstance`.

use std::{borrow::Cow, path::PathBuf};

use pyo3::{
    PyClass,
    exceptions::PyTypeError,
    prelude::*,
    pyclass::boolean_struct::True,
    types::{PyDict, PyTuple},
};

use super::{
    arguments::argument, batches::Batches, engine_handle::AnyEngine, errors::to_python, state,
    torch_workers::check_share,
};
use crate::{
    config::shown,
    engine::{Position, epoch_out_of_range},
    state::Identity,
};

/// What a kind of loader adds to the methods of [`LoaderBase`].
pub trait Loads: Send + Sync {
    /// The engine.
    fn engine(&self) -> &dyn AnyEngine;

    /// The data and the batches, for `repr`.
    fn describe(&self) -> String;

    /// The next batch as a dict; `None` at the end of a pass.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>>;

    /// The number of batches of a pass.
    fn length(&self, py: Python<'_>) -> PyResult<usize>;

    /// Measures the speed with a loop that does nothing.
    fn headspace<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Bound<'py, PyDict>>;

    /// The parameters that define the batches.
    fn identity(&self, py: Python<'_>) -> PyResult<Cow<'_, Identity>>;

    /// Whether `iter()` begins a pass, if the engine has passes.
    fn has_passes(&self) -> bool {
        true
    }

    /// The pass, counted from 0.
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.engine().epoch(py)
    }

    /// Adds the figures that only this kind has.
    fn add_stats(&self, _stats: &Bound<'_, PyDict>) -> PyResult<()> {
        Ok(())
    }

    /// The state as a dict.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let position = self.engine().position(py)?;
        state::to_python(py, &self.identity(py)?.state(&position))
    }

    /// The position of a state.
    fn position_of(&self, state: &Bound<'_, PyAny>) -> PyResult<Position> {
        let py = state.py();
        let identity = self.identity(py)?;
        let position = state::from_python(state)?.and_then(|state| identity.position(&state));
        position.map_err(|error| to_python(py, &error))
    }
}

/// What `Loader`, `TokenLoader` and `cache.DataLoader` have in common; it has no instances of its own.
///
/// A loader owns threads, which start with its first batch. They end with `close()`, at the end of a `with`
/// block, when the loader is dropped, or with the interpreter. It may be used by several threads, which share
/// its batches. In a fork of the process that made it, calls that need the engine (batches, position, state)
/// raise `ForebayError`.
#[pyclass(module = "forebay", name = "LoaderBase", subclass, frozen, weakref)]
pub struct LoaderBase {
    /// Finds the part of a loader that depends on its class.
    kind: for<'a> fn(&'a Bound<'_, LoaderBase>) -> PyResult<&'a dyn Loads>,
    batch_size: i64,
    /// `rank` and `world_size`.
    share: (i64, i64),
}

impl LoaderBase {
    /// A new object of the class of `loader`, with batches of `batch_size` rows on rank `share.0` of
    /// `share.1`.
    pub fn under<T>(loader: T, batch_size: i64, share: (i64, i64)) -> PyClassInitializer<T>
    where
        T: Loads + PyClass<BaseType = Self, Frozen = True>,
    {
        let base = Self { kind: |slf| Ok(slf.cast::<T>()?.get()), batch_size, share };
        PyClassInitializer::from(base).add_subclass(loader)
    }
}

fn kind<'a>(slf: &'a Bound<'_, LoaderBase>) -> PyResult<&'a dyn Loads> {
    (slf.get().kind)(slf)
}

#[pymethods]
impl LoaderBase {
    /// Infinite: continues with the next batch. Finite: begins the next pass, or the same one again if it was
    /// left early; after `load_state_dict`, `seek` or with `start_step` it continues there. Raises
    /// `ConfigError` in one of several workers of a torch `DataLoader`, unless `rank` and `world_size` give
    /// each worker a share.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Batches>> {
        let (py, this, (rank, world_size)) = (slf.py(), kind(slf)?, slf.get().share);
        check_share(py, rank, world_size)?;
        if this.has_passes() {
            this.engine().rewind(py)?;
        }
        Batches::of(slf)
    }

    /// The next batch. Raises `ForebayError` if the loader is closed, even if another thread closes it during
    /// the wait.
    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyDict>>> {
        kind(slf)?.next(slf.py())
    }

    /// The number of batches of the current finite pass. It includes batches that one process leaves out
    /// because all their records are bad. For a mixture it may differ from pass to pass if blocks are larger
    /// than a batch. Raises `TypeError` if the loader is infinite, the data still grow, or documents are
    /// packed, whose number of rows is known only afterwards.
    fn __len__(slf: &Bound<'_, Self>) -> PyResult<usize> {
        kind(slf)?.length(slf.py())
    }

    /// Raises `TypeError`: a loader is an iterable of batches. It exists for `torch.utils.data.DataLoader(loader)`,
    /// which would index the loader, and for `loader[0]`.
    fn __getitem__(slf: &Bound<'_, Self>, _index: &Bound<'_, PyAny>) -> PyResult<()> {
        let name = slf.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "{name} is an iterable of batches and has no rows to index: iterate it, or use \
             forebay.torch.DataLoader(loader) in place of torch.utils.data.DataLoader(loader)"
        )))
    }

    /// Always True, also without `len()`, so that `if loader:` tests whether there is a loader.
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
    /// `next()` that waits in another thread raises `ForebayError`, and so does every later one. `stats()`
    /// and `errors()` still work. Closing twice does nothing.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        kind(slf)?.engine().close(slf.py())
    }

    /// Whether `close()` was called.
    #[getter]
    fn closed(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Ok(kind(slf)?.engine().is_closed())
    }

    /// Rows of a batch on this rank, the parameter; a batch may have fewer.
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

    /// The number of the next batch: within the pass if finite, over all passes if infinite. After the last
    /// batch of a pass it is the number of batches.
    #[getter]
    fn batch(slf: &Bound<'_, Self>) -> PyResult<u64> {
        kind(slf)?.engine().batch(slf.py())
    }

    /// The pass of a finite loader, counted from 0: the current one until `iter()` begins the next.
    ///
    /// Infinite: the number of examples drawn, divided by the number of records, as the window mixes adjacent
    /// epochs; of a `TokenLoader`, how often its slowest packer has read all its documents.
    #[getter]
    fn epoch(slf: &Bound<'_, Self>) -> PyResult<u64> {
        kind(slf)?.epoch(slf.py())
    }

    /// Chooses the pass that the next `iter()` begins, 0 to 2**62. A pass that was resumed or sought keeps its
    /// position if `epoch` is its own number, so the usual loop over epochs can resume.
    ///
    /// An infinite loader continues and does not change: `epoch` may be the loader's own, or a framework's
    /// count of its iterations (from 0, or after `load_state_dict` from the first number given). Raises
    /// `StateError` for any other number, which would have to move the data.
    fn set_epoch(slf: &Bound<'_, Self>, #[pyo3(from_py_with = argument::epoch)] epoch: i64) -> PyResult<()> {
        match u64::try_from(epoch) {
            Ok(number) if epoch < i64::MAX => kind(slf)?.engine().set_epoch(slf.py(), number),
            _ => Err(to_python(slf.py(), &epoch_out_of_range(shown(epoch)))),
        }
    }

    /// Makes batch number `batch` the next one (or, if it is to be skipped, the one after it), at any
    /// distance: counted within the pass if finite, over all passes if infinite. Raises `ConfigError` if
    /// there is no such batch. A `TokenLoader` can seek its first batch only, since a packed batch follows
    /// from all earlier ones; for others keep states.
    fn seek(slf: &Bound<'_, Self>, #[pyo3(from_py_with = argument::batch)] batch: u64) -> PyResult<()> {
        kind(slf)?.engine().seek(slf.py(), batch)
    }

    /// Leaves out the batches in `ranges`, pairs of (first, end) with the end not included, numbered as in
    /// `seek`: for example those around a loss spike. They replace earlier ranges; an empty list removes
    /// them. The state keeps them; the next pass of a finite loader has all batches again. Raises
    /// `ConfigError` for more than 8, beyond the end of the pass, or for a `TokenLoader`.
    fn skip(slf: &Bound<'_, Self>, ranges: &Bound<'_, PyAny>) -> PyResult<()> {
        let ranges = state::ranges(ranges)?.map_err(|error| to_python(slf.py(), &error))?;
        kind(slf)?.engine().skip(slf.py(), &ranges)
    }

    /// Counts, times by stage, queue depths, and a verdict. Totals are since construction.
    ///
    /// - `delivered`, for the returned batches only: `batches`, `examples` (rows), `substitutes`, and the
    ///   records that were left out or replaced, `records_failed`, `records_excluded` and `records_lost` (to
    ///   the system). The same in every run, for any number of threads; a resumed loader counts from zero.
    /// - Work done, including batches that lie ready or were discarded, so it depends on timing:
    ///   `records_read`, `records_decoded`, `records_failed`, `records_excluded`, `records_lost`, `retries`
    ///   (reads that failed temporarily), `substitutes`; `decoded_at_first_batch`, how many records had been
    ///   decoded when the first batch was complete. `batches` were handed over. A record of `TokenLoader` is
    ///   a document, one of `cache.DataLoader` a batch.
    /// - `verdict`: what limits the loader and which parameter to change: idle, starting, consumer-bound,
    ///   CPU-bound, I/O-bound or buffer-bound. It covers the last 5 to 10 s before the last batch was handed
    ///   out.
    /// - `stages`: `read`, `decode`, `collate` and `consumer` (your loop), each with `threads`, `items`
    ///   (records; batches in the last two), `busy_s` and `blocked_s` over all threads, `blocked_on` by
    ///   reason of the wait, `p50_s` and `p99_s` of the work on an item (within 12 %), and for the last 5 to
    ///   10 s `items_per_s`, `busy_share`, `blocked_share` and `run_queue_share`. A wait counts when it ends.
    ///   `run_queue_share`, a part of the other two, is the share of the threads' time in which they were
    ///   ready to run and had no core: high if other processes use the machine. None where the system does
    ///   not tell (it needs Linux), and of the consumer if another thread took the batches.
    /// - `n_workers`, `prefetch_batches`, now: the workers at work, and the limit of batches made ahead.
    /// - `queues`, now: `records` and `record_bytes` that wait for a worker, `read_bytes` of memory
    ///   that holds what was read, `examples` in the shuffle buffers, `batches` that lie ready.
    /// - `batch_times`: `ready_p50_s`, `ready_p99_s`, how long a batch lay ready; `starved_p50_s`,
    ///   `starved_p99_s`, how long `next()` waited for it, without the first batch of a pass; `start_s`, the
    ///   sum of the waits for first batches.
    /// - `threads`, now, also while another thread waits in `next()`: a dict for each thread of the pass, or
    ///   of the last one, and for the `consumer` (your loop), with `name`, `state`, `since` (seconds in this
    ///   state), `item` (a row over all files; of the collator and the consumer a batch; if the state is
    ///   "waiting for an example", its row), `shard` and `row` of such a row. None where there is none. Empty
    ///   before the first batch, and in a fork. docs/hangs.md has the states.
    /// - `TokenLoader`: `packing`, as of the last batch made, which may not be returned yet: `documents` and
    ///   `tokens` that the packers of this rank hold, the `bytes` that they take, and since construction the
    ///   tokens `delivered` in rows and `dropped` where documents were cropped.
    /// - `cache.DataLoader`: the `rows` and `bytes` read, those for `headspace` included.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let this = kind(slf)?;
        let stats = this.engine().stats(slf.py())?;
        this.add_stats(&stats)?;
        Ok(stats)
    }

    /// Records the activity of every thread for the next `seconds` (0 to 3600) and writes it to `path`: trace
    /// events as JSON, for ui.perfetto.dev or chrome://tracing. Returns at once; the loop continues
    /// meanwhile. The file is written when the time is over or the loader closes, which waits for it, and
    /// gets its name when it is complete. Each thread has a line with its work (`read`, `decode`, `collate`,
    /// `loop`) and its waits, each shown after it ended; curves show the queues between them, and the workers
    /// at work. At most 262144 spans are kept; the file says how many were left out. Raises `OSError` if the
    /// file cannot be written, `StateError` if another trace is being recorded.
    #[pyo3(signature = (path, seconds=5.0))]
    fn trace(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = argument::path)] path: PathBuf,
        #[pyo3(from_py_with = argument::seconds)] seconds: f64,
    ) -> PyResult<()> {
        kind(slf)?.engine().trace(slf.py(), path, seconds)
    }

    /// Measures the loader's speed with a loop that does nothing, for `seconds` (0 to 3600), on a copy that
    /// begins at the same batch, with its own threads and buffers. The loader's position does not change.
    /// Best called before the loop, or while it is paused. First it waits until the shuffle window is full,
    /// for `seconds` from the first batch on at most.
    ///
    /// Returns a dict: `examples_per_s` handed out, in rows; `decoded_per_s`, the records (as in `stats`)
    /// that workers made; `handover_per_s`, rows measured with one cached batch: the upper limit of `next()`;
    /// `seconds` measured; `fill_seconds`, from the first batch until the window was full; `filled`, whether
    /// it was full in time: if not, the figures are those of the fill from the first batch on,
    /// `examples_per_s` is too low, and `decoded_per_s` is the rate after it; `verdict`, what limits the
    /// copy, and whether the window was full. A loop that runs near `decoded_per_s` waits for the loader; one
    /// far below it does not.
    #[pyo3(signature = (seconds=2.0))]
    fn headspace<'py>(
        slf: &Bound<'py, Self>,
        #[pyo3(from_py_with = argument::seconds)] seconds: f64,
    ) -> PyResult<Bound<'py, PyDict>> {
        kind(slf)?.headspace(slf.py(), seconds)
    }

    /// The loader's position: a dict that JSON can hold. It covers the returned batches, not the prefetched
    /// ones. After the last batch of a pass it is the start of the next pass. One rank's state serves all
    /// ranks, and is under 1 KB for any data, except that of a `TokenLoader`.
    ///
    /// There every rank saves its own state. `packers` has the documents that each packer of the rank holds,
    /// for exact resume, some kilobytes each. `reading` shows, for people, where its first packer reads:
    /// `shard`, `row_group`, `epoch` (from 0). The call takes some tens of microseconds, so a state may be
    /// taken with every batch.
    fn state_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        kind(slf)?.state(slf.py())
    }

    /// Resumes at the position of `state`, bit for bit, with any number of threads, buffer and channel sizes,
    /// and with any rank and world size of the same global batch (order "window": a world size that divides
    /// its `n_streams`). Reads no data; the next batch is made without the earlier ones. Raises `StateError`
    /// that names the difference.
    ///
    /// `TokenLoader` takes its rank's state, or a list of the states of all ranks, saved after the same
    /// batch, for any world size that divides their number of packers. Only the documents that packers held
    /// are read again. A dict with `pq_idx`, `rg_idx` and `epoch` (from 1) has the same meaning as in
    /// nanochat: every packer continues at its first row group after that one, which must exist, with an
    /// empty buffer, so some documents are lost.
    fn load_state_dict(slf: &Bound<'_, Self>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let this = kind(slf)?;
        this.engine().restore(slf.py(), this.position_of(state)?)
    }

    fn __setstate__(slf: &Bound<'_, Self>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::load_state_dict(slf, state)
    }

    /// Puts back the batch that was returned last, if it did not reach the caller: `next()` makes it again.
    fn _take_back(slf: &Bound<'_, Self>) -> PyResult<()> {
        kind(slf)?.engine().take_back(slf.py())
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (name, this) = (slf.get_type().fully_qualified_name()?, kind(slf)?);
        let closed = if this.engine().is_closed() { ", closed" } else { "" };
        Ok(format!("<{name}: {}{closed}{}>", this.describe(), this.engine().verdict()))
    }
}
