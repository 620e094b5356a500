//! Binds Python's arguments to the rows of a [table](crate::config::table), converts them, and converts them
//! back for pickling.
//!
//! A constructor takes `*args, **kwargs`, so that its errors can use the table. For an unknown keyword the
//! error names the parameter to use; for a wrong type it names parameter, value and type. Signature and
//! docstring are made of the same rows.

mod values;

use std::path::PathBuf;

use pyo3::{
    PyTypeInfo,
    exceptions::{PyException, PyTypeError},
    prelude::*,
    types::{PyDict, PyIterator, PyList, PyString, PyTuple, PyType},
};

use super::errors::to_python;
use crate::{
    Error, ErrorKind, LoaderConfig,
    config::{AccessConfig, DatasetConfig, Parameter, ParameterTable, TokenConfig, nearest},
    error::shown,
    storage::StoreOptions,
};

/// A configuration that Python's arguments are bound to; [`arguments`](macro@arguments) implements it.
pub trait Parameters: Default {
    const ROWS: ParameterTable;

    /// Converts one argument; values out of range are added to `problems`.
    fn set(&mut self, row: &Parameter, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> PyResult<()>;

    /// The parameters as keywords; if `like` is given, only those that differ from it.
    fn keywords<'py>(&self, py: Python<'py>, like: Option<&Self>) -> PyResult<Bound<'py, PyDict>>;
}

/// Implements [`Parameters`] for the configuration of a table.
macro_rules! arguments {
    ([$($attribute:tt)*] $config:ident $class:literal $({
        [$($star:literal)?] [$($doc:literal)+] $name:ident $kind:ident [$($default:tt)?] $identity:ident
        [$($key:ident)*] [$($check:tt)*] [$($eval:tt)?] [$($other:ident)*]
    })+) => {
        impl $crate::python::arguments::Parameters for $config {
            const ROWS: $crate::config::ParameterTable = Self::TABLE;

            fn set(
                &mut self,
                row: &$crate::config::Parameter,
                given: &Bound<'_, PyAny>,
                problems: &mut Vec<String>,
            ) -> PyResult<()> {
                use $crate::python::arguments::converted;
                match row.name {
                    $(name if name == stringify!($name) => self.$name = converted(row, given, problems)?,)+
                    _ => {}
                }
                Ok(())
            }

            fn keywords<'py>(&self, py: Python<'py>, like: Option<&Self>) -> PyResult<Bound<'py, PyDict>> {
                use $crate::python::arguments::Argument;
                let keywords = PyDict::new(py);
                $(if like.is_none_or(|like| like.$name != self.$name) {
                    keywords.set_item(stringify!($name), self.$name.to_python(py)?)?;
                })+
                Ok(keywords)
            }
        }
    };
}

/// The first line of a docstring, from which `inspect.signature` reads names and defaults.
macro_rules! signature {
    ([$($attribute:tt)*] $config:ident $class:literal $({
        [$($star:literal)?] [$($doc:literal)+] $name:ident $kind:ident [$($default:tt)?] $identity:ident
        [$($key:ident)*] [$($check:tt)*] [$($eval:tt)?] [$($other:ident)*]
    })+) => {
        concat!(
            $class, "(",
            $(
                $($star, ", ",)? stringify!($name),
                $("=", ::forebay_loader::python_literal!($default),)? ", ",
            )+
            ")\n--\n"
        )
    };
}

/// The section "Parameters" of a docstring, without its heading.
macro_rules! entries {
    ([$($attribute:tt)*] $config:ident $class:literal $({
        [$($star:literal)?] [$($doc:literal)+] $name:ident $kind:ident [$($default:tt)?] $identity:ident
        [$($key:ident)*] [$($check:tt)*] [$($eval:tt)?] [$($other:ident)*]
    })+) => {
        concat!($(
            stringify!($name), " : ", ::forebay_loader::kind_text!(docs $kind), "\n",
            $("   ", $doc, "\n",)+
        )+)
    };
}

pub(super) use {arguments, entries, signature};

