//! Decodes the lines of a granule: pairs with up to three tables, then quadruples, then zeros.
//!
//! One look-up of ten bits gives both values with their signs where code and signs are that short, which most
//! are. Else it gives the values without signs, or the place of a second table for the rest of a longer code.
//!
//! Input: the bits of a granule. Output: `sign(n) |n|^(4/3)` of each line. Source: ISO/IEC 11172-3 section
//! 2.4.3.4.6 and table B.7.

use super::{
    bits::Bits,
    codes::*,
    side::{Channel, LINES},
};

/// Bits of the first look-up.
const FIRST: usize = 10;
/// The largest value: 15 and 13 more bits.
const LARGEST: usize = 15 + (1 << 13);

// An entry holds a length in its lowest byte, and the two values in the next bytes. The upper bits are its
// kind.
/// Both values with their signs, plus 16; the length includes the signs.
const SIGNED: u32 = 0;
/// Both values without signs.
const UNSIGNED: u32 = 1 << 30;
/// The offset of a second table from bit 8 on; the length is that of its index.
const LINK: u32 = 2 << 30;

struct Pairs {
    first: Box<[u32; 1 << FIRST]>,
    second: Vec<u32>,
}

pub(super) struct Huffman {
    pairs: Vec<Pairs>,
    /// For each table that a granule may select: that of `pairs`, and bits that may follow. None: only zeros.
    selected: [Option<(usize, usize)>; 32],
    /// For the next ten bits: length of the code with signs, and index in `quad_values`.
    quads: [[(u8, u8); 1 << FIRST]; 2],
    /// Quadruples by index: a digit -1, 0 or 1 for each value.
    quad_values: [[f32; 4]; 81],
    /// `n^(4/3)`.
    powers: Vec<f32>,
    /// The same for -16 to 15, with sign.
    signed: [f32; 32],
}

impl Pairs {
    fn new(codes: &[u32], has_linbits: bool) -> Self {
        let side = codes.len().isqrt();
        let mut first = Box::new([0; 1 << FIRST]);
        let mut second = Vec::new();
        // Codes by their first bits, so that those of a second table are together.
        let mut links = [0usize; 1 << FIRST];
        for code in codes {
            let (len, bits) = ((code >> 12) as usize, (code & 0xfff) as usize);
            // The longest code with a prefix sets the size of its second table.
            if len > FIRST {
                let link = &mut links[bits >> (len - FIRST)];
                *link = (*link).max(len - FIRST);
            }
        }
        for (prefix, &more) in links.iter().enumerate().filter(|(_, more)| **more > 0) {
            first[prefix] = LINK | (second.len() as u32) << 8 | more as u32;
            // bounded: codes have at most 19 bits; the tables are those of the standard.
            second.resize(second.len() + (1 << more), 0);
        }
        for (i, code) in codes.iter().enumerate() {
            let (len, bits) = ((code >> 12) as usize, (code & 0xfff) as usize);
            let (x, y) = (i / side, i % side);
            let unsigned = UNSIGNED | len as u32 | (x as u32) << 8 | (y as u32) << 16;
            if len > FIRST {
                let link = first[bits >> (len - FIRST)];
                let (offset, more) = ((link & !LINK) as usize >> 8, (link & 0xff) as usize);
                let free = more - (len - FIRST);
                let from = offset + ((bits << free) & ((1 << more) - 1));
                second[from..from + (1 << free)].fill(unsigned);
                continue;
            }
            let free = FIRST - len;
            for rest in 0..1 << free {
                let signs = usize::from(x > 0) + usize::from(y > 0);
                // Signs that do not fit, and values with more bits, are left to `read_long`.
                first[bits << free | rest] = if signs > free || has_linbits && (x == 15 || y == 15) {
                    unsigned
                } else {
                    let is_minus = |i: usize| rest >> (free - 1 - i) & 1 == 1;
                    let signed = |value: usize, is_minus: bool| {
                        if value > 0 && is_minus { 16 - value as u32 } else { 16 + value as u32 }
                    };
                    let x_minus = x > 0 && is_minus(0);
                    let y_minus = y > 0 && is_minus(usize::from(x > 0));
                    SIGNED | (len + signs) as u32 | signed(x, x_minus) << 8 | signed(y, y_minus) << 16
                };
            }
        }
        Self { first, second }
    }
}

impl Huffman {
    pub(super) fn new() -> Self {
        let books: [&[u32]; 15] = [
            &PAIRS_1, &PAIRS_2, &PAIRS_3, &PAIRS_5, &PAIRS_6, &PAIRS_7, &PAIRS_8, &PAIRS_9, &PAIRS_10,
            &PAIRS_11, &PAIRS_12, &PAIRS_13, &PAIRS_15, &PAIRS_16, &PAIRS_24,
        ];
        let selected = std::array::from_fn(|table| match table {
            // Table 0 codes zeros in no bits. Tables 4 and 14 do not exist, so the numbers behind them are
            // lower in `pairs`.
            0 | 4 | 14 => None,
            1..4 => Some((table - 1, 0)),
            5..14 => Some((table - 2, 0)),
            15 => Some((12, 0)),
            // Tables 16 to 23 share the codes of 16, and tables 24 to 31 those of 24, with other
            // `linbits`.
            16..24 => Some((13, usize::from(LINBITS[table - 16]))),
            _ => Some((14, usize::from(LINBITS[table - 16]))),
        });
        let powers: Vec<f32> = (0..=LARGEST).map(|n| (n as f64 * libm::cbrt(n as f64)) as f32).collect();
        // Table B of quadruples: codes of four bits, the inverted values.
        let quads_b = std::array::from_fn(|i| 4 << 12 | (15 - i as u32));
        Self {
            pairs: books.into_iter().enumerate().map(|(i, codes)| Pairs::new(codes, i > 12)).collect(),
            selected,
            quads: [QUADS_A, quads_b].map(|codes| quads(&codes)),
            quad_values: std::array::from_fn(|i| {
                [i / 27, i / 9 % 3, i / 3 % 3, i % 3].map(|n| n as f32 - 1.0)
            }),
            signed: std::array::from_fn(|i| if i < 16 { -powers[16 - i] } else { powers[i - 16] }),
            powers,
        }
    }

