//! Reads bits, most significant first, from a 64-bit reservoir.
//!
//! Reading beyond the bytes gives zeros; the position goes on, by which the caller knows. Source: own.

#[derive(Debug, Clone)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    next: usize,
    /// The next bits, from the top; those after the first `held` are those of the next bytes or zero.
    word: u64,
    held: usize,
}

impl<'a> Bits<'a> {
    #[inline(always)]
    pub(super) fn at(bytes: &'a [u8], at: usize) -> Self {
        let mut bits = Self { bytes, next: at / 8, word: 0, held: 0 };
        bits.refill();
        bits.skip(at % 8);
        bits
    }

    /// Makes at least 56 bits available.
    #[inline(always)]
    pub(super) fn refill(&mut self) {
        let word = match self.bytes.get(self.next..self.next + 8).and_then(|bytes| bytes.first_chunk()) {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => last(self.bytes, self.next),
        };
        // As in `vorbis/reservoir.rs`: the bits after `held` are or-ed again with themselves, and only whole
        // bytes are counted.
        self.word |= word >> self.held;
        self.next += (63 - self.held) >> 3;
        self.held |= 56;
    }

    /// The position, in bits.
    #[inline(always)]
    pub(super) fn position(&self) -> usize {
        8 * self.next - self.held
    }

    /// The next `n` bits, 1 to 32, of those available.
    #[inline(always)]
    pub(super) fn peek(&self, n: usize) -> usize {
        (self.word >> (64 - n)) as usize
    }

    /// The `n` bits behind the next `from`, 1 to 32, of those available.
    #[inline(always)]
    pub(super) fn peek_behind(&self, from: usize, n: usize) -> usize {
        (self.word << from >> (64 - n)) as usize
    }

    /// Skips `n` of the available bits.
    #[inline(always)]
    pub(super) fn skip(&mut self, n: usize) {
        self.word <<= n;
        self.held -= n;
    }

    /// Takes `n <= 32` of the available bits.
    #[inline(always)]
    pub(super) fn take(&mut self, n: usize) -> usize {
        // Two shifts, since `n` may be 0 and one shift by 64 would overflow.
        let value = (self.word >> 1 >> (63 - n)) as usize;
        self.skip(n);
        value
    }

    /// Takes `n <= 32` bits.
    #[inline(always)]
    pub(super) fn read(&mut self, n: usize) -> usize {
        self.refill();
        self.take(n)
    }
}

/// The word that reaches beyond the end. Not a method: a reader with an address would not stay in registers.
#[cold]
#[inline(never)]
fn last(bytes: &[u8], next: usize) -> u64 {
    let rest = bytes.get(next..).unwrap_or_default();
    rest.iter().take(8).enumerate().fold(0, |word, (i, &byte)| word | u64::from(byte) << (56 - 8 * i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_equal_those_of_a_loop() {
        let bytes: Vec<u8> = (0..40u32).map(|i| (i * 151 + 17) as u8).collect();
        let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| usize::from(byte >> (7 - at % 8) & 1));
        for start in 0..17 {
            let mut bits = Bits::at(&bytes, start);
            let mut at = start;
            for n in (0..=32).chain([1, 3, 13, 32, 32]) {
                let expected = (at..at + n).fold(0, |value, i| value << 1 | bit(i));
                assert_eq!((bits.read(n), bits.position()), (expected, at + n));
                at += n;
            }
        }
    }
}
