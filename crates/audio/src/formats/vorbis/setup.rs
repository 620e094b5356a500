//! Reads the headers of a Vorbis stream.
//!
//! Input: the identification and the setup header. Output: rate, channels, block sizes, and the parts from
//! which a decoder is built. The lists of codebooks stay in the header: the decoder reads them again when it
//! is built. The walk bounds the allocations of a decoder: a codebook of a few bytes can claim megabytes. All
//! references to other parts (codebooks, floors, residues, submaps, mappings, channels) are checked, so that
//! no later code looks up a missing part.
//!
//! Source: Vorbis I specification, sections 3.2.1, 4.2.2, 4.2.4, 6.2.1, 7.2.2, 8.6.1.

use super::bits::Bits;
use crate::{Result, corrupt, unsupported};

/// The most vector values of all codebooks of a stream: 16 MiB of float32; encoders use under 2 MiB.
const MAX_VALUES: u64 = 1 << 22;
/// The tree of a codebook, in values an entry: 44 bytes if all codewords are long.
const TREE: u64 = 11;

/// The start of a setup header.
const SIGNATURE: &[u8] = b"\x05vorbis";

/// The bits of a setup header from bit `at` on, after its signature.
pub(super) fn bits(setup: &[u8], at: u64) -> Bits<'_> {
    Bits::new(setup.get(SIGNATURE.len()..).unwrap_or_default(), at)
}

/// The fields of the identification and the setup header.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub channels: u8,
    pub sample_rate: u32,
    /// The two block sizes, short and long.
    pub block_sizes: [u16; 2],
    /// Bit `i` is set if mode `i` has long blocks.
    long_modes: u64,
    n_modes: u32,
    /// The approximate bytes of a decoder.
    pub decoder_bytes: usize,
    pub codebooks: Vec<Codebook>,
    pub floors: Vec<Floor>,
    pub residues: Vec<Residue>,
    pub mappings: Vec<Mapping>,
    /// The mapping of each mode.
    pub modes: Vec<u8>,
}

/// A codebook, whose lists stay in the header.
#[derive(Debug, Clone)]
pub(super) struct Codebook {
    pub dimensions: u32,
    pub entries: u32,
    /// The bit of the setup header, after its signature, from which on the lengths are read.
    pub lengths_at: u64,
    /// Absent in a codebook without vectors.
    pub lookup: Option<Lookup>,
}

#[derive(Debug, Clone)]
pub(super) struct Lookup {
    /// Minimum and step, packed as floats (section 9.2.2).
    pub minimum: u32,
    pub delta: u32,
    pub value_bits: u32,
    pub is_sequence: bool,
    /// Numbers of values in each dimension, if the vectors are all combinations of them (type 1).
    pub lattice: Option<u32>,
    /// Number of values, and the bit of the first one.
    pub n_values: u32,
    pub values_at: u64,
}

#[derive(Debug, Clone)]
pub(super) enum Floor {
    Lsp(Floor0),
    Lines(Floor1),
}

#[derive(Debug, Clone)]
pub(super) struct Floor0 {
    pub order: u8,
    pub rate: u16,
    pub bark_map_size: u16,
    pub amplitude_bits: u32,
    pub amplitude_offset: u8,
    pub books: Vec<u8>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Floor1 {
    pub partitions: Vec<u8>,
    pub classes: Vec<Class>,
    pub multiplier: u8,
    /// The positions, of which the first two are the ends.
    pub xs: Vec<u16>,
}

/// A class of partitions of a floor.
#[derive(Debug, Clone, Default)]
pub(super) struct Class {
    pub dimensions: u8,
    pub subclass_bits: u8,
    pub master_book: u8,
    /// The codebook of each subclass.
    pub books: [Option<u8>; 8],
}

#[derive(Debug, Clone, Default)]
pub(super) struct Residue {
    pub kind: u8,
    pub begin: u32,
    pub end: u32,
    pub partition_size: u32,
    pub class_book: u8,
    /// The codebooks of each classification, by pass.
    pub books: Vec<[Option<u8>; 8]>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Mapping {
    /// The bit at which the coupling steps begin, after the header's signature.
    #[cfg(test)]
    couplings_at: u64,
    /// The channels of magnitude and angle of each coupling step.
    pub couplings: Vec<[u8; 2]>,
    /// The submap of each channel.
    pub mux: Vec<u8>,
    /// Floor and residue of each submap.
    pub submaps: Vec<[u8; 2]>,
}

impl Setup {
    /// Reads both header packets.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Corrupt`] if one contradicts the specification, [`crate::ErrorKind::Unsupported`]
    /// for other versions and for codebooks of unreasonable size.
    pub(super) fn parse(identification: &[u8], setup: &[u8]) -> Result<Self> {
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
            codebooks: Vec::new(),
            floors: Vec::new(),
            residues: Vec::new(),
            mappings: Vec::new(),
            modes: Vec::new(),
        };
        match this.walk(&mut Bits::new(fields, 0)) {
            Some(values) if values <= MAX_VALUES => {
                this.decoder_bytes =
                    (4 * values) as usize + 8 * setup.len() + (usize::from(channels) << (long + 4));
                // The first table of each codebook, and the lines of each channel's floor.
                this.decoder_bytes += (this.codebooks.len() << 12) + (usize::from(channels) << 13);
                Ok(this)
            }
            Some(_) => Err(unsupported("the Vorbis setup header declares codebooks of more than 16 MiB")),
            None => Err(corrupt("the Vorbis setup header contradicts the specification or is cut short")),
        }
    }

