//! Decodes the rows of one row group in batches.
//!
//! One decoder reads the rows that are requested in order, and decompresses each page once. If a batch
//! exceeds the limit, a decoder of one row at a time replaces it. If a batch fails, its rows are decoded one
//! by one, each by a separate decoder that skips to it. So the verdict on a row depends on the file alone,
//! and not on the rows read before it.

use std::{
    iter,
    ops::Range,
    sync::{Arc, Mutex},
};

use ::parquet::{
    arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups, RowSelection, RowSelector},
    basic::{Compression, Type},
    column::page::{PageIterator, PageReader},
    errors::ParquetError,
    file::{
        metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData},
        serialized_reader::SerializedPageReader,
    },
    schema::types::ColumnDescriptor,
};
use arrow_array::RecordBatch;

use super::{
    chunk::Chunk,
    chunks::{BLOCK, ColumnChunks, SMALL_BLOCK},
    pages::{CheckedPages, RecentPages, VALUE},
    places::ChunkPlaces,
    plan::ColumnPlan,
    values::GroupValues,
};
use crate::{
    Error, ErrorKind, Result, block::BlockPool, catch_panic::guarded, memory_permits::MemoryPermits,
    nested::most_json, storage::StoredFile,
};

/// The target size of a batch in bytes, and its most rows.
const BATCH: u64 = 1 << 20;
const BATCH_ROWS: u64 = 4096;

/// An open file, and the columns of its row groups.
pub(super) struct OpenFile {
    pub file: Arc<Mutex<StoredFile>>,
    /// The positions of the columns of `plan`, in its order.
    pub places: Arc<ChunkPlaces>,
    pub plan: Arc<ColumnPlan>,
    /// The most bytes that a record may have.
    pub max_record_bytes: u64,
}

#[derive(Clone, Copy)]
pub(super) struct DecoderInput<'a> {
    pub open: &'a OpenFile,
    pub blocks: &'a Arc<BlockPool>,
    pub permits: &'a MemoryPermits,
    pub recent: &'a RecentPages,
    pub group: usize,
}

/// Decodes a row group in order.
pub(super) struct GroupDecoder {
    reader: ParquetRecordBatchReader,
    chunks: ColumnChunks,
    batch_rows: u64,
}

impl GroupDecoder {
    /// A decoder of all rows from `first` on.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(super) fn from(input: DecoderInput<'_>, first: u64) -> Result<Self> {
        Self::new(input, first..rows_of(input.open, input.group), batch_rows(input.open, input.group), BLOCK)
    }

    /// The same, one row at a time, for rows whose batch exceeds the limit.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(super) fn one_by_one(input: DecoderInput<'_>, first: u64) -> Result<Self> {
        Self::new(input, first..rows_of(input.open, input.group), 1, BLOCK)
    }

    /// The values of one row. The caller must request the permit for its memory.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(super) fn one(input: DecoderInput<'_>, row: u64) -> Result<GroupValues> {
        let input = DecoderInput { permits: &MemoryPermits::default(), ..input };
        Self::new(input, row..row + 1, 1, SMALL_BLOCK)?.next(input.open, input.group)
    }

    fn new(input: DecoderInput<'_>, rows: Range<u64>, batch_rows: u64, block: u64) -> Result<Self> {
        let DecoderInput { open, blocks, permits, recent, group } = input;
        let metadata = metadata_of(open, group)?;
        let row_group = metadata.row_group(0);
        let wanted = chunks_of(row_group, open).map_err(|error| named(error, group))?;
        let chunks = ColumnChunks::new(&open.file, blocks, permits, wanted, block);
        let group_chunks = GroupChunks {
            metadata: &metadata,
            row_group,
            chunks: &chunks,
            batch_rows,
            recent,
            max_record_bytes: open.max_record_bytes,
            json_from: open.plan.leaves.len() - open.plan.n_json,
        };
        let selection = (rows.start > 0).then(|| {
            let [skipped, selected] = [rows.start, rows.end - rows.start].map(|n| n as usize);
            RowSelection::from(vec![RowSelector::skip(skipped), RowSelector::select(selected)])
        });
        let reader = guarded(|| {
            ParquetRecordBatchReader::try_new_with_row_groups(
                &open.plan.levels,
                &group_chunks,
                batch_rows as usize,
                selection,
            )
        });
        match reader {
            Ok(Ok(reader)) => Ok(Self { reader, chunks, batch_rows }),
            Ok(Err(error)) => Err(failed(&chunks, error, group)),
            Err(error) => Err(named(error, group)),
        }
    }

    /// The number of rows of each batch but the last.
    pub(super) fn batch_rows(&self) -> u64 {
        self.batch_rows
    }

    /// The next batch. After an error the decoder must be dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] or [`ErrorKind::Truncated`] if the file contradicts itself, or ends before a
    /// column that its footer lists; [`ErrorKind::TooLarge`]; [`ErrorKind::Unsupported`]; [`ErrorKind::Io`].
    pub(super) fn next(&mut self, open: &OpenFile, group: usize) -> Result<GroupValues> {
        let batch = self.next_batch(group)?;
        let permits = self.chunks.permits();
        GroupValues::new(&batch, &open.plan, &permits).map_err(|error| named(error, group))
    }

    /// The same as a record batch of the decoder.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(super) fn next_batch(&mut self, group: usize) -> Result<RecordBatch> {
        self.chunks.begin_batch();
        match guarded(|| self.reader.next()).map_err(|error| named(error, group))? {
            Some(Ok(batch)) => Ok(batch),
            Some(Err(error)) => Err(failed(&self.chunks, error, group)),
            None => {
                let error = Error::new(ErrorKind::Corrupt, "it has fewer rows than the footer claims");
                Err(named(error, group))
            }
        }
    }
}

