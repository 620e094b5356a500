//! `forebay.TokenLoader`.

use std::{
    borrow::Cow,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::{
    IntoPyObjectExt, PyTraverseError, PyVisit,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyList, PyTuple},
};
use serde_json::{Value, json};

use super::{
    arguments::{Parameters, arguments, bind, entries, signature},
    arrays::array,
    engine_handle::{AnyEngine, EngineHandle, because_of_damage, shards},
    errors::to_python,
    loader_base::{LoaderBase, LoaderImpl, warn_without_rank},
    logging, owned_object,
    owned_object::OwnedObject,
    state,
    token_sources::{self, RowPlan},
    vocabulary::UserTokenizer,
};
use crate::sync::plain::Mutex;
use crate::{
    Error, ErrorKind, Result,
    batch::{DocumentPart, Extras, Packing, SourceCounts, TokenBatch},
    compose::identity::TokenIdentity,
    config::{Exclude, TokenConfig},
    contract::StreamPosition,
    engine::{Engine, Losses, Position},
    error::counted,
    fields::Field,
    order::{Groups, ReadingPlace, Stride},
    source::DocumentSources,
    state::{Identity, merge},
    tasks::{SourceRows, TokenTask},
};

forebay_loader::token_parameters!(arguments);

#[doc = forebay_loader::token_parameters!(signature)]
/// Loads packed batches of token ids from files of documents, for language-model training.
///
/// One I/O thread reads documents, `n_workers` threads tokenize them, and best-fit packing fills rows of
/// `seq_len + 1` tokens. Each document and each row begins with BOS; only `fit="pad"` pads. Iteration yields
/// dicts of numpy arrays: `inputs` and `targets` `[batch, seq_len]`, where the target of an input is the next
/// token. Both are views of one contiguous array `[2, batch, seq_len]`, so that one copy moves both. The GIL
/// is released during waits and while a batch is assembled. Threads start with the first batch.
///
/// Packing: before each pick a packer holds at least `buffer_size` documents. It picks the longest document
/// that fits the rest of the row (the oldest of equals). If none fits, it crops the shortest to fill the row.
/// Batches are a pure function of files and parameters, bit for bit, for any `n_workers`.
///
/// Parameters
/// ----------
#[doc = forebay_loader::token_parameters!(entries)]
/// Raises
/// ------
/// ConfigError
///     A parameter is out of range, a split is empty, a file has another format or no text column, or the
///     tokenizer has no BOS token.
/// OSError
///     A file cannot be opened or read.
///
/// Each document of `forebay.text.Ids` gets BOS and EOS where it has none, as a text does.
///
/// Nulls, empty texts, texts that are not UTF-8, lines that are no JSON objects or have no text, and damaged
/// row groups are left out, counted and listed by `errors()`.
#[pyclass(module = "forebay", name = "TokenLoader", extends = LoaderBase, frozen)]
pub struct TokenLoader {
    engine: EngineHandle<DocumentSources, TokenTask>,
    source: Arc<DocumentSources>,
    task: TokenTask,
    config: TokenConfig,
    /// The tokenizer for the workers, if it is a callable.
    callable: Option<Py<OwnedObject>>,
    identity: Identity,
    groups: Arc<Groups>,
    extras: Extras,
    fields: Arc<[Field]>,
    bos: u32,
    eos: Option<u32>,
    /// Batches returned since construction.
    n_batches: AtomicU64,
    /// As of the last batch returned.
    packing: Mutex<Packing>,
}

/// The batch with which the shares of the tokens are logged, once.
const REPORT_AT: u64 = 100;
/// The least batches of a finite pass whose shares are logged at its end: of fewer the tail is much.
const LEAST_REPORTED: u64 = 20;

