//! Integer fields of a leaf in another type, for models that need int32 or int64 ids.
//!
//! Values are converted where they are read to. If the new type is at least as wide, they are read into the
//! end of the rows' places in the batch, and converted from front to back: no value is overwritten before it
//! is read. Only a narrower type needs memory of its own, one block for a field of a batch.

use std::{ops::Range, sync::Arc};

use super::{Leaf, LeafLength, LeafSelection};
use crate::{
    Error, ErrorKind, Result,
    cast::{Misfit, integers},
    fallible_alloc,
    fields::{DataType, Field},
};

const ID_TYPES: [DataType; 4] = [DataType::Int32, DataType::Int64, DataType::Uint16, DataType::Uint32];
/// Values that are converted at once, in a buffer on the stack.
const PIECE: usize = 512;

/// The type of ids with this name.
///
/// # Errors
/// [`ErrorKind::Config`] for another name.
pub fn id_type(name: &str) -> Result<DataType> {
    ID_TYPES.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| {
        let message = format!(
            "dtype is {name:?}, must be \"int32\", \"int64\", \"uint16\" or \"uint32\": the type of token ids"
        );
        Error::new(ErrorKind::Config, message)
    })
}

/// A leaf whose integer fields have another type.
#[derive(Debug)]
pub struct TypedLeaf {
    leaf: Arc<dyn Leaf>,
    to: DataType,
    /// The field to convert; all integer fields if none is named.
    only: Option<String>,
}

impl TypedLeaf {
    /// Converts the integer fields of `leaf`, or only the one named, to an integer type.
    pub fn new(leaf: Arc<dyn Leaf>, to: DataType, only: Option<&str>) -> Self {
        // Converts from the stored type in any case: what fits the last type need not fit those before.
        let leaf = leaf.stored().cloned().unwrap_or(leaf);
        Self { leaf, to, only: only.map(str::to_owned) }
    }

    fn is_converted(&self, field: &Field) -> bool {
        let is_meant = self.only.as_ref().is_none_or(|name| *name == field.name);
        is_meant && !field.is_text && field.dtype.is_integer() && field.dtype != self.to
    }
}

impl Leaf for TypedLeaf {
    fn fields(&self) -> Result<Arc<[Field]>> {
        let typed = |field: &Field| {
            let dtype = if self.is_converted(field) { self.to } else { field.dtype };
            Field { dtype, ..field.clone() }
        };
        Ok(self.leaf.fields()?.iter().map(typed).collect())
    }

    fn is_remote(&self) -> bool {
        self.leaf.is_remote()
    }

    fn length(&self) -> Result<LeafLength> {
        self.leaf.length()
    }

    fn wait(&self, rows: u64, give_up: &dyn Fn() -> bool) -> Result<LeafLength> {
        self.leaf.wait(rows, give_up)
    }

    fn select<'a>(&'a self, rows: &[u64]) -> Result<Box<dyn LeafSelection + 'a>> {
        Ok(Box::new(Converting {
            leaf: self,
            stored: self.leaf.fields()?,
            inner: self.leaf.select(rows)?,
            rows: rows.to_vec(),
        }))
    }

    /// The same in any type: the rows are the same, so a state is valid for any type.
    fn describe(&self) -> String {
        self.leaf.describe()
    }

    fn stored(&self) -> Option<&Arc<dyn Leaf>> {
        Some(&self.leaf)
    }
}

struct Converting<'a> {
    leaf: &'a TypedLeaf,
    /// The fields in their stored types.
    stored: Arc<[Field]>,
    inner: Box<dyn LeafSelection + 'a>,
    rows: Vec<u64>,
}

/// Rows whose places in the batch are adjacent.
struct AdjacentRows {
    rows: Range<usize>,
    place: usize,
    values: usize,
}

impl LeafSelection for Converting<'_> {
    fn shapes(&mut self, field: usize) -> Result<Vec<u64>> {
        self.inner.shapes(field)
    }

    fn read(&mut self, field: usize, places: &[usize], data: &mut [u8]) -> Result<()> {
        let stored = self.stored.clone();
        let (from, to) = (&stored[field], self.leaf.to);
        if !self.leaf.is_converted(from) {
            return self.inner.read(field, places, data);
        }
        let lengths = self.lengths(field)?;
        let (before, after) = (from.dtype.bytes(), to.bytes());
        let mut runs: Vec<AdjacentRows> = fallible_alloc::with_room(places.len())?;
        for (row, (&place, &values)) in places.iter().zip(&lengths).enumerate() {
            match runs.last_mut() {
                Some(run) if run.place + run.values * after == place => {
                    run.rows.end = row + 1;
                    run.values += values;
                }
                _ => runs.push(AdjacentRows { rows: row..row + 1, place, values }),
            }
        }
        let is_wider = after >= before;
        // Stored values of a run: at the end of its places, or in memory of their own after those of the
        // other runs.
        let mut sources = fallible_alloc::with_room(places.len())?;
        let mut total = 0;
        for run in &runs {
            let mut at = if is_wider { run.place + run.values * (after - before) } else { total };
            total += run.values * before;
            for &values in &lengths[run.rows.clone()] {
                sources.push(at);
                at += values * before;
            }
        }
        let mut own = fallible_alloc::filled(if is_wider { 0 } else { total }, 0u8)?;
        self.inner.read(field, &sources, if is_wider { &mut *data } else { &mut own })?;
        let mut piece = [0; PIECE * size_of::<u64>()];
        for run in &runs {
            let (mut source, mut done) = (sources[run.rows.start], 0);
            while done < run.values {
                let values = PIECE.min(run.values - done);
                let piece = &mut piece[..values * before];
                let read = if is_wider { &*data } else { &own[..] };
                piece.copy_from_slice(&read[source..source + values * before]);
                let place = run.place + done * after;
                let out = &mut data[place..place + values * after];
                integers(piece, from.dtype, to, out)
                    .map_err(|misfit| self.misfit(from, &lengths, run, done, misfit))?;
                source += values * before;
                done += values;
            }
        }
        Ok(())
    }
}

impl Converting<'_> {
    /// The number of values of each row.
    fn lengths(&mut self, field: usize) -> Result<Vec<usize>> {
        let stored = &self.stored[field];
        let product = |shape: &[u64]| shape.iter().product::<u64>() as usize;
        if let Some(shape) = stored.shape() {
            return fallible_alloc::filled(self.rows.len(), product(&shape));
        }
        Ok(self.inner.shapes(field)?.chunks_exact(stored.rank()).map(product).collect())
    }

    /// The error for a number that does not fit, the misfit's index counted from value `done` of a run on.
    fn misfit(
        &self,
        field: &Field,
        lengths: &[usize],
        run: &AdjacentRows,
        done: usize,
        misfit: Misfit,
    ) -> Error {
        let Misfit { at, number } = misfit;
        let mut at = done + at;
        let mut row = run.rows.start;
        while row + 1 < run.rows.end && at >= lengths[row] {
            at -= lengths[row];
            row += 1;
        }
        let advice = match number {
            0..0x8000_0000 => "pass dtype=\"int32\"",
            0x8000_0000..0x1_0000_0000 => "pass dtype=\"int64\" or \"uint32\"",
            _ if i64::try_from(number).is_ok() => "pass dtype=\"int64\"",
            _ => "no type of dtype= has room for it",
        };
        let message = format!(
            "{number}, value {at} of {:?} in row {}, does not fit {}; {advice}",
            field.name,
            self.rows[row],
            self.leaf.to.name()
        );
        Error::new(ErrorKind::Schema, message)
    }
}
