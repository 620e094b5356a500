//! Reads the headers of a Vorbis stream, as far as they determine packets' lengths.
//!
//! Input: the identification and the setup header. Output: rate, channels, block sizes and the block size of
//! each mode. The modes are last in the setup header, and the parts before them have no length field, so the
//! whole header is walked, but nothing is built. The walk also bounds the allocations of a decoder: a
//! codebook of a few bytes can claim megabytes. All references to other parts (codebooks, floors, residues,
//! submaps, mappings, channels) are checked, so that no later code looks up a missing part.
//!
//! Source: Vorbis I specification, sections 3.2.1, 4.2.2, 4.2.4, 6.2.1, 7.2.2, 8.6.1.

use super::super::{corrupt, unsupported};
use crate::Result;

/// The most vector values of all codebooks of a stream: 16 MiB of float32; encoders use under 2 MiB.
const MAX_VALUES: u64 = 1 << 22;

/// The start of a setup header.
const SIGNATURE: &[u8] = b"\x05vorbis";

/// The fields of the identification and the setup header that packets depend on.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub channels: u8,
    pub sample_rate: u32,
    /// The two block sizes, short and long.
    block_sizes: [u16; 2],
    /// Bit `i` is set if mode `i` has long blocks.
    long_modes: u64,
    n_modes: u32,
    /// The approximate bytes of a decoder.
    pub decoder_bytes: usize,
    /// The mappings with several coupling steps.
    couplings: Vec<Couplings>,
    /// Whether the decoder used here misreads packets with these headers.
    is_misread: bool,
}

/// The fields of a residue that determine its partitions.
#[derive(Debug, Clone, Copy, Default)]
struct Residue {
    is_interleaved: bool,
    begin: u32,
    end: u32,
    partition_size: u32,
    partitions_per_word: u32,
}

impl Residue {
    /// Whether the decoder used here misreads it in blocks of `block_size` samples if several channels share
    /// it. If it is not interleaved, the decoder lets the last classification word of a channel spill over
    /// into the next channel's.
    fn spills(&self, block_size: u16) -> bool {
        let half = u32::from(block_size / 2);
        let n_partitions = (self.end.min(half) - self.begin.min(half)) / self.partition_size;
        !self.is_interleaved && !n_partitions.is_multiple_of(self.partitions_per_word)
    }
}

/// The fields of a codebook that other parts of the header depend on.
struct Codebook {
    dimensions: u32,
    /// The approximate number of values of its table.
    values: u64,
}

/// The coupling steps of one mapping: `steps` times two channel numbers of `width` bits, from bit `at` of the
/// setup header on, after its signature.
#[derive(Debug, Clone, Copy)]
struct Couplings {
    at: u64,
    width: u32,
    steps: u32,
}

impl Setup {
    /// Reads both header packets.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Corrupt`] if one contradicts the specification, [`crate::ErrorKind::Unsupported`]
    /// for other versions and for codebooks of unreasonable size.
    pub fn parse(identification: &[u8], setup: &[u8]) -> Result<Self> {
        let Some(fields) =
            identification.strip_prefix(b"\x01vorbis").and_then(|rest| rest.first_chunk::<23>())
        else {
            return Err(corrupt("the Vorbis identification header is cut short"));
        };
        if fields[..4] != [0; 4] {
            return Err(unsupported("the Vorbis stream is not of version 0, the only known one"));
        }
        let channels = fields[4];
        let sample_rate = u32::from_le_bytes([fields[5], fields[6], fields[7], fields[8]]);
        let (short, long) = (fields[21] & 15, fields[21] >> 4);
        if channels == 0 || sample_rate == 0 || short < 6 || long > 13 || short > long || fields[22] & 1 == 0
        {
            return Err(corrupt(format!(
                "the Vorbis identification header has {channels} channels, {sample_rate} Hz and blocks of 2^{short} and \
                 2^{long} samples; expected at least 1, at least 1, and 2^6 to 2^13"
            )));
        }
        let Some(fields) = setup.strip_prefix(SIGNATURE) else {
            return Err(corrupt("the third packet of the Vorbis stream is not its setup header"));
        };
        let mut this = Self {
            channels,
            sample_rate,
            block_sizes: [1 << short, 1 << long],
            long_modes: 0,
            n_modes: 0,
            decoder_bytes: setup.len(),
            couplings: Vec::new(),
            is_misread: false,
        };
        match this.walk(&mut Bits { bytes: fields, at: 0 }) {
            Some(_) if this.is_misread => Err(unsupported(format!(
                "Vorbis of {channels} channels, several of which share a residue that is not interleaved (type 0 or 1; libvorbis \
                 writes it for three channels and more, and for uncoupled stereo from 88.2 kHz on): the decoder used here \
                 misreads it; convert the recording to FLAC",
            ))),
            Some(values) if values <= MAX_VALUES => {
                this.decoder_bytes =
                    (4 * values) as usize + 8 * setup.len() + (usize::from(channels) << (long + 4));
                Ok(this)
            }
            Some(_) => Err(unsupported("the Vorbis setup header declares codebooks of more than 16 MiB")),
            None => Err(corrupt("the Vorbis setup header contradicts the specification or is cut short")),
        }
    }

