//! Core Audio Format with linear PCM, A-law or mu-law; other codecs go through a demuxer.
//!
//! Source: Apple "Core Audio Format Specification" 1.0.

use super::{
    corrupt,
    field::{Endian, clipped, u32_at, u64_at},
    pcm::{Coding, Pcm, float_coding, int_coding},
};
use crate::Result;

/// Opens `caff`; `None` if the samples are coded in packets.
///
/// # Errors
/// `Corrupt` without `desc` or `data`, `Unsupported` for widths not decoded here, `Empty` without samples.
pub(super) fn open(bytes: &[u8]) -> Result<Option<Pcm<'_>>> {
    let big = Endian::Big;
    let mut at = 8;
    let (mut desc, mut data) = (None, None);
    while let (Some(id), Some(size)) = (bytes.get(at..at + 4), u64_at(bytes, at + 4, big)) {
        let body = at + 12;
        match id {
            b"desc" => desc = Some(clipped(bytes, body, size)),
            // The data starts with an edit count of four bytes; a size of -1 means: to the end.
            b"data" => data = Some(clipped(clipped(bytes, body, size), 4, u64::MAX)),
            _ => {}
        }
        if desc.is_some() && data.is_some() {
            break;
        }
        match usize::try_from(size).ok().and_then(|size| body.checked_add(size)) {
            Some(next) => at = next,
            None => break,
        }
    }
    let desc = desc.ok_or_else(|| corrupt("the CAF file has no `desc` chunk"))?;
    let short = || corrupt(format!("the `desc` chunk has {} bytes, 32 are needed", desc.len()));
    let rate = f64::from_bits(u64_at(desc, 0, big).ok_or_else(short)?);
    let word = |i: usize| u32_at(desc, 8 + 4 * i, big).ok_or_else(short);
    let (format, flags, packet, frames, channels, bits) =
        (word(0)?, word(1)?, word(2)?, word(3)?, word(4)?, word(5)?);
    let is_linear = match &format.to_be_bytes() {
        b"lpcm" => true,
        b"alaw" | b"ulaw" => false,
        _ => return Ok(None),
    };
    let data = data.ok_or_else(|| corrupt("the CAF file has no `data` chunk"))?;
    let channels = u16::try_from(channels)
        .ok()
        .filter(|&n| n > 0)
        .ok_or_else(|| corrupt(format!("the CAF header says {channels} channels")))?;
    if !(0.5..=f64::from(u32::MAX)).contains(&rate) {
        return Err(corrupt(format!("the CAF header says {rate} samples per second")));
    }
    if frames != 1 || packet % u32::from(channels) != 0 {
        return Err(corrupt(format!(
            "PCM packets of {packet} bytes for {frames} frames of {channels} channels"
        )));
    }
    let stride = (packet / u32::from(channels)) as usize;
    let bits = u16::try_from(bits).map_err(|_| corrupt(format!("the CAF header says {bits} bits")))?;
    // Flag bits of linear PCM: 1 float, 2 little-endian.
    let endian = if flags & 2 != 0 { Endian::Little } else { big };
    let coding = match (is_linear, &format.to_be_bytes()) {
        (true, _) if flags & 1 != 0 && stride == usize::from(bits / 8) => float_coding(bits, endian)?,
        (true, _) if flags & 1 != 0 => return Err(corrupt(format!("{bits}-bit floats in {stride} bytes"))),
        (true, _) => int_coding(bits, stride, endian)?,
        (false, b"alaw") if stride == 1 => Coding::Alaw,
        (false, _) if stride == 1 => Coding::Mulaw,
        _ => return Err(corrupt(format!("companded samples of {stride} bytes"))),
    };
    Pcm::new(data, coding, rate.round() as u32, channels, None).map(Some)
}
