//! `forebay.AudioDataset`.

use std::{mem, sync::Arc, time::Instant};

use numpy::{PyArray1, PyArrayMethods, PyUntypedArray};
use pyo3::{
    IntoPyObjectExt,
    exceptions::PyIndexError,
    prelude::*,
    types::{PyDict, PyList, PySlice, PyString, PyTuple},
};

use super::{
    SLICE,
    arguments::{Argument, Parameters, arguments, bind, entries, items, named, signature, wrong_type},
    arrays::to_dict,
    ending::{Inside, detach},
    engine_handle::shards,
    errors::to_python,
    interruptible::run_interruptible,
    loader_fields::{OF_FEATURES, bfloat16_fields, described, given_twice, names_to_python, source_columns},
    logging,
};
use crate::{
    Error, ErrorKind, LoaderConfig, Result,
    access::{Access, Clip, closed, column},
    compose::{ClassNamesOf, OpenedSource, source_problems, with_other_recordings},
    config::{AccessConfig, MAX_BATCH_BYTES},
    error::{counted, shown},
    fallible_alloc,
    fields::Field,
    fork_lock,
    source::{Positions, Recordings, Selection},
    tasks::{AudioPlan, AudioTask, Section, Waveform},
};

forebay_loader::access_parameters!(arguments);

/// The most rows of a batch, as of a loader.
const MOST_ROWS: usize = 1 << 20;

#[doc = forebay_loader::access_parameters!(signature)]
/// Random access to recordings: rows by number, batches of any rows, crops at any time.
///
/// `len(dataset)`, `dataset[i]` (a dict of fields, without the axis of the batch) and `get_batch(indices)` (a
/// dict of arrays, as a `Loader` yields them). The values equal those of a `Loader` with the same parameters,
/// for the same row and crop, bit for bit. It is a map-style dataset for `torch.utils.data.DataLoader` with
/// any sampler, and for Grain. Slices, lists and arrays of row numbers are batches too: `dataset[10:20]`.
///
/// Threads of the dataset read and decode, the GIL is released, and several threads may call it at once. It
/// can be pickled, and used in a fork: threads are started anew there. Nothing is read ahead.
///
/// Parameters
/// ----------
#[doc = forebay_loader::access_parameters!(entries)]
/// Raises
/// ------
/// ConfigError
///     A parameter is out of range, or the files have no recordings. Lists every problem.
/// OSError
///     A file cannot be opened or read.
///
/// Reading rows raises `IndexError` for a row that there is not, `DecodeError` for a bad record, with file
/// and row, `OSError` if a file can no longer be read, `ConfigError` if a target cannot be made,
/// `MemoryError`, and `ForebayError` after `close()`.
#[pyclass(module = "forebay", name = "AudioDataset", frozen, weakref)]
pub struct AudioDataset {
    given: AccessConfig,
    /// The parameters of a loader with the same examples.
    config: LoaderConfig,
    audio: AudioPlan,
    fields: Arc<[Field]>,
    class_names: ClassNamesOf,
    source: Arc<Recordings>,
    n_rows: u64,
    /// The rows over all files, or their windows.
    positions: Positions,
    /// None after `close()`.
    living: fork_lock::Mutex<Option<Living>>,
}

/// Access to the rows of a dataset.
type SharedAccess = Access<Selection<Recordings>>;

/// The access of the process that made it.
struct Living {
    access: DetachedOnDrop,
    process: u32,
}

impl Living {
    fn new(access: SharedAccess) -> Self {
        Self { access: DetachedOnDrop(Some(Arc::new(access))), process: std::process::id() }
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // Its threads are the parent's, and locks that they held stay locked.
            mem::forget(self.access.0.take());
        }
    }
}

/// A reference that is dropped detached, since the last one waits for the end of the threads.
#[derive(Clone)]
struct DetachedOnDrop(Option<Arc<SharedAccess>>);

impl DetachedOnDrop {
    /// The access; after the drop has begun it is closed.
    fn get(&self) -> Result<&SharedAccess> {
        self.0.as_deref().ok_or_else(closed)
    }
}

impl Drop for DetachedOnDrop {
    fn drop(&mut self) {
        let Some(access) = self.0.take() else { return };
        // Threads may have to be awaited; at the end of the interpreter nobody can attach.
        let mut access = Some(access);
        Python::try_attach(|py| detach(py, || drop(access.take())));
    }
}

