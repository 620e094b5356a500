//! What `forebay.text.Documents` draws for each text: fill in the middle, and BPE dropout.

use pyo3::{
    prelude::*,
    types::{PyBool, PyDict},
};
use serde_json::{Value, json};

use super::{
    arguments::{id, wrong_type},
    recipe_fields::RecipeFields,
    vocabulary::UserTokenizer,
};
use crate::{
    Error, ErrorKind, Result,
    config::{DrawRule, NamedToken},
    infill::{Infill, InfillCut, InfillTokens},
    tasks::TextDraws,
    tokenizer::Tokenizer,
};

/// The parameters of the sentinels, in the order of [`DrawRule::fim_tokens`].
const SENTINELS: [&str; 3] = ["fim_prefix", "fim_middle", "fim_suffix"];
const CUTS: [(&str, InfillCut); 2] = [("characters", InfillCut::Characters), ("tokens", InfillCut::Tokens)];

/// Reads the fields of `Documents`.
pub fn rule(given: &mut RecipeFields<'_>) -> PyResult<DrawRule> {
    let (fim, fim_spm) = (given.share("fim")?, given.share("fim_spm")?);
    let fim_cut = CUTS[given.one_of("fim_cut", &CUTS.map(|(name, _)| name))?].1;
    let bpe_dropout = given.share("bpe_dropout")?;
    let mut fim_tokens = [const { None }; 3];
    for (name, token) in SENTINELS.iter().zip(&mut fim_tokens) {
        let value = given.value(name)?;
        if value.is_none() {
            continue;
        }
        let is_bool = value.is_instance_of::<PyBool>();
        *token = Some(if let Ok(text) = value.extract() {
            NamedToken::Text(text)
        } else if let Ok(number) = value.extract::<i64>()
            && !is_bool
        {
            NamedToken::Id(id(given.py(), name, number)?)
        } else {
            return Err(wrong_type(name, &value, "the text or the id of a token, or None"));
        });
    }
    let rule = DrawRule { fim, fim_spm, fim_cut, fim_tokens, bpe_dropout };
    let n_given = rule.fim_tokens.iter().flatten().count();
    if n_given == 1 || n_given == 2 {
        let missing: Vec<_> = SENTINELS
            .iter()
            .zip(&rule.fim_tokens)
            .filter_map(|(name, token)| token.is_none().then_some(*name))
            .collect();
        given
            .problems
            .push(format!("fim lacks {}; give all three sentinels, or none", missing.join(" and ")));
    }
    let usual = DrawRule { bpe_dropout, ..DrawRule::default() };
    if fim == 0.0 && rule != usual {
        given.problems.push(
            "fim is 0, so no text is rearranged; give the share of texts, such as fim=0.5, or leave the other parameters of fim out"
                .to_owned(),
        );
    }
    Ok(rule)
}

/// The fields as keywords of `Documents`.
pub fn keywords<'py>(py: Python<'py>, rule: &DrawRule) -> PyResult<Bound<'py, PyDict>> {
    let keywords = PyDict::new(py);
    keywords.set_item("fim", rule.fim)?;
    keywords.set_item("fim_spm", rule.fim_spm)?;
    keywords.set_item("fim_cut", cut_name(rule.fim_cut))?;
    for (name, token) in SENTINELS.iter().zip(&rule.fim_tokens) {
        match token {
            None => keywords.set_item(name, py.None())?,
            Some(NamedToken::Id(id)) => keywords.set_item(name, id)?,
            Some(NamedToken::Text(text)) => keywords.set_item(name, text)?,
        }
    }
    keywords.set_item("bpe_dropout", rule.bpe_dropout)?;
    Ok(keywords)
}

fn cut_name(cut: InfillCut) -> &'static str {
    CUTS.iter().find(|(_, known)| *known == cut).map_or("characters", |(name, _)| *name)
}

