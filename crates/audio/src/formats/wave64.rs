//! Opens Wave64: RIFF with GUIDs as names and sizes of 64 bits.
//!
//! Source: Sony Wave64 specification.

use super::{
    Format,
    wav::{Data, MAX_FMT, WavContent, coded},
};
use crate::{
    DecoderCache, Info, Places, Result,
    field::{Endian, u32_at, u64_at},
    formats::{AnyIndex, Opened},
    index_file::Parser,
    pcm::PcmFormat,
    read_at::{HeaderBytes, RangeReader},
    unsupported,
};

/// The bytes of Wave64's chunk GUIDs after the four letters (all chunks but `riff`).
const WAVE64_TAIL: [u8; 12] = [0xf3, 0xac, 0xd3, 0x11, 0x8c, 0xd1, 0x00, 0xc0, 0x4f, 0x8e, 0xdb, 0x8a];

#[derive(Debug)]
pub(crate) struct Wave64;

impl Format for Wave64 {
    fn name(&self) -> &'static str {
        "wave64"
    }

    fn detect(&self, head: &[u8]) -> Result<bool> {
        Ok(head.starts_with(b"riff") && head.get(24..28) == Some(b"wave"))
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

/// Finds the samples in Wave64: chunks named by GUIDs, sizes of 64 bits that count the chunk's own header,
/// padded to 8 bytes.
///
/// # Errors
/// As in WAV.
fn find(file: &HeaderBytes<'_>) -> Result<PcmFormat> {
    let mut at = 40;
    let (mut fmt, mut data, mut fact) = (None, None, None);
    while let Some(head) = file.get(at, 24)
        && let Some(declared) = u64_at(head, 16, Endian::Little)
    {
        let body = at + 24;
        let size = declared.saturating_sub(24);
        if head[4..16] == WAVE64_TAIL {
            match &head[..4] {
                b"fmt " => fmt = Some(file.get_up_to(body, size.min(MAX_FMT))),
                b"fact" => fact = file.get(body, 4).and_then(|fact| u32_at(fact, 0, Endian::Little)),
                b"data" => data = Some(Data::new(body, size, file.size(), Some(size))),
                _ => {}
            }
        }
        if fmt.is_some() && data.is_some() {
            break;
        }
        let next = body.checked_add(size).and_then(|end| end.checked_next_multiple_of(8));
        match next.filter(|&next| next < file.size()) {
            Some(next) => at = next,
            None => break,
        }
    }
    match coded(fmt, data, fact, Endian::Little)? {
        WavContent::Pcm(shape) => Ok(shape),
        WavContent::Mpeg(_) => {
            Err(unsupported("MPEG audio in Wave64 is not decoded; convert it to WAV or MP3"))
        }
    }
}
