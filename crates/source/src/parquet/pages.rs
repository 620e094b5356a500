//! Checks pages before they are decoded, where the decoder would allocate by an unchecked number.
//!
//! There are three such numbers: the size of a decompressed page, the number of values of a dictionary, and
//! the number of lengths of a delta encoding. A page that claims more than its bytes can hold is refused, and
//! so is an invalid header (`thrift`). The decoder checks all else.
//!
//! Rows that are decoded together may still take much more memory than the footer claims. Pages may be larger
//! than their average, or each value may begin with all of the one before (`DELTA_BYTE_ARRAY`), a byte of the
//! page for a MiB. So a batch of several rows may hold at most [`MAX_BATCH`] in addition to the largest page
//! and the dictionary of each column, which a row alone may need. The rows of a larger batch are decoded one
//! by one, by a decoder that decompresses each page once.
//!
//! Source: Parquet format, `parquet.thrift` (`PageHeader`), "Thrift compact protocol", "Delta encoding"; the
//! largest ratios follow from the formats: Snappy copies at most 64 bytes by 3, LZ4 adds 255 by 1, Deflate
//! copies 258 by 2 bits.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ::parquet::{
    basic::Encoding,
    column::page::{Page, PageMetadata, PageReader},
    errors::ParquetError,
};

use super::{chunk::USUAL_RATIO, chunks::ColumnChunks};
use crate::{Error, ErrorKind, Result, contract::SMALL_READ};

/// The most bytes that a batch of several rows holds beyond the largest page and the dictionary of each
/// column.
const MAX_BATCH: u64 = 64 << 20;
/// The most bytes of a decoded value of a column without fixed length: a number, or a view of bytes.
pub(super) const VALUE: u64 = 16;

/// Reads numbers of variable length: seven bits per byte, the lowest first.
struct Varints<'a>(&'a [u8]);

impl Varints<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Zigzag: even numbers are positive.
    fn signed(&mut self) -> Option<i64> {
        self.unsigned().map(|value| (value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Skips a delta encoding and returns its number of values; None if it is incomplete.
    fn skip_deltas(&mut self) -> Option<u64> {
        let (block, n_mini, n_values) = (self.unsigned()?, self.unsigned()?, self.unsigned()?);
        self.unsigned()?;
        let per_mini = block.checked_div(n_mini)?;
        let mut left = n_values.saturating_sub(1);
        while left > 0 && per_mini > 0 {
            self.unsigned()?;
            let (widths, rest) = self.0.split_at_checked(usize::try_from(n_mini).ok()?)?;
            self.0 = rest;
            for width in widths {
                if left == 0 {
                    break;
                }
                let bits = per_mini.checked_mul(u64::from(*width))?;
                self.0 = self.0.get(usize::try_from(bits / 8).ok()?..)?;
                left = left.saturating_sub(per_mini);
            }
        }
        Some(n_values)
    }
}

/// Iterates over the values of a delta encoding of int32, up to its end or where it is cut off.
struct Deltas<'a> {
    input: Varints<'a>,
    per_mini: u64,
    n_mini: usize,
    left: u64,
    value: i32,
    /// Whether the next value is `value`: the first one is in the header.
    is_first: bool,
    min_delta: i32,
    /// The widths, in bits per difference, of the block's remaining miniblocks.
    widths: &'a [u8],
    /// The current miniblock: its bits, the bits per difference, and the number of differences taken.
    mini: (&'a [u8], u64, u64),
}

impl<'a> Deltas<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let mut input = Varints(bytes);
        let (block, n_mini, left) = (input.unsigned()?, input.unsigned()?, input.unsigned()?);
        let value = input.signed()? as i32;
        let per_mini = block.checked_div(n_mini).filter(|&n| n > 0)?;
        Some(Self {
            input,
            per_mini,
            n_mini: usize::try_from(n_mini).ok()?,
            left,
            value,
            is_first: true,
            min_delta: 0,
            widths: &[],
            mini: (&[], 0, per_mini),
        })
    }

    /// Begins the next miniblock, of this block or the next one.
    fn next_mini(&mut self) -> Option<()> {
        if self.widths.is_empty() {
            self.min_delta = self.input.signed()? as i32;
            (self.widths, self.input.0) = self.input.0.split_at_checked(self.n_mini)?;
        }
        let (&width, rest) = self.widths.split_first()?;
        self.widths = rest;
        let n_bits = self.per_mini.checked_mul(u64::from(width)).filter(|_| width <= 32)?;
        let (bits, rest) = self.input.0.split_at_checked(usize::try_from(n_bits.div_ceil(8)).ok()?)?;
        self.input.0 = rest;
        self.mini = (bits, u64::from(width), 0);
        Some(())
    }
}

