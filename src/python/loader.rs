//! `forebay.Loader`.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use numpy::PyArray1;
use pyo3::{
    IntoPyObjectExt, PyTraverseError, PyVisit,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyList, PyTuple, PyType},
};

use super::{
    arguments::{Parameters, argument, arguments, bind, entries, named, preset, signature},
    arrays::to_dict as batch_dict,
    bucket_totals::{bucket_list, padding_dict},
    engine_handle::{AnyEngine, EngineHandle, because_of_damage, error_dict, shards},
    errors::to_python,
    interruptible::run_interruptible,
    loader_base::{LoaderBase, LoaderImpl, warn_without_rank},
    loader_fields::{
        OF_FEATURES, bfloat16_fields, described, given_twice, held_in, names_to_python, source_columns,
    },
    logging, owned_object,
    plan_query::{PlanQuery, PlannedExample, plan_queries, planned_arrays},
    sampling::class_dicts,
    stats::files_dict,
};
use crate::{
    Error, ErrorKind, LoaderConfig, cancel,
    compose::{ClassNamesOf, Composed, compose, source_problems},
    config::OrderChoice,
    engine::{Engine, closed, epoch_out_of_range},
    error::{counted, shown},
    fields::{Columns, Field},
    order::{self, Buckets, CutTotals},
    sampling::{Balance, ClassCounts, LeftOut, class_counts},
    source::{Recordings, RowInfo, Selection},
    state::Identity,
    tasks::{AudioPlan, AudioTask, ClipPlanner, PlannedValue, planned_outcome},
};

forebay_loader::loader_parameters!(arguments);

