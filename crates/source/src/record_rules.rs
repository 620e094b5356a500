//! Rules for the records of all sources: the most bytes of one, and where its label is.

use crate::{
    Error, ErrorKind, Result,
    fields::{Row, Value},
};

/// The label of a row whose label is null.
pub const NO_LABEL: i64 = -1;

/// The default limit of a record's bytes: 1 GiB.
pub const MAX_RECORD_BYTES: u64 = 1 << 30;

/// Checks the size of a record before its bytes are read.
///
/// # Errors
/// [`ErrorKind::TooLarge`] for more than `limit`.
pub fn check_record_bytes(size: u64, limit: u64) -> Result<()> {
    if size <= limit {
        return Ok(());
    }
    let message = format!("the record has {size} bytes, max_record_bytes allows {limit}");
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// The label among the columns of a row; [`NO_LABEL`] if it is null or the source has no labels.
pub fn label_of(values: &Row) -> i64 {
    values.first().and_then(Value::as_int).unwrap_or(NO_LABEL)
}
