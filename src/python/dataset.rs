//! The datasets of `forebay.cache`: the tree of views, and lists in memory.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::PyDict,
};

use super::{
    SLICE,
    arguments::{argument, named},
    arrays::{FieldTuple, field_of, to_dict},
    ending::{Inside, detach},
    errors::to_python,
    interruptible::run_interruptible,
    owned_object::OwnedObject,
    python_leaf::PythonLeaf,
};
use crate::{
    Error, ErrorKind, Result, cancel,
    dataset::{
        CacheStore, Dataset, DocumentLeaf, LeafLength, ListStore, MixtureRules, Store, TokenLeaf, id_type,
    },
    fields::{ColumnPool, DataType, Field},
    fork_lock,
    order::{Stop, WeightStage},
};

/// Numbers of leaves, and row numbers in these leaves.
type Located<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

/// A list of documents that may still grow.
#[pyclass(module = "forebay._core", frozen)]
pub struct _List(Arc<ListStore>);

#[pymethods]
impl _List {
    #[new]
    fn new(fields: Vec<FieldTuple>) -> PyResult<Self> {
        let fields = fields.into_iter().map(field_of).collect::<PyResult<_>>()?;
        Ok(Self(Arc::new(ListStore::new(fields))))
    }

    /// Appends a document: shape and bytes of each field.
    fn append(&self, py: Python<'_>, document: Vec<(Vec<u64>, PyReadonlyArray1<'_, u8>)>) -> PyResult<()> {
        // bounded: as many as the document has fields.
        let mut parts = Vec::with_capacity(document.len());
        for (shape, bytes) in &document {
            parts.push((shape.clone(), bytes.as_slice()?));
        }
        self.0.append(&parts).map_err(|error| to_python(py, &error))
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.0.finish().map_err(|error| to_python(py, &error))
    }
}

/// A dataset of the core.
#[pyclass(module = "forebay._core", frozen)]
pub struct _Dataset {
    dataset: Dataset,
    /// The copy for mapping, which caches the block and the permutation used last; none while a call has it.
    mapping: fork_lock::Mutex<Option<Dataset>>,
    /// The documents, if this is a dataset of documents.
    store: Option<Arc<dyn Store>>,
    /// By leaf: the owner of the user's dataset, or none if the leaf is the core's.
    objects: Vec<Option<Py<OwnedObject>>>,
}

impl _Dataset {
    fn of(dataset: Dataset, objects: Vec<Option<Py<OwnedObject>>>) -> Self {
        Self { mapping: fork_lock::Mutex::new(Some(dataset.clone())), dataset, store: None, objects }
    }

    fn of_store(store: Arc<dyn Store>) -> Self {
        let dataset = Dataset::of(Arc::new(DocumentLeaf(store.clone())));
        Self { store: Some(store), ..Self::of(dataset, vec![None]) }
    }

    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Whether reading calls a dataset of the user.
    pub fn calls_functions(&self) -> bool {
        self.objects.iter().any(Option::is_some)
    }

    /// Calls `work` with the copy for mapping, or with another one if a call has it: a leaf may call the
    /// user's Python, which may call this dataset, so no lock is held.
    fn mapped<T>(&self, work: impl FnOnce(&mut Dataset) -> Result<T>) -> Result<T> {
        let kept = fork_lock::lock(&self.mapping)?.take();
        let mut mapping = kept.unwrap_or_else(|| self.dataset.clone());
        let made = work(&mut mapping);
        let replaced = fork_lock::lock(&self.mapping)?.replace(mapping);
        drop(replaced);
        made
    }

    fn objects(&self, py: Python<'_>) -> Vec<Option<Py<OwnedObject>>> {
        self.objects.iter().map(|object| object.as_ref().map(|object| object.clone_ref(py))).collect()
    }

    /// Waits until there are `rows`, at most until `deadline`, and checks signals meanwhile.
    fn await_rows(
        &self,
        py: Python<'_>,
        epoch: u64,
        rows: u64,
        deadline: Option<Instant>,
    ) -> PyResult<LeafLength> {
        let _inside = Inside::begin(py);
        let mut dataset = self.dataset.clone();
        loop {
            let slice = Instant::now() + SLICE;
            let end = deadline.map_or(slice, |deadline| deadline.min(slice));
            let length = detach(py, || dataset.wait(epoch, rows, &|| Instant::now() >= end))
                .map_err(|error| to_python(py, &error))?;
            super::logging::emit(py)?;
            if length.is_final
                || length.rows >= rows
                || deadline.is_some_and(|deadline| Instant::now() >= deadline)
            {
                return Ok(length);
            }
            py.check_signals()?;
        }
    }
}

/// The number of rows for Python, None if infinite, and whether it is final.
fn length(LeafLength { rows, is_final }: LeafLength) -> (Option<u64>, bool) {
    ((rows != u64::MAX).then_some(rows), is_final)
}