    /// The block size of the audio packet that begins with the byte `first`; None if it is not an audio
    /// packet.
    pub fn block_size(&self, first: Option<u8>) -> Option<u16> {
        let first = first.filter(|byte| byte & 1 == 0)?;
        let mode = u32::from(first >> 1) & ((1 << ilog(self.n_modes - 1)) - 1);
        (mode < self.n_modes).then(|| self.block_sizes[(self.long_modes >> mode & 1) as usize])
    }

    /// Samples of a long block.
    pub fn long_block(&self) -> u16 {
        self.block_sizes[1]
    }

    /// Reverses the coupling steps of each mapping in `setup`, the setup header that `self` was parsed from.
    ///
    /// The specification undoes the steps from the last to the first (section 4.3.5). The decoder used here
    /// does it from the first to the last, which is wrong if steps share a channel, as they do from three
    /// channels on.
    pub fn reverse_couplings(&self, setup: &mut [u8]) {
        for &Couplings { at, width, steps } in &self.couplings {
            let pair = 2 * width;
            let begin = at + 8 * SIGNATURE.len() as u64;
            let place = |step: u32| begin + u64::from(step * pair);
            for step in 0..steps / 2 {
                let (front, back) = (place(step), place(steps - 1 - step));
                for bit in 0..u64::from(pair) {
                    swap_bits(setup, front + bit, back + bit);
                }
            }
        }
    }

    /// Walks the setup header and sets the modes; returns the number of vector values of its codebooks.
    fn walk(&mut self, bits: &mut Bits<'_>) -> Option<u64> {
        let mut values = 0;
        let mut dimensions = [1; 256];
        let dimensions = &mut dimensions[..=bits.read(8)? as usize];
        for slot in &mut *dimensions {
            let codebook = walk_codebook(bits)?;
            (*slot, values) = (codebook.dimensions, values + codebook.values);
        }
        for _ in 0..=bits.read(6)? {
            bits.read(16).filter(|&transform| transform == 0)?;
        }
        let n_floors = bits.read(6)? + 1;
        for _ in 0..n_floors {
            match bits.read(16)? {
                0 => walk_floor0(bits, dimensions.len())?,
                1 => walk_floor1(bits, dimensions.len())?,
                _ => return None,
            }
        }
        let mut residues = [Residue::default(); 64];
        let residues = &mut residues[..=bits.read(6)? as usize];
        for residue in &mut *residues {
            *residue = walk_residue(bits, dimensions)?;
        }
        let mut is_misread = [[false; 2]; 64];
        let is_misread = &mut is_misread[..=bits.read(6)? as usize];
        for mapping in &mut *is_misread {
            *mapping = self.walk_mapping(bits, n_floors, residues)?;
        }
        self.n_modes = bits.read(6)? + 1;
        for mode in 0..self.n_modes {
            let is_long = bits.read(1)?;
            self.long_modes |= u64::from(is_long) << mode;
            // Window and transform type.
            bits.read(32).filter(|&types| types == 0)?;
            self.is_misread |= is_misread.get(bits.read(8)? as usize)?[is_long as usize];
        }
        bits.read(1).filter(|&framing| framing == 1)?;
        Some(values)
    }

