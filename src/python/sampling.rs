//! The objects of `forebay.sampling`, checked: from the values of their fields to a [`Sampling`]; class
//! counts as dicts.

use pyo3::{
    IntoPyObjectExt,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyList},
};

use super::{
    arguments::{Argument, ArgumentError, attempt, items, named, plan},
    errors::to_python,
    recipe_fields::RecipeFields,
    state,
};
use crate::{
    Error, ErrorKind,
    config::SamplingObject,
    error::shown,
    order::WeightedRows,
    sampling::{Balance, ClassCounts, Filter, Joined, Limit, Sampling, Weighting},
    source::Subset,
    targets::Key,
};

#[pyclass(module = "forebay._core", name = "_Sampling", frozen)]
pub struct PySampling(Sampling);

#[pymethods]
impl PySampling {
    /// Checks the fields of class `kind`.
    #[new]
    fn new(kind: &str, fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut given = RecipeFields::new(fields.clone());
        let mut made = Sampling::default();
        match kind {
            "Subset" => made.subset = Some(subset(&given)?),
            "Where" => made.filters.push(filter(&mut given)?),
            "AtMost" => {
                let n: i64 = given.get("n")?;
                if n < 1 {
                    given.problems.push(format!("n is {}, must be 1 or more", shown(n)));
                }
                let (column, seed) = (given.get("column")?, given.get("seed")?);
                made.limits.push(Limit { column, n: n.max(1) as u64, seed });
            }
            "Weighted" => made.weights.push(weighted(&mut given)?),
            "Balanced" => made.weights.push(balanced(&mut given)?),
            other => return Err(PyTypeError::new_err(format!("{other} is no sampling"))),
        }
        if given.has("epoch_size")? {
            made.epoch_size = given.count("epoch_size", WeightedRows::MOST as i64)?.map(|n| n as u64);
        }
        given.check()?;
        Ok(Self(made))
    }

    /// The rules of both; an error if they contradict each other.
    fn joined(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        self.0.clone().and(other.0.clone()).map(Self).map_err(|error| to_python(py, &error))
    }
}

fn wrong(given: &RecipeFields<'_>, message: String) -> PyErr {
    to_python(given.py(), &Error::new(ErrorKind::Config, message))
}

fn subset(given: &RecipeFields<'_>) -> PyResult<Subset> {
    let seed: u64 = given.get("seed")?;
    let rows = given.value("rows")?;
    let row = |row: i64, what: &str, least: i64| {
        u64::try_from(row)
            .ok()
            .filter(|_| row >= least && row < i64::MAX)
            .ok_or_else(|| wrong(given, format!("{what} {}, must be {least} or more", shown(row))))
    };
    let Some(each) = items(&rows)? else {
        let n = row(named("rows", &rows)?, "rows is", 1)?;
        return Ok(Subset::Random { n, seed });
    };
    let rows = each.map(|one| row(named("rows", &one?)?, "rows has", 0)).collect::<PyResult<Vec<_>>>()?;
    if rows.is_empty() {
        return Err(wrong(given, "rows is empty, must name at least one row".to_owned()));
    }
    if seed != 0 {
        return Err(wrong(
            given,
            format!(
                "seed is {seed}, and rows names the rows; a seed chooses a number of rows, as in Subset(1000, seed={seed})"
            ),
        ));
    }
    let subset = Subset::Rows(rows);
    subset.rows(u64::MAX).map_err(|error| to_python(given.py(), &error))?;
    Ok(subset)
}

