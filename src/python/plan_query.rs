//! What `Loader.plan` is asked for, by the names of `outputs`, and its arrays.

use numpy::PyArray1;
use pyo3::{prelude::*, types::PyDict};
use smallvec::SmallVec;

use crate::{Error, ErrorKind, Result, dsp::augment::Outcome, tasks::AudioPlan};

/// What a plan may say of an example.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PlanQuery {
    /// What a step of augmentation will do.
    Outcome(Outcome),
    Start,
}

/// What steps of augmentation will do, and where clips begin, by name.
///
/// # Errors
/// [`ErrorKind::Config`] for a name that is none, or whose step the loader does not have.
pub fn plan_queries(audio: &AudioPlan, names: Vec<String>) -> Result<Vec<(String, PlanQuery)>> {
    let known = || Outcome::ALL.into_iter().filter(|(outcome, ..)| *outcome != Outcome::MixStart);
    let has = |class: &str| audio.augment.steps().any(|step| step.kind.name() == class);
    let of = |name: String| {
        if name == "start" {
            return Ok((name, PlanQuery::Start));
        }
        let problem = match known().find(|(_, known, ..)| *known == name) {
            Some((outcome, _, class, _)) if has(class) => return Ok((name, PlanQuery::Outcome(outcome))),
            Some((_, _, class, _)) => {
                format!("outputs has {name:?}, and augment has no {class}(); leave it out, or add that step")
            }
            None => {
                let known: Vec<_> = known().map(|(_, known, ..)| known).chain(["start"]).collect();
                format!("outputs has {name:?}, must be one of {known:?}")
            }
        };
        Err(Error::new(ErrorKind::Config, problem))
    };
    names.into_iter().map(of).collect()
}

/// An example that will be made: its row, its position and random bits, and a number for each query.
pub struct PlannedExample {
    pub row: i64,
    pub record: (u64, u64),
    pub numbers: SmallVec<[f64; 2]>,
}

/// The dict of `Loader.plan`; `starts` has a number for each example, if they are asked for.
pub fn planned_arrays<'py>(
    py: Python<'py>,
    asked: &[(String, PlanQuery)],
    made: &[PlannedExample],
    starts: &[f64],
) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    found.set_item("index", PyArray1::from_iter(py, made.iter().map(|example| example.row)))?;
    for (at, (name, asked)) in asked.iter().enumerate() {
        let each = made.iter().map(|example| example.numbers[at]);
        let array = match asked {
            PlanQuery::Start => PyArray1::from_slice(py, starts).into_any(),
            PlanQuery::Outcome(Outcome::MixIndex | Outcome::ReverbIndex) => {
                PyArray1::from_iter(py, each.map(|row| row as i64)).into_any()
            }
            PlanQuery::Outcome(_) => PyArray1::from_iter(py, each).into_any(),
        };
        found.set_item(name, array)?;
    }
    Ok(found)
}
