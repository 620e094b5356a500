//! A user's function as a step of augmentation, called on the worker that makes the example.

use std::any::Any;

use numpy::{PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
};

use super::{
    calls::expect_calls,
    owned_object::{Callee, OwnedObject},
};
use crate::{Result, dsp::augment::Custom};

/// A function of (float32 array, seed) that returns an array of the same shape.
#[derive(Debug)]
pub struct UserStep {
    function: Callee,
    name: String,
}

impl UserStep {
    /// Calls the function of `held` as long as that has an owner.
    ///
    /// # Errors
    /// `TypeError` if it cannot be called.
    pub fn new(held: &Bound<'_, OwnedObject>) -> PyResult<Self> {
        let function = held.get().object(held.py());
        if !function.is_callable() {
            let message = format!(
                "function is {}, must be a function of (array, seed); it is not part of to_dict()",
                function.repr()?
            );
            return Err(PyTypeError::new_err(message));
        }
        expect_calls();
        Ok(Self { function: Callee::new(held)?, name: name_of(function)? })
    }

    /// The function of a step that [`Self::new`] made.
    pub fn of<'py>(py: Python<'py>, step: &dyn Custom) -> Option<Bound<'py, PyAny>> {
        let step: &dyn Any = step;
        step.downcast_ref::<Self>().and_then(|step| step.function.object(py))
    }
}

/// What a function is called in states.
#[pyfunction]
pub fn _function_name(function: &Bound<'_, PyAny>) -> PyResult<String> {
    name_of(function)
}

/// Module and name of a function; of an object without a name, those of its class.
fn name_of(function: &Bound<'_, PyAny>) -> PyResult<String> {
    let named =
        if function.hasattr("__qualname__")? { function.clone() } else { function.get_type().into_any() };
    let module = function.getattr("__module__").and_then(|module| module.extract::<String>());
    let name: String = named.getattr("__qualname__")?.extract()?;
    Ok(module.map_or(name.clone(), |module| format!("{module}.{name}")))
}

impl Custom for UserStep {
    fn name(&self) -> &str {
        &self.name
    }

    fn change(&self, values: &mut [f32], shape: [usize; 2], seed: u64) -> Result<()> {
        self.function.call(&format!("augment.Python({}) failed", self.name), |function| {
            let py = function.py();
            let given = PyArray1::from_slice(py, values).reshape(shape)?;
            let made = function.call1((given, seed))?;
            let returned = |what: String| {
                PyValueError::new_err(format!(
                    "the function returned {what}, must return a float array of shape {shape:?}"
                ))
            };
            let Ok(array) = made.cast::<PyArrayDyn<f32>>().cloned().or_else(|_| converted(&made)) else {
                return Err(returned(made.get_type().name()?.to_string()));
            };
            if array.shape() != shape {
                return Err(returned(format!("shape {:?}", array.shape())));
            }
            let array: PyReadonlyArrayDyn<'_, f32> = array.readonly();
            for (value, made) in values.iter_mut().zip(array.as_array()) {
                *value = *made;
            }
            if values.iter().any(|value| !value.is_finite()) {
                return Err(returned("NaN or infinity".to_owned()));
            }
            Ok(())
        })
    }
}

/// Other floats as float32; not integers, which are full scale at other numbers than 1.
fn converted<'py>(made: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    let kind: String = made.getattr("dtype")?.getattr("kind")?.extract()?;
    if kind != "f" {
        return Err(PyTypeError::new_err("not float"));
    }
    Ok(made.call_method1("astype", ("float32",))?.cast_into()?)
}