    /// Reads the lines of `channel` into `lines` from `bits`, of which those up to the position `end` are its
    /// own; returns the number of lines that may not be zero.
    ///
    /// The last pair may use bits after `end`, as encoders have written it; the last quadruple may not.
    pub(super) fn read(
        &self,
        bits: &mut Bits<'_>,
        channel: &Channel,
        end: usize,
        lines: &mut [f32; LINES],
    ) -> usize {
        let n_paired = 2 * channel.n_pairs;
        let mut n = 0;
        for (region, table) in channel.regions.into_iter().zip(channel.tables) {
            let region = region.min(n_paired);
            if n >= region {
                continue;
            }
            match self.selected[table] {
                None => {
                    lines[n..region].fill(0.0);
                    n = region;
                }
                Some((pairs, linbits)) => {
                    n += self.read_pairs(bits, &self.pairs[pairs], linbits, end, &mut lines[n..region]);
                }
            }
        }
        let quads = &self.quads[channel.quads];
        while n <= LINES - 4 && bits.position() < end {
            bits.refill();
            let (len, values) = quads[bits.peek(FIRST)];
            bits.skip(len.into());
            lines[n..n + 4].copy_from_slice(&self.quad_values[usize::from(values)]);
            n += 4;
        }
        // The last quadruple took bits of the next granule: what was left before `end` was stuffing.
        if bits.position() > end && n > n_paired {
            n -= 4;
        }
        lines[n..].fill(0.0);
        n
    }

    /// Reads pairs until `lines` is full or the position is `end`; returns the number of lines.
    #[inline(always)]
    fn read_pairs(
        &self,
        bits: &mut Bits<'_>,
        pairs: &Pairs,
        linbits: usize,
        end: usize,
        lines: &mut [f32],
    ) -> usize {
        // A local copy: the compiler keeps its fields in registers.
        let mut it = bits.clone();
        let mut n = 0;
        for pair in lines.as_chunks_mut::<2>().0 {
            if it.position() >= end {
                break;
            }
            it.refill();
            let entry = pairs.first[it.peek(FIRST)];
            if entry < UNSIGNED {
                it.skip((entry & 0xff) as usize);
                *pair = [self.signed[(entry >> 8 & 31) as usize], self.signed[(entry >> 16 & 31) as usize]];
            } else {
                *pair = self.read_long(&mut it, pairs, entry, linbits);
            }
            n += 2;
        }
        *bits = it;
        n
    }

    /// Reads a pair whose code is `entry`: up to 19 bits, and twice up to 14.
    #[inline(always)]
    fn read_long(&self, bits: &mut Bits<'_>, pairs: &Pairs, mut entry: u32, linbits: usize) -> [f32; 2] {
        if entry >= LINK {
            let index = bits.peek(FIRST + (entry & 0xff) as usize) & ((1 << (entry & 0xff)) - 1);
            entry = pairs.second[((entry & !LINK) >> 8) as usize + index];
        }
        // No refill: a code of 19 bits and two values of 13 bits and a sign are 47 of at least 56 bits.
        bits.skip((entry & 0xff) as usize);
        [(entry >> 8 & 15) as usize, (entry >> 16 & 15) as usize].map(|mut value| {
            if value == 15 {
                value += bits.take(linbits);
            }
            let sign = bits.peek(1) as u32 & u32::from(value > 0);
            bits.skip(usize::from(value > 0));
            // Signs are random, so they are set without a branch.
            f32::from_bits(self.powers[value].to_bits() | sign << 31)
        })
    }
}

/// Lengths and values of quadruples by the next bits.
fn quads(codes: &[u32; 16]) -> [(u8, u8); 1 << FIRST] {
    let mut table = [(0, 0); 1 << FIRST];
    for (i, code) in codes.iter().enumerate() {
        let (len, bits) = ((code >> 12) as usize, (code & 0xfff) as usize);
        for rest in 0..1 << (FIRST - len) {
            let index = bits << (FIRST - len) | rest;
            let mut used = len;
            let digits = [8, 4, 2, 1].map(|value| {
                if i & value == 0 {
                    return 1;
                }
                used += 1;
                if index >> (FIRST - used) & 1 == 1 { 0 } else { 2 }
            });
            table[index] = (used as u8, digits.into_iter().fold(0, |sum, digit| 3 * sum + digit));
        }
    }
    table
}
