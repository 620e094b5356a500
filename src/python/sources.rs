//! The values of `arrow_files` and `weights`: one source, or several with names.

use std::{path::PathBuf, sync::Arc};

use numpy::{PyArray1, PyArrayMethods};
use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyDict, PyList, PyTuple},
};

use super::{
    arguments::{Argument, ArgumentError, items, mapping_items, wrong_type},
    errors::to_python,
    manifest,
    paths::{Holds, path_to_python, paths},
};
use crate::{
    Error, ErrorKind,
    config::{FilePart, Opaque, Ordered, Origin, Sources, Weights},
};

impl Argument for Sources {
    const EXPECTED: &'static str = "a path (str or os.PathLike), a sequence of paths, a forebay.Manifest or a datasets.Dataset, or a dict of these by source";

    fn read(name: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        refuse_splits(name, given)?;
        let Some(items) = mapping_items(given)? else {
            let SourceFiles { group, n_rows, order, rate } = files(name, given)?;
            return Ok(Self {
                names: None,
                groups: vec![group],
                n_rows: vec![n_rows],
                orders: vec![order],
                rates: vec![rate],
            });
        };
        let mut found = Self { names: Some(Vec::new()), ..Self::default() };
        for [source, files] in items {
            found.names.get_or_insert_default().push(source_name(name, &source)?);
            let SourceFiles { group, n_rows, order, rate } =
                self::files(&format!("{name}[{}]", source.repr()?), &files)?;
            found.groups.push(group);
            found.n_rows.push(n_rows);
            found.orders.push(order);
            found.rates.push(rate);
        }
        Ok(found)
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let group = |at: usize, group: &[Origin]| {
            if let Some(Ordered { object, .. }) = self.orders.get(at).and_then(Option::as_ref) {
                return object.to_python(py);
            }
            let origins = group.iter().map(|origin| match origin {
                Origin::Path(path) => path_to_python(py, path),
                Origin::Manifest(_, object) => object.to_python(py),
            });
            Ok(PyList::new(py, origins.collect::<PyResult<Vec<_>>>()?)?.into_any())
        };
        let Some(names) = &self.names else { return group(0, &self.groups.concat()) };
        let dict = PyDict::new(py);
        for (at, (name, origins)) in names.iter().zip(&self.groups).enumerate() {
            dict.set_item(name, group(at, origins)?)?;
        }
        Ok(dict.into_any())
    }
}

