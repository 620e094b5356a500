//! Columns of tables in memory: Arrow arrays, one value for each row.
//!
//! Input: [`Cell`]s, pushed row by row into a [`ColumnBuilder`]. Output: a [`TableColumn`]. Numbers take 8
//! bytes, texts 8 bytes and their own, a boolean and a null a bit. A column of untyped cells, as of csv, gets
//! the narrowest type that all cells have: whole numbers, numbers, booleans, text.
//!
//! The builders of arrow-array abort the process where an allocation fails. These return an error, and the
//! arrays take their buffers without a copy. Texts are binary arrays, since members of archives need not be
//! UTF-8: a text is checked when it is read. Source: own.

use std::sync::Arc;

use super::{
    json::Json,
    names::{TextList, hash_texts},
};
use crate::{
    Error, ErrorKind, Result, cells,
    columns::{ColumnType, Item, Nesting, SPAN_FIELDS, check_pair},
    fallible_alloc,
    fields::{self, Value},
    seed::{hash_bytes, mix},
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, LargeBinaryArray, LargeListArray, NullArray,
    cast::AsArray,
    types::{Float64Type, Int64Type},
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};

/// A value of a table that has types.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a [u8]),
    /// The text of a cell of csv, whose type follows from all cells of its column; an empty one is a null.
    Untyped(&'a [u8]),
    List(Vec<Cell<'a>>),
}

pub(super) fn of_json<'a>(found: Option<&'a Json<'_>>) -> Cell<'a> {
    match found {
        None | Some(Json::Null) => Cell::Null,
        Some(Json::Bool(value)) => Cell::Bool(*value),
        Some(Json::Number(number)) => match number.as_i64() {
            Some(number) => Cell::Int(number),
            None => Cell::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Some(Json::Text(text)) => Cell::Text(text.as_bytes()),
        Some(Json::List(items)) => Cell::List(items.iter().map(item_of_json).collect()),
        // An object is no value.
        Some(Json::Object(_)) => Cell::List(vec![Cell::List(vec![Cell::List(Vec::new())])]),
    }
}

/// An item of a list in JSON; an object with a start and an end is a pair.
fn item_of_json<'a>(item: &'a Json<'_>) -> Cell<'a> {
    let [start, end] = SPAN_FIELDS.map(|name| item.as_object().and_then(|object| object.get(name)));
    match (start, end) {
        (Some(_), Some(_)) => Cell::List(vec![of_json(start), of_json(end)]),
        _ => of_json(Some(item)),
    }
}

/// A column with a value for each row.
#[derive(Debug, Clone)]
pub(crate) struct TableColumn {
    array: ArrayRef,
    column_type: ColumnType,
}

impl TableColumn {
    pub(crate) fn of_ints(values: Vec<i64>) -> Self {
        Self {
            array: Arc::new(Int64Array::from(values)),
            column_type: one(Item::Whole(fields::DataType::Int64)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.array.len()
    }

    /// The type, as a schema would have it.
    pub(crate) fn column_type(&self) -> ColumnType {
        self.column_type
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.column_type == one(Item::Null) || self.array.is_null(row)
    }

    pub(crate) fn bytes_held(&self) -> usize {
        self.array.get_buffer_memory_size()
    }

    /// The value of a row.
    ///
    /// # Errors
    /// As [`cells::value`].
    pub(crate) fn value(&self, row: usize) -> Result<Value> {
        cells::value(&self.array, row)
    }

    /// The text of a row, if it is one.
    pub(crate) fn text(&self, row: usize) -> Option<&[u8]> {
        let texts = self.array.as_binary_opt::<i64>()?;
        (!texts.is_null(row)).then(|| texts.value(row))
    }

    /// The texts of all rows; none if they are something else.
    pub(crate) fn texts(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.array.as_binary_opt::<i64>().into_iter().flatten()
    }

    /// The number of a row, if it is one.
    pub(crate) fn number(&self, row: usize) -> Option<f64> {
        match self.array.data_type() {
            _ if self.array.is_null(row) => None,
            DataType::Int64 => Some(self.array.as_primitive::<Int64Type>().value(row) as f64),
            DataType::Float64 => Some(self.array.as_primitive::<Float64Type>().value(row)),
            _ => None,
        }
    }

    /// A hash of type and values.
    pub(crate) fn hash(&self, state: u64) -> u64 {
        hash_array(&self.array, state)
    }
}

/// A hash of type and values. States have it, so it does not change.
fn hash_array(array: &ArrayRef, state: u64) -> u64 {
    let state = hash_bytes(state, type_name(array.data_type()).as_bytes());
    // A bit for each null, in words of 64 rows up to the last null.
    let mut words: Vec<u64> = array.logical_nulls().map_or_else(Vec::new, |nulls| {
        let chunks = nulls.inner().bit_chunks();
        let rest = !chunks.remainder_bits() & ((1 << chunks.remainder_len()) - 1);
        chunks.iter().map(|valid| !valid).chain([rest]).collect()
    });
    words.truncate(words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1));
    let fold = |state: u64, values: &mut dyn Iterator<Item = u64>| {
        values.fold(state, |state, value| mix(state ^ value))
    };
    let state = fold(mix(state ^ array.len() as u64), &mut words.into_iter());
    match array.data_type() {
        DataType::Boolean => fold(state, &mut array.as_boolean().values().iter().map(u64::from)),
        DataType::Int64 => {
            fold(state, &mut array.as_primitive::<Int64Type>().values().iter().map(|&value| value as u64))
        }
        DataType::Float64 => {
            fold(state, &mut array.as_primitive::<Float64Type>().values().iter().map(|value| value.to_bits()))
        }
        DataType::LargeBinary => {
            let texts = array.as_binary::<i64>();
            hash_texts(state, texts.value_offsets(), texts.value_data())
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            let ends = &lists.value_offsets()[1..];
            fold(hash_array(lists.values(), state), &mut ends.iter().map(|&end| end as u64))
        }
        _ => state,
    }
}

/// The name of the type of an array, as hashes and messages have it.
fn type_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Boolean => "bool",
        DataType::Int64 => "int64",
        DataType::Float64 => "float64",
        DataType::LargeBinary => "text",
        DataType::LargeList(_) => "lists",
        _ => "null",
    }
}

fn one(item: Item) -> ColumnType {
    ColumnType { item, nesting: Nesting::One }
}

/// Collects the values of a column.
#[derive(Debug, Clone, Default)]
pub(crate) struct ColumnBuilder {
    len: usize,
    /// A bit for each row that is null; empty if none is.
    nulls: Vec<u64>,
    values: CellValues,
}

#[derive(Debug, Clone, Default)]
enum CellValues {
    #[default]
    Nulls,
    Bool(Vec<bool>),
    Int(Vec<i64>),
    Float(Vec<f64>),
    Text(TextList),
    Untyped(TextList, CellKinds),
    /// The ends of the lists, after a 0, and their items.
    List(Vec<i64>, Box<ColumnBuilder>),
}

impl CellValues {
    fn of(cell: &Cell<'_>) -> Self {
        match cell {
            Cell::Null => Self::Nulls,
            Cell::Bool(_) => Self::Bool(Vec::new()),
            Cell::Int(_) => Self::Int(Vec::new()),
            Cell::Float(_) => Self::Float(Vec::new()),
            Cell::Text(_) => Self::Text(TextList::default()),
            Cell::Untyped(_) => Self::Untyped(TextList::default(), CellKinds::default()),
            Cell::List(_) => Self::List(vec![0], Box::default()),
        }
    }

    /// The name of the type, for messages.
    fn name(&self) -> &'static str {
        match self {
            Self::Nulls => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int64",
            Self::Float(_) => "float64",
            Self::Text(_) | Self::Untyped(..) => "text",
            Self::List(..) => "lists",
        }
    }

    /// Appends a value that is never read.
    fn pad(&mut self) -> Result<()> {
        match self {
            Self::Nulls => Ok(()),
            Self::Bool(values) => fallible_alloc::push(values, false),
            Self::Int(values) => fallible_alloc::push(values, 0),
            Self::Float(values) => fallible_alloc::push(values, 0.0),
            Self::Text(values) | Self::Untyped(values, _) => values.push(b""),
            Self::List(ends, items) => fallible_alloc::push(ends, items.len as i64),
        }
    }
}

