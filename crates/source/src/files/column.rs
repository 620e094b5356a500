//! Columns of tables in memory: compact arrays, one value for each row.
//!
//! Numbers take 8 bytes, texts 8 bytes and their own, a null a bit. A column of cells of text, as csv has
//! them, gets the narrowest type that all cells have: whole numbers, numbers, booleans, text. Source: own.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::{
    Error, ErrorKind, Result,
    columns::{ColumnType, Item, MOST_ITEMS, Nesting, SPAN_FIELDS, check_pair, check_text, text},
    fallible_alloc,
    fields::{DataType, Value},
    seed::mix,
};

#[derive(Debug, Clone, Default)]
pub(crate) struct TextList {
    ends: Vec<u64>,
    bytes: Vec<u8>,
}

impl TextList {
    /// Appends a text.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`].
    pub(crate) fn push(&mut self, text: &[u8]) -> Result<()> {
        fallible_alloc::grow(&mut self.bytes, text.len())?;
        self.bytes.extend_from_slice(text);
        fallible_alloc::push(&mut self.ends, self.bytes.len() as u64)
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.bytes[start..self.ends[at] as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|at| self.get(at))
    }

    pub(crate) fn bytes_held(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u64>()
    }

    fn shrink(&mut self) {
        self.ends.shrink_to_fit();
        self.bytes.shrink_to_fit();
    }
}

/// A hash of bytes, eight at a time.
pub(crate) fn hash(state: u64, bytes: &[u8]) -> u64 {
    let mut chunks = bytes.chunks_exact(8);
    let mut state = mix(state ^ bytes.len() as u64);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        state = mix(state ^ u64::from_le_bytes(word));
    }
    let rest = chunks.remainder();
    if rest.is_empty() {
        return state;
    }
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    mix(state ^ u64::from_le_bytes(word))
}

/// Different texts with a number each, in the order in which they came first.
#[derive(Debug, Default)]
pub(crate) struct NameIndex {
    texts: TextList,
    /// The numbers by hash, and one more than the number, so that 0 is an empty slot.
    slots: Vec<u32>,
    last: u32,
}

impl NameIndex {
    /// The number of a text.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`]; [`ErrorKind::Config`] for more than 2^32 different ones.
    pub(crate) fn number(&mut self, text: &[u8]) -> Result<u32> {
        // Rows of one file are often neighbours.
        if self.texts.len() > 0 && self.texts.get(self.last as usize) == text {
            return Ok(self.last);
        }
        if (self.texts.len() + 1) * 4 > self.slots.len() * 3 {
            self.grow()?;
        }
        let slot = self.slot(text);
        self.last = match self.slots[slot] {
            0 => {
                let number = u32::try_from(self.texts.len()).ok().filter(|&number| number < u32::MAX - 1);
                let number = number.ok_or_else(|| {
                    Error::new(ErrorKind::Config, "there are more than 2^32 - 2 different names")
                })?;
                self.texts.push(text)?;
                self.slots[slot] = number + 1;
                number
            }
            number => number - 1,
        };
        Ok(self.last)
    }

    /// The number of a text, if it has one.
    pub(crate) fn find(&self, text: &[u8]) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        self.slots[self.slot(text)].checked_sub(1)
    }

    pub(crate) fn into_texts(mut self) -> TextList {
        self.texts.shrink();
        self.texts
    }

    pub(crate) fn texts(&self) -> &TextList {
        &self.texts
    }

    /// The slot that has the text, or that is free for it.
    fn slot(&self, text: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = hash(0, text) as usize & mask;
        while self.slots[slot] != 0 && self.texts.get(self.slots[slot] as usize - 1) != text {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) -> Result<()> {
        let n = (self.slots.len() * 2).max(64);
        self.slots.clear();
        fallible_alloc::resize(&mut self.slots, n, 0)?;
        for (number, text) in (1..).zip(self.texts.iter()) {
            let mut slot = hash(0, text) as usize & (n - 1);
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (n - 1);
            }
            self.slots[slot] = number;
        }
        Ok(())
    }
}

/// A value of a table that has types.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a [u8]),
    List(Vec<Cell<'a>>),
}

pub(crate) fn of_json(found: Option<&Json>) -> Cell<'_> {
    match found {
        None | Some(Json::Null) => Cell::Null,
        Some(Json::Bool(value)) => Cell::Bool(*value),
        Some(Json::Number(number)) => match number.as_i64() {
            Some(number) => Cell::Int(number),
            None => Cell::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Some(Json::String(text)) => Cell::Text(text.as_bytes()),
        Some(Json::Array(items)) => Cell::List(items.iter().map(item_of_json).collect()),
        // An object is no value.
        Some(Json::Object(_)) => Cell::List(vec![Cell::List(vec![Cell::List(Vec::new())])]),
    }
}

