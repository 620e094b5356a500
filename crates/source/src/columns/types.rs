//! The types of columns, and how Arrow lays out their values.

use std::fmt;

use arrow_schema::{DataType, Field};

use crate::{Error, ErrorKind, Result, fields};

/// The memory layout of an array's values, for the supported types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueLayout {
    /// No buffers, all null.
    Null,
    /// One bit a value.
    Bool,
    /// Integers of so many bytes.
    Int { width: usize, signed: bool },
    /// Floating-point numbers of so many bytes.
    Float { width: usize },
    /// Binary, text or the items of a list, located by offsets of 4 or 8 bytes.
    Offsets { width: usize },
    /// Binary or text, located by views.
    Views,
    /// Binary of so many bytes each.
    FixedBytes { width: usize },
    /// Indices into the dictionary with this id.
    Dictionary { id: i64, width: usize, signed: bool, values: Box<ValueLayout>, value_type: DataType },
    /// A struct or a list of fixed length, of which only the validity is read.
    Struct,
}

/// The type of the items of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// Integers or booleans, and how a batch has them.
    Whole(fields::DataType),
    /// Floating-point numbers, and how a batch has them.
    Float(fields::DataType),
    Text,
    Null,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nesting {
    One,
    List,
    Fixed(u64),
    /// A list of lists, or of structs with a start and an end: spans, as crops take them.
    Pairs,
}

/// The type of a column that is read beside the recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnType {
    pub item: Item,
    pub nesting: Nesting,
}

impl ColumnType {
    /// Checks that a row has no lists of lists.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] that names the column.
    pub fn check_flat(self, column: &str) -> Result<()> {
        if self.nesting != Nesting::Pairs {
            return Ok(());
        }
        let message = format!(
            "column {column:?} is {self}, expected numbers, booleans, text, or lists of these; forebay.crops take spans"
        );
        Err(Error::new(ErrorKind::Schema, message))
    }

    /// Whether it has only nulls, which may stand for values of the other type.
    pub(crate) fn is_nulls_of(self, other: Self) -> bool {
        let is_nested_alike = match (self.nesting, other.nesting) {
            // An empty list may be one of anything.
            (Nesting::One, _) | (Nesting::List, Nesting::Pairs) => true,
            (mine, others) => mine == others,
        };
        self.item == Item::Null && is_nested_alike
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let item = match self.item {
            Item::Whole(dtype) | Item::Float(dtype) => dtype.name(),
            Item::Text => "text",
            Item::Null => "null",
        };
        match self.nesting {
            Nesting::One => f.write_str(item),
            Nesting::List => write!(f, "lists of {item}"),
            Nesting::Fixed(n) => write!(f, "lists of {n} {item}"),
            Nesting::Pairs => write!(f, "lists of lists of {item}"),
        }
    }
}

/// The names of the fields of a struct that is a span.
pub(crate) const SPAN_FIELDS: [&str; 2] = ["start", "end"];

/// How a column holds items; for lists the field of the items, and the layout of the lists.
pub(crate) fn nesting_of(field: &Field) -> (Nesting, Option<(&Field, ValueLayout)>) {
    match field.data_type() {
        DataType::List(child) => (Nesting::List, Some((child, ValueLayout::Offsets { width: 4 }))),
        DataType::LargeList(child) => (Nesting::List, Some((child, ValueLayout::Offsets { width: 8 }))),
        DataType::FixedSizeList(child, n) => {
            (Nesting::Fixed(u64::try_from(*n).unwrap_or(0)), Some((child, ValueLayout::Struct)))
        }
        _ => (Nesting::One, None),
    }
}

/// The places of the start and the end among the fields of a struct.
pub(crate) fn span_fields(data_type: &DataType) -> Option<[usize; 2]> {
    let DataType::Struct(fields) = data_type else { return None };
    let at = |name: &str| fields.iter().position(|field| field.name() == name);
    Some([at(SPAN_FIELDS[0])?, at(SPAN_FIELDS[1])?])
}