    /// The block size of the audio packet that begins with the byte `first`; None if it is not an audio
    /// packet.
    pub(super) fn block_size(&self, first: Option<u8>) -> Option<u16> {
        let first = first.filter(|byte| byte & 1 == 0)?;
        let mode = u32::from(first >> 1) & ((1 << ilog(self.n_modes - 1)) - 1);
        (mode < self.n_modes).then(|| self.block_sizes[(self.long_modes >> mode & 1) as usize])
    }

    /// Whether each mode has long blocks, and its mapping.
    pub(crate) fn mode_list(&self) -> Vec<(bool, u8)> {
        self.modes.iter().enumerate().map(|(i, &mapping)| (self.long_modes >> i & 1 == 1, mapping)).collect()
    }

    pub(crate) fn long_block(&self) -> u16 {
        self.block_sizes[1]
    }

    /// Reverses the coupling steps of each mapping in `setup`, the setup header that `self` was parsed from.
    ///
    /// The specification undoes the steps from the last to the first (section 4.3.5). symphonia, with which
    /// the tests compare, does it from the first to the last, which is wrong if steps share a channel, as
    /// they do from three channels on.
    #[cfg(test)]
    pub(crate) fn reverse_couplings(&self, setup: &mut [u8]) {
        let pair = 2 * u64::from(ilog(u32::from(self.channels) - 1));
        for mapping in &self.mappings {
            let begin = mapping.couplings_at + 8 * SIGNATURE.len() as u64;
            let steps = mapping.couplings.len() as u64;
            for step in 0..steps / 2 {
                let (front, back) = (begin + step * pair, begin + (steps - 1 - step) * pair);
                for bit in 0..pair {
                    swap_bits(setup, front + bit, back + bit);
                }
            }
        }
    }

    /// Whether symphonia misreads a residue of it: if several channels share one that is not interleaved, it
    /// lets the last classification word of a channel spill over into the next channel's.
    #[cfg(test)]
    pub(crate) fn is_misread(&self) -> bool {
        self.mappings.iter().any(|mapping| {
            mapping.submaps.iter().enumerate().any(|(i, &[_, residue])| {
                let n_channels = mapping.mux.iter().filter(|&&submap| usize::from(submap) == i).count();
                let residue = &self.residues[usize::from(residue)];
                let per_word = self.codebooks[usize::from(residue.class_book)].dimensions;
                let spills = self.block_sizes.iter().any(|&size| {
                    let half = u32::from(size / 2);
                    let n_partitions =
                        (residue.end.min(half) - residue.begin.min(half)) / residue.partition_size;
                    !n_partitions.is_multiple_of(per_word)
                });
                residue.kind != 2 && n_channels > 1 && (spills || mapping.couplings.len() > 1)
            })
        })
    }

    /// Reads the setup header; returns the number of vector values of its codebooks.
    fn walk(&mut self, bits: &mut Bits<'_>) -> Option<u64> {
        let mut values = 0;
        for _ in 0..=bits.read(8)? {
            let (codebook, more) = walk_codebook(bits)?;
            self.codebooks.push(codebook);
            values += more;
        }
        let n_codebooks = self.codebooks.len();
        for _ in 0..=bits.read(6)? {
            bits.read(16).filter(|&transform| transform == 0)?;
        }
        for _ in 0..=bits.read(6)? {
            self.floors.push(match bits.read(16)? {
                0 => Floor::Lsp(read_floor0(bits, n_codebooks)?),
                1 => Floor::Lines(read_floor1(bits, n_codebooks)?),
                _ => return None,
            });
        }
        for _ in 0..=bits.read(6)? {
            self.residues.push(read_residue(bits, n_codebooks)?);
        }
        for _ in 0..=bits.read(6)? {
            let mapping = self.read_mapping(bits)?;
            self.mappings.push(mapping);
        }
        self.n_modes = bits.read(6)? + 1;
        for mode in 0..self.n_modes {
            let is_long = bits.read(1)?;
            self.long_modes |= u64::from(is_long) << mode;
            // Window and transform type.
            bits.read(32).filter(|&types| types == 0)?;
            let mapping = bits.read(8).filter(|&mapping| (mapping as usize) < self.mappings.len())?;
            self.modes.push(mapping as u8);
        }
        bits.read(1).filter(|&framing| framing == 1)?;
        Some(values)
    }

