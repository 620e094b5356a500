//! The template of `forebay.text.Chat`: by name, as text, or that of the tokenizer.

use std::{
    fs,
    path::{Path, PathBuf},
};

use pyo3::{prelude::*, types::PyDict};
use serde_json::{Map, Value};

use super::{errors::to_python, vocabulary::UserTokenizer};
use crate::{
    Error, ErrorKind, Result,
    chat::{ChatTemplate, TrainOn},
    config::ChatRule,
    seed::mix,
    tasks::ChatPlan,
};

/// The largest file of a tokenizer's folder that is read, bytes.
const MOST_BYTES: u64 = 16 << 20;

/// A template with its variables.
pub struct FoundTemplate {
    pub plan: ChatPlan,
    /// A hash of the template and its variables.
    pub fingerprint: u64,
}

/// The names of what is trained on.
pub const TRAIN_ON: [(&str, TrainOn); 3] =
    [("assistant", TrainOn::Assistant), ("last", TrainOn::Last), ("all", TrainOn::All)];

/// The name of what is trained on.
pub fn train_on_name(train_on: TrainOn) -> &'static str {
    TRAIN_ON.iter().find(|(_, known)| *known == train_on).map_or("assistant", |(name, _)| *name)
}

/// Finds and compiles the template of a rule, for a tokenizer as the user gave it and opened. Errors name the
/// `source` of a mixture.
pub fn template(
    rule: &ChatRule,
    tokenizer: &Bound<'_, PyAny>,
    opened: &UserTokenizer,
    source: Option<&str>,
) -> PyResult<FoundTemplate> {
    let raise = |error: Error| {
        let before = source.map_or_else(String::new, |source| format!("{source}: "));
        to_python(tokenizer.py(), &Error { message: format!("{before}{}", error.message), ..error })
    };
    if opened.callable.is_some() {
        let message = "a chat template needs a tokenizer's file or object, not a callable, whose special tokens are unknown";
        return Err(raise(Error::new(ErrorKind::Config, message)));
    }
    let known = described(tokenizer)?;
    let (source, special) = match (&*rule.template, ChatTemplate::named(&rule.template)) {
        (_, Some((source, special))) => {
            check_special(&rule.template, special, opened).map_err(raise)?;
            (source.to_owned(), known.special)
        }
        ("tokenizer", None) => match known.template {
            Some(template) => (template, known.special),
            None => {
                let message = format!(
                    "template is \"tokenizer\", but {} has no chat template; name one of {}, or pass a template of Jinja as text",
                    known.place,
                    names()
                );
                return Err(raise(Error::new(ErrorKind::Config, message)));
            }
        },
        (text, None) => (text.to_owned(), known.special),
    };
    let variables = Value::from(special.clone()).to_string();
    let bytes = source.bytes().chain([0]).chain(variables.bytes());
    let fingerprint = bytes.fold(0, |state, byte| mix(state ^ mix(byte.into())));
    let template = ChatTemplate::new(&source, special).map_err(raise)?.into();
    Ok(FoundTemplate { plan: ChatPlan { template, train_on: rule.train_on }, fingerprint })
}

/// The names of templates, for messages.
pub fn names() -> String {
    ChatTemplate::names().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

/// Checks that each special token of a template is one token.
fn check_special(name: &str, special: &[&str], opened: &UserTokenizer) -> Result<()> {
    let mut encoder = opened.vocabulary.encoder();
    for token in special {
        let mut ids = Vec::new();
        encoder.encode_marked(token, &[], &mut ids)?;
        if ids.len() != 1 {
            let message = format!(
                "the template {name:?} writes {token}, which is no token of the tokenizer; add it as a special token, or choose another \
                 template"
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
    }
    Ok(())
}

/// What a tokenizer says about conversations.
#[derive(Default)]
struct TemplateSource {
    template: Option<String>,
    /// Special tokens by their names, such as `bos_token`.
    special: Map<String, Value>,
    /// Where it was looked for.
    place: String,
}

fn described(tokenizer: &Bound<'_, PyAny>) -> PyResult<TemplateSource> {
    let py = tokenizer.py();
    if let Ok(path) = tokenizer.extract::<PathBuf>() {
        return in_folder(&path).map_err(|error| to_python(py, &error));
    }
    let mut found = TemplateSource {
        place: format!("the {}", tokenizer.get_type().name()?),
        ..TemplateSource::default()
    };
    if let Ok(special) = tokenizer.getattr("special_tokens_map")
        && let Ok(special) = special.cast::<PyDict>()
    {
        for (name, text) in special {
            if let (Ok(name), Ok(text)) = (name.extract::<String>(), text.extract::<String>()) {
                found.special.insert(name, text.into());
            }
        }
    }
    if let Ok(template) = tokenizer.getattr("chat_template") {
        found.template = template.extract().ok();
        if let Ok(by_name) = template.cast::<PyDict>() {
            found.template = by_name.get_item("default")?.and_then(|template| template.extract().ok());
        }
    }
    Ok(found)
}

/// What the files beside a tokenizer's file say.
fn in_folder(path: &Path) -> Result<TemplateSource> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let read = |name: &str| {
        let path = folder.join(name);
        match fs::metadata(&path) {
            Ok(file) if file.is_file() && file.len() <= MOST_BYTES => {}
            _ => return Ok(None),
        }
        fs::read(&path).map(Some).map_err(|cause| Error::io(&path, "read", cause))
    };
    let mut found = TemplateSource {
        place: format!("{} (tokenizer_config.json, chat_template.jinja)", folder.display()),
        ..TemplateSource::default()
    };
    if let Some(config) = read("tokenizer_config.json")? {
        let config: Value = serde_json::from_slice(&config).map_err(|cause| {
            Error::new(
                ErrorKind::Format,
                format!("{} is not JSON", folder.join("tokenizer_config.json").display()),
            )
            .because(cause)
        })?;
        for (name, value) in config.as_object().into_iter().flatten() {
            let text = value.as_str().or_else(|| value.get("content").and_then(Value::as_str));
            if let Some(text) = text.filter(|_| name.ends_with("_token")) {
                found.special.insert(name.clone(), text.into());
            }
        }
        let template = &config["chat_template"];
        let named = template.as_array().into_iter().flatten().find(|one| one["name"] == "default");
        let template = named.map_or(template, |named| &named["template"]);
        found.template = template.as_str().map(str::to_owned);
    }
    if let Some(template) = read("chat_template.jinja")? {
        let text = String::from_utf8(template).map_err(|_| {
            let path = folder.join("chat_template.jinja");
            Error::new(ErrorKind::Format, format!("{} is not UTF-8", path.display()))
        })?;
        found.template = Some(text);
    }
    Ok(found)
}
