//! Opens Core Audio Format: linear PCM, A-law and mu-law directly, Apple Lossless in packets.
//!
//! symphonia's demuxer rejects the files that libsndfile writes, so the packet table is read here. If the
//! table counts a partial last packet in full, as ffmpeg's does, its length is read from the packet itself
//! ([`crate::demux`]).
//!
//! Source: Apple "Core Audio Format Specification" 1.0.

use std::ops::Range;

use super::Format;
use crate::{
    Codec, DecoderCache, Info, Places, Result,
    adpcm::BlockLayout,
    corrupt,
    decoder_cache::PooledVec,
    demux::{DecoderSetup, PacketPools},
    fallible_alloc,
    field::{Endian, u32_at, u64_at},
    formats::{AnyIndex, Opened},
    index_file::Parser,
    packet::{Edit, Packet},
    packet_index::{PacketIndex, PacketTable},
    pcm::{Coding, PcmFormat, float_coding, int_coding},
    read_at::{HeaderBytes, RangeReader},
    unsupported,
};

/// The most bytes of the chunks `desc` and `kuki` that are looked at.
const MAX_HEAD: u64 = 64 << 10;

#[derive(Debug)]
pub(crate) struct Caf;

impl Format for Caf {
    fn name(&self) -> &'static str {
        "caf"
    }

    fn detect(&self, head: &[u8]) -> Result<bool> {
        Ok(head.starts_with(b"caff"))
    }

    fn places(&self) -> Places {
        Places::Counted
    }

    fn open<'a>(&self, cache: &mut DecoderCache, reader: &mut RangeReader<'a>) -> Result<Option<Opened<'a>>> {
        match reader.parse(|file| find(cache, file))? {
            None => Ok(None),
            Some(CafContent::Pcm(shape)) => Ok(Some(shape.into())),
            Some(CafContent::Packets(table)) => Ok(table.open(cache, reader)?.map(Opened::from)),
        }
    }

    fn read_index(&self, from: &mut Parser<'_>, size: u64, info: Info) -> Option<AnyIndex> {
        match info.codec {
            Codec::Alac => PacketIndex::read(from, size, info).map(AnyIndex::Packets),
            _ => PcmFormat::read(from, size, info).map(AnyIndex::Pcm),
        }
    }
}

/// The place of the content in a CAF file.
enum CafContent {
    Pcm(PcmFormat),
    Packets(PacketTable),
}

