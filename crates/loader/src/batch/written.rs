//! [`Written`]: a field of a batch in progress, of which rows are written one by one.

use std::sync::Arc;

use crate::fields::{Buffer, Column, Value};

#[derive(Debug)]
pub(super) enum Written {
    Stacked {
        buffer: Buffer,
        row_bytes: usize,
    },
    Text(Vec<Arc<str>>),
    Lists(Vec<Arc<[Value]>>),
    /// Rows of different lengths, until the longest is known.
    Padded(Vec<Value>),
    Joined(Column),
}