#[pymethods]
impl AudioDataset {
    #[new]
    #[pyo3(signature = (*args, **kwargs), text_signature = None)]
    fn new(py: Python<'_>, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        logging::emitting(py, || {
            py.import("forebay._recipe")?; // not at the first use of `recipe`: see `_preloaded.py`
            let (given, mut problems) = bind::<AccessConfig>(args, kwargs)?;
            problems.extend(given_twice::<AccessConfig>(given.features.as_ref(), args, kwargs)?);
            problems.extend(source_problems("source", &given.source));
            let plans = given.check().map_err(|error| problems.push(error.message));
            let (Ok((config, audio)), true) = (plans, problems.is_empty()) else {
                return Err(to_python(py, &Error::new(ErrorKind::Config, problems.join("; "))));
            };
            let (asked, clips) = (config.clone(), (audio.crop, audio.features.sample_rate(), 0.0));
            let opened = run_interruptible(py, "forebay-index", move || OpenedSource::new(&asked, clips))?;
            let class_names = opened.class_names();
            opened.outputs.check_places(&audio).map_err(|error| to_python(py, &error))?;
            let (access, source, positions) = accessed(opened, &audio, &given);
            let n_rows = positions.len_of(source.n_rows());
            let fields = access.fields().clone();
            let living = fork_lock::Mutex::new(Some(Living::new(access)));
            Ok(Self { given, config, audio, fields, class_names, source, n_rows, positions, living })
        })
    }

    /// The number of rows.
    fn __len__(&self) -> usize {
        self.n_rows as usize
    }

    /// The fields of row `index`, from the end if below 0: `dataset[3]`. For a slice, a list or an array of
    /// rows a batch, as by `get_batch`.
    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let found = slice.indices(self.n_rows as isize)?;
            let rows = (0..found.slicelength).map(|at| (found.start + at as isize * found.step) as i64);
            let clips = rows.map(|row| self.clip(row, None)).collect::<PyResult<Vec<_>>>()?;
            return self.batch(py, &clips).map(Bound::into_any);
        }
        let axes = index.getattr_opt("ndim")?.map(|axes| axes.extract::<usize>());
        let is_list = match axes {
            Some(Ok(axes)) => axes > 0,
            _ => !index.is_instance_of::<PyString>() && items(index)?.is_some(),
        };
        if is_list {
            return self.get_batch(py, index, None).map(Bound::into_any);
        }
        let expected = "an int, a slice, or a sequence of ints";
        let row = i64::read("index", index, &mut Vec::new());
        let row = row.map_err(|refused| refused.raised("index", index, expected))?;
        row_of(&self.batch(py, &[self.clip(row, None)?])?, 0).map(Bound::into_any)
    }

    /// The fields of each of these rows, as the fetcher of torch's DataLoader asks for them.
    fn __getitems__<'py>(
        &self,
        py: Python<'py>,
        indices: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let batch = self.get_batch(py, indices, None)?;
        let rows = batch.get_item("index")?.map_or(Ok(0), |index| index.len())?;
        PyList::new(py, (0..rows).map(|at| row_of(&batch, at)).collect::<PyResult<Vec<_>>>()?)
    }

    /// A batch of these rows, in this order: a dict of arrays as a `Loader` yields. `indices` is a sequence
    /// or an array of whole numbers, which may repeat and count from the end if below 0. `starts` has for
    /// each the second of its recording at which the clip begins, rounded to a sample at the front end's
    /// rate, or None for the crop's rule. A clip that reaches beyond the end is padded with zeros; a start
    /// below 0 puts zeros first, and is possible if all of a short recording is in the clip. So the field
    /// `start` of any batch gives the same clips again.
    #[pyo3(signature = (indices, starts=None))]
    fn get_batch<'py>(
        &self,
        py: Python<'py>,
        indices: &Bound<'py, PyAny>,
        starts: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let rows: Vec<i64> = each(py, "indices", indices, "a sequence or array of ints")?;
        let starts = starts.map(|starts| {
            let expected = "a sequence or array of floats, one for each index, or None";
            each::<Option<f64>>(py, "starts", starts, expected)
        });
        let starts = starts.transpose()?.unwrap_or_else(|| {
            // bounded: as many as the indices.
            vec![None; rows.len()]
        });
        if starts.len() != rows.len() {
            let message = format!(
                "starts has {}, must be one for each of the {}",
                counted(starts.len() as u64, "second"),
                counted(rows.len() as u64, "index").replace("indexs", "indices"),
            );
            return Err(to_python(py, &Error::new(ErrorKind::Config, message)));
        }
        if self.audio.crop.views().is_some() && starts.iter().any(Option::is_some) {
            let message = "starts has the start of a clip, and crop=Views() makes several clips of a row; leave starts out";
            return Err(to_python(py, &Error::new(ErrorKind::Config, message)));
        }
        let clips = rows.iter().zip(starts).map(|(&row, start)| self.clip(row, start));
        self.batch(py, &clips.collect::<PyResult<Vec<_>>>()?)
    }

    /// The samples of row `index` as they are: float32 `[channels, n_samples]`, and their rate in Hz. `start`
    /// and `seconds` choose a part; it ends with the recording. `sample_rate` resamples it; None is the
    /// recording's own rate. Features, crop and `clip_seconds` play no part.
    #[pyo3(signature = (index, start=None, seconds=None, *, sample_rate=None))]
    fn waveform<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
        start: Option<&Bound<'py, PyAny>>,
        seconds: Option<&Bound<'py, PyAny>>,
        sample_rate: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyUntypedArray>, u32)> {
        let row = self.clip(named("index", index)?, None)?.row;
        let number = |name: &str, given: Option<&Bound<'py, PyAny>>| -> PyResult<Option<f64>> {
            let Some(given) = given else { return Ok(None) };
            let number: f64 = named(name, given)?;
            if number >= 0.0 && number.is_finite() {
                return Ok(Some(number));
            }
            let message = format!("{name} is {number:?}, must be a number of seconds from 0 on");
            Err(to_python(py, &Error::new(ErrorKind::Config, message)))
        };
        let rate = sample_rate.map(|rate| named::<i64>("sample_rate", rate)).transpose()?;
        if let Some(rate) = rate.filter(|rate| !(1..=768_000).contains(rate)) {
            let message = format!("sample_rate is {}, must be 1 to 768000", shown(rate));
            return Err(to_python(py, &Error::new(ErrorKind::Config, message)));
        }
        let section = Section {
            start: number("start", start)?.unwrap_or(0.0),
            seconds: number("seconds", seconds)?,
            sample_rate: rate.map(|rate| rate as u32),
        };
        let found = self.decoded(py, row, section)?;
        let channels = usize::from(found.info.channels);
        let n = found.samples.len() / channels;
        let samples = PyArray1::from_vec(py, found.samples).reshape([channels, n])?;
        Ok((samples.into_any().cast_into()?, found.sample_rate))
    }

    /// What row `index` is: a dict of `codec`, `sample_rate`, `channels`, `n_samples` and `seconds`. No
    /// sample is decoded.
    fn info<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let row = self.clip(named("index", index)?, None)?.row;
        let section = Section { start: 0.0, seconds: Some(0.0), sample_rate: None };
        let info = self.decoded(py, row, section)?.info;
        let dict = PyDict::new(py);
        dict.set_item("codec", info.codec.to_string())?;
        dict.set_item("sample_rate", info.sample_rate)?;
        dict.set_item("channels", info.channels)?;
        dict.set_item("n_samples", info.n_samples)?;
        dict.set_item("seconds", info.seconds())?;
        Ok(dict)
    }

    /// The path of the recording of row `index`, as its table, folder or shard has it, or None. Nothing is
    /// decoded, so that a bad recording has one too.
    fn path(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
        self.access(py)?; // raises if closed
        let row = self.positions.row(self.clip(named("index", index)?, None)?.row);
        let source = self.source.clone();
        run_interruptible(py, "forebay-path", move || source.reader().path(row))
    }

    /// A column of all rows, in their order, without the recordings: an array of numbers, a list of str, or
    /// for lists what a batch has. A null is NaN, -1, empty text or an empty list, as by `columns=`. Any
    /// column of `columns` may be named. Raises `DecodeError` if the column cannot be read in a row.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.access(py)?; // raises if closed
        let (name, config) = (name.to_owned(), self.config.clone());
        let (source, positions) = (self.source.clone(), self.positions.clone());
        let (columns, fields) = logging::emitting(py, || {
            run_interruptible(py, "forebay-column", move || column(&config, &source, &positions, &name))
        })?;
        let dict = to_dict(py, columns, &fields)?;
        dict.values().get_item(0)
    }

    /// The columns of the files, the fields of structs among them: a dict of names and types, `"audio"` for
    /// the recordings.
    #[getter]
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        self.source
            .contents()
            .schema
            .iter()
            .try_for_each(|column| dict.set_item(&column.name, &column.content))?;
        Ok(dict)
    }

    /// The class names in the schema of each column that has any.
    #[getter]
    fn _classes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for column in &*self.source.contents().schema {
            if let Some(names) = &column.class_names {
                dict.set_item(&column.name, &**names)?;
            }
        }
        Ok(dict)
    }

    /// The fields of a row: dicts with `name`, `dtype`, `shape` (None if rows differ) and `meaning`.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        described(py, &self.config, &self.audio, &self.fields)
    }

    /// The names of the classes, by number; None if they are not known. If several targets have
    /// names, a dict of them.
    #[getter]
    fn class_names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        names_to_python(py, &self.class_names)
    }

    /// The names of the sources, by the numbers in the field `source`; None unless `source` is a dict.
    #[getter]
    fn source_names(&self) -> Option<Vec<String>> {
        self.config.arrow_files.names.clone()
    }

    /// What the dataset makes of a recording, for `print`: source, crop, features, targets and fields;
    /// `to_dict()` has it as JSON.
    #[getter]
    fn recipe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let facts = PyDict::new(py);
        facts.set_item("source", source_columns(&self.config.arrow_files, &self.source, self.n_rows))?;
        let class = py.import("forebay._recipe")?.getattr("Recipe")?;
        class.call1((self.given.keywords(py, None)?, facts, self.fields(py)?))
    }

    /// The files in the given order, as `Loader.shards`.
    #[getter]
    fn shards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        shards(py, self.source.shards())
    }

    /// The fields whose uint16 values are the bits of bfloat16, which numpy does not have.
    #[getter]
    fn _bfloat16_fields(&self) -> Vec<&str> {
        bfloat16_fields(&self.audio)
    }

    /// Ends the threads. Calls that wait in other threads, and all later ones that read rows, raise
    /// `ForebayError`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let living = detach(py, || Ok(fork_lock::lock(&self.living)?.take()));
        if let Some(living) = living.map_err(|error: Error| to_python(py, &error))? {
            detach(py, || living.access.get().map(Access::close)).map_err(|error| to_python(py, &error))?;
        }
        logging::emit(py)
    }

    /// Whether `close()` was called.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        let is_closed = detach(py, || Ok(fork_lock::lock(&self.living)?.is_none()));
        is_closed.map_err(|error: Error| to_python(py, &error))
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "<forebay.AudioDataset: {}, {:?} {}{}>",
            source_columns(&self.config.arrow_files, &self.source, self.n_rows),
            self.audio.shape(),
            self.audio.features.dtype().name(),
            if self.closed(py)? { ", closed" } else { "" },
        ))
    }

    /// A table of the fields, and the first recording with its spectrogram, for notebooks.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("forebay._pictures")?.call_method1("page", (slf,))
    }

    /// Pickles the parameters; the copy opens the same paths.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, given) = (slf.py(), &slf.get().given);
        let keywords = given.keywords(py, None)?;
        if given.features.is_some() {
            OF_FEATURES.iter().try_for_each(|name| keywords.del_item(name))?;
        }
        let new = py.import("copyreg")?.getattr("__newobj_ex__")?;
        (new, (slf.get_type(), PyTuple::empty(py), keywords)).into_bound_py_any(py)
    }
}