/// The type of a column in words, such as `text`; of an unsupported type Arrow's.
pub fn type_name(field: &Field) -> String {
    let (nesting, items) = nesting_of(field);
    let item = items.map_or(field, |(items, _)| items);
    match item_of(item.data_type()) {
        Some(item) => ColumnType { item, nesting }.to_string(),
        None => shortened(field.data_type()),
    }
}

/// The type of the items in a column of this type; `None` for nested and other unsupported ones.
pub(crate) fn item_of(data_type: &DataType) -> Option<Item> {
    use fields::DataType as Found;
    Some(match data_type {
        DataType::Null => Item::Null,
        DataType::Boolean => Item::Whole(Found::Bool),
        DataType::Int8 => Item::Whole(Found::Int8),
        DataType::Int16 => Item::Whole(Found::Int16),
        DataType::Int32 => Item::Whole(Found::Int32),
        DataType::Int64 => Item::Whole(Found::Int64),
        DataType::UInt8 => Item::Whole(Found::Uint8),
        DataType::UInt16 => Item::Whole(Found::Uint16),
        DataType::UInt32 => Item::Whole(Found::Uint32),
        DataType::UInt64 => Item::Whole(Found::Uint64),
        DataType::Float16 => Item::Float(Found::Float16),
        DataType::Float32 => Item::Float(Found::Float32),
        DataType::Float64 => Item::Float(Found::Float64),
        DataType::Dictionary(_, values) => item_of(values)?,
        other if is_text(other) => Item::Text,
        _ => return None,
    })
}

/// The name of a type, shortened.
pub(crate) fn shortened(data_type: &DataType) -> String {
    let mut text = data_type.to_string();
    if let Some((at, _)) = text.char_indices().nth(200) {
        text.truncate(at);
        text.push('…');
    }
    text
}

pub(super) fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_text(values),
        other => matches!(other, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
    }
}

/// Whether values are the bytes of a file, or text.
pub(super) fn is_binary(data_type: &DataType) -> bool {
    holds_bytes(data_type) || matches!(data_type, DataType::FixedSizeBinary(_))
}

pub(super) fn holds_bytes(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => holds_bytes(values),
        other => {
            is_text(other) || matches!(other, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
        }
    }
}

/// The layout of a field; None for nested and other unsupported types.
pub(crate) fn layout_of(field: &Field) -> Option<ValueLayout> {
    match field.data_type() {
        DataType::Dictionary(index, values) => {
            let ValueLayout::Int { width, signed } = plain_layout(index)? else { return None };
            #[expect(
                deprecated,
                reason = "the id is what the dictionary messages carry; nothing replaces it"
            )]
            let id = field.dict_id()?;
            let value_type = (**values).clone();
            Some(ValueLayout::Dictionary {
                id,
                width,
                signed,
                values: Box::new(plain_layout(values)?),
                value_type,
            })
        }
        other => plain_layout(other),
    }
}

pub(super) fn plain_layout(data_type: &DataType) -> Option<ValueLayout> {
    let int = |width, signed| Some(ValueLayout::Int { width, signed });
    match data_type {
        DataType::Null => Some(ValueLayout::Null),
        DataType::Boolean => Some(ValueLayout::Bool),
        DataType::Int8 => int(1, true),
        DataType::Int16 => int(2, true),
        DataType::Int32 => int(4, true),
        DataType::Int64 => int(8, true),
        DataType::UInt8 => int(1, false),
        DataType::UInt16 => int(2, false),
        DataType::UInt32 => int(4, false),
        DataType::UInt64 => int(8, false),
        DataType::Float16 => Some(ValueLayout::Float { width: 2 }),
        DataType::Float32 => Some(ValueLayout::Float { width: 4 }),
        DataType::Float64 => Some(ValueLayout::Float { width: 8 }),
        DataType::Binary | DataType::Utf8 => Some(ValueLayout::Offsets { width: 4 }),
        DataType::LargeBinary | DataType::LargeUtf8 => Some(ValueLayout::Offsets { width: 8 }),
        DataType::BinaryView | DataType::Utf8View => Some(ValueLayout::Views),
        DataType::FixedSizeBinary(n) => Some(ValueLayout::FixedBytes { width: usize::try_from(*n).ok()? }),
        _ => None,
    }
}
