//! The values of a column of lists and structs as JSON, row by row, by the rules of [`crate::nested`].

use super::{array::Array, index::BatchIndex, shard::OpenShard};
use crate::{
    Error, ErrorKind, Result,
    columns::{ArrayColumns, in_column},
    nested::{JsonText, NestedColumn, NestedKind, NestedValues},
};

/// The arrays of one column of a batch.
#[derive(Debug)]
pub(super) struct JsonArrays {
    column: NestedColumn,
    structs: Vec<Array>,
    values: ArrayTree,
}

/// An array and those within it, and how many values it has.
#[derive(Debug)]
struct ArrayTree {
    array: Array,
    n_values: u64,
    within: Vec<Self>,
}

impl ArrayTree {
    fn new(of: &NestedValues, array: &impl Fn(usize) -> (Array, u64)) -> Self {
        let within = match &of.kind {
            NestedKind::List(_, values) => vec![Self::new(values, array)],
            NestedKind::Struct(fields) => {
                fields.iter().map(|field| Self::new(&field.values, array)).collect()
            }
            _ => Vec::new(),
        };
        let (array, n_values) = array(of.array);
        Self { array, n_values, within }
    }

    fn add_to<'a>(&'a self, found: &mut Vec<&'a Array>) {
        found.push(&self.array);
        self.within.iter().for_each(|tree| tree.add_to(found));
    }

    fn is_valid(&mut self, shard: &OpenShard, at: u64) -> Result<bool> {
        if at >= self.n_values {
            let message =
                format!("a column has {} values, and its batch refers to number {at}", self.n_values);
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        self.array.is_valid(shard, at)
    }

    fn write(&mut self, of: &NestedValues, shard: &OpenShard, at: u64, into: &mut JsonText) -> Result<()> {
        into.count(1)?;
        if !self.is_valid(shard, at)? {
            return into.null();
        }
        let array = &mut self.array;
        match &of.kind {
            NestedKind::Null => into.null(),
            NestedKind::Bool => match array.int(shard, at)? {
                Some(bit) => into.bool(bit != 0),
                None => into.null(),
            },
            NestedKind::Int => match array.int(shard, at)? {
                Some(number) => into.int(number),
                None => into.null(),
            },
            NestedKind::Float => match array.float(shard, at)? {
                Some(number) => into.float(number),
                None => into.null(),
            },
            NestedKind::Text | NestedKind::Json => {
                match array.text_within(shard, at, &|bytes| into.check(bytes))? {
                    None => into.null(),
                    Some(bytes) if of.kind == NestedKind::Text => into.text(&bytes),
                    Some(bytes) => into.json(&bytes),
                }
            }
            NestedKind::List(fixed, values) => {
                let (from, end) = match fixed {
                    Some(n) => (at.saturating_mul(*n), at.saturating_add(1).saturating_mul(*n)),
                    None => array.range(shard, at)?,
                };
                let Some(items) = self.within.first_mut() else { return into.null() };
                if from > end || end > items.n_values {
                    let message = format!(
                        "a list has the items {from} to {end}, and its batch has {} of them",
                        items.n_values
                    );
                    return Err(Error::new(ErrorKind::Corrupt, message));
                }
                into.list(from..end, |into, at| items.write(values, shard, at, into))
            }
            NestedKind::Struct(fields) => {
                into.raw(b"{")?;
                let mut is_first = true;
                for (field, tree) in fields.iter().zip(&mut self.within) {
                    into.count(1)?;
                    if field.is_kept || !tree.is_null(shard, at)? {
                        into.name(&field.name, is_first)?;
                        tree.write(&field.values, shard, at, into)?;
                        is_first = false;
                    }
                }
                into.raw(b"}")
            }
        }
    }

    /// Whether the value is null, also in the dictionary to which it refers.
    fn is_null(&mut self, shard: &OpenShard, at: u64) -> Result<bool> {
        Ok(!self.is_valid(shard, at)? || !self.array.has_value(shard, at)?)
    }
}

impl JsonArrays {
    /// The arrays of `column` in batch number `at`.
    pub(super) fn new(column: &NestedColumn, columns: &ArrayColumns, batch: &BatchIndex, at: usize) -> Self {
        let array = |which: usize| {
            let spans = &batch.arrays[which];
            (Array::new(&columns.arrays[which].layout, spans, batch.codec, Some(at)), spans.n_values)
        };
        Self {
            column: column.clone(),
            structs: column.structs.iter().map(|&which| array(which).0).collect(),
            values: ArrayTree::new(&column.values, &array),
        }
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        let mut found = Vec::new();
        self.values.add_to(&mut found);
        self.structs.iter().chain(found)
    }

    /// The value of a row as a text of JSON of at most `most` bytes; `None` if it is null.
    ///
    /// # Errors
    /// Of the record: [`ErrorKind::Truncated`] past the end of the shard, [`ErrorKind::Corrupt`],
    /// [`ErrorKind::TooLarge`]. Of the run: [`ErrorKind::Io`].
    pub(super) fn text(&mut self, shard: &OpenShard, row: u64, most: u64) -> Result<Option<Vec<u8>>> {
        let Self { column, structs, values } = self;
        for parent in structs {
            if !parent.is_valid(shard, row)? {
                return Ok(None);
            }
        }
        let mut text = JsonText::new(most);
        let mut write = || match values.is_null(shard, row)? {
            true => Ok(false),
            false => values.write(&column.values, shard, row, &mut text).map(|()| true),
        };
        let is_there = write().map_err(|error| in_column(&column.name, error))?;
        Ok(is_there.then(|| text.finish()))
    }
}
