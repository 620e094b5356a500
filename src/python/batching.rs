//! The objects of `forebay.batching`, checked: from the values of their fields to a [`BucketConfig`].

use std::ops::RangeInclusive;

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyDict},
};

use super::{
    arguments::{Argument, ArgumentError, plan},
    errors::to_python,
    recipe_fields::RecipeFields,
    state,
};
use crate::{
    Error, ErrorKind,
    config::{BatchingObject, BucketConfig, PadRule},
    error::{counted, shown},
    order::{Bins, Budget},
};

/// The longest batch, seconds: a thousand hours.
const LONGEST_BATCH: f64 = 3_600_000.0;
const BUCKETS: RangeInclusive<i64> = 1..=4096;
const MOST_EXAMPLES: RangeInclusive<i64> = 1..=1 << 20;
const MOST_TOKENS: RangeInclusive<i64> = 1..=1 << 31;
const TOKEN_BINS: RangeInclusive<i64> = 1..=256;
const MULTIPLES: RangeInclusive<i64> = 1..=1 << 20;

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
        let max_duration: Option<f64> = given.get("max_duration")?;
        let max_duration = max_duration.unwrap_or(f64::INFINITY);
        if max_duration != f64::INFINITY && !(max_duration > 0.0 && max_duration <= LONGEST_BATCH) {
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
        let sizes = batch_sizes(&given, duration_bins.as_deref())?;
        if max_duration == f64::INFINITY && sizes.is_none() {
            let message = "max_duration is None, must be the most seconds of a batch; or give duration_bins and batch_sizes";
            given.problems.push(message.to_owned());
        }
        let quadratic_duration: Option<f64> = given.get("quadratic_duration")?;
        if let Some(seconds) = quadratic_duration.filter(|seconds| !(*seconds > 0.0 && seconds.is_finite())) {
            given.problems.push(format!("quadratic_duration is {seconds:?}, must be above 0 seconds"));
        }
        let max_examples = number(&mut given, "max_examples", MOST_EXAMPLES)?;
        let max_tokens = number(&mut given, "max_tokens", MOST_TOKENS)?;
        let token_bins = number(&mut given, "token_bins", TOKEN_BINS)?.unwrap_or(1) as usize;
        let tokens: Option<String> = given.get("tokens")?;
        if tokens.is_some() && max_tokens.is_none() {
            given
                .problems
                .push("tokens names a target, and max_tokens is None; give both, or none".to_owned());
        }
        let pad_to = pad_rule(&mut given)?;
        given.check()?;
        let budget = Budget {
            max_duration,
            quadratic_duration,
            max_examples: max_examples.map(|n| n as u32),
            max_tokens: max_tokens.map(i64::unsigned_abs),
        };
        let bins = match (duration_bins, sizes) {
            (Some(bounds), Some(sizes)) => Bins::Sized(bounds.into_iter().zip(sizes).collect()),
            (Some(bounds), None) => Bins::Bounds(bounds),
            (None, _) => Bins::Number(num_buckets as usize),
        };
        Ok(Self(BucketConfig { budget, bins, tokens, token_bins, pad_to }))
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

/// The rows of a batch of each bin, if they are given.
fn batch_sizes(given: &RecipeFields<'_>, bins: Option<&[f64]>) -> PyResult<Option<Vec<u32>>> {
    let value = given.value("batch_sizes")?;
    if value.is_none() {
        return Ok(None);
    }
    let Ok(sizes) = value.extract::<Vec<i64>>() else {
        let message =
            format!("batch_sizes is {}, must be a number of rows for each of duration_bins", value.repr()?);
        return Err(PyTypeError::new_err(message));
    };
    let mut problems = Vec::new();
    if bins.map(<[f64]>::len) != Some(sizes.len()) {
        let bins = bins.map_or_else(|| "None".to_owned(), |bins| counted(bins.len() as u64, "bin"));
        problems.push(format!(
            "batch_sizes has {}, and duration_bins is {bins}; give as many of each",
            counted(sizes.len() as u64, "size")
        ));
    }
    if let Some(size) = sizes.iter().find(|size| !MOST_EXAMPLES.contains(size)) {
        let (least, most) = MOST_EXAMPLES.into_inner();
        problems.push(format!("batch_sizes has {}, must have {least} to {most}", shown(*size)));
    }
    if problems.is_empty() {
        return Ok(Some(sizes.into_iter().map(|size| size as u32).collect()));
    }
    Err(to_python(given.py(), &Error::new(ErrorKind::Config, problems.join("; "))))
}

fn pad_rule(given: &mut RecipeFields<'_>) -> PyResult<PadRule> {
    let value = given.value("pad_to")?;
    if given.get("packed")? {
        if value.extract::<String>().ok().as_deref() != Some("longest") {
            given.problems.push(format!(
                "pad_to is {}, and packed=True pads nothing; leave one of them out",
                value.repr()?
            ));
        }
        return Ok(PadRule::Packed);
    }
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
