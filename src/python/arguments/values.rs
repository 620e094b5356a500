//! The types of arguments, each to and from Python.

use std::{collections::BTreeMap, sync::Arc};

use pyo3::{
    IntoPyObjectExt,
    exceptions::PyOverflowError,
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyString},
};

use super::{Argument, ArgumentError, attempt, id, items, named};
use crate::{
    config::{CountOrAuto, Names, Opaque},
    engine::MaxErrors,
};

/// A whole number: any object with `__index__`, except bool, which is a mistake where a number is expected.
/// The two ends of the range stand for all numbers beyond it.
fn whole(given: &Bound<'_, PyAny>) -> Result<i128, ArgumentError> {
    if given.is_instance_of::<PyBool>() || !given.hasattr("__index__")? {
        return Err(ArgumentError::Type);
    }
    let whole = given.py().import("operator")?.call_method1("index", (given,))?;
    match whole.extract() {
        Ok(value) => Ok(value),
        Err(_) if whole.lt(0)? => Ok(i128::MIN),
        Err(_) => Ok(i128::MAX),
    }
}

impl Argument for i64 {
    const EXPECTED: &'static str = "an int";

    /// A number that does not fit becomes the nearest one that does, which [`crate::error::shown`] marks in
    /// messages.
    fn read(_: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        whole(given).map(|n| n.clamp(Self::MIN.into(), Self::MAX.into()) as Self)
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.into_bound_py_any(py)
    }
}

impl Argument for u64 {
    const EXPECTED: &'static str = "an int";

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        let number = whole(given)?;
        Ok(Self::try_from(number).unwrap_or_else(|_| {
            let beyond = [i128::MIN, i128::MAX].contains(&number);
            let number = if beyond { "beyond int128".to_owned() } else { number.to_string() };
            problems.push(format!("{name} is {number}, must be 0 to {}", Self::MAX));
            0
        }))
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.into_bound_py_any(py)
    }
}

impl Argument for f64 {
    const EXPECTED: &'static str = "a float";

    fn read(_: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        let is_number = given.hasattr("__float__")? || given.hasattr("__index__")?;
        if !is_number || given.is_instance_of::<PyBool>() {
            return Err(ArgumentError::Type);
        }
        match given.extract() {
            Ok(number) => Ok(number),
            // A whole number too large for a float: out of any range.
            Err(error) if error.is_instance_of::<PyOverflowError>(given.py()) => {
                Ok(if given.lt(0)? { Self::NEG_INFINITY } else { Self::INFINITY })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.into_bound_py_any(py)
    }
}

impl Argument for bool {
    const EXPECTED: &'static str = "a bool";

    fn read(_: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        given.extract().map_err(|_| ArgumentError::Type)
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.into_bound_py_any(py)
    }
}

impl Argument for String {
    const EXPECTED: &'static str = "a str";

    fn read(_: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        let text = given.cast::<PyString>().map_err(|_| ArgumentError::Type)?;
        Ok(text.to_cow()?.into_owned())
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.into_bound_py_any(py)
    }
}

impl<T: Argument> Argument for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;
    const IS_OPTIONAL: bool = true;

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if given.is_none() { Ok(None) } else { T::read(name, given, problems).map(Some) }
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.as_ref().map_or_else(|| Ok(py.None().into_bound(py)), |value| value.to_python(py))
    }
}

impl Argument for CountOrAuto {
    const EXPECTED: &'static str = "an int or \"auto\"";

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        let Ok(text) = given.cast::<PyString>() else {
            return i64::read(name, given, problems).map(Self::Exactly);
        };
        if text != "auto" {
            problems.push(format!("{name} is {}, must be a whole number or \"auto\"", text.repr()?));
        }
        Ok(Self::Auto)
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Exactly(n) => n.into_bound_py_any(py),
            Self::Auto => "auto".into_bound_py_any(py),
        }
    }
}

impl Argument for MaxErrors {
    const EXPECTED: &'static str = "an int or a float";

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        match given.cast::<PyFloat>() {
            Ok(share) => Ok(Self::Share(share.extract()?)),
            Err(_) => i64::read(name, given, problems).map(Self::Count),
        }
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Count(n) => n.into_bound_py_any(py),
            Self::Share(share) => share.into_bound_py_any(py),
        }
    }
}

impl Argument for Names {
    const EXPECTED: &'static str = "a str or a sequence of str";

    fn read(_: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        one_or_more(given).map(Self)
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        (&self.0).into_bound_py_any(py)
    }
}

impl Argument for Vec<String> {
    const EXPECTED: &'static str = "a sequence of str";

    fn read(_: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        attempt(given.py(), given.extract())?.ok_or(ArgumentError::Type)
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.into_bound_py_any(py)
    }
}

impl Argument for BTreeMap<String, u32> {
    const EXPECTED: &'static str = "a dict of str and int";

    fn read(_: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        let of = |(text, token): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let text: String = named("a key of special_tokens", &text)?;
            let name = format!("special_tokens[{text:?}]");
            let token = id(given.py(), &name, named(&name, &token)?)?;
            Ok((text, token))
        };
        Ok(given
            .cast::<PyDict>()
            .map_err(|_| ArgumentError::Type)?
            .iter()
            .map(of)
            .collect::<PyResult<_>>()?)
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.is_empty() { Ok(py.None().into_bound(py)) } else { self.into_bound_py_any(py) }
    }
}

impl Argument for Opaque {
    const EXPECTED: &'static str = "an object";

    fn read(_: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        Ok(Self(Some(Arc::new(given.clone().unbind()))))
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let object = self.0.as_ref().and_then(|object| object.downcast_ref::<Py<PyAny>>());
        Ok(object.map_or_else(|| py.None(), |object| object.clone_ref(py)).into_bound(py))
    }
}

/// A single item, or the items of an iterable.
fn one_or_more<'py, T>(given: &Bound<'py, PyAny>) -> Result<Vec<T>, ArgumentError>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    let one = |given: &Bound<'py, PyAny>| attempt(given.py(), given.extract::<T>());
    if let Some(one) = one(given)? {
        return Ok(vec![one]);
    }
    items(given)?.ok_or(ArgumentError::Type)?.map(|item| one(&item?)?.ok_or(ArgumentError::Type)).collect()
}
