//! Encoding of chunks, and of the index of a shard.

use std::io;

use super::layout::{ArrayLayout, ChunkCompression};
use crate::{Error, ErrorKind, Result, fallible_alloc};

/// Offset and length in the index of a missing chunk.
const ABSENT: u64 = u64::MAX;
/// The size of a CRC-32C checksum, in bytes.
pub(super) const CHECK: usize = 4;

/// Appends the values `raw` as an encoded chunk, padded with zeros.
///
/// # Errors
/// [`ErrorKind::Memory`] if the compressor cannot allocate.
pub(crate) fn encode(layout: &ArrayLayout, raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let begin = out.len();
    let missing = layout.chunk_bytes() - raw.len();
    match layout.compression {
        ChunkCompression::None => {
            out.extend_from_slice(raw);
            let len = out.len() + missing;
            fallible_alloc::resize(out, len, 0)?;
        }
        ChunkCompression::Zstd(level) => {
            let mut filled = Vec::new();
            let raw = if missing == 0 {
                raw
            } else {
                filled.extend_from_slice(raw);
                fallible_alloc::resize(&mut filled, layout.chunk_bytes(), 0)?;
                &filled
            };
            let packed = zstd::bulk::compress(raw, level)
                .map_err(|error| Error::new(ErrorKind::Memory, "cannot compress a chunk").because(error))?;
            out.extend_from_slice(&packed);
        }
    }
    let check = crc32c::crc32c(&out[begin..]);
    out.extend_from_slice(&check.to_le_bytes());
    Ok(())
}

/// The values of a chunk: a part of `bytes`, or of `scratch` if they were compressed.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the checksum or the content is wrong.
pub(crate) fn decode<'a>(
    layout: &ArrayLayout,
    bytes: &'a [u8],
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8]> {
    let (packed, check) = checked(bytes)?;
    if crc32c::crc32c(packed) != check {
        return Err(corrupt("the checksum of a chunk is wrong: the file is damaged"));
    }
    let raw = match layout.compression {
        ChunkCompression::None => packed,
        ChunkCompression::Zstd(_) => {
            fallible_alloc::resize(scratch, layout.chunk_bytes(), 0)?;
            let n = unpack(packed, scratch)
                .map_err(|error| corrupt("a chunk cannot be decompressed").because(error))?;
            &scratch[..n]
        }
    };
    if raw.len() == layout.chunk_bytes() {
        return Ok(raw);
    }
    Err(corrupt(&format!("a chunk has {} bytes, expected {}", raw.len(), layout.chunk_bytes())))
}

fn unpack(packed: &[u8], out: &mut [u8]) -> io::Result<usize> {
    thread_local! {
        static UNPACKER: std::cell::RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { std::cell::RefCell::new(None) };
    }
    UNPACKER.with_borrow_mut(|unpacker| {
        let unpacker = match unpacker {
            Some(unpacker) => unpacker,
            None => unpacker.insert(zstd::bulk::Decompressor::new()?),
        };
        unpacker.decompress_to_buffer(packed, out)
    })
}

fn checked(bytes: &[u8]) -> Result<(&[u8], u32)> {
    match bytes.split_last_chunk::<CHECK>() {
        Some((packed, check)) => Ok((packed, u32::from_le_bytes(*check))),
        None => Err(corrupt("a chunk has fewer bytes than its checksum")),
    }
}

#[cfg(any(test, fuzzing))]
pub(super) fn with_check(bytes: &[u8]) -> Vec<u8> {
    [bytes, &crc32c::crc32c(bytes).to_le_bytes()].concat()
}

fn corrupt(message: &str) -> Error {
    Error::new(ErrorKind::Corrupt, message)
}

/// The places of a shard's chunks in its file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChunkIndex {
    /// `chunks` chunks of the same size, without gaps.
    Regular { chunks: u64, size: u64 },
    /// Offset and length of each chunk; both are [`ABSENT`] for a missing one.
    Table(Box<[(u64, u64)]>),
}

impl ChunkIndex {
    /// Bytes of the index of a shard.
    pub(crate) fn size(layout: &ArrayLayout) -> usize {
        layout.chunks() as usize * 16 + CHECK
    }

