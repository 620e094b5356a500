//! Reads rows: finds the batch and the value, and reads its block.
//!
//! A row that is requested alone costs one read of its range. Rows that will be requested in order are read
//! together, in blocks of some MiB, and returned as slices of the block. A reader keeps the files and batches
//! that it used last, and the current block. Rows read alone leave that block in place, so both kinds of
//! reads may be mixed. Several readers, each with its own block, read ahead: [`ArrowSource::block_rows`] is
//! the number of rows of a block.
//!
//! Of a large recording a part may be enough, which its head shows: one more read, but fewer bytes. So the
//! head is read first only if a part of the last large recording was enough, or if the recording is larger
//! than a block. Other recordings are read in one read.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;

use super::{
    ArrowSource, array::Array, buffer::ValueBytes, json::JsonArrays, listed::ListArrays, other::OtherArrays,
    shard::OpenShard, spans::Span,
};
use crate::{
    Error, ErrorKind, Excerpt, HEAD_BYTES, RawRecord, Result,
    block::BlockPool,
    columns::{self, ExtraColumn, ValueLayout},
    contract::{NO_LABEL, SMALL_READ, check_record_bytes},
    fallible_alloc,
    fields::{Row, Value},
    memory_permits::{MemoryPermits, covered},
    nested::{NestedColumn, most_json},
    path_policy,
    storage::{StoredFile, past_the_end},
};

/// The most bytes of a block; a longer record is read alone.
pub(super) const BLOCK: u64 = SMALL_READ;
/// The mean bytes of a block, so that most blocks are smaller than [`BLOCK`].
const USUAL_BLOCK: u64 = 3 << 20;
/// The distance from a block's start, bytes, at which the system is advised of the next reads.
const ANNOUNCED: u64 = 4 * BLOCK;
/// The most rows of a block; a bound for empty rows.
const BLOCK_ROWS: u64 = 1 << 16;
/// The most open files of a reader; readers share open files.
const OPEN_FILES: usize = 4;
/// The smallest record that may be read in parts, bytes; below, one read of all is as quick.
const SMALLEST_IN_PARTS: u64 = 256 << 10;
/// The most open batches, and the most if bodies are decompressed.
const OPEN_BATCHES: usize = 8;
const OPEN_COMPRESSED_BATCHES: usize = 2;

/// Reads rows of an [`ArrowSource`]; one per thread.
pub struct ArrowReader {
    source: Arc<ArrowSource>,
    /// The last used is first.
    shards: Vec<OpenShard>,
    /// The last used is first.
    batches: Vec<OpenBatch>,
    block: Option<HeldBlock>,
    permits: MemoryPermits,
    /// A shard, and the end of a block in it that could not be read. Rows up to there are read alone, so that
    /// each fails on its own.
    alone: Option<(usize, u64)>,
    /// The row before which the run ends that is being read, and the row that is read then.
    then: Option<(u64, Option<u64>)>,
    /// The shard of that row, open as soon as bytes of it are announced.
    next: Option<OpenShard>,
}

struct OpenBatch {
    shard: usize,
    first_row: u64,
    n_rows: u64,
    audio_struct: Option<Array>,
    bytes: Option<Array>,
    lists: Option<ListArrays>,
    messages: Option<JsonArrays>,
    tools: Option<JsonArrays>,
    path: Option<Array>,
    label: Option<Array>,
    others: Vec<OtherArrays>,
}

/// A block of a shard's bytes, read at once.
struct HeldBlock {
    shard: usize,
    at: u64,
    bytes: Bytes,
}

impl HeldBlock {
    fn slice(&self, shard: usize, span: Span) -> Option<Bytes> {
        let from = usize::try_from(span.at.checked_sub(self.at)?).ok()?;
        let end = from.checked_add(usize::try_from(span.len).ok()?)?;
        (shard == self.shard && end <= self.bytes.len()).then(|| self.bytes.slice(from..end))
    }

    fn ends_with(&self, span: Span) -> bool {
        self.at + self.bytes.len() as u64 == span.at + span.len
    }
}

impl std::fmt::Debug for ArrowReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArrowReader").field("open_files", &self.shards.len()).finish_non_exhaustive()
    }
}

