//! Opens Sun and NeXT AU.
//!
//! Source: `audio(4)` header of the NeXT/Sun sound file: six big-endian words, then samples.

use super::{
    corrupt,
    field::{Endian, clipped, u32_at},
    pcm::{Coding, Pcm, float_coding, int_coding},
    unsupported,
};
use crate::Result;

/// Opens `.snd`.
///
/// # Errors
/// `Corrupt` with a header cut short, `Unsupported` for encodings not decoded here, `Empty` without samples.
pub(super) fn open(bytes: &[u8]) -> Result<Pcm<'_>> {
    let word = |i: usize| {
        u32_at(bytes, 4 * i, Endian::Big)
            .ok_or_else(|| corrupt("the AU header is cut short; 24 bytes are needed"))
    };
    // A size of all ones is unknown: the samples then extend to the end.
    let data = clipped(bytes, word(1)? as usize, word(2)?.into());
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
    Ok(Pcm::new(data, coding, word(4)?, channels, None)?.declaring_bytes(size))
}