impl Iterator for Deltas<'_> {
    type Item = i32;

    fn next(&mut self) -> Option<i32> {
        self.left = self.left.checked_sub(1)?;
        if self.is_first {
            self.is_first = false;
            return Some(self.value);
        }
        if self.mini.2 == self.per_mini {
            self.next_mini()?;
        }
        let (bits, width, taken) = &mut self.mini;
        let at = *taken * *width;
        *taken += 1;
        let bytes = &bits[(at / 8) as usize..((at + *width).div_ceil(8)) as usize];
        let word = bytes.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        let delta = (word >> (at % 8) & ((1 << *width) - 1)) as i32;
        self.value = self.value.wrapping_add(self.min_delta).wrapping_add(delta);
        Some(self.value)
    }
}

/// The decoded bytes of a `DELTA_BYTE_ARRAY`. `prefixes` and `suffixes` hold, per value, the length of the
/// part shared with the value before and of the rest. At most `together` values are decoded at a time.
fn expanded(prefixes: &[u8], suffixes: &[u8], together: u64) -> u64 {
    let lengths =
        Deltas::new(prefixes).into_iter().flatten().zip(Deltas::new(suffixes).into_iter().flatten());
    let (mut last, mut longest, mut sum) = (0u64, 0u64, 0u64);
    for (prefix, suffix) in lengths {
        // The decoder refuses negative lengths.
        let (Ok(prefix), Ok(suffix)) = (u64::try_from(prefix), u64::try_from(suffix)) else { break };
        last = prefix.min(last).saturating_add(suffix);
        longest = longest.max(last);
        sum = sum.saturating_add(last);
    }
    sum.min(longest.saturating_mul(together))
}

/// Runs the parsers of this module on any bytes, for fuzzing.
#[cfg(any(test, fuzzing))]
pub(crate) fn look_at(bytes: &[u8]) {
    super::chunk::look_at(bytes);
    let mut input = Varints(bytes);
    let n_values = input.skip_deltas();
    assert!(input.0.len() <= bytes.len());
    // At width 0 a few bytes can claim any number of values, so the number is bounded here.
    if let Some(deltas) = Deltas::new(bytes).filter(|deltas| deltas.left < 1 << 20) {
        assert!(deltas.count() as u64 <= n_values.unwrap_or(u64::MAX));
        expanded(bytes, bytes, 7);
    }
}

/// Reads pages and checks them: delta encodings have no more lengths than values, and a batch stays within
/// its limit of memory.
pub(super) struct CheckedPages {
    pub pages: Box<dyn PageReader>,
    /// Whether each page has definition levels, which mark nulls.
    pub is_nullable: bool,
    /// How deeply lists are nested in rows; if at all, each page has repetition levels, which mark their
    /// starts.
    pub repetition: u32,
    /// The most bytes of the values of a page of lists; 64 MiB, and 64 times the encoded bytes, are always
    /// allowed.
    pub max_bytes: u64,
    /// The number of rows decoded at a time.
    pub batch_rows: u64,
    /// The most bytes of a decoded value.
    pub value_bytes: u64,
    pub chunks: ColumnChunks,
    /// The index of the chunk in `chunks`.
    pub column: usize,
    /// The number of copies of a page's bytes in memory.
    pub copies: u64,
    /// Whether to request room before the next page: the last one was large, or there was none.
    pub asks: bool,
    /// The pages that the last decoder of the row group read.
    pub recent: RecentPages,
    /// The number of pages read or skipped.
    pub passed: u64,
    /// Whether the next page is known to be a dictionary.
    pub is_dictionary: bool,
    /// The number of the dictionary page, if it was skipped and not read since.
    pub deferred: Option<u64>,
    /// Of lists, the values of the pages of the row that the last page ends in, and these pages: bytes.
    pub row: (u64, u64),
}

/// Caches the last decompressed page of each column, and its dictionary, for the next decoder of the row
/// group. Otherwise each row of a damaged page would cost the decompression of the whole page.
#[derive(Clone, Default)]
pub(super) struct RecentPages(Arc<Mutex<Vec<CachedPage>>>);

/// A page, or the error of reading it.
struct CachedPage {
    /// Its column, and whether it is a dictionary.
    of: (usize, bool),
    /// Its number in the column chunk.
    at: u64,
    page: Result<Option<Page>, ParquetError>,
}

