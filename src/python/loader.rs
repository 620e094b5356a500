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
    arrays::array,
    batches::Batches,
    errors::to_python,
    exclude::Exclude,
    face::{Face, shards},
    logging,
    parameters::{batch_number, preset, to_dict},
    side::on_the_side,
    sources::Sources,
    state,
    whole::{chosen, int64, int128, max_errors, n_workers, optional_int64, prefetch_batches},
    workers::check_share,
};
use crate::{
    Error, ErrorKind, LoaderConfig,
    batch::AudioBatch,
    config::{MixtureConfig, PolicyConfig, shown},
    dtype::Typed,
    pipeline::{AudioPlan, AudioTask, Engine, MaxErrors, closed, epoch_out_of_range},
    source::{ArrowOptions, Recordings},
    state::Identity,
};

type AudioEngine = Engine<Recordings, AudioTask>;

/// Shuffled log-mel batches of the recordings in Arrow shards.
///
/// `n_readers` threads read records, `n_workers` threads decode a crop of each and compute its spectrogram, and iteration yields dicts
/// of numpy arrays: `spectrogram` float32 `[batch, n_mels, n_frames]` (natural log; see `dtype`, `layout`), `label` int64 `[batch]` (-1 where null;
/// absent without a label column), `index` int64 `[batch]` (row number over the files as given). Arrays are C-contiguous, writable and
/// the caller's to keep. The GIL is released while waiting and while a batch is put together; threads start with the first batch.
///
/// Batches are a pure function of files and parameters, bit for bit, for any `n_workers`, `raw_channel_size` and
/// `shuffle_buffer_size`.
///
/// Parameters
/// ----------
/// arrow_files : path, sequence of paths, or dict of names and paths
///     Arrow IPC streams (Hugging Face `datasets` shards) or files, or Parquet files, whose names end in `.parquet`; all of one kind,
///     in an order that stays: `sorted(Path(...).glob(...))`, and no set or iterator. Or a folder that `save_to_disk` wrote. A dict names sources that are mixed by `weights`.
/// seed : int
///     The number that all randomness comes from, 0 to 2**64 - 1.
/// batch_size : int
///     Examples per batch; the last batch of a finite pass may be shorter.
/// shuffle_buffer_size : int
///     Examples that may lie ready (memory, not content). 4 * n_mels * n_frames bytes each, half of that if `dtype` is.
/// shuffle_min_size : int
///     Candidates of every draw: how well examples are mixed. 0 keeps the reading order.
/// sample_rate, clip_seconds : int, float
///     Rate (Hz) and length of the clips; recordings are resampled, cut or padded with zeros.
/// n_mels, n_fft, hop_length : int
///     Mel bands, samples per Fourier transform, samples from frame to frame.
/// n_workers : int or "auto"
///     Threads that decode; those beyond the cores rest while all cores are busy. `"auto"` begins with two, adds some while `next()` waits for them and cores are free, and lets some rest
///     while batches pile up; never more than `cpu_budget`.
/// raw_channel_size : int
///     Records that may wait for a worker.
/// infinite : bool
///     Epoch after epoch without end, bad records replaced; or one pass per `iter()`, bad records left out. A batch of which all are bad
///     is left out too, unless there are other ranks, which take the same number of steps: then it comes without rows.
/// augment : bool
///     Random crops (zeros behind short recordings); or center crops (zeros on both sides).
/// order : str, optional
///     `"sequential"` (files and rows as given), `"window"` (shards in a new order each epoch, mixed within `shuffle_min_size`),
///     `"global"` (a new permutation of all rows each epoch; each row is a read of its own), `"era"` (the same within each
///     `era_length` rows). None: sequential if finite with `shuffle_min_size=0`, global for a mixture, else window.
/// rank, world_size : int
///     This process among those that share each batch of `batch_size * world_size` rows; side by side, their parts are the batch that
///     one process would have made.
/// n_streams : int, optional
///     For `"window"`: the largest world size ever wanted, a multiple of `world_size`. None: `world_size`.
/// drop_last : bool
///     Leaves out a last batch that has fewer rows than the others.
/// era_length : int
///     Rows of an era.
/// weights : dict, or list of (batch, dict), optional
///     Share of each source in a mixture, from which batch on. None: as large as the sources are.
/// mixture_block : int, optional
///     Examples over which the weights hold exactly. None: `batch_size * world_size`.
/// stop : str, optional
///     Where a finite mixture ends: `"first_exhausted"` (default) or `"all_exhausted"`; an infinite one has `"restart"`.
/// n_readers : int
///     Threads that read, each at a read of its own: single records where order or start ask for them, else blocks of 4 MiB, of which at
///     most 16 are ahead. They cost little while they wait. 1: no reading ahead.
/// prefetch_batches : int or "auto"
///     Batches that are made ahead and lie ready: memory, not content. `"auto"`: from 2 to 8, more whenever `next()` had to wait
///     although batches had piled up.
/// cpu_budget : int, optional
///     The most workers of `n_workers="auto"`. None: the cores that this process may use.
/// memory_budget : int, optional
///     The most bytes that the loader may come to hold; a configuration that may hold more is a ConfigError with its parts. Numbers that
///     were left to the loader are chosen to fit. None: no bound.
/// raw_channel_bytes : int, optional
///     Bytes of the records that may wait for a worker; those above 4 MiB count from before they are read until a worker is done. One is
///     always read, however large. None: 512 MiB, or less within a `memory_budget`.
/// max_record_bytes : int
///     The most bytes of a record: a larger one is a bad record (`too_large`), and its bytes are not read.
/// max_decoded_seconds : float
///     The most seconds of a recording: a longer one is a bad record (`too_large`), and its samples are not decoded.
/// dtype : str
///     Of the spectrograms: `"float32"`, `"float16"` or `"bfloat16"`, rounded to nearest even, for half the memory. Values lie between
///     -23.03 (the floor) and about 20, so float16 is within 0.008 of float32 and bfloat16 within 0.063. numpy has no bfloat16: its bits come
///     as uint16; `forebay.torch` and `forebay.jax` know, otherwise `torch.from_numpy(a).view(torch.bfloat16)` or
///     `a.view(ml_dtypes.bfloat16)` share the memory.
/// layout : str
///     `"mel"`: `[batch, n_mels, n_frames]`; `"time"`: `[batch, n_frames, n_mels]`.
/// n_frames : int, optional
///     Frames of every spectrogram: the first ones of the clip, and behind its last one those of silence, log(1e-10).
///     None: `1 + clip_samples // hop_length`.
/// audio_column, label_column : str, optional
///     Columns by name; otherwise the schema's Audio feature or `audio`, and `label`.
/// mmap : bool
///     Maps the files, so that records are not copied: for local disks. A file that is cut off while it is mapped may end the process
///     (SIGBUS); one that is replaced by another of its name may not. Compressed shards are read as ever.
/// allow_paths : bool, path or sequence of paths, optional
///     Which files rows may name that hold a path and no bytes. None or False: those below the folder of their shard. A folder or several:
///     those below these as well, such as the download cache that a dataset was made from. True: any that this process may open, for shards
///     that you trust. Symbolic links and `..` are resolved first. What is not allowed is a bad record (`unreadable`). Not part of the state.
/// on_error : str
///     What becomes of a record that is bad: `"skip"` leaves it out (finite) or puts another row in its place (infinite), counts, lists and
///     logs it; `"raise"` raises `DecodeError` in its turn.
/// on_io_error : str
///     What becomes of a record that the system fails to read, after retries: `"raise"` raises `OSError` in its turn; `"skip"` goes on as
///     after a bad one, and the state tells what was lost.
/// max_errors : int or float, optional
///     How many different records may fail on this rank before `DecodeError` is raised; a float is a share of all records, between 0
///     and 1. None: no bound.
/// max_consecutive_errors : int, optional
///     How many positions of this rank in a row may have a record that fails. None: no bound.
/// exclude : path or sequence of int, optional
///     Rows that are never read, as if they were bad, but not counted as errors: those that a report by `forebay check` names, or row
///     numbers over the files as given. No position moves. For few rows: each place in an infinite stream has 16 substitutes.
///
/// Raises
/// ------
/// ConfigError
///     A parameter is out of range, a file is not Arrow or has no audio column. Names every parameter at fault.
/// OSError
///     A file cannot be opened or read; `FileNotFoundError` if it does not exist. `errno` and `filename` are set.
///
/// Iteration raises `OSError` if a shard cannot be read any more, `DecodeError` if a bad record of an infinite stream cannot be
/// replaced or more fail than are allowed, `MemoryError` if a batch cannot be had, and `ForebayError` once the loader is closed.
#[pyclass(module = "forebay", name = "Loader", frozen, weakref)]
pub struct Loader {
    face: Face<Recordings, AudioTask>,
    source: Arc<Recordings>,
    config: LoaderConfig,
    identity: Identity,
    shape: [usize; 2],
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
        max_errors=None, max_consecutive_errors=None, exclude=None
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
            Ok(Self {
                face: Face::new(engine),
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
                sources,
                columns,
                source,
            })
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