#[pymethods]
impl TokenLoader {
    #[new]
    #[pyo3(signature = (*args, **kwargs), text_signature = None)]
    fn new(
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        logging::emitting(py, || {
            let raise = |error: Error| to_python(py, &error);
            let (mut config, mut problems) = bind::<TokenConfig>(args, kwargs)?;
            let any = vec![vec![0..1]];
            problems.extend(config.check(any.clone(), 0, None).err().map(|error| error.message));
            if !problems.is_empty() {
                return Err(raise(Error::new(ErrorKind::Config, problems.join("; "))));
            }
            token_sources::name_column(&mut config).map_err(raise)?;
            let (opened, plans) = token_sources::open_tokenizer(py, &config)?;
            let UserTokenizer { vocabulary, bos, eos, framing, n_vocab, fingerprint, callable, .. } = opened;
            // Checks before any file is opened.
            config.check(any, bos, n_vocab).map_err(raise)?;
            let source = Arc::new(token_sources::open(py, &config)?);
            let groups = (0..source.shards().len()).map(|shard| {
                let groups = source.row_groups_of(shard).iter();
                groups.map(|group| group.first_row..group.first_row + group.n_rows).collect()
            });
            let (mut plan, mut pack) = config.check(groups.collect(), bos, n_vocab).map_err(raise)?;
            pack.mix = config.mix(source.starts()).map_err(raise)?;
            let names = config.parquet_files.names.clone().unwrap_or_default();
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            plan.groups = plan
                .groups
                .map(|groups| Arc::new((*groups).clone().of_sources(source.first_shards(), names)));
            if config.pad_id.is_none() {
                pack.pad = eos.unwrap_or(bos);
            }
            let exclude = config.exclude.rows(source.shards(), &[None]).map_err(raise)?;
            config.exclude = Exclude::Rows(exclude.iter().map(|&row| row as i64).collect());
            let identity_inputs = TokenIdentity {
                config: &config,
                tokenizer: fingerprint,
                source: &source,
                pad: pack.pad,
                exclude: &exclude,
                rows: &plans.iter().map(|plan| plan.identity.clone()).collect::<Vec<_>>(),
            };
            let identity = identity_inputs.identity();
            plan.policy.exclude = exclude;
            if callable.is_some() {
                plan.worker_nice = 0; // the function would leave the niceness to what it starts
            }
            let groups =
                plan.groups.clone().unwrap_or_else(|| Arc::new(Groups::new(Vec::new(), None, false)));
            let (framing, lacks_eos) = framing;
            log::log!(if lacks_eos { log::Level::Warn } else { log::Level::Info }, "TokenLoader: {framing}");
            if let Some(warning) = unequal_shares(&config, &groups) {
                log::warn!("TokenLoader: {warning}");
            }
            pack.eos = eos;
            let extras = pack.extras;
            let rows = source
                .forms()
                .cloned()
                .zip(plans)
                .map(|(form, RowPlan { chat, draws, .. })| SourceRows { form, chat, draws });
            let task = TokenTask::new(pack, rows, vocabulary);
            let fields = task.fields().clone();
            let engine = Engine::new(source.clone(), task.clone(), plan)
                .map_err(|error| raise(because_of_damage(error, source.shards(), source.n_rows())))?;
            let TokenConfig { batch_size, rank, world_size, stall_warning_s, .. } = config;
            if config.split == "train" {
                warn_without_rank("TokenLoader", (rank, world_size));
            }
            let engine = EngineHandle::new(engine, source.traffic().clone(), stall_warning_s);
            let n_batches = AtomicU64::new(0);
            let packing = Mutex::default();
            let loader = Self {
                engine,
                identity,
                source,
                task,
                config,
                callable,
                groups,
                extras,
                fields,
                bos,
                eos,
                n_batches,
                packing,
            };
            Ok(LoaderBase::under(loader, batch_size, (rank, world_size)))
        })
    }

