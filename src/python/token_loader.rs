//! `forebay.TokenLoader`.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::{
    IntoPyObjectExt,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyList, PyTuple},
};
use serde_json::{Map, Value, json};

use super::{
    arrays::array,
    batches::Batches,
    errors::to_python,
    exclude::{self, Exclude},
    extract::{chosen, int64, int128, max_errors, n_workers, named, optional_int64, prefetch_batches},
    face::{Face, shards},
    interruptible::run_interruptible,
    logging,
    parameters::set_policy,
    state,
    tokenizer::{id, ids_of},
    torch_workers::check_share,
    vocabulary::{self, Given},
};
use crate::{
    Error, ErrorKind, Result,
    batch::{Extras, Packing, TokenBatch},
    config::{PolicyConfig, TokenConfig, shown},
    decode::tokenizer::TokenizerOptions,
    engine::{Engine, Losses, MaxErrors, Position, epoch_out_of_range},
    fields::Field,
    order::{Groups, Place, Stride},
    record::Standing,
    source::parquet::{ParquetOptions, ParquetSource, Split, list_files, split},
    state::{Identity, Share, merge},
    tasks::TokenTask,
};

type TokenEngine = Engine<ParquetSource, TokenTask>;

/// Packed batches of tokens from documents in Parquet shards.
///
/// One I/O thread reads documents, `n_workers` threads tokenise them, and best-fit packing fills rows of
/// `seq_len + 1` tokens. Each document and each row begins with BOS; there is no padding. Iteration yields
/// dicts of numpy arrays: `inputs` and `targets` `[batch, seq_len]` (the target of an input is the next
/// token), views of one contiguous array `[2, batch, seq_len]`, so that one copy moves both. The GIL is
/// released during waits and while a batch is assembled; threads start with the first batch.
///
/// Packing: before each pick a packer holds at least `buffer_size` documents. It takes the longest one that
/// fits the rest of the row (the oldest of equals). If none fits, it crops the shortest to fill the row.
/// Batches are a pure function of files and parameters, bit for bit, for any `n_workers`.
///
/// Parameters
/// ----------
/// parquet_files : path or sequence of paths
///     A folder, a pattern, or files; read in the order of their paths, without those that end in `.tmp`.
/// tokenizer : path or callable
///     A Hugging Face `tokenizer.json`, a tiktoken rank file (gpt2, r50k_base, p50k_base, cl100k_base and
///     o200k_base are known by name, others need `pattern` and `special_tokens`), or a callable from a text to
///     its ids (slower: it holds the GIL), which needs `bos_id`.
/// batch_size, seq_len : int
///     Rows of a batch on this rank, inputs of a row.
/// split : str
///     `"train"` or `"val"`. The last file is for validation, unless `val` names the files.
/// val : str or sequence of str, optional
///     Names, paths or patterns of the files for validation.
/// buffer_size, tokenizer_batch_size : int
///     Documents that a packer holds at least before each pick, and documents added per refill.
/// n_workers : int or "auto"
///     Tokenising threads. `"auto"`: as many as the loop needs, at most `cpu_budget`.
/// rank, world_size : int
///     Number of this process, and of all processes that share each batch of `batch_size * world_size` rows.
/// seed : int, optional
///     With a seed, row groups come in a new order each epoch and documents are mixed. None: storage order.
/// infinite : bool
///     True: epoch after epoch without end. False: one pass per `iter()`, which ends when the remaining
///     documents fill no row; ranks may then differ by some batches. A pass without any batch raises
///     ConfigError; with several ranks it logs a warning.
/// text_column : str
///     The column of the documents.
/// crop : str
///     The rest of a cropped document: `"drop"` discards it; `"carry"` makes it a new document, with its own
///     BOS.
/// n_streams : int, optional
///     Packers, each with its own row groups: a multiple of every world size of the run. None: `world_size`.
/// stride : str, optional
///     Which row groups packer v of V gets: `"file"`: v, v + V, ... of each file; `"global"`: of all files
///     together. None: by file, unless a file has fewer row groups than there are packers.
/// shuffle_min_size : int, optional
///     Documents that each draw chooses from, if the rank has one packer; several packers share them. None:
///     `buffer_size` with a seed, else 0, which keeps their order.
/// drop_last : bool
///     Leaves out a short last batch.
/// dtype : str
///     Type of inputs and targets: `"int64"`, `"int32"`, or `"uint16"` for at most 65536 ids.
/// extras : sequence of str
///     `"doc_ids"`: int32 `[batch, seq_len]`, which document of its row an input belongs to.
///     `"position_ids"`: int32 `[batch, seq_len]`, its position in that document. `"cu_seqlens"`: int32
///     `[n + 1]`, the starts of the documents in the concatenated rows. `"documents"`: int64 `[n, 6]`, a row
///     of the batch, a column from 0 to seq_len, shard, row group, row in the shard, and first token there
///     (1: from the beginning), for each part of a document.
/// pattern, special_tokens, bos_id : str, dict, int, optional
///     Settings that the tokenizer's file lacks. BOS is `bos_id` if it is given, else `<|bos|>`, else
///     `<|endoftext|>`.
/// prefetch_batches : int or "auto"
///     Batches made ahead of the loop.
/// raw_channel_size, raw_channel_bytes : int
///     Documents that may wait for the workers, and their bytes; one document is always admitted.
/// cpu_budget : int, optional
///     Upper limit for `n_workers="auto"`. None: the cores that the process may use.
/// on_error, on_io_error : str
///     Policy for bad documents, and for those that the system fails to read after retries: `"skip"` leaves
///     the document out without a substitute, `"raise"` raises `DecodeError` or `OSError` at its position.
/// max_errors, max_consecutive_errors : int or float, int, optional
///     How many different documents, or how many consecutive ones, may fail on this rank before `DecodeError`
///     is raised; see `Loader`.
/// exclude : path or sequence of int, optional
///     Rows that are never read, and are left out like bad ones without counting as errors; see `Loader`.
/// stall_warning_s : float, optional
///     Seconds of waiting after which `next()` logs which thread it waits for; see `Loader`. None: never.
///
/// Raises
/// ------
/// ConfigError
///     A parameter is out of range, a split is empty, a file is not Parquet or has no such column, or there
///     is no BOS token.
/// OSError
///     A file cannot be opened or read.
///
/// A null, an empty text, text that is not UTF-8 and a damaged row group are left out, counted and listed by
/// `errors()`.
#[pyclass(module = "forebay", name = "TokenLoader", frozen, weakref)]
pub struct TokenLoader {
    face: Face<ParquetSource, TokenTask>,
    source: Arc<ParquetSource>,
    task: TokenTask,
    config: TokenConfig,
    identity: Identity,
    groups: Arc<Groups>,
    extras: Extras,
    fields: Arc<[Field]>,
    bos: u32,
    /// The loader's arguments, for pickling.
    arguments: Py<PyDict>,
}