    /// Walks a mapping; returns for short and for long blocks whether the decoder used here misreads it.
    fn walk_mapping(
        &mut self,
        bits: &mut Bits<'_>,
        n_floors: u32,
        residues: &[Residue],
    ) -> Option<[bool; 2]> {
        bits.read(16).filter(|&kind| kind == 0)?;
        let submaps = if bits.read(1)? == 1 { bits.read(4)? + 1 } else { 1 };
        let mut steps = 0;
        if bits.read(1)? == 1 {
            steps = bits.read(8)? + 1;
            let width = ilog(u32::from(self.channels) - 1);
            if steps > 1 {
                self.couplings.push(Couplings { at: bits.at, width, steps });
            }
            for _ in 0..steps {
                let (magnitude, angle) = (bits.read(width)?, bits.read(width)?);
                if magnitude == angle || magnitude.max(angle) >= u32::from(self.channels) {
                    return None;
                }
            }
        }
        bits.read(2).filter(|&reserved| reserved == 0)?;
        let mut n_channels = [0; 16];
        let n_channels = &mut n_channels[..submaps as usize];
        for _ in 0..self.channels {
            *n_channels.get_mut(if submaps > 1 { bits.read(4)? as usize } else { 0 })? += 1;
        }
        let mut is_misread = [false; 2];
        for &mut n_channels in n_channels {
            bits.skip(8)?;
            bits.read(8).filter(|&floor| floor < n_floors)?;
            let residue = residues.get(bits.read(8)? as usize)?;
            if n_channels > 1 {
                for (is_misread, &size) in is_misread.iter_mut().zip(&self.block_sizes) {
                    // Reversed steps ([`Setup::reverse_couplings`]) could also change which channels have a
                    // residue.
                    *is_misread |= residue.spills(size) || steps > 1 && !residue.is_interleaved;
                }
            }
        }
        Some(is_misread)
    }
}

fn walk_codebook(bits: &mut Bits<'_>) -> Option<Codebook> {
    bits.read(24).filter(|&sync| sync == 0x56_4342)?;
    let dimensions = bits.read(16).filter(|&dimensions| dimensions > 0)?;
    let entries = bits.read(24)?;
    if bits.read(1)? == 1 {
        bits.skip(5)?;
        let (mut entry, mut length) = (0, 0);
        while entry < entries {
            entry += bits.read(ilog(entries - entry))?;
            length += 1;
            if length > 32 || entry > entries {
                return None;
            }
        }
    } else if bits.read(1)? == 1 {
        for _ in 0..entries {
            if bits.read(1)? == 1 {
                bits.skip(5)?;
            }
        }
    } else {
        bits.skip(5 * u64::from(entries))?;
    }
    let lookup = bits.read(4)?;
    if lookup == 0 {
        // A scalar codebook has only its tree in memory, some 16 bytes an entry.
        return Some(Codebook { dimensions, values: 4 * u64::from(entries) });
    }
    bits.skip(64)?;
    let value_bits = u64::from(bits.read(4)? + 1);
    bits.skip(1)?;
    let values = match lookup {
        1 => u64::from(lookup1_values(entries, dimensions)),
        2 => u64::from(entries) * u64::from(dimensions),
        _ => return None,
    };
    bits.skip(values * value_bits)?;
    Some(Codebook { dimensions, values: u64::from(entries) * (u64::from(dimensions) + 4) })
}

/// The greatest integer whose power to `dimensions` is at most `entries` (section 9.2.3).
fn lookup1_values(entries: u32, dimensions: u32) -> u32 {
    let fits = |value: u32| value.checked_pow(dimensions).is_some_and(|power| power <= entries);
    let mut value = f64::from(entries).powf(1.0 / f64::from(dimensions)) as u32;
    while !fits(value) {
        value -= 1;
    }
    while fits(value + 1) {
        value += 1;
    }
    value
}

/// Reads the number of one of `n_codebooks`.
fn walk_book(bits: &mut Bits<'_>, n_codebooks: usize) -> Option<usize> {
    bits.read(8).map(|book| book as usize).filter(|&book| book < n_codebooks)
}

fn walk_floor0(bits: &mut Bits<'_>, n_codebooks: usize) -> Option<()> {
    bits.skip(8 + 16 + 16 + 6 + 8)?;
    for _ in 0..=bits.read(4)? {
        walk_book(bits, n_codebooks)?;
    }
    Some(())
}

