//! The objects of `forebay.text`, and the files of a loader of documents.

use std::path::PathBuf;

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};

use super::{
    arguments::{Argument, ArgumentError, mapping_items, plan},
    chat,
    recipe_fields::RecipeFields,
    sources::{refuse_splits, source_name, text_files},
    text_draws,
};
use crate::{
    chat::ChatTemplate,
    config::{ChatRule, DrawRule, TextRows, TextSources},
    source::{IdFields, PairColumns, TextContent},
};

/// The description of the rows of files.
#[pyclass(module = "forebay._core", name = "_TextRows", frozen)]
pub struct PyTextRows(TextRows);

#[pymethods]
impl PyTextRows {
    /// Checks the fields of class `kind`.
    #[new]
    fn new(kind: &str, fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut given = RecipeFields::new(fields.clone());
        let mut content = match kind {
            "Documents" => TextContent::Texts,
            "Ids" => TextContent::Ids(IdFields::default()),
            "Chat" => TextContent::Chat(given.get("tools")?),
            "Pairs" => TextContent::Pairs(PairColumns {
                rejected: given.get("rejected")?,
                prompt: given.get("prompt")?,
            }),
            other => return Err(PyTypeError::new_err(format!("{other} names no rows of text"))),
        };
        let paths = text_files("path", &given.value("path")?, Vec::<PathBuf>::EXPECTED)?;
        let column_field = content.column_field();
        let column: String = given.get(column_field)?;
        if column.is_empty() {
            given.problems.push(format!("{column_field} is \"\", must be the name of a column"));
        }
        if let TextContent::Pairs(PairColumns { rejected, prompt }) = &content {
            let named = [("rejected", Some(rejected)), ("prompt", prompt.as_ref())];
            let mut before = vec![&column];
            for (name, named) in named.into_iter().filter_map(|(name, named)| Some((name, named?))) {
                if named.is_empty() || before.contains(&named) {
                    given.problems.push(format!(
                        "{name} is {named:?}, must be the name of a column of its own{}",
                        if name == "prompt" { ", or None" } else { "" }
                    ));
                }
                before.push(named);
            }
        }
        if let TextContent::Ids(fields) = &mut content {
            (fields.labels, fields.weights) = (given.get("labels")?, given.get("weights")?);
            for (name, named) in [("labels", &fields.labels), ("weights", &fields.weights)] {
                if named.as_ref().is_some_and(|named| named.is_empty() || *named == column) {
                    given.problems.push(format!(
                        "{name} is {:?}, must be the name of another column than that of the ids, or None",
                        named.as_deref().unwrap_or_default()
                    ));
                }
            }
        }
        let chat = match &content {
            TextContent::Chat(_) | TextContent::Pairs(_) => Some(chat_rule(&mut given)?),
            _ => None,
        };
        let draws = match &content {
            TextContent::Texts => text_draws::rule(&mut given)?,
            _ => DrawRule::default(),
        };
        given.check()?;
        Ok(Self(TextRows { paths, column: Some(column), content, chat, draws }))
    }

    /// The files, as they were given.
    #[getter]
    fn paths<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.paths.to_python(py)
    }
}

fn chat_rule(given: &mut RecipeFields<'_>) -> PyResult<ChatRule> {
    let (template, train_on): (String, String) = (given.get("template")?, given.get("train_on")?);
    let is_known = template == "tokenizer" || ChatTemplate::named(&template).is_some();
    if !is_known && !template.contains("{{") && !template.contains("{%") {
        given.problems.push(format!(
            "template is {template:?}, must be \"tokenizer\", {}, or the text of a template of Jinja",
            chat::names()
        ));
    }
    let found = chat::TRAIN_ON.iter().find(|(name, _)| *name == train_on);
    if found.is_none() {
        given.problems.push(format!("train_on is {train_on:?}, must be \"assistant\", \"last\" or \"all\""));
    }
    Ok(ChatRule { template, train_on: found.map(|(_, train_on)| *train_on).unwrap_or_default() })
}

impl Argument for TextRows {
    const EXPECTED: &'static str =
        "a path, a sequence of paths, a datasets.Dataset, or an object of forebay.text";

    fn read(name: &str, given: &Bound<'_, PyAny>, _: &mut Vec<String>) -> Result<Self, ArgumentError> {
        if let Some(rows) = plan::<PyTextRows>(given)? {
            return Ok(rows.get().0.clone());
        }
        Ok(Self { paths: text_files(name, given, Self::EXPECTED)?, ..Self::default() })
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let paths = self.paths.to_python(py)?;
        match &self.column {
            None => Ok(paths),
            Some(column) => {
                let text = py.import("forebay.text")?;
                let rule = self.chat.as_ref();
                let template = rule.map(|rule| &*rule.template);
                let train_on = rule.map(|rule| chat::train_on_name(rule.train_on));
                match &self.content {
                    TextContent::Texts => {
                        let keywords = text_draws::keywords(py, &self.draws)?;
                        text.getattr("Documents")?.call((paths, column), Some(&keywords))
                    }
                    TextContent::Ids(IdFields { labels, weights }) => {
                        text.getattr("Ids")?.call1((paths, column, labels.as_deref(), weights.as_deref()))
                    }
                    TextContent::Pairs(PairColumns { rejected, prompt }) => {
                        let prompt = prompt.as_deref();
                        text.getattr("Pairs")?.call1((paths, column, rejected, prompt, template, train_on))
                    }
                    TextContent::Chat(tools) => {
                        text.getattr("Chat")?.call1((paths, column, template, train_on, tools.as_deref()))
                    }
                }
            }
        }
    }
}

impl Argument for TextSources {
    const EXPECTED: &'static str = "a path, a sequence of paths, a datasets.Dataset, or an object of forebay.text, or a dict of these by source";

    fn read(name: &str, given: &Bound<'_, PyAny>, problems: &mut Vec<String>) -> Result<Self, ArgumentError> {
        refuse_splits(name, given)?;
        let Some(items) = mapping_items(given)? else {
            return Ok(Self { names: None, rows: vec![TextRows::read(name, given, problems)?] });
        };
        let (mut names, mut rows) = (Vec::new(), Vec::new());
        for [source, files] in items {
            names.push(source_name(name, &source)?);
            rows.push(TextRows::read(&format!("{name}[{}]", source.repr()?), &files, problems)?);
        }
        Ok(Self { names: Some(names), rows })
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Some(names) = &self.names else { return self.rows[0].to_python(py) };
        let dict = PyDict::new(py);
        for (name, rows) in names.iter().zip(&self.rows) {
            dict.set_item(name, rows.to_python(py)?)?;
        }
        Ok(dict.into_any())
    }
}
