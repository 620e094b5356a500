//! The object `forebay.Manifest`, checked: from the values of its fields to a [`Manifest`].

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use pyo3::{
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple},
};

use super::{
    arguments::{plan, wrong_type},
    ending::detach,
    errors::to_python,
    recipe_fields::RecipeFields,
};
use crate::{
    Result,
    config::{Opaque, Origin},
    source::files::{GivenRows, GivenValue, Manifest, RowSource, Unit},
};

#[pyclass(module = "forebay._core", name = "_Manifest", frozen)]
pub struct PyManifest(Arc<Manifest>);

#[pymethods]
impl PyManifest {
    /// Checks the fields; rows are a dict of columns.
    #[new]
    fn new(fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        let py = fields.py();
        let mut given = RecipeFields::new(fields.clone());
        let table = given.value("table")?;
        let rows = match table.cast::<PyDict>() {
            Ok(columns) => {
                let columns = columns.iter().map(|(name, values)| column(&name, &values));
                let columns = columns.collect::<PyResult<Vec<_>>>()?;
                let rows: Result<_> = detach(py, || GivenRows::new(columns));
                RowSource::Given(Arc::new(rows.map_err(|error| to_python(py, &error))?))
            }
            Err(_) => RowSource::File(given.get::<PathBuf>("table")?),
        };
        let manifest = Manifest {
            root: given.get("root")?,
            path_column: given.get("path_column")?,
            start: given.get::<Option<String>>("start")?.into(),
            end: given.get::<Option<String>>("end")?.into(),
            unit: [Unit::Seconds, Unit::Samples][given.one_of("unit", &["seconds", "samples"])?],
            columns: given.get("columns")?,
            rows,
        };
        match &manifest.rows {
            RowSource::File(path) if path.as_os_str().is_empty() => {
                given.problems.push("table is '', must be the path of a table".to_owned());
            }
            RowSource::Given(_) if manifest.columns.is_some() => {
                given
                    .problems
                    .push("columns names those of a file without a header, and rows are given".to_owned());
            }
            RowSource::Given(rows) if rows.is_empty() => {
                given.problems.push("table has no rows, must have at least one".to_owned());
            }
            _ => {}
        }
        if manifest.columns.as_ref().is_some_and(Vec::is_empty) {
            given.problems.push("columns is empty, must name each column".to_owned());
        }
        if manifest.path_column.as_deref() == Some("") {
            given.problems.push("path_column is '', must be the name of a column".to_owned());
        }
        given.check()?;
        Ok(Self(Arc::new(manifest)))
    }
}

fn column(name: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<(String, Vec<GivenValue>)> {
    let name: String = name.extract().map_err(|_| wrong_type("the name of a column", name, "a str"))?;
    let mut found = Vec::new();
    for (row, one) in values.try_iter()?.enumerate() {
        let one = one?;
        let given = value(&one)?;
        found.push(given.ok_or_else(|| {
            let what = format!("column {name:?} in row {row}");
            wrong_type(&what, &one, "None, a bool, an int, a float, a str, a path, or a list of these")
        })?);
    }
    Ok((name, found))
}

fn value(given: &Bound<'_, PyAny>) -> PyResult<Option<GivenValue>> {
    Ok(Some(if given.is_none() {
        GivenValue::Null
    } else if given.is_instance_of::<PyString>() {
        // A path of bytes that are no text is a str, too.
        match given.extract::<String>() {
            Ok(text) => GivenValue::Text(text.into_bytes()),
            Err(_) => GivenValue::Text(given.extract::<OsString>()?.into_encoded_bytes()),
        }
    } else if given.is_instance_of::<PyBool>() {
        GivenValue::Bool(given.extract()?)
    } else if given.is_instance_of::<PyInt>() {
        match given.extract() {
            Ok(number) => GivenValue::Int(number),
            Err(_) => return Ok(None),
        }
    } else if given.is_instance_of::<PyFloat>() {
        GivenValue::Float(given.extract()?)
    } else if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        let mut items = Vec::new();
        for item in given.try_iter()? {
            match value(&item?)? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        GivenValue::List(items)
    } else {
        return Ok(None);
    }))
}

/// The table, if this is one.
pub fn of(given: &Bound<'_, PyAny>) -> PyResult<Option<Origin>> {
    let Some(plan) = plan::<PyManifest>(given)? else { return Ok(None) };
    let object = Opaque(Some(Arc::new(given.clone().unbind())));
    Ok(Some(Origin::Manifest(plan.get().0.clone(), object)))
}