#[pymethods]
impl TokenLoader {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "one per parameter of the Python signature")]
    #[pyo3(signature = (
        parquet_files, tokenizer, batch_size=32, seq_len=2048, split="train", *, val=None, buffer_size=1000,
        tokenizer_batch_size=128, n_workers=4, rank=0, world_size=1, seed=None, infinite=true, text_column="text", crop="drop",
        n_streams=None, stride=None, shuffle_min_size=None, drop_last=false, dtype="int64", extras=None, pattern=None,
        special_tokens=None, bos_id=None, prefetch_batches=3, raw_channel_size=256, cpu_budget=None,
        raw_channel_bytes=536870912, on_error="skip", on_io_error="raise", max_errors=None, max_consecutive_errors=None,
        exclude=None, stall_warning_s=30.0
    ))]
    fn new(
        py: Python<'_>,
        parquet_files: &Bound<'_, PyAny>,
        tokenizer: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = int64)] batch_size: i64,
        #[pyo3(from_py_with = int64)] seq_len: i64,
        split: &str,
        val: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = int64)] buffer_size: i64,
        #[pyo3(from_py_with = int64)] tokenizer_batch_size: i64,
        #[pyo3(from_py_with = n_workers)] n_workers: i64,
        #[pyo3(from_py_with = int64)] rank: i64,
        #[pyo3(from_py_with = int64)] world_size: i64,
        seed: Option<&Bound<'_, PyAny>>,
        infinite: bool,
        text_column: &str,
        crop: &str,
        #[pyo3(from_py_with = optional_int64)] n_streams: Option<i64>,
        stride: Option<String>,
        #[pyo3(from_py_with = optional_int64)] shuffle_min_size: Option<i64>,
        drop_last: bool,
        dtype: &str,
        extras: Option<Vec<String>>,
        pattern: Option<String>,
        special_tokens: Option<Bound<'_, PyDict>>,
        #[pyo3(from_py_with = optional_int64)] bos_id: Option<i64>,
        #[pyo3(from_py_with = prefetch_batches)] prefetch_batches: i64,
        #[pyo3(from_py_with = int64)] raw_channel_size: i64,
        #[pyo3(from_py_with = optional_int64)] cpu_budget: Option<i64>,
        #[pyo3(from_py_with = int64)] raw_channel_bytes: i64,
        on_error: &str,
        on_io_error: &str,
        #[pyo3(from_py_with = max_errors)] max_errors: Option<MaxErrors>,
        #[pyo3(from_py_with = optional_int64)] max_consecutive_errors: Option<i64>,
        exclude: Option<&Bound<'_, PyAny>>,
        stall_warning_s: Option<f64>,
    ) -> PyResult<Self> {
        logging::emitting(py, || {
            let raise = |error: Error| to_python(py, &error);
            let config = TokenConfig {
                batch_size,
                seq_len,
                buffer_size,
                tokenizer_batch_size,
                n_workers: chosen(n_workers),
                rank,
                world_size,
                seed: seed.map(whole_seed).transpose()?,
                infinite,
                crop: crop.to_owned(),
                n_streams,
                stride,
                shuffle_min_size,
                drop_last,
                dtype: dtype.to_owned(),
                extras: extras.unwrap_or_default(),
                prefetch_batches: chosen(prefetch_batches),
                raw_channel_size,
                cpu_budget,
                raw_channel_bytes,
                policy: PolicyConfig {
                    on_error: on_error.to_owned(),
                    on_io_error: on_io_error.to_owned(),
                    max_errors,
                    max_consecutive_errors,
                },
                stall_warning_s,
            };
            let exclude = Exclude::extract(exclude)?;
            let paths =
                one_or_more::<PathBuf>(parquet_files, "parquet_files is", "a path or a sequence of paths")?;
            let val_names = val
                .map(|val| one_or_more::<String>(val, "val is", "a name or a sequence of names"))
                .transpose()?;
            let special_tokens = special_tokens.map(|tokens| ids_of(&tokens)).transpose()?;
            let options = TokenizerOptions {
                pattern: pattern.clone(),
                special_tokens: special_tokens.clone().unwrap_or_default(),
                bos_id: bos_id.map(|token| id(py, "bos_id", token)).transpose()?,
            };
            let Given { vocabulary, bos, n_vocab, fingerprint } = vocabulary::extract(tokenizer, options)?;
            // Checks before any file is opened.
            config.check(vec![vec![0..1]], bos, n_vocab).map_err(raise)?;
            let source = Arc::new(open(py, paths.clone(), split, val_names, text_column)?);
            let groups = (0..source.shards().len()).map(|shard| {
                let groups = source.row_groups_of(shard).iter();
                groups.map(|group| group.first_row..group.first_row + group.n_rows).collect()
            });
            let (mut plan, pack) = config.check(groups.collect(), bos, n_vocab).map_err(raise)?;
            plan.policy.exclude = exclude.rows(source.shards()).map_err(raise)?;
            let exclude = plan.policy.exclude.clone();
            let groups =
                plan.groups.clone().unwrap_or_else(|| Arc::new(Groups::new(Vec::new(), None, false)));
            let extras = pack.extras;
            let task = TokenTask::new(pack, vocabulary);
            let fields = task.fields().clone();
            let engine = Engine::new(source.clone(), task.clone(), plan).map_err(raise)?;
            let arguments = PyDict::new(py);
            macro_rules! set {
            ($($name:ident = $value:expr),* $(,)?) => { $(arguments.set_item(stringify!($name), $value)?;)* };
        }
            set! {
                parquet_files = paths, tokenizer = tokenizer, batch_size = batch_size, seq_len = seq_len, split = split, val = val,
                buffer_size = buffer_size, tokenizer_batch_size = tokenizer_batch_size, n_workers = config.n_workers,
                rank = rank, world_size = world_size, seed = config.seed, infinite = infinite, text_column = text_column,
                crop = &config.crop, n_streams = n_streams, stride = &config.stride, shuffle_min_size = shuffle_min_size,
                drop_last = drop_last, dtype = &config.dtype, extras = &config.extras, pattern = pattern,
                special_tokens = special_tokens, bos_id = bos_id, prefetch_batches = config.prefetch_batches,
                raw_channel_size = raw_channel_size, cpu_budget = cpu_budget, raw_channel_bytes = raw_channel_bytes,
                exclude = (!exclude.is_empty()).then_some(&*exclude), stall_warning_s = stall_warning_s,
            }
            set_policy(&arguments, &config.policy)?;
            Ok(Self {
                face: Face::new(engine, config.stall_warning_s),
                identity: identity(&config, text_column, fingerprint, &source, &exclude),
                source,
                task,
                config,
                groups,
                extras,
                fields,
                bos,
                arguments: arguments.unbind(),
            })
        })
    }

    /// Infinite: continues with the next batch. Finite: begins the next pass, or the same one again if it was
    /// left early; after `load_state_dict` it continues there.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Batches>> {
        let TokenConfig { rank, world_size, .. } = slf.get().config;
        check_share(slf.py(), rank, world_size)?;
        slf.get().face.ask(slf.py(), TokenEngine::rewind)?;
        Batches::of(slf)
    }

    /// The next batch. Raises `ForebayError` if the loader is closed, even if another thread closes it during
    /// the wait.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.face.next(py)?.map(|batch| self.to_dict(py, batch)).transpose()
    }

    /// Raises `TypeError`: the number of rows is known only after packing.
    fn __len__(&self) -> PyResult<usize> {
        Err(PyTypeError::new_err("how many batches packed documents make is known only once they are packed"))
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

    /// Ends all threads within half a second; see `Loader.close`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.face.close(py)
    }

    /// Whether `close()` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.face.control().is_closed()
    }

    /// The bad documents met so far, each once, in row order: dicts as those of `Loader.errors`, whose `path`
    /// is None.
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.face.errors(py, |_| None)
    }

    /// The figures of `Loader.stats`, and `packing`, as of the last batch made, which may not be returned
    /// yet: `documents` and `tokens` that the packers of this rank hold, the `bytes` that they take, and
    /// since construction the tokens `delivered` in rows and `dropped` where documents were cropped.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.face.stats(py)?;
        let Packing { documents, tokens, bytes, delivered, dropped } = self.task.packing();
        let packing = PyDict::new(py);
        packing.set_item("documents", documents)?;
        packing.set_item("tokens", tokens)?;
        packing.set_item("bytes", bytes)?;
        packing.set_item("delivered", delivered)?;
        packing.set_item("dropped", dropped)?;
        stats.set_item("packing", packing)?;
        Ok(stats)
    }

    /// Measures the loader's speed with a loop that does nothing; see `Loader.headspace`. An example is a
    /// row.
    #[pyo3(signature = (seconds=2.0))]
    fn headspace<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Bound<'py, PyDict>> {
        self.face.headspace(py, seconds, |batch| batch.columns.rows, |batch| self.to_dict(py, batch))
    }

    /// Records the activity of the threads for the next `seconds` and writes it to `path`; see
    /// `Loader.trace`.
    #[pyo3(signature = (path, seconds=5.0))]
    fn trace(&self, py: Python<'_>, path: PathBuf, seconds: f64) -> PyResult<()> {
        if !(0.0..=3600.0).contains(&seconds) {
            let message = format!("seconds is {seconds}, must be 0 to 3600");
            return Err(to_python(py, &Error::new(ErrorKind::Config, message)));
        }
        self.face.ask(py, |engine| engine.trace(&path, Duration::from_secs_f64(seconds)))
    }

    /// The number of documents in all shards of the split.
    #[getter]
    fn num_documents(&self) -> u64 {
        self.source.n_rows()
    }

    /// The id that begins each document.
    #[getter]
    fn bos_id(&self) -> u32 {
        self.bos
    }

    /// The number of the next batch: within the pass if finite, since the first start if infinite.
    #[getter]
    fn batch(&self, py: Python<'_>) -> PyResult<u64> {
        self.face.with_engine(py, |engine| engine.batch())
    }

    /// The pass of a finite loader, counted from 0; for an infinite one, how often its slowest packer has
    /// read all its documents.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        let (epoch, places) = self.face.ask(py, |engine| Ok((engine.epoch(), engine.places()?)))?;
        Ok(match self.config.infinite {
            true => places.iter().map(|place| place.epoch).min().unwrap_or(epoch),
            false => epoch,
        })
    }

    /// Chooses the pass that the next `iter()` begins, 0 to 2**62. Raises `StateError` if the loader is
    /// infinite.
    fn set_epoch(&self, py: Python<'_>, #[pyo3(from_py_with = int64)] epoch: i64) -> PyResult<()> {
        match u64::try_from(epoch) {
            Ok(number) if epoch < i64::MAX => self.face.ask(py, |engine| engine.set_epoch(number)),
            _ => Err(to_python(py, &epoch_out_of_range(shown(epoch)))),
        }
    }

    /// The loader's position: a dict that JSON can hold. It covers the returned batches, not the prefetched
    /// ones.
    ///
    /// `reading` shows, for people, where the first packer of this rank reads: `shard`, `row_group`, `epoch`
    /// (from 0). `packers` has the documents that each packer of this rank holds, for exact resume, some
    /// kilobytes each. Every rank saves its own state. The call takes some tens of microseconds, so a state
    /// may be taken with every batch.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (position, places) = self.face.ask(py, |engine| Ok((engine.position(), engine.places()?)))?;
        let mut state = self.identity.state(&position);
        if let Some(&Place { epoch, row, .. }) = places.first() {
            let group = self.source.row_groups()[self.source.row_group_of(row)];
            let shard = self.source.shards()[group.shard].path.file_name().unwrap_or_default();
            let epoch = if self.config.infinite { epoch } else { position.epoch };
            state["reading"] =
                json!({"shard": shard.to_string_lossy(), "row_group": group.index, "epoch": epoch});
        }
        state::to_python(py, &state)
    }

    /// Resumes at the position of `state`, bit for bit. A list of the states of all ranks, saved after the
    /// same batch, serves any world size that divides their number of packers. Only the documents that
    /// packers held are read again.
    ///
    /// A dict with `pq_idx`, `rg_idx` and `epoch` (from 1) has the same meaning as in nanochat: every packer
    /// continues at its first row group after that one, which must exist, with an empty buffer, so some
    /// documents are lost. Raises `StateError` that names the difference.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let is_list = state.is_instance_of::<PyList>() || state.is_instance_of::<PyTuple>();
        let found: Result<Value> = if is_list {
            let states = state.try_iter()?.map(|state| state::from_python(&state?));
            states.collect::<PyResult<Vec<_>>>()?.into_iter().collect::<Result<Vec<_>>>().and_then(merge)
        } else {
            state::from_python(state)?
        };
        let found = found.map_err(|error| to_python(py, &error))?;
        if found.get("pq_idx").is_some() {
            let engine_stands = self.face.with_engine(py, |engine| engine.position())?;
            let position = self.like_the_reference(&found, &engine_stands);
            let position = position.map_err(|error| to_python(py, &error))?;
            return self.face.ask(py, move |engine| engine.restore(position.clone()));
        }
        let position = self.identity.position(&found).and_then(|position| self.check_held(position));
        let position = position.map_err(|error| to_python(py, &error))?;
        self.face.ask(py, move |engine| engine.restore(position.clone()))
    }

    /// Puts back the batch that was returned last, if it did not reach the caller: `next()` makes it again.
    fn _take_back(&self, py: Python<'_>) -> PyResult<()> {
        self.face.take_back(py)
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
        let arguments = (slf.get_type(), PyTuple::empty(py), this.arguments.bind(py));
        (new, arguments, this.state_dict(py)?).into_bound_py_any(py)
    }

    fn __setstate__(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        self.load_state_dict(py, state)
    }

    fn __repr__(&self) -> String {
        let plural = |n: u64| if n == 1 { "" } else { "s" };
        let (documents, shards) = (self.source.n_rows(), self.source.shards().len());
        format!(
            "<forebay.TokenLoader: {documents} document{} in {shards} shard{}, batches of [{}, {}], {}{}{}>",
            plural(documents),
            plural(shards as u64),
            self.config.batch_size,
            self.config.seq_len,
            if self.config.infinite { "infinite" } else { "finite" },
            if self.closed() { ", closed" } else { "" },
            self.face.verdict(),
        )
    }
}

