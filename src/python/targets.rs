//! The objects of `forebay.targets`, checked: from the values of their fields to a [`TargetConfig`].

use std::sync::Arc;

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};

use super::{
    arguments::{Argument, ArgumentError, mapping_items, plan, wrong_type},
    errors::to_python,
    recipe_fields::RecipeFields,
    state, token_targets,
};
use crate::{
    fields::DataType,
    targets::{
        Annotation, Annotations, ClassSource, ClassVocabulary, EventSource, FrameColumns, FramesRule,
        MOST_CLASSES, OverlapRule, SequenceRule, TargetConfig, TargetForm,
    },
};

#[pyclass(module = "forebay._core", name = "_Target", frozen)]
pub struct PyTarget(TargetConfig);

#[pymethods]
impl PyTarget {
    /// Checks the fields of class `kind`; `names` are those in its list or file of classes, `annotations` the
    /// rows of its table: path, start, end and label.
    #[new]
    #[pyo3(signature = (kind, fields, names, annotations=None))]
    fn new(
        kind: &str,
        fields: &Bound<'_, PyDict>,
        names: Option<Vec<String>>,
        annotations: Option<Vec<(String, f64, f64, String)>>,
    ) -> PyResult<Self> {
        let mut given = RecipeFields::new(fields.clone());
        let description = state::json(fields.as_any())?;
        let mut listed = None;
        let column = match kind {
            _ if annotations.is_some() => "path".to_owned(),
            "Frames" => {
                let [label, start, end] = listed_columns(&given)?;
                listed = Some([start, end]);
                label
            }
            _ => given.get("column")?,
        };
        let mut config = TargetConfig { description, ..TargetConfig::column(&column) };
        config.description["type"] = kind.into();
        if config.column.is_empty() {
            given.problems.push("column is '', must be the name of a column".to_owned());
        }
        if given.has("classes")? {
            config.classes = classes(&mut given, names)?;
            config.ignores_unknown = given.one_of("unknown", &["error", "ignore"])? == 1;
        }
        config.form = match kind {
            "ClassIndex" => class_index(&mut given, &mut config)?,
            "MultiHot" => multi_hot(&mut given, &mut config)?,
            "Soft" => soft(&mut given, &mut config)?,
            "Number" => number(&mut given, &mut config)?,
            "Text" => {
                config.null = (given.one_of("null", &["empty", "error"])? == 0).then_some(0.0);
                let max_bytes = given.count("max_bytes", 1 << 20)?.unwrap_or(1) as u64;
                TargetForm::Text { max_bytes }
            }
            "Tokens" | "Characters" => {
                config.null = (given.one_of("null", &["error", "empty"])? == 1).then_some(0.0);
                config.dtype = DataType::Int64;
                TargetForm::Tokens(match kind {
                    "Tokens" => token_targets::tokens(&mut given)?,
                    _ => token_targets::characters(&mut given)?,
                })
            }
            "Annotations" => overlap(&mut given, &mut config, annotations)?,
            "Frames" => {
                config.dtype = DataType::Uint8;
                let events = match listed {
                    Some(times) => EventSource::Columns(times),
                    None => EventSource::Table(table(fields.py(), annotations)?),
                };
                let (columns, grid) = (frame_columns(&mut given)?, frame_grid(&mut given)?);
                TargetForm::Frames(FramesRule { events, columns, grid })
            }
            "Words" => words(&mut given)?,
            "Sequence" => sequence(&mut given)?,
            other => return Err(PyTypeError::new_err(format!("{other} is no target"))),
        };
        given.check()?;
        Ok(Self(config))
    }
}

/// The most values per second of a `Sequence`.
const MOST_RATE: f64 = 1e6;

/// The most speakers of a clip that have columns.
const MOST_SPEAKERS: i64 = 1 << 12;

/// The least and the most seconds from a frame to the next, and of a frame.
const FRAME_SECONDS: [f64; 2] = [1e-4, 3600.0];

fn class_index(given: &mut RecipeFields<'_>, config: &mut TargetConfig) -> PyResult<TargetForm> {
    config.dtype = DataType::Int64;
    config.null = given.number_or_error("null")?;
    // Beyond 2^53 not every whole number is one of float64.
    let is_whole = |null: f64| null.fract() == 0.0 && null.abs() <= 2f64.powi(53);
    if let Some(null) = config.null.filter(|&null| !is_whole(null)) {
        given
            .problems
            .push(format!("null is {null:?}, must be a whole number of at most 2^53 in size, or \"error\""));
    }
    Ok(TargetForm::Class)
}

