//! The values of `allow_paths`: None, True, one folder, or several.

use std::path::PathBuf;

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyString},
};

use super::errors::to_python;
use crate::{Error, ErrorKind, source::AllowPaths};

/// Which files rows may name, as given by the user.
pub fn extract(given: Option<&Bound<'_, PyAny>>) -> PyResult<AllowPaths> {
    let Some(given) = given.filter(|given| !given.is_none()) else { return Ok(AllowPaths::BelowShard) };
    if let Ok(any) = given.cast::<PyBool>() {
        return Ok(if any.is_true() { AllowPaths::Any } else { AllowPaths::BelowShard });
    }
    let folders = match given.extract::<PathBuf>() {
        Ok(folder) => vec![folder],
        Err(_) if given.is_instance_of::<PyString>() => return Err(wrong_type()),
        Err(_) => {
            let folders = given.try_iter().map_err(|_| wrong_type())?;
            folders.map(|folder| folder?.extract().map_err(|_| wrong_type())).collect::<PyResult<_>>()?
        }
    };
    if folders.iter().any(|folder| folder.as_os_str().is_empty()) {
        let message = "allow_paths is '', must be a folder; \".\" is the current one";
        return Err(to_python(given.py(), &Error::new(ErrorKind::Config, message)));
    }
    Ok(if folders.is_empty() { AllowPaths::BelowShard } else { AllowPaths::Below(folders) })
}

fn wrong_type() -> PyErr {
    PyTypeError::new_err(
        "allow_paths must be None, True, a folder (str or os.PathLike) or a sequence of folders",
    )
}

/// The same for Python.
pub fn to_object<'py>(py: Python<'py>, allowed: &AllowPaths) -> PyResult<Bound<'py, PyAny>> {
    Ok(match allowed {
        AllowPaths::BelowShard => py.None().into_bound(py),
        AllowPaths::Any => PyBool::new(py, true).to_owned().into_any(),
        AllowPaths::Below(folders) => {
            let folders: Vec<_> = folders.iter().map(|folder| folder.as_os_str()).collect();
            folders.into_pyobject(py)?
        }
    })
}
