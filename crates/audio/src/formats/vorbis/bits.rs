//! Reads the bits of headers. Those of audio packets, which are many, come from
//! [`reservoir`](super::reservoir).
//!
//! Source: Vorbis I specification, section 2.

/// Reads bits, least significant first (section 2).
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// The number of the next bit.
    pub at: u64,
}

impl<'a> Bits<'a> {
    /// The bits from bit `at` on.
    pub(super) fn new(bytes: &'a [u8], at: u64) -> Self {
        Self { bytes, at }
    }

    /// The next `n <= 32` bits; None past the end.
    pub(super) fn read(&mut self, n: u32) -> Option<u32> {
        let begin = (self.at / 8) as usize;
        let rest = self.bytes.get(begin..)?;
        let word = match rest.first_chunk::<8>() {
            Some(&chunk) => u64::from_le_bytes(chunk),
            None => {
                let mut chunk = [0; 8];
                chunk[..rest.len()].copy_from_slice(rest);
                u64::from_le_bytes(chunk)
            }
        };
        let value = (word >> (self.at % 8)) & ((1 << n) - 1);
        self.skip(u64::from(n))?;
        Some(value as u32)
    }

    /// Passes over `n` bits; None past the end.
    pub(super) fn skip(&mut self, n: u64) -> Option<()> {
        self.at = self.at.checked_add(n).filter(|&at| at <= 8 * self.bytes.len() as u64)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_least_significant_first() {
        let mut bits = Bits::new(&[0b1010_0110, 0xff], 0);
        assert_eq!((bits.read(3), bits.read(5), bits.read(8)), (Some(0b110), Some(0b10100), Some(0xff)));
        assert_eq!((bits.read(0), bits.read(1)), (Some(0), None));
    }
}