fn multi_hot(given: &mut RecipeFields<'_>, config: &mut TargetConfig) -> PyResult<TargetForm> {
    config.dtype = DataType::Float32;
    config.null = (given.one_of("null", &["zeros", "error"])? == 0).then_some(0.0);
    let [smoothing, weight] = ["smoothing", "secondary_weight"].map(|name| given.share(name));
    let separator: Option<String> = given.get("separator")?;
    if separator.as_deref() == Some("") {
        given.problems.push("separator is '', must have at least one character".to_owned());
    }
    let secondary: Option<String> = given.get("secondary")?;
    let (smoothing, weight) = (smoothing? as f32, weight? as f32);
    Ok(TargetForm::MultiHot { secondary: secondary.map(|name| (name, weight)), smoothing, separator })
}

fn soft(given: &mut RecipeFields<'_>, config: &mut TargetConfig) -> PyResult<TargetForm> {
    config.null = (given.one_of("null", &["zeros", "error"])? == 0).then_some(0.0);
    config.dtype = dtype(given, &[DataType::Float32, DataType::Float64, DataType::Float16])?;
    let size = given.count("size", 1 << 16)?;
    Ok(TargetForm::Soft { size: size.map(|size| size as u64) })
}

fn number(given: &mut RecipeFields<'_>, config: &mut TargetConfig) -> PyResult<TargetForm> {
    use DataType::*;
    config.null = given.number_or_error("null")?;
    config.dtype = dtype(given, &[Float32, Float64, Float16, Int64, Int32, Int16, Int8, Uint8, Bool])?;
    if let Some(null) = config.null.filter(|&null| !config.dtype.holds_real(null)) {
        given.problems.push(format!(
            "null is {null:?}, which is no {}; give another dtype or null",
            config.dtype.name()
        ));
    }
    Ok(TargetForm::Number)
}

fn overlap(
    given: &mut RecipeFields<'_>,
    config: &mut TargetConfig,
    annotations: Option<Vec<(String, f64, f64, String)>>,
) -> PyResult<TargetForm> {
    config.dtype = DataType::Float32;
    let all = table(given.py(), annotations)?;
    let (seconds, share) = (given.get("min_overlap")?, given.share("min_share")?);
    if !(0.0..=86_400.0).contains(&seconds) {
        given.problems.push(format!("min_overlap is {seconds:?}, must be 0 to 86400 seconds"));
    }
    let is_of_annotation = given.one_of("of", &["annotation", "window"])? == 0;
    let is_share = given.one_of("value", &["presence", "share"])? == 1;
    let least = OverlapRule { seconds, share, is_of_annotation };
    Ok(TargetForm::Annotations { all, least, is_share })
}

fn words(given: &mut RecipeFields<'_>) -> PyResult<TargetForm> {
    let times = [given.get("starts")?, given.get("ends")?];
    for (name, column) in ["starts", "ends"].iter().zip(&times) {
        if String::is_empty(column) {
            given.problems.push(format!("{name} is '', must be the name of a column"));
        }
    }
    Ok(TargetForm::Words(times))
}

fn sequence(given: &mut RecipeFields<'_>) -> PyResult<TargetForm> {
    let (rate, pad): (f64, f64) = (given.get("rate")?, given.get("pad")?);
    if !(rate > 0.0 && rate <= MOST_RATE) {
        given.problems.push(format!("rate is {rate:?}, must be above 0 and at most {MOST_RATE:?}"));
    }
    // Whole numbers and float32 hold it alike.
    if pad.abs() > 2f64.powi(53) {
        given.problems.push(format!("pad is {pad:?}, must be at most 2^53 in size"));
    }
    Ok(TargetForm::Sequence(SequenceRule { rate, pad }))
}

/// The rows of a table of annotations.
fn table(py: Python<'_>, rows: Option<Vec<(String, f64, f64, String)>>) -> PyResult<Arc<Annotations>> {
    let rows = rows.unwrap_or_default().into_iter();
    let rows = rows.map(|(path, start, end, label)| Annotation { path, start, end, label });
    Annotations::new(rows.collect()).map(Arc::new).map_err(|error| to_python(py, &error))
}

/// The columns of labels, starts and ends that `Frames` names.
fn listed_columns(given: &RecipeFields<'_>) -> PyResult<[String; 3]> {
    const EXPECTED: &str = "a table of annotations, or a dict that names the columns of a row's lists, as in {\"label\": \"speakers\", \
         \"start\": \"starts\", \"end\": \"ends\"}";
    let value = given.value("annotations")?;
    let wrong = || wrong_type("annotations", &value, EXPECTED);
    let dict = value.cast::<PyDict>().map_err(|_| wrong())?;
    if dict.len() != 3 {
        return Err(wrong());
    }
    let mut found = <[String; 3]>::default();
    for (place, name) in found.iter_mut().zip(["label", "start", "end"]) {
        *place = dict.get_item(name)?.and_then(|column| column.extract().ok()).ok_or_else(wrong)?;
    }
    Ok(found)
}