impl RecentPages {
    fn known(&self) -> MutexGuard<'_, Vec<CachedPage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, of: (usize, bool), at: u64) -> Option<Result<Option<Page>, ParquetError>> {
        let known = self.known();
        let found = known.iter().find(|known| known.of == of && known.at == at)?;
        again(&found.page)
    }

    fn forget(&self, of: (usize, bool)) {
        self.known().retain(|known| known.of != of);
    }

    fn keep(&self, of: (usize, bool), at: u64, page: &Result<Option<Page>, ParquetError>) {
        // A dictionary that was not skipped is read once, for the first row, and is not kept.
        let is_first = matches!(page, Ok(Some(Page::DictionaryPage { .. }))) && !of.1;
        if let Some(page) = again(page).filter(|_| !is_first) {
            self.known().push(CachedPage { of, at, page });
        }
    }
}

/// A copy of the page or error, if it can be copied.
fn again(page: &Result<Option<Page>, ParquetError>) -> Option<Result<Option<Page>, ParquetError>> {
    Some(match page {
        Ok(page) => Ok(page.clone()),
        Err(ParquetError::General(text)) => Err(ParquetError::General(text.clone())),
        Err(ParquetError::EOF(text)) => Err(ParquetError::EOF(text.clone())),
        Err(ParquetError::NYI(text)) => Err(ParquetError::NYI(text.clone())),
        Err(ParquetError::External(error)) => Err(ParquetError::External(error.to_string().into())),
        Err(_) => return None,
    })
}

impl CheckedPages {
    fn read(
        &mut self,
        of: (usize, bool),
        at: u64,
        next: impl FnOnce(&mut dyn PageReader) -> Result<Option<Page>, ParquetError>,
    ) -> Result<Option<Page>, ParquetError> {
        self.recent.forget(of);
        // The size is unknown before the read, so wait for room first.
        let room = if self.asks { self.chunks.room()? } else { None };
        let page = next(&mut *self.pages);
        drop(room);
        #[cfg(test)]
        UNPACKED
            .set(UNPACKED.get() + page.iter().flatten().map(|page| page.buffer().len() as u64).sum::<u64>());
        self.seen(page, Some((of, at)))
    }

    /// Checks and counts a page. If it was `read` just now, caches it in `recent`.
    fn seen(
        &mut self,
        page: Result<Option<Page>, ParquetError>,
        read: Option<((usize, bool), u64)>,
    ) -> Result<Option<Page>, ParquetError> {
        if let Some((of, at)) = read
            && !self.chunks.has_error()
        {
            self.recent.keep(of, at, &page);
        }
        let page = page?;
        if let Some(page) = &page {
            let size = page.buffer().len() as u64;
            self.asks = size > SMALL_READ;
            if self.asks {
                let is_dictionary = matches!(page, Page::DictionaryPage { .. });
                self.chunks.keep((self.column, is_dictionary), size.saturating_mul(self.copies));
            }
            self.check(page)?;
        }
        Ok(page)
    }

    fn check(&mut self, page: &Page) -> Result<(), ParquetError> {
        let mut expanded = self.expanded(page)?;
        if self.repetition > 0 && !matches!(page, Page::DictionaryPage { .. }) {
            // The decoder skips rows for ever where levels are missing.
            let n_levels = n_repetition_levels(page, self.repetition);
            if n_levels < u64::from(page.num_values()) {
                let message =
                    format!("a page of {} values has {n_levels} repetition levels", page.num_values());
                return Err(ParquetError::General(message));
            }
            // A run of any number of equal values takes a few bytes. If rows are lists, one row may have all
            // of them, and go on in further pages.
            let values = u64::from(page.num_values()).saturating_mul(self.value_bytes);
            let before = if begins_row(page, self.repetition) { (0, 0) } else { self.row };
            let pages = before.1.saturating_add(page.buffer().len() as u64);
            self.row = (before.0.saturating_add(values), pages);
            let limit = self.max_bytes.max(MAX_BATCH).max(pages.saturating_mul(USUAL_RATIO));
            if self.row.0 > limit {
                let message = format!(
                    "pages of {pages} bytes have {} bytes of values of lists, and a row may have all of them; with \
                     max_record_bytes={} at most {limit} bytes of values are allowed",
                    self.row.0, self.max_bytes
                );
                return Err(self.chunks.refuse(Error::new(ErrorKind::TooLarge, message)));
            }
            expanded = expanded.max(values.saturating_sub(page.buffer().len() as u64));
        }
        let of = (self.column, matches!(page, Page::DictionaryPage { .. }));
        // A row that is decoded alone has no limit.
        match self.chunks.hold(of, page.buffer().len() as u64, expanded) {
            beyond if beyond > MAX_BATCH && self.batch_rows > 1 => {
                let message = format!(
                    "{} rows together hold more than {MAX_BATCH} bytes beyond the largest page",
                    self.batch_rows
                );
                Err(self.chunks.refuse(Error::new(ErrorKind::TooLarge, message)))
            }
            _ => Ok(()),
        }
    }

