//! One field of one row, on its way to a batch.

use std::sync::Arc;

use smallvec::SmallVec;

#[cfg(feature = "audio")]
use crate::dtype::Values;

/// The value of one field in one row.
#[derive(Debug, Clone)]
pub enum Value {
    /// Of a field of one `int64`.
    Int(i64),
    /// Of a field of one `float64`.
    Float(f64),
    /// Of a field of text.
    Text(Arc<str>),
    /// Of a stacked field: row-major, in a buffer that is recycled.
    #[cfg(feature = "audio")]
    Array(Values),
}

impl Value {
    /// The whole number, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }
}

/// The values of one row, in the order of their fields. Up to four need no allocation of their own.
pub type Row = SmallVec<[Value; 4]>;
