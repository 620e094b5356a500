//! `forebay.targets.Tokens` and `Characters`, checked: from the values of their fields to a [`TokensRule`].

use std::{collections::BTreeMap, ops::RangeInclusive, path::PathBuf, sync::Arc};

use forebay_text::{Characters, CharactersOptions, SpecialToken, TranscriptFormat, TranscriptOptions};
use pyo3::{
    prelude::*,
    pybacked::PyBackedStr,
    types::{PyBool, PyDict},
};

use super::{
    arguments::{argument, items, wrong_type},
    errors::to_python,
    interruptible::run_interruptible,
    recipe_fields::RecipeFields,
};
use crate::{
    error::shown,
    seed::mix,
    targets::{TextEncoder, TokensRule},
    tokenizer::{Tokenizer, TokenizerOptions},
};

/// The most tokens that a row may be given room for.
const MOST_TOKENS: i64 = 1 << 20;

const PADS: RangeInclusive<i64> = -(1 << 31)..=(1 << 31) - 1;

pub fn tokens(given: &mut RecipeFields<'_>) -> PyResult<TokensRule> {
    let py = given.py();
    let tokenizer = tokenizer(given)?;
    let timestamps: Option<f64> = given.get("timestamps")?;
    let (prefix, suffix) = (special(given, "prefix")?, special(given, "suffix")?);
    let dropout = given.share("dropout")?;
    let [starts, ends] = ["starts", "ends"].map(|name| given.get::<Option<String>>(name));
    let times = match (starts?, ends?) {
        (Some(starts), Some(ends)) => Some([starts, ends]),
        (None, None) => None,
        _ => {
            given.problems.push("starts and ends are columns of segments: give both, or none".to_owned());
            None
        }
    };
    if timestamps.is_some() && times.is_none() {
        let message = "timestamps is given, but no starts= and ends=, the columns of the times of segments";
        given.problems.push(message.to_owned());
    }
    given.check()?;
    let (fingerprint, options) = (
        tokenizer.fingerprint(),
        TranscriptOptions { prefix: borrowed(&prefix), suffix: borrowed(&suffix), timestamps, dropout },
    );
    let format = TranscriptFormat::new(tokenizer, &options).map_err(|error| to_python(py, &error))?;
    let least = format.n_special();
    let rule = rule(given, TextEncoder::Transcript(format), fingerprint)?;
    if let Some(most) = rule.most.filter(|&most| most < least as u64) {
        given
            .problems
            .push(format!("max_tokens is {most}, must be at least {least}, the tokens of prefix and suffix"));
    }
    Ok(TokensRule { times, ..rule })
}

pub fn characters(given: &mut RecipeFields<'_>) -> PyResult<TokensRule> {
    let py = given.py();
    let vocabulary: Vec<String> = given.value("vocabulary")?.extract()?;
    let [blank, between] = ["blank", "between"].map(|name| id(given, name));
    let options = CharactersOptions {
        blank: blank?,
        between: between?,
        around: given.get("around")?,
        ignores_unknown: given.one_of("unknown", &["error", "ignore"])? == 1,
    };
    given.check()?;
    let made = Characters::new(&vocabulary, &options).map_err(|error| to_python(py, &error))?;
    let entries = vocabulary.iter().flat_map(|entry| entry.bytes().map(u64::from).chain([u64::MAX]));
    let [blank, between] = [options.blank, options.between].map(|id| id.map_or(u64::MAX, u64::from));
    let flags = [blank, between, options.around.into(), options.ignores_unknown.into()];
    let fingerprint = entries.chain(flags).fold(0, |state, one| mix(state ^ mix(one)));
    rule(given, TextEncoder::Characters(Box::new(made)), fingerprint)
}

