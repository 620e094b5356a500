//! The headers of a Vorbis stream, as far as packets' lengths need them.
//!
//! In go the identification and the setup header; out come rate, channels, block sizes and, for each mode, which block
//! size it has. The modes come last in the setup header, and what is before them has no length field, so all of it is
//! walked; nothing of it is built. The walk also bounds what a decoder will allocate: a codebook of a few bytes can
//! claim megabytes.
//!
//! Source: Vorbis I specification, sections 3.2.1, 4.2.2, 4.2.4, 6.2.1, 7.2.2, 8.6.1.

use super::super::{corrupt, unsupported};
use crate::Result;

/// The most vector values that all codebooks of a stream may have together: 16 MiB of float32; encoders use under 2.
const MAX_VALUES: u64 = 1 << 22;

/// What identification and setup header say about packets.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub channels: u8,
    pub sample_rate: u32,
    /// The two block sizes, short and long.
    block_sizes: [u16; 2],
    /// Bit `i` is set if mode `i` has long blocks.
    long_modes: u64,
    n_modes: u32,
    /// Bytes that the decoder's codebooks take, about.
    pub decoder_bytes: usize,
}

impl Setup {
    /// Reads both header packets.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Corrupt`] if one contradicts the specification, [`crate::ErrorKind::Unsupported`] for other
    /// versions and for codebooks of unreasonable size.
    pub fn parse(identification: &[u8], setup: &[u8]) -> Result<Self> {
        let Some(fields) = identification.strip_prefix(b"\x01vorbis").and_then(|rest| rest.first_chunk::<23>())
        else {
            return Err(corrupt("the Vorbis identification header is cut short"));
        };
        if fields[..4] != [0; 4] {
            return Err(unsupported("the Vorbis stream is not of version 0, the only one there is"));
        }
        let channels = fields[4];
        let sample_rate = u32::from_le_bytes([fields[5], fields[6], fields[7], fields[8]]);
        let (short, long) = (fields[21] & 15, fields[21] >> 4);
        if channels == 0 || sample_rate == 0 || short < 6 || long > 13 || short > long || fields[22] & 1 == 0 {
            return Err(corrupt(format!(
                "the Vorbis identification header has {channels} channels, {sample_rate} Hz and blocks of 2^{short} and \
                 2^{long} samples; expected at least 1, at least 1, and 2^6 to 2^13"
            )));
        }
        let Some(fields) = setup.strip_prefix(b"\x05vorbis") else {
            return Err(corrupt("the third packet of the Vorbis stream is not its setup header"));
        };
        let mut this = Self {
            channels,
            sample_rate,
            block_sizes: [1 << short, 1 << long],
            long_modes: 0,
            n_modes: 0,
            decoder_bytes: setup.len(),
        };
        match this.walk(&mut Bits { bytes: fields, at: 0 }) {
            Some(values) if values <= MAX_VALUES => {
                this.decoder_bytes = (4 * values) as usize + 8 * setup.len() + (usize::from(channels) << (long + 4));
                Ok(this)
            }
            Some(_) => Err(unsupported("the Vorbis setup header asks for codebooks of more than 16 MiB")),
            None => Err(corrupt("the Vorbis setup header contradicts the specification or is cut short")),
        }
    }

    /// The block size of the audio packet that begins with the byte `first`; none if it is not an audio packet.
    pub fn block_size(&self, first: Option<u8>) -> Option<u16> {
        let first = first.filter(|byte| byte & 1 == 0)?;
        let mode = u32::from(first >> 1) & ((1 << ilog(self.n_modes - 1)) - 1);
        (mode < self.n_modes).then(|| self.block_sizes[(self.long_modes >> mode & 1) as usize])
    }

    /// Walks the setup header and sets the modes; tells how many vector values its codebooks have.
    fn walk(&mut self, bits: &mut Bits<'_>) -> Option<u64> {
        let mut values = 0;
        for _ in 0..=bits.read(8)? {
            values += walk_codebook(bits)?;
        }
        for _ in 0..=bits.read(6)? {
            bits.read(16).filter(|&transform| transform == 0)?;
        }
        for _ in 0..=bits.read(6)? {
            match bits.read(16)? {
                0 => walk_floor0(bits)?,
                1 => walk_floor1(bits)?,
                _ => return None,
            }
        }
        for _ in 0..=bits.read(6)? {
            walk_residue(bits)?;
        }
        for _ in 0..=bits.read(6)? {
            walk_mapping(bits, u32::from(self.channels))?;
        }
        self.n_modes = bits.read(6)? + 1;
        for mode in 0..self.n_modes {
            self.long_modes |= u64::from(bits.read(1)?) << mode;
            // Window and transform type, both 0, and the mapping.
            bits.read(32).filter(|&types| types == 0)?;
            bits.read(8)?;
        }
        bits.read(1).filter(|&framing| framing == 1)?;
        Some(values)
    }
}

