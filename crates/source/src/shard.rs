//! The files of a dataset, and their row numbers.

use std::{path::Path, sync::Arc};

use crate::{Error, ErrorKind, Result, table_format};

#[derive(Debug, Clone)]
pub struct Shard {
    pub path: Arc<Path>,
    /// The number of its first row over all shards.
    pub first_row: u64,
    /// The number of rows by its headers.
    pub n_rows: u64,
    /// The size of the file when it was opened.
    pub n_bytes: u64,
    /// The error at which reading its headers ended early, if any. The rows before it still count.
    pub damage: Option<Error>,
}

impl Shard {
    /// Whether it is a tar archive, whose members are its recordings.
    pub fn is_archive(&self) -> bool {
        table_format::is_archive(&self.path)
    }
}

/// The most rows of a loader, over all files. No dataset has as many recordings, and arithmetic with row
/// numbers cannot overflow.
pub(crate) const MOST_ROWS: u64 = 1 << 40;

/// The rows that a file of any size may have, since compressed nulls take almost no bytes.
const ROWS_AT_LEAST: u64 = 1 << 20;
/// The rows that each byte of a file adds to these.
const ROWS_PER_BYTE: u64 = 256;

/// Checks the number of rows that the headers of a file of `n_bytes` claim.
///
/// Compressed buffers, and values without width, can hold any number of rows, so the bound follows from the
/// file's size.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for more rows than this bound.
pub(crate) fn check_rows(n_rows: u64, n_bytes: u64) -> Result<()> {
    let most = n_bytes.saturating_mul(ROWS_PER_BYTE).saturating_add(ROWS_AT_LEAST).min(MOST_ROWS);
    if n_rows <= most {
        return Ok(());
    }
    let message = format!("it claims {n_rows} rows; a file of {n_bytes} bytes can have at most {most}");
    Err(Error::new(ErrorKind::Corrupt, message))
}

/// The shards at these paths, in order, and the number of all rows.
///
/// # Errors
/// [`ErrorKind::Format`] if they claim more than [`MOST_ROWS`].
pub(crate) fn shards_of<'a>(
    files: impl Iterator<Item = (&'a Arc<Path>, (u64, u64, Option<Error>))>,
) -> Result<(Vec<Shard>, u64)> {
    let (mut shards, mut first_row) = (Vec::new(), 0u64);
    for (path, (n_rows, n_bytes, damage)) in files {
        shards.push(Shard { path: Arc::clone(path), first_row, n_rows, n_bytes, damage });
        first_row = first_row.checked_add(n_rows).filter(|&n| n <= MOST_ROWS).ok_or_else(|| {
            let message = format!("the shards claim more than {MOST_ROWS} rows, the limit of a loader");
            Error::new(ErrorKind::Format, message)
        })?;
    }
    Ok((shards, first_row))
}

/// The shard that holds `row`, and the row's number there.
///
/// # Panics
/// If there is no such row.
pub(crate) fn locate(shards: &[Shard], row: u64) -> (usize, u64) {
    // An empty shard starts at the same row as the next one, so the last shard that starts at or before `row`
    // holds it.
    let at = shards.partition_point(|shard| shard.first_row <= row).checked_sub(1);
    match at.map(|at| (at, &shards[at])) {
        Some((at, shard)) if row - shard.first_row < shard.n_rows => (at, row - shard.first_row),
        _ => panic!("row {row} of {}", shards.last().map_or(0, |shard| shard.first_row + shard.n_rows)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_back_their_rows() {
        for (n_rows, n_bytes) in [(0, 0), (1 << 20, 0), ((1 << 20) + 256, 1), (MOST_ROWS, u64::MAX)] {
            check_rows(n_rows, n_bytes).unwrap();
        }
        for (n_rows, n_bytes) in
            [((1 << 20) + 1, 0), (1 << 40, 1 << 20), (MOST_ROWS + 1, u64::MAX), (u64::MAX, 7)]
        {
            assert_eq!(
                check_rows(n_rows, n_bytes).unwrap_err().kind,
                ErrorKind::Corrupt,
                "{n_rows} in {n_bytes}"
            );
        }
    }

    #[test]
    fn all_rows_together_are_bounded() {
        let path: Arc<Path> = Path::new("a").into();
        let of = |rows: &[u64]| shards_of(rows.iter().map(|&n| (&path, (n, 0, None)))).map(|(_, n)| n);
        assert_eq!(of(&[MOST_ROWS - 1, 1]).unwrap(), MOST_ROWS);
        for rows in [&[MOST_ROWS, 1][..], &[1 << 62, 1 << 62, 1 << 62, 1 << 62], &[u64::MAX, 1]] {
            assert_eq!(of(rows).unwrap_err().kind, ErrorKind::Format);
        }
    }
}