/// Binds arguments as Python does; returns the configuration and a message for each value out of range.
pub fn bind<C: Parameters>(
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<(C, Vec<String>)> {
    let table = C::ROWS;
    let rows = table.parameters;
    let refused = |message: String| PyTypeError::new_err(format!("{}() {message}", table.class));
    let (most, n_given) = (table.n_positional(), args.len());
    if n_given > most {
        let least = rows.iter().filter(|row| row.default.is_none()).count();
        let takes = if least == most { most.to_string() } else { format!("from {least} to {most}") };
        let plural = if most == 1 { "" } else { "s" };
        return Err(refused(format!("takes {takes} positional argument{plural} but {n_given} were given")));
    }
    let mut given: Vec<_> = args.iter().map(Some).collect();
    // bounded: one for each row of the table.
    given.resize(rows.len(), None);
    for (keyword, value) in kwargs.iter().flat_map(|kwargs| kwargs.iter()) {
        let keyword = keyword.cast::<PyString>()?.to_string_lossy().into_owned();
        let Some(at) = rows.iter().position(|row| row.name == keyword) else {
            let advice = table.advice(&keyword);
            let keyword: String = keyword.escape_debug().take(LONGEST).collect();
            return Err(refused(format!("got an unexpected keyword argument '{keyword}'; {advice}")));
        };
        if given[at].replace(value).is_some() {
            return Err(refused(format!("got multiple values for argument '{keyword}'")));
        }
    }
    let missing = rows.iter().zip(&given).filter(|(row, given)| row.default.is_none() && given.is_none());
    let missing: Vec<_> = missing.map(|(row, _)| format!("'{}'", row.name)).collect();
    if let [names @ .., last] = &*missing {
        let names = if names.is_empty() { last.clone() } else { format!("{} and {last}", names.join(", ")) };
        let plural = if missing.len() == 1 { "" } else { "s" };
        return Err(refused(format!(
            "missing {} required positional argument{plural}: {names}",
            missing.len()
        )));
    }
    let (mut config, mut problems) = (C::default(), Vec::new());
    for (row, given) in rows.iter().zip(given) {
        // If the default is None, a given None keeps the configuration's default.
        if let Some(given) = given.filter(|given| !given.is_none() || row.default != Some("None")) {
            config.set(row, &given, &mut problems)?;
        }
    }
    Ok((config, problems))
}

/// The `TypeError` for a keyword that a function or class without a table does not take.
pub fn unknown_keyword(path: &str, names: &[&str], unknown: &str) -> PyErr {
    let advice = nearest(path, names.iter().copied(), unknown);
    let name = path.rsplit('.').next().unwrap_or(path);
    let unknown: String = unknown.escape_debug().take(LONGEST).collect();
    PyTypeError::new_err(format!("{name}() got an unexpected keyword argument '{unknown}'; {advice}"))
}

/// [`unknown_keyword`] for functions and classes in Python.
#[pyfunction]
pub fn _unknown_keyword(path: &str, names: Vec<String>, unknown: &str) -> PyErr {
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    unknown_keyword(path, &names, unknown)
}

/// Calls the class with the parameters of the preset `name` and the overrides; `args` are the files alone.
pub fn preset<'py, C: Parameters>(
    class: &Bound<'py, PyType>,
    name: &str,
    args: &Bound<'py, PyTuple>,
    config: &C,
    overrides: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    if args.len() > 1 {
        let (class, rows) = (C::ROWS.class, C::ROWS.parameters);
        return Err(PyTypeError::new_err(format!(
            "{class}.{name}() takes 1 positional argument but {} were given; name the others, as in \
             {class}.{name}({}, {}=...)",
            args.len(),
            rows[0].name,
            rows[1].name
        )));
    }
    let keywords = config.keywords(class.py(), Some(&C::default()))?;
    if let Some(overrides) = overrides {
        keywords.update(overrides.as_mapping())?;
    }
    class.call(args, Some(&keywords))
}

/// Why an argument cannot be converted.
pub enum ArgumentError {
    Type,
    Raised(PyErr),
}

