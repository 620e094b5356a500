//! Columns of lists and structs as texts of JSON: conversations, and the tools that they may use.
//!
//! [`NestedColumn`] is what a schema has there. One set of rules makes JSON of a value, for arrays that are
//! decoded ([`write_array`]) and for those that are read value by value (`arrow::json`):
//!
//! | Arrow | JSON |
//! |---|---|
//! | null, boolean, integer, floating-point number, text | the same; not finite is an error |
//! | list | a list, nulls included |
//! | struct | an object without the fields that are null, but for `content` of a message |
//! | text within a list, or of the type `arrow.json` | the value that the text says |
//!
//! A table has all fields of all rows, and null where a row had none: `datasets` fills in nulls, and trainers
//! take them out again. Templates ask for a field by `in` and `is defined`, so a null would be an answer.
//! `content: null` is what a message of tool calls has.
//!
//! Fields of a struct with another type, such as times and bytes, are left out. Invariant: a text is at most
//! as long as its bound, and each value, written or not, counts as a byte.

use std::{str, sync::Arc};

use arrow_array::{Array, ArrayRef, cast::AsArray, types::*};
use arrow_schema::DataType;
use serde::de::IgnoredAny;
use serde_json::Number;

use crate::{Error, ErrorKind, JsonLineError, Result, fallible_alloc};

/// The most levels of lists and structs.
pub(crate) const DEEPEST: usize = 24;

/// The most bytes of a value as JSON, where records may have `max_record_bytes`.
pub(crate) fn most_json(max_record_bytes: u64) -> u64 {
    const MOST: u64 = 64 << 20;
    MOST.min(max_record_bytes)
}

/// A column, or a field of structs, whose values become JSON.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NestedColumn {
    pub name: Arc<str>,
    /// The indices of the column and of the fields within it.
    pub path: Vec<usize>,
    /// The arrays of the structs around it.
    pub structs: Vec<usize>,
    pub values: NestedValues,
}

/// The key and the value of the metadata of a text of JSON.
pub(crate) const EXTENSION: [&str; 2] = ["ARROW:extension:name", "arrow.json"];

/// The values of an array, and the array's number among those that are requested.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NestedValues {
    pub array: usize,
    pub kind: NestedKind,
}

