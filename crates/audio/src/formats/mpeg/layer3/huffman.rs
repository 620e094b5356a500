//! Decodes the lines of a granule: pairs with up to three tables, then quadruples, then zeros.
//!
//! A look-up of ten bits gives both values of a pair where the code is that short, which most are, and the
//! bits behind the code their signs: without a branch, since codes are random. Else it gives the place of a
//! second table for the rest of the code. A code begins where the one before ends, so the codes of a granule
//! wait for each other; those of two granules or channels do not, and are read in turns.
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

/// The most bits of a pair: a code, and twice more bits and a sign.
const MOST_BITS: usize = 19 + 2 * 14;
/// How many pairs or quadruples are read after one refill, which holds 56 bits: of a pair whose code is in
/// the first table at most 12; others refill again.
const PER_REFILL: usize = 4;

// An entry: from bit 0 the length of the code, from bit 8 that with the signs, from bit 16 the two values,
// four bits each. The upper bits are its kind.
/// A code of which more bits may follow.
const ESCAPE: u32 = 1 << 30;
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
    /// The same of two values with signs, by the two bits behind a code and from bit 2 on the values.
    signed: [[f32; 2]; 1 << 10],
}

/// Reads the lines of one channel of a granule.
///
/// The last pair may use bits after `end`, as encoders have written it; the last quadruple may not.
pub(super) struct GranuleReader<'a, 'b> {
    bits: Bits<'a>,
    /// The position at which its own bits end.
    end: usize,
    /// Its `n_lines` are those read so far.
    channel: &'b mut Channel,
    lines: &'b mut [f32; LINES],
    /// Where the region of pairs ends that is being read, and the number of the next one.
    stop: usize,
    next_region: usize,
    /// The table of the region, and the bits that may follow a value.
    pairs: usize,
    linbits: usize,
}

impl<'a, 'b> GranuleReader<'a, 'b> {
    /// A reader of `bits`, which are behind the scale factors, up to the position `end`.
    pub(super) fn new(
        bits: Bits<'a>,
        end: usize,
        channel: &'b mut Channel,
        lines: &'b mut [f32; LINES],
    ) -> Self {
        channel.n_lines = 0;
        Self { bits, end, channel, lines, stop: 0, next_region: 0, pairs: 0, linbits: 0 }
    }

    /// The position behind all bits that were read.
    pub(super) fn position(&self) -> usize {
        self.bits.position()
    }

    /// Whether a block of pairs is left of the region, and bits for it.
    #[inline(always)]
    fn has_block(&self) -> bool {
        self.channel.n_lines + 2 * PER_REFILL <= self.stop && has_bits(&self.bits, MOST_BITS, self.end)
    }

    /// Reads pairs one by one as far as the next block; false if there is none.
    fn advance(&mut self, huffman: &Huffman) -> bool {
        let Channel { regions, tables, n_pairs, .. } = *self.channel;
        let mut regions = regions.into_iter().zip(tables).skip(self.next_region);
        while !self.has_block() {
            self.read_rest(huffman);
            let Some((region, table)) = regions.next() else { return false };
            self.next_region += 1;
            let (n, region) = (self.channel.n_lines, region.min(2 * n_pairs));
            match huffman.selected[table] {
                _ if n >= region => {}
                None => {
                    self.lines[n..region].fill(0.0);
                    self.channel.n_lines = region;
                }
                Some((pairs, linbits)) => (self.pairs, self.linbits, self.stop) = (pairs, linbits, region),
            }
        }
        true
    }

    /// Reads pairs up to the end of the region or of the bits.
    fn read_rest(&mut self, huffman: &Huffman) {
        let n = self.channel.n_lines;
        for pair in self.lines[n..self.stop.max(n)].as_chunks_mut::<2>().0 {
            if self.bits.position() >= self.end {
                break;
            }
            self.bits.refill();
            *pair = huffman.pair(&mut self.bits, &huffman.pairs[self.pairs], self.linbits);
            self.channel.n_lines += 2;
        }
    }

    /// The blocks of pairs or quadruples in the lines that are left before `stop`.
    fn blocks<const N: usize>(&mut self, stop: usize) -> &mut [[[f32; N]; PER_REFILL]] {
        self.lines[self.channel.n_lines..stop].as_chunks_mut::<N>().0.as_chunks_mut().0
    }
}

