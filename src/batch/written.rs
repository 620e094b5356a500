//! [`Written`]: a field of a batch in progress, of which rows are written one by one.

use std::sync::Arc;

use crate::fields::{Buffer, Column, Value};

/// One field.
#[derive(Debug)]
pub(super) enum Written {
    /// Rows of `row_bytes` bytes each.
    Stacked { buffer: Buffer, row_bytes: usize },
    /// The text of each row.
    Text(Vec<Arc<str>>),
    /// The list of each row.
    Lists(Vec<Arc<[Value]>>),
    /// The lists, joined.
    Joined(Column),
}