/// An item of a list in JSON; an object with a start and an end is a pair.
fn item_of_json(item: &Json) -> Cell<'_> {
    match item {
        Json::Object(object) if SPAN_FIELDS.iter().all(|name| object.contains_key(*name)) => {
            Cell::List(SPAN_FIELDS.iter().map(|name| of_json(object.get(*name))).collect())
        }
        item => of_json(Some(item)),
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct TableColumn {
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
    List(Vec<u64>, Box<TableColumn>),
}

impl CellValues {
    /// The name of the type, for messages.
    fn name(&self) -> &'static str {
        match self {
            Self::Nulls => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int64",
            Self::Float(_) => "float64",
            Self::Text(_) => "text",
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
            Self::Text(values) => values.push(b""),
            Self::List(ends, items) => fallible_alloc::push(ends, items.len as u64),
        }
    }
}

impl TableColumn {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn of_ints(values: Vec<i64>) -> Self {
        Self { len: values.len(), nulls: Vec::new(), values: CellValues::Int(values) }
    }

    /// Appends a value. Whole numbers and others together are numbers.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] for a value of another type than the earlier ones; [`ErrorKind::Memory`].
    pub(crate) fn push(&mut self, cell: Cell<'_>) -> Result<()> {
        if matches!(self.values, CellValues::Nulls) && cell != Cell::Null {
            self.values = match &cell {
                Cell::Null => CellValues::Nulls,
                Cell::Bool(_) => CellValues::Bool(Vec::new()),
                Cell::Int(_) => CellValues::Int(Vec::new()),
                Cell::Float(_) => CellValues::Float(Vec::new()),
                Cell::Text(_) => CellValues::Text(TextList::default()),
                Cell::List(_) => CellValues::List(Vec::new(), Box::default()),
            };
            (0..self.len).try_for_each(|_| self.values.pad())?;
        }
        if let (CellValues::Int(values), Cell::Float(_)) = (&self.values, &cell) {
            let mut floats = fallible_alloc::with_room(values.len() + 1)?;
            floats.extend(values.iter().map(|&value| value as f64));
            self.values = CellValues::Float(floats);
        }
        match (&mut self.values, cell) {
            (values, Cell::Null) => {
                values.pad()?;
                self.set_null(self.len)?;
            }
            (CellValues::Bool(values), Cell::Bool(value)) => fallible_alloc::push(values, value)?,
            (CellValues::Int(values), Cell::Int(value)) => fallible_alloc::push(values, value)?,
            (CellValues::Float(values), Cell::Float(value)) => fallible_alloc::push(values, value)?,
            (CellValues::Float(values), Cell::Int(value)) => fallible_alloc::push(values, value as f64)?,
            (CellValues::Text(values), Cell::Text(value)) => values.push(value)?,
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
                fallible_alloc::push(ends, items.len as u64)?;
            }
            (values, cell) => {
                let found = match cell {
                    Cell::Null => "null",
                    Cell::Bool(_) => "bool",
                    Cell::Int(_) => "int64",
                    Cell::Float(_) => "float64",
                    Cell::Text(_) => "text",
                    Cell::List(_) => "a list",
                };
                let message =
                    format!("it is {found}, and {} in the rows before; write one type", values.name());
                return Err(Error::new(ErrorKind::Schema, message));
            }
        }
        self.len += 1;
        Ok(())
    }

    fn set_null(&mut self, row: usize) -> Result<()> {
        let word = row / 64;
        if self.nulls.len() <= word {
            let more = word + 1 - self.nulls.len();
            fallible_alloc::grow(&mut self.nulls, more)?;
            // bounded: reserved above.
            self.nulls.resize(word + 1, 0);
        }
        self.nulls[word] |= 1 << (row % 64);
        Ok(())
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// The column of cells as csv has them: empty ones are null, the others get the narrowest type that all
    /// have.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`].
    pub(crate) fn inferred(mut cells: TextList) -> Result<Self> {
        let mut column = Self { len: cells.len(), ..Self::default() };
        let mut kinds = CellKinds::default();
        for (row, cell) in cells.iter().enumerate() {
            match cell {
                b"" => column.set_null(row)?,
                cell => kinds.see(cell),
            }
        }
        let number = |cell: &[u8]| std::str::from_utf8(cell).ok().and_then(|cell| cell.trim().parse().ok());
        column.values = match kinds.column_type().item {
            Item::Null => CellValues::Nulls,
            Item::Whole(DataType::Bool) => {
                let mut values = fallible_alloc::with_room(cells.len())?;
                values.extend(cells.iter().map(|cell| cell.trim_ascii().eq_ignore_ascii_case(b"true")));
                CellValues::Bool(values)
            }
            Item::Whole(_) => {
                let mut values = fallible_alloc::with_room(cells.len())?;
                values.extend(cells.iter().map(|cell| int(cell).unwrap_or(0)));
                CellValues::Int(values)
            }
            Item::Float(_) => {
                let mut values = fallible_alloc::with_room(cells.len())?;
                values.extend(cells.iter().map(|cell| number(cell).unwrap_or(0.0)));
                CellValues::Float(values)
            }
            Item::Text => {
                cells.shrink();
                CellValues::Text(cells)
            }
        };
        Ok(column)
    }

    /// Gives back the memory that later rows would have taken.
    pub(crate) fn shrink(&mut self) {
        self.nulls.shrink_to_fit();
        match &mut self.values {
            CellValues::Nulls => {}
            CellValues::Bool(values) => values.shrink_to_fit(),
            CellValues::Int(values) => values.shrink_to_fit(),
            CellValues::Float(values) => values.shrink_to_fit(),
            CellValues::Text(values) => values.shrink(),
            CellValues::List(ends, items) => {
                ends.shrink_to_fit();
                items.shrink();
            }
        }
    }

    pub(crate) fn bytes_held(&self) -> usize {
        let values = match &self.values {
            CellValues::Nulls => 0,
            CellValues::Bool(values) => values.capacity(),
            CellValues::Int(values) => values.capacity() * size_of::<i64>(),
            CellValues::Float(values) => values.capacity() * size_of::<f64>(),
            CellValues::Text(values) => values.bytes_held(),
            CellValues::List(ends, items) => ends.capacity() * size_of::<u64>() + items.bytes_held(),
        };
        values + self.nulls.capacity() * size_of::<u64>()
    }

    /// The type, as a schema would have it.
    pub(crate) fn column_type(&self) -> ColumnType {
        let item = match &self.values {
            CellValues::Nulls => Item::Null,
            CellValues::Bool(_) => Item::Whole(DataType::Bool),
            CellValues::Int(_) => Item::Whole(DataType::Int64),
            CellValues::Float(_) => Item::Float(DataType::Float64),
            CellValues::Text(_) => Item::Text,
            CellValues::List(_, items) => items.column_type().item,
        };
        let nesting = match &self.values {
            CellValues::List(_, items) if matches!(items.values, CellValues::List(..)) => Nesting::Pairs,
            CellValues::List(..) => Nesting::List,
            _ => Nesting::One,
        };
        ColumnType { item, nesting }
    }

    /// The value of a row.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for a text or a list beyond the limits; [`ErrorKind::Corrupt`] for text that
    /// is not UTF-8.
    pub(crate) fn value(&self, row: usize) -> Result<Value> {
        if self.is_null(row) {
            return Ok(Value::Null);
        }
        Ok(match &self.values {
            CellValues::Nulls => Value::Null,
            CellValues::Bool(values) => Value::Int(values[row].into()),
            CellValues::Int(values) => Value::Int(values[row]),
            CellValues::Float(values) => Value::Float(values[row]),
            CellValues::Text(values) => {
                let found = values.get(row);
                check_text(found.len() as u64)?;
                return text(found);
            }
            CellValues::List(ends, items) => {
                let start = if row == 0 { 0 } else { ends[row - 1] };
                let n = ends[row] - start;
                if n > MOST_ITEMS {
                    let message = format!("a list has {n} items, at most {MOST_ITEMS} are read");
                    return Err(Error::new(ErrorKind::TooLarge, message));
                }
                let items = (start..ends[row]).map(|item| items.value(item as usize));
                return items.collect::<Result<Arc<[Value]>>>().map(Value::List);
            }
        })
    }

    /// The text of a row, if it is one.
    pub(crate) fn text(&self, row: usize) -> Option<&[u8]> {
        match &self.values {
            CellValues::Text(values) if !self.is_null(row) => Some(values.get(row)),
            _ => None,
        }
    }

    /// The number of a row, if it is one.
    pub(crate) fn number(&self, row: usize) -> Option<f64> {
        match &self.values {
            _ if self.is_null(row) => None,
            CellValues::Int(values) => Some(values[row] as f64),
            CellValues::Float(values) => Some(values[row]),
            _ => None,
        }
    }

    /// A hash of type and values.
    pub(crate) fn hash(&self, state: u64) -> u64 {
        let state = hash(state, self.values.name().as_bytes());
        let state = self.nulls.iter().fold(mix(state ^ self.len as u64), |state, &word| mix(state ^ word));
        match &self.values {
            CellValues::Nulls => state,
            CellValues::Bool(values) => {
                values.iter().fold(state, |state, &value| mix(state ^ u64::from(value)))
            }
            CellValues::Int(values) => values.iter().fold(state, |state, &value| mix(state ^ value as u64)),
            CellValues::Float(values) => {
                values.iter().fold(state, |state, value| mix(state ^ value.to_bits()))
            }
            CellValues::Text(values) => hash_texts(state, values),
            CellValues::List(ends, items) => {
                ends.iter().fold(items.hash(state), |state, &end| mix(state ^ end))
            }
        }
    }
}

