//! Reads the rows of a file as Arrow tables, with all or some columns: for data other than recordings and a
//! loader's documents.
//!
//! Footer, reads, page checks and decoder are those of [`super::ParquetReader`]. Bytes and text are decoded
//! as views, so that a value shared by many rows is in memory once. Rows that exceed the limit together are
//! decoded one by one.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use ::parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
        parquet_to_arrow_field_levels,
    },
    errors::ParquetError,
    schema::types::{SchemaDescPtr, SchemaDescriptor},
};
use arrow_array::{
    Array, ArrayRef, GenericByteViewArray, LargeListArray, ListArray, RecordBatch, RecordBatchOptions,
    StructArray, cast::AsArray, types::ByteViewType,
};
use arrow_schema::{ArrowError, DataType, Fields, SchemaRef};

use super::{
    footer,
    group::{DecoderInput, GroupDecoder, OpenFile},
    pages::RecentPages,
    places::ChunkPlaces,
    plan::{self, ColumnPlan},
    values,
};
use crate::{
    Error, ErrorKind, Result,
    block::BlockPool,
    catch_panic::guarded,
    memory_permits::MemoryPermits,
    storage::{Storage, StoredFile, Version},
};

/// Reads the rows of one file in order.
pub struct ParquetTable {
    open: OpenFile,
    /// The columns of the file, and the positions of all of them.
    all: (SchemaDescPtr, Arc<ChunkPlaces>),
    blocks: Arc<BlockPool>,
    schema: SchemaRef,
    /// The next row group, and the next row in it.
    group: usize,
    row: u64,
    /// Decodes from there on; None if a new one is needed.
    decoder: Option<GroupDecoder>,
    /// Rows of the group before this one are decoded one at a time, since their batch exceeds the limit.
    single_until: u64,
}

impl ParquetTable {
    /// Opens a file and reads its footer.
    ///
    /// # Errors
    /// Those of `footer::read`; [`ErrorKind::Schema`] for columns that cannot be decoded.
    pub fn open(storage: &Arc<dyn Storage>, path: &Path, max_record_bytes: u64) -> Result<Self> {
        let mut file = StoredFile::open(storage, &Arc::from(path))?;
        let turns = Mutex::default();
        let metadata = footer::read(&mut file, &turns)?.metadata;
        let schema = guarded(|| {
            ArrowReaderMetadata::try_new(metadata.clone(), ArrowReaderOptions::new())
                .map(|metadata| Arc::clone(metadata.schema()))
        })?
        .map_err(|error| Error::new(ErrorKind::Format, "the schema cannot be read").because(error))?;
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let descriptor = metadata.file_metadata().schema_descr_ptr();
        let plan = Arc::new(self::plan(&descriptor, &schema, &all)?);
        let leaves: Vec<usize> = (0..descriptor.num_columns()).collect();
        let places = Arc::new(ChunkPlaces::new(&metadata, &leaves)?);
        let all = (descriptor, places.clone());
        let open = OpenFile { file: Arc::new(Mutex::new(file)), places, plan, max_record_bytes };
        Ok(Self {
            open,
            all,
            blocks: Arc::default(),
            schema,
            group: 0,
            row: 0,
            decoder: None,
            single_until: 0,
        })
    }

    /// The schema of all columns, selected or not.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(crate) fn version(&self) -> Version {
        self.open.file.lock().unwrap_or_else(PoisonError::into_inner).version()
    }

    /// The number of rows of the file.
    pub fn n_rows(&self) -> u64 {
        self.open.places.rows().iter().sum()
    }

    /// Selects the columns to read, by their indices; batches have them in the order of the file.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if they cannot be decoded.
    pub fn select(&mut self, mut columns: Vec<usize>) -> Result<()> {
        columns.sort_unstable();
        columns.dedup();
        let plan = plan(&self.all.0, &self.schema, &columns)?;
        self.open.places = Arc::new(self.all.1.only(&plan.leaves)?);
        self.open.plan = Arc::new(plan);
        Ok(())
    }

    /// Skips rows. Call it before the first [`Self::next_batch`].
    pub fn skip(&mut self, mut rows: u64) {
        while let Some(n) = self.rows_of(self.group) {
            if rows < n {
                self.row = rows;
                return;
            }
            rows -= n;
            self.group += 1;
        }
    }

    /// The next rows, at least one; None after the last.
    ///
    /// # Errors
    /// As [`super::ParquetReader`] for pages that cannot be read, [`ErrorKind::TooLarge`] for a row
    /// beyond the limit.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(n) = self.rows_of(self.group) {
            if self.row < n {
                let batch = self.decode(n)?;
                self.row += batch.num_rows() as u64;
                if self.row == self.single_until {
                    self.decoder = None;
                }
                return Ok(Some(batch));
            }
            (self.group, self.row, self.decoder, self.single_until) = (self.group + 1, 0, None, 0);
        }
        Ok(None)
    }

    /// Decodes rows of the group from `self.row` on; the group has `n`.
    fn decode(&mut self, n: u64) -> Result<RecordBatch> {
        loop {
            let (group, row) = (self.group, self.row);
            let (open, blocks) = (&self.open, &self.blocks);
            let input = DecoderInput {
                open,
                blocks,
                permits: &MemoryPermits::default(),
                recent: &RecentPages::default(),
                group,
            };
            let decoder = match self.decoder.take() {
                Some(decoder) => Ok(decoder),
                None => {
                    let new =
                        if row < self.single_until { GroupDecoder::one_by_one } else { GroupDecoder::from };
                    new(input, row)
                }
            };
            let mut decoder = decoder?;
            let together = decoder.batch_rows();
            match decoder.next_batch(group) {
                Ok(batch) if (1..=n - row).contains(&(batch.num_rows() as u64)) => {
                    self.decoder = Some(decoder);
                    return compact(batch);
                }
                Ok(batch) => return Err(wrong_rows(batch.num_rows())),
                Err(error) if error.kind != ErrorKind::TooLarge || together == 1 => return Err(error),
                Err(_) => self.single_until = n.min(row.saturating_add(together)),
            }
        }
    }

    fn rows_of(&self, group: usize) -> Option<u64> {
        self.open.places.rows().get(group).copied()
    }
}

