//! The bits of an audio packet, least significant first.
//!
//! Input: the bytes of a packet. Output: fields, and the next bits for codebooks. Up to 64 bits are held in a
//! register and refilled from eight bytes at once, without a branch on their number. Invariant: after a read
//! beyond the packet's end, all reads fail, as the specification demands: the end of a packet is no error,
//! but a state in which truncated packets are decoded as far as they go.
//!
//! Source: Vorbis I specification, section 2; the refill is the well-known one that counts whole bytes and
//! keeps bits above the count (F. Giesen, "Reading bits in far too many ways", variant 4).

/// The end of the packet was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End;

#[derive(Debug, Clone, Copy)]
pub(super) struct Reservoir<'a> {
    bytes: &'a [u8],
    /// The next byte that is not counted in `held`.
    next: usize,
    /// The next bits; those above `held` are those of `bytes[next..]`, or zero.
    bits: u64,
    /// How many of `bits` are valid.
    held: u32,
}

impl<'a> Reservoir<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, next: 0, bits: 0, held: 0 }
    }

    /// Makes at least 56 bits valid, or all that are left.
    #[inline(always)]
    pub(super) fn refill(&mut self) {
        match self.bytes.get(self.next..).and_then(<[u8]>::first_chunk::<8>) {
            Some(chunk) => {
                // Bits above `held` are zero, or bits of the same bytes, so or-ing them again changes
                // nothing. `held` is at most 63: the mask only spares the check of the shift.
                self.bits |= u64::from_le_bytes(*chunk) << (self.held & 63);
                // As many whole bytes as fit: `held` becomes 56 plus its lowest three bits.
                self.next += ((63 - self.held) >> 3) as usize;
                self.held |= 56;
            }
            None => *self = self.with_last_bytes(),
        }
    }

    /// As [`Reservoir::refill`], of the last bytes. By value, here and wherever a loop over codewords calls a
    /// function: a reservoir with an address would not stay in registers.
    #[inline(never)]
    fn with_last_bytes(mut self) -> Self {
        while self.held < 56
            && let Some(&byte) = self.bytes.get(self.next)
        {
            self.bits |= u64::from(byte) << self.held;
            self.next += 1;
            self.held += 8;
        }
        self
    }

    /// The next bits, at least 56 of them after [`Reservoir::refill`]; zeros beyond the end.
    #[inline(always)]
    pub(super) fn peek(&self) -> u64 {
        self.bits
    }

    /// Passes `n < 57` bits, of which [`Reservoir::refill`] was called before.
    #[inline(always)]
    pub(super) fn pass(&mut self, n: u32) -> Result<(), End> {
        if n > self.held {
            // All reads from here on fail.
            *self = Self::new(&[]);
            return Err(End);
        }
        self.bits >>= n;
        self.held -= n;
        Ok(())
    }

    /// The next `n <= 32` bits.
    #[inline(always)]
    pub(super) fn read(&mut self, n: u32) -> Result<u32, End> {
        self.refill();
        let value = self.bits & ((1 << n) - 1);
        self.pass(n)?;
        Ok(value as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of all widths are those of a plain reader of single bits, up to the end and beyond.
    #[test]
    fn fields_are_those_of_single_bits() {
        let bytes: Vec<u8> = (0..61u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for len in 0..bytes.len() {
            for first in 0..=32 {
                let (mut reader, mut at, mut width) = (Reservoir::new(&bytes[..len]), 0, first);
                loop {
                    let plain = (0..width).try_fold(0, |sum, bit| {
                        let byte = bytes[..len].get((at + bit) as usize / 8)?;
                        Some(sum | u32::from(byte >> ((at + bit) % 8) & 1) << bit)
                    });
                    assert_eq!(reader.read(width).ok(), plain, "{len} bytes, {width} bits at {at}");
                    at += width;
                    width = (width * 7 + 5) % 33;
                    if plain.is_none() {
                        break;
                    }
                }
                assert_eq!((reader.read(1), reader.peek()), (Err(End), 0));
            }
        }
    }
}
