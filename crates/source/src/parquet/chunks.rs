//! Reads the bytes of a row group's columns in large blocks.
//!
//! The decoder reads a page's header byte by byte and then the page. Both come from a window that moves over
//! the column chunk: one read per some MiB, whatever the size of the pages. Small adjacent chunks form one
//! extent, read at once.
//!
//! Only the requested chunks, and small gaps between them, are read; a footer or page header that refers to
//! other bytes is an error.

use std::{
    io::{self, Read},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ::parquet::{
    errors::ParquetError,
    file::reader::{ChunkReader, Length},
};
use bytes::{Buf, Bytes};

use super::chunk::Chunk;
use crate::{
    Error, ErrorKind, Result,
    block::BlockPool,
    contract::{Kept, Permit, SMALL_READ},
    memory_permits::MemoryPermits,
    storage::{StoredFile, past_the_end},
};

/// The bytes of a read where rows are read in order; extents up to twice as long are read at once.
pub(super) const BLOCK: u64 = 4 << 20;
/// The same for one row alone.
pub(super) const SMALL_BLOCK: u64 = 128 << 10;
/// The largest gap between chunks that are read as one, bytes.
const GAP: u64 = 64 << 10;
/// The bytes in which a page's header is searched first.
const HEADER: u64 = 1 << 10;
/// The longest header of a page, bytes: the page's smallest and largest value may be part of it.
const LONGEST_HEADER: u64 = 16 << 20;

/// A shared handle of the column chunks of a row group.
#[derive(Clone)]
pub(super) struct ColumnChunks(Arc<ChunksInner>);

struct ChunksInner {
    file: Arc<Mutex<StoredFile>>,
    size: u64,
    blocks: Arc<BlockPool>,
    permits: MemoryPermits,
    block: u64,
    chunks: Vec<Chunk>,
    extents: Vec<Range<u64>>,
    state: Mutex<ChunksState>,
}

#[derive(Default)]
struct ChunksState {
    /// The last window of each extent: its offset in the file, and its bytes.
    windows: Vec<(u64, Bytes)>,
    /// The largest page of each column since the batch began, and of each dictionary: column, whether a
    /// dictionary, bytes.
    largest: Vec<((usize, bool), u64)>,
    /// Bytes that the batch holds in addition to these.
    beyond: u64,
    /// The error for which the decoder got no bytes.
    error: Option<Error>,
    /// The memory of the batch's large pages, and of those that the decoder still holds: column, and whether
    /// a dictionary.
    pages: Vec<((usize, bool), Kept)>,
}

impl ColumnChunks {
    /// Reads `chunks` of `file`, about `block` bytes at a time.
    pub(super) fn new(
        file: &Arc<Mutex<StoredFile>>,
        blocks: &Arc<BlockPool>,
        permits: &MemoryPermits,
        chunks: Vec<Chunk>,
        block: u64,
    ) -> Self {
        let size = file.lock().unwrap_or_else(PoisonError::into_inner).size();
        let extents = merged(chunks.iter().map(|chunk| chunk.range.clone()).collect(), 2 * block);
        let windows = extents.iter().map(|extent| (extent.start, Bytes::new())).collect();
        let state = ChunksState { windows, ..ChunksState::default() };
        Self(Arc::new(ChunksInner {
            file: Arc::clone(file),
            size,
            blocks: Arc::clone(blocks),
            permits: permits.clone(),
            block,
            chunks,
            extents,
            state: Mutex::new(state),
        }))
    }

    /// Takes the error for which the decoder got no bytes, if there was one.
    pub(super) fn take_error(&self) -> Option<Error> {
        self.0.state().error.take()
    }

    /// Whether the decoder got no bytes because of an error.
    pub(super) fn has_error(&self) -> bool {
        self.0.state().error.is_some()
    }

    /// Begins a batch: resets its counts, and lets go of pages that the decoder no longer holds.
    pub(super) fn begin_batch(&self) {
        let mut state = self.0.state();
        state.largest.clear();
        state.beyond = 0;
        // The decoder still holds the last page of each column.
        for at in (0..state.pages.len()).rev() {
            let of = state.pages[at].0;
            if state.pages[at + 1..].iter().any(|(other, _)| *other == of) {
                state.pages.remove(at);
            }
        }
    }

    /// Waits until the run's limiter has room for a large page.
    pub(super) fn room(&self) -> Result<Option<Kept>, ParquetError> {
        self.0.permits.keep(SMALL_READ + 1).map_err(|error| self.refuse(error))
    }

    /// Counts a large page of `bytes` bytes; `of` is its column, and whether it is a dictionary.
    pub(super) fn keep(&self, of: (usize, bool), bytes: u64) {
        if let Some(kept) = self.0.permits.kept(bytes) {
            self.0.state().pages.push((of, kept));
        }
    }

    /// The permits of the large pages of the batch.
    pub(super) fn permits(&self) -> Arc<[Permit]> {
        self.0.state().pages.iter().map(|(_, kept)| kept.permit().clone()).collect()
    }

    /// Counts a page of `size` bytes, and `expanded` bytes of its values. Returns the bytes that the batch
    /// now holds beyond the largest pages.
    pub(super) fn hold(&self, of: (usize, bool), size: u64, expanded: u64) -> u64 {
        let state = &mut *self.0.state();
        // A row alone needs one page of a column at a time, so the smaller of two pages is extra.
        let smaller = match state.largest.iter_mut().find(|(other, _)| *other == of) {
            Some((_, largest)) => {
                let smaller = size.min(*largest);
                *largest = size.max(*largest);
                smaller
            }
            None => {
                state.largest.push((of, size));
                0
            }
        };
        state.beyond = state.beyond.saturating_add(smaller).saturating_add(expanded);
        state.beyond
    }

    /// Stores `error` and returns it for the decoder, which then fails.
    pub(super) fn refuse(&self, error: Error) -> ParquetError {
        ParquetError::External(Box::new(self.0.state().error.insert(error).clone()))
    }
}

/// Sorts the chunks and merges those that are close to each other, up to `longest` bytes.
fn merged(mut chunks: Vec<Range<u64>>, longest: u64) -> Vec<Range<u64>> {
    chunks.sort_unstable_by_key(|chunk| (chunk.start, chunk.end));
    // bounded: by the existing chunks.
    let mut extents: Vec<Range<u64>> = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        match extents.last_mut() {
            Some(last)
                if chunk.start.saturating_sub(last.end) <= GAP
                    && chunk.end.saturating_sub(last.start) <= longest =>
            {
                last.end = last.end.max(chunk.end);
            }
            _ => extents.push(chunk),
        }
    }
    extents
}

