//! Reads the headers of an AAC stream: the setup of its decoder, the frames of ADTS, and whether it is
//! HE-AAC.
//!
//! The decoder used here decodes only the core of HE-AAC: half the rate, without the upper half of the
//! spectrum. Such a recording is refused and not decoded wrongly. It is recognised by its setup (explicitly,
//! or by an extension that older decoders skip), or only by its packets: spectral band replication (SBR) is
//! in a fill element after those of the core. Only decoding shows where the core's elements end. So each
//! position from which fill elements would extend exactly to the end of the packet is tested: the decoder
//! must accept a packet that ends there ([`has_sbr`]).
//!
//! Source: ISO/IEC 14496-3, sections 1.6.2 (setup), 1.6.5 (signalling of SBR), 1.A.2 (ADTS), 4.4.2
//! (elements).

use crate::{Result, corrupt, fallible_alloc, packet::Packet, unsupported};

/// Samples of a packet.
const FRAME: u32 = 1024;

/// Ids of elements in a packet: fill, and end of packet.
const FILL: u64 = 6;
const END: u64 = 7;

#[derive(Debug, Clone, Copy)]
struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl BitReader<'_> {
    /// The next `n <= 24` bits; None past the end.
    fn read(&mut self, n: usize) -> Option<u64> {
        let value = self.peek(self.at, n)?;
        self.at += n;
        Some(value)
    }

    /// `n <= 24` bits from bit `at` on.
    fn peek(&self, at: usize, n: usize) -> Option<u64> {
        if at + n > 8 * self.bytes.len() {
            return None;
        }
        let mut word = [0; 4];
        let rest = &self.bytes[at / 8..];
        let len = rest.len().min(4);
        word[..len].copy_from_slice(&rest[..len]);
        let word = u64::from(u32::from_be_bytes(word));
        Some(word >> (32 - at % 8 - n) & ((1 << n) - 1))
    }
}

/// Refuses a setup (`AudioSpecificConfig`) whose stream would be decoded wrongly.
///
/// # Errors
/// `Unsupported` for anything but low complexity in one or two channels, `Corrupt` if it is cut short.
pub(crate) fn check_setup(setup: &[u8]) -> Result<()> {
    let mut bits = BitReader { bytes: setup, at: 0 };
    let cut = || corrupt(format!("the setup of the AAC track is cut short: {} bytes", setup.len()));
    let kind = object_type(&mut bits).ok_or_else(cut)?;
    match kind {
        2 => {}
        5 | 29 => return Err(he_aac(kind == 29)),
        kind => {
            let name = match kind {
                1 => "AAC Main",
                3 => "AAC SSR",
                4 => "AAC LTP",
                23 => "AAC-LD",
                39 => "AAC-ELD",
                42 => "xHE-AAC (USAC)",
                _ => "MPEG-4 audio",
            };
            let message =
                format!("{name} (object type {kind}) is not decoded, only AAC-LC; convert it to FLAC or WAV");
            return Err(unsupported(message));
        }
    }
    sampling_frequency(&mut bits).ok_or_else(cut)?;
    match bits.read(4).ok_or_else(cut)? {
        1 | 2 => {}
        0 => {
            return Err(unsupported(
                "AAC whose channels are declared only in a program config element; one or two in a standard layout are decoded",
            ));
        }
        n => {
            // ISO/IEC 14496-3, table 1.19.
            let n = match n {
                7 | 12 | 14 => 8,
                11 => 7,
                13 => 24,
                n => n,
            };
            let message = format!("AAC of {n} channels; one or two are decoded: convert it to FLAC or WAV");
            return Err(unsupported(message));
        }
    }
    if bits.read(1).ok_or_else(cut)? == 1 {
        return Err(unsupported("AAC of 960 samples a packet; 1024 are decoded: convert it to FLAC or WAV"));
    }
    match extension(&mut bits) {
        Some(has_ps) => Err(he_aac(has_ps)),
        None => Ok(()),
    }
}