impl NestedValues {
    /// Leaves out all fields that are null.
    pub(crate) fn leave_out_nulls(&mut self) {
        match &mut self.kind {
            NestedKind::List(_, items) => items.leave_out_nulls(),
            NestedKind::Struct(fields) => fields.iter_mut().for_each(|field| {
                field.is_kept = false;
                field.values.leave_out_nulls();
            }),
            _ => {}
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NestedKind {
    Null,
    Bool,
    Int,
    Float,
    Text,
    /// A text of JSON.
    Json,
    /// Lists, of one length if there is a number.
    List(Option<u64>, Box<NestedValues>),
    Struct(Vec<NestedField>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NestedField {
    /// Its number in the struct.
    pub at: usize,
    pub name: Box<str>,
    /// Whether it is written if it is null.
    pub is_kept: bool,
    pub values: NestedValues,
}

/// A text of JSON that is written, of bounded length.
#[derive(Debug)]
pub(crate) struct JsonText {
    text: Vec<u8>,
    left: u64,
    most: u64,
}

impl JsonText {
    /// An empty text that may have `most` bytes.
    pub(crate) fn new(most: u64) -> Self {
        Self { text: Vec::new(), left: most, most }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.text
    }

    /// Takes `n` bytes from what is left.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if there are not as many.
    pub(crate) fn count(&mut self, n: u64) -> Result<()> {
        self.left = self.left.checked_sub(n).ok_or_else(|| too_long(self.most))?;
        Ok(())
    }

    /// Checks that `n` further bytes are within the bound.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`].
    pub(crate) fn check(&self, n: u64) -> Result<()> {
        if n <= self.left { Ok(()) } else { Err(too_long(self.most)) }
    }

    /// Appends JSON as it is.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`], [`ErrorKind::Memory`].
    pub(crate) fn raw(&mut self, json: &[u8]) -> Result<()> {
        self.count(json.len() as u64)?;
        fallible_alloc::grow(&mut self.text, json.len())?;
        self.text.extend_from_slice(json);
        Ok(())
    }

    /// Appends a text in quotes.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not UTF-8, those of [`Self::raw`].
    pub(crate) fn text(&mut self, bytes: &[u8]) -> Result<()> {
        if let Err(error) = str::from_utf8(bytes) {
            return Err(Error::new(ErrorKind::Corrupt, "a text is not UTF-8").because(error));
        }
        self.raw(b"\"")?;
        let mut from = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            if byte >= b' ' && byte != b'"' && byte != b'\\' {
                continue;
            }
            self.raw(&bytes[from..at])?;
            from = at + 1;
            match byte {
                b'"' => self.raw(b"\\\"")?,
                b'\\' => self.raw(b"\\\\")?,
                b'\n' => self.raw(b"\\n")?,
                _ => self.raw(format!("\\u{byte:04x}").as_bytes())?,
            }
        }
        self.raw(&bytes[from..])?;
        self.raw(b"\"")
    }

    /// Appends what a text of JSON says.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not JSON, those of [`Self::raw`].
    pub(crate) fn json(&mut self, bytes: &[u8]) -> Result<()> {
        if let Err(error) = serde_json::from_slice::<IgnoredAny>(bytes) {
            return Err(
                Error::new(ErrorKind::Corrupt, "a text of JSON is not JSON").because(JsonLineError(error))
            );
        }
        self.raw(bytes)
    }

    pub(crate) fn bool(&mut self, is: bool) -> Result<()> {
        self.raw(if is { b"true" } else { b"false" })
    }

    pub(crate) fn int(&mut self, number: i128) -> Result<()> {
        self.raw(number.to_string().as_bytes())
    }

    /// Appends a number as JSON writes it.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not finite, those of [`Self::raw`].
    pub(crate) fn float(&mut self, number: f64) -> Result<()> {
        let number = Number::from_f64(number).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("a number is {number}, which JSON does not have"))
        })?;
        self.raw(number.to_string().as_bytes())
    }

    pub(crate) fn null(&mut self) -> Result<()> {
        self.raw(b"null")
    }

    /// Appends items between brackets; `write` writes one.
    ///
    /// # Errors
    /// Those of `write` and [`Self::raw`].
    pub(crate) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> Result<()>,
    ) -> Result<()> {
        self.raw(b"[")?;
        for (number, item) in items.into_iter().enumerate() {
            self.raw(if number > 0 { b"," } else { b"" })?;
            write(self, item)?;
        }
        self.raw(b"]")
    }

    /// Appends the name of an object's field, which is the first one or not.
    ///
    /// # Errors
    /// Those of [`Self::text`].
    pub(crate) fn name(&mut self, name: &str, is_first: bool) -> Result<()> {
        self.raw(if is_first { b"" } else { b"," })?;
        self.text(name.as_bytes())?;
        self.raw(b":")
    }
}

fn too_long(most: u64) -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!("the row has more than {most} bytes as JSON, the most that are read"),
    )
}

/// Appends the value of `array` at `row` as JSON.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for text that is not UTF-8 or not JSON, a number that is not finite, and an array
/// of another type than the schema has; [`ErrorKind::TooLarge`]; [`ErrorKind::Memory`].
pub(crate) fn write_array(
    of: &NestedValues,
    array: &ArrayRef,
    row: usize,
    into: &mut JsonText,
) -> Result<()> {
    let unexpected = || Error::new(ErrorKind::Corrupt, "a column has another type than the footer claims");
    into.count(1)?;
    if array.is_null(row) {
        return into.null();
    }
    match &of.kind {
        NestedKind::Null => into.null(),
        NestedKind::Bool => into.bool(array.as_boolean_opt().ok_or_else(unexpected)?.value(row)),
        NestedKind::Int => into.int(int(array, row).ok_or_else(unexpected)?),
        NestedKind::Float => into.float(float(array, row).ok_or_else(unexpected)?),
        NestedKind::Text => into.text(bytes(array, row).ok_or_else(unexpected)?),
        NestedKind::Json => into.json(bytes(array, row).ok_or_else(unexpected)?),
        NestedKind::List(_, values) => {
            let items = match array.data_type() {
                DataType::List(_) => array.as_list::<i32>().value(row),
                DataType::LargeList(_) => array.as_list::<i64>().value(row),
                DataType::FixedSizeList(..) => array.as_fixed_size_list().value(row),
                _ => return Err(unexpected()),
            };
            into.list(0..items.len(), |into, at| write_array(values, &items, at, into))
        }
        NestedKind::Struct(fields) => {
            let array = array.as_struct_opt().ok_or_else(unexpected)?;
            into.raw(b"{")?;
            let mut is_first = true;
            for NestedField { at, name, is_kept, values } in fields {
                let column = array.columns().get(*at).ok_or_else(unexpected)?;
                into.count(1)?;
                if *is_kept || column.is_valid(row) && values.kind != NestedKind::Null {
                    into.name(name, is_first)?;
                    write_array(values, column, row, into)?;
                    is_first = false;
                }
            }
            into.raw(b"}")
        }
    }
}

