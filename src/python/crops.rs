//! The objects of `forebay.crops`, checked: from the values of their fields to a [`CropConfig`].

use std::{ops::RangeInclusive, sync::Arc};

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};

use super::{
    arguments::{Argument, ArgumentError, plan, wrong_type},
    errors::to_python,
    recipe_fields::RecipeFields,
    state,
};
use crate::{
    config::{CropConfig, CropObject, SpanConfig, SpanPlace, WholeConfig, WindowConfig},
    dsp::{CropMode, Padding, WindowEnd},
    error::shown,
    targets::{Annotation, Annotations},
    tasks::{ClipCrop, CropDraws, SpanUnit, WholeRule},
};

/// The longest clip, seconds: an hour.
const LONGEST_CLIP: f64 = 3600.0;
/// The longest step, seconds: a day.
const LONGEST_STEP: f64 = 86_400.0;
/// The lowest and the highest level, dB of full scale.
const LEVELS: RangeInclusive<f64> = -200.0..=0.0;
/// How many places may be tried for the loudest.
const PLACES: RangeInclusive<i64> = 2..=64;
/// The most further places that are tried after a silent clip.
const MOST_REDRAWS: i64 = 64;
/// The most clips of a recording in one example.
const MOST_VIEWS: i64 = 256;

#[pyclass(module = "forebay._core", name = "_Crop", frozen)]
pub struct PyCrop(CropConfig);

#[pymethods]
impl PyCrop {
    /// Checks the fields of class `kind`; `regions` are those of its table: path, start and end.
    #[new]
    #[pyo3(signature = (kind, fields, regions=None))]
    fn new(
        kind: &str,
        fields: &Bound<'_, PyDict>,
        regions: Option<Vec<(String, f64, f64)>>,
    ) -> PyResult<Self> {
        let mut given = RecipeFields::new(fields.clone());
        let rule = match kind {
            "Random" => CropConfig::Clip(clip(&mut given, CropMode::Random)?, None),
            "Start" => CropConfig::Clip(clip(&mut given, CropMode::Start)?, None),
            "End" => CropConfig::Clip(clip(&mut given, CropMode::End)?, None),
            "Center" => CropConfig::Clip(clip(&mut given, CropMode::Center)?, None),
            "Loudest" => {
                let of = whole(&mut given, "of", PLACES)?;
                let crop = clip(&mut given, CropMode::Random)?;
                CropConfig::Clip(ClipCrop { draws: CropDraws::Loudest(of), ..crop }, None)
            }
            "Events" | "Inside" => {
                let spans = spans(&mut given)?;
                CropConfig::Clip(clip(&mut given, CropMode::Random)?, Some(spans))
            }
            "Annotated" => {
                let spans = annotated(&mut given, regions)?;
                CropConfig::Clip(clip(&mut given, CropMode::Random)?, Some(spans))
            }
            "Views" => views(&mut given)?,
            "Windows" => CropConfig::Windows(windows(&mut given)?),
            "Whole" => CropConfig::Whole(whole_recordings(&mut given)?),
            other => return Err(PyTypeError::new_err(format!("{other} is no crop"))),
        };
        given.check()?;
        Ok(Self(rule))
    }

    /// The seconds of the annotated regions of each of these recordings; 0 of one without.
    fn annotated_seconds(&self, paths: Vec<String>) -> Vec<f64> {
        let table = self.0.spans().and_then(|spans| spans.table.as_ref());
        paths.iter().map(|path| table.map_or(0.0, |all| all.seconds(path))).collect()
    }
}

/// A whole number within a range; another one is reported.
fn whole(given: &mut RecipeFields<'_>, name: &str, range: RangeInclusive<i64>) -> PyResult<u32> {
    let value: i64 = given.get(name)?;
    if !range.contains(&value) {
        let (least, most) = range.clone().into_inner();
        given.problems.push(format!("{name} is {}, must be {least} to {most}", shown(value)));
    }
    Ok(value.clamp(*range.start(), *range.end()) as u32)
}

/// A level in dB as an amplitude; one out of range is reported.
fn level(given: &mut RecipeFields<'_>, name: &str) -> PyResult<Option<f64>> {
    let db: Option<f64> = given.get(name)?;
    if let Some(db) = db.filter(|db| !LEVELS.contains(db)) {
        let (lowest, highest) = LEVELS.into_inner();
        given
            .problems
            .push(format!("{name} is {db:?}, must be from {lowest} to {highest}, in dB of full scale"));
    }
    Ok(db.map(|db| 10_f64.powf(db / 20.0)))
}

