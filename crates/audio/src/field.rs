//! Reads integers at byte offsets of a header; a field past the end is `None`, never a panic.
//!
//! Source: own.

/// The order of the bytes in a container's integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endian {
    Little,
    Big,
}

pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize, endian: Endian) -> Option<u16> {
    array_at(bytes, at).map(match endian {
        Endian::Little => u16::from_le_bytes,
        Endian::Big => u16::from_be_bytes,
    })
}

pub(crate) fn u32_at(bytes: &[u8], at: usize, endian: Endian) -> Option<u32> {
    array_at(bytes, at).map(match endian {
        Endian::Little => u32::from_le_bytes,
        Endian::Big => u32::from_be_bytes,
    })
}

pub(crate) fn u64_at(bytes: &[u8], at: usize, endian: Endian) -> Option<u64> {
    array_at(bytes, at).map(match endian {
        Endian::Little => u64::from_le_bytes,
        Endian::Big => u64::from_be_bytes,
    })
}
