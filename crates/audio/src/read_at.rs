//! Bytes of a recording by range: of a slice in memory, a file, a member of a tar, a URL.
//!
//! [`ReadAt`] is what a source of bytes implements. Formats read through a [`RangeReader`]: reads are exact,
//! bounded and kept, so that parsers may look at the same bytes again. Over a slice in memory it lends the
//! bytes as they are, and reads nothing.
//!
//! Source: own.

use std::{
    cell::Cell,
    ops::{Deref, Range},
};

use bytes::Bytes;

use crate::{Error, ErrorKind, Result};

/// The most reads by which a head is explored: a walk over chunks, each of which may be anywhere.
const MAX_HEADER_READS: usize = 256;
/// The bytes that are read for a field of a head.
const HEADER_READ_LEN: u64 = 16 << 10;
/// The most bytes of junk before the first frame, or before the marker of FLAC.
pub(crate) const MAX_JUNK: usize = 1 << 18;

/// Bytes of a recording that lies in a file of its own, in a tar, or at a URL.
pub trait ReadAt {
    /// Bytes of the recording; the ranges of [`ReadAt::read`] end there.
    fn size(&self) -> u64;

    /// Reads exactly this range.
    ///
    /// # Errors
    /// If the range cannot be read, or the file has no such bytes.
    fn read(&self, range: Range<u64>) -> Result<Bytes>;

    /// The most bytes that may be held at once: those of a span, or of a recording that can only be read
    /// whole.
    fn limit(&self) -> u64 {
        1 << 30
    }

    /// A recording of up to so many bytes is read whole, by one read.
    fn read_whole_up_to(&self) -> u64 {
        ReadSizes::USUAL.whole
    }
}

/// How many bytes are read at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadSizes {
    /// Recordings of up to so many bytes are read whole.
    pub(crate) whole: u64,
    /// Bytes read at the start and at the end when a recording is opened.
    pub(crate) ends: u64,
    /// Bytes read at the start to recognise MPEG audio after junk.
    pub(crate) junk: u64,
    /// Bytes read before and after those where a span is expected.
    pub(crate) margin: u64,
    /// Bytes of the pieces of a scan.
    pub(crate) piece: u64,
}

impl ReadSizes {
    pub(crate) const USUAL: Self = Self {
        whole: 128 << 10,
        ends: 64 << 10,
        junk: 2 * MAX_JUNK as u64,
        margin: 48 << 10,
        piece: 1 << 20,
    };
}

#[derive(Clone, Copy)]
enum ByteSource<'a> {
    Memory(&'a [u8]),
    Ranges(&'a dyn ReadAt),
}

/// Bytes that a [`RangeReader`] lends or has read.
#[derive(Debug, Clone)]
pub(crate) enum ReadBytes<'a> {
    Lent(&'a [u8]),
    Read(Bytes),
}

impl Deref for ReadBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Read(bytes) => bytes,
        }
    }
}

/// Reads the bytes of a recording, or of a part of a file that holds it.
pub(crate) struct RangeReader<'a> {
    source: ByteSource<'a>,
    pub(crate) sizes: ReadSizes,
    /// Offset of the part in the file.
    offset: u64,
    size: u64,
    /// Whether an Ogg file is known to be a single stream, since it was made of one.
    pub(crate) is_one_stream: bool,
    /// As [`AudioDecoder::track`](crate::AudioDecoder::track).
    pub(crate) track: Option<u32>,
    /// The bytes read so far and their offsets.
    pieces: Vec<(u64, Bytes)>,
}

impl<'a> RangeReader<'a> {
    pub(crate) fn new(io: &'a dyn ReadAt, sizes: ReadSizes) -> Self {
        let source = ByteSource::Ranges(io);
        let (size, pieces) = (io.size(), Vec::new());
        Self { source, sizes, offset: 0, size, is_one_stream: false, track: None, pieces }
    }

    pub(crate) fn of_memory(bytes: &'a [u8]) -> Self {
        let (source, size) = (ByteSource::Memory(bytes), bytes.len() as u64);
        let sizes = ReadSizes::USUAL;
        Self { source, sizes, offset: 0, size, is_one_stream: false, track: None, pieces: Vec::new() }
    }

