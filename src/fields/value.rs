//! [`Value`]: one field of one row, before it is written into a batch.

use std::sync::Arc;

use smallvec::SmallVec;

#[cfg(feature = "audio")]
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
    /// The values of a stacked field: row-major, in a recycled buffer.
    #[cfg(feature = "audio")]
    Array(Values),
}

impl Value {
    /// The number of a [`Value::Int`].
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }
}

/// The values of one row, in the order of their fields. Up to four are stored without an allocation.
pub type Row = SmallVec<[Value; 4]>;
