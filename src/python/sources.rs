//! The values of `arrow_files` and `weights`: one source, or several with names.

use std::path::PathBuf;

use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyDict, PyList, PyMapping, PyTuple},
};

use super::{
    arguments::{Argument, Refused, wrong_type},
    errors::to_python,
    manifest,
    paths::{path_to_python, paths},
};
use crate::{
    Error, ErrorKind,
    config::{Origin, Sources, Weights},
};

impl Argument for Sources {
    const EXPECTED: &'static str = "a path (str or os.PathLike), a sequence of paths, a forebay.Manifest or a datasets.Dataset, or a dict of these by source";

    fn read(name: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, Refused> {
        refuse_splits(name, given)?;
        let Ok(mapping) = given.cast::<PyMapping>() else {
            let (group, n_rows) = files(name, given)?;
            return Ok(Self { names: None, groups: vec![group], n_rows: vec![n_rows] });
        };
        let mut found = Self { names: Some(Vec::new()), ..Self::default() };
        for item in mapping.items()? {
            let (source, files): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            found.names.get_or_insert_default().push(source_name(name, &source)?);
            let (group, n_rows) = self::files(&format!("{name}[{}]", source.repr()?), &files)?;
            found.groups.push(group);
            found.n_rows.push(n_rows);
        }
        Ok(found)
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let group = |group: &[Origin]| {
            let origins = group.iter().map(|origin| match origin {
                Origin::Path(path) => path_to_python(py, path),
                Origin::Manifest(_, object) => object.to_python(py),
            });
            PyList::new(py, origins.collect::<PyResult<Vec<_>>>()?)
        };
        let Some(names) = &self.names else { return Ok(group(&self.groups.concat())?.into_any()) };
        let dict = PyDict::new(py);
        for (name, origins) in names.iter().zip(&self.groups) {
            dict.set_item(name, group(origins)?)?;
        }
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

/// Whether this is an object of a class of the package `datasets`, which is not imported for that.
fn is_hub(class: &str, given: &Bound<'_, PyAny>) -> PyResult<bool> {
    let modules = given.py().import("sys")?.getattr("modules")?;
    match modules.get_item("datasets") {
        Ok(datasets) => given.is_instance(&datasets.getattr(class)?),
        Err(_) => Ok(false),
    }
}

fn refused(name: &str, given: &Bound<'_, PyAny>, what: &str) -> PyErr {
    to_python(given.py(), &Error::new(ErrorKind::Config, format!("{name} is {what}")))
}

/// Raises for a `DatasetDict`, whose splits are no sources to mix.
fn refuse_splits(name: &str, given: &Bound<'_, PyAny>) -> PyResult<()> {
    if !is_hub("DatasetDict", given)? && !is_hub("IterableDatasetDict", given)? {
        return Ok(());
    }
    let splits: Vec<String> =
        given.call_method0("keys")?.try_iter()?.map(|key| key?.extract()).collect::<PyResult<_>>()?;
    let first = splits.first().map_or("train", |split| split);
    let what = format!(
        "a DatasetDict with the splits {}; pass one of them, as in splits[{first:?}]",
        splits.join(", ")
    );
    Err(refused(name, given, &what))
}

/// The files of one source; of a `datasets.Dataset` also the number of its rows.
fn files(name: &str, given: &Bound<'_, PyAny>) -> PyResult<(Vec<Origin>, Option<u64>)> {
    let refused = |what: &str| Err(refused(name, given, what));
    if let Some(manifest) = manifest::of(given)? {
        return Ok((vec![manifest], None));
    }
    if is_hub("IterableDataset", given)? {
        return refused(
            "an IterableDataset, which has no rows on disk; pass the paths of its Arrow or Parquet files",
        );
    }
    if !is_hub("Dataset", given)? {
        return Ok((origins(name, given)?, None));
    }
    if !given.getattr("_indices")?.is_none() {
        return refused(
            "a Dataset with a list of row numbers (by select, filter, shuffle, sort or train_test_split); save it with \
             save_to_disk(folder) and pass the folder",
        );
    }
    // How the table was made from the files: of the steps, these change no value that the loader reads.
    let table = given.getattr("data")?;
    let rows_of_blocks: Vec<Vec<Bound<'_, PyAny>>> = match table.hasattr("blocks")? {
        true => table.getattr("blocks")?.extract()?,
        false => vec![vec![table]],
    };
    for blocks in &rows_of_blocks {
        let [block] = &blocks[..] else {
            return refused(
                "a Dataset with columns of several tables; save it with save_to_disk(folder) and pass the folder",
            );
        };
        let steps = match block.hasattr("replays")? {
            true => block.getattr("replays")?,
            false => continue, // in memory, which is refused below
        };
        for step in steps.try_iter()? {
            let step: String = step?.get_item(0)?.extract()?;
            if !["cast", "replace_schema_metadata", "slice"].contains(&&*step) {
                let what = format!(
                    "a Dataset whose columns were changed ({step}), which its files do not have; save it with \
                     save_to_disk(folder) and pass the folder"
                );
                return refused(&what);
            }
        }
    }
    if given.getattr("format")?.get_item("type")?.extract::<Option<String>>()?.as_deref() == Some("custom") {
        return refused(
            "a Dataset with a transform, which the loader does not call; call reset_format() first",
        );
    }
    let found = given.getattr("cache_files")?.try_iter()?;
    let files: Vec<PathBuf> =
        found.map(|file| file?.get_item("filename")?.extract()).collect::<PyResult<_>>()?;
    if files.is_empty() {
        return refused("a Dataset in memory; save it with save_to_disk(folder) and pass the folder");
    }
    Ok((files.into_iter().map(Origin::Path).collect(), Some(given.len()? as u64)))
}

/// Paths, and tables among them.
fn origins(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<Origin>> {
    let items: Vec<Bound<'_, PyAny>> =
        match given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
            true => given.try_iter()?.collect::<PyResult<_>>()?,
            false => Vec::new(),
        };
    let tables = items.iter().map(manifest::of).collect::<PyResult<Vec<_>>>()?;
    if tables.iter().all(Option::is_none) {
        return Ok(paths(name, given, Sources::EXPECTED)?.into_iter().map(Origin::Path).collect());
    }
    let mut origins = Vec::new();
    for (at, (item, table)) in items.iter().zip(tables).enumerate() {
        match table {
            Some(table) => origins.push(table),
            None => origins.extend(
                paths(&format!("{name}[{at}]"), item, Sources::EXPECTED)?.into_iter().map(Origin::Path),
            ),
        }
    }
    Ok(origins)
}
