//! `forebay.cache.DataLoader`.

use std::{path::PathBuf, sync::Arc};

use pyo3::{
    IntoPyObjectExt,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyTuple},
};
use serde_json::{Map, Value};

use super::{
    SLICE,
    arguments::{Argument, Parameters, arguments, bind, entries, identity, signature, wrong_type},
    batches::Batches,
    dataset::{_Dataset, to_dict},
    errors::to_python,
    extract::int64,
    face::Face,
    logging, state,
    torch_workers::check_share,
};
use crate::{
    Error, ErrorKind, Result,
    config::{RowConfig, rows::row_parameters, shown},
    dataset::Length,
    engine::{Engine, epoch_out_of_range},
    seed::mix,
    state::{Identity, Share},
    tasks::{DatasetSource, DatasetTask, RowShare, Rows, SharedTask},
};

row_parameters!(arguments);

type RowEngine = Engine<DatasetSource, SharedTask>;

#[doc = row_parameters!(signature)]
/// Batches of a dataset, made ahead on threads, starting at any step.
///
/// Iteration yields dicts of arrays by field. A field whose documents all have one shape is stacked,
/// `[batch, *shape]`; any other is a `JaggedArray`: the concatenated values of all documents, and their
/// offsets. Arrays may be kept and modified.
///
/// Each thread makes a whole batch: it maps positions to documents, reads adjacent ones in one read, and
/// writes each directly into its place. The GIL is released meanwhile, unless a dataset is written in Python.
/// Threads start with the first batch.
///
/// Batches are a pure function of dataset, global batch (`batch_size * world_size`) and step, for any number
/// of threads. The ranks' parts of a batch, side by side, are the batch that one process would have made;
/// each rank reads its part only. The last batch of a pass may be shorter; it is shared evenly, and if it has
/// fewer rows than there are ranks, some ranks get arrays without rows.
///
/// Each `iter()` starts a pass: the next one, or the same one again if it was left early. If the dataset has
/// an order for each epoch, each pass has its own order. A dataset without end (a mixture that restarts)
/// continues instead, and `len()` raises TypeError. While a cache is still being built, a batch comes once
/// its documents are committed, the pass ends with the cache, and `len()` raises TypeError until then.
///
/// Parameters
/// ----------
#[doc = row_parameters!(entries)]
/// Raises
/// ------
/// ConfigError
///     A parameter is out of range, there is no batch, or a mixture's weight gets no place in a block.
///
/// An exception of a dataset is raised by `next()` at the batch's position, after all earlier batches, with
/// batch and indices in the message.
#[pyclass(module = "forebay.cache", name = "DataLoader", frozen, weakref)]
pub struct DataLoader {
    face: Face<DatasetSource, SharedTask>,
    source: Arc<DatasetSource>,
    task: SharedTask,
    config: RowConfig,
    share: RowShare,
    is_endless: bool,
    /// What the dataset is.
    text: String,
}