impl ColumnBuilder {
    /// Appends a value. Whole numbers and others together are numbers.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] for a value of another type than the earlier ones; [`ErrorKind::Memory`].
    pub(crate) fn push(&mut self, cell: Cell<'_>) -> Result<()> {
        if matches!(cell, Cell::Null | Cell::Untyped([])) {
            self.values.pad()?;
            self.set_null()?;
            self.len += 1;
            return Ok(());
        }
        if matches!(self.values, CellValues::Nulls) {
            self.values = CellValues::of(&cell);
            (0..self.len).try_for_each(|_| self.values.pad())?;
        }
        if let (CellValues::Int(values), Cell::Float(_)) = (&self.values, &cell) {
            let mut floats = fallible_alloc::with_room(values.len() + 1)?;
            floats.extend(values.iter().map(|&value| value as f64));
            self.values = CellValues::Float(floats);
        }
        match (&mut self.values, cell) {
            (CellValues::Bool(values), Cell::Bool(value)) => fallible_alloc::push(values, value)?,
            (CellValues::Int(values), Cell::Int(value)) => fallible_alloc::push(values, value)?,
            (CellValues::Float(values), Cell::Float(value)) => fallible_alloc::push(values, value)?,
            (CellValues::Float(values), Cell::Int(value)) => fallible_alloc::push(values, value as f64)?,
            (CellValues::Text(values), Cell::Text(value)) => values.push(value)?,
            (CellValues::Untyped(values, kinds), Cell::Untyped(value)) => {
                kinds.see(value);
                values.push(value)?;
            }
            (CellValues::List(ends, items), Cell::List(values)) => {
                let lists = values
                    .iter()
                    .filter_map(|item| if let Cell::List(items) = item { Some(items) } else { None });
                for items in lists {
                    if items.iter().any(|item| matches!(item, Cell::List(_))) {
                        return Err(Error::new(
                            ErrorKind::Schema,
                            "it has lists of lists of lists, or objects",
                        ));
                    }
                    check_pair(items.len() as u64)?;
                }
                values.into_iter().try_for_each(|item| items.push(item))?;
                fallible_alloc::push(ends, items.len as i64)?;
            }
            (values, cell) => {
                let found = match cell {
                    Cell::List(_) => "a list",
                    cell => CellValues::of(&cell).name(),
                };
                let message =
                    format!("it is {found}, and {} in the rows before; write one type", values.name());
                return Err(Error::new(ErrorKind::Schema, message));
            }
        }
        self.len += 1;
        Ok(())
    }