    /// The part `range` of the bytes, as bytes of their own, with what was read of it so far.
    pub(crate) fn within(&self, range: Range<u64>) -> Self {
        let Range { start, end } = range;
        let of_part = |(at, bytes): &(u64, Bytes)| {
            let (from, to) = (start.max(*at), end.min(at + bytes.len() as u64));
            (from < to).then(|| (from - start, bytes.slice((from - at) as usize..(to - at) as usize)))
        };
        let pieces = self.pieces.iter().filter_map(of_part).collect();
        Self { offset: self.offset + start, size: end - start, pieces, ..*self }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// All bytes, if they are in memory.
    pub(crate) fn memory(&self) -> Option<&'a [u8]> {
        let ByteSource::Memory(bytes) = self.source else { return None };
        Some(&bytes[self.offset as usize..(self.offset + self.size) as usize])
    }

    /// Reads `range`, or lends it out of memory.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn lend(&mut self, range: Range<u64>) -> Result<ReadBytes<'a>> {
        let lent = |bytes: &'a [u8]| bytes.get(range.start as usize..range.end as usize);
        match self.memory().and_then(lent) {
            Some(bytes) => Ok(ReadBytes::Lent(bytes)),
            None => self.read_cached(range).map(ReadBytes::Read),
        }
    }

    /// Reads `range`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond [`ReadAt::limit`], [`ErrorKind::Truncated`] if the file has other bytes
    /// than it said, and the errors of the reads.
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
        let (start, end) = (self.offset + range.start, self.offset + range.end);
        let bytes = match self.source {
            ByteSource::Memory(bytes) => Bytes::copy_from_slice(&bytes[start as usize..end as usize]),
            ByteSource::Ranges(io) => io.read(start..end)?,
        };
        if bytes.len() as u64 != n {
            let message = format!("{n} bytes of the recording were to be read, {} came", bytes.len());
            return Err(Error::new(ErrorKind::Truncated, message).at_byte(range.start));
        }
        Ok(bytes)
    }

    /// The most bytes that may be held at once.
    pub(crate) fn limit(&self) -> u64 {
        match self.source {
            ByteSource::Memory(_) => u64::MAX,
            ByteSource::Ranges(io) => io.limit(),
        }
    }

    /// Checks that `n` bytes may be held at once.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond [`ReadAt::limit`].
    pub(crate) fn check(&self, n: u64) -> Result<()> {
        let limit = self.limit();
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
    /// None if it takes more than [`MAX_HEADER_READS`] reads. In memory it runs once.
    ///
    /// # Errors
    /// Those of the reads and of the last `parse`.
    pub(crate) fn parse<T>(
        &mut self,
        mut parse: impl FnMut(&HeaderBytes<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        if let Some(bytes) = self.memory() {
            return parse(&HeaderBytes::of(bytes)).map(Some);
        }
        for _ in 0..MAX_HEADER_READS {
            let (pieces, size) = (&self.pieces[..], self.size);
            let partial = HeaderBytes { memory: &[], pieces, size, missing: Cell::new(None) };
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

/// The bytes of a file that a parser of heads looks at: all of them, or the pieces that were read so far.
pub(crate) struct HeaderBytes<'a> {
    /// All bytes, if they are in memory; else none.
    memory: &'a [u8],
    pieces: &'a [(u64, Bytes)],
    size: u64,
    /// The first range that was wanted and is in no piece. What a parser returned then does not count.
    missing: Cell<Option<Range<u64>>>,
}

impl<'a> HeaderBytes<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { memory: bytes, pieces: &[], size: bytes.len() as u64, missing: Cell::new(None) }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// `n` bytes from `at` on; None past the end of the file.
    #[inline]
    pub(crate) fn get(&self, at: u64, n: u64) -> Option<&'a [u8]> {
        let end = at.checked_add(n).filter(|&end| end <= self.size)?;
        match self.memory.get(at as usize..end as usize) {
            Some(bytes) => Some(bytes),
            None => self.in_pieces(at, end),
        }
    }

    /// Up to `n` bytes from `at` on: fewer where the file ends.
    #[inline]
    pub(crate) fn get_up_to(&self, at: u64, n: u64) -> &'a [u8] {
        self.get(at, n.min(self.size.saturating_sub(at))).unwrap_or_default()
    }

    fn in_pieces(&self, at: u64, end: u64) -> Option<&'a [u8]> {
        let found = self.pieces.iter().rev().find_map(|(start, bytes)| {
            let from = usize::try_from(at.checked_sub(*start)?).ok()?;
            bytes.get(from..from.checked_add(usize::try_from(end - at).ok()?)?)
        });
        if found.is_none() {
            let first = self.missing.take().unwrap_or(at..end);
            self.missing.set(Some(first));
        }
        found
    }
}
