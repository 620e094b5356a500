//! The metadata of a FLAC file: STREAMINFO, the seek table, and the first frame's header.
//!
//! Input: the first bytes of a file. Output: the shape that all frames share, and where they begin.
//! STREAMINFO is a claim: its length counts only if the last frame agrees, and its largest block only if the
//! first frame's is not larger.
//!
//! Source: RFC 9639, section 8.

use std::ops::Range;

use crate::{
    Codec, Error, ErrorKind, Info, Result, corrupt,
    formats::flac::frame::{Header, MAX_HEADER, Stream},
    id3,
    read_at::{HeaderBytes, MAX_JUNK},
    unsupported,
};

/// The bytes of the shortest frame: a header of 6 bytes, a constant subframe of 2, a CRC-16 of 2.
const MIN_FRAME: usize = 10;
pub(super) const STREAMINFO: usize = 34;
/// The most seek points that are looked at.
const MAX_SEEK_POINTS: usize = 1 << 16;

/// The properties of a recording that all its frames share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) info: Info,
    pub(crate) stream: Stream,
    /// STREAMINFO for the decoder, with the largest block corrected by the first frame.
    pub(crate) setup: [u8; STREAMINFO],
    /// Samples per channel in STREAMINFO; 0 if unknown.
    pub(crate) declared: u64,
}

/// What the metadata and the first frame's header say.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) shape: Shape,
    pub(crate) seek_table: Range<u64>,
    /// Byte offset and samples of the first frame.
    pub(crate) at: u64,
    pub(crate) block: u32,
    /// The bytes of the largest frame in STREAMINFO; 0 if unknown.
    pub(crate) largest_frame: u32,
}

impl Shape {
    /// The bytes within which the end of a frame is searched: twice the largest frame stored verbatim, and
    /// 64.
    pub(crate) fn frame_budget(&self) -> usize {
        let largest = usize::from(u16::from_be_bytes([self.setup[2], self.setup[3]]));
        let verbatim = largest * usize::from(self.stream.channels) * (usize::from(self.stream.bits) + 1) / 8;
        // A subframe may be larger than verbatim. No encoder reaches twice that, and the budget only bounds a
        // search.
        2 * verbatim + 64
    }

    /// The most samples that frames in `bytes` bytes can hold; a header that declares more is wrong.
    pub(crate) fn most_samples(&self, bytes: u64) -> u64 {
        let largest = u64::from(u16::from_be_bytes([self.setup[2], self.setup[3]]));
        (bytes / MIN_FRAME as u64 + 1).saturating_mul(largest)
    }
}

/// The most bytes of tags and padding that may follow the last frame of a length that is believed.
const MOST_BEHIND: u64 = 16 << 10;

impl Head {
    /// Whether STREAMINFO's length is possible with `bytes` bytes of frames: not more samples than they can
    /// hold, and not more bytes than its largest frame allows. Two recordings in one file usually have more.
    pub(crate) fn can_be(&self, bytes: u64) -> bool {
        let Shape { declared, stream, .. } = self.shape;
        let most_bytes = match stream.fixed {
            Some(block) if self.largest_frame > 0 => {
                let n_frames = declared.div_ceil(block.max(1).into());
                n_frames.saturating_mul(self.largest_frame.into()).saturating_add(MOST_BEHIND)
            }
            _ => u64::MAX,
        };
        declared > 0 && declared <= self.shape.most_samples(bytes) && bytes <= most_bytes
    }

