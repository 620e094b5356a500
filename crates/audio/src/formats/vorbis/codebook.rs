//! A codebook: its tree of codewords as tables, and its vectors.
//!
//! Input: the lists of a setup header. Output: the entry, or the vector, of the next codeword of a packet. A
//! table of the next [`FAST_BITS`] bits finds the short codewords, which are nearly all of a packet. The
//! longer ones have a second table for those with the same first bits, unless it had more than [`MOST_SLOTS`]
//! slots for each of them: these are found by bisection. So the memory is bounded by the number of entries,
//! whatever lengths a header claims.
//!
//! Refused, as in symphonia: trees that are not complete (except a single codeword of one bit, which then
//! has both values), more than 32 dimensions or 2^17 entries.
//!
//! Source: Vorbis I specification, sections 3.2.1, 3.3, 9.2.2.

use super::{
    reservoir::{End, Reservoir},
    setup::{self, walk_lengths},
};

/// The most bits that the first table is indexed with.
const FAST_BITS: u32 = 10;
/// How many codewords may be read after one refill, which holds 56 bits: a long one refills again.
pub(super) const PER_REFILL: usize = 5;
/// The most dimensions and entries; encoders use at most 16 and 6561.
const MAX_DIMENSIONS: u32 = 32;
const MAX_ENTRIES: u32 = 1 << 17;

/// The most slots of a second table for each of its codewords.
const MOST_SLOTS: usize = 4;

/// A codeword that is longer than the first table's index.
#[derive(Debug, Clone, Copy)]
struct Long {
    /// The codeword, its first bit the most significant, followed by zeros.
    code: u32,
    entry: u32,
    length: u32,
}

/// The codewords with the same first bits.
#[derive(Debug, Clone, Copy)]
struct PrefixGroup {
    /// Where they begin and end in `long`.
    long: [u32; 2],
    /// Where their table begins in `second`, and the number of its bits; 0 without one.
    second: u32,
    bits: u32,
}

/// A codebook that is ready for use.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// For each number of the next bits, the entry times 64 plus the length of its codeword; for those that
    /// longer ones begin with, the index in `groups`, with length 0.
    fast: Box<[u32]>,
    fast_bits: u32,
    groups: Box<[PrefixGroup]>,
    /// The second tables, as `fast`, of the bits after the first ones.
    second: Box<[u32]>,
    long: Box<[Long]>,
    pub dimensions: usize,
    /// The vectors of all entries, one after the other; empty without vectors.
    values: Box<[f32]>,
}

/// Why a read gave no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The packet ended, which is no error.
    End,
    /// A codebook without codewords, or one without vectors where vectors are needed.
    Fault,
}

impl From<End> for Stop {
    fn from(_: End) -> Self {
        Self::End
    }
}

/// The next free codewords, one for each length: of a tree whose leaves are given out from the left, the free
/// parts have different sizes, and they grow from left to right.
struct Free([Option<u32>; 33]);

impl Free {
    fn new() -> Self {
        let mut this = Self([None; 33]);
        this.0[0] = Some(0);
        this
    }

