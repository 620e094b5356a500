//! The values of a column beside the recordings, row by row: numbers, text, lists, fields of structs.

use std::sync::Arc;

use super::{array::Array, index::Batch, shard::OpenShard};
use crate::{
    Error, ErrorKind, Result,
    fields::Value,
    source::columns::{Columns, Item, MOST_ITEMS, Nesting, Other, in_column, text, whole},
};

/// The arrays of one column of a batch.
#[derive(Debug)]
pub(super) struct OtherArrays {
    name: Arc<str>,
    item: Item,
    nesting: Nesting,
    structs: Vec<Array>,
    list: Option<Array>,
    items: Array,
    /// How many items all lists have together.
    n_items: u64,
}

impl OtherArrays {
    /// The arrays of `other` in batch number `at`.
    pub(super) fn new(other: &Other, columns: &Columns, batch: &Batch, at: usize) -> Self {
        let array = |which: usize| {
            Array::new(&columns.arrays[which].layout, &batch.arrays[which], batch.codec, Some(at))
        };
        Self {
            name: Arc::clone(&other.name),
            item: other.column_type.item,
            nesting: other.column_type.nesting,
            structs: other.structs.iter().copied().map(array).collect(),
            list: other.list.map(array),
            items: array(other.items),
            n_items: batch.arrays[other.items].n_values,
        }
    }

    /// The value of a row.
    ///
    /// # Errors
    /// Of the record: [`ErrorKind::Truncated`] past the end of the shard, [`ErrorKind::Corrupt`],
    /// [`ErrorKind::TooLarge`] for a text or a list beyond the limits. Of the run: [`ErrorKind::Io`],
    /// [`ErrorKind::Schema`] for a number beyond int64.
    pub(super) fn value(&mut self, shard: &OpenShard, row: u64) -> Result<Value> {
        self.read(shard, row).map_err(|error| in_column(&self.name, error))
    }

    fn read(&mut self, shard: &OpenShard, row: u64) -> Result<Value> {
        for parent in &mut self.structs {
            if !parent.is_valid(shard, row)? {
                return Ok(Value::Null);
            }
        }
        let Some(list) = &mut self.list else { return self.item(shard, row) };
        if !list.is_valid(shard, row)? {
            return Ok(Value::Null);
        }
        let (start, end) = match self.nesting {
            Nesting::Fixed(n) => {
                let start = row.saturating_mul(n);
                (start, start.saturating_add(n))
            }
            _ => list.range(shard, row)?,
        };
        if start > end || end > self.n_items {
            let message =
                format!("a list has the items {start} to {end}, and its batch has {} of them", self.n_items);
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        if end - start > MOST_ITEMS {
            let message = format!("a list has {} items, at most {MOST_ITEMS} are read", end - start);
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        (start..end).map(|at| self.item(shard, at)).collect::<Result<Arc<[Value]>>>().map(Value::List)
    }

    fn item(&mut self, shard: &OpenShard, at: u64) -> Result<Value> {
        let value = match self.item {
            Item::Null => None,
            Item::Whole(_) => self.items.int(shard, at)?.map(whole).transpose()?,
            Item::Float(_) => self.items.float(shard, at)?.map(Value::Float),
            Item::Text => self.items.text(shard, at)?.map(|bytes| text(&bytes)).transpose()?,
        };
        Ok(value.unwrap_or(Value::Null))
    }
}