    /// Reads the metadata and the first frame's header.
    ///
    /// # Errors
    /// `Corrupt` without STREAMINFO or a valid first frame, `Empty` without frames.
    pub(crate) fn find(file: &HeaderBytes<'_>) -> Result<Self> {
        let tags = id3::skip(file);
        let junk = match file.get_up_to(tags, 4) == crate::signatures::FLAC {
            true => Some(0),
            false => super::flac_marker(file.get_up_to(tags, MAX_JUNK as u64)),
        };
        let junk = junk.ok_or_else(|| corrupt("the FLAC marker is missing").at_byte(tags))?;
        let mut at = tags + junk as u64 + 4;
        let (mut setup, mut seek_table) = (None, 0..0);
        loop {
            let Some(&[head, a, b, c]) = file.get(at, 4).and_then(|head| head.first_chunk::<4>()) else {
                return Err(corrupt("the FLAC metadata run past the end of the bytes").at_byte(at));
            };
            let len = u64::from(u32::from_be_bytes([0, a, b, c]));
            let body = at + 4;
            match head & 0x7f {
                0 if setup.is_none() => {
                    setup = file.get(body, STREAMINFO as u64).and_then(|body| body.first_chunk()).copied();
                }
                3 => seek_table = body.min(file.size())..(body + len).min(file.size()),
                _ => {}
            }
            at = body + len;
            if head & 0x80 != 0 {
                break;
            }
        }
        let mut setup: [u8; STREAMINFO] =
            setup.ok_or_else(|| corrupt("the FLAC file has no STREAMINFO block"))?;
        let largest_frame = u32::from_be_bytes([0, setup[7], setup[8], setup[9]]);
        let packed = u64::from_be_bytes([
            setup[10], setup[11], setup[12], setup[13], setup[14], setup[15], setup[16], setup[17],
        ]);
        let total = packed & ((1 << 36) - 1);
        let mut stream = Stream {
            sample_rate: (packed >> 44) as u32,
            channels: ((packed >> 41) & 7) as u8 + 1,
            bits: ((packed >> 36) & 31) as u8 + 1,
            is_variable: false,
            fixed: None,
        };
        if stream.bits < 4 {
            return Err(corrupt(format!(
                "the FLAC file declares {} bits per sample; 4 to 32 are possible",
                stream.bits
            )));
        }
        if stream.sample_rate == 0 {
            return Err(unsupported("the FLAC file has a sample rate of 0, so it holds no audio"));
        }
        let none = |at| {
            if at == file.size() {
                return Error::new(ErrorKind::Empty, "the FLAC file has metadata but no frames");
            }
            corrupt("no valid frame that agrees with STREAMINFO follows the FLAC metadata").at_byte(at)
        };
        let header = Header::parse(file.get_up_to(at, MAX_HEADER as u64)).ok_or_else(|| none(at))?;
        stream.is_variable = header.is_variable;
        // If frames hold one sample, both numbers are the same.
        stream.fixed = (!header.is_variable && header.block > 1).then_some(header.block);
        match header.first_in(&stream).ok_or_else(|| none(at))? {
            0 => {}
            first => {
                let message = format!(
                    "the first FLAC frame begins at sample {first}: the file was cut out of another one without \
                     encoding it again; encode it again, so that it begins at 0"
                );
                return Err(unsupported(message).at_byte(at));
            }
        }
        let largest = u32::from(u16::from_be_bytes([setup[2], setup[3]])).max(header.block).max(16);
        setup[2..4].copy_from_slice(&(largest.min(65535) as u16).to_be_bytes());
        let info = Info {
            codec: Codec::Flac,
            sample_rate: stream.sample_rate,
            channels: stream.channels.into(),
            n_samples: total,
        };
        let shape = Shape { info, stream, setup: decoder_setup(setup), declared: total };
        Ok(Self { shape, seek_table, at, block: header.block, largest_frame })
    }
}

/// The seek points of a seek table: samples, and bytes after the first frame. Placeholders are all ones, so
/// they are past the end.
pub(crate) fn seek_points(table: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    table.as_chunks::<18>().0.iter().take(MAX_SEEK_POINTS).map(|point| {
        let number =
            |at: usize| point[at..at + 8].iter().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
        (number(0), number(8))
    })
}

/// Clears the fields that differ between recordings but affect no frame (sizes, total, MD5), so that
/// recordings share a decoder.
fn decoder_setup(mut setup: [u8; STREAMINFO]) -> [u8; STREAMINFO] {
    setup[0..2].copy_from_slice(&[0, 16]);
    setup[4..10].fill(0);
    setup[13] &= 0xf0;
    setup[14..].fill(0);
    setup
}
