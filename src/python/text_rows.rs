//! The objects of `forebay.text`, and the files of a loader of documents.

use std::path::PathBuf;

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};

use super::{
    arguments::{Argument, ArgumentError, mapping_items, plan},
    paths::paths,
    recipe_fields::RecipeFields,
    sources::source_name,
};
use crate::{
    config::{TextRows, TextSources},
    source::TextContent,
};

/// The description of the rows of files.
#[pyclass(module = "forebay._core", name = "_TextRows", frozen)]
pub struct PyTextRows(TextRows);

#[pymethods]
impl PyTextRows {
    /// Checks the fields of class `kind`.
    #[new]
    fn new(kind: &str, fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        let content = match kind {
            "Documents" => TextContent::Texts,
            "Ids" => TextContent::Ids,
            other => return Err(PyTypeError::new_err(format!("{other} names no rows of text"))),
        };
        let mut given = RecipeFields::new(fields.clone());
        let paths = paths("path", &given.value("path")?, Vec::<PathBuf>::EXPECTED)?;
        let column: String = given.get("column")?;
        if column.is_empty() {
            given.problems.push("column is \"\", must be the name of a column".to_owned());
        }
        given.check()?;
        Ok(Self(TextRows { paths, column: Some(column), content }))
    }
}

impl Argument for TextRows {
    const EXPECTED: &'static str = "a path, a sequence of paths, or an object of forebay.text";

    fn read(name: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if let Some(rows) = plan::<PyTextRows>(given)? {
            return Ok(rows.get().0.clone());
        }
        Ok(Self { paths: paths(name, given, Self::EXPECTED)?, ..Self::default() })
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let paths = self.paths.to_python(py)?;
        match &self.column {
            None => Ok(paths),
            Some(column) => {
                let class = match self.content {
                    TextContent::Texts => "Documents",
                    TextContent::Ids => "Ids",
                };
                py.import("forebay.text")?.getattr(class)?.call1((paths, column))
            }
        }
    }
}

impl Argument for TextSources {
    const EXPECTED: &'static str =
        "a path, a sequence of paths, or an object of forebay.text, or a dict of these by source";

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        let Some(items) = mapping_items(given)? else {
            return Ok(Self { names: None, rows: vec![TextRows::read(name, given, problems)?] });
        };
        let (mut names, mut rows) = (Vec::new(), Vec::new());
        for [source, files] in items {
            names.push(source_name(name, &source)?);
            rows.push(TextRows::read(&format!("{name}[{}]", source.repr()?), &files, problems)?);
        }
        Ok(Self { names: Some(names), rows })
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Some(names) = &self.names else { return self.rows[0].to_python(py) };
        let dict = PyDict::new(py);
        for (name, rows) in names.iter().zip(&self.rows) {
            dict.set_item(name, rows.to_python(py)?)?;
        }
        Ok(dict.into_any())
    }
}