/// The access that an open source gives, the source, and its rows, if not all are there.
fn accessed(
    opened: OpenedSource,
    audio: &AudioPlan,
    given: &AccessConfig,
) -> (SharedAccess, Arc<Recordings>, Positions) {
    let OpenedSource { source, positions, outputs, others, .. } = opened;
    let source = Arc::new(source);
    let starts: Vec<_> = source.group_starts().into_iter().map(|row| positions.before(row)).collect();
    let audio = with_other_recordings(audio.clone(), others, (&positions, &starts, &[]));
    let task = AudioTask::new(audio).with_outputs(outputs);
    let selection = Arc::new(Selection::new(source.clone(), positions.clone()));
    (Access::new(selection, task, given.threads(), given.seed), source, positions)
}

impl AudioDataset {
    /// The access to the rows, of this process.
    fn access(&self, py: Python<'_>) -> PyResult<DetachedOnDrop> {
        let raise = |error: Error| to_python(py, &error);
        let found = || -> Result<_> {
            let living = fork_lock::lock(&self.living)?;
            let Living { access, process } = living.as_ref().ok_or_else(closed)?;
            Ok((access.clone(), *process == std::process::id()))
        };
        let (access, is_ours) = detach(py, found).map_err(raise)?;
        if is_ours {
            return Ok(access);
        }
        // The threads of the parent do not exist here. If one of them was at work at the fork, locks of the
        // source may stay locked, so that it is opened again.
        let parents = mem::ManuallyDrop::new(access);
        let parents = parents.get().map_err(raise)?;
        let again = if parents.is_busy() {
            let (asked, clips) =
                (self.config.clone(), (self.audio.crop, self.audio.features.sample_rate(), 0.0));
            let opened = run_interruptible(py, "forebay-index", move || OpenedSource::new(&asked, clips))?;
            accessed(opened, &self.audio, &self.given).0
        } else {
            parents.again()
        };
        let again = Living::new(again);
        let access = again.access.clone();
        let parents = detach(py, || Ok(fork_lock::lock(&self.living)?.replace(again))).map_err(raise)?;
        mem::forget(parents);
        Ok(access)
    }

