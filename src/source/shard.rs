//! The files of a dataset, and where the rows of one end and those of the next begin.

use std::{path::Path, sync::Arc};

use crate::{Error, ErrorKind, Result};

/// One file of the dataset.
#[derive(Debug, Clone)]
pub struct Shard {
    /// The path as given.
    pub path: Arc<Path>,
    /// The number of its first row over all shards.
    pub first_row: u64,
    /// How many rows its headers promise.
    pub n_rows: u64,
    /// The size of the file when it was opened.
    pub n_bytes: u64,
    /// Why the shard ends before its end, if it does. Rows before still count.
    pub damage: Option<Error>,
}

/// The shards at these paths, one behind the other, and the number of all rows.
///
/// # Errors
/// [`ErrorKind::Format`] if they claim more rows than an int64 counts.
pub(crate) fn shards_of<'a>(
    files: impl Iterator<Item = (&'a Arc<Path>, (u64, u64, Option<Error>))>,
) -> Result<(Vec<Shard>, u64)> {
    let (mut shards, mut first_row) = (Vec::new(), 0u64);
    for (path, (n_rows, n_bytes, damage)) in files {
        shards.push(Shard { path: Arc::clone(path), first_row, n_rows, n_bytes, damage });
        first_row = first_row
            .checked_add(n_rows)
            .filter(|&n| i64::try_from(n).is_ok())
            .ok_or_else(|| Error::new(ErrorKind::Format, "the shards claim more rows than can be counted"))?;
    }
    Ok((shards, first_row))
}

/// The shard that holds `row`, and the row's number there.
///
/// # Panics
/// If there is no such row.
pub(crate) fn locate(shards: &[Shard], row: u64) -> (usize, u64) {
    // Empty shards start where the next one does: the last that starts at or before the row holds it.
    let at = shards.partition_point(|shard| shard.first_row <= row).checked_sub(1);
    match at.map(|at| (at, &shards[at])) {
        Some((at, shard)) if row - shard.first_row < shard.n_rows => (at, row - shard.first_row),
        _ => panic!("row {row} of {}", shards.last().map_or(0, |shard| shard.first_row + shard.n_rows)),
    }
}
