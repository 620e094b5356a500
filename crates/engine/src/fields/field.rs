//! [`Field`]: the name, type and shape of a field.

use std::fmt;

use super::DataType;

/// The description of a named value that every row has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name; if rows are nested, a path.
    pub name: String,
    /// The type of its numbers; `uint8` for text.
    pub dtype: DataType,
    /// The number of dimensions of a row.
    pub rank: usize,
    /// The shape of a row, if all rows have the same: then they are stacked.
    pub shape: Option<Vec<u64>>,
    /// Whether it is text in UTF-8 instead of numbers; of rank 2, if rows are lists of texts.
    pub is_text: bool,
}

impl Field {
    /// A field whose rows all have `shape`.
    pub fn stacked(name: impl Into<String>, dtype: DataType, shape: impl Into<Vec<u64>>) -> Self {
        let shape = shape.into();
        Self { name: name.into(), dtype, rank: shape.len(), shape: Some(shape), is_text: false }
    }

    /// A field of rows of different shapes, with `rank` dimensions each.
    pub fn jagged(name: impl Into<String>, dtype: DataType, rank: usize) -> Self {
        Self { name: name.into(), dtype, rank, shape: None, is_text: false }
    }

    /// A field of rows of any shape with `rank` dimensions: jagged, except for `rank` 0, a single number.
    pub fn of_rank(name: impl Into<String>, dtype: DataType, rank: usize) -> Self {
        if rank == 0 { Self::number(name, dtype) } else { Self::jagged(name, dtype, rank) }
    }

    /// A field with one number per row.
    pub fn number(name: impl Into<String>, dtype: DataType) -> Self {
        Self::stacked(name, dtype, [])
    }

    pub fn text(name: impl Into<String>) -> Self {
        Self { is_text: true, ..Self::jagged(name, DataType::Uint8, 1) }
    }

    /// Whether two fields are equal except for their shapes.
    pub fn is_like(&self, other: &Self) -> bool {
        let known = |field: &Self| (field.dtype, field.rank, field.is_text);
        self.name == other.name && known(self) == known(other)
    }

    /// Bytes of a row, if all rows have the same shape.
    pub fn row_bytes(&self) -> Option<usize> {
        // Saturating: a size beyond a word is beyond any memory.
        let numbers =
            self.shape.as_ref()?.iter().fold(1, |numbers, &axis| u64::saturating_mul(numbers, axis));
        Some((numbers as usize).saturating_mul(self.dtype.bytes()))
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_text {
            return write!(f, "{:?} of text", self.name);
        }
        let shape = match &self.shape {
            Some(shape) => shape.iter().map(ToString::to_string).collect::<Vec<_>>(),
            // bounded: a field has at most 64 axes.
            None => vec!["?".to_owned(); self.rank],
        };
        write!(f, "{:?} of {} [{}]", self.name, self.dtype.name(), shape.join(", "))
    }
}