/// Positions as unsigned numbers, or an IndexError for a negative one.
fn rows_of(positions: &PyReadonlyArray1<'_, i64>) -> PyResult<Vec<u64>> {
    let whole = |&position: &i64| {
        let negative =
            || pyo3::exceptions::PyIndexError::new_err(format!("index {position} is negative: count from 0"));
        u64::try_from(position).map_err(|_| negative())
    };
    positions.as_array().iter().map(whole).collect()
}

/// The type of token ids with this name.
fn id_type_of(dtype: &Bound<'_, PyAny>) -> PyResult<DataType> {
    let name: String = named("dtype", dtype)?;
    id_type(&name).map_err(|error| to_python(dtype.py(), &error))
}

#[pymethods]
impl _Dataset {
    /// The documents of a list.
    #[staticmethod]
    fn list(documents: &Bound<'_, _List>) -> Self {
        Self::of_store(documents.get().0.clone())
    }

    /// The documents of a split of a cache.
    #[staticmethod]
    fn cache(py: Python<'_>, path: PathBuf, split: String) -> PyResult<Self> {
        let store = run_interruptible(py, "forebay-cache", move || CacheStore::open(&path, &split))?;
        Ok(Self::of_store(Arc::new(store)))
    }

    /// A user's dataset.
    #[staticmethod]
    fn python(dataset: &Bound<'_, PyAny>) -> PyResult<Self> {
        let held = OwnedObject::new(dataset)?;
        let leaf = PythonLeaf::new(&held)?;
        Ok(Self::of(Dataset::of(Arc::new(leaf)), vec![Some(held.unbind())]))
    }

    /// Windows of tokens over one of the fields.
    fn tokens(
        &self,
        py: Python<'_>,
        field: &str,
        #[pyo3(from_py_with = argument::max_seq_len)] max_seq_len: i64,
        doc_ids: bool,
        dtype: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let dtype = id_type_of(dtype)?;
        let Some(store) = &self.store else {
            return Err(PyTypeError::new_err(
                "windows of tokens need the documents of a CacheDataset or a ListAsyncDataset",
            ));
        };
        let leaf = TokenLeaf::new(store.clone(), field, max_seq_len.max(0) as u64, doc_ids);
        let leaf = leaf.map_err(|error| to_python(py, &error))?;
        Ok(Self::of(Dataset::of(Arc::new(leaf)).with_integers(dtype, Some(field)), vec![None]))
    }

    /// The rows with their integer fields in another type.
    fn with_integers(&self, py: Python<'_>, dtype: &Bound<'_, PyAny>) -> PyResult<Self> {
        let dataset = self.dataset.clone().with_integers(id_type_of(dtype)?, None);
        Ok(Self { store: self.store.clone(), ..Self::of(dataset, self.objects(py)) })
    }

    /// Each row as often as its weight says: an array with one for each row, or the name of a field of
    /// numbers, for which the final length is awaited.
    fn weighted(
        &self,
        py: Python<'_>,
        weights: &Bound<'_, PyAny>,
        epoch_size: Option<i64>,
        seed: u64,
    ) -> PyResult<Self> {
        let epoch_size = epoch_size.map(|n| n.max(0) as u64);
        let dataset = self.dataset.clone();
        let made = match weights.extract::<String>() {
            Ok(field) => {
                self.await_rows(py, 0, i64::MAX as u64, None)?;
                run_interruptible(py, "forebay-weights", move || {
                    let weights = dataset.numbers(&field, &cancel::is_stopped)?;
                    dataset.weighted(&weights, epoch_size, seed)
                })?
            }
            Err(_) => {
                let weights: PyReadonlyArray1<'_, f64> = weights.extract()?;
                let weights = weights.as_slice()?;
                detach(py, || dataset.weighted(weights, epoch_size, seed))
                    .map_err(|error| to_python(py, &error))?
            }
        };
        Ok(Self::of(made, self.objects(py)))
    }

    /// The rows in a new order each epoch.
    fn permutation(&self, py: Python<'_>, seed: u64) -> PyResult<Self> {
        let made = self.dataset.clone().permutation(seed).map_err(|error| to_python(py, &error))?;
        Ok(Self::of(made, self.objects(py)))
    }

