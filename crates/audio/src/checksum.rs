//! Checksums of FLAC frames and Ogg pages, by products without carry where the CPU has them.
//!
//! Source: RFC 9639, section 9.3; RFC 3533, section 6.

use crc_fast::{
    CrcAlgorithm::{self, Crc16Umts, Crc32Mpeg2},
    Digest,
};

/// CRC-16 of a FLAC frame, continued from `crc`; 0 over a whole frame with its own CRC-16.
pub(crate) fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    continued(Crc16Umts, crc.into(), bytes) as u16
}

/// CRC-32 of Ogg, continued from `crc`.
pub(crate) fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    continued(Crc32Mpeg2, crc.into(), bytes) as u32
}

/// The algorithms have the highest bit first, and no exclusive or at the end: the sum is the state.
fn continued(algorithm: CrcAlgorithm, state: u64, bytes: &[u8]) -> u64 {
    let mut digest = Digest::new_with_init_state(algorithm, state);
    digest.update(bytes);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of `width` bits, bit by bit.
    fn plain(width: u32, polynomial: u64, mut crc: u64, bytes: &[u8]) -> u64 {
        for &byte in bytes {
            crc ^= u64::from(byte) << (width - 8);
            for _ in 0..8 {
                let is_set = crc >> (width - 1) & 1 == 1;
                crc = (crc << 1 ^ if is_set { polynomial } else { 0 }) & ((1 << width) - 1);
            }
        }
        crc
    }

    #[test]
    fn sums_are_those_bit_by_bit() {
        let bytes: Vec<u8> = (0..3000_u32).map(|i| (i * i * 7 + (i >> 5)) as u8).collect();
        for from in 0..3 {
            for n in (0..300).chain((300..2990).step_by(37)) {
                let bytes = &bytes[from..from + n];
                for start in [0, 1, 0x8005, 0xffff] {
                    assert_eq!(u64::from(crc16(start, bytes)), plain(16, 0x8005, start.into(), bytes));
                }
                for start in [0, 7, u32::MAX] {
                    assert_eq!(u64::from(crc32(start, bytes)), plain(32, 0x04c1_1db7, start.into(), bytes));
                }
                let (one, other) = bytes.split_at(n / 3);
                assert_eq!(crc16(crc16(9, one), other), crc16(9, bytes));
                assert_eq!(crc32(crc32(9, one), other), crc32(9, bytes));
            }
        }
    }
}