#[pymethods]
impl DataLoader {
    #[new]
    #[pyo3(signature = (*args, **kwargs), text_signature = None)]
    fn new(py: Python<'_>, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        logging::emitting(py, || {
            let raise = |error: Error| to_python(py, &error);
            let (config, mut problems) = bind::<RowConfig>(args, kwargs)?;
            let plans = config.check().map_err(|error| problems.push(error.message));
            let (Ok((plan, share)), true) = (plans, problems.is_empty()) else {
                return Err(raise(Error::new(ErrorKind::Config, problems.join("; "))));
            };
            let dataset = config.dataset.to_python(py)?;
            let not_one = || {
                wrong_type(
                    "dataset",
                    &dataset,
                    "an AsyncDataset of forebay.cache; derive yours from that class",
                )
            };
            let native = dataset.call_method0("_native").map_err(|_| not_one())?;
            let native = native.cast_into::<_Dataset>().map_err(|_| not_one())?;
            let opened = native.get().dataset().clone();
            let ahead = plan.prefetch_batches + 3 * plan.n_workers;
            let (source, task, text, length) = py
                .detach(|| -> Result<_> {
                    let text = opened.describe();
                    let opened = opened.with_block(share.global_batch())?;
                    let source = Arc::new(DatasetSource::new(opened.clone(), share));
                    let length = source.length(0)?;
                    Ok((source, SharedTask(Arc::new(DatasetTask::new(opened, share, ahead))), text, length))
                })
                .map_err(raise)?;
            let mut engine = py.detach(|| Engine::new(source.clone(), task.clone(), plan)).map_err(raise)?;
            let mut steps = py.detach(|| source.steps_to(config.start_step as u64)).map_err(raise)?;
            let (epoch, batch) = loop {
                py.check_signals()?;
                if let Some(place) = py.detach(|| steps.go_on(&source, SLICE)).map_err(raise)? {
                    break place;
                }
            };
            py.detach(|| engine.set_epoch(epoch).and_then(|()| engine.seek(batch))).map_err(raise)?;
            Ok(Self {
                face: Face::new(engine),
                source,
                task,
                config,
                share,
                is_endless: length.is_endless(),
                text,
            })
        })
    }

    /// Begins the next pass, or the same one again if it was left early; after `load_state_dict`, `seek` or
    /// with `start_step` it continues there. A dataset without end continues with the next batch.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Batches>> {
        let RowConfig { rank, world_size, .. } = slf.get().config;
        check_share(slf.py(), rank, world_size)?;
        if !slf.get().is_endless {
            slf.get().face.ask(slf.py(), RowEngine::rewind)?;
        }
        Batches::of(slf)
    }

    /// The next batch. Raises `ForebayError` if the loader is closed, even if another thread closes it during
    /// the wait.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        while let Some(Rows { columns, is_past_end }) = self.face.next(py)? {
            if !is_past_end {
                let pool = self.task.0.pool().map_err(|error| to_python(py, &error))?;
                return to_dict(py, columns, pool.fields()).map(Some);
            }
            // The rows ended during the pass, so this batch is discarded.
            self.face.ask(py, |engine| {
                engine.take_back();
                engine.recount()
            })?;
        }
        Ok(None)
    }

    /// The number of batches of a pass; `TypeError` without end, or while the end is unknown.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let length = self.length(py)?;
        if length.is_endless() {
            return Err(PyTypeError::new_err("the dataset has no end, so its loader has no length"));
        }
        if !length.is_final {
            return Err(PyTypeError::new_err(
                "the dataset still grows; its length is known when all of it is there",
            ));
        }
        Ok(self.share.n_batches(length.rows) as usize)
    }

    /// Always True, also without `len()`.
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

    /// Ends all threads within half a second; a running call of a dataset written in Python is finished
    /// first.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.face.close(py)
    }

    /// Whether `close()` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.face.control().is_closed()
    }

    /// The dataset that the loader reads.
    #[getter]
    fn dataset<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.config.dataset.to_python(py)
    }

    /// The number of the next batch in its pass.
    #[getter]
    fn batch(&self, py: Python<'_>) -> PyResult<u64> {
        self.face.with_engine(py, |engine| engine.batch())
    }

    /// The pass, counted from 0.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.face.with_engine(py, |engine| engine.epoch())
    }

    /// Chooses the pass that the next `iter()` begins, 0 to 2**62.
    fn set_epoch(&self, py: Python<'_>, #[pyo3(from_py_with = int64)] epoch: i64) -> PyResult<()> {
        match u64::try_from(epoch) {
            Ok(number) if epoch < i64::MAX => self.face.ask(py, |engine| engine.set_epoch(number)),
            _ => Err(to_python(py, &epoch_out_of_range(shown(epoch)))),
        }
    }

    /// Makes `batch`, counted from the start of the pass, the next one, at any distance.
    fn seek(&self, py: Python<'_>, #[pyo3(from_py_with = int64)] batch: i64) -> PyResult<()> {
        let Ok(batch) = u64::try_from(batch) else {
            let message = format!("batch is {batch}, must be 0 or more");
            return Err(to_python(py, &Error::new(ErrorKind::Config, message)));
        };
        self.face.ask(py, |engine| engine.seek(batch))
    }

    /// The figures of `Loader.stats`, with batches as examples, and the `rows` and `bytes` read since
    /// construction.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.face.stats(py)?;
        let [rows, bytes] = self.task.0.made();
        stats.set_item("rows", rows)?;
        stats.set_item("bytes", bytes)?;
        Ok(stats)
    }

    /// Records the activity of the threads for the next `seconds` and writes it to `path`; see
    /// `Loader.trace`.
    #[pyo3(signature = (path, seconds=5.0))]
    fn trace(&self, py: Python<'_>, path: PathBuf, seconds: f64) -> PyResult<()> {
        self.face.trace(py, path, seconds)
    }

    /// Puts back the batch that was returned last, if it did not reach the caller: `next()` makes it again.
    fn _take_back(&self, py: Python<'_>) -> PyResult<()> {
        self.face.take_back(py)
    }

    /// The loader's position: a dict that JSON can hold. It covers the returned batches, not the prefetched
    /// ones.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let position = self.face.with_engine(py, |engine| engine.position())?;
        state::to_python(py, &self.identity(py)?.state(&position))
    }

    /// Resumes at the position of `state`, bit for bit. One rank's state serves all ranks, and any world size
    /// with the same global batch. Raises `StateError` that names the difference.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut identity = self.identity(py)?;
        let position = state::from_python(state)?.and_then(|mut found| {
            // While the dataset grew, the number of rows was unknown.
            let theirs = found.pointer_mut("/data/num_records");
            let mine = identity.data.get_mut("num_records");
            if let (Some(theirs), Some(mine)) = (theirs, mine)
                && (theirs.is_null() || mine.is_null())
            {
                (*theirs, *mine) = (Value::Null, Value::Null);
            }
            identity.position(&found)
        });
        let position = position.map_err(|error| to_python(py, &error))?;
        self.face.ask(py, move |engine| engine.restore(position.clone()))
    }

    /// Pickles dataset, parameters and state.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let new = py.import("copyreg")?.getattr("__newobj_ex__")?;
        let arguments = (slf.get_type(), PyTuple::empty(py), this.config.keywords(py, None)?);
        (new, arguments, this.state_dict(py)?).into_bound_py_any(py)
    }

    fn __setstate__(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        self.load_state_dict(py, state)
    }

    fn __repr__(&self) -> String {
        let RowConfig { batch_size, rank, world_size, .. } = self.config;
        let rank = if world_size > 1 { format!(", rank {rank} of {world_size}") } else { String::new() };
        let closed = if self.closed() { ", closed" } else { "" };
        let text = shortened(&self.text);
        format!(
            "<forebay.cache.DataLoader: {text}, batches of {batch_size}{rank}{closed}{}>",
            self.face.verdict()
        )
    }
}

