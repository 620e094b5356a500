//! Reads rows: finds the batch and the value, and reads its block.
//!
//! A reader keeps the files and batches that it used last ([`OpenBatches`]) and the current block
//! ([`BlockReader`]). Several readers, each with its own block, read ahead: [`ArrowSource::block_rows`] is
//! the number of rows of a block.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;

use super::{
    ArrowSource,
    block_reader::BlockReader,
    buffer::ValueBytes,
    open_batches::{OpenBatches, OpenRow},
};
use crate::{
    Error, ErrorKind, RawRecord, ReadRequest, Result, StoredPayload, WholeRecord,
    columns::ExtraColumn,
    contract::{MemoryLimiter, ReadRecords},
    fallible_alloc,
    fields::{Row, Value},
    memory_permits::MemoryPermits,
    open_files::OpenFiles,
    path_policy,
    record_rules::check_record_bytes,
    row_files::ReadRows,
};

/// Reads rows of an [`ArrowSource`]; one per thread.
pub struct ArrowReader {
    source: Arc<ArrowSource>,
    open: OpenBatches,
    blocks: BlockReader,
    permits: MemoryPermits,
}

impl std::fmt::Debug for ArrowReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArrowReader").field("open_files", &self.open.n_files()).finish_non_exhaustive()
    }
}

impl ArrowReader {
    pub(crate) fn new(source: Arc<ArrowSource>) -> Self {
        Self {
            source,
            open: OpenBatches::default(),
            blocks: BlockReader::default(),
            permits: MemoryPermits::default(),
        }
    }

    /// What `read` makes of a row in its open batch. Its errors get the place of the row.
    #[inline]
    fn with_row<T>(
        &mut self,
        row: u64,
        read: impl FnOnce(&ArrowSource, &mut OpenRow<'_>, &mut BlockReader, &MemoryPermits) -> Result<T>,
    ) -> Result<T> {
        let Self { source, open, blocks, permits } = self;
        let (shard, local) = source.locate(row);
        let value =
            open.row(source, shard, local, permits).and_then(|mut at| read(source, &mut at, blocks, permits));
        value.map_err(|error| error.in_shard(&source.files.shards[shard].path).at_row(local))
    }
}

impl ReadRows for ArrowReader {
    fn path(&mut self, row: u64) -> Result<Option<String>> {
        self.with_row(row, |_, at, blocks, _| path_of(at, blocks))
    }

    fn value(&mut self, row: u64, _run: u64, number: usize) -> Result<Value> {
        self.with_row(row, |_, at, _, _| at.other(number))
    }
}

impl ReadRecords for ArrowReader {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;

    fn set_limiter(&mut self, limiter: Arc<dyn MemoryLimiter>) {
        self.permits = MemoryPermits::of(limiter);
    }

    fn hint_next(&mut self, end: u64, row: Option<u64>) {
        self.blocks.hint_next(end, row);
    }

    /// Reads one row. If `run`, the number of rows from this one on that will be requested next in storage
    /// order, is above 1, a block of several MiB is read at once; 1 reads only this record's range, or, of a
    /// large record, its head and the excerpt that is requested.
    ///
    /// The bytes are a slice of a block, which is reused when all of its slices are dropped, of a map, or of
    /// a decompressed buffer.
    ///
    /// # Errors
    /// Of the record: [`ErrorKind::Truncated`] if its bytes or its label are past the end of the shard,
    /// [`ErrorKind::Unreadable`] if bytes and path are null, or the path cannot be opened or is not allowed,
    /// [`ErrorKind::Empty`], [`ErrorKind::TooLarge`], [`ErrorKind::Corrupt`] if the shard contradicts itself.
    /// Of the run: [`ErrorKind::Io`] after retries or if the shard was replaced, [`ErrorKind::NotFound`] if
    /// it was removed, [`ErrorKind::Schema`] for a label beyond int64.
    ///
    /// # Panics
    /// If there is no such row.
    fn read(&mut self, row: u64, run: u64, request: &dyn ReadRequest) -> Result<RawRecord> {
        let record = self.with_row(row, |source, at, blocks, permits| {
            at.shard.is_kept = run > 1;
            let mut values = Row::new();
            if source.contents.has_labels() {
                values.push(Value::Int(at.label()?));
            }
            // The head of samples shows no part that is enough.
            let request = if at.batch.has_samples() { &WholeRecord::ONCE } else { request };
            let payload = at.payload()?;
            let is_own = payload.is_some();
            let payload = match payload {
                Some(ValueBytes::File(span)) => {
                    check_record_bytes(span.len, source.max_record_bytes)
                        .map_err(|error| error.at_byte(span.at))?;
                    blocks.read(source, at, span, run.max(1), request, permits)?
                }
                Some(ValueBytes::Memory(bytes)) => {
                    check_record_bytes(bytes.len() as u64, source.max_record_bytes)?;
                    if at.shard.has_granted.load(Ordering::Relaxed) && at.batch.is_payload_granted() {
                        permits.mark_counted();
                    }
                    bytes
                }
                None => match source.document {
                    Some(what) => return Err(Error::new(ErrorKind::Null, format!("the {what} is null"))),
                    None => read_file_of(source, at, blocks, permits)?,
                },
            };
            if payload.is_empty() {
                let what = source.document.map(|what| format!("the {what} is empty"));
                let what = what.unwrap_or_else(|| "the recording has no bytes".to_owned());
                return Err(Error::new(ErrorKind::Empty, what));
            }
            let bytes = if is_own { at.recording(payload, permits)? } else { payload };
            if source.contents.extra_columns.contains(&ExtraColumn::Path) {
                values.push(ExtraColumn::path(path_of(at, blocks))?);
            }
            at.push_others(&mut values)?;
            at.push_beside(&mut values)?;
            Ok(RawRecord::new(bytes, values))
        });
        self.open.release_row_memory();
        record
    }
}

/// The path field of a row.
fn path_of(at: &mut OpenRow<'_>, blocks: &BlockReader) -> Result<Option<String>> {
    let bytes = match at.path()? {
        None => return Ok(None),
        Some(ValueBytes::Memory(bytes)) => bytes,
        Some(ValueBytes::File(span)) => match blocks.slice(at.shard.number, span) {
            Some(bytes) => bytes,
            None => {
                path_policy::check_name(span.len).map_err(|error| error.at_byte(span.at))?;
                let mut bytes = fallible_alloc::zero_bytes(span.len as usize)?;
                at.shard.file.read_exact(&mut bytes, span.at)?;
                bytes.into()
            }
        },
    };
    path_policy::name(&bytes)
}

/// The bytes of the file at a row's path.
fn read_file_of(
    source: &ArrowSource,
    at: &mut OpenRow<'_>,
    blocks: &BlockReader,
    permits: &MemoryPermits,
) -> Result<Bytes> {
    let Some(name) = path_of(at, blocks)? else {
        return Err(Error::new(ErrorKind::Null, "the row has neither bytes nor a path"));
    };
    let ArrowSource { files, blocks, max_record_bytes, path_policy, .. } = source;
    path_policy.read(
        &files.storage,
        blocks,
        &files.shards[at.shard.number].path,
        &name,
        *max_record_bytes,
        permits,
    )
}