    /// Infinite: goes on with the next batch. Finite: begins the next pass, or the same one anew if it was left early; after
    /// `load_state_dict` or `seek` it goes on there. Raises `ConfigError` in one of several workers of a torch `DataLoader`, unless
    /// `rank` and `world_size` give each a share of its own.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Batches>> {
        let py = slf.py();
        check_share(py, slf.get().config.rank, slf.get().config.world_size)?;
        slf.get().face.ask(py, AudioEngine::rewind)?;
        Batches::of(slf)
    }

    /// The next batch. Raises `ForebayError` if the loader is closed, also by another thread while this one waits.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.face.next(py)?.map(|batch| self.to_dict(py, batch)).transpose()
    }

    /// The number of batches of the finite pass under way (that of a mixture may differ from pass to pass if its blocks are
    /// larger than a batch), with those that one process leaves out because all of their records are bad; an infinite loader has none
    /// and raises `TypeError`.
    fn __len__(&self) -> PyResult<usize> {
        if self.config.infinite {
            return Err(PyTypeError::new_err(
                "an infinite loader has no len(); batches_per_epoch tells how many batches make an epoch",
            ));
        }
        Ok(self.batches_per_epoch() as usize)
    }

    /// True: a loader without `len()` is one as well, and `if loader:` asks whether there is one.
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

    /// Ends all threads within half a second. A `next()` that waits in another thread raises `ForebayError`, as every later one does.
    /// Counts and errors can still be asked for. Closing twice does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.face.close(py)
    }

    /// Whether `close()` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.face.control().is_closed()
    }

    /// The records that could not be had so far, each once, in row order: dicts with `index` (row over all files), `shard`, `row` (within
    /// the shard), `path` (the recording's own, if the shard has one), `kind` and `reason`. At most 10000, or as many as `max_errors`
    /// allows. The kinds: `unreadable` (a null, a path that leads nowhere), `truncated` (past the end of the shard), `unsupported`,
    /// `corrupt`, `empty`, `too_short`, `non_finite`, `too_large`, `io` and `not_found` (the system).
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut reader = self.source.reader();
        // A path that cannot be read is no path; why the record is bad is in `reason`.
        self.face.errors(py, move |index| reader.path(index).ok().flatten())
    }

    /// What went through, where the time goes, and what that says. Totals are since construction.
    ///
    /// - `delivered`, of the batches that you got: `batches`, `examples` (rows), `substitutes`, and the records that were left out or
    ///   replaced, `records_failed`, `records_excluded` and `records_lost` (to the system). The same in every run, however many
    ///   threads there are; a loader that goes on from a state counts what it delivers itself.
    /// - What was done, also for batches that lie ready or were left, and so a matter of timing: `records_read`, `records_decoded`,
    ///   `records_failed`, `records_excluded`, `records_lost`, `retries` (reads that failed for a moment), `substitutes`;
    ///   `decoded_at_first_batch`, how many records had been decoded when the first batch was complete. `batches` were handed over.
    /// - `verdict`: what limits the loader and which parameter to change: idle, starting, consumer-bound, CPU-bound, I/O-bound or
    ///   buffer-bound, of the last 5 to 10 s, as it was when the last batch was handed out.
    /// - `stages`: `read`, `decode`, `collate` and `consumer` (your loop), each with `threads`, `items` (records; batches in the last
    ///   two), `busy_s` and `blocked_s` over all threads, `blocked_on` by what is waited for, `p50_s` and `p99_s` of the work on an
    ///   item (within 12 %), and of the last 5 to 10 s `items_per_s`, `busy_share` and `blocked_share`. A wait counts when it ends.
    /// - `n_workers`, `prefetch_batches`, now: the workers at work, and the batches that may lie ready.
    /// - `queues`, now: `records` and `record_bytes` that wait for a worker, `examples` in the shuffle buffers, `batches` that lie ready.
    /// - `batch_times`: `ready_p50_s`, `ready_p99_s`, how long a batch lay ready; `starved_p50_s`, `starved_p99_s`, how long `next()`
    ///   waited for it, without the first of a pass; `start_s`, all waits for these.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.face.stats(py)
    }

    /// Records what every thread does for `seconds` (0 to 3600) from now on, while you go on with your loop, and writes it to `path` when
    /// the time is over or the loader closes, which waits for it: trace events as JSON, for ui.perfetto.dev or chrome://tracing. Returns
    /// at once; the file has its name when it is complete. A thread of each kind has a line of its work (`read`, `decode`, `collate`, `loop`) and its
    /// waits, each shown once it has ended; curves show what lies between them, and the workers at work. At most 262144 pieces are
    /// kept; the file says how many were left out. Raises `OSError` if the file cannot be written, `StateError` if another trace
    /// is being taken.
    #[pyo3(signature = (path, seconds=5.0))]
    fn trace(&self, py: Python<'_>, path: PathBuf, seconds: f64) -> PyResult<()> {
        self.face.trace(py, path, seconds)
    }

    /// How fast the loader is if the loop does nothing: measured for `seconds` (0 to 3600) on a copy that begins at the same
    /// batch, with threads and buffers of its own. The position stays where it is. Best called before the loop, or while it stands.
    ///
    /// Returns a dict: `examples_per_s` that were handed out; `decoded_per_s`, which is more as long as a shuffle window fills, and
    /// what is to be had after that; `handover_per_s`, with one cached batch again and again: what `next()` itself allows;
    /// `seconds` from the first batch on; `verdict`, what limits the copy. A loop that runs near `decoded_per_s` waits for
    /// the loader; one far below it does not.
    #[pyo3(signature = (seconds=2.0))]
    fn headspace<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Bound<'py, PyDict>> {
        self.face.headspace(py, seconds, |batch| batch.index.len(), |batch| self.to_dict(py, batch))
    }

    /// Rows of all shards.
    #[getter]
    fn num_records(&self) -> u64 {
        self.source.n_rows()
    }

    /// Batches that make an epoch, the same on every rank.
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

    /// The number of the next batch that will come: of the pass if finite, of all if infinite. `batches_per_epoch` after the last.
    #[getter]
    fn batch(&self, py: Python<'_>) -> PyResult<u64> {
        self.face.with_engine(py, |engine| engine.batch())
    }

    /// Where the loader stands: a dict that JSON can hold, under 1 KB, whatever the data. It stands for what was returned, not for
    /// what was prefetched, and one rank's serves all. After the last batch of a pass it is the start of the next.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let position = self.face.with_engine(py, |engine| engine.position())?;
        state::to_python(py, &self.identity.state(&position))
    }

    /// Goes on where the loader of `state` stood, bit for bit, with any `n_workers`, buffer and channel sizes, and with any rank
    /// and world size of the same global batch (order "window": one that divides its `n_streams`).
    ///
    /// Reads nothing; the next batch comes without those before it. Raises `StateError` that names what differs.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let position = state::from_python(state)?.and_then(|state| self.identity.position(&state));
        let position = position.map_err(|error| to_python(py, &error))?;
        self.face.ask(py, move |engine| engine.restore(position.clone()))
    }

    /// Makes batch number `batch` the next one (or, if it is to be skipped, the one behind it): of the pass if finite, of all if infinite.
    /// Raises `ConfigError` if there is none.
    fn seek(&self, py: Python<'_>, #[pyo3(from_py_with = int64)] batch: i64) -> PyResult<()> {
        let batch = batch_number(py, batch)?;
        self.face.ask(py, |engine| engine.seek(batch))
    }

    /// Puts back the batch that was returned last, which nobody got: the next one is that one again, made anew.
    fn _take_back(&self, py: Python<'_>) -> PyResult<()> {
        self.face.take_back(py)
    }

    /// Leaves out the batches in `ranges`, pairs of (first, end) with the end not included, numbered as in `seek`: those around a
    /// loss spike, say. They take the place of ranges given before, so that none at all undoes them; the state keeps them, and the
    /// next pass of a finite loader is whole again. Raises `ConfigError` for more than 8, or beyond the end of the pass.
    fn skip(&self, py: Python<'_>, ranges: &Bound<'_, PyAny>) -> PyResult<()> {
        let ranges = state::ranges(ranges)?.map_err(|error| to_python(py, &error))?;
        self.face.ask(py, |engine| engine.skip(&ranges))
    }

    /// Batch number `batch` once more, or in advance, made on the side: the position stays where it is. Takes as long as
    /// `batch_size` records do on one thread. One of which all records are bad has no rows.
    fn replay<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = int64)] batch: i64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let batch = batch_number(py, batch)?;
        let replay = self.face.ask(py, |engine| engine.replay(batch))?;
        let control = self.face.control().clone();
        let made = on_the_side(py, "forebay-replay", move |stop| {
            replay.run(|| !stop.load(Ordering::Relaxed) && !control.is_closed())
        })?;
        match made {
            Some(batch) => self.to_dict(py, batch),
            None => Err(to_python(py, &closed())),
        }
    }

    /// The row numbers of this rank's next `n` examples, int64 `[n]`, without reading any data; bad records are not known in advance.
    /// Fewer if the pass ends before.
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
        let rows = on_the_side(py, "forebay-plan", move |stop| {
            upcoming.rows(n, || !stop.load(Ordering::Relaxed) && !control.is_closed())
        })?;
        Ok(PyArray1::from_vec(py, rows.ok_or_else(|| to_python(py, &closed()))?))
    }

    /// The pass of a finite loader, counted from 0: the one under way until `iter()` begins the next. An infinite loader's window
    /// mixes neighbouring epochs; its epoch says how often as many examples as there are records were drawn.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.face.with_engine(py, |engine| engine.epoch())
    }

    /// Chooses the pass that the next `iter()` begins, 0 to 2**62. Raises `StateError` if the loader is infinite.
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

    /// The shards in the order given: dicts with `path`, `first_row`, `num_rows`, `num_bytes` and `damage` (None, or what is wrong with the file).
    #[getter]
    fn shards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        shards(py, self.source.shards())
    }

    /// Pickles configuration and state; the copy reads the same paths and goes on where this loader stands.
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
        if self.sources.names.is_some() {
            dict.set_item("source", PyArray1::from_vec(py, self.source.group_of(&batch.index)))?;
        }
        dict.set_item("index", array(py, batch.index, [rows])?)?;
        Ok(dict)
    }
}

/// Plans the features and opens the source, in the default float mode, whatever the caller's is.
fn open(
    py: Python<'_>,
    plan: AudioPlan,
    groups: Vec<Vec<PathBuf>>,
    options: ArrowOptions,
) -> PyResult<(AudioTask, Recordings)> {
    on_the_side(py, "forebay-index", move |stop| {
        Ok((AudioTask::new(plan)?, Recordings::open(&groups, &options, stop)?))
    })
}