fn walk_codebook(bits: &mut Bits<'_>) -> Option<u64> {
    bits.read(24).filter(|&sync| sync == 0x56_4342)?;
    let (dimensions, entries) = (bits.read(16)?, bits.read(24)?);
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
        // A scalar codebook: its tree alone takes memory, some 16 bytes an entry.
        return Some(4 * u64::from(entries));
    }
    bits.skip(64)?;
    let value_bits = u64::from(bits.read(4)? + 1);
    bits.skip(1)?;
    let values = match lookup {
        1 => u64::from(lookup1_values(entries, dimensions)?),
        2 => u64::from(entries) * u64::from(dimensions),
        _ => return None,
    };
    bits.skip(values * value_bits)?;
    Some(u64::from(entries) * (u64::from(dimensions) + 4))
}

/// The greatest integer whose power to `dimensions` is at most `entries` (section 9.2.3).
fn lookup1_values(entries: u32, dimensions: u32) -> Option<u32> {
    if dimensions == 0 {
        return None;
    }
    let fits = |value: u32| value.checked_pow(dimensions).is_some_and(|power| power <= entries);
    let mut value = f64::from(entries).powf(1.0 / f64::from(dimensions)) as u32;
    while !fits(value) {
        value -= 1;
    }
    while fits(value + 1) {
        value += 1;
        if dimensions == 1 {
            return Some(entries);
        }
    }
    Some(value)
}

fn walk_floor0(bits: &mut Bits<'_>) -> Option<()> {
    bits.skip(8 + 16 + 16 + 6 + 8)?;
    let books = bits.read(4)? + 1;
    bits.skip(8 * u64::from(books))
}

fn walk_floor1(bits: &mut Bits<'_>) -> Option<()> {
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
            bits.skip(8)?;
        }
        bits.skip(8 << subclasses)?;
    }
    bits.skip(2)?;
    let range_bits = bits.read(4)?;
    let points: u32 = classes[..partitions].iter().map(|&class| dimensions[class]).sum();
    bits.skip(u64::from(points * range_bits))
}

fn walk_residue(bits: &mut Bits<'_>) -> Option<()> {
    bits.read(16).filter(|&kind| kind <= 2)?;
    bits.skip(24 + 24 + 24)?;
    let classifications = bits.read(6)? + 1;
    bits.skip(8)?;
    let mut books = 0;
    for _ in 0..classifications {
        let low = bits.read(3)?;
        let high = if bits.read(1)? == 1 { bits.read(5)? } else { 0 };
        books += low.count_ones() + high.count_ones();
    }
    bits.skip(8 * u64::from(books))
}

fn walk_mapping(bits: &mut Bits<'_>, channels: u32) -> Option<()> {
    bits.read(16).filter(|&kind| kind == 0)?;
    let submaps = if bits.read(1)? == 1 { bits.read(4)? + 1 } else { 1 };
    if bits.read(1)? == 1 {
        let steps = bits.read(8)? + 1;
        bits.skip(u64::from(steps * 2 * ilog(channels - 1)))?;
    }
    bits.read(2).filter(|&reserved| reserved == 0)?;
    if submaps > 1 {
        bits.skip(u64::from(4 * channels))?;
    }
    bits.skip(u64::from(24 * submaps))
}

/// The number of bits that `value` takes (section 9.2.1).
fn ilog(value: u32) -> u32 {
    u32::BITS - value.leading_zeros()
}

/// Reads bits, least significant first (section 2).
struct Bits<'a> {
    bytes: &'a [u8],
    at: u64,
}

impl Bits<'_> {
    /// The next `n <= 32` bits; none past the end.
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

    #[test]
    fn greatest_root_is_found() {
        for (entries, dimensions) in [(0, 1), (1, 1), (1, 32), (125, 3), (124, 3), (6561, 8), (1 << 23, 1), (2, 9)] {
            let root = lookup1_values(entries, dimensions).unwrap();
            assert!(root.pow(dimensions) <= entries, "{entries} {dimensions}");
            assert!((root + 1).checked_pow(dimensions).is_none_or(|power| power > entries), "{entries} {dimensions}");
        }
    }

    #[test]
    fn bits_come_least_significant_first() {
        let mut bits = Bits { bytes: &[0b1010_0110, 0xff], at: 0 };
        assert_eq!((bits.read(3), bits.read(5), bits.read(8)), (Some(0b110), Some(0b10100), Some(0xff)));
        assert_eq!((bits.read(0), bits.read(1)), (Some(0), None));
    }
}
