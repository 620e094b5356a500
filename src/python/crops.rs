//! The objects of `forebay.crops`, checked: from the values of their fields to a [`CropConfig`].

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};

use super::{
    arguments::{Argument, Refused},
    given::Given,
    state,
};
use crate::{
    config::{CropConfig, CropObject, WindowConfig},
    transform::{CropMode, WindowEnd},
};

/// The longest step, seconds: a day.
const LONGEST_STEP: f64 = 86_400.0;

/// The description of a crop.
#[pyclass(module = "forebay._core", name = "_Crop", frozen)]
pub struct PyCrop(CropConfig);

#[pymethods]
impl PyCrop {
    /// Checks the fields of class `kind`.
    #[new]
    fn new(kind: &str, fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut given = Given::new(fields.clone());
        let rule = match kind {
            "Random" => CropConfig::One(CropMode::Random),
            "Start" => CropConfig::One(CropMode::Start),
            "Center" => CropConfig::One(CropMode::Center),
            "Windows" => {
                let step: Option<f64> = given.get("step")?;
                if let Some(step) = step.filter(|step| !(*step > 0.0 && *step <= LONGEST_STEP)) {
                    given
                        .problems
                        .push(format!("step is {step:?}, must be above 0, at most {LONGEST_STEP} seconds"));
                }
                const ENDS: [(&str, WindowEnd); 4] = [
                    ("pad", WindowEnd::Pad),
                    ("drop", WindowEnd::Drop),
                    ("shift", WindowEnd::Shift),
                    ("remainder", WindowEnd::Remainder),
                ];
                let (_, end) = ENDS[given.one_of("end", &ENDS.map(|(name, _)| name))?];
                CropConfig::Windows(WindowConfig { step, end })
            }
            other => return Err(PyTypeError::new_err(format!("{other} is no crop"))),
        };
        given.check()?;
        Ok(Self(rule))
    }
}

impl Argument for Option<CropObject> {
    const EXPECTED: &'static str = "an object of forebay.crops, such as Windows(step=2.5)";
    const IS_OPTIONAL: bool = true;

    fn read(_: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, Refused> {
        if given.is_none() {
            return Ok(None);
        }
        let plan = given.getattr("_plan").map_err(|_| Refused::Type)?;
        let rule = plan.cast::<PyCrop>().map_err(|_| Refused::Type)?.get().0;
        let description = state::json(&given.call_method0("to_dict")?)?;
        Ok(Some(CropObject { description, rule }))
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        state::made(py, self.as_ref().map(|object| &object.description))
    }
}
