//! Objects of the user that forebay's threads call, and their owners.
//!
//! A thread that owned such an object would keep it alive, and with it a loader that the object refers to,
//! which in turn keeps the thread: a cycle that the garbage collector does not see. So an object of Python
//! owns it, as an [`OwnedObject`] that it shows to the collector, and threads have a [`Callee`], a weak
//! reference. Once the last owner is collected, nobody waits for a call, and calls fail. The user's object
//! cannot be the target of the weak reference: a bound method lives only as long as somebody refers to it.

use pyo3::{PyTraverseError, PyVisit, prelude::*, types::PyWeakrefReference};

use super::{calls::call, errors::ForebayError};
use crate::{Result, config::Opaque};

/// The target of weak references to an object of the user.
#[pyclass(module = "forebay._core", name = "_Held", frozen, weakref)]
pub struct OwnedObject(Py<PyAny>);

impl OwnedObject {
    pub fn new<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        Bound::new(object.py(), Self(object.clone().unbind()))
    }

    pub fn object<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.0.bind(py)
    }
}

#[pymethods]
impl OwnedObject {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}

/// An object of the user for threads, which may outlive its owners.
#[derive(Debug)]
pub struct Callee(Py<PyWeakrefReference>);

impl Callee {
    pub fn new(held: &Bound<'_, OwnedObject>) -> PyResult<Self> {
        Ok(Self(PyWeakrefReference::new(held)?.unbind()))
    }

    /// The object, if it has an owner.
    pub fn object<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let held = self.0.bind(py).upgrade_as::<OwnedObject>().ok().flatten()?;
        Some(held.get().object(py).clone())
    }

    /// As [`call`], for a function that uses the object.
    ///
    /// # Errors
    /// As [`call`]; an object without an owner is an exception of the function.
    pub fn call<T>(
        &self,
        failed: &str,
        function: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T> {
        call(failed, |py| {
            let gone = || ForebayError::new_err("the loader or dataset that owns the function was collected");
            function(&self.object(py).ok_or_else(gone)?)
        })
    }
}

/// Shows the object of a parameter to the garbage collector. Of several objects of Python that share an
/// [`Opaque`], one may do so.
pub fn visit(opaque: &Opaque, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
    let object = opaque.0.as_ref().and_then(|object| object.downcast_ref::<Py<PyAny>>());
    object.map_or(Ok(()), |object| visit.call(object))
}
