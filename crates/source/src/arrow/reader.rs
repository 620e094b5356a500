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
    Error, ErrorKind, RawRecord, ReadRequest, Result, StoredPayload,
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
use forebay_audio::AudioDecoder;

/// Reads rows of an [`ArrowSource`]; one per thread.
pub struct ArrowReader {
    open: OpenBatches,
    payloads: PayloadReader,
}

/// Reads the payloads of rows.
struct PayloadReader {
    source: Arc<ArrowSource>,
    blocks: BlockReader,
    permits: MemoryPermits,
    /// Opens recordings of which a part is read.
    decoder: AudioDecoder,
}

impl std::fmt::Debug for ArrowReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArrowReader").field("open_files", &self.open.n_files()).finish_non_exhaustive()
    }
}

impl ArrowReader {
    pub(crate) fn new(source: Arc<ArrowSource>) -> Self {
        let mut decoder = AudioDecoder::new();
        decoder.track = source.parts.recordings.track;
        let (blocks, permits) = (BlockReader::default(), MemoryPermits::default());
        Self { open: OpenBatches::default(), payloads: PayloadReader { source, blocks, permits, decoder } }
    }

    /// What `read` makes of a row in its open batch. Its errors get the place of the row.
    #[inline]
    fn with_row<T>(
        &mut self,
        row: u64,
        read: impl FnOnce(&mut OpenRow<'_>, &mut PayloadReader) -> Result<T>,
    ) -> Result<T> {
        let Self { open, payloads } = self;
        let (shard, local) = payloads.source.locate(row);
        let value = open
            .row(&payloads.source, shard, local, &payloads.permits)
            .and_then(|mut at| read(&mut at, payloads));
        value.map_err(|error| error.in_shard(&payloads.source.files.shards[shard].path).at_row(local))
    }
}

impl ReadRows for ArrowReader {
    fn path(&mut self, row: u64) -> Result<Option<String>> {
        self.with_row(row, |at, payloads| payloads.path(at))
    }

    fn value(&mut self, row: u64, _run: u64, number: usize) -> Result<Value> {
        self.with_row(row, |at, _| at.other(number))
    }
}

impl ReadRecords for ArrowReader {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;

    fn set_limiter(&mut self, limiter: Arc<dyn MemoryLimiter>) {
        self.payloads.permits = MemoryPermits::of(limiter);
    }

    fn hint_next(&mut self, end: u64, row: Option<u64>) {
        self.payloads.blocks.hint_next(end, row);
    }

    /// Reads one row. If `run`, the number of rows from this one on that will be requested next in storage
    /// order, is above 1, a block of several MiB is read at once; 1 reads only this record's range. Of a
    /// large recording the part that is requested is read, where that is less work.
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
        let record = self.with_row(row, |at, payloads| {
            at.shard.is_kept = run > 1;
            let contents = &payloads.source.contents;
            let mut values = Row::new();
            if contents.has_labels() {
                values.push(Value::Int(at.label()?));
            }
            if contents.extra_columns.contains(&ExtraColumn::Path) {
                values.push(ExtraColumn::path(payloads.path(at))?);
            }
            at.push_others(&mut values)?;
            at.push_beside(&mut values)?;
            let payload = payloads.read(at, run.max(1), (request, &values))?;
            Ok(RawRecord::new(payload, values))
        });
        self.open.release_row_memory();
        record
    }
}

impl PayloadReader {
    /// What is requested of the recording of a row with these values, or its document.
    fn read(
        &mut self,
        at: &mut OpenRow<'_>,
        run: u64,
        request: (&dyn ReadRequest, &Row),
    ) -> Result<StoredPayload> {
        let Self { source, blocks, permits, decoder } = self;
        let max_record_bytes = source.max_record_bytes();
        let stored = at.payload()?;
        let is_own = stored.is_some();
        let bytes = match stored {
            Some(ValueBytes::File(span)) => {
                check_record_bytes(span.len, max_record_bytes).map_err(|error| error.at_byte(span.at))?;
                // Samples in lists have no head, and what was read with other rows is whole.
                let is_held = blocks.slice(at.shard.number, span).is_some();
                if !at.batch.has_samples()
                    && !is_held
                    && let Some(part) = source.parts.read(decoder, at, span, request, permits)?
                {
                    return Ok(part.into());
                }
                blocks.read(source, at, span, run, permits)?
            }
            Some(ValueBytes::Memory(bytes)) => {
                check_record_bytes(bytes.len() as u64, max_record_bytes)?;
                if at.shard.has_granted.load(Ordering::Relaxed) && at.batch.is_payload_granted() {
                    permits.mark_counted();
                }
                bytes
            }
            None => match source.document {
                Some(what) => return Err(Error::new(ErrorKind::Null, format!("the {what} is null"))),
                None => self.file_of(at)?,
            },
        };
        if bytes.is_empty() {
            let what = self.source.document.map(|what| format!("the {what} is empty"));
            let what = what.unwrap_or_else(|| "the recording has no bytes".to_owned());
            return Err(Error::new(ErrorKind::Empty, what));
        }
        let bytes = if is_own { at.recording(bytes, &self.permits)? } else { bytes };
        Ok(bytes.into())
    }

    /// The path field of a row.
    fn path(&self, at: &mut OpenRow<'_>) -> Result<Option<String>> {
        let bytes = match at.path()? {
            None => return Ok(None),
            Some(ValueBytes::Memory(bytes)) => bytes,
            Some(ValueBytes::File(span)) => match self.blocks.slice(at.shard.number, span) {
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
    fn file_of(&self, at: &mut OpenRow<'_>) -> Result<Bytes> {
        let Some(name) = self.path(at)? else {
            return Err(Error::new(ErrorKind::Null, "the row has neither bytes nor a path"));
        };
        let source = &self.source;
        source.path_policy.read(
            &source.files.storage,
            source.blocks(),
            &source.files.shards[at.shard.number].path,
            &name,
            source.max_record_bytes(),
            &self.permits,
        )
    }
}