    fn set_null(&mut self) -> Result<()> {
        let (word, bit) = (self.len / 64, self.len % 64);
        if self.nulls.len() <= word {
            let more = word + 1 - self.nulls.len();
            fallible_alloc::grow(&mut self.nulls, more)?;
            // bounded: reserved above.
            self.nulls.resize(word + 1, 0);
        }
        self.nulls[word] |= 1 << bit;
        Ok(())
    }

    /// Whether it has nulls alone so far.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.values, CellValues::Nulls)
    }

    /// The type of the values so far.
    pub(crate) fn column_type(&self) -> ColumnType {
        let found = one(match &self.values {
            CellValues::Nulls => Item::Null,
            CellValues::Bool(_) => Item::Whole(fields::DataType::Bool),
            CellValues::Int(_) => Item::Whole(fields::DataType::Int64),
            CellValues::Float(_) => Item::Float(fields::DataType::Float64),
            CellValues::Text(_) => Item::Text,
            CellValues::Untyped(_, kinds) => kinds.item(),
            CellValues::List(_, items) => items.column_type().item,
        });
        let nesting = match &self.values {
            CellValues::List(_, items) if matches!(items.values, CellValues::List(..)) => Nesting::Pairs,
            CellValues::List(..) => Nesting::List,
            _ => Nesting::One,
        };
        ColumnType { nesting, ..found }
    }

    /// The column; untyped cells get the narrowest type that all have.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`].
    pub(crate) fn finish(self) -> Result<TableColumn> {
        let column_type = self.column_type();
        let (len, nulls) = (self.len, validity(self.nulls, self.len)?);
        let array: ArrayRef = match self.values.typed()? {
            CellValues::Nulls => Arc::new(NullArray::new(len)),
            CellValues::Bool(values) => Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls)),
            CellValues::Int(values) => Arc::new(Int64Array::new(shrunk(values), nulls)),
            CellValues::Float(values) => Arc::new(Float64Array::new(shrunk(values), nulls)),
            CellValues::Text(texts) | CellValues::Untyped(texts, _) => {
                let (ends, bytes) = texts.into_parts()?;
                Arc::new(LargeBinaryArray::new(
                    OffsetBuffer::new(shrunk(ends)),
                    Buffer::from_vec(bytes),
                    nulls,
                ))
            }
            CellValues::List(ends, items) => {
                let items = items.finish()?.array;
                let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
                Arc::new(LargeListArray::new(field, OffsetBuffer::new(shrunk(ends)), items, nulls))
            }
        };
        Ok(TableColumn { array, column_type })
    }
}

