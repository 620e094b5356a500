//! The fields of an object of a recipe, as its dataclass in Python has them.

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyString},
};

use super::{
    arguments::{Argument, named},
    errors::to_python,
};
use crate::{Error, ErrorKind, error::shown};

/// The values of the fields of an object, and what is wrong with them.
pub struct RecipeFields<'py> {
    fields: Bound<'py, PyDict>,
    /// A message for each value out of range.
    pub problems: Vec<String>,
}

impl<'py> RecipeFields<'py> {
    pub fn new(fields: Bound<'py, PyDict>) -> Self {
        Self { fields, problems: Vec::new() }
    }

    pub fn value(&self, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let found = self.fields.get_item(name)?;
        found.ok_or_else(|| PyTypeError::new_err(format!("{name} is missing")))
    }

    /// The value of a field as a type.
    pub fn get<T: Argument>(&self, name: &str) -> PyResult<T> {
        named(name, &self.value(name)?)
    }

    pub fn has(&self, name: &str) -> PyResult<bool> {
        self.fields.contains(name)
    }

    pub fn py(&self) -> Python<'py> {
        self.fields.py()
    }

    /// Raises one error for all problems.
    pub fn check(&self) -> PyResult<()> {
        if self.problems.is_empty() {
            return Ok(());
        }
        let error = Error::new(ErrorKind::Config, self.problems.join("; "));
        Err(to_python(self.fields.py(), &error))
    }

    /// A number from 1 to `most`, or None; a value out of range is reported and replaced by 1.
    pub fn count(&mut self, name: &str, most: i64) -> PyResult<Option<usize>> {
        let Some(value) = self.get::<Option<i64>>(name)? else { return Ok(None) };
        if !(1..=most).contains(&value) {
            self.problems.push(format!("{name} is {}, must be 1 to {most}", shown(value)));
            return Ok(Some(1));
        }
        Ok(Some(value as usize))
    }

    /// A number from 1 to `most`; as [`Self::count`].
    pub fn number(&mut self, name: &str, most: i64) -> PyResult<usize> {
        let _: i64 = self.get(name)?; // not None
        Ok(self.count(name, most)?.unwrap_or(1))
    }

    pub fn float(&mut self, name: &str) -> PyResult<f32> {
        let value = self.get(name)?;
        Ok(self.rounded(name, value))
    }

    /// A number as float32, or None.
    pub fn optional(&mut self, name: &str) -> PyResult<Option<f32>> {
        let value = self.get::<Option<f64>>(name)?;
        Ok(value.map(|value| self.rounded(name, value)))
    }

    /// A number as float32; one that would become infinite or 0 is reported and replaced by 1.
    fn rounded(&mut self, name: &str, value: f64) -> f32 {
        let rounded = value as f32;
        if rounded.is_infinite() && value.is_finite() || rounded == 0.0 && value != 0.0 {
            self.problems
                .push(format!("{name} is {value:?}, must be a float32: 0, or 1e-45 to 3.4e38 in size"));
            return 1.0;
        }
        rounded
    }

    /// One of the choices by its number, or a number.
    pub fn choice_or_float(&mut self, name: &str, choices: &[&str]) -> PyResult<Result<usize, f32>> {
        let value = self.value(name)?;
        if value.is_instance_of::<PyString>() {
            return self.one_of(name, choices).map(Ok);
        }
        let number = named::<f64>(name, &value)?;
        Ok(Err(self.rounded(name, number)))
    }

    /// The number of the choice.
    pub fn one_of(&mut self, name: &str, choices: &[&str]) -> PyResult<usize> {
        let text: String = self.get(name)?;
        Ok(choices.iter().position(|choice| *choice == text).unwrap_or_else(|| {
            let all: Vec<String> = choices.iter().map(|choice| format!("{choice:?}")).collect();
            self.problems.push(format!("{name} is {text:?}, must be one of {}", all.join(", ")));
            0
        }))
    }

    /// A share, 0 to 1; a value out of range is reported.
    pub fn share(&mut self, name: &str) -> PyResult<f64> {
        let value: f64 = self.get(name)?;
        if !(0.0..=1.0).contains(&value) {
            self.problems.push(format!("{name} is {value:?}, must be 0 to 1"));
        }
        Ok(value)
    }

    /// A number, or None for "error". JSON has no infinite numbers and no NaN, so these may be text.
    pub fn number_or_error(&mut self, name: &str) -> PyResult<Option<f64>> {
        let value = self.value(name)?;
        match value.extract::<String>() {
            Ok(text) if text == "error" => Ok(None),
            Ok(text) if let Some(number) = text.parse().ok().filter(|number: &f64| !number.is_finite()) => {
                Ok(Some(number))
            }
            Ok(text) => {
                self.problems.push(format!("{name} is {text:?}, must be a number or \"error\""));
                Ok(None)
            }
            Err(_) => named(name, &value).map(Some),
        }
    }
}
