//! The objects of `forebay.text`, and the files of a loader of documents.

use std::path::PathBuf;

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};

use super::{
    arguments::{Argument, ArgumentError, plan},
    paths::paths,
    recipe_fields::RecipeFields,
};
use crate::{config::TextRows, source::TextContent};

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
