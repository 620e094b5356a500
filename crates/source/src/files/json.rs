//! [`Json`]: a value of JSON that borrows its texts from the line that it is read from.
//!
//! A table of JSON lines has millions of objects of a few values each. `serde_json::Value` allocates each
//! name and each text, and a hash map for each object; here an object is one vector. Of a name that an object
//! has twice, the last value counts, as there. Syntax, numbers and the depth of nesting are those of
//! `serde_json`, which calls the visitor below.

use std::{borrow::Cow, fmt};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    Object(JsonObject<'a>),
}

/// The values of an object with their names, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct JsonObject<'a>(Vec<(Cow<'a, str>, Json<'a>)>);

impl<'a> Json<'a> {
    pub(super) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    pub(super) fn as_object(&self) -> Option<&JsonObject<'a>> {
        if let Self::Object(object) = self { Some(object) } else { None }
    }
}

impl<'a> JsonObject<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&Json<'a>> {
        self.0.iter().rev().find_map(|(known, value)| (known == name).then_some(value))
    }

    /// The value with that name; points separate the names of objects within objects, and an object in a list
    /// has its number, as in `supervisions.0.text`.
    pub(super) fn find(&self, name: &str) -> Option<&Json<'a>> {
        if let Some(found) = self.get(name) {
            return Some(found);
        }
        let (first, rest) = name.split_once('.')?;
        let mut found = (self.get(first)?, rest);
        while let (Json::List(items), rest) = found {
            let (number, rest) = rest.split_once('.').unwrap_or((rest, ""));
            let item = items.get(number.parse::<usize>().ok()?)?;
            if rest.is_empty() {
                return Some(item);
            }
            found = (item, rest);
        }
        found.0.as_object()?.find(found.1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Json<'a>)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }
}

/// As in a file, for messages.
impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |f: &mut fmt::Formatter<'_>, text: &str| write!(f, "{}", serde_json::Value::from(text));
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(found) => text(f, found),
            Self::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if at == 0 { "[" } else { "," })?;
                }
                f.write_str(if items.is_empty() { "[]" } else { "]" })
            }
            Self::Object(object) => {
                f.write_str("{")?;
                for (at, (name, value)) in object.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { "," })?;
                    text(f, name)?;
                    write!(f, ":{value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Json<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(text.to_owned().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json<'de>, A::Error> {
        let mut found = Vec::new();
        while let Some(item) = items.next_element()? {
            found.push(item);
        }
        Ok(Json::List(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<Json<'de>, A::Error> {
        let mut found = Vec::new();
        // A name is read as a value, since a `Cow` would be a copy.
        while let Some(name) = values.next_key()? {
            let Json::Text(name) = name else { return Err(A::Error::custom("a name is no text")) };
            found.push((name, values.next_value()?));
        }
        Ok(Json::Object(JsonObject(found)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Result<Json<'_>, serde_json::Error> {
        serde_json::from_str(text)
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<u64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            let names = prop::collection::vec((any::<String>(), inner.clone()), 0..8);
            prop_oneof![
                prop::collection::vec(inner, 0..8).prop_map(Into::into),
                names.prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_are_those_of_serde_json(value in value()) {
            let text = value.to_string();
            prop_assert_eq!(parsed(&text).unwrap().to_string(), text);
        }

        #[test]
        fn what_is_no_json_is_none_here(text in r#"[\[\]{}",:0-9eE.+\-a-z\\ ]{0,24}"#) {
            let expected = serde_json::from_str::<serde_json::Value>(&text);
            match (parsed(&text), expected) {
                (Ok(_), Ok(_)) => {}
                (Err(found), Err(expected)) => prop_assert_eq!(found.to_string(), expected.to_string()),
                (found, expected) => prop_assert!(false, "{found:?} {expected:?}"),
            }
        }
    }

    #[test]
    fn errors_are_those_of_serde_json() {
        let deep = "[".repeat(200);
        for text in [&deep, "1e999", "\"\\ud800\"", "{\"a\" 1}", "{1: 2}", "nul", "[1,]", "1 2", ""] {
            let expected = serde_json::from_str::<serde_json::Value>(text).unwrap_err().to_string();
            assert_eq!(parsed(text).unwrap_err().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn values_by_name() {
        let text = r#"{"a": 1, "a.b": 2, "a": {"b": 3, "c": [{"d": "x"}, [5]]}, "e\u0041": "y"}"#;
        let Json::Object(object) = parsed(text).unwrap() else { panic!("no object") };
        let found = |name: &str| object.find(name).map(ToString::to_string);
        for (name, expected) in [
            ("a.b", Some("2")),
            ("a.c.0.d", Some("\"x\"")),
            ("a.c.1", Some("[5]")),
            ("a", Some(r#"{"b":3,"c":[{"d":"x"},[5]]}"#)),
            ("eA", Some("\"y\"")),
            ("a.c.2", None),
            ("a.c.x", None),
            ("a.c.1.d", None),
            ("b", None),
        ] {
            assert_eq!(found(name).as_deref(), expected, "{name}");
        }
    }
}
