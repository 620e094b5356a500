//! Opens AIFF and AIFF-C.
//!
//! Source: Apple "Audio Interchange File Format" 1.3 and "AIFF-C" draft 8/26/91. All integers are big-endian;
//! the rate is an 80-bit extended float; samples are left-justified in whole bytes.

use super::Format;
use crate::{
    DecoderCache, Info, Places, Result,
    adpcm::BlockLayout,
    corrupt,
    field::{Endian, array_at, u16_at, u32_at},
    formats::{AnyIndex, Opened},
    index_file::Parser,
    pcm::{Coding, PcmFormat, float_coding, int_coding},
    read_at::{HeaderBytes, RangeReader},
    unsupported,
};

/// The most bytes of a `COMM` chunk that are looked at.
const MAX_COMM: u64 = 4096;

#[derive(Debug)]
pub(crate) struct Aiff;

impl Format for Aiff {
    fn name(&self) -> &'static str {
        "aiff"
    }

    fn detect(&self, head: &[u8]) -> Result<bool> {
        match head.get(8..12) {
            _ if !head.starts_with(b"FORM") => Ok(false),
            None => Err(corrupt("the AIFF header is cut short")),
            Some(b"AIFF" | b"AIFC") => Ok(true),
            Some(other) => {
                Err(unsupported(format!("an IFF file of type `{}`, not AIFF", other.escape_ascii())))
            }
        }
    }

    fn places(&self) -> Places {
        Places::Plain
    }

    fn open<'a>(&self, _: &mut DecoderCache, reader: &mut RangeReader<'a>) -> Result<Option<Opened<'a>>> {
        Ok(reader.parse(find)?.map(Opened::from))
    }

    fn read_index(&self, from: &mut Parser<'_>, size: u64, info: Info) -> Option<AnyIndex> {
        PcmFormat::read(from, size, info).map(AnyIndex::Pcm)
    }
}

/// Finds the samples in `FORM AIFF` and `FORM AIFC`.
///
/// # Errors
/// `Corrupt` without `COMM` or `SSND`, `Unsupported` for compressions not decoded here, `Empty` without
/// samples.
fn find(file: &HeaderBytes<'_>) -> Result<PcmFormat> {
    let big = Endian::Big;
    let is_aifc = file.get_up_to(8, 4) == b"AIFC";
    let mut at = 12;
    let (mut comm, mut ssnd) = (None, None);
    while let Some(head) = file.get(at, 8)
        && let Some(size) = u32_at(head, 4, big).map(u64::from)
    {
        let body = at + 8;
        match &head[..4] {
            b"COMM" => comm = Some(file.get_up_to(body, size.min(MAX_COMM))),
            b"SSND" => ssnd = Some(body..file.size().min(body + size)),
            _ => {}
        }
        if comm.is_some() && ssnd.is_some() {
            break;
        }
        at = body + size + (size & 1);
    }
    let comm = comm.ok_or_else(|| corrupt("the AIFF file has no `COMM` chunk"))?;
    let ssnd = ssnd.ok_or_else(|| corrupt("the AIFF file has no `SSND` chunk"))?;
    let short = || corrupt(format!("the `COMM` chunk has {} bytes, at least 18 are needed", comm.len()));
    let channels = u16_at(comm, 0, big).ok_or_else(short)?;
    let frames = u32_at(comm, 2, big).ok_or_else(short)?;
    let bits = u16_at(comm, 6, big).ok_or_else(short)?;
    let rate = extended(array_at(comm, 8).ok_or_else(short)?)
        .ok_or_else(|| corrupt("the AIFF file's sample rate is not a positive 32-bit number"))?;
    let compression = if is_aifc { array_at(comm, 18).ok_or_else(short)? } else { *b"NONE" };
    let whole = usize::from(bits.div_ceil(8));
    let coding = match &compression {
        b"NONE" | b"twos" => int_coding(bits, whole, big)?,
        b"in24" => int_coding(24, 3, big)?,
        b"in32" => int_coding(32, 4, big)?,
        b"sowt" => int_coding(bits, whole, Endian::Little)?,
        b"42ni" => int_coding(24, 3, Endian::Little)?,
        b"23ni" => int_coding(32, 4, Endian::Little)?,
        b"raw " if bits <= 8 => Coding::Unsigned8,
        b"fl32" | b"FL32" => float_coding(32, big)?,
        b"fl64" | b"FL64" => float_coding(64, big)?,
        b"ima4" => Coding::Adpcm(BlockLayout::apple(channels)?),
        b"alaw" | b"ALAW" => Coding::Alaw,
        b"ulaw" | b"ULAW" => Coding::Mulaw,
        other => {
            let name = other.escape_ascii();
            return Err(unsupported(format!(
                "AIFF-C compression `{name}` is not decoded, only PCM, A-law, mu-law and IMA ADPCM; convert it with \
                 `ffmpeg -i in.aifc out.flac`"
            )));
        }
    };
    let offset = file.get(ssnd.start, 4).filter(|_| ssnd.end - ssnd.start >= 4);
    let offset = offset
        .and_then(|offset| u32_at(offset, 0, big))
        .ok_or_else(|| corrupt("the `SSND` chunk has no header"))?;
    let data = (ssnd.start + 8 + u64::from(offset)).min(ssnd.end)..ssnd.end;
    let n_samples = Some(u64::from(frames)).filter(|&n| n > 0);
    // Frames of `ima4` are blocks; some writers count samples.
    let n_samples = match &coding {
        Coding::Adpcm(blocks) => n_samples
            .map(|n| n.saturating_mul(blocks.unit().1))
            .filter(|&n| n <= blocks.n_samples(data.end - data.start)),
        _ => n_samples,
    };
    Ok(PcmFormat::new(data, coding, rate, channels, n_samples)?.with_declared_samples(n_samples))
}

/// Converts an 80-bit extended float (IEEE 754-1985) to a rate, rounded to the nearest integer.
fn extended(bytes: [u8; 10]) -> Option<u32> {
    let exponent = u16::from_be_bytes([bytes[0], bytes[1]]);
    let mantissa = u64::from_be_bytes(*bytes[2..].first_chunk()?);
    // Value = mantissa * 2^(exponent - 16383 - 63); the sign bit makes the exponent too large.
    let shift = 16383 + 63 - i32::from(exponent);
    let value = match shift {
        1..=63 => (u128::from(mantissa) + (1 << (shift - 1))) >> shift,
        0 => mantissa.into(),
        _ => return None,
    };
    u32::try_from(value).ok().filter(|&rate| rate > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_eighty_bits() {
        assert_eq!(extended([0x40, 0x0e, 0xac, 0x44, 0, 0, 0, 0, 0, 0]), Some(44100));
        assert_eq!(extended([0x40, 0x0c, 0xac, 0x44, 0, 0, 0, 0, 0, 0]), Some(11025));
        assert_eq!(extended([0xc0, 0x0e, 0xac, 0x44, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(extended([0; 10]), None);
    }
}