#[doc = forebay_loader::loader_parameters!(signature)]
/// Loads shuffled batches of features and labels of recordings: in a folder, a table, archives, or Arrow or
/// Parquet shards.
///
/// `n_readers` threads read records; `n_workers` threads decode a crop of each and compute its features.
/// Iteration yields dicts of numpy arrays, by default `spectrogram` float32 `[batch, n_mels, n_frames]`
/// (natural log of mel energies; see `features`, `dtype`, `layout`), `label` int64 `[batch]` (-1 where null;
/// absent without a label column; see `targets`), `index` int64 `[batch]` (row number, counted over all files
/// in the given order). Arrays are C-contiguous and writable, and the caller may keep them. The GIL is
/// released during waits and while a batch is assembled. Threads start with the first batch.
///
/// Batches are a pure function of files and parameters, bit for bit, for any `n_workers`, `raw_channel_size`
/// and `shuffle_buffer_size`.
///
/// Parameters
/// ----------
#[doc = forebay_loader::loader_parameters!(entries)]
/// Raises
/// ------
/// ConfigError
///     A parameter is out of range, or a file is none of these sources, or lacks a column that is needed.
///     Lists every parameter that is wrong.
/// OSError
///     A file cannot be opened or read; `FileNotFoundError` if it does not exist. `errno` and `filename` are
///     set.
///
/// Iteration raises `OSError` if a shard can no longer be read, `DecodeError` if a bad record of an infinite
/// stream cannot be replaced or too many records fail, `MemoryError` if an allocation failed, and
/// `ForebayError` after the loader is closed.
#[pyclass(module = "forebay", name = "Loader", extends = LoaderBase, frozen)]
pub struct Loader {
    engine: EngineHandle<Selection<Recordings>, AudioTask>,
    source: Arc<Recordings>,
    selection: Arc<Selection<Recordings>>,
    n_rows: u64,
    config: LoaderConfig,
    order: OrderChoice,
    identity: Identity,
    planner: ClipPlanner,
    fields: Arc<[Field]>,
    /// The class names of each target that has any.
    class_names: ClassNamesOf,
    /// The classes of each column that is balanced, with the expected examples of an epoch.
    classes: Vec<ClassCounts>,
    /// The places that were drawn again after silence.
    redraws: Option<Arc<AtomicU64>>,
    left_out: LeftOut,
    buckets: Option<Arc<Buckets>>,
}

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(signature = (*args, **kwargs), text_signature = None)]
    fn new(
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        logging::emitting(py, || {
            py.import("forebay._recipe")?; // not at the first use of `recipe`: see `_preloaded.py`
            let (config, mut problems) = bind::<LoaderConfig>(args, kwargs)?;
            problems.extend(given_twice::<LoaderConfig>(config.features.as_ref(), args, kwargs)?);
            problems.extend(source_problems("arrow_files", &config.arrow_files));
            let names = &config.arrow_files.names;
            if names.is_none() && !config.weights.0.is_empty() {
                return Err(PyTypeError::new_err(
                    "weights need named sources: pass arrow_files as a dict of names and files",
                ));
            }
            if names.is_none() && (config.mixture_block.is_some() || config.stop.is_some()) {
                problems
                    .push("mixture_block and stop need named sources: pass arrow_files as a dict".to_owned());
            }
            let plans = config.check().map_err(|error| problems.push(error.message));
            let (Ok(plans), true) = (plans, problems.is_empty()) else {
                return Err(to_python(py, &Error::new(ErrorKind::Config, problems.join("; "))));
            };
            let composed = run_interruptible(py, "forebay-index", move || compose(config, plans))?;
            let Composed {
                config,
                source,
                selection,
                task,
                plan,
                order,
                identity,
                class_names,
                classes,
                left_out,
                buckets,
                n_rows,
            } = composed;
            let (fields, planner) = (task.fields().clone(), task.planner().clone());
            let redraws = planner.plan().crop.redraws().then(|| planner.redraws().clone());
            let traffic = source.traffic().clone();
            let engine = Engine::new(selection.clone(), task, plan).map_err(|error| {
                to_python(py, &because_of_damage(error, source.shards(), source.n_rows()))
            })?;
            let LoaderConfig { batch_size, rank, world_size, stall_warning_s, .. } = config;
            if order.order != order::Order::Sequential {
                warn_without_rank("Loader", (rank, world_size));
            }
            let batch_size = buckets.as_ref().map_or(batch_size, |buckets| buckets.most_rows().into());
            let engine = EngineHandle::new(engine, traffic, stall_warning_s);
            let loader = Self {
                engine,
                identity,
                config,
                order,
                planner,
                fields,
                class_names,
                classes,
                source,
                selection,
                n_rows,
                redraws,
                left_out,
                buckets,
            };
            Ok(LoaderBase::under(loader, batch_size, (rank, world_size)))
        })
    }

    /// The functions that steps of augmentation call may refer to the loader. No `__clear__`: a function is
    /// made before its loader, so it refers to it through an object that has one.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.config.augment.functions().iter().try_for_each(|function| owned_object::visit(function, &visit))
    }

    /// Makes a loader for training: infinite, shuffled (see `order`), random crops, a buffer of 10000
    /// examples, 8 workers; with `infinite=False` a short last batch is left out. `overrides` are parameters
    /// of `Loader`.
    #[classmethod]
    #[pyo3(signature = (*args, **overrides), text_signature = "($cls, arrow_files, **overrides)")]
    fn train<'py>(
        class: &Bound<'py, PyType>,
        args: &Bound<'py, PyTuple>,
        overrides: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        preset(class, "train", args, &LoaderConfig::train(), overrides)
    }

    /// Makes a loader for evaluation: one pass in order, center crops, a buffer of 1000 examples, 4 workers.
    /// `overrides` are parameters of `Loader`.
    #[classmethod]
    #[pyo3(signature = (*args, **overrides), text_signature = "($cls, arrow_files, **overrides)")]
    fn eval<'py>(
        class: &Bound<'py, PyType>,
        args: &Bound<'py, PyTuple>,
        overrides: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        preset(class, "eval", args, &LoaderConfig::eval(), overrides)
    }

    /// Lists the records that failed so far, each once, in row order: dicts with `index` (row over all
    /// files), `shard`, `row` (within the shard), `path` (the recording's path in its row, if there is one),
    /// `kind` and `reason`. At most 10000, or as many as `max_errors` allows. The kinds: `unreadable` (a
    /// null, or a path without a file), `truncated` (past the end of the shard), `unsupported`, `corrupt`,
    /// `empty`, `too_short`, `non_finite`, `too_large`, `io` and `not_found` (of the system).
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut reader = self.source.reader();
        let selection = self.selection.clone();
        // A path that cannot be read is None; `reason` says why the record is bad.
        let path = move |row| reader.path(row).ok().flatten();
        self.engine.errors(py, move |at| selection.positions().row(at), path)
    }

    /// What is padding in the batches of `batching=Buckets(...)`: a dict with `share` (of the seconds of an
    /// epoch's batches, if each is padded to its longest), `random` (the same for batches of as many rows
    /// that are filled in the order of the draws) and `batches` (of an epoch, on all ranks). None without
    /// `batching`. Takes as long as `buckets`.
    #[getter]
    fn padding<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(totals) = self.cut_totals(py, u64::MAX)? else { return Ok(None) };
        padding_dict(py, &totals).map(Some)
    }

    /// The rows that are not read because of their length: `too_short` and `too_long`, by `crop=Whole(...)`;
    /// `too_many_tokens` and `too_many_per_second`, by `max_tokens` and `max_per_second` of a target.
    #[getter]
    fn left_out<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let LeftOut { too_short, too_long, too_many_tokens, too_many_per_second } = self.left_out;
        let dict = PyDict::new(py);
        dict.set_item("too_short", too_short)?;
        dict.set_item("too_long", too_long)?;
        dict.set_item("too_many_tokens", too_many_tokens)?;
        dict.set_item("too_many_per_second", too_many_per_second)?;
        Ok(dict)
    }

    /// The buckets of `batching=Buckets(...)`, by length: a list of dicts with `max_seconds` (the longest
    /// recording), `max_tokens` (only if they bound batches: the longest text), `batch_size` (the rows of a
    /// full batch), `rows` and `seconds` (of the rows as they are read, without `Speed`), `batches` (of an
    /// epoch, on all ranks) and `padding` (their share of padded seconds, if each is padded to its longest).
    /// None without `batching`. Plans the batches of an epoch: some 0.1 s for each million rows.
    #[getter]
    fn buckets<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(buckets) = &self.buckets else { return Ok(None) };
        let planned = self.cut_totals(py, u64::MAX)?.unwrap_or_default();
        bucket_list(py, buckets, planned.buckets).map(Some)
    }

    /// Returns the recordings that steps `Mix` and `Reverb` could not decode, in place of which others were
    /// taken: a list of dicts with `step` (the number of the step among these, from 0), and `index`, `shard`,
    /// `row`, `kind` and `reason` as in `errors()`, of the files of that step. At most 10000 for each step.
    /// Those of `independent=` that were to be taken from other rows have `recording`, its column, instead of
    /// `step`. The list has those of batches made ahead, too.
    fn partner_errors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        logging::emit(py)?;
        let list = PyList::empty(py);
        let steps = self.audio().augment.readings().zip(&self.audio().mix_sources).enumerate();
        for (step, ((_, reading), mix_sources)) in steps {
            for error in mix_sources.failures() {
                let row = |at| if reading.is_own { self.selection.positions().row(at) } else { at };
                list.append(error_dict(py, &error, error.place.index.map(row), ("step", step))?)?;
            }
        }
        for (name, partners) in self.audio().waveforms.iter().flat_map(|plan| plan.partners()) {
            for error in partners.failures() {
                let row = error.place.index.map(|at| self.selection.positions().row(at));
                list.append(error_dict(py, &error, row, ("recording", name))?)?;
            }
        }
        Ok(list)
    }

    /// The number of rows in all shards, or of those that `n_samples` or `sampling` choose; with
    /// `crop=Windows()` the number of their windows.
    #[getter]
    fn num_records(&self) -> u64 {
        self.n_rows
    }

    /// The number of batches of an epoch, the same on every rank. In a finite loader it is `len(loader)`. In
    /// an infinite one, epochs follow each other without a gap: it is the rows of an epoch divided by
    /// `batch_size * world_size`, rounded up, and the last of that many batches may have rows of the next
    /// epoch.
    #[getter]
    fn batches_per_epoch(&self) -> u64 {
        self.engine.control().batches_per_epoch()
    }

    /// The names of the sources of a mixture, by the numbers in a batch's `source`; None without a mixture.
    #[getter]
    fn source_names(&self) -> Option<Vec<String>> {
        self.config.arrow_files.names.clone()
    }

    /// The fields whose uint16 values are the bits of bfloat16, which numpy does not have.
    #[getter]
    fn _bfloat16_fields(&self) -> Vec<&str> {
        bfloat16_fields(self.audio())
    }

    /// Returns batch number `batch`, past or future, without a change of position. Takes the time of
    /// `batch_size` records on one thread. A batch in which all records are bad has no rows.
    fn replay<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = argument::batch)] batch: u64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let replay = self.engine.ask(py, |engine| engine.replay(batch))?;
        let control = self.engine.control().clone();
        let made = run_interruptible(py, "forebay-replay", move || {
            replay.run(|| !cancel::is_stopped() && !control.is_closed())
        })?;
        match made {
            Some(batch) => self.to_dict(py, batch),
            None => Err(to_python(py, &closed())),
        }
    }

    /// Returns the row numbers of this rank's next `n` examples, int64 `[n]`, without reading data. Bad
    /// records are not known in advance. Fewer than `n` if the pass ends earlier.
    ///
    /// `outputs`: names of what augmentation will do, such as `["gain_db", "mix_index"]`, as in the parameter
    /// `outputs` of the loader. The result is then a dict: `index`, and an array `[n]` for each name, of the
    /// first clip of an example. A partner is the first that is drawn; if it turns out bad, another is taken,
    /// and none where it is silent. `speed` is the factor that is drawn, which batches have rounded to a
    /// whole number of hertz of the recording. `"start"`, where the clip begins as in a batch, reads the
    /// header of each recording; it is NaN for a bad record, and the first place that is drawn if silence is
    /// drawn again. `"mix_start"` depends on the partners' lengths, and the start of `crops.Loudest` on
    /// samples, so they are not possible.
    #[pyo3(signature = (n, *, outputs=None))]
    fn plan<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = argument::n)] n: i64,
        outputs: Option<Vec<String>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asked = outputs.map(|names| plan_queries(self.audio(), names)).transpose();
        let asked = asked.map_err(|error| to_python(py, &error))?;
        let n = usize::try_from(n).ok().filter(|&n| n <= 1 << 32).ok_or_else(|| {
            let message = format!("n is {}, must be 0 to {}", shown(n), 1u64 << 32);
            to_python(py, &Error::new(ErrorKind::Config, message))
        })?;
        let upcoming = self.engine.ask(py, |engine| engine.upcoming())?;
        let control = self.engine.control().clone();
        let positions = self.selection.positions().clone();
        let row = move |position: u64| positions.row(position) as i64;
        let go_on = move || !cancel::is_stopped() && !control.is_closed();
        let Some(asked) = asked else {
            let rows = run_interruptible(py, "forebay-plan", move || {
                upcoming.examples(n, &go_on, |position, _| row(position))
            })?;
            let rows = rows.ok_or_else(|| to_python(py, &closed()))?;
            return Ok(PyArray1::from_vec(py, rows).into_any());
        };
        let kinds: Vec<_> = asked.iter().map(|(_, asked)| *asked).collect();
        let audio = self.audio().clone();
        let made = run_interruptible(py, "forebay-plan", move || {
            upcoming.examples(n, &go_on, |position, seed| {
                let number = |asked: &PlanQuery| match asked {
                    PlanQuery::Start => f64::NAN,
                    PlanQuery::Outcome(outcome) => {
                        match planned_outcome(&audio, (position, seed), *outcome) {
                            PlannedValue::Number(number) => number,
                            PlannedValue::Row(at) => at.map_or(-1.0, |at| at as f64),
                            PlannedValue::OwnRow(at) => at.map_or(-1.0, |at| row(at) as f64),
                        }
                    }
                };
                let numbers = kinds.iter().map(number).collect();
                PlannedExample { row: row(position), record: (position, seed), numbers }
            })
        })?;
        let made = made.ok_or_else(|| to_python(py, &closed()))?;
        let starts = if asked.iter().any(|(_, asked)| *asked == PlanQuery::Start) {
            let rows: Vec<u64> = made.iter().map(|example| example.row as u64).collect();
            let records: Vec<_> = made.iter().map(|example| example.record).collect();
            let (planner, source) = (self.planner.clone(), self.source.clone());
            run_interruptible(py, "forebay-plan", move || {
                let start = |at: usize, row: Option<RowInfo>| {
                    row.map_or(Ok(f64::NAN), |row| planner.planned_start(records[at], &row))
                };
                source.infos(Some(&rows), start)?.into_iter().collect::<crate::Result<Vec<_>>>()
            })?
        } else {
            Vec::new()
        };
        planned_arrays(py, &asked, &made, &starts).map(Bound::into_any)
    }

    /// Counts rows and examples of each class in an epoch, over all ranks, without decoding: a list of dicts,
    /// one for each `Balanced` of `sampling`.
    ///
    /// `column`; `source`, the name of the source in a mixture, else None; `classes`, names or numbers, the
    /// most common first, None for rows without any; `rows`, how many rows each class has among those that
    /// are read; `examples`, how often these come in `epoch` (default: the current one). A row of several
    /// classes counts in each. Rows that are bad or excluded are counted. In a mixture the epoch is that of
    /// each source alone, the first of a pass. `column` counts another column instead, one that the loader
    /// reads for `sampling`, `targets` or `columns`. Reads the column again. `stats()["classes"]` has what is
    /// expected on average instead, at no cost.
    ///
    /// Raises `ConfigError` if there is neither a `Balanced` nor `column`, or the loader does not read it.
    #[pyo3(signature = (epoch=None, *, column=None))]
    fn class_counts<'py>(
        &self,
        py: Python<'py>,
        epoch: Option<&Bound<'py, PyAny>>,
        column: Option<String>,
    ) -> PyResult<Bound<'py, PyList>> {
        let raise = |message: String| to_python(py, &Error::new(ErrorKind::Config, message));
        let epoch = match epoch.map(|epoch| named::<i64>("epoch", epoch)).transpose()? {
            None => self.engine.epoch(py)?,
            Some(epoch) => {
                u64::try_from(epoch).map_err(|_| to_python(py, &epoch_out_of_range(shown(epoch))))?
            }
        };
        let known = self.config.read_columns();
        let columns: Vec<(String, Option<String>)> = match column {
            Some(column) if known.contains(&column) => vec![(column, None)],
            Some(column) => {
                return Err(raise(format!(
                    "column is {column:?}, which the loader does not read: name it in columns; it reads {known:?}"
                )));
            }
            None => {
                let sampled = self.config.sampled().unwrap_or_default();
                let of = |balance: &Balance| (balance.column.clone(), balance.separator.clone());
                sampled.balances().map(of).collect()
            }
        };
        if columns.is_empty() {
            return Err(raise("sampling has no Balanced, so there are no classes; name a column".to_owned()));
        }
        let copies = self.engine.ask(py, |engine| engine.copies(epoch))?;
        let (source, selection) = (self.source.clone(), self.selection.clone());
        let counts = run_interruptible(py, "forebay-counts", move || {
            let counts = columns.iter().map(|(column, separator)| {
                let column = (column.as_str(), separator.as_deref());
                class_counts(&source, column, selection.positions(), &copies)
            });
            Ok(counts.collect::<Result<Vec<_>, Error>>()?.concat())
        })?;
        class_dicts(py, &counts, self.config.arrow_files.names.as_ref(), false)
    }

    /// The names of the classes, by number; None if they are not known. If several targets have
    /// names, a dict of them.
    #[getter]
    fn class_names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        names_to_python(py, &self.class_names)
    }

    /// What the loader makes of a recording, for `print`: source, order, crop, features, targets and the
    /// fields of a batch; `to_dict()` has it as JSON.
    #[getter]
    fn recipe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let facts = PyDict::new(py);
        facts.set_item("order", self.order.order.name())?;
        facts.set_item("order_reason", &self.order.reason)?;
        facts.set_item("source", source_columns(&self.config.arrow_files, &self.source, self.n_rows))?;
        if !self.engine.is_forked() {
            facts.set_item("padding", self.some_padding(py)?)?;
        }
        let class = py.import("forebay._recipe")?.getattr("Recipe")?;
        class.call1((self.config.keywords(py, None)?, facts, self.fields(py)?))
    }

    /// The fields of a batch: dicts with `name`, `dtype`, `shape` (of a row; None if rows differ) and
    /// `meaning`.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        described(py, &self.config, self.audio(), &self.fields)
    }

    /// The shards in the given order: dicts with `path`, `first_row`, `num_rows`, `num_bytes` and `damage` (a
    /// message if the file is damaged, else None).
    #[getter]
    fn shards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        shards(py, self.source.shards())
    }

    /// Pickles configuration and state; the copy reads the same paths and resumes at this loader's position.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let keywords = this.config.keywords(py, None)?;
        if this.config.features.is_some() {
            OF_FEATURES.iter().try_for_each(|name| keywords.del_item(name))?;
        }
        let new = py.import("copyreg")?.getattr("__newobj_ex__")?;
        let arguments = (slf.get_type(), PyTuple::empty(py), keywords);
        (new, arguments, this.state(py)?).into_bound_py_any(py)
    }
}