impl TokenLoader {
    fn to_dict<'py>(&self, py: Python<'py>, batch: TokenBatch) -> PyResult<Bound<'py, PyDict>> {
        let TokenBatch { columns, parts } = batch;
        let (rows, seq_len) = (columns.rows, self.config.seq_len as usize);
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
            let begins: Vec<i32> = begins.chain([(rows * seq_len) as i32]).collect();
            dict.set_item("cu_seqlens", PyArray1::from_vec(py, begins))?;
        }
        if self.extras.documents {
            // bounded: six numbers for each part of a batch that is there.
            let mut documents = Vec::with_capacity(6 * parts.len());
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

    /// Checks that no packer of a state holds more documents than a packer of this loader: all of them would
    /// be read at once.
    fn check_held(&self, position: Position) -> Result<Position> {
        let most = self.config.buffer_size.saturating_add(self.config.tokenizer_batch_size) as usize;
        let held = position.standings.iter().flat_map(|at| at.iter()).map(|at| at.held.len()).max();
        match held.filter(|&held| held > most) {
            None => Ok(position),
            Some(held) => Err(Error::new(
                ErrorKind::State,
                format!(
                    "the state has a packer that holds {held} documents; one of this loader holds at most {most}"
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
        if self.groups.is_shuffled || !self.config.infinite {
            return wrong("a state with pq_idx is for an infinite loader without a seed, whose documents come as stored".into());
        }
        let n_files = self.source.shards().len();
        let Some(file) = usize::try_from(file).ok().filter(|&file| file < n_files) else {
            return wrong(format!("the state stands in file {file}; there are {n_files}, counted from 0"));
        };
        let n_groups = self.source.row_groups_of(file).len();
        let Some(group) = usize::try_from(group).ok().filter(|&group| group < n_groups) else {
            return wrong(format!(
                "the state stands in row group {group} of file {file}, which has {n_groups}, counted from 0"
            ));
        };
        let n_streams = now.canon.n_streams;
        let share = self.identity.share;
        let each = n_streams / share.world_size;
        let standing = |stream: u64| {
            let next = match self.groups.stride(n_streams) {
                Stride::File => (group / n_streams as usize + 1) * n_streams as usize + stream as usize,
                Stride::Global => group + 1,
            };
            let rows: u64 =
                self.groups.of(stream, n_streams).iter().map(|group| group.end - group.start).sum();
            let before = self.groups.rows_before(stream, n_streams, file, next);
            let draws = (epoch - 1).checked_mul(rows)?.checked_add(before)?;
            Some(Standing { draws, held: Vec::new() })
        };
        let standings = (share.rank * each..(share.rank + 1) * each).map(standing).collect::<Option<_>>();
        let Some(standings) = standings else {
            return wrong(format!("the state stands in epoch {epoch}, which no loader reaches"));
        };
        let lost = Losses::new();
        Ok(Position {
            epoch: 0,
            batch: 0,
            canon: now.canon,
            skip: Vec::new(),
            standings: Some(standings),
            lost,
        })
    }
}

/// The parameters that define the batches of a loader of documents.
fn identity(
    config: &TokenConfig,
    text_column: &str,
    tokenizer: u64,
    source: &ParquetSource,
    exclude: &[u64],
) -> Identity {
    let mut parameters = Map::new();
    let mut put = |name: &str, value: Value| {
        parameters.insert(name.to_owned(), value);
    };
    put("global_batch_size", (config.batch_size * config.world_size).into());
    put("seq_len", config.seq_len.into());
    put("tokenizer", state::hex(tokenizer));
    put("text_column", text_column.into());
    put("seed", config.seed.into());
    put("infinite", config.infinite.into());
    put("drop_last", config.drop_last.into());
    put("crop", config.crop.as_str().into());
    put("buffer_size", config.buffer_size.into());
    put("tokenizer_batch_size", config.tokenizer_batch_size.into());
    put("shuffle_min_size", config.window().max(1).into());
    put("stride", config.stride.as_deref().into());
    if let Some(rows) = exclude::identity(exclude) {
        put("exclude", rows);
    }
    let mut data = Map::new();
    data.insert("num_shards".into(), source.shards().len().into());
    data.insert("num_documents".into(), source.n_rows().into());
    data.insert("fingerprint".into(), state::hex(source.fingerprint()));
    let share = Share { rank: config.rank as u64, world_size: config.world_size as u64 };
    Identity { kind: "forebay.TokenLoader", config: parameters, data, share }
}

/// The seed as Python gave it.
fn whole_seed(seed: &Bound<'_, PyAny>) -> PyResult<u64> {
    u64::try_from(named(seed.py(), "seed", int128(seed))?).map_err(|_| {
        let message = format!("seed is {seed}, must be 0 to {}", u64::MAX);
        to_python(seed.py(), &Error::new(ErrorKind::Config, message))
    })
}

/// One of something, or several.
fn one_or_more<'py, T>(given: &Bound<'py, PyAny>, what: &str, expected: &str) -> PyResult<Vec<T>>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    if let Ok(one) = given.extract::<T>() {
        return Ok(vec![one]);
    }
    let several = given.try_iter().and_then(|items| {
        items
            .map(|item| item.and_then(|item| item.extract::<T>().map_err(Into::into)))
            .collect::<PyResult<_>>()
    });
    several.map_err(|_| {
        let kind = given.get_type().name().map(|name| name.to_string()).unwrap_or_default();
        PyTypeError::new_err(format!("{what} {kind}, expected {expected}"))
    })
}

/// Finds the files of the split and opens them.
fn open(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    part: &str,
    val: Option<Vec<String>>,
    text_column: &str,
) -> PyResult<ParquetSource> {
    let part = match part {
        "train" => Split::Train,
        "val" => Split::Val,
        other => {
            let message = format!("split is {other:?}, must be \"train\" or \"val\"");
            return Err(to_python(py, &Error::new(ErrorKind::Config, message)));
        }
    };
    let options = ParquetOptions::text(text_column);
    run_interruptible(py, "forebay-index", move |stop: &AtomicBool| {
        let files = split(&list_files(&paths)?, part, val.as_deref())?;
        ParquetSource::open(&files, &options, stop)
    })
}
