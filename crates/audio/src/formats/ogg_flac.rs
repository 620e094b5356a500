//! Opens FLAC in Ogg: its concatenated packets are a native FLAC file.
//!
//! The bytes of one logical stream are copied out of the pages once (at memory speed), into memory that the
//! worker keeps. [`Flac`] does the rest. Damage of a page is found by the frames' CRC-16. A second FLAC
//! stream chained after the first is left out.
//!
//! Source: RFC 3533 (Ogg), RFC 9639 section 10.1 (FLAC in Ogg).

use super::{Format, flac::FlacIndex};
use crate::{
    DecoderCache, Info, Result, corrupt,
    decoder_cache::PooledVec,
    fallible_alloc,
    field::{Endian, u32_at},
    formats::{AnyIndex, Opened},
    index_file::Parser,
    joined::{self, CodecBytes},
    read_at::RangeReader,
};

/// Ogg whose first stream of sound is FLAC.
#[derive(Debug)]
pub(crate) struct OggFlac;

impl Format for OggFlac {
    fn name(&self) -> &'static str {
        "ogg-flac"
    }

    fn ogg_codec(&self) -> Option<(&'static [u8], &'static str)> {
        Some((b"\x7fFLAC", "FLAC"))
    }

    /// In memory only: a file is read whole.
    fn open<'a>(&self, cache: &mut DecoderCache, reader: &mut RangeReader<'a>) -> Result<Option<Opened<'a>>> {
        let Some(bytes) = reader.memory() else { return Ok(None) };
        let native = native(cache, bytes)?;
        let flac = FlacIndex::open(cache, &mut RangeReader::of_memory(&native))?;
        let bytes = Some(CodecBytes::Joined(native));
        Ok(flac.map(|flac| Opened { bytes, ..Opened::new(flac.info(), flac) }))
    }

    fn read_index(&self, _: &mut Parser<'_>, _: u64, _: Info) -> Option<AnyIndex> {
        None
    }
}

/// The packets of the first FLAC stream, one after the other.
fn native(cache: &mut DecoderCache, bytes: &[u8]) -> Result<PooledVec<u8>> {
    let mut native = joined::pooled_bytes(cache);
    fallible_alloc::reserve(&mut native, bytes.len())?;
    let (mut at, mut serial) = (0, None);
    while bytes.get(at..at + 4) == Some(&crate::signatures::OGG) {
        let Some(&n_segments) = bytes.get(at + 26) else { break };
        let body = at + 27 + usize::from(n_segments);
        let Some(lacing) = bytes.get(at + 27..body) else { break };
        let len: usize = lacing.iter().map(|&n| usize::from(n)).sum();
        let page = &bytes[body.min(bytes.len())..(body + len).min(bytes.len())];
        let this = u32_at(bytes, at + 14, Endian::Little);
        if serial.is_none() && page.starts_with(b"\x7fFLAC") {
            serial = this;
            // Packet type, signature, version and header count precede the native marker.
            native.extend_from_slice(page.get(9..).unwrap_or_default());
        } else if this == serial {
            native.extend_from_slice(page);
        }
        at = body + len;
    }
    if native.is_empty() {
        return Err(corrupt("no FLAC header among the Ogg pages"));
    }
    Ok(native)
}