    /// Appends the index of chunks with these ends.
    pub(crate) fn encode(layout: &ArrayLayout, ends: &[u64], out: &mut Vec<u8>) {
        let begin = out.len();
        let mut start = 0;
        for chunk in 0..layout.chunks() as usize {
            let (offset, length) = match ends.get(chunk) {
                Some(&end) => (start, end - start),
                None => (ABSENT, ABSENT),
            };
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&length.to_le_bytes());
            start = start.wrapping_add(length);
        }
        let check = crc32c::crc32c(&out[begin..]);
        out.extend_from_slice(&check.to_le_bytes());
    }

    /// Decodes the index in `bytes`, of a file with `room` bytes of chunks.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the checksum is wrong, or a chunk lies outside of the file.
    pub(crate) fn decode(bytes: &[u8], room: u64) -> Result<Self> {
        let (entries, check) = checked(bytes)?;
        if crc32c::crc32c(entries) != check {
            return Err(corrupt("the checksum of a shard's index is wrong: the file is damaged"));
        }
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let mut table = fallible_alloc::with_room(entries.len() / 16)?;
        table.extend(entries.chunks_exact(16).map(|entry| (number(&entry[..8]), number(&entry[8..]))));
        let outside = |&(offset, length): &(u64, u64)| {
            (offset, length) != (ABSENT, ABSENT) && offset.checked_add(length).is_none_or(|end| end > room)
        };
        if table.iter().any(outside) {
            return Err(corrupt("a shard's index has a chunk beyond the end of the file"));
        }
        let chunks = table.iter().take_while(|&&(offset, _)| offset != ABSENT).count();
        let size = table.first().map_or(0, |&(_, size)| size);
        let regular = table[..chunks]
            .iter()
            .enumerate()
            .all(|(at, &entry)| entry == ((at as u64).saturating_mul(size), size))
            && table[chunks..].iter().all(|&(offset, _)| offset == ABSENT);
        if regular && chunks > 0 {
            return Ok(Self::Regular { chunks: chunks as u64, size });
        }
        Ok(Self::Table(table.into()))
    }

    /// Offset and length of a chunk, unless it is missing.
    pub(crate) fn get(&self, chunk: u64) -> Option<(u64, u64)> {
        match self {
            &Self::Regular { chunks, size } => (chunk < chunks).then_some((chunk * size, size)),
            Self::Table(table) => table.get(chunk as usize).copied().filter(|&(offset, _)| offset != ABSENT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::DataType;

    fn small(compression: ChunkCompression) -> ArrayLayout {
        ArrayLayout { dtype: DataType::Uint16, columns: None, chunk_rows: 4, shard_rows: 12, compression }
    }

    #[test]
    fn chunks_are_filled_up_and_checked() {
        for compression in [ChunkCompression::None, ChunkCompression::Zstd(1)] {
            let layout = small(compression);
            let mut bytes = Vec::new();
            encode(&layout, &[1, 0, 2, 0], &mut bytes).unwrap();
            assert_eq!(decode(&layout, &bytes, &mut Vec::new()).unwrap(), [1, 0, 2, 0, 0, 0, 0, 0]);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 16;
                let error = decode(&layout, &damaged, &mut Vec::new()).unwrap_err();
                assert_eq!(error.kind, ErrorKind::Corrupt);
            }
            assert!(decode(&layout, &bytes[..3], &mut Vec::new()).is_err());
        }
    }

    #[test]
    fn indices_are_read_as_written() {
        let layout = small(ChunkCompression::None);
        for (ends, regular) in [(&[12, 24][..], true), (&[12, 20], false), (&[], false)] {
            let mut bytes = Vec::new();
            ChunkIndex::encode(&layout, ends, &mut bytes);
            assert_eq!(bytes.len(), ChunkIndex::size(&layout));
            let index = ChunkIndex::decode(&bytes, 24).unwrap();
            assert_eq!(matches!(index, ChunkIndex::Regular { .. }), regular);
            let mut start = 0;
            for chunk in 0..3 {
                let expected = ends.get(chunk).map(|&end| (start, end - start));
                assert_eq!(index.get(chunk as u64), expected);
                start = ends.get(chunk).copied().unwrap_or(0);
            }
            if !ends.is_empty() {
                assert_eq!(ChunkIndex::decode(&bytes, 13).unwrap_err().kind, ErrorKind::Corrupt);
            }
            bytes[3] ^= 1;
            assert_eq!(ChunkIndex::decode(&bytes, 24).unwrap_err().kind, ErrorKind::Corrupt);
        }
    }
}
