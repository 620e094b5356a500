//! The objects of `forebay.batching`, checked: from the values of their fields to a [`BucketConfig`].

use std::ops::RangeInclusive;

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyDict},
};

use super::{
    arguments::{Argument, ArgumentError, plan},
    recipe_fields::RecipeFields,
    state,
};
use crate::{
    config::{BatchingObject, BucketConfig, PadRule},
    error::shown,
    order::Budget,
};

/// The longest batch, seconds: a thousand hours.
const LONGEST_BATCH: f64 = 3_600_000.0;
const BUCKETS: RangeInclusive<i64> = 1..=4096;
const MOST_EXAMPLES: RangeInclusive<i64> = 1..=1 << 20;
const MULTIPLES: RangeInclusive<i64> = 1..=1 << 20;

/// The description of batches.
#[pyclass(module = "forebay._core", name = "_Batching", frozen)]
pub struct PyBatching(BucketConfig);

#[pymethods]
impl PyBatching {
    /// Checks the fields of class `kind`.
    #[new]
    fn new(kind: &str, fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        if kind != "Buckets" {
            return Err(PyTypeError::new_err(format!("{kind} makes no batches")));
        }
        let mut given = RecipeFields::new(fields.clone());
        let max_duration: f64 = given.get("max_duration")?;
        if !(max_duration > 0.0 && max_duration <= LONGEST_BATCH) {
            given
                .problems
                .push(format!("max_duration is {max_duration:?}, must be above 0, at most {LONGEST_BATCH}"));
        }
        let num_buckets = number(&mut given, "num_buckets", BUCKETS)?.unwrap_or(1);
        let bins = given.value("duration_bins")?;
        let duration_bins = match bins.extract::<Option<Vec<f64>>>() {
            Ok(bins) => bins,
            Err(_) => {
                let message =
                    format!("duration_bins is {}, must be numbers of seconds that rise", bins.repr()?);
                return Err(PyTypeError::new_err(message));
            }
        };
        if let Some(bins) = &duration_bins {
            check_bins(bins, &mut given.problems);
        }
        let quadratic_duration: Option<f64> = given.get("quadratic_duration")?;
        if let Some(seconds) = quadratic_duration.filter(|seconds| !(*seconds > 0.0 && seconds.is_finite())) {
            given.problems.push(format!("quadratic_duration is {seconds:?}, must be above 0 seconds"));
        }
        let max_examples = number(&mut given, "max_examples", MOST_EXAMPLES)?;
        let pad_to = pad_rule(&mut given)?;
        given.check()?;
        let max_examples = max_examples.map(|n| n as u32);
        let budget = Budget { max_duration, quadratic_duration, max_examples };
        Ok(Self(BucketConfig { budget, num_buckets: num_buckets as usize, duration_bins, pad_to }))
    }
}

/// A whole number within a range, if one is given; another one is reported.
fn number(given: &mut RecipeFields<'_>, name: &str, range: RangeInclusive<i64>) -> PyResult<Option<i64>> {
    let value: Option<i64> = given.get(name)?;
    if let Some(value) = value.filter(|value| !range.contains(value)) {
        let (least, most) = range.into_inner();
        given.problems.push(format!("{name} is {}, must be {least} to {most}", shown(value)));
    }
    Ok(value)
}

fn check_bins(bins: &[f64], problems: &mut Vec<String>) {
    if bins.is_empty() {
        problems.push("duration_bins is empty, must have the longest seconds of each bucket".to_owned());
    }
    if let Some(bin) = bins.iter().find(|bin| !(**bin > 0.0 && bin.is_finite())) {
        problems.push(format!("duration_bins has {bin:?}, must have seconds above 0"));
    } else if let Some(two) = bins.windows(2).find(|two| two[0] >= two[1]) {
        problems.push(format!("duration_bins must rise, and {:?} is followed by {:?}", two[0], two[1]));
    }
}

fn pad_rule(given: &mut RecipeFields<'_>) -> PyResult<PadRule> {
    let value = given.value("pad_to")?;
    // A bool is a whole number to Python.
    if !value.is_instance_of::<PyBool>()
        && let Ok(multiple) = value.extract::<i64>()
    {
        if !MULTIPLES.contains(&multiple) {
            let (least, most) = MULTIPLES.into_inner();
            given.problems.push(format!("pad_to is {multiple}, must be {least} to {most}, or a rule"));
        }
        return Ok(PadRule::Multiple(multiple.unsigned_abs()));
    }
    Ok([PadRule::Longest, PadRule::Bucket][given.one_of("pad_to", &["longest", "bucket"])?])
}

impl Argument for Option<BatchingObject> {
    const EXPECTED: &'static str = "an object of forebay.batching, such as Buckets(max_duration=400.0)";
    const IS_OPTIONAL: bool = true;

    fn read(_: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if given.is_none() {
            return Ok(None);
        }
        let buckets = plan::<PyBatching>(given)?.ok_or(ArgumentError::Type)?.get().0.clone();
        let description = state::json(&given.call_method0("to_dict")?)?;
        Ok(Some(BatchingObject { description, buckets }))
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        state::made(py, self.as_ref().map(|object| &object.description))
    }
}
