//! [`RowCollate`] makes batches with one example per row, of any fields.
//!
//! All large memory is recycled. A worker takes a spare buffer for its example, and the collator returns it
//! once its row is written. A batch is in memory of a [`ColumnPool`], which is recycled when its holder drops
//! it. In steady state no large memory is allocated, neither per example nor per batch.

use std::sync::{Arc, PoisonError};

use super::{
    padded::{PadTo, padded},
    pairs::MixedPairs,
    remix::RemixedGroups,
    values::{misfit, write, write_items, write_number, write_runs, write_sparse},
    written::Written,
};
use crate::sync::plain::Mutex;
use crate::{
    Error, ErrorKind, Result,
    contract::{BatchSlot, Collate},
    dtype::{Values, each},
    fallible_alloc,
    fields::{Buffer, Column, ColumnPool, Columns, Dim, Field, Row, Value},
};

/// One row, ready for a model: the values of its fields, in order.
pub type Example = Row;

/// Spare buffers of examples, returned by the collator for the workers. The last one returned is taken first:
/// it is the most likely to be still in a cache.
#[derive(Debug)]
pub struct SpareBuffers {
    resting: Mutex<Vec<Values>>,
    most: usize,
}

impl SpareBuffers {
    /// Creates an empty set for at most `most` buffers.
    pub fn new(most: usize) -> Self {
        // bounded: the pipeline keeps some hundred.
        Self { resting: Mutex::new(Vec::with_capacity(most)), most }
    }

    /// Takes a buffer, if there is one.
    pub fn take(&self) -> Option<Values> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Returns a buffer, or drops it if there are enough.
    pub fn leave(&self, buffer: Values) {
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        if resting.len() < self.most {
            resting.push(buffer);
        }
    }

