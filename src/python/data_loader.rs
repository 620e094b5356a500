//! `forebay.cache.DataLoader`.

use std::{borrow::Cow, sync::Arc};

use pyo3::{
    IntoPyObjectExt, PyTraverseError, PyVisit,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyTuple},
};
use serde_json::Value;

use super::{
    SLICE,
    arguments::{Argument, Parameters, arguments, attempt, bind, entries, signature, wrong_type},
    arrays::to_dict,
    dataset::_Dataset,
    ending::detach,
    engine_handle::{AnyEngine, EngineHandle},
    errors::to_python,
    loader_base::{LoaderBase, LoaderImpl},
    logging, owned_object, state,
};
use crate::{
    Error, ErrorKind, Result,
    compose::identity::{DatasetIdentity, shortened},
    config::DatasetConfig,
    dataset::{LeafLength, id_type},
    engine::{Engine, Position},
    fields::Columns,
    state::Identity,
    tasks::{DatasetShare, DatasetSource, DatasetTask, SharedTask},
};

forebay_loader::row_parameters!(arguments);

#[doc = forebay_loader::row_parameters!(signature)]
/// Loads batches of a dataset with prefetching threads, starting at any step.
///
/// Iteration yields dicts of arrays by field. A field whose documents all have the same shape is stacked,
/// `[batch, *shape]`. Any other field is a `JaggedArray`: the concatenated values of all documents, and their
/// offsets. Arrays may be kept and modified.
///
/// Each thread makes a whole batch: it maps positions to documents, reads adjacent documents in one read, and
/// writes each directly into its place. The GIL is released meanwhile, unless a dataset is written in Python.
/// Threads start with the first batch.
///
/// Batches are a pure function of dataset, global batch (`batch_size * world_size`) and step, for any number
/// of threads. The ranks' parts of a batch, concatenated, are the batch that one process would have made;
/// each rank reads only its part. The last batch of a pass may be shorter. It is shared evenly; if it has
/// fewer rows than there are ranks, some ranks get arrays without rows.
///
/// Each `iter()` starts the next pass, also if the last one was left early. If the dataset is shuffled per
/// epoch, each pass has its own order. An infinite dataset (a mixture that restarts) continues instead, and
/// `len()` raises TypeError. While a cache is still being built, a batch is returned once its
/// documents are committed, the pass ends with the cache, and `len()` raises TypeError until then.
///
/// Parameters
/// ----------
#[doc = forebay_loader::row_parameters!(entries)]
/// Raises
/// ------
/// ConfigError
///     A parameter is out of range, there is no batch, or a mixture's weight is too small for a place in a
///     block.
///
/// `next()` raises an exception of a dataset at the batch's position, after all earlier batches, with batch
/// and indices in the message.
#[pyclass(module = "forebay.cache", name = "DataLoader", extends = LoaderBase, frozen)]
pub struct DataLoader {
    engine: EngineHandle<DatasetSource, SharedTask>,
    source: Arc<DatasetSource>,
    task: SharedTask,
    config: DatasetConfig,
    /// The owner of the user's datasets that the workers call.
    native: Py<_Dataset>,
    share: DatasetShare,
    is_endless: bool,
    text: String,
}

#[pymethods]
impl DataLoader {
    #[new]
    #[pyo3(signature = (*args, **kwargs), text_signature = None)]
    fn new(
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        logging::emitting(py, || {
            let raise = |error: Error| to_python(py, &error);
            let (config, mut problems) = bind::<DatasetConfig>(args, kwargs)?;
            let plans = config.check().map_err(|error| problems.push(error.message));
            let (Ok((mut plan, share)), true) = (plans, problems.is_empty()) else {
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
            let native = attempt(py, dataset.call_method0("_native"))?.ok_or_else(not_one)?;
            let native = native.cast_into::<_Dataset>().map_err(|_| not_one())?;
            let mut opened = native.get().dataset().clone();
            if let Some(dtype) = &config.dtype {
                opened = opened.with_integers(id_type(dtype).map_err(raise)?, None);
            }
            if native.get().calls_functions() {
                plan.worker_nice = 0; // it would leave the niceness to what it starts
            }
            let ahead = plan.prefetch_batches + 3 * plan.n_workers;
            let (source, task, text, length) = detach(py, || -> Result<_> {
                let text = opened.describe();
                let opened = opened.with_block(share.global_batch())?;
                let source = Arc::new(DatasetSource::new(opened, share)?);
                let length = source.length(0)?;
                Ok((source.clone(), SharedTask(Arc::new(DatasetTask::new(source, ahead))), text, length))
            })
            .map_err(raise)?;
            let mut engine = detach(py, || Engine::new(source.clone(), task.clone(), plan)).map_err(raise)?;
            let mut steps = detach(py, || source.steps_to(config.start_step as u64)).map_err(raise)?;
            let (epoch, batch) = loop {
                py.check_signals()?;
                if let Some(place) = detach(py, || steps.go_on(&source, SLICE)).map_err(raise)? {
                    break place;
                }
            };
            detach(py, || engine.set_epoch(epoch).and_then(|()| engine.seek(batch))).map_err(raise)?;
            let DatasetConfig { batch_size, rank, world_size, stall_warning_s, .. } = config;
            let loader = Self {
                engine: EngineHandle::new(engine, Arc::default(), stall_warning_s),
                source,
                task,
                config,
                native: native.unbind(),
                share,
                is_endless: length.is_endless(),
                text,
            };
            Ok(LoaderBase::under(loader, batch_size, (rank, world_size)))
        })
    }

    /// As in `Loader`.
    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        owned_object::visit(&self.config.dataset, &visit)?;
        visit.call(&self.native)
    }

