//! Looks at pages before the decoder does, where it would allocate by a number that nothing backs.
//!
//! Three numbers are of that kind: the size of a page when decompressed, the number of values of a dictionary, and the number of
//! lengths of a delta encoding. A page that claims more than its bytes can hold is refused; all else about it
//! is the decoder's to judge.
//!
//! Source: Parquet format, `parquet.thrift` (`PageHeader`), "Thrift compact protocol", "Delta encoding"; the largest ratios follow
//! from the formats: Snappy copies at most 64 bytes by 3, LZ4 adds 255 by 1, Deflate copies 258 by 2 bits.

use std::ops::Range;

use ::parquet::{
    basic::{Compression, Encoding},
    column::page::{Page, PageMetadata, PageReader},
    errors::ParquetError,
    file::metadata::ColumnChunkMetaData,
};

use crate::{Error, ErrorKind, Result};

/// Pages up to this size are believed whatever the footer says.
const USUAL_PAGE: u64 = 8 << 20;
/// How many times as large a page above the limit of a record may be decompressed.
const USUAL_RATIO: u64 = 64;
/// The fewest bytes that a value of a dictionary takes: an int32, or the length of a string.
const SMALLEST_VALUE: u64 = 4;

/// Where a column chunk lies, and how large its pages may be.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub range: Range<u64>,
    /// What the footer says of all of it, decompressed.
    size: u64,
    /// How many times as large a page can be decompressed; None for any number of times.
    ratio: Option<u64>,
    /// The largest page, unless it is compressed to less than a 64th.
    max_bytes: u64,
}

impl Chunk {
    pub(super) fn new(range: Range<u64>, column: &ColumnChunkMetaData, max_bytes: u64) -> Self {
        let ratio = match column.compression() {
            Compression::UNCOMPRESSED => Some(1),
            Compression::SNAPPY => Some(22),
            Compression::LZ4 | Compression::LZ4_RAW => Some(256),
            Compression::GZIP(_) => Some(1033),
            _ => None,
        };
        Self { range, size: column.uncompressed_size().max(0) as u64, ratio, max_bytes }
    }