impl ArrowReader {
    pub(crate) fn new(source: Arc<ArrowSource>) -> Self {
        Self {
            source,
            shards: Vec::new(),
            batches: Vec::new(),
            block: None,
            permits: MemoryPermits::default(),
            alone: None,
            then: None,
            next: None,
        }
    }

    /// Notes the row before which the next run ends, and the one that is read then.
    pub(super) fn hint_next(&mut self, end: u64, row: Option<u64>) {
        self.then = Some((end, row));
    }

    /// Sets the limiter from which the memory of large reads is requested.
    pub(super) fn set_limiter(&mut self, permits: MemoryPermits) {
        self.permits = permits;
    }

    /// Reads one row. `run` is the number of rows from this one on that will be requested next, in storage
    /// order. If it is above 1, the reader reads a block of several MiB at once; 1 reads only this record's
    /// range.
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
    pub fn read(&mut self, row: u64, run: u64) -> Result<RawRecord> {
        self.read_excerpt(row, run, &|_, _| None)
    }

    /// As [`Self::read`]; of a large record that is not part of a block only its head and `excerpt` may be
    /// read.
    ///
    /// # Errors
    /// As [`Self::read`].
    ///
    /// # Panics
    /// If there is no such row.
    pub fn read_excerpt(&mut self, row: u64, run: u64, excerpt: Excerpt<'_>) -> Result<RawRecord> {
        let (shard, local) = self.source.locate(row);
        let record = self.read_local(shard, local, run.max(1), excerpt);
        // A permit for one row is released with it.
        let has_granted = self.shards.first().is_some_and(|open| open.has_granted.load(Ordering::Relaxed));
        if has_granted && self.batches.first().is_some_and(OpenBatch::is_for_one_row) {
            self.batches.remove(0);
        }
        record.map_err(|error| self.placed(error, shard, local))
    }

    /// The recording's own path field, if the row has one; for reports.
    ///
    /// # Errors
    /// As [`Self::read`].
    ///
    /// # Panics
    /// If there is no such row.
    pub fn path(&mut self, row: u64) -> Result<Option<String>> {
        let (shard, local) = self.source.locate(row);
        self.path_local(shard, local).map_err(|error| self.placed(error, shard, local))
    }

    /// The values of a row's other columns, without its recording.
    ///
    /// # Errors
    /// As [`Self::read`].
    ///
    /// # Panics
    /// If there is no such row.
    pub fn others(&mut self, row: u64) -> Result<Row> {
        let (shard, local) = self.source.locate(row);
        let mut values = Row::new();
        let read = self.open_batch(shard, local).and_then(|()| self.push_others(shard, local, &mut values));
        read.map(|()| values).map_err(|error| self.placed(error, shard, local))
    }

    /// Adds the values of the other columns of a row of the first open batch.
    fn push_others(&mut self, shard: usize, local: u64, values: &mut Row) -> Result<()> {
        let (Some(batch), Some(open)) = (self.batches.first_mut(), self.shards.first()) else {
            return Ok(());
        };
        debug_assert_eq!(open.number, shard);
        let row = local - batch.first_row;
        batch.others.iter_mut().try_for_each(|other| {
            values.push(other.value(open, row)?);
            Ok(())
        })
    }

    fn placed(&self, error: Error, shard: usize, local: u64) -> Error {
        error.in_shard(&self.source.shards[shard].path).at_row(local)
    }

