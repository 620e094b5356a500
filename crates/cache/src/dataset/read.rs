//! The rows of a batch, read from their leaves directly into its columns.

use std::sync::Arc;

use super::{Leaf, Pick};
use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    fields::{Column, ColumnPool, Columns, Field},
};

/// Rows of one leaf, with their rows in the batch.
struct LeafRows<'a> {
    leaf: &'a Arc<dyn Leaf>,
    rows: Vec<u64>,
    slots: Vec<usize>,
}

/// Reads rows of leaves into a batch.
pub(super) fn read(leaves: &[Arc<dyn Leaf>], picks: &[Pick], pool: &ColumnPool) -> Result<Columns> {
    if picks.len() > pool.rows() {
        return Err(Error::new(
            ErrorKind::Shape,
            format!("a read of {} rows; the pool's batches have at most {}", picks.len(), pool.rows()),
        ));
    }
    let mut parts: Vec<LeafRows<'_>> = Vec::new();
    let mut part_of = fallible_alloc::filled(leaves.len(), None)?;
    for (slot, pick) in picks.iter().enumerate() {
        let number = *part_of[pick.leaf].get_or_insert_with(|| {
            parts.push(LeafRows { leaf: &leaves[pick.leaf], rows: Vec::new(), slots: Vec::new() });
            parts.len() - 1
        });
        let part = &mut parts[number];
        part.rows.push(pick.row);
        part.slots.push(slot);
    }
    let mut selections = fallible_alloc::with_room(parts.len())?;
    for part in &parts {
        selections.push((part.leaf.select(&part.rows)?, part, part.leaf.fields()?));
    }
    let mut columns = fallible_alloc::with_room(pool.fields().len())?;
    for (number, field) in pool.fields().iter().enumerate() {
        let number_in = |fields: &[Field]| {
            // Leaves with the same fields may have them in different orders.
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
                shapes = fallible_alloc::filled(rows.saturating_mul(field.rank()), 0)?;
                for (selection, part, fields) in &mut selections {
                    let found = selection.shapes(number_in(fields)?)?;
                    for (&slot, shape) in part.slots.iter().zip(found.chunks_exact(field.rank())) {
                        shapes[slot * field.rank()..(slot + 1) * field.rank()].copy_from_slice(shape);
                    }
                }
                let mut ends = fallible_alloc::with_room(rows + 1)?;
                ends.push(0);
                for (row, shape) in shapes.chunks_exact(field.rank()).enumerate() {
                    // A size beyond 64 bits exceeds any memory; the allocation fails.
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
        values.truncate(bytes);
        let data = values.values_mut();
        for (selection, part, fields) in &mut selections {
            let places: Vec<usize> = part.slots.iter().map(|&slot| place[slot]).collect();
            selection.read(number_in(fields)?, &places, data)?;
        }
        if field.rank() < 2 {
            shapes.clear();
        }
        columns.push(Column { values, offsets, shapes, ..Column::default() });
    }
    Ok(Columns { rows: picks.len(), columns })
}