    /// As in `Loader`.
    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        owned_object::visit(&self.config.tokenizer, &visit)?;
        visit.call(&self.callable)
    }

    /// Lists the documents that failed so far, each once, in row order: dicts as in `Loader.errors`, with
    /// `path` None.
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.engine.errors(py, |row| row, |_| None)
    }

    /// The number of documents in all shards of the split.
    #[getter]
    fn num_documents(&self) -> u64 {
        self.source.n_rows()
    }

    #[getter]
    fn _is_paired(&self) -> bool {
        self.config.is_paired()
    }

    /// Whether targets may be -100; else each is the next input.
    #[getter]
    fn _has_ignored(&self) -> bool {
        self.config.ignores()
    }

    /// The id of the BOS token, which begins each document.
    #[getter]
    fn bos_id(&self) -> u32 {
        self.bos
    }

    /// The id of the EOS token, which ends each document; None if documents have no EOS.
    #[getter]
    fn eos_id(&self) -> Option<u32> {
        self.eos
    }

    /// The shards in the order in which they are read: dicts with `path`, `first_row`, `num_rows`,
    /// `num_bytes` and `damage`.
    #[getter]
    fn shards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        shards(py, self.source.shards())
    }

    /// Pickles configuration and state; the copy reads the same paths and resumes at this loader's position.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let new = py.import("copyreg")?.getattr("__newobj_ex__")?;
        let arguments = (slf.get_type(), PyTuple::empty(py), this.config.keywords(py, None)?);
        (new, arguments, this.state(py)?).into_bound_py_any(py)
    }
}

impl LoaderImpl for TokenLoader {
    fn engine(&self) -> &dyn AnyEngine {
        &self.engine
    }

    fn is_infinite(&self) -> bool {
        self.config.infinite
    }