impl DataLoader {
    fn length(&self, py: Python<'_>) -> PyResult<Length> {
        self.face.check_process()?;
        py.detach(|| self.source.length(0)).map_err(|error| to_python(py, &error))
    }

    /// The parameters that define the batches.
    fn identity(&self, py: Python<'_>) -> PyResult<Identity> {
        let length = self.length(py)?;
        let facts = Facts { config: &self.config, share: &self.share, text: &self.text };
        let mut data = Map::new();
        let known = (length.is_final && !length.is_endless()).then_some(length.rows);
        data.insert("num_records".into(), known.into());
        Ok(Identity {
            kind: "forebay.cache.DataLoader",
            config: facts.entries(),
            data,
            share: Share { rank: 0, world_size: 1 },
        })
    }
}

/// What defines the batches of a loader of datasets.
struct Facts<'a> {
    config: &'a RowConfig,
    share: &'a RowShare,
    /// What the dataset is.
    text: &'a str,
}

row_parameters!(identity);

impl Facts<'_> {
    fn dataset(&self) -> Option<Value> {
        Some(shortened(self.text).into())
    }

    fn global_batch_size(&self) -> Option<Value> {
        Some(self.share.global_batch().into())
    }
}

/// The longest text that goes into a state.
const LONGEST: usize = 320;

/// A text that identifies a dataset: as it is, or its beginning and a hash if it is long.
fn shortened(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let digest = text.bytes().fold(0, |state, byte| mix(state ^ mix(u64::from(byte))));
    let beginning: String = text.chars().take(LONGEST - 24).collect();
    format!("{beginning}... {digest:016x}")
}