    /// The dataset that the loader reads.
    #[getter]
    fn dataset<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.config.dataset.to_python(py)
    }

    /// Pickles dataset, parameters and state.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let new = py.import("copyreg")?.getattr("__newobj_ex__")?;
        let arguments = (slf.get_type(), PyTuple::empty(py), this.config.keywords(py, None)?);
        (new, arguments, this.state(py)?).into_bound_py_any(py)
    }
}

impl LoaderImpl for DataLoader {
    fn engine(&self) -> &dyn AnyEngine {
        &self.engine
    }

    fn describe(&self) -> String {
        let DatasetConfig { batch_size, rank, world_size, .. } = self.config;
        let rank = if world_size > 1 { format!(", rank {rank} of {world_size}") } else { String::new() };
        format!("{}, batches of {batch_size}{rank}", shortened(&self.text))
    }

    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.engine.next(py)?.map(|columns| self.to_dict(py, columns)).transpose()
    }

    fn length(&self, py: Python<'_>) -> PyResult<usize> {
        let length = self.rows(py)?;
        if length.is_endless() {
            return Err(PyTypeError::new_err("the dataset is infinite, so its loader has no len()"));
        }
        if !length.is_final {
            return Err(PyTypeError::new_err(
                "the dataset still grows; its length is known once it is complete",
            ));
        }
        Ok(self.share.n_batches(length.rows) as usize)
    }

    fn headspace<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Bound<'py, PyDict>> {
        self.engine.headspace(py, seconds, |columns| columns.rows, |columns| self.to_dict(py, columns))
    }

    fn identity(&self, py: Python<'_>) -> PyResult<Cow<'_, Identity>> {
        let length = self.rows(py)?;
        let identity_inputs = DatasetIdentity { config: &self.config, share: &self.share, text: &self.text };
        let known = (length.is_final && !length.is_endless()).then_some(length.rows);
        Ok(Cow::Owned(identity_inputs.identity(known)))
    }

    fn is_infinite(&self) -> bool {
        self.is_endless
    }

    fn before_pass(&self, py: Python<'_>) -> PyResult<()> {
        self.engine.check_process()?;
        detach(py, || self.source.update_lengths()).map_err(|error| to_python(py, &error))
    }

    fn add_stats(&self, stats: &Bound<'_, PyDict>) -> PyResult<()> {
        let [rows, bytes] = self.task.0.made();
        stats.set_item("rows", rows)?;
        stats.set_item("bytes", bytes)
    }

    fn position_of(&self, state: &Bound<'_, PyAny>) -> PyResult<Position> {
        let py = state.py();
        let mut identity = self.identity(py)?.into_owned();
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
        position.map_err(|error| to_python(py, &error))
    }
}

impl DataLoader {
    fn to_dict<'py>(&self, py: Python<'py>, columns: Columns) -> PyResult<Bound<'py, PyDict>> {
        let pool = self.task.0.pool().map_err(|error| to_python(py, &error))?;
        to_dict(py, columns, pool.fields())
    }

    fn rows(&self, py: Python<'_>) -> PyResult<LeafLength> {
        self.before_pass(py)?;
        detach(py, || self.source.length(0)).map_err(|error| to_python(py, &error))
    }
}
