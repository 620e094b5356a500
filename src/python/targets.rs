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
        Annotation, Annotations, ClassSource, ClassVocabulary, MOST_CLASSES, OverlapRule, TargetConfig,
        TargetForm,
    },
};

/// The description of a target.
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
        let column = if annotations.is_some() { "path".to_owned() } else { given.get("column")? };
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
            "ClassIndex" => {
                config.dtype = DataType::Int64;
                config.null = given.number_or_error("null")?;
                // Beyond 2^53 not every whole number is one of float64.
                let is_whole = |null: f64| null.fract() == 0.0 && null.abs() <= 2f64.powi(53);
                if let Some(null) = config.null.filter(|&null| !is_whole(null)) {
                    given.problems.push(format!(
                        "null is {null:?}, must be a whole number of at most 2^53 in size, or \"error\""
                    ));
                }
                TargetForm::Class
            }
            "MultiHot" => {
                config.dtype = DataType::Float32;
                config.null = (given.one_of("null", &["zeros", "error"])? == 0).then_some(0.0);
                let [smoothing, weight] = ["smoothing", "secondary_weight"].map(|name| given.share(name));
                let separator: Option<String> = given.get("separator")?;
                if separator.as_deref() == Some("") {
                    given.problems.push("separator is '', must have at least one character".to_owned());
                }
                let secondary: Option<String> = given.get("secondary")?;
                let (smoothing, weight) = (smoothing? as f32, weight? as f32);
                TargetForm::MultiHot { secondary: secondary.map(|name| (name, weight)), smoothing, separator }
            }
            "Soft" => {
                config.null = (given.one_of("null", &["zeros", "error"])? == 0).then_some(0.0);
                config.dtype = dtype(&mut given, &[DataType::Float32, DataType::Float64, DataType::Float16])?;
                let size = given.count("size", 1 << 16)?;
                TargetForm::Soft { size: size.map(|size| size as u64) }
            }
            "Number" => {
                use DataType::*;
                config.null = given.number_or_error("null")?;
                config.dtype =
                    dtype(&mut given, &[Float32, Float64, Float16, Int64, Int32, Int16, Int8, Uint8, Bool])?;
                if let Some(null) = config.null.filter(|&null| !config.dtype.holds_real(null)) {
                    given.problems.push(format!(
                        "null is {null:?}, which is no {}; give another dtype or null",
                        config.dtype.name()
                    ));
                }
                TargetForm::Number
            }
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
            "Annotations" => {
                config.dtype = DataType::Float32;
                let rows = annotations.unwrap_or_default().into_iter();
                let rows = rows.map(|(path, start, end, label)| Annotation { path, start, end, label });
                let all = Annotations::new(rows.collect()).map_err(|error| to_python(fields.py(), &error))?;
                let (seconds, share) = (given.get("min_overlap")?, given.share("min_share")?);
                if !(0.0..=86_400.0).contains(&seconds) {
                    given.problems.push(format!("min_overlap is {seconds:?}, must be 0 to 86400 seconds"));
                }
                let is_of_annotation = given.one_of("of", &["annotation", "window"])? == 0;
                let is_share = given.one_of("value", &["presence", "share"])? == 1;
                let least = OverlapRule { seconds, share, is_of_annotation };
                TargetForm::Annotations { all: Arc::new(all), least, is_share }
            }
            other => return Err(PyTypeError::new_err(format!("{other} is no target"))),
        };
        given.check()?;
        Ok(Self(config))
    }
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