/// The plan of a rule for a tokenizer; adds to `identity` what the ids depend on.
///
/// # Errors
/// [`ErrorKind::Config`] if the tokenizer has no sentinels, or no merges to leave out.
pub fn plan(
    rule: &DrawRule,
    opened: &UserTokenizer,
    identity: &mut Vec<(&'static str, Value)>,
) -> Result<TextDraws> {
    let mut draws = TextDraws::default();
    if rule.bpe_dropout > 0.0 {
        let Some(tokenizer) = &opened.opened else {
            return wrong(
                "bpe_dropout needs a tokenizer's file or object, not a callable; leave it out".to_owned(),
            );
        };
        let refused = |error: Error| Error {
            message: format!("bpe_{}", error.message.replace("out dropout=", "out bpe_dropout=")),
            ..error
        };
        draws.dropout = Some(tokenizer.dropout(rule.bpe_dropout).map_err(refused)?);
        identity.push(("bpe_dropout", rule.bpe_dropout.into()));
    }
    if rule.fim > 0.0 {
        let [prefix, middle, suffix] = sentinels(rule, opened)?;
        if rule.fim_cut == InfillCut::Characters
            && let Some(tokenizer) = &opened.opened
        {
            check_parts(tokenizer)?;
        }
        let tokens = InfillTokens { prefix, middle, suffix };
        draws.infill = Some(Infill { rate: rule.fim, spm: rule.fim_spm, cut: rule.fim_cut, tokens });
        identity.push(("fim", rule.fim.into()));
        identity.push(("fim_spm", rule.fim_spm.into()));
        identity.push(("fim_cut", cut_name(rule.fim_cut).into()));
        identity.push(("fim_tokens", json!([prefix, middle, suffix])));
    }
    Ok(draws)
}

fn wrong<T>(message: String) -> Result<T> {
    Err(Error::new(ErrorKind::Config, message))
}

/// The ids of prefix, middle and suffix: as given, or the tokenizer's by known names.
fn sentinels(rule: &DrawRule, opened: &UserTokenizer) -> Result<[u32; 3]> {
    let id_of = |text: &str| opened.opened.as_ref().and_then(|tokenizer| tokenizer.token_to_id(text));
    let of_names = |names: &[&str; 3]| {
        let [prefix, middle, suffix] = names.map(id_of);
        Some([prefix?, middle?, suffix?])
    };
    let [Some(prefix), Some(middle), Some(suffix)] = &rule.fim_tokens else {
        let Some(tokenizer) = &opened.opened else {
            return wrong(
                "fim needs fim_prefix, fim_middle and fim_suffix, the ids of its sentinels, since the tokenizer is a callable"
                    .to_owned(),
            );
        };
        return InfillTokens::NAMES.iter().find_map(of_names).map_or_else(
            || {
                wrong(format!(
                    "fim is {}, but {tokenizer:?} has no tokens {} or of another known name; add them to the tokenizer, or name its \
                     sentinels by fim_prefix, fim_middle and fim_suffix",
                    rule.fim,
                    InfillTokens::NAMES[0].join(", ")
                ))
            },
            Ok,
        );
    };
    let mut ids = [0; 3];
    for ((token, name), id) in [prefix, middle, suffix].into_iter().zip(SENTINELS).zip(&mut ids) {
        *id = match token {
            NamedToken::Id(id) => {
                if let Some(tokenizer) = opened.opened.as_ref().filter(|it| *id as usize >= it.n_vocab()) {
                    return wrong(format!(
                        "{name} is {id}, but the ids of {tokenizer:?} are below {}",
                        tokenizer.n_vocab()
                    ));
                }
                *id
            }
            NamedToken::Text(text) => match (id_of(text), &opened.opened) {
                (Some(id), _) => id,
                (None, Some(tokenizer)) => {
                    return wrong(format!(
                        "{name} is {text:?}, which is no token of {tokenizer:?}; add it, or give another"
                    ));
                }
                (None, None) => {
                    return wrong(format!(
                        "{name} is {text:?}, but the tokenizer is a callable; give the id"
                    ));
                }
            },
        };
    }
    if ids[0] == ids[1] || ids[1] == ids[2] || ids[0] == ids[2] {
        return wrong(format!("the sentinels of fim are {ids:?}, must be three different tokens"));
    }
    for (name, id) in SENTINELS.iter().zip(ids) {
        let of_frame = [("BOS", Some(opened.bos)), ("EOS", opened.eos)];
        if let Some((frame, _)) = of_frame.iter().find(|(_, known)| *known == Some(id)) {
            return wrong(format!(
                "{name} is the token {id}, which is {frame}, so a document would begin or end at it; give a token of its own"
            ));
        }
    }
    let is_known = InfillTokens::NAMES.iter().filter_map(of_names).any(|known| known == ids);
    if !is_known {
        refuse_ordinary(ids, opened)?;
    }
    Ok(ids)
}

/// Checks that no sentinel is a token that ordinary text has, too. The ids of a callable cannot be checked.
fn refuse_ordinary(ids: [u32; 3], opened: &UserTokenizer) -> Result<()> {
    let Some(tokenizer) = &opened.opened else { return Ok(()) };
    let Some((name, id)) = SENTINELS.iter().zip(ids).find(|(_, id)| tokenizer.is_ordinary(*id)) else {
        return Ok(());
    };
    wrong(format!(
        "{name} is the token {id} ({:?}), which {tokenizer:?} also makes of ordinary text, so a model could not tell the parts apart; \
         give a special token, or add one to the tokenizer",
        tokenizer.decode(&[id])?
    ))
}

/// Checks that the ids of two parts are those of a text.
///
/// Some tokenizers begin each text with a space, which would be in the middle of a word.
fn check_parts(tokenizer: &Tokenizer) -> Result<()> {
    let mut ids = Vec::new();
    tokenizer.encode_ordinary("fo", &mut ids)?;
    tokenizer.encode_ordinary("o", &mut ids)?;
    let text = tokenizer.decode(&ids)?;
    if text == "foo" {
        return Ok(());
    }
    wrong(format!(
        "fim cuts between characters, but {tokenizer:?} does not encode the parts of a text as parts (the ids of \"fo\" and \"o\" are \
         the text {text:?}); pass fim_cut=\"tokens\""
    ))
}