    fn describe(&self) -> String {
        format!(
            "{} in {}, batches of [{}, {}], {}{}",
            counted(self.source.n_rows(), "document"),
            counted(self.source.shards().len() as u64, "shard"),
            self.config.batch_rows(),
            self.config.seq_len,
            if self.config.infinite { "infinite" } else { "finite" },
            self.shares().map_or_else(String::new, |shares| format!("; {shares}")),
        )
    }

    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(batch) = self.engine.next(py)? else {
            let tail = self.task.take_tail();
            if tail > 0 {
                let mut packing = self.packing.lock().unwrap_or_else(PoisonError::into_inner);
                let dropped = packing.dropped + tail;
                *packing = Packing { documents: 0, tokens: 0, dropped, ..*packing };
            }
            let n = self.n_batches.load(Ordering::Relaxed);
            if (LEAST_REPORTED..REPORT_AT).contains(&n) {
                // So that later passes say it no more.
                self.n_batches.store(REPORT_AT, Ordering::Relaxed);
                self.report(n);
            }
            return Ok(None);
        };
        *self.packing.lock().unwrap_or_else(PoisonError::into_inner) = batch.packing;
        // A loader has one consumer: no other thread counts at the same time.
        if self.n_batches.fetch_add(1, Ordering::Relaxed) + 1 == REPORT_AT {
            self.report(REPORT_AT);
        }
        self.to_dict(py, batch).map(Some)
    }

    fn length(&self, _py: Python<'_>) -> PyResult<usize> {
        Err(PyTypeError::new_err(
            "a TokenLoader has no len(): the number of batches is known only after packing",
        ))
    }

    fn headspace<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Bound<'py, PyDict>> {
        self.engine.headspace(py, seconds, |batch| batch.columns.rows, |batch| self.to_dict(py, batch))
    }

    fn identity(&self, _py: Python<'_>) -> PyResult<Cow<'_, Identity>> {
        Ok(Cow::Borrowed(&self.identity))
    }

    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        let (epoch, places) = self.engine.ask(py, |engine| Ok((engine.epoch(), engine.places()?)))?;
        Ok(match self.config.infinite {
            true => places.iter().map(|place| place.epoch).min().unwrap_or(epoch),
            false => epoch,
        })
    }

    fn add_stats(&self, stats: &Bound<'_, PyDict>) -> PyResult<()> {
        let Packing { documents, tokens, bytes, delivered, dropped, padded } = self.task.packing();
        let packing = PyDict::new(stats.py());
        packing.set_item("documents", documents)?;
        packing.set_item("tokens", tokens)?;
        packing.set_item("bytes", bytes)?;
        packing.set_item("delivered", delivered)?;
        packing.set_item("dropped", dropped)?;
        packing.set_item("padded", padded)?;
        stats.set_item("packing", packing)?;
        let Some(names) = &self.config.parquet_files.names else { return Ok(()) };
        let places = self.engine.ask(stats.py(), |engine| engine.places())?;
        let sources = PyDict::new(stats.py());
        for (number, (name, counts)) in names.iter().zip(self.task.sources()).enumerate() {
            let SourceCounts { documents, tokens, dropped } = counts;
            let of_source = PyDict::new(stats.py());
            of_source.set_item("documents", documents)?;
            of_source.set_item("tokens", tokens)?;
            of_source.set_item("dropped", dropped)?;
            let epoch = places.iter().skip(number).step_by(names.len()).map(|place| place.epoch).min();
            of_source.set_item("epoch", epoch.unwrap_or_default())?;
            sources.set_item(name, of_source)?;
        }
        stats.set_item("sources", sources)
    }

    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (mut position, places) =
            self.engine.ask(py, |engine| Ok((engine.position(), engine.places()?)))?;
        // The same keys at any time, since torch.distributed.checkpoint loads only those that the state of
        // a new loader has.
        // bounded: by the streams that the engine has.
        position.stream_positions.get_or_insert_with(|| vec![StreamPosition::default(); places.len()].into());
        let mut state = self.identity.state(&position);
        if let Some(&ReadingPlace { epoch, row, .. }) = places.first() {
            let group = self.source.row_groups()[self.source.row_group_of(row)];
            let shard = self.source.shards()[group.shard].path.file_name().unwrap_or_default();
            let epoch = if self.config.infinite { epoch } else { position.epoch };
            state["reading"] =
                json!({"shard": shard.to_string_lossy(), "row_group": group.index, "epoch": epoch});
        }
        state::to_python(py, &state)
    }

    fn position_of(&self, state: &Bound<'_, PyAny>) -> PyResult<Position> {
        let py = state.py();
        let is_list = state.is_instance_of::<PyList>() || state.is_instance_of::<PyTuple>();
        let found: Result<Value> = if is_list {
            let states = state.try_iter()?.map(|state| state::from_python(&state?));
            states.collect::<PyResult<Vec<_>>>()?.into_iter().collect::<Result<Vec<_>>>().and_then(merge)
        } else {
            state::from_python(state)?
        };
        let position = match found {
            Ok(found) if found.get("pq_idx").is_some() => {
                self.like_the_reference(&found, &self.engine.position(py)?)
            }
            found => found
                .and_then(|found| self.identity.position(&found))
                .and_then(|position| self.check_held(position)),
        };
        position.map_err(|error| to_python(py, &error))
    }
}

impl TokenLoader {
    /// Logs what became of the tokens of `n` batches: as a warning if many were dropped.
    fn report(&self, n: u64) {
        let Some(shares) = self.shares() else { return };
        let Packing { delivered, dropped, .. } = *self.packing.lock().unwrap_or_else(PoisonError::into_inner);
        let level = if dropped >= delivered / 10 { log::Level::Warn } else { log::Level::Info };
        log::log!(level, "TokenLoader after {n} batches: {shares}");
    }

    /// What became of the tokens of this run up to the last batch returned; None before the first batch.
    fn shares(&self) -> Option<String> {
        let Packing { documents, tokens, delivered, dropped, padded, .. } =
            *self.packing.lock().unwrap_or_else(PoisonError::into_inner);
        let all = delivered + dropped + tokens;
        if delivered == 0 {
            return None;
        }
        let percent = |n: u64| format!("{:.1} %", 100.0 * n as f64 / all as f64);
        let remedy = match self.config.fit() {
            "drop" if dropped > 0 => "; fit=\"carry\" drops none",
            "pad" if dropped > 0 && self.config.is_paired() => "; a larger seq_len drops fewer",
            "pad" if dropped > 0 => "; on_long=\"split\" drops none",
            _ => "",
        };
        let rows = match self.config.fit() {
            fit if fit == "pad" || self.config.pad_multiple > 1 => {
                format!("{:.1} % of the rows is padding", 100.0 * padded as f64 / (delivered + padded) as f64)
            }
            _ => "no row is padded".to_owned(),
        };
        Some(format!(
            "of the tokens read, {} are in rows ({rows}), {} were dropped (they can be in no row) and {} wait for a row \
             ({}){remedy}",
            percent(delivered),
            percent(dropped),
            percent(tokens),
            counted(documents, "document")
        ))
    }