/// What all rules share.
fn rule(given: &mut RecipeFields<'_>, encoder: TextEncoder, fingerprint: u64) -> PyResult<TokensRule> {
    let pad: i64 = given.get("pad")?;
    if !PADS.contains(&pad) {
        given.problems.push(format!("pad is {}, must be a number of 32 bits", shown(pad)));
    }
    Ok(TokensRule {
        encoder: Arc::new(encoder),
        fingerprint,
        times: None,
        pad,
        pads_left: given.one_of("side", &["right", "left"])? == 1,
        most: given.count("max_tokens", MOST_TOKENS)?.map(|most| most as u64),
        cuts: given.one_of("on_long", &["skip", "cut"])? == 1,
        most_per_second: per_second(given)?,
    })
}

/// The most tokens for a second of audio.
fn per_second(given: &mut RecipeFields<'_>) -> PyResult<Option<f64>> {
    let most: Option<f64> = given.get("max_per_second")?;
    if let Some(most) = most.filter(|most| !(*most > 0.0 && most.is_finite())) {
        given.problems.push(format!("max_per_second is {most:?}, must be above 0"));
    }
    Ok(most)
}

/// The tokenizer: the path of its file, or a dict of the path, and what a rank file lacks.
fn tokenizer(given: &RecipeFields<'_>) -> PyResult<Tokenizer> {
    let (py, value) = (given.py(), given.value("tokenizer")?);
    let (path, options) = match value.cast::<PyDict>() {
        Err(_) => (value.extract::<PathBuf>()?, TokenizerOptions::default()),
        Ok(dict) => {
            let path = dict
                .get_item("path")?
                .ok_or_else(|| wrong_type("tokenizer", &value, "a dict with a path"))?;
            let get = |name| dict.get_item(name).map(|found| found.filter(|found| !found.is_none()));
            let pattern = get("pattern")?.map(|pattern| argument::pattern(&pattern)).transpose()?.flatten();
            let special: Option<BTreeMap<String, u32>> =
                get("special_tokens")?.map(|tokens| argument::special_tokens(&tokens)).transpose()?.flatten();
            let options = TokenizerOptions {
                pattern,
                special_tokens: special.unwrap_or_default(),
                ..TokenizerOptions::default()
            };
            (path.extract()?, options)
        }
    };
    run_interruptible(py, "forebay-tokenizer", move || Tokenizer::open(&path, &options))
}

/// A special token as Python has it.
enum Given {
    Id(u32),
    Text(PyBackedStr),
}

fn borrowed(tokens: &[Given]) -> Vec<SpecialToken<'_>> {
    let one = |token| match token {
        &Given::Id(id) => SpecialToken::Id(id),
        Given::Text(text) => SpecialToken::Text(text),
    };
    tokens.iter().map(one).collect()
}

fn special(given: &mut RecipeFields<'_>, name: &str) -> PyResult<Vec<Given>> {
    const EXPECTED: &str =
        "a sequence of ids and texts of special tokens, such as [\"<|en|>\", \"<|transcribe|>\"]";
    let value = given.value(name)?;
    let each = items(&value)?.ok_or_else(|| wrong_type(name, &value, EXPECTED))?;
    let mut tokens = Vec::new();
    for one in each {
        let one = one?;
        if one.is_instance_of::<PyBool>() {
            return Err(wrong_type(name, &value, EXPECTED)); // a whole number to Python
        } else if let Ok(text) = one.extract() {
            // bounded: by the list.
            tokens.push(Given::Text(text));
        } else if let Ok(id) = one.extract::<i64>() {
            match u32::try_from(id) {
                Ok(id) => tokens.push(Given::Id(id)),
                Err(_) => given.problems.push(format!("{name} has {id}, must have ids of 0 to 2^31 - 1")),
            }
        } else {
            return Err(wrong_type(name, &value, EXPECTED));
        }
    }
    Ok(tokens)
}

fn id(given: &mut RecipeFields<'_>, name: &str) -> PyResult<Option<u32>> {
    let value: Option<i64> = given.get(name)?;
    Ok(value.and_then(|value| {
        let id = u32::try_from(value).ok();
        if id.is_none() {
            given.problems.push(format!("{name} is {}, must be an id of 0 to 2^31 - 1", shown(value)));
        }
        id
    }))
}
