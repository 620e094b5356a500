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
    allow_paths,
    arrays::to_dict as batch_dict,
    batches::Batches,
    errors::to_python,
    exclude::Exclude,
    extract::{chosen, int64, int128, max_errors, n_workers, optional_int64, prefetch_batches},
    face::{Face, shards},
    interruptible::run_interruptible,
    logging,
    parameters::{batch_number, preset, to_dict},
    sources::Sources,
    state,
    torch_workers::check_share,
};
use crate::{
    Error, ErrorKind, LoaderConfig,
    config::{MixtureConfig, PolicyConfig, shown},
    engine::{Engine, MaxErrors, closed, epoch_out_of_range},
    fields::{Columns, Field},
    source::{ArrowOptions, Recordings},
    state::Identity,
    tasks::{AudioPlan, AudioTask, Outputs},
};

type AudioEngine = Engine<Recordings, AudioTask>;

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
/// arrow_files : path, sequence of paths, or dict of names and paths
///     Arrow IPC streams (Hugging Face `datasets` shards) or files, or Parquet files, whose names end in
///     `.parquet`; all of one kind, in a fixed order: `sorted(Path(...).glob(...))`, not a set or an
///     iterator. Or a folder written by `save_to_disk`. A dict names sources that are mixed by `weights`.
/// seed : int
///     Seed of all random decisions, 0 to 2**64 - 1.
/// batch_size : int
///     Examples per batch; the last batch of a finite pass may be shorter.
/// shuffle_buffer_size : int
///     Decoded examples held; affects memory and speed, never batches. 4 * n_mels * n_frames bytes each, half
///     of that with a 16-bit `dtype`.
/// shuffle_min_size : int
///     Number of examples that every draw chooses from; more mixes rows better. 0 keeps the reading order.
/// sample_rate, clip_seconds : int, float
///     Rate (Hz) and length of the clips; recordings are resampled, cut or padded with zeros.
/// n_mels, n_fft, hop_length : int
///     Mel bands, samples per Fourier transform, samples between frames.
/// n_workers : int or "auto"
///     Decoding threads; those beyond the number of cores stay parked while all cores are busy. `"auto"`
///     begins with two, wakes more while `next()` waits for them and cores are free, and parks some while
///     batches pile up; never more than `cpu_budget`.
/// raw_channel_size : int
///     Records read ahead that may wait for a worker.
/// infinite : bool
///     True: epoch after epoch without end, bad records replaced. False: one pass per `iter()`, bad records
///     left out. A batch in which all records are bad is left out too; with several ranks, which must take
///     the same number of steps, it is returned without rows.
/// augment : bool
///     True: random crops (short recordings are padded with zeros at the end). False: center crops (zeros on
///     both sides).
/// order : str, optional
///     `"sequential"` (files and rows as given), `"window"` (shards in a new order each epoch, mixed within
///     `shuffle_min_size`), `"global"` (a new permutation of all rows each epoch; one read per row), `"era"`
///     (the same within each `era_length` rows). None: sequential if finite with `shuffle_min_size=0`, global
///     for a mixture, else window.
/// rank, world_size : int
///     Number of this process, and of all processes that share each batch of `batch_size * world_size` rows.
///     Their parts, side by side, are the batch that one process would have made (`"window"`: of the same
///     state, with `n_streams` set at the first start).
/// n_streams : int, optional
///     For `"window"`: a multiple of every world size of the run. None: `world_size`.
/// drop_last : bool
///     Leaves out a short last batch.
/// era_length : int
///     Rows of an era.
/// weights : dict, or list of (batch, dict), optional
///     Share of each source in a mixture, optionally with the batch from which it holds. None: by size of the
///     sources.
/// mixture_block : int, optional
///     Examples over which the weights hold exactly. None: `batch_size * world_size`.
/// stop : str, optional
///     When a finite mixture stops: `"first_exhausted"` (default; its first source is exhausted) or
///     `"all_exhausted"`; an infinite one has `"restart"`.
/// n_readers : int
///     I/O threads, one read in flight each: single records in scattered orders and at the start, else blocks
///     of 4 MiB, at most 16 ahead. Waiting threads cost little. 1 disables read-ahead.
/// prefetch_batches : int or "auto"
///     Batches made ahead of the loop; affects memory and speed, never batches. `"auto"`: 2 to 8, one more
///     whenever `next()` had to wait although batches had piled up.
/// cpu_budget : int, optional
///     Upper limit for `n_workers="auto"`. None: the cores that this process may use.
/// memory_budget : int, optional
///     Upper limit of the bytes that the loader may hold. A configuration that may hold more raises
///     ConfigError with its parts. `"auto"` numbers and `raw_channel_bytes=None` are chosen to fit. None: no
///     limit.
/// raw_channel_bytes : int, optional
///     Bytes of the records that may wait for a worker; records above 4 MiB count from before they are read
///     until a worker has processed them. One record is always admitted, of any size. None: 512 MiB, or less
///     within a `memory_budget`.
/// max_record_bytes : int
///     Upper limit of a record's bytes: a larger one is a bad record (`too_large`), and its bytes are not
///     read.
/// max_decoded_seconds : float
///     Upper limit of a recording's seconds: a longer one is a bad record (`too_large`), and its samples are
///     not decoded.
/// dtype : str
///     Type of the spectrograms: `"float32"`, `"float16"` or `"bfloat16"`; the last two are rounded to
///     nearest even and take half the memory. Values lie between -23.03 (the floor) and about 20, so float16
///     is within 0.008 of float32 and bfloat16 within 0.063. numpy has no bfloat16, so its bits come as
///     uint16. `forebay.torch` and `forebay.jax` convert them; otherwise
///     `torch.from_numpy(a).view(torch.bfloat16)` or `a.view(ml_dtypes.bfloat16)` reinterpret the same
///     memory.
/// layout : str
///     `"mel"`: `[batch, n_mels, n_frames]`; `"time"`: `[batch, n_frames, n_mels]`.
/// n_frames : int, optional
///     Frames of every spectrogram: longer clips are cut at the end, shorter ones padded with silence,
///     log(1e-10). None: `1 + clip_samples // hop_length` (odd `n_fft`: `1 + (clip_samples - 1) //
///     hop_length`).
/// audio_column, label_column : str, optional
///     Names of the columns. None: the schema's Audio feature or `audio`, and `label`.
/// mmap : bool
///     Maps the files into memory, so that records are not copied: for local disks. A file that is truncated
///     while it is mapped may end the process (SIGBUS); replacing it by a rename is safe. Compressed shards
///     are still read, not mapped.
/// allow_paths : bool, path or sequence of paths, optional
///     Which files may be named by rows that hold a path instead of bytes. None or False: files below the
///     folder of their shard. One or more folders: also files below these, such as the download cache that a
///     dataset was made from. True: any file that this process may open, for trusted shards. Symbolic links
///     and `..` are resolved first. A row with another path is a bad record (`unreadable`). Not part of the
///     state.
/// on_error : str
///     Policy for bad records: `"skip"` leaves the record out (finite) or replaces it by another row
///     (infinite), and counts, lists and logs it; `"raise"` raises `DecodeError` at its position.
/// on_io_error : str
///     Policy for records that the system fails to read, after retries: `"raise"` raises `OSError` at the
///     record's position; `"skip"` handles it like a bad record, and the state lists the lost records.
/// max_errors : int or float, optional
///     How many different records may fail on this rank before `DecodeError` is raised; a float is a share of
///     all records, between 0 and 1. None: no bound.
/// max_consecutive_errors : int, optional
///     How many consecutive positions of this rank may have failed records. None: no bound.
/// exclude : path or sequence of int, optional
///     Rows that are never read, and are left out or replaced like bad ones without counting as errors: the
///     path of a report by `forebay check`, or row numbers over all files. No position moves. For few rows
///     only: each position in an infinite stream has 16 substitutes.
/// stall_warning_s : float, optional
///     When `next()` has waited for so many seconds, and again at ten times that, a warning is logged that
///     says which thread it waits for. Changes no batch. None: never.
///
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
    fields: Arc<[Field]>,
    sources: Sources,
    columns: [Option<String>; 2],
    exclude: Arc<[u64]>,
}