/// A hash of all texts and their ends.
pub(crate) fn hash_texts(state: u64, texts: &TextList) -> u64 {
    hash(texts.ends.iter().fold(state, |state, &end| mix(state ^ end)), &texts.bytes)
}

/// What all cells that were seen could be.
#[derive(Debug)]
pub(crate) struct CellKinds {
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
    pub(crate) fn column_type(&self) -> ColumnType {
        let item = match *self {
            Self { n: 0, .. } => Item::Null,
            Self { bools: true, .. } => Item::Whole(DataType::Bool),
            Self { ints: true, .. } => Item::Whole(DataType::Int64),
            Self { floats: true, digits: true, .. } => Item::Float(DataType::Float64),
            _ => Item::Text,
        };
        ColumnType { item, nesting: Nesting::One }
    }

    /// Looks at a cell that is not empty.
    pub(crate) fn see(&mut self, cell: &[u8]) {
        self.n += 1;
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

    fn inferred(cells: &[&str]) -> TableColumn {
        let mut texts = TextList::default();
        cells.iter().for_each(|cell| texts.push(cell.as_bytes()).unwrap());
        TableColumn::inferred(texts).unwrap()
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
            assert_eq!(column.values.name(), name, "{cells:?}");
            assert_eq!(shown(&column), values, "{cells:?}");
        }
    }