    /// The clip of a row, counted from the end if below 0.
    fn clip(&self, index: i64, start: Option<f64>) -> PyResult<Clip> {
        let n = self.n_rows as i64;
        let row = if index < 0 { index.saturating_add(n) } else { index };
        if (0..n).contains(&row) {
            return Ok(Clip { row: row as u64, start });
        }
        Err(PyIndexError::new_err(format!("index {} is out of range: there are {n} rows", shown(index))))
    }

    fn decoded(&self, py: Python<'_>, row: u64, section: Section) -> PyResult<Waveform> {
        let access = self.access(py)?;
        let begun = detach(py, || access.get()?.waveform(row, section));
        let mut pending = begun.map_err(|error| to_python(py, &error))?;
        waited(py, || pending.wait(Instant::now() + SLICE))
    }

    fn batch<'py>(&self, py: Python<'py>, clips: &[Clip]) -> PyResult<Bound<'py, PyDict>> {
        let bytes = (clips.len() as u64).saturating_mul(self.audio.example_bytes() as u64);
        if clips.len() > MOST_ROWS || bytes > MAX_BATCH_BYTES {
            let message = format!(
                "indices has {} rows, which makes a batch of {} MiB; at most {MOST_ROWS} rows and {} MiB are allowed",
                clips.len(),
                bytes >> 20,
                MAX_BATCH_BYTES >> 20
            );
            return Err(to_python(py, &Error::new(ErrorKind::Config, message)));
        }
        let access = self.access(py)?;
        let begun = detach(py, || access.get()?.batch(clips));
        let mut pending = begun.map_err(|error| to_python(py, &error))?;
        let columns = waited(py, || pending.wait(Instant::now() + SLICE))?;
        to_dict(py, columns, &self.fields)
    }
}

