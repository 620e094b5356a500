//! Reads of a recording: exact, bounded and kept, so that parsers may look at the same bytes again.
//!
//! Source: own.

use std::{cell::Cell, ops::Range};

use bytes::Bytes;

use crate::{Error, ErrorKind, Result, header_bytes::HeaderBytes, range_index::ReadBytes};

/// The most reads by which a head is explored: a walk over chunks, each of which may be anywhere.
const MAX_HEADER_READS: usize = 256;
/// The bytes that are read for a field of a head.
const HEADER_READ_LEN: u64 = 16 << 10;

/// Reads the bytes of a recording, or of the part of a container that holds it.
pub(crate) struct RangeReader<'a> {
    io: &'a dyn ReadBytes,
    /// Offset of the part in the file.
    offset: u64,
    size: u64,
    /// The bytes read so far and their offsets, for [`RangeReader::parse_with_reads`].
    pieces: Vec<(u64, Bytes)>,
}

impl<'a> RangeReader<'a> {
    pub(crate) fn new(io: &'a dyn ReadBytes) -> Self {
        Self { io, offset: 0, size: io.size(), pieces: Vec::new() }
    }

    /// The part `range` of the bytes, as bytes of their own.
    pub(crate) fn within(io: &'a dyn ReadBytes, range: Range<u64>) -> Self {
        Self { io, offset: range.start, size: range.end - range.start, pieces: Vec::new() }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Reads `range`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond the limit of [`ReadBytes::limit`], [`ErrorKind::Truncated`] if the file
    /// has other bytes than it said, and the errors of the reads.
    pub(crate) fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let n = range.end.saturating_sub(range.start);
        if range.end > self.size {
            return Err(Error::new(
                ErrorKind::Truncated,
                "the recording ends before the bytes of its samples",
            ));
        }
        if n == 0 {
            return Ok(Bytes::new());
        }
        self.check(n)?;
        let bytes = self.io.read(self.offset + range.start..self.offset + range.end)?;
        if bytes.len() as u64 != n {
            let message = format!("{n} bytes of the recording were to be read, {} came", bytes.len());
            return Err(Error::new(ErrorKind::Truncated, message).at_byte(range.start));
        }
        Ok(bytes)
    }

    /// Checks that `n` bytes may be held at once.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond [`ReadBytes::limit`].
    pub(crate) fn check(&self, n: u64) -> Result<()> {
        let limit = self.io.limit();
        if n <= limit {
            return Ok(());
        }
        let message = format!("{n} bytes of the recording are needed at once, {limit} are allowed");
        Err(Error::new(ErrorKind::TooLarge, message))
    }

    /// Reads `range`, or takes it out of a kept piece, and keeps it.
    pub(crate) fn read_cached(&mut self, range: Range<u64>) -> Result<Bytes> {
        if let Some(found) = find(&self.pieces, range.clone()) {
            return Ok(found);
        }
        let bytes = self.read(range.clone())?;
        self.pieces.push((range.start, bytes.clone()));
        Ok(bytes)
    }

    pub(crate) fn clear_cache(&mut self) {
        self.pieces.clear();
    }

    /// Runs `parse` over the bytes read so far, reads what it lacked, and runs it again, until it lacks none;
    /// None if it takes more than [`MAX_HEADER_READS`] reads.
    ///
    /// # Errors
    /// Those of the reads and of the last `parse`.
    pub(crate) fn parse_with_reads<T>(
        &mut self,
        mut parse: impl FnMut(&PartialBytes<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        for _ in 0..MAX_HEADER_READS {
            let partial = PartialBytes { pieces: &self.pieces, size: self.size, missing: Cell::new(None) };
            let parsed = parse(&partial);
            let Some(missing) = partial.missing.take() else { return parsed.map(Some) };
            let end = missing.end.max(missing.start.saturating_add(HEADER_READ_LEN)).min(self.size);
            let bytes = self.read(missing.start..end)?;
            self.pieces.push((missing.start, bytes));
        }
        Ok(None)
    }
}

/// The bytes of `range` in one of `pieces`.
fn find(pieces: &[(u64, Bytes)], range: Range<u64>) -> Option<Bytes> {
    pieces.iter().rev().find_map(|(at, bytes)| {
        let from = usize::try_from(range.start.checked_sub(*at)?).ok()?;
        let to = usize::try_from(range.end - at).ok()?;
        (to <= bytes.len()).then(|| bytes.slice(from..to))
    })
}

/// The pieces of a file that were read so far.
pub(crate) struct PartialBytes<'a> {
    pieces: &'a [(u64, Bytes)],
    size: u64,
    /// The first range that was wanted and is in no piece. What a parser returned then does not count.
    missing: Cell<Option<Range<u64>>>,
}

impl<'a> HeaderBytes<'a> for PartialBytes<'a> {
    fn size(&self) -> u64 {
        self.size
    }

    fn get(&self, at: u64, n: u64) -> Option<&'a [u8]> {
        let end = at.checked_add(n).filter(|&end| end <= self.size)?;
        let found = self.pieces.iter().rev().find_map(|(start, bytes)| {
            let from = usize::try_from(at.checked_sub(*start)?).ok()?;
            bytes.get(from..from.checked_add(usize::try_from(n).ok()?)?)
        });
        if found.is_none()
            && self.missing.take().is_none_or(|missing| {
                self.missing.set(Some(missing));
                false
            })
        {
            self.missing.set(Some(at..end));
        }
        found
    }
}