    pub fn len(&self) -> usize {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Writes examples into the rows of [`Columns`].
#[derive(Debug)]
pub struct RowCollate {
    pool: Arc<ColumnPool>,
    spare: Arc<SpareBuffers>,
    /// Acquired for the first row, so that no memory is held between passes.
    under_way: Option<Vec<Written>>,
    written: Vec<bool>,
    mixed: Option<MixedRows>,
    /// The rule of each field with a padded axis, by its number.
    pad_to: Vec<PadTo>,
    /// The number of the field that has each row's place in the batch as it was drawn.
    slot: Option<usize>,
}

/// What is mixed in a complete batch.
#[derive(Debug)]
struct MixedRows {
    mixing: RowMixing,
    /// The place of each row in the batch as it was drawn, and its random bits.
    rows: Vec<(usize, u64)>,
}

/// How the rows of a complete batch are mixed.
#[derive(Debug, Clone)]
pub enum RowMixing {
    Pairs(Arc<MixedPairs>),
    Groups(Arc<RemixedGroups>),
}

impl RowMixing {
    /// The rows that are mixed with each other.
    fn size(&self) -> usize {
        match self {
            Self::Pairs(_) => 2,
            Self::Groups(groups) => groups.size(),
        }
    }
}

impl RowCollate {
    /// Creates a collator that takes memory from `pool` and returns the buffers of examples to `spare`.
    pub fn new(pool: Arc<ColumnPool>, spare: Arc<SpareBuffers>) -> Self {
        // bounded: a batch has at most 2^20 rows.
        let written = vec![false; pool.rows()];
        Self { pool, spare, under_way: None, written, mixed: None, pad_to: Vec::new(), slot: None }
    }

    /// The same, whose fields with a padded axis are padded so, by their numbers; without a rule, to the
    /// longest.
    #[must_use]
    pub fn padded_to(self, pad_to: Vec<PadTo>) -> Self {
        Self { pad_to, ..self }
    }

    /// The same, one field of which is each row's place in the batch as it was drawn, whatever the example
    /// has.
    #[must_use]
    pub fn telling_slots(self, slot: Option<usize>) -> Self {
        Self { slot, ..self }
    }

    /// The same, that mixes rows. Its examples have one more value, their random bits.
    #[must_use]
    pub fn mixing(mut self, mixing: Option<RowMixing>) -> Self {
        // bounded: as above.
        self.mixed = mixing.map(|mixing| MixedRows { mixing, rows: vec![(0, 0); self.pool.rows()] });
        self
    }

    fn acquire(&self) -> Result<Vec<Written>> {
        let fields = self.pool.fields().iter().enumerate();
        let field = |(number, field): (usize, &Field)| match field.row_bytes() {
            None if field.padded_axis().is_some() => {
                Ok(Written::Padded(fallible_alloc::filled(self.pool.rows(), Value::Null)?))
            }
            Some(row_bytes) => Ok(Written::Stacked { buffer: self.pool.acquire(number, 0)?, row_bytes }),
            None if field.is_text && field.rank() == 1 => {
                Ok(Written::Text(fallible_alloc::filled(self.pool.rows(), Arc::from(""))?))
            }
            None if field.rank() == 1 || field.is_text => {
                let empty: Arc<[Value]> = Arc::new([]);
                Ok(Written::Lists(fallible_alloc::filled(self.pool.rows(), empty)?))
            }
            None => Err(Error::new(
                ErrorKind::Shape,
                format!("a loader cannot make batches of the field {field}"),
            )),
        };
        fields.map(field).collect()
    }
}

/// The column of lists: their items, and where each list begins. Texts are as they are.
fn joined(lists: &[Arc<[Value]>], field: &Field) -> Result<Column> {
    let mut offsets = fallible_alloc::with_room(lists.len() + 1)?;
    offsets.push(0);
    let mut n = 0i64;
    for list in lists {
        n += list.len() as i64;
        offsets.push(n);
    }
    let items = lists.iter().flat_map(|list| list.iter());
    if field.is_text {
        let mut texts = fallible_alloc::with_room(n as usize)?;
        texts.extend(items.filter_map(|item| match item {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }));
        return Ok(Column { texts, offsets: Some(offsets), ..Column::default() });
    }
    let width = field.dtype.bytes();
    let mut values = Buffer::new((n as usize).saturating_mul(width))?;
    let mut places = values.values_mut::<u8>().chunks_exact_mut(width);
    if items.zip(&mut places).all(|(item, place)| write_number(place, field.dtype, item)) {
        return Ok(Column { values, offsets: Some(offsets), ..Column::default() });
    }
    Err(misfit(field))
}

impl Collate for RowCollate {
    type Example = Example;
    type Batch = Columns;

    fn put(&mut self, BatchSlot { row, draw, .. }: BatchSlot, mut example: Example) -> Result<()> {
        let n_fields = self.pool.fields().len();
        let n_values = n_fields + usize::from(self.mixed.is_some());
        if example.len() != n_values {
            let message = format!("an example has {} values, its batch has {n_fields} fields", example.len());
            return Err(Error::new(ErrorKind::Shape, message));
        }
        if self.under_way.is_none() {
            self.under_way = Some(self.acquire()?);
        }
        if let (Some(mixed), Some(Value::Int(bits))) = (&mut self.mixed, example.last()) {
            mixed.rows[row] = (draw, *bits as u64);
        }
        if let Some(slot) = self.slot.and_then(|slot| example.get_mut(slot)) {
            *slot = Value::Int(draw as i64);
        }
        let under_way = self.under_way.iter_mut().flatten();
        for ((written, value), field) in under_way.zip(example).zip(self.pool.fields().iter()) {
            let fits = match (written, value) {
                (Written::Stacked { buffer, row_bytes }, value) => {
                    let place = buffer.row_mut(row, *row_bytes);
                    match value {
                        Value::Int(_) | Value::Float(_) => write_number(place, field.dtype, &value),
                        Value::Array(values) => {
                            let fits = each!(&values, values => write(place, values));
                            self.spare.leave(values);
                            fits
                        }
                        Value::List(items) => write_items(place, field.dtype, &items),
                        Value::Sparse(sparse) => write_sparse(place, field.dtype, &sparse),
                        Value::Runs(runs) => {
                            field.dims.first() == Some(&Dim::Fixed(runs.places.into()))
                                && write_runs(place, field.dtype, &runs)
                        }
                        Value::Text(_) | Value::Ids(_) | Value::Null => false,
                    }
                }
                (Written::Text(texts), Value::Text(text)) => {
                    texts[row] = text;
                    true
                }
                (Written::Lists(lists), Value::List(list)) => {
                    lists[row] = list;
                    true
                }
                (Written::Padded(rows), value) => {
                    rows[row] = value;
                    true
                }
                (Written::Text(_) | Written::Lists(_) | Written::Joined(_), _) => false,
            };
            if !fits {
                return Err(misfit(field));
            }
        }
        self.written[row] = true;
        Ok(())
    }

    fn complete(&mut self, rows: usize) -> Result<()> {
        if let (Some(MixedRows { mixing, rows: drawn }), Some(written)) = (&self.mixed, &mut self.under_way) {
            let size = mixing.size();
            for (row, group) in drawn[..rows].windows(size.max(1)).enumerate() {
                let (slot, first) = group[0];
                // A slot whose record is bad leaves the others of its group as they are.
                let is_whole = (slot..).zip(group).all(|(slot, (drawn, _))| slot == *drawn);
                match mixing {
                    _ if slot % size != 0 || !is_whole => {}
                    RowMixing::Pairs(pairs) => {
                        pairs.mix(self.pool.fields(), written, row, [first, group[1].1]);
                    }
                    RowMixing::Groups(groups) => groups.mix(written, row, first),
                }
            }
        }
        let mut first_len = 0;
        let under_way = self.under_way.iter_mut().flatten();
        for ((number, field), written) in self.pool.fields().iter().enumerate().zip(under_way) {
            match written {
                Written::Lists(lists) => *written = Written::Joined(joined(&lists[..rows], field)?),
                Written::Padded(values) => {
                    let buffer = self.pool.acquire(number, 0)?;
                    let to = self.pad_to.get(number).unwrap_or(&PadTo::Longest);
                    let column = padded(&values[..rows], field, buffer, to, first_len)?;
                    first_len = if number == 0 { column.padded_len } else { first_len };
                    for value in values.drain(..rows) {
                        if let Value::Array(values) = value {
                            self.spare.leave(values);
                        }
                    }
                    *written = Written::Joined(column);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, rows: usize) -> Columns {
        // A row that was never written would have the values of an earlier batch.
        assert!(self.written[..rows].iter().all(|&written| written), "a row of the batch was never written");
        self.written.fill(false);
        let column = |written| match written {
            Written::Stacked { mut buffer, row_bytes } => {
                buffer.truncate(rows * row_bytes);
                Column { values: buffer, ..Column::default() }
            }
            Written::Text(mut texts) => {
                texts.truncate(rows);
                Column { texts, ..Column::default() }
            }
            Written::Joined(column) => column,
            Written::Lists(_) | Written::Padded(_) => Column::default(),
        };
        let columns = match self.under_way.take() {
            Some(under_way) => under_way.into_iter().map(column).collect(),
            None => self.pool.fields().iter().map(|_| Column::default()).collect(),
        };
        Columns { rows, columns }
    }
}

#[cfg(test)]
mod tests;