/// What `step` makes, which waits detached in slices, with checks of signals between them.
fn waited<T: Send>(py: Python<'_>, mut step: impl FnMut() -> Result<Option<T>> + Send) -> PyResult<T> {
    let _inside = Inside::begin(py);
    loop {
        let made = detach(py, &mut step).map_err(|error| to_python(py, &error));
        logging::emit(py)?;
        py.check_signals()?;
        if let Some(made) = made? {
            return Ok(made);
        }
    }
}

/// The items of a sequence or array; `name` is that of the argument.
fn each<T: Argument>(
    py: Python<'_>,
    name: &str,
    given: &Bound<'_, PyAny>,
    expected: &str,
) -> PyResult<Vec<T>> {
    // Items of an array would be arrays.
    let list = match given.getattr_opt("tolist")? {
        Some(tolist) => tolist.call0()?,
        None => given.clone(),
    };
    if list.cast::<PyString>().is_ok() {
        return Err(wrong_type(name, given, expected));
    }
    let each = items(&list)?.ok_or_else(|| wrong_type(name, given, expected))?;
    let mut found = Vec::new();
    for (at, item) in each.enumerate() {
        let (item, mut problems) = (item?, Vec::new());
        let value = T::read(name, &item, &mut problems);
        let value = value.map_err(|refused| {
            let or_none = if T::IS_OPTIONAL { ", or None" } else { "" };
            refused.raised(&format!("{name}[{at}]"), &item, &format!("{}{or_none}", T::EXPECTED))
        })?;
        fallible_alloc::push(&mut found, value).map_err(|error| to_python(py, &error))?;
    }
    Ok(found)
}

/// The fields of one row of a batch.
fn row_of<'py>(batch: &Bound<'py, PyDict>, at: usize) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(batch.py());
    batch.iter().try_for_each(|(name, values)| row.set_item(name, values.get_item(at)?))?;
    Ok(row)
}
