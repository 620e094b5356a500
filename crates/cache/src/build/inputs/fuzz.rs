//! Fuzz targets: whole files, read as in a build; see [`crate::fuzz`].

use std::{io::Cursor, path::Path, sync::Arc};

use super::*;
use crate::{build::Skips, engine::Policy, in_memory::InMemory};

/// The most rows that a target reads: a few bytes may encode any number of equal rows.
const ROWS: u64 = 5000;
/// The limit of a record; if code ignores it, the memory used shows that.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// Reads the bytes as a file of each format, in whole batches and in pieces; rows and final error are equal.
pub(crate) fn inputs(bytes: &[u8]) {
    for format in [FileFormat::Parquet, FileFormat::Arrow] {
        let table = |at| {
            let storage: Arc<dyn Storage> = Arc::new(InMemory::new(bytes));
            Ok(Box::new(TableReader::open(&storage, Path::new("a"), format, None, 0, at)?)
                as Box<dyn ReadShard<InputRows>>)
        };
        both(&table);
    }
    for (format, name) in [
        (FileFormat::Text, "a.txt"),
        (FileFormat::JsonLines, "a.jsonl"),
        (FileFormat::Text, "a.txt.gz"),
        (FileFormat::JsonLines, "a.jsonl.zst"),
    ] {
        let lines = |at| {
            let file = Box::new(Cursor::new(bytes.to_vec()));
            Ok(Box::new(LineReader::open(file, Path::new(name), format, 0, at)?)
                as Box<dyn ReadShard<InputRows>>)
        };
        both(&lines);
    }
}

fn both(open: &dyn Fn(BatchPosition) -> Result<Box<dyn ReadShard<InputRows>>>) {
    let [whole, pieces] = [u64::MAX, 50].map(|piece_bytes| {
        let limits = Limits { max_record_bytes: MAX_RECORD_BYTES, piece_bytes, ..Limits::default() };
        all(open(BatchPosition { size: 7, row: 0, limits }))
    });
    assert_eq!(whole, pieces);
}

/// The texts and values of all rows, the numbers of those left out, and the error that ended reading.
fn all(reader: Result<Box<dyn ReadShard<InputRows>>>) -> (Vec<String>, Vec<Option<u64>>, Option<ErrorKind>) {
    let policy = Policy { skip_bad: true, ..Policy::default() };
    let (mut found, mut left_out, mut begin, mut in_batch) = (Vec::new(), Vec::new(), 0, 0);
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => return (found, left_out, Some(error.kind)),
    };
    while begin < ROWS {
        let mut skips = Skips::new(&policy, begin);
        let DocumentPiece { documents, rows, ends_batch } = match reader.next(&mut skips) {
            Ok(Some(piece)) => piece,
            Ok(None) => {
                assert_eq!(in_batch, 0, "a batch that does not end");
                return (found, left_out, None);
            }
            Err(error) => {
                // Before a batch fails, some of its pieces may have been returned, and rows left out.
                left_out.retain(|row| row.is_some_and(|row| row < begin - in_batch));
                return (Vec::new(), left_out, Some(error.kind));
            }
        };
        let errors = skips.into_errors();
        assert_eq!(documents.len() as u64 + errors.len() as u64, rows);
        left_out.extend(errors.iter().map(|error| error.place.row));
        match documents {
            InputRows::Text(lines) => found.extend(lines),
            InputRows::Json(values) => found.extend(values.iter().map(Value::to_string)),
            InputRows::Table(tables) => found.extend(tables.iter().flat_map(|table| {
                (0..table.num_rows()).map(|row| format!("{:?}", table.slice(row, 1).columns()))
            })),
            InputRows::Recordings(_) => {}
        }
        begin += rows;
        in_batch = if ends_batch { 0 } else { in_batch + rows };
        assert!(in_batch < 7, "a batch that is too large");
    }
    // Where reading was cut off depends on the pieces.
    (Vec::new(), Vec::new(), None)
}
