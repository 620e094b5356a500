//! The output of a processor for one batch: documents, as a column for each field.

use super::{cast, layout::MAX_RANK};
use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    fields::{DataType, Field},
};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processed {
    pub documents: u64,
    /// One for each field, each with all documents.
    pub columns: Vec<BatchColumn>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchColumn {
    /// The field's path in a document.
    pub name: String,
    pub dtype: DataType,
    /// The number of axes of each document.
    pub rank: usize,
    /// The values of all documents, little-endian.
    pub data: Vec<u8>,
    /// The number of values of each document.
    pub lengths: Vec<u64>,
    /// The shape of each document, `rank` numbers; may be empty below two axes.
    pub shapes: Vec<u64>,
}

impl BatchColumn {
    pub fn flat(name: impl Into<String>, dtype: DataType, data: Vec<u8>, lengths: Vec<u64>) -> Self {
        Self { name: name.into(), dtype, rank: 1, data, lengths, shapes: Vec::new() }
    }

    /// Converts the values to another type.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if a value does not fit.
    pub fn cast(&mut self, dtype: DataType) -> Result<()> {
        if self.data.is_empty() {
            self.dtype = dtype;
        } else if self.dtype != dtype {
            self.data = cast::cast(&self.data, self.dtype, dtype).map_err(|error| Error {
                message: format!("field {:?}: {}", self.name, error.message),
                ..error
            })?;
            self.dtype = dtype;
        }
        Ok(())
    }
}

impl Processed {
    /// Sorts the fields by name, and checks that they are consistent.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if a field occurs twice, or its number of documents or values is wrong.
    pub fn check(&mut self) -> Result<()> {
        self.columns.sort_by(|a, b| a.name.cmp(&b.name));
        let wrong = |message: String| Err(Error::new(ErrorKind::Schema, message));
        for pair in self.columns.windows(2) {
            if pair[0].name == pair[1].name || pair[1].name.starts_with(&format!("{}/", pair[0].name)) {
                return wrong(format!(
                    "the fields {:?} and {:?} conflict: one path repeats or contains the other; rename one",
                    pair[0].name, pair[1].name
                ));
            }
        }
        for BatchColumn { name, dtype, rank, data, lengths, shapes } in &self.columns {
            if let Some(problem) = bad_name(name) {
                return wrong(format!("{name:?} is not allowed as the name of a field: {problem}"));
            }
            if *rank > MAX_RANK {
                return wrong(format!("field {name:?} has {rank} axes, an array has at most {MAX_RANK}"));
            }
            let values = lengths.iter().fold(0u64, |sum, &length| sum.saturating_add(length));
            if lengths.len() as u64 != self.documents
                || data.len() as u64 != values.saturating_mul(dtype.bytes() as u64)
            {
                return wrong(format!(
                    "field {name:?} has {} documents of {} bytes, expected {} of {values} values of {}",
                    lengths.len(),
                    data.len(),
                    self.documents,
                    dtype.name()
                ));
            }
            if *rank > 1 {
                let product = |shape: &[u64]| shape.iter().try_fold(1u64, |all, &axis| all.checked_mul(axis));
                let fits = shapes.len() == lengths.len() * rank
                    && shapes.chunks_exact(*rank).zip(lengths).all(|(shape, &n)| product(shape) == Some(n));
                if !fits {
                    return wrong(format!("the shapes of field {name:?} don't match its {values} values"));
                }
            }
        }
        Ok(())
    }

    /// Appends documents with the same fields. A `Processed` without documents may have no fields.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if the fields differ, [`ErrorKind::Memory`].
    pub fn append(&mut self, more: Self) -> Result<()> {
        if more.documents == 0 {
            return Ok(());
        }
        if self.documents == 0 {
            *self = more;
            return Ok(());
        }
        let is_like =
            |(a, b): (&BatchColumn, &BatchColumn)| a.name == b.name && a.dtype == b.dtype && a.rank == b.rank;
        if self.columns.len() != more.columns.len() || !self.columns.iter().zip(&more.columns).all(is_like) {
            let message = "the documents of a batch have different fields, expected the same fields in each";
            return Err(Error::new(ErrorKind::Schema, message));
        }
        for (column, more) in self.columns.iter_mut().zip(more.columns) {
            fallible_alloc::grow(&mut column.data, more.data.len())?;
            column.data.extend_from_slice(&more.data);
            column.lengths.extend(more.lengths);
            column.shapes.extend(more.shapes);
        }
        self.documents += more.documents;
        Ok(())
    }

    /// Keeps only these fields, converted to their type where one is given.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if a field is missing, or has values that don't fit the type.
    pub fn select(&mut self, fields: &[(String, Option<DataType>)]) -> Result<()> {
        if self.documents == 0 {
            return Ok(());
        }
        let mut columns = fallible_alloc::with_room(fields.len())?;
        for (name, dtype) in fields {
            let Some(at) = self.columns.iter().position(|column| column.name == *name) else {
                let names: Vec<_> = self.columns.iter().map(|column| &column.name[..]).collect();
                let message = format!(
                    "the processor returned no field {name:?}, which fields= names; it returned {}",
                    names.join(", ")
                );
                return Err(Error::new(ErrorKind::Schema, message));
            };
            let mut column = self.columns.swap_remove(at);
            if let Some(dtype) = dtype {
                column.cast(*dtype)?;
            }
            columns.push(column);
        }
        self.columns = columns;
        Ok(())
    }

    pub fn fields(&self) -> impl Iterator<Item = Field> + '_ {
        self.columns.iter().map(|column| Field::of_rank(&column.name, column.dtype, column.rank))
    }
}

/// The reason why a field's name, which becomes a path, is not allowed.
fn bad_name(name: &str) -> Option<&'static str> {
    let parts = || name.split('/');
    if parts().any(str::is_empty) {
        Some("a part of it is empty")
    } else if parts().any(|part| part.starts_with('.') || part.contains(['\\', '\0'])) {
        Some("a part of it begins with a dot, or has a character that is not allowed in paths")
    } else if parts().any(|part| matches!(part, "data" | "offsets" | "shapes" | "zarr.json" | "c")) {
        Some("data, offsets, shapes, zarr.json and c are reserved")
    } else {
        None
    }
}