    fn read_local(&mut self, shard: usize, local: u64, run: u64, excerpt: Excerpt<'_>) -> Result<RawRecord> {
        self.open_batch(shard, local)?;
        let (Some(batch), Some(open)) = (self.batches.first_mut(), self.shards.first_mut()) else {
            return Err(Error::new(ErrorKind::Io, "no file is open"));
        };
        open.is_kept = run > 1;
        let row = local - batch.first_row;
        let mut values = Row::new();
        if self.source.contents.has_labels() {
            values.push(Value::Int(batch.label(open, row)?));
        }
        let max_record_bytes = self.source.max_record_bytes;
        // The head of samples shows no part that is enough.
        let has_samples = batch.lists.as_ref().is_some_and(ListArrays::has_samples);
        let excerpt = if has_samples { &|_: &[u8], _| None } else { excerpt };
        let mut is_list = batch.lists.is_some();
        let bytes = match batch.part(open, row)? {
            Some(ValueBytes::Memory(bytes)) => {
                check_record_bytes(bytes.len() as u64, max_record_bytes)?;
                let items = batch.lists.as_ref().map(ListArrays::items);
                if open.has_granted.load(Ordering::Relaxed)
                    && batch.bytes.as_ref().or(items).is_some_and(Array::is_granted)
                {
                    self.permits.mark_counted();
                }
                bytes
            }
            Some(ValueBytes::File(span)) => {
                check_record_bytes(span.len, max_record_bytes).map_err(|error| error.at_byte(span.at))?;
                match self.block.take().map(|block| (block.slice(shard, span), block)) {
                    Some((Some(bytes), block)) => {
                        // After the last record of a block only its records hold it.
                        self.block = (!block.ends_with(span)).then_some(block);
                        bytes
                    }
                    block => {
                        self.block = block.map(|(_, block)| block);
                        self.read_span(shard, row, span, run, excerpt)?
                    }
                }
            }
            None if self.source.is_text => {
                return Err(Error::new(ErrorKind::Null, "the text is null"));
            }
            None => {
                is_list = false;
                self.read_other_file(shard, row)?
            }
        };
        if bytes.is_empty() {
            let what = if self.source.is_text { "the text is empty" } else { "the recording has no bytes" };
            return Err(Error::new(ErrorKind::Empty, what));
        }
        let lists = self.batches.first_mut().and_then(|batch| batch.lists.as_mut()).filter(|_| is_list);
        let bytes = match (lists, self.shards.first()) {
            (Some(lists), Some(open)) => lists.recording(open, row, bytes, &self.permits)?,
            _ => bytes,
        };
        if self.source.contents.extra_columns.contains(&ExtraColumn::Path) {
            values.push(ExtraColumn::path(self.first_path(shard, row))?);
        }
        self.push_others(shard, local, &mut values)?;
        if let (Some(batch), Some(open)) = (self.batches.first_mut(), self.shards.first())
            && let Some(tools) = &mut batch.tools
        {
            let text = tools.text(open, row, most_json(max_record_bytes))?;
            values.push(text.map_or(Ok(Value::Null), |text| columns::text(&text))?);
        }
        Ok(RawRecord::new(bytes, values))
    }

    /// Reads `span`, row `row` of the first open batch: a part of it, all of it, or a block.
    fn read_span(
        &mut self,
        shard: usize,
        row: u64,
        span: Span,
        run: u64,
        excerpt: Excerpt<'_>,
    ) -> Result<Bytes> {
        let Some(open) = self.shards.first() else {
            return Err(Error::new(ErrorKind::Io, "no file is open"));
        };
        let is_large = span.len >= SMALLEST_IN_PARTS && span.at + span.len <= open.file.size();
        let source = Arc::clone(&self.source);
        let in_parts = &source.in_parts;
        let were_parts = in_parts.load(Ordering::Relaxed);
        // A recording larger than a block is read alone anyway, and its head costs little in comparison.
        if is_large && (were_parts || span.len > BLOCK) {
            let (bytes, was_part) = read_in_parts(&open.file, &source.blocks, span, excerpt, &self.permits)?;
            if was_part != were_parts {
                in_parts.store(was_part, Ordering::Relaxed);
            }
            return Ok(bytes);
        }
        let is_alone = |reader: &Self| reader.alone.is_some_and(|(of, end)| of == shard && span.at < end);
        let bytes = if is_alone(self) {
            self.read_block(shard, row, span, 1)?
        } else {
            match self.read_block(shard, row, span, run) {
                // The unreadable bytes may be those of another row.
                Err(_) if is_alone(self) => self.read_block(shard, row, span, 1)?,
                bytes => bytes?,
            }
        };
        if is_large && part_of(&bytes[..HEAD_BYTES], span.len, excerpt).is_some() {
            in_parts.store(true, Ordering::Relaxed);
        }
        Ok(bytes)
    }

