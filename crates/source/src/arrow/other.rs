//! The values of a column beside the recordings, row by row: numbers, text, lists, fields of structs.

use std::sync::Arc;

use super::{array::Array, index::BatchIndex, shard::OpenShard};
use crate::{
    Error, ErrorKind, Result,
    columns::{ArrayColumns, Item, MOST_ITEMS, Nesting, Other, Pair, check_pair, in_column, text, whole},
    fields::Value,
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
    pair: Option<NestedArrays>,
}

/// The arrays of the lists or structs in lists, and how many there are.
#[derive(Debug)]
struct NestedArrays {
    array: Array,
    /// The length of each list, if all have the same.
    fixed: Option<u64>,
    /// Of structs, those of the ends and how many there are.
    ends: Option<(Array, u64)>,
    n: u64,
}

impl OtherArrays {
    /// The arrays of `other` in batch number `at`.
    pub(super) fn new(other: &Other, columns: &ArrayColumns, batch: &BatchIndex, at: usize) -> Self {
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
            pair: other.pair.map(|pair| {
                let (at, fixed, ends) = match pair {
                    Pair::Lists(at, fixed) => (at, fixed, None),
                    Pair::Structs(at, ends) => (at, None, Some((array(ends), batch.arrays[ends].n_values))),
                };
                NestedArrays { array: array(at), fixed, ends, n: batch.arrays[at].n_values }
            }),
        }
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        let Self { structs, list, items, pair, .. } = self;
        let pair = pair
            .iter()
            .flat_map(|pair| [&pair.array].into_iter().chain(pair.ends.as_ref().map(|(array, _)| array)));
        structs.iter().chain(list).chain([items]).chain(pair)
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
        let n = self.pair.as_ref().map_or(self.n_items, |pair| pair.n);
        check_range((start, end), n)?;
        let values = (start..end).map(|at| match self.pair {
            Some(_) => self.pair_at(shard, at),
            None => self.item(shard, at),
        });
        values.collect::<Result<Arc<[Value]>>>().map(Value::List)
    }

    /// The list or struct number `at` in a list.
    fn pair_at(&mut self, shard: &OpenShard, at: u64) -> Result<Value> {
        let Some(pair) = &mut self.pair else { return Ok(Value::Null) };
        if !pair.array.is_valid(shard, at)? {
            return Ok(Value::Null);
        }
        if let Some((ends, n)) = &mut pair.ends {
            check_range((at, at.saturating_add(1)), self.n_items.min(*n))?;
            let end = item(self.item, ends, shard, at)?;
            return Ok(Value::List([self.item(shard, at)?, end].into()));
        }
        let (start, end) = match pair.fixed {
            Some(n) => (at.saturating_mul(n), at.saturating_mul(n).saturating_add(n)),
            None => pair.array.range(shard, at)?,
        };
        check_range((start, end), self.n_items)?;
        check_pair(end - start)?;
        (start..end).map(|at| self.item(shard, at)).collect::<Result<Arc<[Value]>>>().map(Value::List)
    }

    fn item(&mut self, shard: &OpenShard, at: u64) -> Result<Value> {
        item(self.item, &mut self.items, shard, at)
    }
}

/// Checks the items of a list, of which its batch has `n`.
fn check_range((start, end): (u64, u64), n: u64) -> Result<()> {
    if start > end || end > n {
        let message = format!("a list has the items {start} to {end}, and its batch has {n} of them");
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    if end - start > MOST_ITEMS {
        let message = format!("a list has {} items, at most {MOST_ITEMS} are read", end - start);
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    Ok(())
}

fn item(of: Item, items: &mut Array, shard: &OpenShard, at: u64) -> Result<Value> {
    let value = match of {
        Item::Null => None,
        Item::Whole(_) => items.int(shard, at)?.map(whole).transpose()?,
        Item::Float(_) => items.float(shard, at)?.map(Value::Float),
        Item::Text => items.text(shard, at)?.map(|bytes| text(&bytes)).transpose()?,
    };
    Ok(value.unwrap_or(Value::Null))
}