/// The setup of AAC-LC without what may follow the number of channels: some writers cut it there, although a
/// flag says that more follows. It stays as it is if even these fields are missing.
pub(crate) fn core_setup(setup: &[u8]) -> Vec<u8> {
    let mut bits = BitReader { bytes: setup, at: 0 };
    let mut end = || {
        object_type(&mut bits)?;
        sampling_frequency(&mut bits)?;
        bits.read(4)?;
        Some(bits.at)
    };
    let Some(end) = end() else { return setup.to_vec() };
    // The three flags after the channels are 0.
    let mut core: Vec<u8> =
        setup.iter().copied().take(end.div_ceil(8)).chain([0]).take((end + 3).div_ceil(8)).collect();
    if !end.is_multiple_of(8) {
        core[end / 8] &= !(0xff >> (end % 8));
    }
    core
}

fn object_type(bits: &mut BitReader<'_>) -> Option<u64> {
    match bits.read(5)? {
        31 => Some(32 + bits.read(6)?),
        kind => Some(kind),
    }
}

fn sampling_frequency(bits: &mut BitReader<'_>) -> Option<()> {
    if bits.read(4)? == 15 {
        bits.read(24)?;
    }
    Some(())
}

/// Reads the extension after the core's setup: None if it does not signal SBR, else whether it signals
/// parametric stereo, too.
fn extension(bits: &mut BitReader<'_>) -> Option<bool> {
    if bits.read(1)? == 1 {
        bits.read(14)?;
    }
    bits.read(1)?;
    bits.read(11).filter(|&sync| sync == 0x2b7)?;
    object_type(bits).filter(|&kind| kind == 5)?;
    bits.read(1).filter(|&is_there| is_there == 1)?;
    let mut ps = || {
        sampling_frequency(bits)?;
        bits.read(11).filter(|&sync| sync == 0x548)?;
        bits.read(1)
    };
    Some(ps() == Some(1))
}

pub(crate) fn he_aac(has_ps: bool) -> crate::Error {
    let what = if has_ps {
        "HE-AAC v2 (SBR and PS: spectral band replication, parametric stereo)"
    } else {
        "HE-AAC (SBR: spectral band replication)"
    };
    unsupported(format!(
        "{what} is not decoded: without it the recording would have half its rate and none of its upper frequencies; \
         convert it to AAC-LC, FLAC or WAV (ffmpeg -i in.m4a out.flac)"
    ))
}

/// Whether an AAC-LC packet carries SBR; `decodes` returns whether the core's decoder accepts a packet.
pub(crate) fn has_sbr(packet: &[u8], mut decodes: impl FnMut(&[u8]) -> bool) -> bool {
    let bits = BitReader { bytes: packet, at: 0 };
    let Some(&last) = packet.last() else { return false };
    if last == 0 {
        return false;
    }
    let Some(end) = (8 * packet.len() - last.trailing_zeros() as usize).checked_sub(3) else { return false };
    if bits.peek(end, 3) != Some(END) {
        return false;
    }
    (0..end).any(|at| {
        let Some(kind) = fill_kind(bits, at, end) else { return false };
        if !matches!(kind, 0xd | 0xe) {
            return false;
        }
        // The same packet, ended at the start of the fill element.
        let mut core = packet[..at / 8].to_vec();
        let rest = bits.peek(at / 8 * 8, at % 8).unwrap_or_default() << 3 | END;
        let shift = 16 - 3 - at % 8;
        core.extend(((rest << shift) as u16).to_be_bytes());
        decodes(&core)
    })
}

/// The content type of the first fill element, if fill elements extend from bit `at` exactly to `end`.
fn fill_kind(mut bits: BitReader<'_>, at: usize, end: usize) -> Option<u64> {
    bits.at = at;
    let mut first = None;
    while bits.at < end {
        bits.read(3).filter(|&element| element == FILL)?;
        let mut count = bits.read(4)?;
        if count == 15 {
            count = 14 + bits.read(8)?;
        }
        if first.is_none() {
            first = Some(bits.peek(bits.at, 4).filter(|_| count > 0)?);
        }
        bits.at += 8 * count as usize;
    }
    first.filter(|_| bits.at == end)
}

/// A walk over the frames of an ADTS stream, piece by piece.
///
/// Ends at the last complete frame, or at an invalid header.
#[derive(Debug, Default)]
pub(crate) struct AdtsWalk {
    /// Byte offset of the next frame.
    pub(crate) at: usize,
    /// The setup from the first header, and the length of that header.
    setup: Option<([u8; 2], u32)>,
}