    /// The leftmost free codeword of `length` bits, its first bit the most significant of 32.
    fn take(&mut self, length: u32) -> Option<u32> {
        let length = length as usize;
        // The smallest free part that holds the codeword is the leftmost, since free parts grow to the right.
        let part = (0..=length).rev().find(|&part| self.0[part].is_some())?;
        let code = self.0[part].take()?;
        // On the way down from the part to its leftmost codeword, each right half stays free.
        for (below, free) in self.0.iter_mut().enumerate().take(length + 1).skip(part + 1) {
            *free = Some(code | 1 << (32 - below));
        }
        Some(code)
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

impl Book {
    /// Builds a codebook of `setup`; the text is the reason why it cannot be used.
    pub(super) fn new(setup: &[u8], of: &setup::Codebook) -> Result<Self, &'static str> {
        if of.dimensions > MAX_DIMENSIONS || of.entries > MAX_ENTRIES {
            return Err("a codebook has more than 32 dimensions or 131072 entries");
        }
        let mut codes = Vec::new();
        let (mut free, mut entry, mut is_valid) = (Free::new(), 0, true);
        let cut = "a codebook is cut short";
        walk_lengths(&mut setup::bits(setup, of.lengths_at), of.entries, |length, run| {
            if length > 0 {
                for entry in entry..entry + run {
                    match Some(length).filter(|&length| is_valid && length <= 32) {
                        Some(length) => match free.take(length) {
                            Some(code) => codes.push(Long { code, entry, length }),
                            None => is_valid = false,
                        },
                        None => is_valid = false,
                    }
                }
            }
            entry += run;
        })
        .ok_or(cut)?;
        // A single codeword of one bit: both values of the bit mean its entry.
        if let [Long { entry, length: 1, .. }] = codes[..] {
            codes.push(Long { code: 1 << 31, entry, length: 1 });
            free = Free([None; 33]);
        }
        if !is_valid || !codes.is_empty() && !free.is_empty() {
            return Err("the codewords of a codebook do not form a complete tree");
        }
        let mut this = Self { dimensions: of.dimensions as usize, ..Self::default() };
        this.list(codes);
        if let Some(lookup) = &of.lookup {
            this.values = vectors(setup, of, lookup).ok_or(cut)?;
        }
        Ok(this)
    }

    fn list(&mut self, mut codes: Vec<Long>) {
        let longest = codes.iter().map(|code| code.length).max().unwrap_or(0);
        self.fast_bits = longest.min(FAST_BITS);
        if codes.is_empty() {
            return;
        }
        // bounded: `FAST_BITS`.
        let mut fast = vec![0; 1 << self.fast_bits];
        codes.retain(|&Long { code, entry, length }| {
            if length <= self.fast_bits {
                // The first bit of a packet is the lowest of an index, so the slots of a codeword differ
                // above its bits.
                let (first, step) = (code.reverse_bits() as usize, 1 << length);
                fast[first..].iter_mut().step_by(step).for_each(|slot| *slot = entry << 6 | length);
            }
            length > self.fast_bits
        });
        // For the groups below, and for the bisection in `long_entry`.
        codes.sort_unstable_by_key(|long| long.code);
        // At most as many as codewords, here and below.
        let (mut groups, mut second) = (Vec::new(), Vec::new());
        let shift = 32 - self.fast_bits;
        let mut at = 0;
        for of_group in codes.chunk_by(|one, other| one.code >> shift == other.code >> shift) {
            let longest = of_group.iter().map(|long| long.length).max().unwrap_or(0) - self.fast_bits;
            let mut group = PrefixGroup { long: [at, at + of_group.len() as u32], second: 0, bits: 0 };
            at = group.long[1];
            if 1 << longest <= MOST_SLOTS * of_group.len() {
                (group.second, group.bits) = (second.len() as u32, longest);
                // bounded: `MOST_SLOTS` for each codeword.
                second.resize(second.len() + (1 << longest), 0);
                let table = &mut second[group.second as usize..];
                for &Long { code, entry, length } in of_group {
                    let (first, step) =
                        ((code << self.fast_bits).reverse_bits(), 1 << (length - self.fast_bits));
                    table[first as usize..]
                        .iter_mut()
                        .step_by(step)
                        .for_each(|slot| *slot = entry << 6 | length);
                }
            }
            let first_bits = of_group[0].code.reverse_bits() & ((1 << self.fast_bits) - 1);
            fast[first_bits as usize] = (groups.len() as u32) << 6;
            groups.push(group);
        }
        (self.fast, self.groups, self.second) = (fast.into(), groups.into(), second.into());
        self.long = codes.into();
    }

    /// The approximate bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        let tables = size_of_val(&*self.fast) + size_of_val(&*self.second) + size_of_val(&*self.groups);
        size_of::<Self>() + tables + size_of_val(&*self.long) + size_of_val(&*self.values)
    }

    /// The entry of the next codeword.
    #[inline(always)]
    pub(super) fn entry(&self, bits: &mut Reservoir<'_>) -> Result<u32, Stop> {
        bits.refill();
        self.held_entry(bits)
    }

    /// As [`Book::entry`], without a refill unless the codeword is long.
    #[inline(always)]
    fn held_entry(&self, bits: &mut Reservoir<'_>) -> Result<u32, Stop> {
        let next = bits.peek();
        let mask = (1 << self.fast_bits) - 1;
        let Some(&found) = self.fast.get((next & mask) as usize) else { return Err(Stop::Fault) };
        // Length 0: the bits are the first ones of longer codewords.
        if found & 63 == 0 {
            let (after, entry) = self.long_entry(*bits, found >> 6);
            *bits = after;
            return entry;
        }
        bits.pass(found & 63)?;
        Ok(found >> 6)
    }

    /// As [`Book::entry`], for a codeword of group number `group`.
    #[inline(never)]
    fn long_entry<'a>(&self, mut bits: Reservoir<'a>, group: u32) -> (Reservoir<'a>, Result<u32, Stop>) {
        bits.refill();
        let Some(&PrefixGroup { long: [from, to], second, bits: n }) = self.groups.get(group as usize) else {
            return (bits, Err(Stop::Fault));
        };
        let (entry, length) = if n > 0 {
            let next = (bits.peek() >> self.fast_bits) as usize & ((1 << n) - 1);
            let found = self.second.get(second as usize + next).copied().unwrap_or_default();
            (found >> 6, found & 63)
        } else {
            let code = (bits.peek() as u32).reverse_bits();
            let long = self.long.get(from as usize..to as usize).unwrap_or_default();
            // The tree is complete: the last codeword that is not above the next bits is a prefix of them.
            match long.partition_point(|long| long.code <= code).checked_sub(1) {
                Some(i) => (long[i].entry, long[i].length),
                None => return (bits, Err(Stop::Fault)),
            }
        };
        // The caller reads on without a refill of its own, and relies on `PER_REFILL` short codewords.
        let passed = bits.pass(length);
        bits.refill();
        (bits, passed.map(|()| entry).map_err(Stop::from))
    }

    /// The vector of the next codeword.
    #[inline(always)]
    pub(super) fn vector(&self, bits: &mut Reservoir<'_>) -> Result<&[f32], Stop> {
        let at = self.entry(bits)? as usize * self.dimensions;
        self.values.get(at..at + self.dimensions).ok_or(Stop::Fault)
    }

    /// The vector of the next codeword, of a codebook of `D` dimensions. After [`Reservoir::refill`] it may
    /// be called [`PER_REFILL`] times.
    #[inline(always)]
    pub(crate) fn vector_of<const D: usize>(&self, bits: &mut Reservoir<'_>) -> Result<&[f32; D], Stop> {
        let at = self.held_entry(bits)? as usize * D;
        self.values.get(at..).and_then(<[f32]>::first_chunk).ok_or(Stop::Fault)
    }
}