/// Finds the samples or packets in `caff`.
///
/// # Errors
/// `Corrupt` without `desc` or `data`, `Unsupported` for codecs not decoded here, `Empty` without samples.
fn find(cache: &mut DecoderCache, file: &HeaderBytes<'_>) -> Result<CafContent> {
    let big = Endian::Big;
    let mut at = 8;
    let (mut desc, mut data, mut cookie, mut table) = (None, None, None, None);
    while let Some(head) = file.get(at, 12)
        && let Some(size) = u64_at(head, 4, big)
    {
        let body = at + 12;
        let end = body.saturating_add(size).min(file.size());
        match &head[..4] {
            b"desc" => desc = Some(file.get_up_to(body, size.min(MAX_HEAD))),
            b"kuki" => cookie = Some(file.get_up_to(body, size.min(MAX_HEAD))),
            b"pakt" => table = Some(body..end),
            // The data starts with an edit count of four bytes; with a size of -1 it extends to the end.
            b"data" => data = Some((body + 4).min(end)..end),
            _ => {}
        }
        match body.checked_add(size) {
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
        b"alaw" | b"ulaw" | b"alac" | b"ima4" => false,
        other => {
            let name = other.escape_ascii();
            return Err(unsupported(format!(
                "CAF codec `{name}` is not decoded, only PCM, A-law, mu-law, IMA ADPCM and ALAC"
            )));
        }
    };
    let data = data.ok_or_else(|| corrupt("the CAF file has no `data` chunk"))?;
    let channels = u16::try_from(channels)
        .ok()
        .filter(|&n| n > 0)
        .ok_or_else(|| corrupt(format!("the CAF header declares {channels} channels")))?;
    if !(0.5..=f64::from(u32::MAX)).contains(&rate) {
        return Err(corrupt(format!("the CAF header declares {rate} samples per second")));
    }
    if &format.to_be_bytes() == b"alac" {
        let missing = || corrupt("the CAF file lacks the chunk `kuki` or `pakt`, which its codec needs");
        let (cookie, table) = (cookie.ok_or_else(missing)?, table.ok_or_else(missing)?);
        let table = file.get(table.start, table.end - table.start).unwrap_or_default();
        let packets = cache.pools::<PacketPools>().packets.take();
        return alac(packets, cookie, table, data, packet, frames).map(CafContent::Packets);
    }
    if &format.to_be_bytes() == b"ima4" {
        let blocks = BlockLayout::apple(channels)?;
        if (u64::from(packet), u64::from(frames)) != blocks.unit() {
            return Err(corrupt(format!("IMA ADPCM packets of {packet} bytes for {frames} frames")));
        }
        // The packet table says how many samples of the last packet count.
        let valid = table.and_then(|table| file.get(table.start, 24));
        let priming = valid.and_then(|table| u32_at(table, 16, big)).unwrap_or(0);
        let valid = valid.and_then(|table| u64_at(table, 8, big)).filter(|&n| n > 0 && priming == 0);
        let valid = valid.filter(|&n| blocks.is_in_last(n, data.end - data.start));
        return PcmFormat::new(data, Coding::Adpcm(blocks), rate.round() as u32, channels, valid)
            .map(CafContent::Pcm);
    }
    if frames != 1 || packet % u32::from(channels) != 0 {
        return Err(corrupt(format!(
            "PCM packets of {packet} bytes for {frames} frames of {channels} channels"
        )));
    }
    let stride = (packet / u32::from(channels)) as usize;
    let bits = u16::try_from(bits).map_err(|_| corrupt(format!("the CAF header declares {bits} bits")))?;
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
    PcmFormat::new(data, coding, rate.round() as u32, channels, None).map(CafContent::Pcm)
}

/// Splits `data` into packets by the packet table, which has the sizes and lengths that `desc` does not fix,
/// as numbers of 7 bits a byte.
fn alac(
    mut packets: PooledVec<Packet>,
    cookie: &[u8],
    table: &[u8],
    data: Range<u64>,
    size: u32,
    frames: u32,
) -> Result<PacketTable> {
    let cut = || corrupt("the CAF packet table is cut short");
    let n_valid = u64_at(table, 8, Endian::Big).ok_or_else(cut)?;
    let priming = u32_at(table, 16, Endian::Big).ok_or_else(cut)?;
    let mut rest = table.get(24..).unwrap_or_default();
    let mut number = || {
        let mut value = 0u64;
        for (i, &byte) in rest.iter().enumerate().take(9) {
            value = value << 7 | u64::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                rest = &rest[i + 1..];
                return Some(value);
            }
        }
        None
    };
    let n_packets = u64_at(table, 0, Endian::Big).ok_or_else(cut)?;
    let mut at = data.start;
    for _ in 0..n_packets {
        let size = if size == 0 { number().ok_or_else(cut)? } else { size.into() };
        let frames = if frames == 0 { number().ok_or_else(cut)? } else { frames.into() };
        // A packet that reaches past the end of the bytes is missing, and so are all after it.
        let Some(len) = u32::try_from(size).ok().filter(|&len| u64::from(len) <= data.end - at) else {
            break;
        };
        if len == 0 {
            return Err(corrupt("the CAF packet table has a packet without bytes"));
        }
        fallible_alloc::push(
            &mut packets,
            Packet { at: at as usize, len, dur: u32::try_from(frames).unwrap_or(u32::MAX) },
        )?;
        at += u64::from(len);
    }
    let length = Some(n_valid).filter(|&n| n > 0);
    let edit = Edit { delay: priming.into(), length, rounded_by: 0, timescale: None };
    Ok(PacketTable { setup: DecoderSetup::new(Codec::Alac, cookie), packets, gap: 0, timescale: None, edit })
}
