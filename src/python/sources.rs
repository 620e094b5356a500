//! The values of `arrow_files` and `weights`: one source, or several by name.

use std::path::PathBuf;

use pyo3::{
    IntoPyObjectExt,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyByteArray, PyBytes, PyDict, PyFrozenSet, PyMapping, PySet},
};

use super::{
    errors::to_python,
    extract::{int64, named},
};
use crate::{Error, ErrorKind, config::MixtureConfig};

/// Groups of files; with names if they are to be mixed.
pub struct Sources {
    /// In the order given.
    pub names: Option<Vec<String>>,
    /// One for each source.
    pub groups: Vec<Vec<PathBuf>>,
}

/// Weights of the sources, from which batch on.
pub type Stages = Vec<(i64, Vec<f64>)>;

impl Sources {
    /// A path, a sequence of paths, or a dict of either.
    pub fn extract(files: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Ok(mapping) = files.cast::<PyMapping>() else {
            return Ok(Self { names: None, groups: vec![paths("arrow_files", files)?] });
        };
        let (mut names, mut groups) = (Vec::new(), Vec::new());
        for item in mapping.items()? {
            let (name, files): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            names.push(named(files.py(), "arrow_files", name.extract())?);
            groups.push(paths(&format!("arrow_files[{}]", name.repr()?), &files)?);
        }
        Ok(Self { names: Some(names), groups })
    }

    /// Weights by name, or pairs of a batch and weights by name; without weights, the sizes of the sources.
    pub fn stages(&self, weights: Option<&Bound<'_, PyAny>>) -> PyResult<Stages> {
        let Some(weights) = weights else { return Ok(Vec::new()) };
        let Some(names) = &self.names else {
            return Err(PyTypeError::new_err(
                "weights need sources to weigh: give arrow_files as a dict of names and files",
            ));
        };
        if let Ok(by_source) = weights.cast::<PyMapping>() {
            return Ok(vec![(0, by_name(names, by_source)?)]);
        }
        let expected = || {
            PyTypeError::new_err(
                "weights must be a dict of names and numbers, or a list of (batch, dict) with the batch from which each holds",
            )
        };
        let stages = weights.try_iter().map_err(|_| expected())?;
        stages
            .map(|stage| {
                let [from, weights] = pair(&stage?).ok_or_else(expected)?;
                Ok((
                    named(from.py(), "weights", int64(&from))?,
                    by_name(names, weights.cast().map_err(|_| expected())?)?,
                ))
            })
            .collect()
    }
}

impl Sources {
    /// Adds the arguments `arrow_files`, `weights` and the others of a mixture.
    pub fn add_to(&self, keywords: &Bound<'_, PyDict>, mixture: Option<&MixtureConfig>) -> PyResult<()> {
        let py = keywords.py();
        let (Some(names), Some(MixtureConfig { stages, block, stop })) = (&self.names, mixture) else {
            return keywords.set_item("arrow_files", self.groups.concat());
        };
        let named = |values: Vec<Bound<'_, PyAny>>| -> PyResult<_> {
            let dict = PyDict::new(py);
            names.iter().zip(values).try_for_each(|(name, value)| dict.set_item(name, value))?;
            Ok(dict)
        };
        let groups: PyResult<_> = self.groups.iter().map(|group| group.into_bound_py_any(py)).collect();
        keywords.set_item("arrow_files", named(groups?)?)?;
        let stages = stages.iter().map(|(from, weights)| {
            let weights: PyResult<_> = weights.iter().map(|weight| weight.into_bound_py_any(py)).collect();
            Ok((*from, named(weights?)?))
        });
        let stages = stages.collect::<PyResult<Vec<_>>>()?;
        keywords.set_item("weights", (!stages.is_empty()).then_some(stages))?;
        keywords.set_item("mixture_block", block)?;
        keywords.set_item("stop", stop)
    }
}

/// The two items of a tuple, or of the list that JSON makes of one.
pub fn pair<'py>(object: &Bound<'py, PyAny>) -> Option<[Bound<'py, PyAny>; 2]> {
    let items: Vec<_> = object.try_iter().ok()?.collect::<PyResult<_>>().ok()?;
    items.try_into().ok()
}

fn by_name(names: &[String], weights: &Bound<'_, PyMapping>) -> PyResult<Vec<f64>> {
    let refused = |message| to_python(weights.py(), &Error::new(ErrorKind::Config, message));
    if let Some(stranger) =
        weights.keys()?.iter().find(|key| !names.iter().any(|name| key.eq(name).unwrap_or(false)))
    {
        return Err(refused(format!(
            "weights name {}, which is no source; the sources are {}",
            stranger.repr()?,
            names.join(", ")
        )));
    }
    names
        .iter()
        .map(|name| {
            if weights.contains(name)? {
                return named(weights.py(), "weights", weights.get_item(name)?.extract());
            }
            Err(refused(format!("weights lack the source {name:?}; give 0 to leave it out")))
        })
        .collect()
}

/// One path, or a sequence of paths; `name` is the parameter.
fn paths(name: &str, files: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    if let Ok(path) = files.extract() {
        return Ok(vec![path]);
    }
    let wrong = |name: &str, found: &Bound<'_, PyAny>| {
        let found = found.get_type();
        let expected =
            "must be a path (str or os.PathLike) or a sequence of paths, or a dict of them by source";
        PyTypeError::new_err(match found.name() {
            Ok(found) => format!("{name} {expected}, not {found}"),
            Err(_) => format!("{name} {expected}, not {found}"),
        })
    };
    if files.is_instance_of::<PyBytes>() || files.is_instance_of::<PyByteArray>() {
        return Err(wrong(name, files));
    }
    if files.is_instance_of::<PySet>() || files.is_instance_of::<PyFrozenSet>() {
        return Err(PyTypeError::new_err(format!(
            "{name} is a set, whose order differs from run to run, and batches with it; pass sorted({name})"
        )));
    }
    // An iterator as from Path.glob() or os.scandir(), whose order is that in which the system lists a
    // folder.
    if files.hasattr("__next__")? {
        return Err(PyTypeError::new_err(format!(
            "{name} is a {}, whose order may differ between machines (that of Path.glob() and os.scandir() does), and batches with \
             it; pass sorted({name}), or list({name}) if the order is fixed",
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
