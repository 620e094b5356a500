//! Rows side by side, field by field: what a read makes.
//!
//! A field of which all rows have one shape is stacked, `[rows, *shape]`, in memory that is used again. Any other is jagged: the values
//! of all rows one behind the other, and where each ends.

use std::sync::Arc;

use super::{Field, Leaf, Pick};
use crate::{
    Error, ErrorKind, Result,
    batch::{self, FieldPool},
    fallible_alloc,
};

/// The values of one field of several rows.
#[derive(Debug)]
pub struct Column {
    /// The values, as bytes in words.
    pub values: batch::Field<i64>,
    /// How many bytes they take.
    pub bytes: usize,
    /// Of a jagged field, where each row begins, and where the last one ends: in values.
    pub offsets: Option<Vec<i64>>,
    /// Of a jagged field with more dimensions than one, those of each row.
    pub shapes: Vec<u64>,
}

/// The values of all fields of several rows.
#[derive(Debug)]
pub struct Columns {
    /// How many rows.
    pub rows: usize,
    /// In the order of the fields.
    pub columns: Vec<Column>,
}

/// Memory for reads of up to so many rows.
#[derive(Debug)]
pub struct ColumnPool {
    fields: Arc<[Field]>,
    rows: usize,
    pools: Vec<Option<FieldPool<i64>>>,
}

impl ColumnPool {
    /// For reads of `rows` rows at most; the memory of `slots` of them rests.
    pub fn new(fields: Arc<[Field]>, rows: usize, slots: usize) -> Self {
        let pool = |field: &Field| {
            let bytes = field.row_bytes()?.saturating_mul(rows);
            Some(FieldPool::new(bytes.div_ceil(WORD), slots))
        };
        let pools = fields.iter().map(pool).collect();
        Self { fields, rows, pools }
    }

    /// The fields.
    pub fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    fn acquire(&self, field: usize, bytes: usize) -> Result<batch::Field<i64>> {
        match &self.pools[field] {
            Some(pool) => pool.acquire(),
            None => FieldPool::new(bytes.div_ceil(WORD), 0).acquire(),
        }
    }
}

const WORD: usize = size_of::<i64>();

/// The bytes of words.
pub fn bytes_of(words: &[i64]) -> &[u8] {
    // SAFETY: the same memory; bytes have no alignment and any value.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// The bytes of words, to be written.
pub fn bytes_of_mut(words: &mut [i64]) -> &mut [u8] {
    // SAFETY: the same memory, borrowed alone; bytes have no alignment, and any bytes are words.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}

/// Rows of one leaf, and which rows of the batch they are.
struct Part<'a> {
    leaf: &'a Arc<dyn Leaf>,
    rows: Vec<u64>,
    slots: Vec<usize>,
}

/// Reads rows of leaves.
pub(super) fn read(leaves: &[Arc<dyn Leaf>], picks: &[Pick], pool: &ColumnPool) -> Result<Columns> {
    if picks.len() > pool.rows {
        return Err(Error::new(
            ErrorKind::Shape,
            format!("a read of {} rows, there is memory for {}", picks.len(), pool.rows),
        ));
    }
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut part_of = fallible_alloc::filled(leaves.len(), usize::MAX)?;
    for (slot, pick) in picks.iter().enumerate() {
        if part_of[pick.leaf] == usize::MAX {
            part_of[pick.leaf] = parts.len();
            parts.push(Part { leaf: &leaves[pick.leaf], rows: Vec::new(), slots: Vec::new() });
        }
        let part = &mut parts[part_of[pick.leaf]];
        part.rows.push(pick.row);
        part.slots.push(slot);
    }
    let mut selections = fallible_alloc::with_room(parts.len())?;
    for part in &parts {
        selections.push((part.leaf.select(&part.rows)?, part, part.leaf.fields()?));
    }
    let mut columns = fallible_alloc::with_room(pool.fields.len())?;
    for (number, field) in pool.fields.iter().enumerate() {
        let number_in = |fields: &[Field]| {
            // Leaves that agree on their fields may have them in another order.
            fields.iter().position(|other| other.is_like(field)).ok_or_else(|| {
                Error::new(ErrorKind::Config, format!("a source of the mixture has no field {field}"))
            })
        };
        let rows = picks.len();
        let size = field.dtype.bytes();
        let (mut shapes, mut offsets) = (Vec::new(), None);
        let mut place = fallible_alloc::filled(rows + 1, 0)?;
        match field.row_bytes() {
            Some(bytes) => {
                place.iter_mut().enumerate().for_each(|(row, place)| *place = row.saturating_mul(bytes))
            }
            None => {
                shapes = fallible_alloc::filled(rows.saturating_mul(field.rank), 0)?;
                for (selection, part, fields) in &mut selections {
                    let found = selection.shapes(number_in(fields)?)?;
                    for (&slot, shape) in part.slots.iter().zip(found.chunks_exact(field.rank)) {
                        shapes[slot * field.rank..(slot + 1) * field.rank].copy_from_slice(shape);
                    }
                }
                let mut ends = fallible_alloc::with_room(rows + 1)?;
                ends.push(0);
                for (row, shape) in shapes.chunks_exact(field.rank).enumerate() {
                    // A size beyond a word is beyond any memory.
                    let values = shape.iter().fold(1, |values, &axis| u64::saturating_mul(values, axis));
                    let end = (place[row] / size).saturating_add(values as usize);
                    place[row + 1] = end.saturating_mul(size);
                    ends.push(end as i64);
                }
                offsets = Some(ends);
            }
        }
        let bytes = place[rows];
        let mut values = pool.acquire(number, bytes)?;
        let data = &mut bytes_of_mut(&mut values)[..bytes];
        for (selection, part, fields) in &mut selections {
            let places: Vec<usize> = part.slots.iter().map(|&slot| place[slot]).collect();
            selection.read(number_in(fields)?, &places, data)?;
        }
        values.truncate(bytes.div_ceil(WORD));
        if field.rank < 2 {
            shapes.clear();
        }
        columns.push(Column { values, bytes, offsets, shapes });
    }
    Ok(Columns { rows: picks.len(), columns })
}