fn vectors(setup: &[u8], of: &setup::Codebook, lookup: &setup::Lookup) -> Option<Box<[f32]>> {
    let mut bits = setup::bits(setup, lookup.values_at);
    let (minimum, delta) = (unpack(lookup.minimum), unpack(lookup.delta));
    let numbers: Vec<f32> = (0..lookup.n_values)
        .map(|_| bits.read(lookup.value_bits).map(|number| number as f32))
        .collect::<Option<_>>()?;
    // bounded: `Setup::parse` limits the values of all codebooks.
    let mut values = Vec::with_capacity((of.entries * of.dimensions) as usize);
    for entry in 0..of.entries {
        let (mut rest, mut last) = (entry, 0.0);
        for dimension in 0..of.dimensions {
            let number = match lookup.lattice {
                Some(n) => {
                    // Lookup type 1: the digits of the entry in base `n`, lowest first, choose the numbers.
                    let digit = rest % n;
                    rest /= n;
                    digit
                }
                // Lookup type 2: each value of each entry has a number.
                None => entry * of.dimensions + dimension,
            };
            // In the specification's order: a sum of float32 depends on it.
            let value = numbers[number as usize] * delta + minimum + last;
            if lookup.is_sequence {
                last = value;
            }
            values.push(value);
        }
    }
    Some(values.into())
}

/// A float of 32 bits in the format of section 9.2.2.
fn unpack(packed: u32) -> f32 {
    let mantissa = f64::from(packed & 0x1f_ffff);
    let exponent = (packed >> 21 & 0x3ff) as i32 - 788;
    let value = libm::ldexp(mantissa, exponent) as f32;
    if packed >> 31 == 1 { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codewords are found by the tables as by a search through all of them.
    #[test]
    fn tables_find_every_codeword() {
        // Complete trees: a full one, a comb of 32 bits, and mixed ones, in several orders.
        let comb: Vec<u32> = (1..=32).chain([32]).collect();
        let mut deep: Vec<u32> = vec![12; 1 << 11];
        deep.extend([3, 3, 3, 5, 5, 5, 5]);
        let mut reversed = comb.clone();
        reversed.reverse();
        for lengths in [vec![4; 16], vec![1, 1], comb, reversed, deep, vec![2, 4, 4, 4, 4, 2, 3, 3]] {
            let mut free = Free::new();
            let codes: Vec<Long> = (0..)
                .zip(&lengths)
                .map(|(entry, &length)| Long { code: free.take(length).unwrap(), entry, length })
                .collect();
            assert!(free.is_empty() && free.take(32).is_none());
            let mut book = Book::default();
            book.list(codes.clone());
            for &Long { code, entry, length } in &codes {
                for tail in [0, u32::MAX, 0x5555_5555] {
                    let word = code.reverse_bits() | tail.checked_shl(length).unwrap_or(0);
                    let bytes = word.to_le_bytes();
                    let mut bits = Reservoir::new(&bytes);
                    assert_eq!(book.entry(&mut bits), Ok(entry), "{length} bits");
                    let rest = 32 - length;
                    assert_eq!(
                        bits.read(rest).map(|rest| rest << (length % 32)),
                        Ok(if rest == 0 { 0 } else { word >> length << length })
                    );
                    // Cut short, the packet ends.
                    let cut = &bytes[..(length as usize - 1) / 8];
                    assert_eq!(book.entry(&mut Reservoir::new(cut)), Err(Stop::End), "{length}");
                }
            }
        }
    }

    /// The codewords of the example in section 3.2.1.
    #[test]
    fn codewords_are_those_of_the_specification() {
        let mut free = Free::new();
        let codes = [2, 4, 4, 4, 4, 2, 3, 3].map(|length| free.take(length).unwrap() >> (32 - length));
        assert_eq!(codes, [0, 0b0100, 0b0101, 0b0110, 0b0111, 0b10, 0b110, 0b111]);
    }

    #[test]
    fn floats_are_unpacked() {
        // 1 = 2^20 * 2^-20, the exponent of which is stored as 768.
        assert_eq!(unpack(768 << 21 | 1 << 20), 1.0);
        assert_eq!(unpack(1 << 31 | 788 << 21 | 5), -5.0);
    }
}