impl ArgumentError {
    pub fn raised(self, name: &str, given: &Bound<'_, PyAny>, expected: &str) -> PyErr {
        match self {
            // An exception that ends the program, or that names the parameter.
            Self::Raised(error)
                if ends_program(given.py(), &error) || error.value(given.py()).to_string().contains(name) =>
            {
                error
            }
            Self::Raised(cause) => {
                let error = wrong_type(name, given, expected);
                error.set_cause(given.py(), Some(cause));
                error
            }
            Self::Type => wrong_type(name, given, expected),
        }
    }
}

impl From<PyErr> for ArgumentError {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

pub trait Argument: Sized {
    /// The expected type, for error messages.
    const EXPECTED: &'static str;

    const IS_OPTIONAL: bool = false;

    /// Converts an argument; values out of range are added to `problems`.
    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError>;

    /// Converts the value back to an argument.
    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

/// The value of an argument, or the `TypeError` that names parameter, value and type.
pub fn converted<T: Argument>(
    row: &Parameter,
    given: &Bound<'_, PyAny>,
    problems: &mut Vec<String>,
) -> PyResult<T> {
    let or_none = if T::IS_OPTIONAL || row.default == Some("None") { ", or None" } else { "" };
    T::read(row.name, given, problems)
        .map_err(|refused| refused.raised(row.name, given, &format!("{}{or_none}", T::EXPECTED)))
}

/// The value of an argument that is not in a table, with the errors of one that is.
pub fn named<T: Argument>(name: &str, given: &Bound<'_, PyAny>) -> PyResult<T> {
    let or_none = if T::IS_OPTIONAL { ", or None" } else { "" };
    let mut problems = Vec::new();
    let value = T::read(name, given, &mut problems)
        .map_err(|refused| refused.raised(name, given, &format!("{}{or_none}", T::EXPECTED)))?;
    if problems.is_empty() {
        return Ok(value);
    }
    Err(to_python(given.py(), &Error::new(ErrorKind::Config, problems.join("; "))))
}

/// Conversions for pyo3's `from_py_with`, which does not pass on the argument's name: one function for each
/// name.
macro_rules! by_name {
    ($($name:ident)+) => {
        pub mod argument {
            use super::*;

            $(pub fn $name<T: Argument>(given: &Bound<'_, PyAny>) -> PyResult<T> {
                super::named(stringify!($name), given)
            })+
        }
    };
}

by_name! {
    allow_paths batch bos_id commit_documents commit_seconds dropout eos_id epoch era_length f_max f_min first_row hop_length max_errors max_seq_len n n_fft n_mels
    n_samples n_threads num_samples path pattern sample_rate seconds seed special_tokens start track win_length
}

/// The most characters of a value in a message.
const LONGEST: usize = 60;

/// Whether an exception ends the program, such as `KeyboardInterrupt`: it passes through all of our code.
pub fn ends_program(py: Python<'_>, error: &PyErr) -> bool {
    !error.is_instance_of::<PyException>(py)
}

/// As Python's `except Exception`: `None` if `made` is an exception for which the caller has a message of its
/// own.
///
/// # Errors
/// An exception that ends the program, such as `KeyboardInterrupt`: whatever runs Python code, such as
/// `__fspath__` or `__iter__`, raises it when Ctrl-C comes meanwhile.
pub fn attempt<T>(py: Python<'_>, made: Result<T, impl Into<PyErr>>) -> PyResult<Option<T>> {
    match made.map_err(Into::into) {
        Ok(made) => Ok(Some(made)),
        Err(error) if ends_program(py, &error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// An iterator over a value; `None` if it cannot be iterated.
pub fn items<'py>(given: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyIterator>>> {
    attempt(given.py(), given.try_iter())
}

/// The value as a path; `None` if it is neither text nor an `os.PathLike`.
pub fn path(given: &Bound<'_, PyAny>) -> PyResult<Option<PathBuf>> {
    attempt(given.py(), given.extract())
}

/// The plan of an object made by a Python class of this package; `None` for any other object.
pub fn plan<'py, T: PyTypeInfo>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, T>>> {
    let plan = attempt(object.py(), object.getattr("_plan"))?;
    Ok(plan.and_then(|plan| plan.cast_into().ok()))
}

/// Whether the value is a mapping. A cast to `PyMapping` asks the same, but swallows what a signal handler
/// raises meanwhile.
pub fn is_mapping(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    given.is_instance(&given.py().import("collections.abc")?.getattr("Mapping")?)
}

/// The keys of a mapping with their values; `None` if the value has another type.
pub fn mapping_items<'py>(given: &Bound<'py, PyAny>) -> PyResult<Option<Vec<[Bound<'py, PyAny>; 2]>>> {
    if !is_mapping(given)? {
        return Ok(None);
    }
    let items = given.call_method0("items")?.try_iter()?;
    items.map(|item| item?.extract().map(|(key, value)| [key, value])).collect::<PyResult<_>>().map(Some)
}

/// Whether a value is `storage_options`, such as those in the place of another argument: it is not quoted.
fn has_options(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    let entries = attempt(given.py(), mapping_items(given))?.flatten();
    let has = |key: &Bound<'_, PyAny>| {
        key.cast::<PyString>().is_ok_and(|key| StoreOptions::has(&key.to_string_lossy()))
    };
    Ok(entries.is_some_and(|entries| entries.iter().any(|[key, _]| has(key))))
}

/// The `TypeError` for an argument; an exception that ends the program, if one comes meanwhile.
pub fn wrong_type(name: &str, given: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    match type_message(name, given, expected) {
        Ok(message) => PyTypeError::new_err(message),
        Err(raised) => raised,
    }
}

fn type_message(name: &str, given: &Bound<'_, PyAny>, expected: &str) -> PyResult<String> {
    let class = given.get_type().name()?;
    if has_options(given)? {
        return Ok(format!("{name} is of type {class}, must be {expected}"));
    }
    // A repr() may fail.
    let mut value = attempt(given.py(), given.repr())?
        .map_or_else(|| "not printable".to_owned(), |text| text.to_string_lossy().into_owned());
    // The repr() of a table has several lines.
    if value.contains('\n') {
        value = value.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    if let Some((end, _)) = value.char_indices().nth(LONGEST) {
        value.truncate(end);
        value.push_str("...");
    }
    // A class in place of its object.
    let hint = match given.cast::<PyType>().map(|given| given.name()) {
        Ok(Ok(name)) if expected.contains("object") => format!("; make an object of the class: {name}(...)"),
        _ => String::new(),
    };
    Ok(format!("{name} is {value} (type {class}), must be {expected}{hint}"))
}

/// `value` as an id, or the `ConfigError` that says what it must be.
pub fn id(py: Python<'_>, name: &str, value: i64) -> PyResult<u32> {
    u32::try_from(value).ok().filter(|&id| i32::try_from(id).is_ok()).ok_or_else(|| {
        let message = format!("{name} is {}, must be 0 to {}", shown(value), i32::MAX);
        to_python(py, &Error::new(ErrorKind::Config, message))
    })
}

/// The tables of the loaders, for tests and for `docs/tables.py`: a list of dicts for each class.
#[pyfunction]
pub fn _parameters(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let tables = PyDict::new(py);
    for table in [LoaderConfig::TABLE, AccessConfig::TABLE, TokenConfig::TABLE, DatasetConfig::TABLE] {
        let rows = PyList::empty(py);
        for (at, row) in table.parameters.iter().enumerate() {
            let dict = PyDict::new(py);
            dict.set_item("name", row.name)?;
            dict.set_item("is_keyword_only", at >= table.n_positional())?;
            dict.set_item("docs", row.docs)?;
            dict.set_item("kind", row.kind)?;
            dict.set_item("annotation", row.annotation)?;
            dict.set_item("default", row.default)?;
            dict.set_item("eval", row.eval)?;
            dict.set_item("choices", row.choices)?;
            dict.set_item("identity", row.identity)?;
            dict.set_item("keys", row.keys)?;
            dict.set_item("elsewhere", row.elsewhere)?;
            rows.append(dict)?;
        }
        tables.set_item(table.class, rows)?;
    }
    Ok(tables)
}