/// The same values in memory of about their size: values are copied out of pages that are much larger.
fn compact(batch: RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(compact_array).collect::<Result<_, _>>();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    columns
        .and_then(|columns| RecordBatch::try_new_with_options(batch.schema(), columns, &options))
        .map_err(|error| Error::new(ErrorKind::Corrupt, "the values of a batch do not fit").because(error))
}

fn compact_array(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(match array.data_type() {
        DataType::BinaryView if is_lavish(array.as_binary_view()) => Arc::new(array.as_binary_view().gc()),
        DataType::Utf8View if is_lavish(array.as_string_view()) => Arc::new(array.as_string_view().gc()),
        DataType::Struct(fields) if !fields.is_empty() => {
            let array = array.as_struct();
            let columns = array.columns().iter().map(compact_array).collect::<Result<_, _>>()?;
            Arc::new(StructArray::try_new(fields.clone(), columns, array.nulls().cloned())?)
        }
        DataType::List(item) => {
            let list = array.as_list::<i32>();
            let values = compact_array(list.values())?;
            Arc::new(ListArray::try_new(item.clone(), list.offsets().clone(), values, list.nulls().cloned())?)
        }
        DataType::LargeList(item) => {
            let list = array.as_list::<i64>();
            let values = compact_array(list.values())?;
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            Arc::new(LargeListArray::try_new(item.clone(), offsets, values, nulls)?)
        }
        _ => Arc::clone(array),
    })
}

/// Whether the pages of the values are much larger than the values.
fn is_lavish<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>) -> bool {
    let pages = array.data_buffers().iter().map(|page| page.len() as u64).sum();
    let used = array.views().iter().map(|&view| u64::from(view as u32)).sum();
    values::is_lavish(pages, used)
}

fn wrong_rows(n: usize) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the pages hold {n} rows, and the footer claims another number"))
}

/// Plans how to decode the columns with these indices, which are sorted.
fn plan(descriptor: &SchemaDescriptor, schema: &SchemaRef, columns: &[usize]) -> Result<ColumnPlan> {
    let decoded = guarded(|| {
        let root = descriptor.root_schema();
        let roots = columns.iter().filter_map(|&column| root.get_fields().get(column).cloned()).collect();
        let fields: Fields =
            columns.iter().filter_map(|&column| schema.fields().get(column).cloned()).collect();
        let wanted = plan::alone(root, roots)?;
        let fields = fields.iter().map(plan::viewed_deeply).collect();
        let levels = parquet_to_arrow_field_levels(&wanted, ProjectionMask::all(), Some(&fields))?;
        Ok::<_, ParquetError>((levels, Arc::new(wanted)))
    })?;
    let (levels, schema) = decoded
        .map_err(|error| Error::new(ErrorKind::Schema, "the columns cannot be decoded").because(error))?;
    let is_wanted = |&leaf: &usize| columns.binary_search(&descriptor.get_column_root_idx(leaf)).is_ok();
    let leaves = (0..descriptor.num_columns()).filter(is_wanted).collect();
    Ok(ColumnPlan {
        levels,
        schema,
        leaves,
        n_json: 0,
        is_struct: false,
        bytes: None,
        path: None,
        lists: None,
        label: None,
        messages: None,
        beside: Vec::new(),
        others: Vec::new(),
    })
}
