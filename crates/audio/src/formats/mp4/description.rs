//! The description of a sound track: its codec, and what the codec needs to know.
//!
//! Source: ISO/IEC 14496-12 section 12.2, 14496-14, 14496-1 section 7.2.6 (`esds`), 23003-5 (`pcmC`);
//! "Encapsulation of FLAC in ISO Base Media File Format" 0.0.4 (`dfLa`); QuickTime File Format (`wave`,
//! `enda`, versions of sound descriptions).

use std::ops::Range;

use super::{all_boxes, find};
use crate::{
    Codec, Result,
    adpcm::BlockLayout,
    corrupt,
    field::{Endian, u16_at, u32_at, u64_at},
    packet::{Edit, Packet},
    pcm::{Coding, PcmFormat, float_coding, int_coding},
    unsupported,
};

/// Bytes of STREAMINFO with the header of its block.
pub(super) const STREAMINFO: usize = 4 + 34;

/// How a track's samples are coded.
#[derive(Debug, Clone)]
pub(crate) enum Coded<'a> {
    /// AAC or ALAC in packets, and the setup of the decoder.
    Packets {
        codec: Codec,
        setup: &'a [u8],
    },
    /// FLAC frames, and the block with STREAMINFO.
    Flac {
        info: &'a [u8; STREAMINFO],
    },
    Mpeg,
    /// Samples or blocks of a fixed number of bytes.
    Linear(Linear),
}

/// Samples or blocks of a fixed number of bytes.
#[derive(Debug, Clone)]
pub(crate) struct Linear {
    coding: Coding,
    sample_rate: u32,
    channels: u16,
}

impl<'a> Coded<'a> {
    /// Reads the sample description `stsd` of a track with `timescale` ticks per second.
    ///
    /// # Errors
    /// `Corrupt` for a damaged description, `Unsupported` for several of them and for codecs not decoded
    /// here.
    pub(crate) fn of(stsd: &'a [u8], timescale: u32) -> Result<Self> {
        let damaged = || corrupt("the sample description of the sound track is damaged or cut short");
        let n = u32_at(stsd, 4, Endian::Big).ok_or_else(damaged)?;
        if n > 1 {
            return Err(unsupported(format!("a sound track with {n} sample descriptions; one is decoded")));
        }
        let (_, name, entry) = all_boxes(stsd.get(8..).unwrap_or_default()).next().ok_or_else(damaged)?;
        let inner = match u16_at(entry, 8, Endian::Big) {
            Some(0) => entry.get(28..),
            Some(1) => entry.get(44..),
            Some(2) => entry.get(64..),
            _ => None,
        };
        let inner = inner.ok_or_else(damaged)?;
        if let Some(linear) = Linear::of(name, entry, inner, timescale)? {
            return Ok(Self::Linear(linear));
        }
        // QuickTime puts the decoder's setup into a separate box.
        let setup = |name| find(inner, &[name]).or_else(|| find(inner, &[b"wave", name]));
        match name {
            b"alac" => {
                let cookie = setup(b"alac").and_then(|body| body.get(4..)).ok_or_else(damaged)?;
                Ok(Self::Packets { codec: Codec::Alac, setup: cookie })
            }
            b"fLaC" => {
                let info =
                    setup(b"dfLa").and_then(|body| body.get(4..)?.first_chunk()).ok_or_else(damaged)?;
                Some(Self::Flac { info }).filter(|_| info[0] & 0x7f == 0).ok_or_else(damaged)
            }
            b".mp3" | b"ms\0\x55" => Ok(Self::Mpeg),
            b"mp4a" => match elementary(setup(b"esds").ok_or_else(damaged)?).ok_or_else(damaged)? {
                (0x40 | 0x66..=0x68, Some(setup)) => Ok(Self::Packets { codec: Codec::Aac, setup }),
                (0x40 | 0x66..=0x68, None) => Err(damaged()),
                (0x69 | 0x6b, _) => Ok(Self::Mpeg),
                (kind, _) => {
                    let message = format!(
                        "MP4 audio of type 0x{kind:02x}; AAC (0x40), MPEG audio (0x69, 0x6b), ALAC, FLAC and PCM are decoded in MP4"
                    );
                    Err(unsupported(message))
                }
            },
            other => {
                let known = match other {
                    b"ac-3" => "AC-3 ",
                    b"ec-3" => "E-AC-3 ",
                    b"ac-4" => "AC-4 ",
                    b"dtsc" | b"dtse" | b"dtsh" | b"dtsl" => "DTS ",
                    b"Opus" => "Opus ",
                    b"samr" => "AMR ",
                    b"sawb" => "AMR-WB ",
                    b"QDM2" | b"QDMC" => "QDesign Music ",
                    b"enca" | b"drms" => "encrypted audio ",
                    b"raw " | b"NONE" | b"lpcm" => "PCM of an unusual width ",
                    _ => "",
                };
                let message = format!(
                    "{known}(`{}`) in MP4; AAC, ALAC, FLAC, MP3, PCM and IMA ADPCM are decoded there",
                    other.escape_ascii()
                );
                Err(unsupported(message))
            }
        }
    }

