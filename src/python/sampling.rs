//! The objects of `forebay.sampling`, checked: from the values of their fields to a [`Subset`].

use pyo3::{prelude::*, types::PyDict};

use super::{
    arguments::{Argument, Refused, named},
    errors::to_python,
    given::Given,
    state,
};
use crate::{Error, ErrorKind, config::SamplingObject, error::shown, source::Subset};

/// The description of a subset.
#[pyclass(module = "forebay._core", name = "_Subset", frozen)]
pub struct PySubset(Subset);

#[pymethods]
impl PySubset {
    /// Checks the fields.
    #[new]
    fn new(fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        let given = Given::new(fields.clone());
        let seed: u64 = given.get("seed")?;
        let rows = given.value("rows")?;
        let wrong = |message: String| to_python(fields.py(), &Error::new(ErrorKind::Config, message));
        let row = |row: i64, what: &str, least: i64| {
            u64::try_from(row)
                .ok()
                .filter(|_| row >= least && row < i64::MAX)
                .ok_or_else(|| wrong(format!("{what} {}, must be {least} or more", shown(row))))
        };
        let Ok(each) = rows.try_iter() else {
            let n = row(named("rows", &rows)?, "rows is", 1)?;
            return Ok(Self(Subset::Random { n, seed }));
        };
        let rows = each.map(|one| row(named("rows", &one?)?, "rows has", 0)).collect::<PyResult<Vec<_>>>()?;
        if rows.is_empty() {
            return Err(wrong("rows is empty, must name at least one row".to_owned()));
        }
        if seed != 0 {
            return Err(wrong(format!(
                "seed is {seed}, and rows names the rows; a seed chooses a number of rows, as in Subset(1000, seed={seed})"
            )));
        }
        let subset = Subset::Rows(rows);
        subset.rows(u64::MAX).map_err(|error| to_python(fields.py(), &error))?;
        Ok(Self(subset))
    }
}

impl Argument for Option<SamplingObject> {
    const EXPECTED: &'static str = "an object of forebay.sampling, such as Subset(1000)";
    const IS_OPTIONAL: bool = true;

    fn read(_: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, Refused> {
        if given.is_none() {
            return Ok(None);
        }
        let plan = given.getattr("_plan").map_err(|_| Refused::Type)?;
        let subset = plan.cast::<PySubset>().map_err(|_| Refused::Type)?.get().0.clone();
        let description = state::json(&given.call_method0("to_dict")?)?;
        Ok(Some(SamplingObject { description, subset }))
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        state::made(py, self.as_ref().map(|object| &object.description))
    }
}