/// Adds the row group to an error.
fn named(error: Error, group: usize) -> Error {
    let message = format!("row group {group} cannot be read: {}", error.message);
    Error { message, ..error }
}

/// The error of a decoder: the failure to read its bytes, if there was one, else its own.
fn failed(
    chunks: &ColumnChunks,
    error: impl std::error::Error + Send + Sync + 'static,
    group: usize,
) -> Error {
    if let Some(error) = chunks.take_error() {
        return match error.kind.is_record() {
            true => named(error, group),
            false => error,
        };
    }
    let text = error.to_string();
    let kind = match text.contains("NYI") || text.contains("not yet") {
        true => ErrorKind::Unsupported,
        false => ErrorKind::Corrupt,
    };
    Error::new(kind, format!("row group {group} cannot be decoded")).because(error)
}

fn metadata_of(open: &OpenFile, group: usize) -> Result<ParquetMetaData> {
    open.places.metadata(group, &open.plan.schema).map_err(|error| named(error, group))
}

fn rows_of(open: &OpenFile, group: usize) -> u64 {
    open.places.rows().get(group).copied().unwrap_or(0)
}

/// The byte ranges of the requested columns.
fn chunks_of(row_group: &RowGroupMetaData, open: &OpenFile) -> Result<Vec<Chunk>> {
    let range = |column: &ColumnChunkMetaData| {
        let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
        let range = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
        let end = range.and_then(|(start, len)| Some(start..start.checked_add(len)?));
        let range = end.ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "the footer has an impossible byte range for a column")
        })?;
        Ok(Chunk::new(range, column, open.max_record_bytes))
    };
    row_group.columns().iter().map(range).collect()
}

/// The number of rows for batches of about [`BATCH`] bytes, by the sizes in the footer.
fn batch_rows(open: &OpenFile, group: usize) -> u64 {
    let columns = open.plan.schema.columns().iter();
    // Values of fixed length are not shared: each is copied out of the dictionary.
    let lengths = columns.filter_map(|column| length_of(column)).fold(0, u64::saturating_add);
    let per_row = open.places.bytes(group) / rows_of(open, group).max(1);
    (BATCH / per_row.max(lengths).max(1)).clamp(1, BATCH_ROWS)
}

/// The length of the column's values, if its type fixes it.
fn length_of(column: &ColumnDescriptor) -> Option<u64> {
    let length = u64::try_from(column.type_length()).unwrap_or(0);
    (column.physical_type() == Type::FIXED_LEN_BYTE_ARRAY).then_some(length)
}

/// Gives the decoder the pages of each column.
struct GroupChunks<'a> {
    metadata: &'a ParquetMetaData,
    row_group: &'a RowGroupMetaData,
    chunks: &'a ColumnChunks,
    batch_rows: u64,
    recent: &'a RecentPages,
    max_record_bytes: u64,
    /// The first of the columns that become JSON.
    json_from: usize,
}

impl RowGroups for GroupChunks<'_> {
    fn num_rows(&self) -> usize {
        self.row_group.num_rows() as usize
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>, ParquetError> {
        let found = self.row_group.columns().get(column);
        let chunk = found.ok_or(ParquetError::IndexOutOfBound(column, self.row_group.num_columns()))?;
        let pages = SerializedPageReader::new(Arc::new(self.chunks.clone()), chunk, self.num_rows(), None)?;
        let levels = chunk.column_descr();
        let checked = CheckedPages {
            pages: Box::new(pages),
            is_nullable: levels.max_def_level() > 0,
            repetition: u32::try_from(levels.max_rep_level()).unwrap_or(0),
            // A row of JSON has as many values as bytes at most, in each of its columns.
            max_bytes: match column < self.json_from {
                true => self.max_record_bytes,
                false => most_json(self.max_record_bytes),
            },
            batch_rows: self.batch_rows,
            value_bytes: length_of(chunk.column_descr()).unwrap_or(0).max(VALUE),
            chunks: self.chunks.clone(),
            column,
            // The compressed bytes of a page are held beside it.
            copies: if chunk.compression() == Compression::UNCOMPRESSED { 1 } else { 2 },
            asks: true,
            recent: self.recent.clone(),
            passed: 0,
            is_dictionary: false,
            deferred: None,
            row: (0, 0),
        };
        Ok(Box::new(OneChunk(Some(Box::new(checked)))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(iter::once(self.row_group))
    }

    fn metadata(&self) -> &ParquetMetaData {
        self.metadata
    }
}

/// The pages of one column chunk, as an iterator over column chunks.
struct OneChunk(Option<Box<dyn PageReader>>);

impl Iterator for OneChunk {
    type Item = Result<Box<dyn PageReader>, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for OneChunk {}