impl AdtsWalk {
    /// Appends the positions of the packets in `bytes`, which begin at byte `base` of the stream; returns
    /// whether the stream ends there. If not, the walk continues with the bytes from [`Self::at`] on.
    /// `is_end` says whether these are the last bytes.
    ///
    /// # Errors
    /// `Unsupported` for several packets a frame.
    pub(crate) fn step(
        &mut self,
        bytes: &[u8],
        base: usize,
        is_end: bool,
        packets: &mut Vec<Packet>,
    ) -> Result<bool> {
        loop {
            let rest = bytes.get(self.at - base..).unwrap_or_default();
            let Some(skip) = rest.windows(2).position(|two| two[0] == 0xff && two[1] & 0xf6 == 0xf0) else {
                self.at += rest.len().saturating_sub(1);
                return Ok(is_end);
            };
            self.at += skip;
            let rest = &rest[skip..];
            let Some(head) = rest.first_chunk::<7>() else { return Ok(is_end) };
            let head_len = if head[1] & 1 == 0 { 9 } else { 7 };
            let len = usize::from(head[3] & 3) << 11 | usize::from(head[4]) << 3 | usize::from(head[5] >> 5);
            let rate = head[2] >> 2 & 15;
            if len < head_len || rate > 12 {
                return Ok(true);
            }
            if head[6] & 3 != 0 {
                return Err(unsupported("ADTS with several AAC packets a frame; one is decoded"));
            }
            if len > rest.len() {
                return Ok(is_end);
            }
            self.setup.get_or_insert_with(|| {
                let channels = u16::from((head[2] & 1) << 2 | head[3] >> 6);
                // Streams that declare SSR are low complexity in practice; the decoder refuses packets with
                // its tool.
                let kind = match u16::from(head[2] >> 6) + 1 {
                    3 => 2,
                    kind => kind,
                };
                let setup = kind << 11 | u16::from(rate) << 7 | channels << 3;
                (setup.to_be_bytes(), head_len as u32)
            });
            fallible_alloc::push(
                packets,
                Packet { at: self.at + head_len, len: (len - head_len) as u32, dur: FRAME },
            )?;
            self.at += len;
        }
    }

    /// The setup from the first header, and the length of that header.
    ///
    /// # Errors
    /// `Corrupt` without a frame.
    pub(crate) fn setup(&self) -> Result<([u8; 2], u32)> {
        self.setup.ok_or_else(|| corrupt("no whole ADTS frame"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn setups_say_what_they_are() {
        // AAC-LC of 44.1 kHz in stereo, without and with an extension.
        assert!(check_setup(&[0x12, 0x10]).is_ok());
        // An extension that signals the absence of SBR.
        assert!(check_setup(&[0x12, 0x10, 0x56, 0xe5, 0x00]).is_ok());
        for (setup, name) in [
            (&[0x13, 0x90, 0x56, 0xe5, 0xa0][..], "HE-AAC (SBR"),
            (&[0x13, 0x88, 0x56, 0xe5, 0xa5, 0x48, 0x80], "HE-AAC v2 (SBR and PS"),
            (&[0x2b, 0x92, 0x08, 0x00], "HE-AAC (SBR"),
            (&[0xeb, 0x8a, 0x08, 0x00], "HE-AAC v2"),
            (&[0xf9, 0x46, 0x40], "xHE-AAC"),
            (&[0x12, 0x30], "6 channels"),
            (&[0x12, 0x60], "8 channels"),
            (&[0x12, 0x00], "program config"),
            (&[0x12, 0x14], "960 samples"),
            (&[0x0a, 0x10], "AAC Main"),
        ] {
            let error = check_setup(setup).unwrap_err();
            assert!(error.kind == ErrorKind::Unsupported && error.to_string().contains(name), "{error}");
        }
        assert_eq!(check_setup(&[0x12]).unwrap_err().kind, ErrorKind::Corrupt);
    }

    #[test]
    fn setups_without_their_end_are_those_of_the_core() {
        // A core coder's delay is missing.
        assert!(check_setup(&[0x12, 0x12]).is_ok());
        for (setup, core) in [
            (&[0x12, 0x12][..], &[0x12, 0x10][..]),
            (&[0x12, 0x10, 0x56, 0xe5, 0x00], &[0x12, 0x10]),
            // A rate of 12 345 Hz, written out.
            (&[0x17, 0x80, 0x18, 0x1c, 0x8f], &[0x17, 0x80, 0x18, 0x1c, 0x88]),
            (&[0x12], &[0x12]),
        ] {
            assert_eq!(core_setup(setup), core);
        }
    }
}
