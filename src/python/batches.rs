//! The iterator that `iter(loader)` returns: the loader without its `close()`.
//!
//! `yield from` calls `close()` of its iterator when the generator ends early. If a loader were its own
//! iterator, `while True: yield from loader` would close it permanently as soon as the consumer stops.

use pyo3::{PyTraverseError, PyVisit, exceptions::PyAttributeError, intern, prelude::*, types::PyString};

use super::ending::Inside;

/// The batches of a loader. All other attributes are those of the loader, so that `iter(loader).state_dict()`
/// works.
#[pyclass(module = "forebay._core", name = "_Batches", frozen)]
pub struct Batches(Py<PyAny>);

impl Batches {
    pub fn of<'py, T>(loader: &Bound<'py, T>) -> PyResult<Bound<'py, Self>> {
        Bound::new(loader.py(), Self(loader.clone().into_any().unbind()))
    }
}

#[pymethods]
impl Batches {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _inside = Inside::begin(py);
        self.0.bind(py).call_method0(intern!(py, "__next__"))
    }

    fn __getattr__<'py>(&self, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        if name == "close" {
            return Err(PyAttributeError::new_err("an iterator has no close(): close the loader itself"));
        }
        self.0.bind(name.py()).getattr(name)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<iterator of {}>", self.0.bind(py).repr()?))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}