/// A clip by a mode, padded and drawn again as the fields say.
fn clip(given: &mut RecipeFields<'_>, mode: CropMode) -> PyResult<ClipCrop> {
    let mut crop = ClipCrop { padding: padding(given)?, ..mode.into() };
    crop.takes_whole = given.has("whole")? && given.get("whole")?;
    if given.has("silence_db")? {
        let silence = level(given, "silence_db")?;
        let most = whole(given, "redraws", 1..=MOST_REDRAWS)?;
        if let Some(level) = silence {
            crop.draws = CropDraws::Redraw { power: level * level, most };
        }
    }
    Ok(crop)
}

fn padding(given: &mut RecipeFields<'_>) -> PyResult<Padding> {
    const RULES: [(&str, Padding); 6] = [
        ("behind", Padding::Behind),
        ("front", Padding::Front),
        ("both", Padding::Both),
        ("random", Padding::Random),
        ("repeat", Padding::Repeat),
        ("noise", Padding::Noise(0.0)),
    ];
    let (_, padding) = RULES[given.one_of("pad", &RULES.map(|(name, _)| name))?];
    match (padding, level(given, "noise_db")?) {
        (Padding::Noise(_), Some(level)) => return Ok(Padding::Noise(level as f32)),
        (Padding::Noise(_), None) => {
            given.problems.push("pad is \"noise\", which needs noise_db, its level in dB".to_owned());
        }
        (_, Some(_)) => {
            given.problems.push("noise_db is given, but only pad=\"noise\" has noise".to_owned());
        }
        (_, None) => {}
    }
    Ok(padding)
}

/// The spans of `Events` and `Inside`.
fn spans(given: &mut RecipeFields<'_>) -> PyResult<SpanConfig> {
    let column = given.value("column")?;
    let columns = match (column.extract::<String>(), column.extract::<(String, String)>()) {
        (Ok(name), _) => vec![name],
        (_, Ok((starts, ends))) => vec![starts, ends],
        _ => {
            return Err(PyTypeError::new_err(format!(
                "column is {}, must be the name of a column of pairs, or the names of two columns, (starts, ends)",
                column.repr()?
            )));
        }
    };
    if columns.iter().any(String::is_empty) {
        given.problems.push("column is \"\", must be the name of a column".to_owned());
    }
    const UNITS: [(&str, SpanUnit); 2] = [("seconds", SpanUnit::Seconds), ("samples", SpanUnit::Samples)];
    let (_, unit) = UNITS[given.one_of("unit", &UNITS.map(|(name, _)| name))?];
    let are_required = is_error_without(given)?;
    let mut place = SpanPlace::Inside;
    if given.has("widen")? {
        let seconds: f64 = given.get("widen")?;
        if !(0.0..=LONGEST_STEP).contains(&seconds) {
            given.problems.push(format!("widen is {seconds:?}, must be from 0 to {LONGEST_STEP} seconds"));
        }
        place = SpanPlace::Around(seconds);
    }
    Ok(SpanConfig { columns, table: None, unit, place, are_required })
}

/// Whether a row without spans is an error.
fn is_error_without(given: &mut RecipeFields<'_>) -> PyResult<bool> {
    Ok(given.one_of("empty", &["random", "error"])? == 1)
}

/// The regions of `Annotated`: of a table, or of the columns that a dict names.
fn annotated(given: &mut RecipeFields<'_>, regions: Option<Vec<(String, f64, f64)>>) -> PyResult<SpanConfig> {
    const EXPECTED: &str = "a table of annotations, or a dict that names the columns of a row's lists, as in {\"start\": \"starts\", \
         \"end\": \"ends\"}";
    let mut found = SpanConfig {
        columns: Vec::new(),
        table: None,
        unit: SpanUnit::Seconds,
        place: SpanPlace::Region,
        are_required: is_error_without(given)?,
    };
    if let Some(regions) = regions {
        let regions = regions.into_iter();
        let label = "region".to_owned();
        let regions = regions.map(|(path, start, end)| Annotation { path, start, end, label: label.clone() });
        let all = Annotations::new(regions.collect());
        found.table = Some(Arc::new(all.map_err(|error| to_python(given.py(), &error))?));
        return Ok(found);
    }
    let value = given.value("annotations")?;
    let wrong = || wrong_type("annotations", &value, EXPECTED);
    let dict = value.cast::<PyDict>().map_err(|_| wrong())?;
    // The names of `Frames`; labels do not matter.
    for key in dict.keys() {
        if !["label", "start", "end"].contains(&&*key.extract::<String>().map_err(|_| wrong())?) {
            return Err(wrong());
        }
    }
    for name in ["start", "end"] {
        let column: String =
            dict.get_item(name)?.and_then(|column| column.extract().ok()).ok_or_else(wrong)?;
        if column.is_empty() {
            given.problems.push(format!("annotations has \"\" as its {name}, must be the name of a column"));
        }
        found.columns.push(column);
    }
    Ok(found)
}