    #[test]
    fn values_with_types_become_a_column() {
        let mut column = TableColumn::default();
        for cell in [Cell::Null, Cell::Int(1), Cell::Float(0.5), Cell::Null, Cell::Int(2)] {
            column.push(cell).unwrap();
        }
        assert_eq!(shown(&column), ["Null", "Float(1.0)", "Float(0.5)", "Null", "Float(2.0)"]);
        let error = column.push(Cell::Text(b"a")).unwrap_err();
        assert!(error.message.contains("text, and float64"), "{error}");
        let mut lists = TableColumn::default();
        let list = |items: &[i64]| Cell::List(items.iter().map(|&item| Cell::Int(item)).collect());
        for cell in [list(&[1, 2]), Cell::Null, list(&[]), list(&[3])] {
            lists.push(cell).unwrap();
        }
        assert_eq!(shown(&lists), ["List([Int(1), Int(2)])", "Null", "List([])", "List([Int(3)])"]);
        assert_eq!(lists.column_type().nesting, Nesting::List);
        assert!(lists.push(Cell::List(vec![list(&[1])])).is_err());
        let mut pairs = TableColumn::default();
        let json = serde_json::json!([[[1, 2], [3, 4.5]], [], null, [{"end": 6, "class": "x", "start": 5}]]);
        json.as_array().unwrap().iter().for_each(|value| pairs.push(of_json(Some(value))).unwrap());
        let last = "List([List([Float(5.0), Float(6.0)])])";
        let first = "List([List([Float(1.0), Float(2.0)]), List([Float(3.0), Float(4.5)])])";
        assert_eq!(shown(&pairs), [first, "List([])", "Null", last]);
        assert_eq!(pairs.column_type().nesting, Nesting::Pairs);
        for wrong in
            [serde_json::json!([[1, 2, 3]]), serde_json::json!([[[1]]]), serde_json::json!([{"start": 1}])]
        {
            assert!(pairs.push(of_json(Some(&wrong))).is_err(), "{wrong}");
        }
        assert_ne!(lists.hash(0), column.hash(0));
    }

    #[test]
    fn equal_names_have_one_number() {
        let mut names = NameIndex::default();
        let texts: Vec<String> = (0..5000).map(|n| format!("name {}", n % 1700)).collect();
        let numbers: Vec<u32> = texts.iter().map(|text| names.number(text.as_bytes()).unwrap()).collect();
        assert!(numbers.iter().enumerate().all(|(at, &number)| number as usize == at % 1700));
        let texts = names.into_texts();
        assert_eq!((texts.len(), texts.get(1699)), (1700, &b"name 1699"[..]));
    }

    #[test]
    fn hashes_depend_on_every_byte_and_length() {
        let mut seen = std::collections::HashSet::new();
        for n in 0..40 {
            assert!(seen.insert(hash(0, &vec![0; n])));
            assert!(seen.insert(hash(0, &vec![1; n + 1])));
        }
    }
}