/// What the columns of `Frames` are.
fn frame_columns(given: &mut RecipeFields<'_>) -> PyResult<FrameColumns> {
    let by_start = given.one_of("order", &["talk time", "start"])? == 1;
    let is_of_data = given.one_of("scope", &["file", "data"])? == 1;
    let speakers = given.count("speakers", MOST_SPEAKERS)?;
    let Some(n) = speakers else {
        if by_start || is_of_data {
            given.problems.push("order and scope are for speakers, and speakers is not given".to_owned());
        }
        return Ok(FrameColumns::Classes);
    };
    if !given.value("classes")?.is_none() {
        given.problems.push("classes and speakers are given; leave one of them out".to_owned());
    }
    if by_start && is_of_data {
        given.problems.push(
            "order is \"start\" and scope \"data\", in which each speaker has a column of its own; leave order out"
                .to_owned(),
        );
    }
    Ok(FrameColumns::Speakers { n: n as u32, by_start, is_of_data })
}

/// The step and the duration of frames, if they are not those of the features.
fn frame_grid(given: &mut RecipeFields<'_>) -> PyResult<Option<[f64; 2]>> {
    let [step, duration] = ["step", "duration"].map(|name| given.get::<Option<f64>>(name));
    let (step, duration) = (step?, duration?);
    let Some(step) = step else {
        if duration.is_some() {
            given.problems.push(
                "duration is given, and step is not; give both, or none for the frames of the features"
                    .to_owned(),
            );
        }
        return Ok(None);
    };
    let grid = [step, duration.unwrap_or(step)];
    let [least, most] = FRAME_SECONDS;
    for (name, seconds) in ["step", "duration"].into_iter().zip(grid) {
        if !(least..=most).contains(&seconds) {
            given.problems.push(format!("{name} is {seconds:?}, must be {least:?} to {most:?} seconds"));
        }
    }
    Ok(Some(grid))
}

fn dtype(given: &mut RecipeFields<'_>, allowed: &[DataType]) -> PyResult<DataType> {
    let names: Vec<_> = allowed.iter().map(|dtype| dtype.name()).collect();
    Ok(allowed[given.one_of("dtype", &names)?])
}

fn classes(given: &mut RecipeFields<'_>, names: Option<Vec<String>>) -> PyResult<ClassSource> {
    if let Some(names) = names {
        let names = Arc::new(names);
        given
            .problems
            .extend(ClassVocabulary::of_names(names.clone(), "classes").err().map(|error| error.message));
        return Ok(ClassSource::Names(names));
    }
    let found = given.value("classes")?;
    if found.is_none() {
        return Ok(ClassSource::Any);
    }
    if found.extract::<String>().is_ok() {
        return Ok(
            [ClassSource::Schema, ClassSource::Data][given.one_of("classes", &["schema", "data"])?].clone()
        );
    }
    Ok(ClassSource::Count(given.count("classes", MOST_CLASSES as i64)?.unwrap_or(1) as u64))
}

impl Argument for Option<Vec<TargetConfig>> {
    const EXPECTED: &'static str = "a dict of str and objects of forebay.targets, or one object";
    const IS_OPTIONAL: bool = true;

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if given.is_none() {
            return Ok(None);
        }
        let one = |name: &str, object: &Bound<'_, PyAny>| {
            let plan = plan::<PyTarget>(object)?;
            PyResult::Ok(plan.map(|plan| TargetConfig { name: name.to_owned(), ..plan.get().0.clone() }))
        };
        if let Some(target) = one("label", given)? {
            return Ok(Some(vec![target]));
        }
        let mut targets = Vec::new();
        for [field, object] in mapping_items(given)?.ok_or(ArgumentError::Type)? {
            let field: String =
                field.extract().map_err(|_| wrong_type(&format!("a name in {name}"), &field, "a str"))?;
            let place = format!("{name}[{field:?}]");
            targets.push(one(&field, &object)?.ok_or_else(|| {
                wrong_type(&place, &object, "an object of forebay.targets, such as ClassIndex(\"label\")")
            })?);
            if field.is_empty() {
                problems.push(format!("{name} has the name '', must have at least one character"));
            }
        }
        Ok(Some(targets))
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Some(targets) = self else { return Ok(py.None().into_bound(py)) };
        let dict = PyDict::new(py);
        for target in targets {
            dict.set_item(&target.name, state::made(py, Some(&target.description))?)?;
        }
        Ok(dict.into_any())
    }
}