impl ChunksInner {
    fn state(&self) -> MutexGuard<'_, ChunksState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At least `min` bytes from `start` on, and up to the end of the window.
    fn at_least(&self, start: u64, min: u64) -> Result<Bytes> {
        let mut state = self.state();
        self.move_window(&mut state.windows, start, min)
            .inspect_err(|error| state.error = Some(error.clone()))
    }

    /// The bytes from `start` on, with a complete and valid page header.
    fn header(&self, start: u64) -> Result<Bytes> {
        let holding = self.chunks.iter().find(|chunk| chunk.range.contains(&start));
        let left = holding.map_or(0, |chunk| chunk.range.end - start);
        let mut n = left.clamp(1, HEADER);
        loop {
            let bytes = self.at_least(start, n)?;
            let checked = match holding.map_or(Ok(true), |chunk| chunk.check_header(&bytes)) {
                Ok(true) => return Ok(bytes),
                Ok(false) if n < left.min(LONGEST_HEADER) => {
                    n = (n * 16).min(left).min(LONGEST_HEADER);
                    continue;
                }
                Ok(false) => {
                    let message = format!("the header of a page does not end within {n} bytes");
                    Error::new(ErrorKind::Corrupt, message)
                }
                Err(error) => error,
            };
            return Err(self.state().error.insert(checked.at_byte(start)).clone());
        }
    }

    fn move_window(&self, windows: &mut [(u64, Bytes)], start: u64, min: u64) -> Result<Bytes> {
        let outside = || {
            let message = "the footer or a page header refers to bytes outside of the column";
            Error::new(ErrorKind::Corrupt, message).at_byte(start)
        };
        let end = start.checked_add(min).ok_or_else(outside)?;
        let found = self.extents.iter().zip(windows);
        let mut holding = found.filter(|(extent, _)| extent.start <= start && end <= extent.end);
        let (extent, (at, bytes)) = holding.next().ok_or_else(outside)?;
        let window = *at..*at + bytes.len() as u64;
        if window.start <= start && end <= window.end {
            return Ok(bytes.slice((start - *at) as usize..));
        }
        if end > self.size {
            return Err(past_the_end(end, self.size));
        }
        let whole = extent.end - extent.start <= 2 * self.block;
        let from = if whole { extent.start } else { start };
        let to =
            if whole { extent.end } else { end.max((start + self.block).min(extent.end)) }.min(self.size);
        // The range is within the file, whose size bounds the allocation.
        let mut block = self.blocks.take((to - from) as usize, None)?;
        // The part that the last window has is not read again.
        let known = match window.contains(&from) {
            true => {
                let known = &bytes[(from - *at) as usize..];
                block.as_mut_slice()[..known.len()].copy_from_slice(known);
                known.len()
            }
            false => 0,
        };
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.read_exact(&mut block.as_mut_slice()[known..], from + known as u64)?;
        if self.block == BLOCK && to < extent.end {
            file.will_need(to, BLOCK.min(extent.end - to));
        }
        (*at, *bytes) = (from, Bytes::from_owner(block));
        Ok(bytes.slice((start - from) as usize..))
    }
}

impl Length for ColumnChunks {
    fn len(&self) -> u64 {
        self.0.size
    }
}

impl ChunkReader for ColumnChunks {
    type T = PageHeaderBytes;

    fn get_read(&self, start: u64) -> Result<PageHeaderBytes, ParquetError> {
        Ok(PageHeaderBytes { chunks: self.clone(), start, at: start, part: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        let bytes = self.0.at_least(start, length as u64);
        bytes.map(|bytes| bytes.slice(..length)).map_err(|error| ParquetError::External(Box::new(error)))
    }
}

/// Bytes from an offset on, for the decoder to read a page header.
pub(super) struct PageHeaderBytes {
    chunks: ColumnChunks,
    start: u64,
    at: u64,
    part: Bytes,
}

impl Read for PageHeaderBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.part.is_empty() {
            // Bytes are read at the first use: the decoder also makes readers that it does not use.
            let inner = &self.chunks.0;
            let part = if self.at == self.start { inner.header(self.at) } else { inner.at_least(self.at, 1) };
            self.part = part.map_err(io::Error::other)?;
            self.at += self.part.len() as u64;
        }
        let n = buffer.len().min(self.part.len());
        self.part.copy_to_slice(&mut buffer[..n]);
        Ok(n)
    }
}