/// The values as a buffer, without the memory that later ones would have taken.
fn shrunk<T: arrow_buffer::ArrowNativeType>(mut values: Vec<T>) -> ScalarBuffer<T> {
    values.shrink_to_fit();
    values.into()
}

/// The rows that are no nulls, if there are any nulls.
fn validity(mut nulls: Vec<u64>, len: usize) -> Result<Option<NullBuffer>> {
    if nulls.is_empty() {
        return Ok(None);
    }
    fallible_alloc::resize(&mut nulls, len.div_ceil(64), 0)?;
    nulls.iter_mut().for_each(|word| *word = !*word);
    Ok(Some(NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(nulls), 0, len))))
}

impl CellValues {
    /// Untyped cells as the narrowest type that all have.
    fn typed(self) -> Result<Self> {
        let Self::Untyped(cells, kinds) = self else { return Ok(self) };
        Ok(match kinds.item() {
            Item::Null => Self::Nulls,
            Item::Text => Self::Text(cells),
            Item::Whole(fields::DataType::Bool) => {
                Self::Bool(parsed(&cells, |cell| cell.trim_ascii().eq_ignore_ascii_case(b"true"))?)
            }
            Item::Whole(_) => Self::Int(parsed(&cells, |cell| int(cell).unwrap_or(0))?),
            Item::Float(_) => {
                let number =
                    |cell: &[u8]| std::str::from_utf8(cell).ok().and_then(|cell| cell.trim().parse().ok());
                Self::Float(parsed(&cells, |cell| number(cell).unwrap_or(0.0))?)
            }
        })
    }
}

/// The value of each cell; of an empty one, which is a null, it is never read.
fn parsed<T>(cells: &TextList, parse: impl Fn(&[u8]) -> T) -> Result<Vec<T>> {
    let mut values = fallible_alloc::with_room(cells.len())?;
    values.extend(cells.iter().map(parse));
    Ok(values)
}

/// What all cells that were seen could be.
#[derive(Debug, Clone)]
struct CellKinds {
    n: u64,
    bools: bool,
    ints: bool,
    floats: bool,
    /// Whether a cell has a digit: a column of `nan` is text.
    digits: bool,
}

impl Default for CellKinds {
    fn default() -> Self {
        Self { n: 0, bools: true, ints: true, floats: true, digits: false }
    }
}

impl CellKinds {
    /// The narrowest type that all cells have.
    fn item(&self) -> Item {
        match *self {
            Self { n: 0, .. } => Item::Null,
            Self { bools: true, .. } => Item::Whole(fields::DataType::Bool),
            Self { ints: true, .. } => Item::Whole(fields::DataType::Int64),
            Self { floats: true, digits: true, .. } => Item::Float(fields::DataType::Float64),
            _ => Item::Text,
        }
    }

    /// Looks at a cell that is not empty.
    fn see(&mut self, cell: &[u8]) {
        self.n += 1;
        if !self.bools && !self.floats {
            // Whole numbers are numbers, so only text is left.
            return;
        }
        self.ints = self.ints && int(cell).is_some();
        // Every whole number of `int` is a number.
        if self.floats && !self.ints {
            self.floats = is_float(cell);
        }
        let trimmed = cell.trim_ascii();
        self.bools =
            self.bools && (trimmed.eq_ignore_ascii_case(b"true") || trimmed.eq_ignore_ascii_case(b"false"));
        self.digits = self.digits || self.floats && cell.iter().any(u8::is_ascii_digit);
    }
}

/// A whole number as programs write it: a number with zeros in front is a code, not a number.
fn int(cell: &[u8]) -> Option<i64> {
    let cell = cell.trim_ascii();
    let digits = cell.strip_prefix(b"-").unwrap_or(cell);
    if !digits.iter().all(u8::is_ascii_digit) || digits.len() > 1 && digits[0] == b'0' {
        return None;
    }
    std::str::from_utf8(cell).ok()?.parse().ok()
}

