//! The values of `allow_paths`: None, True, one folder, or several.

use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyBool, PyString},
};

use super::arguments::{Argument, ArgumentError, items, path};
use crate::source::AllowPaths;

impl Argument for AllowPaths {
    const EXPECTED: &'static str = "True, a folder (str or os.PathLike), a sequence of folders";

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if let Ok(any) = given.cast::<PyBool>() {
            return Ok(if any.is_true() { Self::Any } else { Self::BelowShard });
        }
        let folders = match path(given)? {
            Some(folder) => vec![folder],
            None if given.is_instance_of::<PyString>() => return Err(ArgumentError::Type),
            None => {
                let folders = items(given)?.ok_or(ArgumentError::Type)?;
                folders.map(|one| path(&one?)?.ok_or(ArgumentError::Type)).collect::<Result<_, _>>()?
            }
        };
        if folders.iter().any(|folder| folder.as_os_str().is_empty()) {
            problems.push(format!("{name} is '', must be a folder; \".\" is the current one"));
        }
        Ok(if folders.is_empty() { Self::BelowShard } else { Self::Below(folders) })
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::BelowShard => Ok(py.None().into_bound(py)),
            Self::Any => true.into_bound_py_any(py),
            Self::Below(folders) => {
                let folders: Vec<_> = folders.iter().map(|folder| folder.as_os_str()).collect();
                folders.into_bound_py_any(py)
            }
        }
    }
}
