//! Pieces of the record batches of a Parquet or Arrow file.

use std::{path::Path, sync::Arc};

use arrow_array::{Array, ArrayRef, RecordBatch, cast::AsArray};
use arrow_schema::{DataType, SchemaRef};

use super::{BatchPosition, InputRows};
use crate::{
    Error, ErrorKind, Result,
    build::{DocumentPiece, ReadShard, Skips},
    source::{FileFormat, arrow::table::ArrowTable, parquet::table::ParquetTable},
    storage::Storage,
};

/// The record batches of a table in its file.
enum TableBatches {
    Parquet(Box<ParquetTable>),
    Arrow(Box<ArrowTable>),
}

pub(super) struct TableReader {
    batches: TableBatches,
    /// The rest of the record batch that was read last.
    rest: Option<RecordBatch>,
    /// Rows that are still to be skipped.
    skip: u64,
    read: u64,
    rows: Option<u64>,
    at: BatchPosition,
}

impl TableReader {
    pub(super) fn open(
        storage: &Arc<dyn Storage>,
        path: &Path,
        format: FileFormat,
        columns: Option<&[String]>,
        skip: u64,
        at: BatchPosition,
    ) -> Result<Self> {
        let max_record_bytes = at.limits.max_record_bytes;
        if format == FileFormat::Parquet {
            let mut table = ParquetTable::open(storage, path, max_record_bytes)?;
            if let Some(places) = places(table.schema(), columns)? {
                table.select(places)?;
            }
            table.skip(skip);
            let rows = Some(table.n_rows());
            return Ok(Self {
                batches: TableBatches::Parquet(Box::new(table)),
                rest: None,
                skip: 0,
                read: skip,
                rows,
                at,
            });
        }
        let mut table = ArrowTable::open(storage, path, max_record_bytes)?;
        table.select(places(table.schema(), columns)?);
        Ok(Self { batches: TableBatches::Arrow(Box::new(table)), rest: None, skip, read: 0, rows: None, at })
    }

    fn next_table(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(rest) = self.rest.take() {
            return Ok(Some(rest));
        }
        match &mut self.batches {
            TableBatches::Parquet(table) => table.next_batch(),
            TableBatches::Arrow(table) => table.next_batch(),
        }
    }
}

/// The largest number of rows of a table, of `n` from `from` on, whose values take at most `bytes`; at least
/// one.
fn rows_within(table: &RecordBatch, from: usize, n: usize, bytes: u64) -> usize {
    let held = |n: usize| -> u64 {
        table.columns().iter().map(|column| bytes_of(&column.slice(from, n))).fold(0, u64::saturating_add)
    };
    if bytes == u64::MAX || held(n) <= bytes {
        return n;
    }
    // The number of rows that fit is at least `low` and less than `high`.
    let (mut low, mut high) = (1, n.max(1));
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if held(middle) <= bytes {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The bytes of an array's values; shared values of a view count each time.
fn bytes_of(array: &ArrayRef) -> u64 {
    match array.data_type() {
        DataType::Utf8View => {
            array.as_string_view().views().iter().map(|&view| u64::from(view as u32) + 16).sum()
        }
        DataType::BinaryView => {
            array.as_binary_view().views().iter().map(|&view| u64::from(view as u32) + 16).sum()
        }
        _ => array.to_data().get_slice_memory_size().unwrap_or(usize::MAX) as u64,
    }
}

/// The indices of the columns in a schema; None for all.
fn places(schema: &SchemaRef, columns: Option<&[String]>) -> Result<Option<Vec<usize>>> {
    let Some(columns) = columns else { return Ok(None) };
    let place = |name: &String| {
        schema.index_of(name).map_err(|_| {
            let names: Vec<_> = schema.fields().iter().map(|field| &field.name()[..]).collect();
            let message = format!("there is no column {name:?}; the columns are {}", names.join(", "));
            Error::new(ErrorKind::Schema, message)
        })
    };
    columns.iter().map(place).collect::<Result<_>>().map(Some)
}

impl ReadShard<InputRows> for TableReader {
    fn next(&mut self, _skips: &mut Skips<'_>) -> Result<Option<DocumentPiece<InputRows>>> {
        let (mut piece, mut rows, mut room) = (Vec::new(), 0, self.at.limits.piece_bytes);
        let mut is_last = false;
        while rows < self.at.missing() && room > 0 {
            let Some(table) = self.next_table()? else {
                is_last = true;
                break;
            };
            let passed = self.skip.min(table.num_rows() as u64) as usize;
            self.skip -= passed as u64;
            let n = (table.num_rows() - passed).min((self.at.missing() - rows) as usize);
            let n = if n > 0 { rows_within(&table, passed, n, room) } else { 0 };
            self.read += (passed + n) as u64;
            let behind = table.num_rows() - passed - n;
            if behind > 0 {
                self.rest = Some(table.slice(passed + n, behind));
            }
            if n > 0 {
                let part = table.slice(passed, n);
                if room < u64::MAX {
                    let held = part.columns().iter().map(bytes_of).fold(1, u64::saturating_add);
                    room = room.saturating_sub(held);
                }
                piece.push(part);
                rows += n as u64;
            }
        }
        // If a batch was cut and the file ends there, a piece without rows ends the batch.
        let goes_on = !piece.is_empty() || self.at.row > 0;
        Ok(goes_on.then(|| self.at.piece(InputRows::Table(piece), rows, is_last)))
    }

    fn part(&self) -> Option<f64> {
        self.rows.map(|rows| self.read as f64 / rows.max(1) as f64)
    }
}