    /// Looks at the header of a page, of which `bytes` are the first.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a claim that cannot be, [`ErrorKind::TooLarge`] for one beyond the limit.
    pub(super) fn check_header(&self, bytes: &[u8]) -> Result<()> {
        let Claims { size, compressed, n_values } = Claims::of(bytes);
        let by_bytes =
            self.ratio.map_or(u64::MAX, |ratio| compressed.saturating_mul(ratio).saturating_add(64));
        let most = by_bytes.min(self.size.max(USUAL_PAGE));
        if size > most {
            let message = format!(
                "a page of {compressed} bytes claims to have {size} when decompressed, at most {most} can be"
            );
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let limit = self.max_bytes.max(compressed.saturating_mul(USUAL_RATIO));
        if size > limit {
            let message = format!(
                "a page of {compressed} bytes claims to have {size} when decompressed; with max_record_bytes={} at most {limit} are \
                 allowed",
                self.max_bytes
            );
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let held = size.max(compressed) / SMALLEST_VALUE;
        if n_values > held {
            let message =
                format!("a dictionary claims to have {n_values} values, and its page holds at most {held}");
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        Ok(())
    }
}

/// What the header of a page claims; zero for what is not found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Claims {
    size: u64,
    compressed: u64,
    /// Of a dictionary.
    n_values: u64,
}

impl Claims {
    fn of(bytes: &[u8]) -> Self {
        let mut claims = Self::default();
        let _ = claims.read(&mut Varints(bytes));
        claims
    }

    /// Reads until something else than an int32 follows. Negative numbers are the decoder's to refuse.
    fn read(&mut self, input: &mut Varints<'_>) -> Option<()> {
        const I32: u8 = 5;
        const STRUCT: u8 = 12;
        let mut id = 0;
        loop {
            let field = input.byte()?;
            id += match field >> 4 {
                0 => return None,
                step => u64::from(step),
            };
            match (id, field & 15) {
                (1 | 4, I32) => drop(input.signed()?),
                (2, I32) => self.size = input.signed()?.max(0) as u64,
                (3, I32) => self.compressed = input.signed()?.max(0) as u64,
                (7, STRUCT) => {
                    if input.byte()? == 1 << 4 | I32 {
                        self.n_values = input.signed()?.max(0) as u64;
                    }
                    return None;
                }
                _ => return None,
            }
        }
    }
}

/// Numbers of variable length: seven bits a byte, the lowest first.
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

    /// The number of values of a delta encoding; the input then stands behind it, if it is whole.
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

/// Everything here that reads bytes, on any bytes.
#[cfg(any(test, fuzzing))]
pub(super) fn look_at(bytes: &[u8]) {
    let Claims { size, compressed, .. } = Claims::of(bytes);
    let chunk = Chunk { range: 0..100, size: 1 << 30, ratio: Some(1), max_bytes: 1 << 20 };
    if chunk.check_header(bytes).is_ok() {
        assert!(size <= (1 << 20).max(compressed.saturating_mul(USUAL_RATIO)));
    }
    let mut input = Varints(bytes);
    let _ = input.skip_deltas();
    assert!(input.0.len() <= bytes.len());
}

/// Pages whose delta encodings have no more lengths than values.
pub(super) struct Checked {
    pub pages: Box<dyn PageReader>,
    /// Whether each page has levels that tell nulls.
    pub is_nullable: bool,
}

impl Checked {
    fn check(&self, page: &Page) -> Result<(), ParquetError> {
        let (values, encoding) = match page {
            Page::DataPage { buf, encoding, .. } if self.is_nullable => {
                // The levels come first, behind their length.
                let levels = buf.first_chunk().map_or(0, |len| u32::from_le_bytes(*len) as usize);
                (buf.get(levels.saturating_add(4)..), *encoding)
            }
            Page::DataPage { buf, encoding, .. } => (Some(&buf[..]), *encoding),
            Page::DataPageV2 { buf, encoding, def_levels_byte_len, rep_levels_byte_len, .. } => {
                let levels = *def_levels_byte_len as usize + *rep_levels_byte_len as usize;
                (buf.get(levels..), *encoding)
            }
            Page::DictionaryPage { .. } => return Ok(()),
        };
        let n_parts = match encoding {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
            Encoding::DELTA_BYTE_ARRAY => 2,
            _ => return Ok(()),
        };
        let mut input = Varints(values.unwrap_or_default());
        for _ in 0..n_parts {
            let before = input.0;
            let n = input.skip_deltas().or_else(|| {
                // What is not whole still says how many there should be.
                let mut input = Varints(before);
                input.unsigned().and(input.unsigned()).and_then(|_| input.unsigned())
            });
            if let Some(n) = n
                && n > u64::from(page.num_values())
            {
                let message = format!("a page of {} values has {n} lengths", page.num_values());
                return Err(ParquetError::General(message));
            }
        }
        Ok(())
    }
}

impl Iterator for Checked {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Checked {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let page = self.pages.get_next_page()?;
        page.iter().try_for_each(|page| self.check(page))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.pages.skip_next_page()
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.pages.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>, ParquetError> {
        self.pages.take_deferred_dictionary()
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        self.pages.at_record_boundary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_far_as_they_matter() {
        // type 2 (a dictionary), 300 bytes, 200 compressed, CRC -1, struct 7 with 70 values.
        let header = [0x15, 4, 0x15, 0xd8, 4, 0x15, 0x90, 3, 0x15, 1, 0x3c, 0x15, 0x8c, 1];
        assert_eq!(Claims::of(&header), Claims { size: 300, compressed: 200, n_values: 70 });
        for cut in 0..header.len() {
            let _ = Claims::of(&header[..cut]);
        }
        assert_eq!(Claims::of(&[0xff; 20]), Claims::default());
    }

    #[test]
    fn claims_that_cannot_be() {
        let page = |bytes: &[u8], size, ratio| {
            Chunk { range: 0..100, size, ratio, max_bytes: 1 << 30 }.check_header(bytes).is_ok()
        };
        let header = [0x15, 4, 0x15, 0xd8, 4, 0x15, 0x90, 3, 0x4c, 0x15, 0x8c, 1];
        assert!(page(&header, 0, None) && page(&header, 0, Some(2)));
        assert!(!page(&header, 0, Some(1)));
        let many = [0x15, 4, 0x15, 0xd8, 4, 0x15, 0x90, 3, 0x4c, 0x15, 0x98, 1];
        assert!(!page(&many, 0, None));
        // 1 GiB, as the footer says, or not.
        let large = [0x15, 0, 0x15, 0x80, 0x80, 0x80, 0x80, 8, 0x15, 0x90, 3];
        assert!(page(&large, 1 << 30, None));
        assert!(!page(&large, 1 << 29, None) && !page(&large, 1 << 30, Some(255)));
        let bomb = Chunk { range: 0..100, size: 1 << 30, ratio: None, max_bytes: 1 << 29 };
        assert_eq!(bomb.check_header(&large).unwrap_err().kind, ErrorKind::TooLarge);
    }

    #[test]
    fn deltas_are_walked() {
        // Blocks of 128 in 4; 35 values from 7 on; one block: widths 1 and 2, for the 34 that follow; then one byte more.
        let mut data = vec![0x80, 1, 4, 35, 14, 0, 1, 2, 0, 0];
        data.extend([0; 4 + 8 + 1]);
        let mut input = Varints(&data);
        assert_eq!(input.skip_deltas(), Some(35));
        assert_eq!(input.0, [0]);
        assert_eq!(Varints(&data[..20]).skip_deltas(), None);
        assert_eq!(Varints(&[0x80, 1, 0, 35, 14]).skip_deltas(), None);
    }
}
