//! [`PairForm`]: the messages of two conversations in a row, of which one is preferred.
//!
//! A row is a line with a JSON object, or a value of JSON for each column. Each conversation is a list of
//! messages; or, with a prompt, what follows the prompt, as messages or as the text of an answer.

use serde_json::{Value, json};

use super::conversation::{self, check_bytes, list, object, take};
use crate::{Error, ErrorKind, Result, columns::PairColumns, fields};

/// Where the parts of a pair are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairForm {
    /// The columns: those of the chosen and the rejected conversation, then that of the prompt, if any.
    names: Vec<Box<str>>,
    /// Whether a row is a line of JSON. Otherwise the record has the first column, its values the others.
    is_line: bool,
}

impl PairForm {
    pub(super) fn new(chosen: &str, PairColumns { rejected, prompt }: &PairColumns, is_line: bool) -> Self {
        let names = [chosen, rejected].into_iter().chain(prompt.as_deref()).map(Into::into).collect();
        Self { names, is_line }
    }

    /// The columns of the chosen and the rejected conversation, and of a prompt.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// The messages of both conversations, the chosen one first.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if one is no list of messages, or has the prompt as well;
    /// [`ErrorKind::Unreadable`] if one is null or missing, [`ErrorKind::TooLarge`].
    pub(super) fn read(&self, bytes: &[u8], values: &fields::Row) -> Result<[Vec<Value>; 2]> {
        let n_bytes = values.iter().map(|value| match value {
            fields::Value::Text(text) => text.len(),
            _ => 0,
        });
        check_bytes(bytes.len() + n_bytes.sum::<usize>())?;
        let columns = if self.is_line { self.of_line(bytes)? } else { self.of_columns(bytes, values)? };
        let mut columns = columns.into_iter().zip(self.names());
        let mut next = || columns.next().unwrap_or((Value::Null, ""));
        let (chosen, rejected) = (next(), next());
        let prompt = match columns.next() {
            Some((prompt, name)) => messages(prompt, name, Some("user"))?,
            None => {
                return Ok([messages(chosen.0, chosen.1, None)?, messages(rejected.0, rejected.1, None)?]);
            }
        };
        let whole = |(reply, name): (Value, &str)| {
            let reply = messages(reply, name, Some("assistant"))?;
            if let Some(role @ ("user" | "system" | "developer")) =
                reply.first().and_then(|first| first["role"].as_str())
            {
                let message = format!(
                    "{name:?} begins with a message of the role {role:?}, expected what follows the prompt; \
                     leave prompt= out if {name:?} has it as well"
                );
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            Ok(prompt.iter().cloned().chain(reply).collect())
        };
        Ok([whole(chosen)?, whole(rejected)?])
    }

    fn of_line(&self, bytes: &[u8]) -> Result<Vec<Value>> {
        let mut line = object(bytes)?;
        self.names().map(|name| take(&mut line, name)).collect()
    }

    fn of_columns(&self, bytes: &[u8], values: &fields::Row) -> Result<Vec<Value>> {
        let others = values.iter().map(|value| match value {
            fields::Value::Text(text) => text.as_bytes(),
            _ => b"null",
        });
        let all = std::iter::once(bytes).chain(others).zip(self.names());
        all.map(|(bytes, name)| conversation::json(bytes, &format!("{name:?}"))).collect()
    }
}

/// Whether a text is JSON of messages, which as the text of one would be trained on as it is.
fn has_messages(text: &str) -> bool {
    let has_role = |message: &Value| message.get("role").is_some();
    text.trim_start().starts_with('[')
        && serde_json::from_str::<Vec<Value>>(text)
            .is_ok_and(|messages| !messages.is_empty() && messages.iter().all(has_role))
}

/// The messages of a value; with a `role` a text is a message of that role, unless it has messages itself.
fn messages(value: Value, name: &str, role: Option<&str>) -> Result<Vec<Value>> {
    let is_text = value.is_string();
    let role = role.filter(|_| !value.as_str().is_some_and(has_messages));
    match (value, role) {
        (Value::String(text), Some(role)) => Ok(vec![json!({"role": role, "content": text})]),
        (value, role) => list(value, &format!("{name:?}")).map_err(|error| match role {
            None if is_text => Error {
                message: format!(
                    "{}; name the column of what comes before as prompt= if {name:?} is the text of an answer",
                    error.message
                ),
                ..error
            },
            _ => error,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: &str = r#"{"role": "user", "content": "a"}"#;

    fn answer(text: &str) -> Value {
        json!({"role": "assistant", "content": text})
    }

    #[test]
    fn pairs_of_lines_and_columns() {
        let asked: Value = serde_json::from_str(ASKED).unwrap();
        let expected = [vec![asked.clone(), answer("b")], vec![asked.clone(), answer("c")]];
        let [b, c] = [answer("b"), answer("c")].map(|answer| answer.to_string());
        let with = PairColumns { rejected: "r".into(), prompt: Some("p".into()) };
        let without = PairColumns { prompt: None, ..with.clone() };
        for (columns, values) in [
            (&with, [format!("[{b}]"), format!("[{c}]"), format!("[{ASKED}]")]),
            (&with, ["\"b\"".into(), "\"c\"".into(), "\"a\"".into()]),
            (&with, [format!("[{b}]"), "\"c\"".into(), format!("[{ASKED}]")]),
            (
                &with,
                [
                    json!(format!("[{b}]")).to_string(),
                    "\"c\"".into(),
                    json!(format!(" [{ASKED}]")).to_string(),
                ],
            ),
            (&without, [format!("[{ASKED}, {b}]"), format!("[{ASKED}, {c}]"), "null".into()]),
            (&without, [json!(format!("[{ASKED}, {b}]")).to_string(), format!("[{ASKED}, {c}]"), "1".into()]),
        ] {
            let [chosen, rejected, prompt] = &values;
            let line = format!(r#"{{"c": {chosen}, "r": {rejected}, "p": {prompt}}}"#);
            let found = PairForm::new("c", columns, true).read(line.as_bytes(), &fields::Row::new());
            assert_eq!(found.unwrap(), expected, "{line}");
            let beside = [rejected, prompt].map(|text| fields::Value::Text(text.as_str().into()));
            let row: fields::Row = beside.into_iter().take(1 + usize::from(columns == &with)).collect();
            let found = PairForm::new("c", columns, false).read(chosen.as_bytes(), &row);
            assert_eq!(found.unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn rows_that_are_no_pairs() {
        let with = PairColumns { rejected: "r".into(), prompt: Some("p".into()) };
        let without = PairColumns { prompt: None, ..with.clone() };
        for (columns, text, kind, part) in [
            (&with, r#"{"c": "b", "r": null, "p": "a"}"#, ErrorKind::Unreadable, "\"r\" is null"),
            (&with, r#"{"c": "b", "p": "a"}"#, ErrorKind::Unreadable, "there is no field \"r\""),
            (&with, r#"{"c": "b", "r": 1, "p": "a"}"#, ErrorKind::Corrupt, "\"r\" is a number"),
            (&without, r#"{"c": "b", "r": "c"}"#, ErrorKind::Corrupt, "the text of \"c\" is not JSON"),
        ] {
            let error = PairForm::new("c", columns, true).read(text.as_bytes(), &fields::Row::new());
            let error = error.unwrap_err();
            assert_eq!(error.kind, kind, "{text}");
            assert!(error.message.contains(part), "{text}: {error}");
        }
        let twice = format!(r#"{{"c": [{ASKED}], "r": "c", "p": "a"}}"#);
        let error = PairForm::new("c", &with, true).read(twice.as_bytes(), &fields::Row::new()).unwrap_err();
        assert!(error.message.contains("leave prompt= out"), "{error}");
    }
}
