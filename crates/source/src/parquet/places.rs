//! The positions of the requested columns in each row group: all that is kept of the footer of an open file.
//!
//! Input: the decoder's metadata, a kilobyte of memory for each column of each row group, requested or not.
//! Output: some 60 bytes for each requested column, shared by all readers of the file. From these the
//! metadata of one row group are rebuilt while it is read.

use ::parquet::{
    basic::Compression,
    errors::ParquetError,
    file::metadata::{ColumnChunkMetaData, FileMetaData, ParquetMetaData, RowGroupMetaData},
    schema::types::SchemaDescPtr,
};

use crate::{Error, ErrorKind, Result, fallible_alloc};

/// The requested columns of all row groups of a file.
#[derive(Debug)]
pub(super) struct ChunkPlaces {
    rows: Vec<u64>,
    width: usize,
    /// The columns of each row group, one after the other; None if it lacks the column.
    columns: Vec<Option<ChunkPlace>>,
}

/// The footer's entry for a column of a row group.
#[derive(Debug, Clone, Copy)]
struct ChunkPlace {
    data: i64,
    dictionary: Option<i64>,
    compressed: i64,
    uncompressed: i64,
    compression: Compression,
    is_elsewhere: bool,
}

impl ChunkPlace {
    fn of(column: &ColumnChunkMetaData) -> Self {
        Self {
            data: column.data_page_offset(),
            dictionary: column.dictionary_page_offset(),
            compressed: column.compressed_size(),
            uncompressed: column.uncompressed_size(),
            compression: column.compression(),
            is_elsewhere: column.file_path().is_some_and(|path| !path.is_empty()),
        }
    }
}

impl ChunkPlaces {
    /// The positions of the columns `leaves` of the file, in this order.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`].
    pub(super) fn new(metadata: &ParquetMetaData, leaves: &[usize]) -> Result<Self> {
        let groups = metadata.row_groups();
        let mut rows = fallible_alloc::with_room(groups.len())?;
        let mut columns = fallible_alloc::with_room(groups.len().saturating_mul(leaves.len()))?;
        for group in groups {
            rows.push(group.num_rows().max(0) as u64);
            columns.extend(leaves.iter().map(|&leaf| group.columns().get(leaf).map(ChunkPlace::of)));
        }
        Ok(Self { rows, width: leaves.len(), columns })
    }

    /// The positions of a subset: the columns at the indices `chosen`.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`].
    pub(super) fn only(&self, chosen: &[usize]) -> Result<Self> {
        let mut rows = fallible_alloc::with_room(self.rows.len())?;
        rows.extend_from_slice(&self.rows);
        let mut columns = fallible_alloc::with_room(self.rows.len().saturating_mul(chosen.len()))?;
        for group in 0..self.rows.len() {
            columns.extend(chosen.iter().map(|&column| self.of(group).get(column).copied().flatten()));
        }
        Ok(Self { rows, width: chosen.len(), columns })
    }

    /// The rows of each row group.
    pub(super) fn rows(&self) -> &[u64] {
        &self.rows
    }

    fn of(&self, group: usize) -> &[Option<ChunkPlace>] {
        let from = group.saturating_mul(self.width);
        self.columns.get(from..from.saturating_add(self.width)).unwrap_or_default()
    }

    /// The decompressed bytes of a row group.
    pub(super) fn bytes(&self, group: usize) -> u64 {
        let sizes = self.of(group).iter().flatten().map(|column| column.uncompressed.max(0) as u64);
        sizes.fold(0, u64::saturating_add)
    }

    /// The metadata of one row group, as of a file that has only this one; `schema` has the requested columns
    /// only.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the row group lacks a column, [`ErrorKind::Unsupported`] if one is in
    /// another file.
    pub(super) fn metadata(&self, group: usize, schema: &SchemaDescPtr) -> Result<ParquetMetaData> {
        let Some(&rows) = self.rows.get(group) else {
            let message = format!("the footer lists {} row groups", self.rows.len());
            return Err(Error::new(ErrorKind::Corrupt, message));
        };
        let wrong = |error: ParquetError| {
            Error::new(ErrorKind::Corrupt, "the footer contradicts itself").because(error)
        };
        // bounded: by the columns of the schema.
        let mut columns = Vec::with_capacity(self.width);
        for (column, place) in schema.columns().iter().zip(self.of(group)) {
            let place = place.ok_or_else(|| Error::new(ErrorKind::Corrupt, "the footer lacks a column"))?;
            if place.is_elsewhere {
                return Err(Error::new(ErrorKind::Unsupported, "its columns are in another file"));
            }
            let column = ColumnChunkMetaData::builder(column.clone())
                .set_compression(place.compression)
                .set_data_page_offset(place.data)
                .set_dictionary_page_offset(place.dictionary)
                .set_total_compressed_size(place.compressed)
                .set_total_uncompressed_size(place.uncompressed);
            columns.push(column.build().map_err(wrong)?);
        }
        let rows = rows as i64;
        let group = RowGroupMetaData::builder(schema.clone()).set_num_rows(rows).set_column_metadata(columns);
        let file = FileMetaData::new(1, rows, None, None, schema.clone(), None);
        Ok(ParquetMetaData::new(file, vec![group.build().map_err(wrong)?]))
    }
}
