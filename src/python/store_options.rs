//! The values of `storage_options`: a dict of names and texts, of which no value is ever quoted.

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyDict, PyString},
};

use super::arguments::{Argument, ArgumentError, ends_program, mapping_items};
use crate::storage::{GivenOption, StoreOptions};

impl Argument for StoreOptions {
    const EXPECTED: &'static str = "a dict of str and str";

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        // A value of the wrong type may be a secret, too: the usual error would quote it.
        let wrong = |what: &str, given: &Bound<'_, PyAny>| {
            let class = given.get_type();
            let class = class.name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
            let accepted = Self::accepted();
            PyTypeError::new_err(format!(
                "{name} {what} of type {class}, must be {}; {accepted}",
                Self::EXPECTED
            ))
        };
        let mut options = Vec::new();
        // A mapping of another kind than dict may have anything here.
        let odd = |cause: PyErr| {
            if ends_program(given.py(), &cause) {
                return cause;
            }
            let error = wrong("has items that are no names and values, and is", given);
            error.set_cause(given.py(), Some(cause));
            error
        };
        for [key, value] in mapping_items(given).map_err(odd)?.ok_or_else(|| wrong("is", given))? {
            let key = key.cast::<PyString>().map_err(|_| wrong("has a name", &key))?;
            let text = |value: &Bound<'_, PyString>| value.to_cow().map(|text| text.into_owned());
            let option = match () {
                () if value.is_none() => GivenOption::Withheld,
                () if let Ok(flag) = value.cast::<PyBool>() => GivenOption::Flag(flag.is_true()),
                () if let Some(text) = value.cast::<PyString>().ok().and_then(|value| text(value).ok()) => {
                    GivenOption::Text(text)
                }
                () => GivenOption::Other,
            };
            options.push((key.to_string_lossy().into_owned(), option));
        }
        Ok(Self::new(options).unwrap_or_else(|found| {
            problems.extend(found.into_iter().map(|problem| format!("{name} {problem}")));
            Self::default()
        }))
    }

    /// With None in place of secrets: a pickle has none.
    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.is_empty() {
            return Ok(py.None().into_bound(py));
        }
        let dict = PyDict::new(py);
        for (name, value, is_flag) in self.shown() {
            match value {
                Some(value) if is_flag => dict.set_item(name, value == "true")?,
                value => dict.set_item(name, value)?,
            }
        }
        Ok(dict.into_any())
    }
}
