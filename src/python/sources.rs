//! The values of `arrow_files` and `weights`: one source, or several with names.

use std::path::PathBuf;

use pyo3::{
    IntoPyObjectExt,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyByteArray, PyBytes, PyDict, PyFrozenSet, PyMapping, PySet},
};

use super::arguments::{Argument, Refused, wrong_type};
use crate::config::{Sources, Weights};

impl Argument for Sources {
    const EXPECTED: &'static str =
        "a path (str or os.PathLike) or a sequence of paths, or a dict of these by source";

    fn read(name: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, Refused> {
        let Ok(mapping) = given.cast::<PyMapping>() else {
            return Ok(Self { names: None, groups: vec![paths(name, given)?] });
        };
        let (mut names, mut groups) = (Vec::new(), Vec::new());
        for item in mapping.items()? {
            let (source, files): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            names.push(source_name(name, &source)?);
            groups.push(paths(&format!("{name}[{}]", source.repr()?), &files)?);
        }
        Ok(Self { names: Some(names), groups })
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Some(names) = &self.names else { return self.groups.concat().into_bound_py_any(py) };
        let dict = PyDict::new(py);
        names.iter().zip(&self.groups).try_for_each(|(name, group)| dict.set_item(name, group))?;
        Ok(dict.into_any())
    }
}

impl Argument for Weights {
    const EXPECTED: &'static str =
        "a dict of names and numbers, or a list of (batch, dict) with the batch from which each dict holds";

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, Refused> {
        if let Ok(by_source) = given.cast::<PyMapping>() {
            return Ok(Self(vec![(0, by_name(name, by_source)?)]));
        }
        let mut stages = Vec::new();
        for stage in given.try_iter().map_err(|_| Refused::Type)? {
            let [from, weights] = pair(&stage?).ok_or(Refused::Type)?;
            let from = i64::read(name, &from, problems)?;
            stages.push((from, by_name(name, weights.cast().map_err(|_| Refused::Type)?)?));
        }
        Ok(Self(stages))
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.0.is_empty() {
            return Ok(py.None().into_bound(py));
        }
        let stages = self.0.iter().map(|(from, weights)| {
            let dict = PyDict::new(py);
            weights.iter().try_for_each(|(name, weight)| dict.set_item(name, weight))?;
            Ok((*from, dict))
        });
        stages.collect::<PyResult<Vec<_>>>()?.into_bound_py_any(py)
    }
}

/// The two items of a tuple, or of the list that JSON makes of one.
pub fn pair<'py>(object: &Bound<'py, PyAny>) -> Option<[Bound<'py, PyAny>; 2]> {
    let items: Vec<_> = object.try_iter().ok()?.collect::<PyResult<_>>().ok()?;
    items.try_into().ok()
}

/// The name of a source, in the value of the parameter `parameter`.
fn source_name(parameter: &str, source: &Bound<'_, PyAny>) -> PyResult<String> {
    source.extract().map_err(|_| wrong_type(&format!("a source in {parameter}"), source, "a str"))
}

/// A dict of names and numbers.
fn by_name(parameter: &str, weights: &Bound<'_, PyMapping>) -> Result<Vec<(String, f64)>, Refused> {
    let mut found = Vec::new();
    for item in weights.items()? {
        let (source, weight): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        let name = format!("{parameter}[{}]", source.repr()?);
        let number = f64::read(&name, &weight, &mut Vec::new());
        let weight = number.map_err(|refused| refused.raised(&name, &weight, f64::EXPECTED))?;
        found.push((source_name(parameter, &source)?, weight));
    }
    Ok(found)
}

/// One path, or a sequence of paths; `name` is the parameter.
fn paths(name: &str, files: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    if let Ok(path) = files.extract() {
        return Ok(vec![path]);
    }
    let wrong = |name: &str, found: &Bound<'_, PyAny>| wrong_type(name, found, Sources::EXPECTED);
    if files.is_instance_of::<PyBytes>() || files.is_instance_of::<PyByteArray>() {
        return Err(wrong(name, files));
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
    let each = files.try_iter().map_err(|_| wrong(name, files))?;
    each.enumerate()
        .map(|(at, path)| {
            let path = path?;
            path.extract().map_err(|_| wrong(&format!("{name}[{at}]"), &path))
        })
        .collect()
}