#[pymethods]
impl Loader {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "one per parameter of the Python signature")]
    #[pyo3(signature = (
        arrow_files, seed=0, batch_size=64, shuffle_buffer_size=10000, shuffle_min_size=8000, sample_rate=32000,
        clip_seconds=5.0, n_mels=128, n_fft=1024, hop_length=320, n_workers=8, raw_channel_size=256, infinite=true,
        augment=true, *, order=None, rank=0, world_size=1, n_streams=None, drop_last=false, era_length=8192, weights=None,
        mixture_block=None, stop=None, n_readers=32, prefetch_batches=3, cpu_budget=None,
        memory_budget=None, raw_channel_bytes=None, max_record_bytes=1073741824, max_decoded_seconds=86400.0, dtype="float32",
        layout="mel", n_frames=None, audio_column=None, label_column=None, mmap=false, allow_paths=None, on_error="skip", on_io_error="raise",
        max_errors=None, max_consecutive_errors=None, exclude=None, stall_warning_s=30.0
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
        #[pyo3(from_py_with = n_workers)] n_workers: i64,
        #[pyo3(from_py_with = int64)] raw_channel_size: i64,
        infinite: bool,
        augment: bool,
        order: Option<String>,
        #[pyo3(from_py_with = int64)] rank: i64,
        #[pyo3(from_py_with = int64)] world_size: i64,
        #[pyo3(from_py_with = optional_int64)] n_streams: Option<i64>,
        drop_last: bool,
        #[pyo3(from_py_with = int64)] era_length: i64,
        weights: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional_int64)] mixture_block: Option<i64>,
        stop: Option<String>,
        #[pyo3(from_py_with = int64)] n_readers: i64,
        #[pyo3(from_py_with = prefetch_batches)] prefetch_batches: i64,
        #[pyo3(from_py_with = optional_int64)] cpu_budget: Option<i64>,
        #[pyo3(from_py_with = optional_int64)] memory_budget: Option<i64>,
        #[pyo3(from_py_with = optional_int64)] raw_channel_bytes: Option<i64>,
        #[pyo3(from_py_with = int64)] max_record_bytes: i64,
        max_decoded_seconds: f64,
        dtype: &str,
        layout: &str,
        #[pyo3(from_py_with = optional_int64)] n_frames: Option<i64>,
        audio_column: Option<String>,
        label_column: Option<String>,
        mmap: bool,
        allow_paths: Option<&Bound<'_, PyAny>>,
        on_error: &str,
        on_io_error: &str,
        #[pyo3(from_py_with = max_errors)] max_errors: Option<MaxErrors>,
        #[pyo3(from_py_with = optional_int64)] max_consecutive_errors: Option<i64>,
        exclude: Option<&Bound<'_, PyAny>>,
        stall_warning_s: Option<f64>,
    ) -> PyResult<Self> {
        logging::emitting(py, || {
            let sources = Sources::extract(arrow_files)?;
            let stages = sources.stages(weights)?;
            let mixture = sources.names.is_some().then(|| MixtureConfig {
                stages,
                block: mixture_block,
                stop: stop.clone(),
            });
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
                n_workers: chosen(n_workers),
                raw_channel_size,
                infinite,
                augment,
                order,
                era_length,
                rank,
                world_size,
                n_streams,
                drop_last,
                n_readers,
                mmap,
                allow_paths: allow_paths::extract(allow_paths)?,
                prefetch_batches: chosen(prefetch_batches),
                cpu_budget,
                memory_budget,
                raw_channel_bytes,
                max_record_bytes,
                max_decoded_seconds,
                dtype: dtype.to_owned(),
                layout: layout.to_owned(),
                n_frames,
                mixture,
                policy: PolicyConfig {
                    on_error: on_error.to_owned(),
                    on_io_error: on_io_error.to_owned(),
                    max_errors,
                    max_consecutive_errors,
                },
                stall_warning_s,
            };
            let exclude = Exclude::extract(exclude)?;
            let mut problems = Vec::new();
            if sources.groups.iter().all(Vec::is_empty) {
                problems.push("arrow_files is empty, must name at least one shard".to_owned());
            }
            if let Some(at) = sources.groups.iter().flatten().position(|file| file.as_os_str().is_empty()) {
                problems.push(format!("arrow_files is '' at position {at}, must be the path of a shard"));
            }
            if sources.names.is_none() && (mixture_block.is_some() || stop.is_some()) {
                problems.push(
                    "mixture_block and stop need sources to mix: give arrow_files as a dict".to_owned(),
                );
            }
            if seed_in_range.is_err() {
                let beyond = [i128::MIN, i128::MAX].contains(&seed);
                let seed = if beyond { "beyond int128".to_owned() } else { seed.to_string() };
                problems.push(format!("seed is {seed}, must be 0 to {}", u64::MAX));
            }
            let plans = config.check().map_err(|error| problems.push(error.message));
            let (Ok((mut plan, audio)), true) = (plans, problems.is_empty()) else {
                return Err(to_python(py, &Error::new(ErrorKind::Config, problems.join("; "))));
            };
            let raise = |error: Error| to_python(py, &error);
            let columns =
                [audio_column.as_deref(), label_column.as_deref()].map(|name| name.map(str::to_owned));
            let options = ArrowOptions {
                audio_column,
                label_column,
                mmap,
                max_record_bytes: config.max_record_bytes as u64,
                allow_paths: config.allow_paths.clone(),
                ..ArrowOptions::default()
            };
            let (task, source) = open(py, audio.clone(), sources.groups.clone(), options)?;
            config.fit(&mut plan, &audio, source.n_rows()).map_err(raise)?;
            plan.policy.exclude = exclude.rows(source.shards()).map_err(raise)?;
            let exclude = plan.policy.exclude.clone();
            let starts = source.group_starts();
            let starts = sources.names.is_some().then_some(&*starts);
            let task = task.with_outputs(Outputs::new(&source.fields(), starts));
            let (shape, fields, source) = (task.shape(), task.fields().clone(), Arc::new(source));
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
            Ok(Self {
                face: Face::new(engine, config.stall_warning_s),
                identity: state::identity(
                    &config,
                    &audio,
                    columns.each_ref().map(Option::as_deref),
                    &source,
                    &exclude,
                ),
                exclude,
                config,
                shape,
                fields,
                sources,
                columns,
                source,
            })
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
    /// - `threads`, now, also while another thread waits in `next()`: a dict for each thread of the pass, or
    ///   of the last one, and for the `consumer` (your loop), with `name`, `state`, `since` (seconds in this
    ///   state), `item` (a row over all files; of the collator and the consumer a batch; if the state is
    ///   "waiting for an example", its row), `shard` and `row` of such a row. None where there is none. Empty
    ///   before the first batch, and in a fork. docs/hangs.md has the states.
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
        self.face.headspace(py, seconds, |batch| batch.rows, |batch| self.to_dict(py, batch))
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
        self.sources.names.clone()
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
        let keywords = to_dict(py, &this.config)?;
        this.sources.add_to(&keywords, this.config.mixture.as_ref())?;
        let [audio_column, label_column] = &this.columns;
        keywords.set_item("audio_column", audio_column)?;
        keywords.set_item("label_column", label_column)?;
        keywords.set_item("allow_paths", allow_paths::to_object(py, &this.config.allow_paths)?)?;
        keywords.set_item("exclude", (!this.exclude.is_empty()).then_some(&*this.exclude))?;
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
    fn to_dict<'py>(&self, py: Python<'py>, batch: Columns) -> PyResult<Bound<'py, PyDict>> {
        batch_dict(py, batch, &self.fields)
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