/// Whether it is a number, and no code with zeros in front, and no whole number beyond int64.
fn is_float(cell: &[u8]) -> bool {
    let cell = cell.trim_ascii();
    let digits = cell.strip_prefix(b"-").unwrap_or(cell);
    let is_code = digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit();
    let is_whole = digits.iter().all(u8::is_ascii_digit) && int(cell).is_none();
    !is_code && !is_whole && std::str::from_utf8(cell).is_ok_and(|cell| cell.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built<'a>(cells: impl Iterator<Item = Cell<'a>>) -> TableColumn {
        let mut column = ColumnBuilder::default();
        cells.for_each(|cell| column.push(cell).unwrap());
        column.finish().unwrap()
    }

    fn inferred(cells: &[&str]) -> TableColumn {
        built(cells.iter().map(|cell| Cell::Untyped(cell.as_bytes())))
    }

    fn shown(column: &TableColumn) -> Vec<String> {
        (0..column.len()).map(|row| format!("{:?}", column.value(row).unwrap())).collect()
    }

    #[test]
    fn cells_get_the_narrowest_type() {
        for (cells, name, values) in [
            (&["1", "", "-20"][..], "int64", &["Int(1)", "Null", "Int(-20)"][..]),
            (&["1", "2.5", " 3e2 "], "float64", &["Float(1.0)", "Float(2.5)", "Float(300.0)"]),
            (&["nan", "1"], "float64", &["Float(NaN)", "Float(1.0)"]),
            (&["nan", "inf"], "text", &[r#"Text("nan")"#, r#"Text("inf")"#]),
            (&["True", "false"], "bool", &["Int(1)", "Int(0)"]),
            (&["007", "8"], "text", &[r#"Text("007")"#, r#"Text("8")"#]),
            (&["1", "0.5", "00.5"], "text", &[r#"Text("1")"#, r#"Text("0.5")"#, r#"Text("00.5")"#]),
            (&["9223372036854775808"], "text", &[r#"Text("9223372036854775808")"#]),
            (&["", ""], "null", &["Null", "Null"]),
            (&["a", "", "1"], "text", &[r#"Text("a")"#, "Null", r#"Text("1")"#]),
            (&["-"], "text", &[r#"Text("-")"#]),
        ] {
            let column = inferred(cells);
            assert_eq!(column.column_type().to_string(), name, "{cells:?}");
            assert_eq!(shown(&column), values, "{cells:?}");
        }
    }

    #[test]
    fn values_with_types_become_a_column() {
        let mut column = ColumnBuilder::default();
        for cell in [Cell::Null, Cell::Int(1), Cell::Float(0.5), Cell::Null, Cell::Int(2)] {
            column.push(cell).unwrap();
        }
        assert_eq!(
            shown(&column.clone().finish().unwrap()),
            ["Null", "Float(1.0)", "Float(0.5)", "Null", "Float(2.0)"]
        );
        let error = column.push(Cell::Text(b"a")).unwrap_err();
        assert!(error.message.contains("text, and float64"), "{error}");
        let mut lists = ColumnBuilder::default();
        let list = |items: &[i64]| Cell::List(items.iter().map(|&item| Cell::Int(item)).collect());
        for cell in [list(&[1, 2]), Cell::Null, list(&[]), list(&[3])] {
            lists.push(cell).unwrap();
        }
        assert_eq!(
            shown(&lists.clone().finish().unwrap()),
            ["List([Int(1), Int(2)])", "Null", "List([])", "List([Int(3)])"]
        );
        assert_eq!(lists.column_type().nesting, Nesting::List);
        assert!(lists.push(Cell::List(vec![list(&[1])])).is_err());
        let mut pairs = ColumnBuilder::default();
        let json = serde_json::json!([[[1, 2], [3, 4.5]], [], null, [{"end": 6, "class": "x", "start": 5}]]);
        let push = |pairs: &mut ColumnBuilder, value: &serde_json::Value| {
            pairs.push(of_json(Some(&serde_json::from_str(&value.to_string()).unwrap())))
        };
        json.as_array().unwrap().iter().for_each(|value| push(&mut pairs, value).unwrap());
        let last = "List([List([Float(5.0), Float(6.0)])])";
        let first = "List([List([Float(1.0), Float(2.0)]), List([Float(3.0), Float(4.5)])])";
        assert_eq!(shown(&pairs.clone().finish().unwrap()), [first, "List([])", "Null", last]);
        assert_eq!(pairs.column_type().nesting, Nesting::Pairs);
        for wrong in
            [serde_json::json!([[1, 2, 3]]), serde_json::json!([[[1]]]), serde_json::json!([{"start": 1}])]
        {
            assert!(push(&mut pairs, &wrong).is_err(), "{wrong}");
        }
        assert_ne!(lists.finish().unwrap().hash(0), column.finish().unwrap().hash(0));
    }
}