    fn read_mapping(&self, bits: &mut Bits<'_>) -> Option<Mapping> {
        bits.read(16).filter(|&kind| kind == 0)?;
        let mut this = Mapping::default();
        let submaps = if bits.read(1)? == 1 { bits.read(4)? + 1 } else { 1 };
        if bits.read(1)? == 1 {
            let steps = bits.read(8)? + 1;
            #[cfg(test)]
            (this.couplings_at = bits.at);
            let width = ilog(u32::from(self.channels) - 1);
            for _ in 0..steps {
                let (magnitude, angle) = (bits.read(width)?, bits.read(width)?);
                if magnitude == angle || magnitude.max(angle) >= u32::from(self.channels) {
                    return None;
                }
                this.couplings.push([magnitude as u8, angle as u8]);
            }
        }
        bits.read(2).filter(|&reserved| reserved == 0)?;
        for _ in 0..self.channels {
            let submap = if submaps > 1 { bits.read(4).filter(|&submap| submap < submaps)? } else { 0 };
            this.mux.push(submap as u8);
        }
        for _ in 0..submaps {
            bits.skip(8)?;
            let floor = bits.read(8).filter(|&floor| (floor as usize) < self.floors.len())?;
            let residue = bits.read(8).filter(|&residue| (residue as usize) < self.residues.len())?;
            this.submaps.push([floor as u8, residue as u8]);
        }
        Some(this)
    }
}

/// Reads a codebook up to its end; returns it with the approximate number of values of its table.
fn walk_codebook(bits: &mut Bits<'_>) -> Option<(Codebook, u64)> {
    bits.read(24).filter(|&sync| sync == 0x56_4342)?;
    let dimensions = bits.read(16).filter(|&dimensions| dimensions > 0)?;
    let entries = bits.read(24)?;
    let lengths_at = bits.at;
    walk_lengths(bits, entries, |_, _| {})?;
    let lookup = bits.read(4)?;
    if lookup == 0 {
        // A scalar codebook has only its tree in memory.
        return Some((Codebook { dimensions, entries, lengths_at, lookup: None }, TREE * u64::from(entries)));
    }
    let (minimum, delta) = (bits.read(32)?, bits.read(32)?);
    let value_bits = bits.read(4)? + 1;
    let is_sequence = bits.read(1)? == 1;
    let (lattice, n_values) = match lookup {
        1 => {
            let values = lookup1_values(entries, dimensions);
            (Some(values), u64::from(values))
        }
        2 => (None, u64::from(entries) * u64::from(dimensions)),
        _ => return None,
    };
    let values_at = bits.at;
    bits.skip(n_values * u64::from(value_bits))?;
    let n_values = u32::try_from(n_values).ok()?;
    let lookup = Lookup { minimum, delta, value_bits, is_sequence, lattice, n_values, values_at };
    let values = u64::from(entries) * (u64::from(dimensions) + TREE);
    Some((Codebook { dimensions, entries, lengths_at, lookup: Some(lookup) }, values))
}

/// Reads the lengths of a codebook's codewords, and gives runs of them to `each`: the length, and the number
/// of consecutive entries; 0 for an unused entry.
pub(super) fn walk_lengths(bits: &mut Bits<'_>, entries: u32, mut each: impl FnMut(u32, u32)) -> Option<()> {
    if bits.read(1)? == 1 {
        let (mut entry, mut length, mut rounds) = (0, bits.read(5)? + 1, 0);
        while entry < entries {
            let run = bits.read(ilog(entries - entry))?;
            each(length, run);
            entry += run;
            length += 1;
            rounds += 1;
            if rounds > 32 || entry > entries {
                return None;
            }
        }
    } else if bits.read(1)? == 1 {
        for _ in 0..entries {
            let length = if bits.read(1)? == 1 { bits.read(5)? + 1 } else { 0 };
            each(length, 1);
        }
    } else {
        for _ in 0..entries {
            each(bits.read(5)? + 1, 1);
        }
    }
    Some(())
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
fn walk_book(bits: &mut Bits<'_>, n_codebooks: usize) -> Option<u8> {
    bits.read(8).filter(|&book| (book as usize) < n_codebooks).map(|book| book as u8)
}

fn read_floor0(bits: &mut Bits<'_>, n_codebooks: usize) -> Option<Floor0> {
    let (order, rate) = (bits.read(8)? as u8, bits.read(16)? as u16);
    let (bark_map_size, amplitude_bits) = (bits.read(16)? as u16, bits.read(6)?);
    let amplitude_offset = bits.read(8)? as u8;
    let n_books = bits.read(4)? + 1;
    let books = (0..n_books).map(|_| walk_book(bits, n_codebooks)).collect::<Option<_>>()?;
    Some(Floor0 { order, rate, bark_map_size, amplitude_bits, amplitude_offset, books })
}

fn read_floor1(bits: &mut Bits<'_>, n_codebooks: usize) -> Option<Floor1> {
    let mut this = Floor1::default();
    for _ in 0..bits.read(5)? {
        this.partitions.push(bits.read(4)? as u8);
    }
    let n_classes = this.partitions.iter().max().map_or(0, |max| max + 1);
    for _ in 0..n_classes {
        let mut class = Class { dimensions: bits.read(3)? as u8 + 1, ..Class::default() };
        class.subclass_bits = bits.read(2)? as u8;
        if class.subclass_bits > 0 {
            class.master_book = walk_book(bits, n_codebooks)?;
        }
        for book in &mut class.books[..1 << class.subclass_bits] {
            // The codebook's number plus one; 0 for none.
            let number = bits.read(8).filter(|&book| book as usize <= n_codebooks)?;
            *book = number.checked_sub(1).map(|book| book as u8);
        }
        this.classes.push(class);
    }
    this.multiplier = bits.read(2)? as u8 + 1;
    let range_bits = bits.read(4)?;
    this.xs.extend([0, 1 << range_bits]);
    for &class in &this.partitions {
        for _ in 0..this.classes[usize::from(class)].dimensions {
            this.xs.push(bits.read(range_bits)? as u16);
        }
    }
    Some(this)
}

fn read_residue(bits: &mut Bits<'_>, n_codebooks: usize) -> Option<Residue> {
    let kind = bits.read(16).filter(|&kind| kind <= 2)? as u8;
    let (begin, end, partition_size) = (bits.read(24)?, bits.read(24)?, bits.read(24)? + 1);
    let classifications = bits.read(6)? + 1;
    let class_book = walk_book(bits, n_codebooks)?;
    if begin > end {
        return None;
    }
    let mut used = [0; 64];
    let used = &mut used[..classifications as usize];
    for passes in &mut *used {
        let low = bits.read(3)?;
        let high = if bits.read(1)? == 1 { bits.read(5)? } else { 0 };
        *passes = high << 3 | low;
    }
    let mut this = Residue { kind, begin, end, partition_size, class_book, books: Vec::new() };
    for &mut passes in used {
        let mut books = [None; 8];
        for (pass, book) in books.iter_mut().enumerate() {
            if passes >> pass & 1 == 1 {
                *book = Some(walk_book(bits, n_codebooks)?);
            }
        }
        this.books.push(books);
    }
    Some(this)
}

/// The number of bits of `value` (section 9.2.1).
pub(super) fn ilog(value: u32) -> u32 {
    u32::BITS - value.leading_zeros()
}

#[cfg(test)]
fn swap_bits(bytes: &mut [u8], a: u64, b: u64) {
    let get = |bytes: &[u8], at: u64| bytes[(at / 8) as usize] >> (at % 8) & 1;
    if get(bytes, a) != get(bytes, b) {
        bytes[(a / 8) as usize] ^= 1 << (a % 8);
        bytes[(b / 8) as usize] ^= 1 << (b % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The identification and the setup header of a recording.
    fn headers(name: &str) -> (Vec<u8>, Vec<u8>) {
        use crate::ogg::{OggPackets, OggPages};
        let path =
            format!("{}/tests/data/audio/vorbis/{name}", concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let bytes = std::fs::read(path).unwrap();
        let pages: Vec<_> = OggPages::new(&bytes).collect();
        let mut packets = OggPackets::new(&bytes, &pages, 0);
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
        let mut bits = Bits::new(fields, 0);
        let n_codebooks = bits.read(8).unwrap() as usize + 1;
        for _ in 0..n_codebooks {
            walk_codebook(&mut bits).unwrap();
        }
        for _ in 0..=bits.read(6).unwrap() {
            bits.read(16).unwrap();
        }
        let n_floors = bits.read(6).unwrap() + 1;
        for _ in 0..n_floors {
            assert_eq!(bits.read(16), Some(1));
            read_floor1(&mut bits, n_codebooks).unwrap();
        }
        let n_residues = bits.read(6).unwrap() + 1;
        for _ in 0..n_residues {
            read_residue(&mut bits, n_codebooks).unwrap();
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
}
