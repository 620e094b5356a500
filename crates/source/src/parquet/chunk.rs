//! One column chunk, and the check of its page headers.

use std::ops::Range;

use ::parquet::{
    basic::{Compression, Type},
    file::metadata::ColumnChunkMetaData,
};

use super::thrift::{PageClaims, Wrong, page_claims};
use crate::{Error, ErrorKind, Result, fallible_alloc};

/// Pages may have up to this size, bytes, whatever the footer claims.
const USUAL_PAGE: u64 = 8 << 20;
/// The size of a decompressed page that is always allowed, as a multiple of its compressed size.
pub(super) const USUAL_RATIO: u64 = 64;
/// The fewest bytes that a value of a dictionary takes, unless values have a shorter fixed length: an int32,
/// or the length of a string.
const SMALLEST_VALUE: u64 = 4;

/// The byte range of a column chunk, and the limits of its pages.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub range: Range<u64>,
    /// The decompressed size of the chunk by the footer, bytes.
    pub size: u64,
    /// The codec's highest ratio of decompression; None if it has no bound.
    pub ratio: Option<u64>,
    /// The most bytes of a decompressed page; 64 times its compressed size are always allowed.
    pub max_bytes: u64,
    /// Whether each value is a row.
    pub is_flat: bool,
    /// The fewest bytes that a value of its dictionary takes.
    pub smallest_value: u64,
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
        let is_flat = column.column_descr().max_rep_level() == 0;
        let smallest_value = match column.column_descr().physical_type() {
            Type::FIXED_LEN_BYTE_ARRAY => {
                u64::try_from(column.column_descr().type_length()).unwrap_or(1).clamp(1, SMALLEST_VALUE)
            }
            _ => SMALLEST_VALUE,
        };
        Self {
            range,
            size: column.uncompressed_size().max(0) as u64,
            ratio,
            max_bytes,
            is_flat,
            smallest_value,
        }
    }

    /// Checks the page header at the start of `bytes`; false if they end within it.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for an invalid header or an impossible claim, [`ErrorKind::TooLarge`] for one
    /// beyond the limit.
    pub(super) fn check_header(&self, bytes: &[u8]) -> Result<bool> {
        let PageClaims { size, compressed, n_values, values_and_rows } = match page_claims(bytes) {
            Ok(claims) => claims,
            Err(Wrong::Short) => return Ok(false),
            Err(Wrong::Not(what)) => {
                let message = format!("the header of a page cannot be read: {what}");
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
        };
        if let Some([values, rows]) = values_and_rows
            && (rows > values || self.is_flat && rows != values)
        {
            let message = format!("a page of {values} values claims to have {rows} rows");
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let by_bytes =
            self.ratio.map_or(u64::MAX, |ratio| compressed.saturating_mul(ratio).saturating_add(64));
        let most = by_bytes.min(self.size.max(USUAL_PAGE));
        if size > most {
            let message = format!(
                "a page of {compressed} bytes claims to have {size} when decompressed; at most {most} are possible"
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
        if size > USUAL_PAGE {
            // The decoder would abort the process if this allocation failed.
            fallible_alloc::zero_bytes(size as usize)?;
        }
        let held = size.max(compressed) / self.smallest_value;
        if n_values > held {
            let message =
                format!("a dictionary claims to have {n_values} values; its page can hold at most {held}");
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        Ok(true)
    }
}

/// Checks any bytes as a header, for fuzzing.
#[cfg(any(test, fuzzing))]
pub(super) fn look_at(bytes: &[u8]) {
    let chunk = Chunk {
        range: 0..100,
        size: 1 << 30,
        ratio: Some(1),
        max_bytes: 1 << 20,
        is_flat: true,
        smallest_value: 4,
    };
    if let (Ok(true), Ok(PageClaims { size, compressed, .. })) =
        (chunk.check_header(bytes), page_claims(bytes))
    {
        assert!(size <= (1 << 20).max(compressed.saturating_mul(USUAL_RATIO)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_that_cannot_be() {
        let page = |bytes: &[u8], size, ratio| {
            Chunk { range: 0..100, size, ratio, max_bytes: 1 << 30, is_flat: true, smallest_value: 4 }
                .check_header(bytes)
                .is_ok_and(|whole| whole)
        };
        let header = [0x15, 4, 0x15, 0xd8, 4, 0x15, 0x90, 3, 0x4c, 0x15, 0x8c, 1, 0, 0];
        assert!(page(&header, 0, None) && page(&header, 0, Some(2)));
        assert!(!page(&header, 0, Some(1)));
        let many = [0x15, 4, 0x15, 0xd8, 4, 0x15, 0x90, 3, 0x4c, 0x15, 0x98, 1, 0, 0];
        assert!(!page(&many, 0, None));
        // 1 GiB; only the first footer allows it.
        let large = [0x15, 0, 0x15, 0x80, 0x80, 0x80, 0x80, 8, 0x15, 0x90, 3, 0];
        assert!(page(&large, 1 << 30, None));
        assert!(!page(&large, 1 << 29, None) && !page(&large, 1 << 30, Some(255)));
        let bomb = Chunk {
            range: 0..100,
            size: 1 << 30,
            ratio: None,
            max_bytes: 1 << 29,
            is_flat: true,
            smallest_value: 4,
        };
        assert_eq!(bomb.check_header(&large).unwrap_err().kind, ErrorKind::TooLarge);
    }
}