    /// Reads `span`, row `row` of the first open batch, and with it the following rows of the run, up to a
    /// block.
    fn read_block(&mut self, shard: usize, row: u64, span: Span, run: u64) -> Result<Bytes> {
        let (Some(batch), Some(open)) = (self.batches.first_mut(), self.shards.first()) else {
            return Err(Error::new(ErrorKind::Io, "no file is open"));
        };
        let size = open.file.size();
        let mut end = span.at + span.len;
        if end > size {
            return Err(past_the_end(end, size));
        }
        let rows = batch.n_rows.min(row.saturating_add(run.min(BLOCK_ROWS)));
        for next in row + 1..rows {
            // An error of a later row is reported when that row is read.
            match batch.part(open, next) {
                Ok(Some(ValueBytes::File(part))) if part.at == end && part.len > 0 => {
                    let longer = end + part.len;
                    if longer - span.at > BLOCK || longer > size {
                        break;
                    }
                    end = longer;
                }
                Ok(Some(ValueBytes::File(part))) if part.len > 0 => break,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        if run > 1 {
            // The memory of the last block can be reused at once.
            self.block = None;
        }
        if run > 1 {
            self.announce(shard, span.at..end);
        }
        let Some(open) = self.shards.first() else {
            return Err(Error::new(ErrorKind::Io, "no file is open"));
        };
        // The range is within the file, whose size bounds the allocation.
        let len = (end - span.at) as usize;
        let permits = &self.permits;
        let permit = permits.admit(BlockPool::size_of(len) as u64)?;
        let bytes = match open.file.mapped_long(span.at, len, 0..len) {
            Some(bytes) => bytes.map(|bytes| covered(bytes, permit)),
            None => {
                let mut block = self.source.blocks.take(len, permit)?;
                open.file.read_long(block.as_mut_slice(), span.at).map(|()| Bytes::from_owner(block))
            }
        };
        if bytes.is_err() && len as u64 > span.len {
            self.alone = Some((shard, end));
        }
        let bytes = bytes?;
        if run == 1 {
            return Ok(bytes);
        }
        let record = bytes.slice(..span.len as usize);
        let block = HeldBlock { shard, at: span.at, bytes };
        self.block = (!block.ends_with(span)).then_some(block);
        Ok(record)
    }

    /// Announces the range after the blocks that are usually being read. Where the run ends, it goes on with
    /// the next run.
    fn announce(&mut self, shard: usize, block: Range<u64>) {
        let (Some(open), source) = (self.shards.first(), &self.source) else { return };
        let size = open.file.size();
        let (from, to) = (block.start + ANNOUNCED, block.end + ANNOUNCED);
        let end = match self.then.map(|(end, _)| source.locate(end.saturating_sub(1))) {
            Some((of, last)) if of == shard => open.index.begin_of(last + 1).unwrap_or(size),
            _ => size,
        };
        if from < end {
            open.file.will_need(from, to.min(end) - from);
        }
        let next = self.then.and_then(|(_, row)| row).filter(|_| to > end).map(|row| source.locate(row));
        let Some((next, row)) = next.filter(|&(next, _)| next != shard) else { return };
        let index = &source.indexes[next];
        let begin = index.begin_of(row).unwrap_or_default();
        if self.next.as_ref().is_none_or(|open| open.number != next) {
            // It is advice: the read itself reports the error.
            self.next = source.open.open(next, &source.storage, &source.shards[next].path, index).ok();
        }
        if let Some(open) = &self.next {
            let [from, to] = [from.max(end), to].map(|at| (begin + (at - end)).min(open.file.size()));
            open.file.will_need(from, to - from);
        }
    }

    /// Reads the file at the row's path.
    fn read_other_file(&mut self, shard: usize, row: u64) -> Result<Bytes> {
        let Some(name) = self.first_path(shard, row)? else {
            return Err(Error::new(ErrorKind::Null, "the row has neither bytes nor a path"));
        };
        let ArrowSource { storage, blocks, shards, max_record_bytes, path_policy, .. } = &*self.source;
        path_policy.read(storage, blocks, &shards[shard].path, &name, *max_record_bytes, &self.permits)
    }

    fn path_local(&mut self, shard: usize, local: u64) -> Result<Option<String>> {
        self.open_batch(shard, local)?;
        let row = self.batches.first().map_or(0, |batch| local - batch.first_row);
        self.first_path(shard, row)
    }

    /// Reads the path field of a row of the first open batch.
    fn first_path(&mut self, shard: usize, row: u64) -> Result<Option<String>> {
        let (Some(batch), Some(open)) = (self.batches.first_mut(), self.shards.first()) else {
            return Ok(None);
        };
        if !batch.is_valid(open, row)? {
            return Ok(None);
        }
        let Some(path) = &mut batch.path else { return Ok(None) };
        let bytes = match path.bytes(open, row)? {
            None => return Ok(None),
            Some(ValueBytes::Memory(bytes)) => bytes,
            Some(ValueBytes::File(span)) => {
                match self.block.as_ref().and_then(|block| block.slice(shard, span)) {
                    Some(bytes) => bytes,
                    None => {
                        path_policy::check_name(span.len).map_err(|error| error.at_byte(span.at))?;
                        let mut bytes = fallible_alloc::zero_bytes(span.len as usize)?;
                        open.file.read_exact(&mut bytes, span.at)?;
                        bytes.into()
                    }
                }
            }
        };
        path_policy::name(&bytes)
    }

    /// Opens the file and the batch of a row if they are not open, and moves them to the front.
    fn open_batch(&mut self, shard: usize, local: u64) -> Result<()> {
        let source = &self.source;
        let index = &source.indexes[shard];
        match self.shards.iter().position(|open| open.number == shard) {
            Some(at) => self.shards[..=at].rotate_right(1),
            None => {
                let path = &source.shards[shard].path;
                let mut open = source.open.open(shard, &source.storage, path, index)?;
                open.permits = self.permits.clone();
                self.shards.truncate(OPEN_FILES - 1);
                self.shards.insert(0, open);
            }
        }
        let held = |open: &OpenBatch| {
            open.shard == shard && (open.first_row..open.first_row + open.n_rows).contains(&local)
        };
        if let Some(at) = self.batches.iter().position(held) {
            self.batches[..=at].rotate_right(1);
            return Ok(());
        }
        let at = index.batch_at(local);
        let (Some(batch), Some(columns)) = (index.batches.get(at), &index.columns) else {
            return Err(Error::new(ErrorKind::Corrupt, "the row is in no batch"));
        };
        let array = |which: Option<usize>| {
            which.map(|which| {
                let (wanted, spans) = (&columns.arrays[which], &batch.arrays[which]);
                Array::new(&wanted.layout, spans, batch.codec, Some(at))
            })
        };
        let json = |column: &Option<NestedColumn>| {
            column.as_ref().map(|column| JsonArrays::new(column, columns, batch, at))
        };
        let open = OpenBatch {
            shard,
            first_row: batch.first_row,
            n_rows: batch.n_rows,
            audio_struct: array(columns.audio_struct),
            bytes: array(columns.bytes),
            lists: ListArrays::new(columns, batch, at),
            messages: json(&columns.messages),
            tools: json(&columns.tools),
            path: array(columns.path),
            label: array(columns.label),
            others: columns.others.iter().map(|other| OtherArrays::new(other, columns, batch, at)).collect(),
        };
        let kept = if batch.codec.is_some() { OPEN_COMPRESSED_BATCHES } else { OPEN_BATCHES };
        self.batches.truncate(kept - 1);
        self.batches.insert(0, open);
        Ok(())
    }
}

/// The part of a record to read, if the excerpt is at most half of it.
fn part_of(head: &[u8], len: u64, excerpt: Excerpt<'_>) -> Option<Range<usize>> {
    let part = excerpt(head, len)
        .filter(|part| part.start <= part.end && part.end <= len && part.end - part.start <= len / 2)?;
    Some(part.start as usize..part.end as usize)
}

/// Reads head and excerpt of the record at `span` into a block of the record's size, or all of it. Returns
/// whether it read a part.
fn read_in_parts(
    file: &StoredFile,
    blocks: &Arc<BlockPool>,
    span: Span,
    excerpt: Excerpt<'_>,
    permits: &MemoryPermits,
) -> Result<(Bytes, bool)> {
    let len = span.len as usize;
    let mut head = [0; HEAD_BYTES];
    file.read_exact(&mut head, span.at)?;
    let part = part_of(&head, span.len, excerpt);
    let was_part = part.is_some();
    let part = part.unwrap_or(HEAD_BYTES..len);
    let permit = permits.admit(BlockPool::size_of_part(len, HEAD_BYTES + part.len()) as u64)?;
    if let Some(bytes) = file.mapped_long(span.at, len, part.clone()) {
        return Ok((covered(bytes?, permit), was_part));
    }
    let mut block = blocks.take(len, permit)?;
    if was_part {
        block.is_sparse();
    }
    let bytes = block.as_mut_slice();
    // With assertions on, the pattern makes a stage that reads outside of its excerpt fail its tests.
    if cfg!(debug_assertions) {
        bytes.fill(0xA5);
    }
    bytes[..HEAD_BYTES].copy_from_slice(&head);
    file.read_long(&mut bytes[part.clone()], span.at + part.start as u64)?;
    Ok((Bytes::from_owner(block), was_part))
}

impl ArrowSource {
    /// The number of the `run` rows from `row` on that make a block, by the mean of their record batch.
    pub(super) fn rows_of_block(&self, row: u64, run: u64) -> u64 {
        let (shard, local) = self.locate(row);
        let index = &self.indexes[shard];
        let (Some(batch), Some(columns)) = (index.batches.get(index.batch_at(local)), &index.columns) else {
            return 1;
        };
        let items = columns.lists.as_ref().map(|lists| lists.items);
        let Some(which) = columns.bytes.or(items) else { return 1 };
        let buffers = &batch.arrays[which].buffers;
        let bytes: u64 = match columns.arrays[which].layout {
            ValueLayout::Offsets { .. } | ValueLayout::Views => {
                buffers.iter().skip(2).map(|buffer| buffer.len).sum()
            }
            ValueLayout::FixedBytes { .. } => buffers.iter().skip(1).map(|buffer| buffer.len).sum(),
            _ if items.is_some() => buffers.iter().skip(1).map(|buffer| buffer.len).sum(),
            _ => return 1,
        };
        let mean = bytes / batch.n_rows.max(1);
        if mean == 0 || mean >= SMALLEST_IN_PARTS && self.in_parts.load(Ordering::Relaxed) {
            return 1;
        }
        (USUAL_BLOCK / mean).clamp(1, BLOCK_ROWS).min(run).min(batch.first_row + batch.n_rows - local)
    }
}

impl OpenBatch {
    /// Whether any of its memory was granted for one row only.
    fn is_for_one_row(&self) -> bool {
        let arrays = [&self.audio_struct, &self.bytes, &self.path, &self.label];
        let others = self.others.iter().flat_map(OtherArrays::arrays);
        let others = others.chain(self.lists.iter().flat_map(ListArrays::arrays));
        let others =
            others.chain([&self.messages, &self.tools].into_iter().flatten().flat_map(JsonArrays::arrays));
        arrays.into_iter().flatten().chain(others).any(Array::is_for_one_row)
    }

    fn label(&mut self, shard: &OpenShard, row: u64) -> Result<i64> {
        let Some(label) = &mut self.label else { return Ok(NO_LABEL) };
        match label.int(shard, row)? {
            None => Ok(NO_LABEL),
            Some(value) => i64::try_from(value).map_err(|_| {
                let message =
                    format!("the label {value} does not fit int64; name another column with label_column=");
                Error::new(ErrorKind::Schema, message)
            }),
        }
    }

    /// Whether the audio struct is not null, if the column is a struct; the fields of a null struct have no
    /// meaning.
    fn is_valid(&mut self, shard: &OpenShard, row: u64) -> Result<bool> {
        self.audio_struct.as_mut().map_or(Ok(true), |audio| audio.is_valid(shard, row))
    }

    /// The range of the recording's bytes, or the bytes; None if they are null.
    fn part(&mut self, shard: &OpenShard, row: u64) -> Result<Option<ValueBytes>> {
        if !self.is_valid(shard, row)? {
            return Ok(None);
        }
        if let Some(messages) = &mut self.messages {
            let text = messages.text(shard, row, most_json(shard.max_record_bytes()))?;
            return Ok(text.map(|text| ValueBytes::Memory(text.into())));
        }
        match (&mut self.lists, &mut self.bytes) {
            (Some(lists), _) => lists.part(shard, row),
            (None, bytes) => bytes.as_mut().map_or(Ok(None), |bytes| bytes.bytes(shard, row)),
        }
    }
}