    fn to_dict<'py>(&self, py: Python<'py>, batch: TokenBatch) -> PyResult<Bound<'py, PyDict>> {
        let TokenBatch { columns, parts, .. } = batch;
        let sides = if self.config.is_paired() { 2 } else { 1 };
        let (rows, seq_len) = (sides * columns.rows, self.config.seq_len as usize);
        let dict = PyDict::new(py);
        for (number, (field, column)) in self.fields.iter().zip(columns.columns).enumerate() {
            if number > 0 {
                dict.set_item(&field.name, array(py, column.values, field.dtype, &[rows, seq_len])?)?;
                continue;
            }
            // All inputs precede all targets.
            let both = array(py, column.values, field.dtype, &[2, rows, seq_len])?;
            dict.set_item("inputs", both.get_item(0)?)?;
            dict.set_item("targets", both.get_item(1)?)?;
        }
        if self.extras.cu_seqlens {
            let begins = parts.iter().filter(|part| part.column < seq_len);
            let begins = begins.map(|part| (part.row * seq_len + part.column) as i32);
            let mut begins: Vec<i32> = begins.chain([(rows * seq_len) as i32]).collect();
            if let Some(most) = self.config.max_documents {
                // The collator has refused a batch with more. bounded: by the inputs of a batch.
                begins.resize(most as usize + 1, (rows * seq_len) as i32);
            }
            dict.set_item("cu_seqlens", PyArray1::from_vec(py, begins))?;
        }
        if self.extras.documents {
            // bounded: six numbers for each part of a batch that is there.
            let mut documents = Vec::with_capacity(6 * parts.len());
            let parts: Vec<_> = parts.iter().filter(|part| part.document != DocumentPart::PADDING).collect();
            for part in &parts {
                let group = self.source.row_groups()[self.source.row_group_of(part.document)];
                let (shard, row) = self.source.locate(part.document);
                let numbers = [part.row, part.column, shard, group.index, row as usize, part.start as usize];
                documents.extend(numbers.map(|number| number as i64));
            }
            let documents: Bound<'_, PyArray2<i64>> =
                PyArray1::from_vec(py, documents).reshape([parts.len(), 6])?;
            dict.set_item("documents", documents)?;
        }
        Ok(dict)
    }

    /// Checks that no packer of a state holds more documents than a packer of this loader can: all of them
    /// are read at the start.
    fn check_held(&self, position: Position) -> Result<Position> {
        let most = self.config.buffer_size.saturating_add(self.config.tokenizer_batch_size) as usize;
        let held = position.stream_positions.iter().flat_map(|at| at.iter()).map(|at| at.held.len()).max();
        match held.filter(|&held| held > most) {
            None => Ok(position),
            Some(held) => Err(Error::new(
                ErrorKind::State,
                format!(
                    "a packer in the state holds {held} documents; a packer of this loader holds at most {most}"
                ),
            )),
        }
    }

    /// The position of a nanochat state.
    fn like_the_reference(&self, state: &Value, now: &Position) -> Result<Position> {
        let wrong = |message: String| Err(Error::new(ErrorKind::State, message));
        let whole = |name: &str| state.get(name).and_then(Value::as_u64);
        let (Some(file), Some(group), Some(epoch @ 1..)) = (whole("pq_idx"), whole("rg_idx"), whole("epoch"))
        else {
            return wrong(format!(
                "the state is {state}, expected whole numbers pq_idx, rg_idx and epoch, the last from 1"
            ));
        };
        if self.groups.is_shuffled || !self.config.infinite || self.groups.n_sources() > 1 {
            return wrong(
                "a state with pq_idx needs an infinite loader of one source without a seed, which reads in storage order"
                    .into(),
            );
        }
        let n_files = self.source.shards().len();
        let Some(file) = usize::try_from(file).ok().filter(|&file| file < n_files) else {
            return wrong(format!("the state's pq_idx is {file}; there are {n_files} files, counted from 0"));
        };
        let n_groups = self.source.row_groups_of(file).len();
        let Some(group) = usize::try_from(group).ok().filter(|&group| group < n_groups) else {
            return wrong(format!(
                "the state's rg_idx is {group}; file {file} has {n_groups} row groups, counted from 0"
            ));
        };
        let n_streams = now.layout.n_streams;
        let share = self.identity.share;
        let each = n_streams / share.world_size;
        let stream_position = |stream: u64| {
            let next = match self.groups.stride(n_streams) {
                Stride::File => (group / n_streams as usize + 1) * n_streams as usize + stream as usize,
                Stride::Global | Stride::Balanced => group + 1,
            };
            let rows: u64 =
                self.groups.of(stream, n_streams).iter().map(|group| group.end - group.start).sum();
            let before = self.groups.rows_before(stream, n_streams, file, next);
            let draws = (epoch - 1).checked_mul(rows)?.checked_add(before)?;
            Some(StreamPosition { draws, ..StreamPosition::default() })
        };
        let stream_positions =
            (share.rank * each..(share.rank + 1) * each).map(stream_position).collect::<Option<_>>();
        let Some(stream_positions) = stream_positions else {
            return wrong(format!("the state's epoch is {epoch}, which no loader reaches"));
        };
        let lost = Losses::new();
        Ok(Position {
            epoch: 0,
            batch: 0,
            layout: now.layout,
            skip: Vec::new(),
            stream_positions: Some(stream_positions),
            cut: None,
            lost,
        })
    }
}

