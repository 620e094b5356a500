//! [`text_field`]: the text of one field of a line of JSON.
//!
//! Other fields are passed over without being stored. Of a name that an object has twice, the last value
//! counts, as in `serde_json`.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::{Error, ErrorKind, JsonLineError, Result};

/// The text of the field `name` of the object in `line`. Points separate the names of objects within
/// objects, unless a field has points in its own name.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the line is no JSON object or the value no text, [`ErrorKind::Unreadable`] if it
/// is null or missing.
pub(crate) fn text_field<'a>(line: &'a [u8], name: &str) -> Result<Cow<'a, str>> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let found = JsonField(name).deserialize(&mut json).and_then(|found| json.end().map(|()| found));
    let found = found.map_err(|error| {
        let message = "the line is not JSON, expected an object such as {\"text\": \"...\"}";
        Error::new(ErrorKind::Corrupt, message).because(JsonLineError(error))
    })?;
    match found {
        Found::Text(text) => Ok(text),
        Found::Null => Err(Error::new(ErrorKind::Unreadable, format!("the field {name:?} is null"))),
        Found::Missing => Err(Error::new(ErrorKind::Unreadable, format!("there is no field {name:?}"))),
        Found::Other(what) => {
            let message = format!("the field {name:?} is {what}, expected a text");
            Err(Error::new(ErrorKind::Corrupt, message))
        }
        Found::NoObject(what) => {
            let message = format!("the line is {what}, expected an object such as {{\"text\": \"...\"}}");
            Err(Error::new(ErrorKind::Corrupt, message))
        }
    }
}

/// Whether the object in `line` has a field `name`, found as by [`text_field`]; `None` if the line
/// is anything else.
pub(super) fn has_field(line: &[u8], name: &str) -> Option<bool> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let found = JsonField(name).deserialize(&mut json).and_then(|found| json.end().map(|()| found)).ok()?;
    match found {
        Found::NoObject(_) => None,
        found => Some(found != Found::Missing),
    }
}

/// The names of the fields of the object in `line`; `None` if it is no object.
pub(super) fn names(line: &[u8]) -> Option<Vec<String>> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(line).ok()?;
    Some(object.into_iter().map(|(name, _)| name).collect())
}

#[derive(Debug, PartialEq)]
enum Found<'a> {
    Text(Cow<'a, str>),
    Null,
    Missing,
    /// A value of another type.
    Other(&'static str),
    /// What is there in place of an object.
    NoObject(&'static str),
}

/// A value of any type, of which only a text is kept.
struct Content;

impl<'de> DeserializeSeed<'de> for Content {
    type Value = Found<'de>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Found<'de>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Content {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> std::result::Result<Found<'de>, E> {
        Ok(Found::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<Found<'de>, E> {
        Ok(Found::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> std::result::Result<Found<'de>, E> {
        Ok(Found::Null)
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<Found<'de>, E> {
        Ok(Found::Other("a boolean"))
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<Found<'de>, E> {
        Ok(Found::Other("a number"))
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<Found<'de>, E> {
        Ok(Found::Other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<Found<'de>, E> {
        Ok(Found::Other("a number"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Found<'de>, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Found::Other("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> std::result::Result<Found<'de>, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Found::Other("an object"))
    }
}

/// An object, of which only the field with this name is kept.
struct JsonField<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for JsonField<'_> {
    type Value = Found<'de>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Found<'de>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonField<'_> {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_str<E>(self, _: &str) -> std::result::Result<Found<'de>, E> {
        Ok(Found::NoObject("a text"))
    }

    fn visit_unit<E>(self) -> std::result::Result<Found<'de>, E> {
        Ok(Found::NoObject("null"))
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<Found<'de>, E> {
        Ok(Found::NoObject("a boolean"))
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<Found<'de>, E> {
        Ok(Found::NoObject("a number"))
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<Found<'de>, E> {
        Ok(Found::NoObject("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<Found<'de>, E> {
        Ok(Found::NoObject("a number"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Found<'de>, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Found::NoObject("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> std::result::Result<Found<'de>, A::Error> {
        let Self(name) = self;
        let (mut whole, mut within) = (Found::Missing, Found::Missing);
        while let Some(key) = fields.next_key_seed(Content)? {
            let Found::Text(key) = key else { continue };
            let rest = name.strip_prefix(&*key);
            match rest {
                Some("") => whole = fields.next_value_seed(Content)?,
                Some(rest) if rest.starts_with('.') => {
                    within = match fields.next_value_seed(JsonField(&rest[1..]))? {
                        Found::NoObject("null") => Found::Null,
                        Found::NoObject(_) => Found::Missing,
                        found => found,
                    };
                }
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(if whole == Found::Missing { within } else { whole })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str, name: &str) -> std::result::Result<String, (ErrorKind, String)> {
        text_field(line.as_bytes(), name).map(Cow::into_owned).map_err(|error| (error.kind, error.message))
    }

    #[test]
    fn the_text_of_a_field() {
        for (line, text) in [
            (r#"{"text": "abc"}"#, "abc"),
            (
                r#"{"a": [1, {"text": "no"}], "text": "a\n\"b\" \u00e9 \ud83d\ude00", "b": null}"#,
                "a\n\"b\" é 😀",
            ),
            (r#"{"text": 3, "text": "last"}"#, "last"),
            ("  {\"text\":\"\"} \t", ""),
        ] {
            assert_eq!(found(line, "text").unwrap(), text, "{line}");
        }
        let nested = r#"{"a": {"b": {"c": "deep"}, "b.x": "pointed"}, "a.y": "own"}"#;
        assert_eq!(found(nested, "a.b.c").unwrap(), "deep");
        assert_eq!(found(nested, "a.b.x").unwrap(), "pointed");
        assert_eq!(found(nested, "a.y").unwrap(), "own");
    }

    #[test]
    fn what_is_no_text() {
        for (line, kind, part) in [
            ("{", ErrorKind::Corrupt, "not JSON"),
            (r#"{"text": "a"} x"#, ErrorKind::Corrupt, "not JSON"),
            ("[\"text\"]", ErrorKind::Corrupt, "the line is a list"),
            ("7", ErrorKind::Corrupt, "the line is a number"),
            (r#"{"text": {"a": 1}}"#, ErrorKind::Corrupt, "is an object, expected a text"),
            (r#"{"text": 1.5}"#, ErrorKind::Corrupt, "is a number, expected a text"),
            (r#"{"text": null}"#, ErrorKind::Unreadable, "is null"),
            (r#"{"texts": "a"}"#, ErrorKind::Unreadable, "there is no field \"text\""),
        ] {
            let (found, message) = found(line, "text").unwrap_err();
            assert_eq!(found, kind, "{line}");
            assert!(message.contains(part), "{line}: {message}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(found(&deep, "text").unwrap_err().0, ErrorKind::Corrupt);
    }

    #[test]
    fn it_is_what_serde_json_finds() {
        let lines = [
            r#"{"x": {"y": "a", "y": "b"}, "text": "t"}"#,
            r#"{"x": 3, "x": {"y": "c"}}"#,
            r#"{"x.y": "d", "x": {"y": "e"}}"#,
        ];
        for line in lines {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            let own = value.get("x.y").or_else(|| value.get("x").and_then(|x| x.get("y")));
            assert_eq!(found(line, "x.y").ok().as_deref(), own.and_then(|own| own.as_str()), "{line}");
        }
    }
}
