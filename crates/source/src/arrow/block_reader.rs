//! Reads the payloads of rows: alone, or in blocks of several rows.
//!
//! A row that is requested alone costs one read of its range. Rows that will be requested in order are read
//! together, in blocks of some MiB, and returned as slices of the block; the block stays in place while rows
//! are read alone in between.

use std::{ops::Range, time::Instant};

use bytes::Bytes;

use super::{ArrowSource, buffer::ValueBytes, open_batches::OpenRow, shard::OpenShard, spans::Span};
use crate::{
    Result, columns::ValueLayout, contract::SMALL_READ, memory_permits::MemoryPermits, open_files::OpenFiles,
    storage::past_the_end,
};

/// The most bytes of a block; a longer record is read alone.
pub(super) const BLOCK: u64 = SMALL_READ;
/// The mean bytes of a block, so that most blocks are smaller than [`BLOCK`].
const USUAL_BLOCK: u64 = 3 << 20;
/// The distance from a block's start, bytes, at which the system is advised of the next reads.
const ANNOUNCED: u64 = 4 * BLOCK;
/// The most rows of a block; a bound for empty rows.
const BLOCK_ROWS: u64 = 1 << 16;

/// Reads payloads for one reader of rows.
#[derive(Debug, Default)]
pub(super) struct BlockReader {
    block: Option<HeldBlock>,
    /// A shard, and the end of a block in it that could not be read. Rows up to there are read alone, so that
    /// each fails on its own.
    alone: Option<(usize, u64)>,
    /// The row before which the run ends that is being read, and the row that is read then.
    then: Option<(u64, Option<u64>)>,
    /// The shard of that row, open as soon as bytes of it are announced.
    next: Option<OpenShard>,
}

/// A block of a shard's bytes, read at once.
#[derive(Debug)]
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

impl BlockReader {
    /// Notes the row before which the next run ends, and the one that is read then.
    pub(super) fn hint_next(&mut self, end: u64, row: Option<u64>) {
        self.then = Some((end, row));
    }

    /// The bytes at `span`, if the block in hand has them.
    pub(super) fn slice(&self, shard: usize, span: Span) -> Option<Bytes> {
        self.block.as_ref()?.slice(shard, span)
    }

    /// Reads `span`, the payload of row `at`: from the block in hand, alone, or, if `run` rows from it on are
    /// read in order, in a new block with those that follow.
    pub(super) fn read(
        &mut self,
        source: &ArrowSource,
        at: &mut OpenRow<'_>,
        span: Span,
        run: u64,
        permits: &MemoryPermits,
    ) -> Result<Bytes> {
        let shard = at.shard.number;
        if let Some(bytes) = self.slice(shard, span) {
            // After the last record of a block only its records hold it.
            self.block.take_if(|block| block.ends_with(span));
            return Ok(bytes);
        }
        let (end, size) = (span.at + span.len, at.shard.file.size());
        if end > size {
            return Err(past_the_end(end, size));
        }
        let is_alone = run == 1 || self.alone.is_some_and(|(of, end)| of == shard && span.at < end);
        let mut block = span.at..end;
        if !is_alone {
            block.end = end_of_block(at, span, run, size);
            // The memory of the last block can be reused at once.
            self.block = None;
            self.announce(source, at.shard, block.clone());
        }
        let (file, blocks) = (&at.shard.file, source.blocks());
        let begin = Instant::now();
        let bytes = match file.bytes(block.clone(), blocks, permits) {
            // The unreadable bytes may be those of another row.
            Err(_) if block.end > end => {
                self.alone = Some((shard, block.end));
                file.bytes(span.at..end, blocks, permits)?
            }
            bytes => bytes?,
        };
        let record = bytes.slice(..span.len as usize);
        if source.document.is_none() {
            source.parts.was_whole(&record, bytes.len(), begin.elapsed());
        }
        if bytes.len() > record.len() {
            self.block = Some(HeldBlock { shard, at: span.at, bytes });
        }
        Ok(record)
    }

    /// Announces the range after the blocks that are usually being read. Where the run ends, it goes on with
    /// the next run.
    fn announce(&mut self, source: &ArrowSource, open: &OpenShard, block: Range<u64>) {
        let (shard, size) = (open.number, open.file.size());
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
            self.next =
                source.open.open(next, &source.files.storage, &source.files.shards[next].path, index).ok();
        }
        if let Some(open) = &self.next {
            let [from, to] = [from.max(end), to].map(|at| (begin + (at - end)).min(open.file.size()));
            open.file.will_need(from, to - from);
        }
    }
}

/// The end of the block that starts with `span`, the payload of row `at`: of the rows of the run whose
/// payloads follow each other, as many as make a block.
fn end_of_block(at: &mut OpenRow<'_>, span: Span, run: u64, size: u64) -> u64 {
    let mut end = span.at + span.len;
    let rows = at.batch.n_rows.min(at.row.saturating_add(run.min(BLOCK_ROWS)));
    for row in at.row + 1..rows {
        match at.batch.payload(at.shard, row) {
            Ok(Some(ValueBytes::File(next))) if next.at == end && next.len > 0 => {
                let longer = end + next.len;
                if longer - span.at > BLOCK || longer > size {
                    break;
                }
                end = longer;
            }
            Ok(Some(ValueBytes::File(next))) if next.len > 0 => break,
            Ok(_) => {}
            // An error of a later row is reported when that row is read.
            Err(_) => break,
        }
    }
    end
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
        if mean == 0 || self.parts.is_likely(mean) {
            return 1;
        }
        (USUAL_BLOCK / mean).clamp(1, BLOCK_ROWS).min(run).min(batch.first_row + batch.n_rows - local)
    }
}
