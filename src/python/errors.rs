//! Errors of the core become Python exceptions, in one place.

use pyo3::{
    exceptions::{PyException, PyFileNotFoundError, PyMemoryError, PyOSError, PyValueError},
    prelude::*,
    types::{PyDict, PyTuple, PyType},
};

use crate::{Error, ErrorKind};

pyo3::create_exception!(forebay, ForebayError, PyException, "The base of the errors that forebay defines.");
pyo3::create_exception!(
    forebay,
    DecodeError,
    ForebayError,
    "A recording cannot be decoded, and the loader may not go on without it."
);
pyo3::create_exception!(
    forebay,
    StateError,
    ForebayError,
    "The call does not fit the state that the loader is in."
);

static CONFIG_ERROR: pyo3::sync::PyOnceLock<Py<PyType>> = pyo3::sync::PyOnceLock::new();

/// `ConfigError` has two bases, `ForebayError` and `ValueError`, so it is made as Python would make it.
fn config_error(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let made = CONFIG_ERROR.get_or_try_init(py, || {
        let bases = PyTuple::new(
            py,
            [py.get_type::<ForebayError>().into_any(), py.get_type::<PyValueError>().into_any()],
        )?;
        let dict = PyDict::new(py);
        dict.set_item("__module__", "forebay")?;
        dict.set_item(
            "__doc__",
            "Parameters are out of range or files cannot be used; names every problem found.",
        )?;
        let class = py.get_type::<PyType>().call1(("ConfigError", bases, dict))?;
        Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
    })?;
    Ok(made.bind(py))
}

pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("ForebayError", py.get_type::<ForebayError>())?;
    module.add("ConfigError", config_error(py)?)?;
    module.add("DecodeError", py.get_type::<DecodeError>())?;
    module.add("StateError", py.get_type::<StateError>())
}

/// The Python exception of an error.
pub fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    use ErrorKind::*;
    let message = error.to_string();
    match error.kind {
        Config | Format | Schema | Shape => match config_error(py) {
            Ok(class) => PyErr::from_type(class.clone(), message),
            Err(error) => error,
        },
        NotFound => PyFileNotFoundError::new_err(message),
        Io => PyOSError::new_err(message),
        Memory => PyMemoryError::new_err(message),
        State => StateError::new_err(message),
        Exhausted => DecodeError::new_err(message),
        kind if kind.is_record() => DecodeError::new_err(message),
        _ => ForebayError::new_err(message),
    }
}