fn views(given: &mut RecipeFields<'_>) -> PyResult<CropConfig> {
    let n = whole(given, "n", 1..=MOST_VIEWS)?;
    let crop = given.value("crop")?;
    let wrong = || PyTypeError::new_err("crop must be an object of forebay.crops, such as Random()");
    match &plan::<PyCrop>(&crop)?.ok_or_else(wrong)?.get().0 {
        CropConfig::Clip(crop, spans) if crop.views == 0 => {
            Ok(CropConfig::Clip(ClipCrop { views: n, ..*crop }, spans.clone()))
        }
        other => {
            given.problems.push(format!("crop is {}, must be one of a single clip", crop.repr()?));
            Ok(other.clone())
        }
    }
}

fn windows(given: &mut RecipeFields<'_>) -> PyResult<WindowConfig> {
    let step: Option<f64> = given.get("step")?;
    if let Some(step) = step.filter(|step| !(*step > 0.0 && *step <= LONGEST_STEP)) {
        given.problems.push(format!("step is {step:?}, must be above 0, at most {LONGEST_STEP} seconds"));
    }
    const ENDS: [(&str, WindowEnd); 4] = [
        ("pad", WindowEnd::Pad),
        ("drop", WindowEnd::Drop),
        ("shift", WindowEnd::Shift),
        ("remainder", WindowEnd::Remainder),
    ];
    let (_, end) = ENDS[given.one_of("end", &ENDS.map(|(name, _)| name))?];
    let context: f64 = given.get("context")?;
    if !(0.0..=LONGEST_STEP).contains(&context) {
        given.problems.push(format!("context is {context:?}, must be from 0 to {LONGEST_STEP} seconds"));
    }
    Ok(WindowConfig { step, end, context })
}

fn whole_recordings(given: &mut RecipeFields<'_>) -> PyResult<WholeConfig> {
    let [min_seconds, max_seconds]: [f64; 2] = [given.get("min_seconds")?, given.get("max_seconds")?];
    if !(min_seconds >= 0.0 && min_seconds.is_finite()) {
        given.problems.push(format!("min_seconds is {min_seconds:?}, must be from 0 on"));
    }
    if !(max_seconds > 0.0 && max_seconds <= LONGEST_CLIP) {
        given
            .problems
            .push(format!("max_seconds is {max_seconds:?}, must be above 0, at most {LONGEST_CLIP}"));
    } else if min_seconds > max_seconds {
        given.problems.push(format!(
            "min_seconds is {min_seconds:?} and max_seconds is {max_seconds:?}: no recording has a length between them"
        ));
    }
    let cuts = given.one_of("on_long", &["skip", "cut"])? == 1;
    let pad_value: Option<f64> = given.get("pad_value")?;
    if let Some(value) = pad_value.filter(|value| !value.is_finite()) {
        given.problems.push(format!("pad_value is {value:?}, must be a number"));
    }
    let duration: Option<String> = given.get("duration")?;
    if duration.as_deref() == Some("") {
        given.problems.push("duration is \"\", must be the name of a column of seconds".to_owned());
    }
    let rule =
        WholeRule { cuts_at: cuts.then_some(max_seconds), pad_value: pad_value.map(|value| value as f32) };
    Ok(WholeConfig { duration, min_seconds, max_seconds, rule })
}

impl Argument for Option<CropObject> {
    const EXPECTED: &'static str = "an object of forebay.crops, such as Windows(step=2.5)";
    const IS_OPTIONAL: bool = true;

    fn read(_: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if given.is_none() {
            return Ok(None);
        }
        let rule = plan::<PyCrop>(given)?.ok_or(ArgumentError::Type)?.get().0.clone();
        let description = state::json(&given.call_method0("to_dict")?)?;
        Ok(Some(CropObject { description, rule }))
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        state::made(py, self.as_ref().map(|object| &object.description))
    }
}