impl LoaderImpl for Loader {
    fn engine(&self) -> &dyn AnyEngine {
        &self.engine
    }

    fn is_infinite(&self) -> bool {
        self.config.infinite
    }

    fn describe(&self) -> String {
        let size = match &self.config.batching {
            Some(object) if object.buckets.budget.max_duration.is_finite() => {
                format!("{:?} s", object.buckets.budget.max_duration)
            }
            Some(_) => "sizes by their buckets".to_owned(),
            None => self.config.batch_size.to_string(),
        };
        let at_most = if self.audio().padded_axis().is_some() { "at most " } else { "" };
        format!(
            "{} in {}, batches of {size} x {at_most}{:?} {}, {}, order {}",
            counted(self.n_rows, "record"),
            held_in(&self.source),
            self.audio().shape(),
            self.audio().features.dtype().name(),
            if self.config.infinite { "infinite" } else { "finite" },
            self.order.in_words(),
        )
    }

    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.engine.next(py)?.map(|batch| self.to_dict(py, batch)).transpose()
    }

    fn length(&self, _py: Python<'_>) -> PyResult<usize> {
        if self.config.infinite {
            return Err(PyTypeError::new_err(
                "an infinite loader has no len(); infinite=False makes passes with one: for epoch in range(3): for batch in \
                 loader. batches_per_epoch is the rows of an epoch in batches, rounded up. In place of \
                 torch.utils.data.DataLoader(loader) use forebay.torch.DataLoader(loader); for the Trainer of Hugging \
                 Face, forebay.transformers.TrainerMixin",
            ));
        }
        Ok(self.batches_per_epoch() as usize)
    }

    fn headspace<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Bound<'py, PyDict>> {
        self.engine.headspace(py, seconds, |batch| batch.rows, |batch| self.to_dict(py, batch))
    }

    fn add_stats(&self, stats: &Bound<'_, PyDict>) -> PyResult<()> {
        if !self.classes.is_empty() {
            let sources = self.config.arrow_files.names.as_ref();
            stats.set_item("classes", class_dicts(stats.py(), &self.classes, sources, true)?)?;
        }
        if let Some(redraws) = &self.redraws {
            stats.set_item("redraws", redraws.load(Ordering::Relaxed))?;
        }
        let Some(counts) = self.source.read_counts() else { return Ok(()) };
        stats.set_item("files", files_dict(stats.py(), &counts)?)
    }

    fn identity(&self, _py: Python<'_>) -> PyResult<Cow<'_, Identity>> {
        Ok(Cow::Borrowed(&self.identity))
    }
}

impl Loader {
    fn to_dict<'py>(&self, py: Python<'py>, batch: Columns) -> PyResult<Bound<'py, PyDict>> {
        batch_dict(py, batch, &self.fields)
    }

    /// As `padding`, of at most 4 million draws; then without `batches`.
    fn some_padding<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(totals) = self.cut_totals(py, 4)? else { return Ok(None) };
        let dict = padding_dict(py, &totals)?;
        if !totals.is_whole {
            dict.del_item("batches")?;
        }
        Ok(Some(dict))
    }

    /// What the batches of an epoch hold, or of its first chapters; `None` without buckets.
    fn cut_totals(&self, py: Python<'_>, most_chapters: u64) -> PyResult<Option<CutTotals>> {
        if self.buckets.is_none() {
            return Ok(None);
        }
        let totals = self.engine.with_engine(py, |engine| engine.cut_totals())?;
        let Some(totals) = totals else { return Ok(None) };
        run_interruptible(py, "forebay-plan", move || Ok::<_, Error>(totals(most_chapters))).map(Some)
    }

    fn audio(&self) -> &AudioPlan {
        self.planner.plan()
    }
}