    /// Whether the codec needs the bytes of all packets one after the other, and no table of packets.
    pub(crate) fn is_joined(&self) -> bool {
        !matches!(self, Self::Packets { .. })
    }
}

impl Linear {
    /// The samples by the name of the coding, the description `entry` and the boxes after its fields; None
    /// for other codings.
    fn of(name: &[u8], entry: &[u8], inner: &[u8], timescale: u32) -> Result<Option<Self>> {
        let big = Endian::Big;
        let damaged = || corrupt("the sample description of the sound track is damaged or cut short");
        let is_long = u16_at(entry, 8, big) == Some(2);
        let (channels, bits, rate) = if is_long {
            let rate = f64::from_bits(u64_at(entry, 32, big).ok_or_else(damaged)?);
            (u32_at(entry, 40, big), u32_at(entry, 48, big), rate.round() as u32)
        } else {
            // 16 bits of the rate, and 16 of a fraction.
            let rate = u16_at(entry, 24, big).ok_or_else(damaged)?;
            (u16_at(entry, 16, big).map(u32::from), u16_at(entry, 18, big).map(u32::from), rate.into())
        };
        let channels = channels.and_then(|n| u16::try_from(n).ok()).ok_or_else(damaged)?;
        let bits = bits.and_then(|n| u16::try_from(n).ok()).ok_or_else(damaged)?;
        let whole = usize::from(bits.div_ceil(8));
        // QuickTime says in a box of its own that numbers are little-endian.
        let is_little = || {
            let flag = find(inner, &[b"wave", b"enda"]).or_else(|| find(inner, &[b"enda"]));
            flag.and_then(|flag| u16_at(flag, 0, big)) == Some(1)
        };
        let endian = || if is_little() { Endian::Little } else { big };
        let coding = match name {
            b"raw " | b"NONE" if bits == 8 => Coding::Unsigned8,
            b"NONE" if bits == 16 => int_coding(16, 2, big)?,
            b"twos" => int_coding(bits, whole, big)?,
            b"sowt" => int_coding(bits, whole, Endian::Little)?,
            b"in24" => int_coding(24, 3, endian())?,
            b"in32" => int_coding(32, 4, endian())?,
            b"fl32" => float_coding(32, endian())?,
            b"fl64" => float_coding(64, endian())?,
            b"alaw" => Coding::Alaw,
            b"ulaw" => Coding::Mulaw,
            b"ima4" => Coding::Adpcm(BlockLayout::apple(channels)?),
            b"lpcm" if is_long => {
                let flags = u32_at(entry, 52, big).ok_or_else(damaged)?;
                let bytes = u32_at(entry, 56, big).ok_or_else(damaged)?;
                if channels == 0 || bytes % u32::from(channels) != 0 {
                    return Err(damaged());
                }
                let stride = (bytes / u32::from(channels)) as usize;
                let endian = if flags & 2 != 0 { big } else { Endian::Little };
                // Flag bits: 1 float, 2 big-endian, 4 signed.
                match (flags & 1 != 0, flags & 4 != 0) {
                    (true, _) if stride == whole => float_coding(bits, endian)?,
                    (false, true) => int_coding(bits, stride, endian)?,
                    (false, false) if bits == 8 && stride == 1 => Coding::Unsigned8,
                    _ => return Ok(None),
                }
            }
            b"ipcm" | b"fpcm" => {
                let config =
                    find(inner, &[b"pcmC"]).and_then(|config| config.get(4..6)).ok_or_else(damaged)?;
                let endian = if config[0] & 1 != 0 { Endian::Little } else { big };
                let bits = u16::from(config[1]);
                match name {
                    b"fpcm" => float_coding(bits, endian)?,
                    _ => int_coding(bits, usize::from(bits.div_ceil(8)), endian)?,
                }
            }
            _ => return Ok(None),
        };
        let sample_rate = if rate == 0 { timescale } else { rate };
        Ok(Some(Self { coding, sample_rate, channels }))
    }