fn walk_floor1(bits: &mut Bits<'_>, n_codebooks: usize) -> Option<()> {
    let mut classes = [0; 32];
    let partitions = bits.read(5)? as usize;
    for class in &mut classes[..partitions] {
        *class = bits.read(4)? as usize;
    }
    let mut dimensions = [0; 16];
    let n_classes = classes[..partitions].iter().max().map_or(0, |max| max + 1);
    for dimension in &mut dimensions[..n_classes] {
        *dimension = bits.read(3)? + 1;
        let subclasses = bits.read(2)?;
        if subclasses > 0 {
            walk_book(bits, n_codebooks)?;
        }
        for _ in 0..1 << subclasses {
            // The codebook's number plus one; 0 for none.
            bits.read(8).filter(|&book| book as usize <= n_codebooks)?;
        }
    }
    bits.skip(2)?;
    let range_bits = bits.read(4)?;
    let points: u32 = classes[..partitions].iter().map(|&class| dimensions[class]).sum();
    bits.skip(u64::from(points * range_bits))
}

fn walk_residue(bits: &mut Bits<'_>, dimensions: &[u32]) -> Option<Residue> {
    let is_interleaved = bits.read(16).filter(|&kind| kind <= 2)? == 2;
    let (begin, end, partition_size) = (bits.read(24)?, bits.read(24)?, bits.read(24)? + 1);
    let classifications = bits.read(6)? + 1;
    let partitions_per_word = dimensions[walk_book(bits, dimensions.len())?];
    if begin > end {
        return None;
    }
    let mut books = 0;
    for _ in 0..classifications {
        let low = bits.read(3)?;
        let high = if bits.read(1)? == 1 { bits.read(5)? } else { 0 };
        books += low.count_ones() + high.count_ones();
    }
    for _ in 0..books {
        walk_book(bits, dimensions.len())?;
    }
    Some(Residue { is_interleaved, begin, end, partition_size, partitions_per_word })
}

/// The number of bits of `value` (section 9.2.1).
fn ilog(value: u32) -> u32 {
    u32::BITS - value.leading_zeros()
}

fn swap_bits(bytes: &mut [u8], a: u64, b: u64) {
    let get = |bytes: &[u8], at: u64| bytes[(at / 8) as usize] >> (at % 8) & 1;
    if get(bytes, a) != get(bytes, b) {
        bytes[(a / 8) as usize] ^= 1 << (a % 8);
        bytes[(b / 8) as usize] ^= 1 << (b % 8);
    }
}

/// Reads bits, least significant first (section 2).
struct Bits<'a> {
    bytes: &'a [u8],
    at: u64,
}

