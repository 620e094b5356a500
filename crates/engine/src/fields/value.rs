//! [`Value`]: one field of one row, before it is written into a batch.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::dtype::Values;

/// The value of one field in one row.
#[derive(Debug, Clone)]
pub enum Value {
    /// A number of a field of one `int64`.
    Int(i64),
    /// A number of a field of one `float64`.
    Float(f64),
    /// The text of a field of text.
    Text(Arc<str>),
    /// No value, as a source reads it.
    Null,
    /// Items, of a list of a row.
    List(Arc<[Value]>),
    /// Numbers of the tokens of a text.
    Ids(Arc<[u32]>),
    /// The row of a stacked field in which most values are the same.
    Sparse(Arc<Sparse>),
    /// Ones among zeros, along the first axis of a row.
    Runs(Arc<Runs>),
    /// The values of a stacked field: row-major, in a recycled buffer.
    Array(Values),
}

/// A row in which most values are the same.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sparse {
    /// The value at all other places.
    pub others: f32,
    /// Places and their values.
    pub values: Box<[(u32, f32)]>,
}

/// A row `[places, columns]` of `uint8`: ones in runs along the places, and zeros elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runs {
    /// The length of the first axis.
    pub places: u32,
    pub runs: Box<[ValueRun]>,
}

/// Places of a column that follow one another; `end` is the first one after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueRun {
    pub column: u32,
    pub start: u32,
    pub end: u32,
}

impl Value {
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }
}

/// The values of one row, in the order of their fields. Up to four are stored without an allocation.
pub type Row = SmallVec<[Value; 4]>;