impl Argument for Weights {
    const EXPECTED: &'static str =
        "a dict of names and numbers, or a list of (batch, dict) with the batch from which each dict holds";

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if let Some(by_source) = mapping_items(given)? {
            return Ok(Self(vec![(0, by_name(name, by_source)?)]));
        }
        let mut stages = Vec::new();
        for stage in items(given)?.ok_or(ArgumentError::Type)? {
            let [from, weights] = pair(&stage?)?.ok_or(ArgumentError::Type)?;
            let from = i64::read(name, &from, problems)?;
            stages.push((from, by_name(name, mapping_items(&weights)?.ok_or(ArgumentError::Type)?)?));
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
pub fn pair<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<[Bound<'py, PyAny>; 2]>> {
    let each: Option<Vec<_>> = items(object)?.map(Iterator::collect).transpose()?;
    Ok(each.and_then(|each| each.try_into().ok()))
}

/// The name of a source, in the value of the parameter `parameter`.
pub fn source_name(parameter: &str, source: &Bound<'_, PyAny>) -> PyResult<String> {
    source.extract().map_err(|_| wrong_type(&format!("a source in {parameter}"), source, "a str"))
}

/// A dict of names and numbers.
fn by_name(
    parameter: &str,
    weights: Vec<[Bound<'_, PyAny>; 2]>,
) -> Result<Vec<(String, f64)>, ArgumentError> {
    let mut found = Vec::new();
    for [source, weight] in weights {
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

/// The error of a source that cannot be read; it is called what the user gave.
fn refused(name: &str, given: &Bound<'_, PyAny>, what: &str) -> PyErr {
    let class = given.get_type();
    let class = class.name().map_or_else(|_| "object".to_owned(), |class| class.to_string());
    to_python(given.py(), &Error::new(ErrorKind::Config, format!("the {class} ({name}) {what}")))
}

/// Raises for a `DatasetDict`, whose splits are no sources to mix.
pub fn refuse_splits(name: &str, given: &Bound<'_, PyAny>) -> PyResult<()> {
    if !is_hub("DatasetDict", given)? && !is_hub("IterableDatasetDict", given)? {
        return Ok(());
    }
    let splits: Vec<String> =
        given.call_method0("keys")?.try_iter()?.map(|key| key?.extract()).collect::<PyResult<_>>()?;
    let first = splits.first().map_or("train", |split| split);
    let what = format!("has the splits {}; pass one of them, as in splits[{first:?}]", splits.join(", "));
    Err(refused(name, given, &what))
}

#[derive(Default)]
struct SourceFiles {
    group: Vec<Origin>,
    /// Set for a `datasets.Dataset` with all rows of its files.
    n_rows: Option<u64>,
    /// The rows of any other `datasets.Dataset`.
    order: Option<Ordered>,
    /// Its rate of recordings, hertz, as `cast_column` sets it.
    rate: Option<u32>,
}

/// The files of one source; of a `datasets.Dataset` also its rows.
fn files(name: &str, given: &Bound<'_, PyAny>) -> PyResult<SourceFiles> {
    let refused = |what: &str| Err(refused(name, given, what));
    if let Some(manifest) = manifest::of(given)? {
        return Ok(SourceFiles { group: vec![manifest], ..SourceFiles::default() });
    }
    if is_hub("IterableDataset", given)? {
        return refused("has no rows on disk; pass the paths of its Arrow or Parquet files");
    }
    if !is_hub("Dataset", given)? {
        return Ok(SourceFiles { group: origins(name, given)?, ..SourceFiles::default() });
    }
    // How the table was made from the files: of the steps, these change no value that the loader reads.
    let (mut files, mut parts, mut is_whole) = (Vec::<PathBuf>::new(), Vec::new(), true);
    let table = given.getattr("data")?;
    let rows_of_blocks: Vec<Vec<Bound<'_, PyAny>>> = match table.hasattr("blocks")? {
        true => table.getattr("blocks")?.extract()?,
        false => vec![vec![table]],
    };
    for blocks in &rows_of_blocks {
        let [block] = &blocks[..] else {
            return refused(
                "has columns of several tables; save it with save_to_disk(folder) and pass the folder",
            );
        };
        if !block.hasattr("path")? || !block.hasattr("replays")? {
            return refused("is in memory; save it with save_to_disk(folder) and pass the folder");
        }
        let mut start = 0u64;
        for replay in block.getattr("replays")?.try_iter()? {
            let replay = replay?;
            let step: String = replay.get_item(0)?.extract()?;
            if step == "slice" {
                is_whole = false;
                let offset = match replay.get_item(1)?.get_item(0) {
                    Ok(offset) => Some(offset),
                    Err(_) => replay.get_item(2)?.get_item("offset").ok(),
                };
                start = start.saturating_add(offset.map_or(Ok(0), |offset| offset.extract())?);
            } else if !["cast", "replace_schema_metadata"].contains(&&*step) {
                let what = format!(
                    "has columns that were changed ({step}), which its files do not have; save it with \
                     save_to_disk(folder) and pass the folder"
                );
                return refused(&what);
            }
        }
        let path: PathBuf = block.getattr("path")?.extract()?;
        let known = files.iter().position(|file| *file == path);
        is_whole &= known.is_none();
        let file = known.unwrap_or_else(|| {
            files.push(path);
            files.len() - 1
        });
        parts.push(FilePart { file, start, n_rows: block.getattr("num_rows")?.extract()? });
    }
    if given.getattr("format")?.get_item("type")?.extract::<Option<String>>()?.as_deref() == Some("custom") {
        return refused("has a transform, which the loader does not call; call reset_format() first");
    }
    let rows = row_numbers(given)?;
    let n_rows = parts.iter().map(|part| part.n_rows).sum();
    if given.len()? == 0 {
        return refused("has no rows, must have at least one");
    }
    let object = Opaque(Some(Arc::new(given.clone().unbind())));
    let is_plain = is_whole && rows.is_none();
    Ok(SourceFiles {
        group: files.into_iter().map(Origin::Path).collect(),
        n_rows: is_plain.then_some(n_rows),
        order: (!is_plain).then_some(Ordered { parts, rows, object }),
        rate: rate_of(given)?,
    })
}

/// The rate of the recordings of a `datasets.Dataset`: of the column `audio`, or of its only one.
fn rate_of(given: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    let mut found = Vec::new();
    for item in given.getattr("features")?.call_method0("items")?.try_iter()? {
        let (name, feature): (String, Bound<'_, PyAny>) = item?.extract()?;
        if feature.get_type().name()? == "Audio" {
            let rate: Option<u32> = feature.getattr("sampling_rate")?.extract()?;
            found.push((name, rate));
        }
    }
    let named = found.iter().find(|(name, _)| name == "audio");
    Ok(named.or(found.first().filter(|_| found.len() == 1)).and_then(|(_, rate)| *rate))
}

/// The index mapping of a `datasets.Dataset`, as `select`, `filter`, `shuffle`, `sort` and `train_test_split`
/// make one: a table whose only column has the row of the data for each row. That of a mapped Dataset names
/// rows of the data, too.
fn row_numbers(given: &Bound<'_, PyAny>) -> PyResult<Option<Arc<[u64]>>> {
    let indices = given.getattr("_indices")?;
    if indices.is_none() {
        return Ok(None);
    }
    let rows = indices.call_method1("column", (0,))?.call_method0("to_numpy")?;
    let rows = rows.call_method1("astype", ("uint64",))?;
    let rows = rows.cast::<PyArray1<u64>>()?.readonly();
    Ok(Some(rows.as_array().iter().copied().collect()))
}

/// The files of a source of texts; of a `datasets.Dataset` those whose rows it has, in order.
pub fn text_files(name: &str, given: &Bound<'_, PyAny>, expected: &str) -> PyResult<Vec<PathBuf>> {
    refuse_splits(name, given)?;
    if !is_hub("Dataset", given)? && !is_hub("IterableDataset", given)? {
        return paths(name, given, expected, Holds::Texts);
    }
    let SourceFiles { group, order, .. } = files(name, given)?;
    if order.is_some() {
        let what = "has other rows than its files, as after select, filter, shuffle or train_test_split; save it with \
                    save_to_disk(folder) and pass the folder";
        return Err(refused(name, given, what));
    }
    let paths = group.into_iter().filter_map(|origin| match origin {
        Origin::Path(path) => Some(path),
        Origin::Manifest(..) => None,
    });
    Ok(paths.collect())
}

fn origins(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<Origin>> {
    let items: Vec<Bound<'_, PyAny>> =
        match given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
            true => given.try_iter()?.collect::<PyResult<_>>()?,
            false => Vec::new(),
        };
    let tables = items.iter().map(manifest::of).collect::<PyResult<Vec<_>>>()?;
    if tables.iter().all(Option::is_none) {
        let paths = paths(name, given, Sources::EXPECTED, Holds::Recordings)?;
        return Ok(paths.into_iter().map(Origin::Path).collect());
    }
    let mut origins = Vec::new();
    for (at, (item, table)) in items.iter().zip(tables).enumerate() {
        match table {
            Some(table) => origins.push(table),
            None => {
                let name = format!("{name}[{at}]");
                let paths = paths(&name, item, Sources::EXPECTED, Holds::Recordings)?;
                origins.extend(paths.into_iter().map(Origin::Path));
            }
        }
    }
    Ok(origins)
}