impl Bits<'_> {
    /// The next `n <= 32` bits; None past the end.
    fn read(&mut self, n: u32) -> Option<u32> {
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

    fn skip(&mut self, n: u64) -> Option<()> {
        self.at = self.at.checked_add(n).filter(|&at| at <= 8 * self.bytes.len() as u64)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The identification and the setup header of a recording.
    fn headers(name: &str) -> (Vec<u8>, Vec<u8>) {
        use super::super::super::ogg::{Packets, Pages};
        let path = format!("{}/tests/data/audio/vorbis/{name}", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(path).unwrap();
        let pages: Vec<_> = Pages::new(&bytes).collect();
        let mut packets = Packets::new(&bytes, &pages, 0);
        let mut next = |n| packets.nth(n).unwrap().data(&bytes, &pages, &mut Vec::new()).unwrap().to_vec();
        (next(0), next(1))
    }

    /// A setup header with a reference to a missing part is refused. Flips each bit, and sets each run of six
    /// bits to ones, the largest number in six bits.
    #[test]
    fn indices_are_checked() {
        let (identification, setup) = headers("stereo_44100.ogg");
        let told = Setup::parse(&identification, &setup).unwrap();
        assert!(told.n_modes == 2 && told.channels == 2);
        let mut refused = 0;
        for bit in 56..8 * setup.len() {
            for width in [1, 6] {
                let mut changed = setup.clone();
                for bit in bit..(bit + width).min(8 * setup.len()) {
                    let mask = 1 << (bit % 8);
                    if width == 1 {
                        changed[bit / 8] ^= mask;
                    } else {
                        changed[bit / 8] |= mask;
                    }
                }
                refused += u32::from(Setup::parse(&identification, &changed).is_err());
            }
        }
        assert!(refused > 100, "{refused}");
    }

    /// Rewrites the end of a header with a mapping to another residue, floor, submap or channels.
    #[test]
    fn a_mapping_names_what_is_there() {
        let (identification, setup) = headers("stereo_44100.ogg");
        let fields = &setup[SIGNATURE.len()..];
        // Walks up to the first mapping, which begins after the residues.
        let mut bits = Bits { bytes: fields, at: 0 };
        let mut dimensions = [1; 256];
        let dimensions = &mut dimensions[..=bits.read(8).unwrap() as usize];
        dimensions.iter_mut().for_each(|slot| *slot = walk_codebook(&mut bits).unwrap().dimensions);
        for _ in 0..=bits.read(6).unwrap() {
            bits.read(16).unwrap();
        }
        let n_floors = bits.read(6).unwrap() + 1;
        for _ in 0..n_floors {
            assert_eq!(bits.read(16), Some(1));
            walk_floor1(&mut bits, dimensions.len()).unwrap();
        }
        let n_residues = bits.read(6).unwrap() + 1;
        for _ in 0..n_residues {
            walk_residue(&mut bits, dimensions).unwrap();
        }
        let front: Vec<bool> =
            (0..bits.at).map(|at| fields[(at / 8) as usize] >> (at % 8) & 1 == 1).collect();
        let verdict = |floor: u32, residue: u32, coupling: (u32, u32), mux: u32, mapping: u32| {
            let mut header = front.clone();
            let mut put = |value: u32, n: u32| header.extend((0..n).map(|bit| value >> bit & 1 == 1));
            // One mapping of two submaps with one coupling step, and one mode.
            for (value, n) in
                [(0, 6), (0, 16), (1, 1), (1, 4), (1, 1), (0, 8), (coupling.0, 1), (coupling.1, 1), (0, 2)]
            {
                put(value, n);
            }
            for (value, n) in [(0, 4), (mux, 4), (0, 8), (0, 8), (0, 8), (0, 8), (floor, 8), (residue, 8)] {
                put(value, n);
            }
            for (value, n) in [(0, 6), (0, 1), (0, 32), (mapping, 8), (1, 1)] {
                put(value, n);
            }
            let bytes =
                header.chunks(8).map(|byte| byte.iter().rev().fold(0, |sum, &bit| sum << 1 | u8::from(bit)));
            let setup: Vec<u8> = SIGNATURE.iter().copied().chain(bytes).collect();
            Setup::parse(&identification, &setup).map(|_| ())
        };
        assert!(verdict(n_floors - 1, n_residues - 1, (0, 1), 1, 0).is_ok());
        for wrong in [
            verdict(n_floors, 0, (0, 1), 1, 0),
            verdict(0, n_residues, (0, 1), 1, 0),
            verdict(0, 63, (0, 1), 1, 0),
            verdict(0, 255, (0, 1), 1, 0),
            verdict(0, 0, (1, 1), 1, 0),
            verdict(0, 0, (0, 1), 2, 0),
            verdict(0, 0, (0, 1), 1, 1),
        ] {
            assert_eq!(wrong.unwrap_err().kind, crate::ErrorKind::Corrupt);
        }
    }

    #[test]
    fn greatest_root_is_found() {
        for (entries, dimensions) in
            [(0, 1), (1, 1), (1, 32), (125, 3), (124, 3), (6561, 8), (1 << 23, 1), (2, 9)]
        {
            let root = lookup1_values(entries, dimensions);
            assert!(root.pow(dimensions) <= entries, "{entries} {dimensions}");
            assert!(
                (root + 1).checked_pow(dimensions).is_none_or(|power| power > entries),
                "{entries} {dimensions}"
            );
        }
    }

    #[test]
    fn bits_come_least_significant_first() {
        let mut bits = Bits { bytes: &[0b1010_0110, 0xff], at: 0 };
        assert_eq!((bits.read(3), bits.read(5), bits.read(8)), (Some(0b110), Some(0b10100), Some(0xff)));
        assert_eq!((bits.read(0), bits.read(1)), (Some(0), None));
    }
}