    /// The most bytes that a batch holds for values that are not views of the page.
    fn expanded(&self, page: &Page) -> Result<u64, ParquetError> {
        let (values, encoding) = match page {
            Page::DataPage { buf, encoding, .. } => {
                // The levels come first, each kind preceded by its length.
                let n_levels = usize::from(self.repetition > 0) + usize::from(self.is_nullable);
                let behind = |buf: &'_ [u8]| {
                    let levels = buf.first_chunk().map_or(0, |len| u32::from_le_bytes(*len) as usize);
                    levels.saturating_add(4)
                };
                let values = (0..n_levels).try_fold(&buf[..], |buf, _| buf.get(behind(buf)..));
                (values, *encoding)
            }
            Page::DataPageV2 { buf, encoding, def_levels_byte_len, rep_levels_byte_len, .. } => {
                let levels = *def_levels_byte_len as usize + *rep_levels_byte_len as usize;
                (buf.get(levels..), *encoding)
            }
            Page::DictionaryPage { .. } => return Ok(0),
        };
        let values = values.unwrap_or_default();
        match encoding {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => {
                lengths(page, values)?;
                Ok(0)
            }
            Encoding::DELTA_BYTE_ARRAY => {
                let suffixes = lengths(page, values)?;
                lengths(page, suffixes)?;
                let is_alone = self.batch_rows <= 1;
                Ok(if is_alone { 0 } else { expanded(values, suffixes, self.batch_rows) })
            }
            // Values in a page or a dictionary are views of it.
            _ => Ok(0),
        }
    }
}

/// The number of repetition levels in a page of lists, whose largest is `repetition`, or a few more.
///
/// Source: Parquet format, "Run length encoding / bit-packing hybrid".
fn n_repetition_levels(page: &Page, repetition: u32) -> u64 {
    let width = u64::from(u32::BITS - repetition.leading_zeros());
    let levels = match page {
        Page::DataPage { buf, rep_level_encoding: Encoding::RLE, .. } => {
            let len = buf.first_chunk().map_or(0, |len| u32::from_le_bytes(*len) as usize);
            buf.get(4..).map(|levels| &levels[..len.min(levels.len())])
        }
        Page::DataPageV2 { buf, rep_levels_byte_len, .. } => buf.get(..*rep_levels_byte_len as usize),
        // Bits of an older encoding, as many as there are values.
        Page::DataPage { buf, .. } => return buf.len() as u64 * 8 / width,
        Page::DictionaryPage { .. } => None,
    };
    let (mut levels, mut n) = (Varints(levels.unwrap_or_default()), 0u64);
    while let Some(header) = levels.unsigned() {
        let (count, len) = match header & 1 {
            0 => (header >> 1, width.div_ceil(8)),
            _ => ((header >> 1).saturating_mul(8), (header >> 1).saturating_mul(width)),
        };
        let left = levels.0.len() as u64;
        // A run that is cut off has the packed levels whose bytes are there.
        n = n.saturating_add(if len <= left { count } else { (left * 8 / width).min(count) });
        levels.0 = &levels.0[len.min(left) as usize..];
    }
    n
}

/// Whether the first value of a page of lists is the first of its row: its repetition level is 0.
///
/// Source: Parquet format, "Run length encoding / bit-packing hybrid".
fn begins_row(page: &Page, repetition: u32) -> bool {
    let levels = match page {
        Page::DataPage { buf, rep_level_encoding: Encoding::RLE, .. } => buf.get(4..),
        Page::DataPageV2 { buf, rep_levels_byte_len, .. } => buf.get(..*rep_levels_byte_len as usize),
        _ => None,
    };
    let mut levels = Varints(levels.unwrap_or_default());
    // A run has its value in a byte, as there are fewer levels than 256; packed ones begin with the lowest
    // bits.
    match (levels.unsigned(), levels.byte()) {
        (Some(header), Some(level)) if header & 1 == 0 => level == 0,
        (Some(_), Some(packed)) => packed.trailing_zeros() >= u32::BITS - repetition.leading_zeros(),
        _ => false,
    }
}