    /// The rows in a new order within each era, each epoch.
    fn eras(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::era_length)] era_length: i64,
        seed: u64,
    ) -> PyResult<Self> {
        let made = self
            .dataset
            .clone()
            .eras(era_length.max(0) as u64, seed)
            .map_err(|error| to_python(py, &error))?;
        Ok(Self::of(made, self.objects(py)))
    }

    /// A mixture of sources by weight.
    #[staticmethod]
    fn mixture(
        py: Python<'_>,
        sources: Vec<(String, Py<Self>)>,
        stages: Vec<(i64, Vec<f64>)>,
        block_size: Option<i64>,
        stop: &str,
        seed: u64,
    ) -> PyResult<Self> {
        let raise = |message: String| to_python(py, &Error::new(ErrorKind::Config, message));
        let stop = match stop {
            "restart" => Stop::Restart,
            "first_exhausted" => Stop::FirstExhausted,
            "all_exhausted" => Stop::AllExhausted,
            other => {
                return Err(raise(format!(
                    "stop is {other:?}, must be \"restart\", \"first_exhausted\" or \"all_exhausted\""
                )));
            }
        };
        // bounded: as many as there are stages.
        let mut made = Vec::with_capacity(stages.len());
        for (start, weights) in stages {
            let start = u64::try_from(start)
                .map_err(|_| raise(format!("weights begin at position {start}, must be 0 or more")))?;
            made.push(WeightStage { start, weights });
        }
        let block = block_size.map(|block| block.max(0) as u64);
        let objects = sources.iter().flat_map(|(_, source)| source.get().objects(py)).collect();
        let sources =
            sources.into_iter().map(|(name, source)| (name, source.get().dataset.clone())).collect();
        let mixture = Dataset::mixture(sources, MixtureRules { stages: made, block, stop, seed });
        Ok(Self::of(mixture.map_err(|error| to_python(py, &error))?, objects))
    }

    /// The description of the dataset.
    fn describe(&self) -> String {
        self.dataset.describe()
    }

    /// Name, type, number of dimensions, and the shape if all rows have the same, for each field.
    fn fields(&self, py: Python<'_>) -> PyResult<Vec<FieldTuple>> {
        let fields = detach(py, || self.dataset.fields()).map_err(|error| to_python(py, &error))?;
        let tuple =
            |field: &Field| (field.name.clone(), field.dtype.name().to_owned(), field.rank(), field.shape());
        Ok(fields.iter().map(tuple).collect())
    }

    /// The current number of rows, None if infinite, and whether it is final.
    #[pyo3(signature = (epoch=0))]
    fn length(&self, py: Python<'_>, epoch: u64) -> PyResult<(Option<u64>, bool)> {
        let found = detach(py, || self.mapped(|mapping| mapping.length(epoch)));
        found.map(length).map_err(|error| to_python(py, &error))
    }

    /// Waits until there are `rows`, at most `timeout_s`; returns the length.
    #[pyo3(signature = (rows, timeout_s=None, epoch=0))]
    fn wait(
        &self,
        py: Python<'_>,
        rows: u64,
        timeout_s: Option<f64>,
        epoch: u64,
    ) -> PyResult<(Option<u64>, bool)> {
        let deadline = match timeout_s {
            Some(s) if !(0.0..=1e9).contains(&s) => {
                return Err(PyValueError::new_err(format!("timeout_s is {s}, must be 0 to 1e9")));
            }
            Some(s) => Some(Instant::now() + Duration::from_secs_f64(s)),
            None => None,
        };
        self.await_rows(py, epoch, rows, deadline).map(length)
    }

    /// The leaf and its row at each position, int64 arrays; waits for the last of them.
    #[pyo3(signature = (positions, epoch=0))]
    fn locate<'py>(
        &self,
        py: Python<'py>,
        positions: PyReadonlyArray1<'_, i64>,
        epoch: u64,
    ) -> PyResult<Located<'py>> {
        let positions = rows_of(&positions)?;
        self.await_rows(py, epoch, positions.iter().max().map_or(0, |last| last.saturating_add(1)), None)?;
        let locate = || self.mapped(|mapping| mapping.locate(epoch, positions));
        let picks = detach(py, locate).map_err(|error| to_python(py, &error))?;
        let leaves = picks.iter().map(|pick| pick.leaf as i64);
        let rows = picks.iter().map(|pick| pick.row as i64);
        Ok((PyArray1::from_iter(py, leaves), PyArray1::from_iter(py, rows)))
    }

    /// The rows at positions, field by field; waits for the last of them.
    #[pyo3(signature = (positions, epoch=0))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        positions: PyReadonlyArray1<'_, i64>,
        epoch: u64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let positions = rows_of(&positions)?;
        self.await_rows(py, epoch, positions.iter().max().map_or(0, |last| last.saturating_add(1)), None)?;
        let read = move |mapping: &mut Dataset, dataset: &Dataset, positions: Vec<u64>| -> Result<_> {
            let rows = positions.len();
            let picks = mapping.locate(epoch, positions)?;
            let pool = ColumnPool::new(dataset.fields()?, rows, 0);
            Ok((dataset.read(&picks, &pool)?, pool.fields().clone()))
        };
        let (columns, fields) = if self.dataset.is_remote() {
            let (mut mapping, dataset) = (self.dataset.clone(), self.dataset.clone());
            run_interruptible(py, "forebay-read", move || read(&mut mapping, &dataset, positions))?
        } else {
            let read = || self.mapped(|mapping| read(mapping, &self.dataset, positions));
            detach(py, read).map_err(|error| to_python(py, &error))?
        };
        to_dict(py, columns, &fields)
    }

    /// By leaf: the user's dataset, or None.
    fn leaves<'py>(&self, py: Python<'py>) -> Vec<Option<Bound<'py, PyAny>>> {
        self.objects.iter().map(|held| held.as_ref().map(|held| held.get().object(py).clone())).collect()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.objects.iter().try_for_each(|held| visit.call(held))
    }
}