/// The warning for packers whose numbers of documents differ by more than a tenth; of all ranks the first
/// says it.
fn unequal_shares(config: &TokenConfig, groups: &Groups) -> Option<String> {
    let warning = |(source, groups): (usize, Groups)| {
        let warning = unequal_shares_of(config, &groups)?;
        Some(match &config.parquet_files.names {
            None => warning,
            Some(names) => format!("source {:?}: {warning}", names[source]),
        })
    };
    groups.sources().into_iter().enumerate().find_map(warning)
}

/// The same for the row groups of one source.
fn unequal_shares_of(config: &TokenConfig, groups: &Groups) -> Option<String> {
    let n_streams = config.n_streams.unwrap_or(config.world_size) as u64;
    let rows = groups.rows(n_streams);
    let (least, most) = (*rows.iter().min()?, *rows.iter().max()?);
    if config.rank > 0 || most <= least + least / 10 {
        return None;
    }
    let other = Stride::Balanced;
    let there = groups.with_stride(other).rows(n_streams);
    let effect = match config.infinite {
        true => "packers with few documents repeat them more often than the others",
        false => "in a finite pass the ranks' numbers of batches differ as much",
    };
    let is_better = there.iter().max()? * least < most * there.iter().min()?;
    let instead = match is_better {
        true => format!("; stride={:?} deals out {}", other.name(), listed(&there)),
        false => String::new(),
    };
    Some(format!(
        "the {n_streams} packers (one or more for each rank) read {} documents in an epoch: {effect}{instead}. Write files with \
         more and equal row groups (of files of lines: more and equal files), a multiple of {n_streams} in each file; if ranks must take the same number of steps, take a \
         fixed number of batches",
        listed(&rows)
    ))
}

/// Some numbers as text: all of few, else the range.
fn listed(numbers: &[u64]) -> String {
    match numbers.len() {
        ..=8 => numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
        _ => format!("{} to {}", numbers.iter().min().unwrap_or(&0), numbers.iter().max().unwrap_or(&0)),
    }
}
