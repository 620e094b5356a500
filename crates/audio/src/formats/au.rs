//! Opens Sun and NeXT AU.
//!
//! Source: `audio(4)` header of the NeXT/Sun sound file: six big-endian words, then samples.

use super::Format;
use crate::{
    DecoderCache, Info, Places, Result, corrupt,
    field::{Endian, u32_at},
    formats::{AnyIndex, Opened},
    index_file::Parser,
    pcm::{Coding, PcmFormat, float_coding, int_coding},
    read_at::{HeaderBytes, RangeReader},
    unsupported,
};

#[derive(Debug)]
pub(crate) struct Au;

impl Format for Au {
    fn name(&self) -> &'static str {
        "au"
    }

    fn detect(&self, head: &[u8]) -> Result<bool> {
        Ok(head.starts_with(b".snd"))
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

/// Finds the samples in `.snd`.
///
/// # Errors
/// `Corrupt` with a header cut short, `Unsupported` for encodings not decoded here, `Empty` without samples.
fn find(file: &HeaderBytes<'_>) -> Result<PcmFormat> {
    let head = file.get_up_to(0, 24);
    let word = |i: usize| {
        u32_at(head, 4 * i, Endian::Big)
            .ok_or_else(|| corrupt("the AU header is cut short; 24 bytes are needed"))
    };
    // A size of all ones is unknown: the samples then extend to the end.
    let at = u64::from(word(1)?).min(file.size());
    let data = at..file.size().min(at + u64::from(word(2)?));
    let coding = match word(3)? {
        1 => Coding::Mulaw,
        27 => Coding::Alaw,
        kind @ 2..=5 => int_coding(8 * (kind as u16 - 1), kind as usize - 1, Endian::Big)?,
        6 => float_coding(32, Endian::Big)?,
        7 => float_coding(64, Endian::Big)?,
        kind => {
            return Err(unsupported(format!(
                "AU encoding {kind} is not decoded, only PCM, float, A-law, mu-law"
            )));
        }
    };
    let channels = word(5)?;
    let channels = u16::try_from(channels)
        .map_err(|_| corrupt(format!("the AU header declares {channels} channels")))?;
    let size = Some(u64::from(word(2)?)).filter(|&size| size != u64::from(u32::MAX));
    Ok(PcmFormat::new(data, coding, word(4)?, channels, None)?.with_declared_bytes(size))
}