/// Checks the lengths at the start of `bytes`, and returns the bytes after them.
///
/// # Errors
/// If there are more of them than the page has values.
fn lengths<'a>(page: &Page, bytes: &'a [u8]) -> Result<&'a [u8], ParquetError> {
    let mut input = Varints(bytes);
    let n = input.skip_deltas().or_else(|| {
        // An incomplete encoding still has the number in its header.
        let mut input = Varints(bytes);
        input.unsigned().and(input.unsigned()).and_then(|_| input.unsigned())
    });
    match n {
        Some(n) if n > u64::from(page.num_values()) => {
            let message = format!("a page of {} values has {n} lengths", page.num_values());
            Err(ParquetError::General(message))
        }
        _ => Ok(input.0),
    }
}

impl Iterator for CheckedPages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let of = (self.column, false);
        let at = self.passed;
        (self.passed, self.is_dictionary) = (at + 1, false);
        if let Some(known) = self.recent.get(of, at) {
            self.pages.skip_next_page()?;
            return self.seen(known, None);
        }
        self.read(of, at, |pages| pages.get_next_page())
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        let page = self.pages.peek_next_page()?;
        self.is_dictionary = page.as_ref().is_some_and(|page| page.is_dict);
        Ok(page)
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        if mem::take(&mut self.is_dictionary) {
            self.deferred = Some(self.passed);
        }
        self.passed += 1;
        self.pages.skip_next_page()
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.pages.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>, ParquetError> {
        let Some(at) = self.deferred.take() else { return Ok(None) };
        let of = (self.column, true);
        match self.recent.get(of, at) {
            Some(known) => self.seen(known, None),
            None => self.read(of, at, |pages| pages.take_deferred_dictionary()),
        }
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        self.pages.at_record_boundary()
    }
}

#[cfg(test)]
thread_local! {
    static UNPACKED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The bytes of all pages that this thread has decompressed.
#[cfg(test)]
pub(super) fn unpacked() -> u64 {
    UNPACKED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetition_levels_are_counted() {
        let page = |levels: &[u8], rest: usize| {
            let mut buf = levels.to_vec();
            buf.resize(levels.len() + rest, 0xff);
            Page::DataPageV2 {
                buf: buf.into(),
                num_values: 0,
                encoding: Encoding::PLAIN,
                num_nulls: 0,
                num_rows: 0,
                def_levels_byte_len: 0,
                rep_levels_byte_len: levels.len() as u32,
                is_compressed: false,
                statistics: None,
            }
        };
        let count = |levels: &[u8], repetition| n_repetition_levels(&page(levels, 9), repetition);
        // A run of 5, a run of 300 of two bytes' header, two groups of eight of width 1.
        assert_eq!(count(&[10, 1], 1), 5);
        assert_eq!(count(&[0xd8, 4, 0, 5, 0xff, 0], 1), 300 + 16);
        // Of width 2, the second group is cut off in the middle; a run without its value has no level.
        assert_eq!(count(&[5, 0, 0, 0], 3), 12);
        assert_eq!(count(&[10], 1), 0);
        assert_eq!(count(&[], 1), 0);
    }

    #[test]
    fn deltas_are_walked() {
        // Blocks of 128 values in 4 miniblocks; 35 values, the first is 7; one block with widths 1 and 2 for
        // the other 34; one byte after it.
        let mut data = vec![0x80, 1, 4, 35, 14, 0, 1, 2, 0, 0];
        data.extend([0; 4 + 8 + 1]);
        let mut input = Varints(&data);
        assert_eq!(input.skip_deltas(), Some(35));
        assert_eq!(input.0, [0]);
        assert_eq!(Varints(&data[..20]).skip_deltas(), None);
        assert_eq!(Varints(&[0x80, 1, 0, 35, 14]).skip_deltas(), None);
    }

    #[test]
    fn deltas_are_unpacked() {
        // As above: 7, then differences of -1 plus the bits: 32 of width 1, all set, and two of width 2,
        // which are 3 and 2.
        let mut data = vec![0x80, 1, 4, 35, 14, 1, 1, 2, 0, 0];
        data.extend([0xff, 0xff, 0xff, 0x7f, 0b1011, 0, 0, 0, 0, 0, 0, 0]);
        let values: Vec<i32> = Deltas::new(&data).unwrap().collect();
        assert_eq!(values, [[7; 32].as_slice(), &[6, 8, 9]].concat());
        assert_eq!(Deltas::new(&data[..16]).unwrap().count(), 33, "the second miniblock is not whole");
        // 35 values, each with 7 bytes of the one before and 7 more: 7, then 14 each.
        data[5..].fill(0);
        assert_eq!(expanded(&data, &data, u64::MAX), 7 + 34 * 14);
        assert_eq!(expanded(&data, &data, 3), 3 * 14);
    }
}
