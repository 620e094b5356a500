//! [`Field`]: the name, type and shape of a field.

use std::{fmt, sync::Arc};

use super::DataType;

/// The length of an axis of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dim {
    /// The same in all rows.
    Fixed(u64),
    /// Its own in each row; in a batch that of the longest row, to which the others are padded.
    PaddedInBatch {
        /// The longest that a row may have.
        most: u64,
        /// The most that all rows of a batch may have together, after padding.
        most_in_batch: u64,
    },
    /// Its own in each row, and rows lie one after the other.
    Ragged,
}

/// The description of a named value that every row has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name; if rows are nested, a path.
    pub name: String,
    /// The type of its numbers; `uint8` for text.
    pub dtype: DataType,
    /// The axes of a row. At most one is [padded](Dim::PaddedInBatch), and then the others are fixed.
    pub dims: Vec<Dim>,
    /// Whether it is text in UTF-8 instead of numbers; of rank 2, if rows are lists of texts.
    pub is_text: bool,
    /// The bytes with which one place of the padded axis is filled: a value for each place of the other axes,
    /// in their order. Empty: zeros.
    pub fill: Arc<[u8]>,
    /// Whether rows are filled before their values and not behind them.
    pub pads_left: bool,
}

impl Field {
    /// A field of rows with these axes, padded with zeros.
    pub fn new(name: impl Into<String>, dtype: DataType, dims: Vec<Dim>) -> Self {
        Self { name: name.into(), dtype, dims, is_text: false, fill: Arc::new([]), pads_left: false }
    }

    /// A field whose rows all have `shape`.
    pub fn stacked(name: impl Into<String>, dtype: DataType, shape: impl Into<Vec<u64>>) -> Self {
        Self::new(name, dtype, shape.into().into_iter().map(Dim::Fixed).collect())
    }

    /// A field of rows of different shapes, with `rank` dimensions each.
    pub fn jagged(name: impl Into<String>, dtype: DataType, rank: usize) -> Self {
        // bounded: a field has at most 64 axes.
        Self::new(name, dtype, vec![Dim::Ragged; rank])
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

    /// The number of dimensions of a row.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The shape of a row, if all rows have the same: then they are stacked.
    pub fn shape(&self) -> Option<Vec<u64>> {
        let fixed = |dim: &Dim| if let Dim::Fixed(n) = dim { Some(*n) } else { None };
        self.dims.iter().map(fixed).collect()
    }

    /// The number of the padded axis, if there is one.
    pub fn padded_axis(&self) -> Option<usize> {
        self.dims.iter().position(|dim| matches!(dim, Dim::PaddedInBatch { .. }))
    }

    /// Whether two fields are equal except for their shapes.
    pub fn is_like(&self, other: &Self) -> bool {
        let known = |field: &Self| (field.dtype, field.rank(), field.is_text);
        self.name == other.name && known(self) == known(other)
    }

    /// Bytes of a row, if all rows have the same shape.
    pub fn row_bytes(&self) -> Option<usize> {
        self.bytes_of(|_| None)
    }

    /// The most bytes that `rows` rows take in a batch, unless they are ragged.
    pub fn batch_bytes(&self, rows: usize) -> Option<usize> {
        match self.padded_axis() {
            None => Some(self.row_bytes()?.saturating_mul(rows)),
            Some(_) => self.bytes_of(|(most, in_batch)| Some(in_batch.min(most.saturating_mul(rows as u64)))),
        }
    }

    /// Bytes of values whose padded axis has the length that `of` makes of its bounds.
    fn bytes_of(&self, of: impl Fn((u64, u64)) -> Option<u64>) -> Option<usize> {
        let len = |dim: &Dim| match *dim {
            Dim::Fixed(n) => Some(n),
            Dim::PaddedInBatch { most, most_in_batch } => of((most, most_in_batch)),
            Dim::Ragged => None,
        };
        // Saturating: a size beyond a word is beyond any memory.
        let numbers =
            self.dims.iter().try_fold(1, |numbers, dim| Some(u64::saturating_mul(numbers, len(dim)?)))?;
        Some((numbers as usize).saturating_mul(self.dtype.bytes()))
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_text {
            return write!(f, "{:?} of text", self.name);
        }
        let shown = |dim: &Dim| match dim {
            Dim::Fixed(n) => n.to_string(),
            Dim::PaddedInBatch { .. } | Dim::Ragged => "?".to_owned(),
        };
        let shape = self.dims.iter().map(shown).collect::<Vec<_>>();
        write!(f, "{:?} of {} [{}]", self.name, self.dtype.name(), shape.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_batch_are_bounded_by_both_limits() {
        let padded = |most_in_batch| {
            let dims = vec![Dim::Fixed(80), Dim::PaddedInBatch { most: 3000, most_in_batch }];
            Field::new("spectrogram", DataType::Float16, dims)
        };
        assert_eq!(padded(40_000).batch_bytes(4), Some(80 * 12_000 * 2));
        assert_eq!(padded(40_000).batch_bytes(64), Some(80 * 40_000 * 2));
        assert_eq!(padded(u64::MAX).batch_bytes(usize::MAX), Some(usize::MAX));
        assert_eq!(
            (padded(1).row_bytes(), padded(1).shape(), padded(1).padded_axis()),
            (None, None, Some(1))
        );
        let fixed = Field::stacked("mask", DataType::Uint8, [7]);
        assert_eq!((fixed.row_bytes(), fixed.batch_bytes(3)), (Some(7), Some(21)));
        assert_eq!(Field::jagged("ids", DataType::Int32, 1).batch_bytes(3), None);
        assert_eq!(padded(1).to_string(), "\"spectrogram\" of float16 [80, ?]");
    }
}