    /// Bytes and samples per channel of what is coded as one.
    fn unit(&self) -> (u64, u64) {
        match &self.coding {
            Coding::Adpcm(blocks) => blocks.unit(),
            linear => (linear.stride() as u64 * u64::from(self.channels), 1),
        }
    }

    /// The bytes of a chunk of `n` entries of `each` bytes; None if entries differ in size, or hold several
    /// units. QuickTime writes a size of 1 for whatever has a fixed size, and then counts samples.
    pub(crate) fn chunk(&self, each: u32, n: u32) -> Option<u64> {
        let (bytes, samples) = self.unit();
        match u64::from(each) {
            each if each == bytes => Some(u64::from(n) * bytes),
            1 => Some(u64::from(n) / samples * bytes),
            _ => None,
        }
    }

    /// The samples in `pieces` of a file, trimmed by `edit`; None if there are several pieces.
    ///
    /// # Errors
    /// As [`Self::cut`] and [`PcmFormat::new`].
    pub(crate) fn shape(&self, pieces: &[Packet], edit: Edit) -> Result<Option<PcmFormat>> {
        let [piece] = pieces else { return Ok(None) };
        let at = piece.at as u64;
        self.cut(at..at + u64::from(piece.len), edit).map(Some)
    }

    /// The samples in the bytes `data`, trimmed by `edit`.
    ///
    /// # Errors
    /// `Unsupported` for an edit that begins within a block, and the errors of [`PcmFormat::new`].
    pub(crate) fn cut(&self, data: Range<u64>, edit: Edit) -> Result<PcmFormat> {
        let (bytes, samples) = self.unit();
        let scale = |ticks: u64| {
            let timescale = edit.timescale.unwrap_or(self.sample_rate);
            u64::try_from(u128::from(ticks) * u128::from(self.sample_rate) / u128::from(timescale))
                .unwrap_or(u64::MAX)
        };
        let delay = scale(edit.delay);
        if delay % samples != 0 {
            return Err(unsupported(
                "an edit list that begins within a block of ADPCM; decode and encode the recording",
            ));
        }
        let start = data.start.saturating_add((delay / samples).saturating_mul(bytes)).min(data.end);
        let limit = edit.length.map(|length| scale(length).max(1));
        PcmFormat::new(start..data.end, self.coding.clone(), self.sample_rate, self.channels, limit)
    }
}

/// Reads type and setup from an `esds` box.
fn elementary(esds: &[u8]) -> Option<(u8, Option<&[u8]>)> {
    let stream = descriptor(esds.get(4..)?, 3)?;
    let flags = *stream.get(2)?;
    let mut at = 3;
    if flags & 0x80 != 0 {
        at += 2;
    }
    if flags & 0x40 != 0 {
        at += 1 + usize::from(*stream.get(at)?);
    }
    if flags & 0x20 != 0 {
        at += 2;
    }
    let config = descriptor(stream.get(at..)?, 4)?;
    Some((*config.first()?, descriptor(config.get(13..)?, 5)))
}

/// The first descriptor of kind `tag` directly in `bytes`.
fn descriptor(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    let mut rest = bytes;
    loop {
        let (&this, mut behind) = rest.split_first()?;
        let mut len = 0;
        for _ in 0..4 {
            let (&byte, next) = behind.split_first()?;
            behind = next;
            len = len << 7 | usize::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                break;
            }
        }
        let body = &behind[..len.min(behind.len())];
        if this == tag {
            return Some(body);
        }
        rest = &behind[body.len()..];
    }
}