fn int(array: &ArrayRef, row: usize) -> Option<i128> {
    use DataType::*;
    Some(match array.data_type() {
        Int8 => array.as_primitive::<Int8Type>().value(row).into(),
        Int16 => array.as_primitive::<Int16Type>().value(row).into(),
        Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        UInt8 => array.as_primitive::<UInt8Type>().value(row).into(),
        UInt16 => array.as_primitive::<UInt16Type>().value(row).into(),
        UInt32 => array.as_primitive::<UInt32Type>().value(row).into(),
        UInt64 => array.as_primitive::<UInt64Type>().value(row).into(),
        _ => return None,
    })
}

fn float(array: &ArrayRef, row: usize) -> Option<f64> {
    use DataType::*;
    Some(match array.data_type() {
        Float16 => array.as_primitive::<Float16Type>().value(row).to_f64(),
        Float32 => array.as_primitive::<Float32Type>().value(row).into(),
        Float64 => array.as_primitive::<Float64Type>().value(row),
        _ => return None,
    })
}

fn bytes(array: &ArrayRef, row: usize) -> Option<&[u8]> {
    use DataType::*;
    Some(match array.data_type() {
        Utf8 => array.as_string::<i32>().value(row).as_bytes(),
        LargeUtf8 => array.as_string::<i64>().value(row).as_bytes(),
        Utf8View => array.as_string_view().value(row).as_bytes(),
        Binary => array.as_binary::<i32>().value(row),
        LargeBinary => array.as_binary::<i64>().value(row),
        BinaryView => array.as_binary_view().value(row),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(most: u64, write: impl FnOnce(&mut JsonText) -> Result<()>) -> Result<String> {
        let mut text = JsonText::new(most);
        write(&mut text).map(|()| String::from_utf8(text.finish()).unwrap())
    }

    #[test]
    fn texts_are_those_of_serde_json() {
        let every: String = (0..0x300).filter_map(char::from_u32).chain("\u{2028}😀".chars()).collect();
        for text in ["", "plain", "a\"b\\c\nd\re\tf", &every] {
            let json = written(1 << 20, |json| json.text(text.as_bytes())).unwrap();
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
        let error = written(1 << 20, |json| json.text(b"\xff")).unwrap_err();
        assert_eq!((error.kind, &*error.message), (ErrorKind::Corrupt, "a text is not UTF-8"));
    }

    #[test]
    fn numbers_and_bounds() {
        assert_eq!(written(99, |json| json.float(0.1)).unwrap(), "0.1");
        assert_eq!(written(99, |json| json.float(2.0)).unwrap(), "2.0");
        assert_eq!(written(99, |json| json.int(u64::MAX.into())).unwrap(), u64::MAX.to_string());
        for number in [f64::NAN, f64::INFINITY] {
            assert_eq!(written(99, |json| json.float(number)).unwrap_err().kind, ErrorKind::Corrupt);
        }
        assert_eq!(written(9, |json| json.json(b"[1")).unwrap_err().kind, ErrorKind::Corrupt);
        assert_eq!(written(5, |json| json.text(b"abc")).unwrap(), "\"abc\"");
        assert_eq!(written(4, |json| json.text(b"abc")).unwrap_err().kind, ErrorKind::TooLarge);
        // Items without bytes are counted, too.
        let many = written(1000, |json| json.list(0..u64::MAX, |json, _| json.count(1)));
        assert_eq!(many.unwrap_err().kind, ErrorKind::TooLarge);
    }
}
