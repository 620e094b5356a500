//! [`conversation`]: the messages and tools in a row, as JSON.
//!
//! A row is a line with a JSON object, or a text of JSON. Messages and tools may be JSON texts within it.

use std::str;

use serde_json::Value;

use crate::{Error, ErrorKind, JsonLineError, Result, fields};

/// The longest row that is read as a conversation, bytes. Its values take some times as much memory.
const MOST_BYTES: usize = 64 << 20;

/// The messages of a conversation, and the tools that it may use.
pub(crate) type Messages = (Vec<Value>, Option<Value>);

/// Where the parts of a conversation are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatForm {
    /// The names of the fields of a line; `None` for a text with the messages alone, whose tools are the
    /// first of the record's values.
    pub line: Option<(Box<str>, Option<Box<str>>)>,
}

impl ChatForm {
    /// The conversation in a record.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not JSON or the messages no list, [`ErrorKind::Unreadable`] if they
    /// are null or missing, [`ErrorKind::TooLarge`].
    pub(super) fn read(&self, bytes: &[u8], values: &fields::Row) -> Result<Messages> {
        check_bytes(bytes.len())?;
        let Some((name, tools)) = &self.line else {
            let tools = match values.first() {
                Some(fields::Value::Text(text)) => parsed(Value::String(text.to_string()), "tools")?,
                _ => Value::Null,
            };
            return Ok((list(json(bytes, "the text")?, "the text")?, some(tools)));
        };
        let mut line = object(bytes)?;
        let tools =
            tools.as_ref().and_then(|tools| Some(field(&mut line, tools)?.take())).unwrap_or_default();
        let messages = take(&mut line, name)?;
        let what = format!("the field {name:?}");
        Ok((list(messages, &what)?, some(parsed(tools, "tools")?)))
    }
}

/// Checks that a row of so many bytes is not too long for a conversation.
pub(super) fn check_bytes(n_bytes: usize) -> Result<()> {
    if n_bytes <= MOST_BYTES {
        return Ok(());
    }
    let message = format!("the conversation has {n_bytes} bytes, at most {MOST_BYTES} are read");
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// The field of an object; points separate the names of objects within objects, unless a field has points in
/// its own name.
fn field<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    if object.get(name).is_some() {
        return object.get_mut(name);
    }
    let (first, rest) = name.split_once('.')?;
    field(object.get_mut(first)?, rest)
}

/// The JSON object of a line; an error for any other value.
pub(super) fn object(bytes: &[u8]) -> Result<Value> {
    let line = json(bytes, "the line")?;
    if line.is_object() {
        return Ok(line);
    }
    let message = "the line is no object, expected one such as {\"messages\": [...]}";
    Err(Error::new(ErrorKind::Corrupt, message))
}

/// The value of a field, which null replaces.
pub(super) fn take(line: &mut Value, name: &str) -> Result<Value> {
    match field(line, name) {
        None => Err(Error::new(ErrorKind::Unreadable, format!("there is no field {name:?}"))),
        Some(value) => Ok(value.take()),
    }
}

pub(super) fn json(bytes: &[u8], what: &str) -> Result<Value> {
    let wrong =
        |error| Error::new(ErrorKind::Corrupt, format!("{what} is not JSON")).because(JsonLineError(error));
    serde_json::from_slice(bytes).map_err(wrong)
}

/// A value, or what its text says.
fn parsed(value: Value, what: &str) -> Result<Value> {
    match value {
        Value::String(text) => json(text.as_bytes(), &format!("the text of {what}")),
        value => Ok(value),
    }
}

/// The messages of a list, or of a text that has one.
pub(super) fn list(value: Value, what: &str) -> Result<Vec<Value>> {
    let wrong = |kind, found: &str| {
        let expected = "expected a list of messages, each an object with role and content";
        Err(Error::new(kind, format!("{what} is {found}, {expected}")))
    };
    match parsed(value, what)? {
        Value::Array(messages) => Ok(messages),
        Value::Null => wrong(ErrorKind::Unreadable, "null"),
        Value::Object(_) => wrong(ErrorKind::Corrupt, "an object"),
        Value::String(_) => wrong(ErrorKind::Corrupt, "a text"),
        _ => wrong(ErrorKind::Corrupt, "a number or a boolean"),
    }
}

/// The tools; `None` for a null or an empty list.
fn some(tools: Value) -> Option<Value> {
    let is_empty = tools.is_null() || tools.as_array().is_some_and(Vec::is_empty);
    (!is_empty).then_some(tools)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conversations_of_lines_and_texts() {
        let line =
            |name: &str, tools: Option<&str>| ChatForm { line: Some((name.into(), tools.map(Into::into))) };
        let read = |form: &ChatForm, text: &str| {
            form.read(text.as_bytes(), &fields::Row::new()).map_err(|error| (error.kind, error.message))
        };
        let messages = vec![json!({"role": "user", "content": "a"})];
        let inner = r#"[{"role": "user", "content": "a"}]"#;
        let quoted = serde_json::to_string(inner).unwrap();
        for (form, text) in [
            (line("m", None), format!(r#"{{"x": 1, "m": {inner}}}"#)),
            (line("m", None), format!(r#"{{"m": {quoted}}}"#)),
            (line("a.m", Some("t")), format!(r#"{{"a": {{"m": {inner}}}, "t": []}}"#)),
            (line("a.m", Some("t")), format!(r#"{{"a.m": {inner}, "t": null}}"#)),
            (ChatForm { line: None }, inner.to_owned()),
        ] {
            assert_eq!(read(&form, &text).unwrap(), (messages.clone(), None), "{text}");
        }
        let tools = Some(json!([{"name": "f"}]));
        for given in [r#"[{"name": "f"}]"#, r#""[{\"name\": \"f\"}]""#] {
            let text = format!(r#"{{"m": {inner}, "t": {given}}}"#);
            assert_eq!(read(&line("m", Some("t")), &text).unwrap(), (messages.clone(), tools.clone()));
        }
        for (text, kind, part) in [
            ("{", ErrorKind::Corrupt, "the line is not JSON"),
            ("[1]", ErrorKind::Corrupt, "the line is no object"),
            (r#"{"n": 1}"#, ErrorKind::Unreadable, "there is no field \"m\""),
            (r#"{"m": null}"#, ErrorKind::Unreadable, "the field \"m\" is null"),
            (r#"{"m": 1}"#, ErrorKind::Corrupt, "is a number or a boolean, expected a list of messages"),
            (r#"{"m": "a"}"#, ErrorKind::Corrupt, "the text of the field \"m\" is not JSON"),
            (r#"{"m": {"role": "user"}}"#, ErrorKind::Corrupt, "is an object"),
        ] {
            let (found, message) = read(&line("m", None), text).unwrap_err();
            assert_eq!(found, kind, "{text}");
            assert!(message.contains(part), "{text}: {message}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(read(&line("m", None), &deep).unwrap_err().0, ErrorKind::Corrupt);
    }
}
