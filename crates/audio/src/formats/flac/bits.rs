//! Reads the bits of a FLAC frame, the highest of each byte first: numbers, unary codes, Rice codes.
//!
//! Input: the bytes of a frame. Output: numbers. A reservoir of 64 bits is filled up by one unaligned load
//! and without a branch. After that at least 56 bits are certain, so four Rice codes of usual length need one
//! load. Past the end of the bytes all bits are zeros; [`Bits::end`] then reports it.
//!
//! Invariant: the bits of the reservoir after the certain ones are those of the bytes or zeros, so loading
//! them again changes nothing.
//!
//! Source: RFC 9639, sections 5 (integers), 9.2.7 (residuals), 9.2.7.1 (zigzag); the refill is own.

/// The largest Rice parameter of which any code that is certain fits in 32 bits.
pub(super) const MAX_FOLDED: u32 = 26;

/// A position in the bits of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// The next bits, the first one highest.
    word: u64,
    /// How many of them are certain: at most 63.
    n: u32,
    /// The byte that follows the certain bits; the first one of which some bits are not certain.
    at: usize,
}

impl<'a> Bits<'a> {
    /// The bits from byte `at` on.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, word: 0, n: 0, at }
    }

    /// Makes at least 56 bits certain.
    #[inline(always)]
    fn refill(&mut self) {
        let bytes = match self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => *bytes,
            None => self.last(),
        };
        // The shifts wrap only if a speculative read went too far, whose result is discarded.
        self.word |= u64::from_be_bytes(bytes).wrapping_shr(self.n);
        self.at = self.at.wrapping_add((63u32.wrapping_sub(self.n) >> 3) as usize);
        self.n |= 56;
    }

    /// Fewer than eight bytes at the end, and zeros.
    // By value, as other cold paths: a reader whose address is passed on lies in memory.
    #[cold]
    fn last(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        bytes
    }

    #[inline(always)]
    fn skip(&mut self, n: u32) {
        self.word <<= n;
        self.n -= n;
    }

    /// A number of at most 56 bits.
    #[inline(always)]
    pub(super) fn unsigned(&mut self, n: u32) -> u64 {
        self.refill();
        // Two shifts, since `n` may be 0 and one shift by 64 would overflow.
        let value = self.word >> 1 >> (63 - n);
        self.skip(n);
        value
    }

    /// A number of at most 56 bits in two's complement; 0 without bits.
    #[inline(always)]
    pub(super) fn signed(&mut self, n: u32) -> i64 {
        let value = self.unsigned(n);
        // Without bits, the shift by 63 leaves the 0.
        (value << (63 - n) << 1) as i64 >> 1 >> (63 - n)
    }

    /// The number of zeros up to the next one; None if the bytes end before it.
    #[inline(never)]
    pub(super) fn unary(&mut self) -> Option<u64> {
        let mut zeros = 0;
        loop {
            self.refill();
            let n = self.word.leading_zeros();
            if n < self.n {
                self.skip(n + 1);
                return Some(zeros + u64::from(n));
            }
            zeros += u64::from(self.n);
            self.skip(self.n);
            // Behind the bytes there are only zeros, in which no code ends.
            if self.at > self.bytes.len() + 8 {
                return None;
            }
        }
    }

    /// One Rice code of parameter `k`, at most 30, whose code may have any length.
    pub(super) fn rice(&mut self, k: u32) -> Option<i64> {
        let high = self.unary()?;
        Some(unfolded(high << k | self.unsigned(k)))
    }

    /// One Rice code, if the certain bits hold it. `bad` becomes negative if they do not.
    #[inline(always)]
    fn code(&mut self, k: u32, bad: &mut i32) -> i64 {
        // 64 without a one: then `n` wraps, and `bad` tells.
        let zeros = self.word.leading_zeros();
        // With the one on top of the low bits, one shift moves both: `2^k + low`.
        let word = self.word.wrapping_shl(zeros);
        let high = u64::from(zeros).wrapping_sub(1) << k;
        let value = high.wrapping_add(word >> (63 - k));
        self.word = word << (k + 1);
        self.n = self.n.wrapping_sub(zeros + k + 1);
        // A code of more than the certain bits makes `n` wrap: the highest bit is collected without a branch.
        *bad |= self.n as i32;
        unfolded(value)
    }

    /// Four Rice codes of parameter `k`, at most 30.
    #[inline(always)]
    pub(super) fn rice_4(&mut self, k: u32) -> Option<[i64; 4]> {
        let before = *self;
        let mut bad = 0;
        self.refill();
        let a = self.code(k, &mut bad);
        // 56 bits are shared by four codes up to `k` of 9, by two up to 20, and are for one above: 5 bits or
        // more for the unary part of each. Longer codes are read again, one by one.
        // The branches on `k` are the same for a whole partition.
        if k > 20 {
            self.refill();
        }
        let b = self.code(k, &mut bad);
        if k > 9 {
            self.refill();
        }
        let c = self.code(k, &mut bad);
        if k > 20 {
            self.refill();
        }
        let d = self.code(k, &mut bad);
        if bad < 0 {
            *self = before;
            return self.long_rice_4(k);
        }
        Some([a, b, c, d])
    }

    #[cold]
    fn long_rice_4(&mut self, k: u32) -> Option<[i64; 4]> {
        Some([self.rice(k)?, self.rice(k)?, self.rice(k)?, self.rice(k)?])
    }

    /// One Rice code of parameter `k`, at most [`MAX_FOLDED`], still folded. None also for more than 32 bits.
    pub(super) fn folded(&mut self, k: u32) -> Option<u32> {
        let high = self.unary()?;
        u32::try_from(high << k | self.unsigned(k)).ok().filter(|_| high >> 32 == 0)
    }

    /// A folded Rice code, if the certain bits hold it. Adds its length less `k + 1` to `zeros`.
    #[inline(always)]
    fn folded_code(&mut self, k: u32, zeros: &mut u32) -> u32 {
        let n = self.word.leading_zeros();
        *zeros += n;
        let word = self.word.wrapping_shl(n);
        self.word = word << (k + 1);
        // As in `code`. The sum fits: `n` is at most 63 - `k`, else the code is not certain.
        (n.wrapping_sub(1) << k).wrapping_add((word >> (63 - k)) as u32)
    }

    /// Four folded Rice codes of parameter `k`: with one refill at most 9, with two 20, with four
    /// [`MAX_FOLDED`]. None as of [`Self::folded`].
    #[inline(always)]
    pub(super) fn folded_4<const REFILLS: u32>(&mut self, k: u32) -> Option<[u32; 4]> {
        let before = *self;
        let (mut bad, mut zeros) = (0, 0);
        self.refill();
        let a = self.folded_code(k, &mut zeros);
        if REFILLS == 4 {
            self.count(zeros + k + 1, &mut bad);
            zeros = 0;
            self.refill();
        }
        let b = self.folded_code(k, &mut zeros);
        if REFILLS > 1 {
            self.count(zeros + (k + 1) * (4 / REFILLS), &mut bad);
            zeros = 0;
            self.refill();
        }
        let c = self.folded_code(k, &mut zeros);
        if REFILLS == 4 {
            self.count(zeros + k + 1, &mut bad);
            zeros = 0;
            self.refill();
        }
        let d = self.folded_code(k, &mut zeros);
        self.count(zeros + (k + 1) * (4 / REFILLS), &mut bad);
        if bad < 0 {
            let (after, values) = before.long_folded_4(k)?;
            *self = after;
            return Some(values);
        }
        Some([a, b, c, d])
    }

    /// Counts bits that were shifted out. `bad` becomes negative if they were not certain.
    #[inline(always)]
    fn count(&mut self, n: u32, bad: &mut i32) {
        self.n = self.n.wrapping_sub(n);
        *bad |= self.n as i32;
    }

    #[cold]
    #[inline(never)]
    fn long_folded_4(mut self, k: u32) -> Option<(Self, [u32; 4])> {
        let values = [self.folded(k)?, self.folded(k)?, self.folded(k)?, self.folded(k)?];
        Some((self, values))
    }

    /// The number of bytes read, the last one whole; None if there are not as many.
    pub(super) fn end(&self) -> Option<usize> {
        let end = (8 * self.at - self.n as usize).div_ceil(8);
        (end <= self.bytes.len()).then_some(end)
    }
}

/// The folded number of a signed one.
#[inline(always)]
pub(super) fn folded(value: i32) -> i32 {
    value << 1 ^ value >> 31
}

/// The signed number of a folded one: 0, -1, 1, -2, 2...
#[inline(always)]
fn unfolded(folded: u64) -> i64 {
    (folded >> 1) as i64 ^ -((folded & 1) as i64)
}
