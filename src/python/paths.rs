//! Arguments that are paths.

use std::path::{Path, PathBuf};

use pyo3::{
    IntoPyObjectExt,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyByteArray, PyBytes, PyDict, PyFrozenSet, PySet, PyString},
};

use super::arguments::{Argument, ArgumentError, items, path, wrong_type};

impl Argument for PathBuf {
    const EXPECTED: &'static str = "a path (str or os.PathLike)";

    fn read(_: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        path(given)?.ok_or(ArgumentError::Type)
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        path_to_python(py, self)
    }
}

impl Argument for Vec<PathBuf> {
    const EXPECTED: &'static str = "a path or a sequence of paths";

    fn read(name: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        Ok(paths(name, given, Self::EXPECTED, Holds::Recordings)?)
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let paths = self.iter().map(|path| path_to_python(py, path));
        paths.collect::<PyResult<Vec<_>>>()?.into_bound_py_any(py)
    }
}

/// The path as an argument: a URL as text, since pathlib makes one slash of two.
pub fn path_to_python<'py>(py: Python<'py>, path: &Path) -> PyResult<Bound<'py, PyAny>> {
    match crate::storage::urls::is_url(path) {
        true => path.as_os_str().into_bound_py_any(py),
        false => path.into_bound_py_any(py),
    }
}

/// What files hold, for the advice about other objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    Recordings,
    Texts,
}

/// One path, or a sequence of paths; `name` is the parameter.
pub fn paths(name: &str, files: &Bound<'_, PyAny>, expected: &str, holds: Holds) -> PyResult<Vec<PathBuf>> {
    if let Some(one) = path(files)? {
        refuse_text(name, files, &one)?;
        return Ok(vec![one]);
    }
    let wrong = || wrong_type(name, files, expected);
    if files.is_instance_of::<PyBytes>() || files.is_instance_of::<PyByteArray>() {
        return Err(wrong());
    }
    if files.is_instance_of::<PySet>() || files.is_instance_of::<PyFrozenSet>() {
        return Err(PyTypeError::new_err(format!(
            "{name} is a set, whose order differs from run to run, so batches would differ too; pass sorted({name})"
        )));
    }
    // An iterator as from Path.glob() or os.scandir(), which has the order in which the system lists a
    // folder.
    if files.hasattr("__next__")? {
        return Err(PyTypeError::new_err(format!(
            "{name} is a {}, whose order may differ between machines (as for Path.glob() and os.scandir()), so batches would differ \
             too; pass sorted({name}), or list({name}) if the order is fixed",
            files.get_type().name()?
        )));
    }
    // A dict would yield its keys.
    if files.is_instance_of::<PyDict>() {
        return Err(PyTypeError::new_err(format!(
            "{name} is a dict, must be files; pass a path or a list of paths"
        )));
    }
    if holds == Holds::Texts && (files.hasattr("to_parquet")? || files.hasattr("write_parquet")?) {
        let method = if files.hasattr("to_parquet")? { "to_parquet" } else { "write_parquet" };
        return Err(PyTypeError::new_err(format!(
            "{name} is a {}, must be files; write it with its method {method}(path), and pass the path",
            files.get_type().name()?
        )));
    }
    // A data frame would yield the names of its columns.
    if files.hasattr("to_dict")? {
        return Err(PyTypeError::new_err(format!(
            "the {} ({name}) is no list of files; forebay.Manifest(frame, root=...) makes a source of a frame whose rows \
             name recordings",
            files.get_type().name()?
        )));
    }
    let each = items(files)?.ok_or_else(wrong)?;
    each.enumerate()
        .map(|(at, one)| {
            let (one, name) = (one?, format!("{name}[{at}]"));
            let Some(found) = path(&one)? else {
                let advice = advice(&one, holds)?;
                return Err(wrong_type(&name, &one, &format!("a path (str or os.PathLike){advice}")));
            };
            refuse_text(&name, &one, &found)?;
            Ok(found)
        })
        .collect()
}

/// What to do with a source that is in a list of paths.
fn advice(item: &Bound<'_, PyAny>, holds: Holds) -> PyResult<&'static str> {
    Ok(match () {
        () if item.is_instance(&item.py().import("forebay._part")?.getattr("_Part")?)? => {
            "; give each source a name in a dict, as in {\"web\": ..., \"code\": ...}, mixed by weights="
        }
        () if holds == Holds::Texts && !item.hasattr("save_to_disk")? => "",
        () if item.is_instance_of::<PyDict>() => {
            "; forebay.Manifest(rows, root=...) makes a source of dicts that name recordings"
        }
        () if item.hasattr("save_to_disk")? => {
            "; a Dataset is a source by itself: join several with datasets.concatenate_datasets, or give each a name in a dict, \
             mixed by weights="
        }
        () if item.hasattr("to_dict")? => {
            "; forebay.Manifest(frame, root=...) makes a source of a frame whose rows name recordings"
        }
        () => "",
    })
}

/// The most bytes of a name in a file system.
const LONGEST_NAME: usize = 255;

/// Raises for a text in place of a path: one with a line break, or with a name that no file system allows.
fn refuse_text(name: &str, given: &Bound<'_, PyAny>, path: &Path) -> PyResult<()> {
    // A path object is no text.
    let is_text = given.is_instance_of::<PyString>() && path.as_os_str().as_encoded_bytes().contains(&b'\n')
        || !crate::storage::urls::is_url(path) && path.iter().any(|part| part.len() > LONGEST_NAME);
    if !is_text {
        return Ok(());
    }
    let expected = "a path; for texts in memory write a Parquet file (pyarrow.parquet.write_table), or use \
                    forebay.cache.ListAsyncDataset of their ids";
    Err(wrong_type(name, given, expected))
}