/// Whether the bits before the position `end` hold [`PER_REFILL`] codes of at most `most` bits each.
#[inline(always)]
fn has_bits(bits: &Bits<'_>, most: usize, end: usize) -> bool {
    bits.position() + PER_REFILL * most <= end
}

/// Reads blocks of pairs or quadruples, of at most `most` bits each, of two readers in turns, until one of
/// them has no more before its line `stops`, or too few bits.
#[inline(always)]
fn read_in_turns<const N: usize>(
    one: &mut GranuleReader<'_, '_>,
    other: &mut GranuleReader<'_, '_>,
    stops: [usize; 2],
    most: usize,
    read_one: impl Fn(&mut Bits<'_>) -> [f32; N],
    read_other: impl Fn(&mut Bits<'_>) -> [f32; N],
) {
    // Local copies: the compiler keeps their fields in registers.
    let (mut a, mut b) = (one.bits.clone(), other.bits.clone());
    let ends = [one.end, other.end];
    let mut n = 0;
    for (to, also) in one.blocks(stops[0]).iter_mut().zip(other.blocks(stops[1])) {
        if !has_bits(&a, most, ends[0]) || !has_bits(&b, most, ends[1]) {
            break;
        }
        a.refill();
        b.refill();
        for (to, also) in to.iter_mut().zip(also) {
            *to = read_one(&mut a);
            *also = read_other(&mut b);
        }
        n += N * PER_REFILL;
    }
    (one.bits, other.bits) = (a, b);
    one.channel.n_lines += n;
    other.channel.n_lines += n;
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
            let kind = if has_linbits && (x == 15 || y == 15) { ESCAPE } else { 0 };
            let n_signs = usize::from(x > 0) + usize::from(y > 0);
            let entry = kind | (len | (len + n_signs) << 8 | (x | y << 4) << 16) as u32;
            if len > FIRST {
                let link = first[bits >> (len - FIRST)];
                let (offset, more) = ((link & !LINK) as usize >> 8, (link & 0xff) as usize);
                let free = more - (len - FIRST);
                let from = offset + ((bits << free) & ((1 << more) - 1));
                second[from..from + (1 << free)].fill(entry);
            } else {
                let free = FIRST - len;
                first[bits << free..(bits + 1) << free].fill(entry);
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
            signed: std::array::from_fn(|place| {
                let (bits, x, y) = (place & 3, place >> 2 & 15, place >> 6);
                // Zero has no sign.
                let signs = if x > 0 { [bits >> 1, bits & 1] } else { [0, bits >> 1] };
                let value = |n: usize, sign: usize| if n > 0 && sign == 1 { -powers[n] } else { powers[n] };
                [value(x, signs[0]), value(y, signs[1])]
            }),
            powers,
        }
    }

    /// Reads the lines of a reader, or of two in turns.
    pub(super) fn read(&self, one: &mut GranuleReader<'_, '_>, other: Option<&mut GranuleReader<'_, '_>>) {
        if let Some(other) = other {
            while one.advance(self) & other.advance(self) {
                self.read_pairs_in_turns(one, other);
            }
            self.finish_pairs(one);
            self.finish_pairs(other);
            self.read_quads_in_turns(one, other);
            self.finish(other);
        }
        self.finish_pairs(one);
        self.finish(one);
    }

    #[inline(never)]
    fn read_pairs_in_turns(&self, one: &mut GranuleReader<'_, '_>, other: &mut GranuleReader<'_, '_>) {
        let tables = [one.pairs, other.pairs].map(|pairs| &self.pairs[pairs]);
        let linbits = [one.linbits, other.linbits];
        let stops = [one.stop, other.stop];
        read_in_turns(
            one,
            other,
            stops,
            MOST_BITS,
            |bits| self.pair(bits, tables[0], linbits[0]),
            |bits| self.pair(bits, tables[1], linbits[1]),
        );
    }

    #[inline(never)]
    fn read_quads_in_turns(&self, one: &mut GranuleReader<'_, '_>, other: &mut GranuleReader<'_, '_>) {
        let tables = [one.channel.quads, other.channel.quads].map(|quads| &self.quads[quads]);
        read_in_turns(
            one,
            other,
            [LINES; 2],
            FIRST,
            |bits| self.quad(bits, tables[0]),
            |bits| self.quad(bits, tables[1]),
        );
    }

    /// Reads the pairs that are left.
    fn finish_pairs(&self, reader: &mut GranuleReader<'_, '_>) {
        while reader.advance(self) {
            let (mut bits, end, linbits) = (reader.bits.clone(), reader.end, reader.linbits);
            let pairs = &self.pairs[reader.pairs];
            let mut n = 0;
            for block in reader.blocks(reader.stop) {
                if !has_bits(&bits, MOST_BITS, end) {
                    break;
                }
                bits.refill();
                block.iter_mut().for_each(|pair| *pair = self.pair(&mut bits, pairs, linbits));
                n += 2 * PER_REFILL;
            }
            reader.bits = bits;
            reader.channel.n_lines += n;
        }
    }

    /// Reads the quadruples that are left, then zeros.
    fn finish(&self, reader: &mut GranuleReader<'_, '_>) {
        let GranuleReader { bits, end, channel, lines, .. } = reader;
        let (quads, n_paired) = (&self.quads[channel.quads], 2 * channel.n_pairs);
        let n = &mut channel.n_lines;
        while *n <= LINES - 4 && bits.position() < *end {
            bits.refill();
            lines[*n..*n + 4].copy_from_slice(&self.quad(bits, quads));
            *n += 4;
        }
        // The last quadruple took bits of the next granule: what was left before `end` was stuffing.
        if bits.position() > *end && *n > n_paired {
            *n -= 4;
        }
        lines[*n..].fill(0.0);
    }

    /// Reads the next quadruple. After [`Bits::refill`] it may be called [`PER_REFILL`] times.
    #[inline(always)]
    fn quad(&self, bits: &mut Bits<'_>, quads: &[(u8, u8); 1 << FIRST]) -> [f32; 4] {
        let (len, values) = quads[bits.peek(FIRST)];
        bits.skip(len.into());
        self.quad_values[usize::from(values)]
    }

    /// Reads the next pair. After [`Bits::refill`] it may be called [`PER_REFILL`] times.
    #[inline(always)]
    fn pair(&self, bits: &mut Bits<'_>, pairs: &Pairs, linbits: usize) -> [f32; 2] {
        let entry = pairs.first[bits.peek(FIRST)];
        if entry < ESCAPE { self.short(bits, entry) } else { self.long(bits, pairs, entry, linbits) }
    }

    /// Reads a pair whose code is `entry`, and of which no more bits but signs follow.
    #[inline(always)]
    fn short(&self, bits: &mut Bits<'_>, entry: u32) -> [f32; 2] {
        let values = (entry >> 16 & 0xff) as usize;
        let pair = self.signed[values << 2 | bits.peek_behind((entry & 0xff) as usize, 2)];
        bits.skip((entry >> 8 & 0xff) as usize);
        pair
    }

    /// Reads a pair whose code is not in the first table, or may have bits of its values behind it: at most
    /// [`MOST_BITS`].
    #[inline(always)]
    fn long(&self, bits: &mut Bits<'_>, pairs: &Pairs, mut entry: u32, linbits: usize) -> [f32; 2] {
        bits.refill();
        if entry >= LINK {
            let index = bits.peek(FIRST + (entry & 0xff) as usize) & ((1 << (entry & 0xff)) - 1);
            entry = pairs.second[((entry & !LINK) >> 8) as usize + index];
        }
        let pair = if entry < ESCAPE {
            self.short(bits, entry)
        } else {
            bits.skip((entry & 0xff) as usize);
            // Without branches: which of the values are large, and their signs, is random.
            [(entry >> 16 & 15) as usize, (entry >> 20 & 15) as usize].map(|small| {
                let value = small + bits.take(if small == 15 { linbits } else { 0 });
                let sign = bits.take(usize::from(value > 0)) as u32;
                f32::from_bits(self.powers[value].to_bits() | sign << 31)
            })
        };
        // For those that are left of `PER_REFILL`.
        bits.refill();
        pair
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