/// A value of a column, as `Where` takes it.
fn key(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Key> {
    if let Ok(text) = value.extract::<String>() {
        return Ok(Key::Name(text.into()));
    }
    let wrong = || {
        PyTypeError::new_err(format!(
            "{name} has {}, must be text or whole numbers; minimum and maximum take others",
            value.get_type()
        ))
    };
    if value.is_instance_of::<PyBool>() {
        return Err(wrong());
    }
    if let Some(number) = attempt(value.py(), value.extract())? {
        return Ok(Key::Number(number));
    }
    value.cast::<PyFloat>().ok().and_then(|float| Key::of_float(float.value())).ok_or_else(wrong)
}

/// Some values of a column; `None` if they are not given.
fn keys(given: &mut RecipeFields<'_>, name: &str) -> PyResult<Option<Vec<Key>>> {
    let values = given.value(name)?;
    if values.is_none() {
        return Ok(None);
    }
    let each = values.try_iter()?.map(|one| key(name, &one?)).collect::<PyResult<Vec<_>>>()?;
    if each.is_empty() {
        given.problems.push(format!("{name} is empty, must have at least one"));
    }
    Ok(Some(each))
}

fn filter(given: &mut RecipeFields<'_>) -> PyResult<Filter> {
    let [values, exclude] = [keys(given, "values")?, keys(given, "exclude")?];
    let [minimum, maximum]: [Option<f64>; 2] = [given.get("minimum")?, given.get("maximum")?];
    let is_null: Option<bool> = given.get("is_null")?;
    let column: String = given.get("column")?;
    if values.is_none() && exclude.is_none() && minimum.is_none() && maximum.is_none() && is_null.is_none() {
        given
            .problems
            .push("Where has no condition; give values, exclude, minimum, maximum or is_null".to_owned());
    }
    for (name, limit) in [("minimum", minimum), ("maximum", maximum)] {
        if limit.is_some_and(f64::is_nan) {
            given.problems.push(format!("{name} is NaN, must be a number"));
        }
    }
    if let (Some(least), Some(most)) = (minimum, maximum)
        && least > most
    {
        given.problems.push(format!("minimum is {least} and maximum {most}, which leave nothing between"));
    }
    Ok(Filter { column, values, exclude, minimum, maximum, is_null })
}

fn weighted(given: &mut RecipeFields<'_>) -> PyResult<Weighting> {
    let weights = given.value("weights")?;
    if let Ok(column) = weights.extract::<String>() {
        return Ok(Weighting::Column(column));
    }
    let weights: Vec<f64> = attempt(given.py(), weights.extract())?.ok_or_else(|| {
        PyTypeError::new_err("weights must be the name of a column, or a number for each row of the files")
    })?;
    // One copy suffices to check them.
    if let Err(error) = WeightedRows::new(&weights, 1) {
        return Err(to_python(given.py(), &error));
    }
    Ok(Weighting::Given(weights.into()))
}

fn balanced(given: &mut RecipeFields<'_>) -> PyResult<Weighting> {
    let [power, offset]: [f64; 2] = [given.get("power")?, given.get("offset")?];
    if !(-4.0..=4.0).contains(&power) {
        given.problems.push(format!("power is {power:?}, must be from -4 to 4"));
    }
    if !(0.0..=1e12).contains(&offset) {
        given.problems.push(format!("offset is {offset:?}, must be from 0 to 1e12"));
    }
    let cap: Option<f64> = given.get("cap")?;
    if let Some(cap) = cap.filter(|cap| !(*cap >= 1.0 && cap.is_finite())) {
        given.problems.push(format!("cap is {cap:?}, must be 1 or more"));
    }
    const JOINED: [(&str, Joined); 3] = [("sum", Joined::Sum), ("max", Joined::Max), ("mean", Joined::Mean)];
    let (_, joined) = JOINED[given.one_of("labels", &JOINED.map(|(name, _)| name))?];
    let separator: Option<String> = given.get("separator")?;
    if separator.as_deref() == Some("") {
        given.problems.push("separator is empty, must be text".to_owned());
    }
    let column = given.get("column")?;
    Ok(Weighting::Balanced(Balance { column, power, offset, cap, joined, separator }))
}

/// The classes of each column as dicts, with the examples of an epoch: counted, or expected.
pub fn class_dicts<'py>(
    py: Python<'py>,
    counts: &[ClassCounts],
    sources: Option<&Vec<String>>,
    is_expected: bool,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for ClassCounts { column, group, classes } in counts {
        let dict = PyDict::new(py);
        dict.set_item("column", column)?;
        dict.set_item("source", sources.and_then(|names| names.get(*group)))?;
        let name = |class: &Option<Key>| match class {
            Some(Key::Name(name)) => name.into_bound_py_any(py),
            Some(Key::Number(number)) => number.into_bound_py_any(py),
            None => Ok(py.None().into_bound(py)),
        };
        let names = classes.iter().map(|count| name(&count.class)).collect::<PyResult<Vec<_>>>()?;
        dict.set_item("classes", names)?;
        dict.set_item("rows", classes.iter().map(|count| count.rows).collect::<Vec<_>>())?;
        let examples = classes.iter().map(|count| count.examples);
        match is_expected {
            true => dict.set_item("expected", examples.collect::<Vec<_>>())?,
            false => dict.set_item("examples", examples.map(|n| n as u64).collect::<Vec<_>>())?,
        }
        list.append(dict)?;
    }
    Ok(list)
}

impl Argument for Option<SamplingObject> {
    const EXPECTED: &'static str = "an object of forebay.sampling, such as Subset(1000)";
    const IS_OPTIONAL: bool = true;

    fn read(_: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if given.is_none() {
            return Ok(None);
        }
        let sampling = plan::<PySampling>(given)?.ok_or(ArgumentError::Type)?.get().0.clone();
        let description = state::json(&given.call_method0("to_dict")?)?;
        Ok(Some(SamplingObject { description, sampling }))
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        state::made(py, self.as_ref().map(|object| &object.description))
    }
}
