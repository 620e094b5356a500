//! Index files: what is kept of a file, so that the next process need not read it again.
//!
//! Layout, little-endian: magic number and version of the layout, a checksum of all that follows, the length
//! of a key (u32), the key, the content. The key says what the content was made from: the reader makes its
//! own and compares. A file with another version or key, or a damaged one, is made again.
//!
//! The content of an index of a recording is what [`RangeIndex::to_bytes`](crate::RangeIndex::to_bytes)
//! writes.
//!
//! Source: own.

use std::ops::Range;

use crate::{Error, ErrorKind, Result, checksum::crc32, fallible_alloc};

/// The first bytes of a file; the last one is the version of the layout and of all contents.
const MAGIC: &[u8; 8] = b"fbindex\x04";

/// The bytes of an index file with this key and content.
///
/// # Errors
/// [`ErrorKind::Memory`]; [`ErrorKind::TooLarge`] for a key of 4 GiB.
pub fn seal(key: &[u8], content: &[u8]) -> Result<Vec<u8>> {
    let len = u32::try_from(key.len()).map_err(|_| Error::new(ErrorKind::TooLarge, "a key of 4 GiB"))?;
    let mut bytes = fallible_alloc::with_room(MAGIC.len() + 8 + key.len() + content.len())?;
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(content);
    let check = crc32(u32::MAX, &bytes[MAGIC.len() + 4..]);
    bytes[MAGIC.len()..][..4].copy_from_slice(&check.to_le_bytes());
    Ok(bytes)
}

/// The content of an index file, if it is whole, of this version, and has this key.
pub fn open<'a>(bytes: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let (check, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<4>()?;
    if crc32(u32::MAX, rest) != u32::from_le_bytes(*check) {
        return None;
    }
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (found, content) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    (found == key).then_some(content)
}

#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn word(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn long(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// At most 255 bytes.
    pub(crate) fn name(&mut self, name: &str) {
        self.byte(name.len() as u8);
        self.bytes(name.as_bytes());
    }

    pub(crate) fn range(&mut self, range: &Range<u64>) {
        self.long(range.start);
        self.long(range.end);
    }
}

/// Takes numbers; None where the bytes end.
pub(crate) struct Parser<'a>(&'a [u8]);

impl<'a> From<&'a [u8]> for Parser<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a> Parser<'a> {
    pub(crate) fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.first_chunk().copied()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        self.byte().filter(|&byte| byte < 2).map(|byte| byte == 1)
    }

    pub(crate) fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn long(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn name(&mut self) -> Option<&'a [u8]> {
        let len = self.byte()?;
        self.bytes(len.into())
    }

    pub(crate) fn range(&mut self) -> Option<Range<u64>> {
        let (start, end) = (self.long()?, self.long()?);
        (start <= end).then_some(start..end)
    }

    /// Bytes that are not taken yet.
    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }
}
