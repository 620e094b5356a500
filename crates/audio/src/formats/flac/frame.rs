//! Parses FLAC frame headers, and finds the ends of frames.
//!
//! The two bytes of a sync code occur by chance in every recording. A header counts only if it is complete,
//! agrees with STREAMINFO and passes its CRC-8. A frame counts only if its CRC-16 is correct at a header with
//! the next number, or at the end of the bytes.
//!
//! Source: RFC 9639, sections 9.1 to 9.3.

use std::ops::Range;

use crate::checksum::crc16;

/// The most bytes of a frame header: 4 fixed, 7 number, 2 block size, 2 rate, 1 CRC.
pub(crate) const MAX_HEADER: usize = 16;

/// The properties that all frames of a stream share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) sample_rate: u32,
    pub(crate) channels: u8,
    pub(crate) bits: u8,
    /// The headers' bit for variable block size. It does not determine how frames are numbered: encoders
    /// before FLAC 1.2.0 had no such bit, and some later ones set it wrongly.
    pub(crate) is_variable: bool,
    /// If headers carry frame numbers: the samples per frame. `None` if they carry sample numbers.
    pub(crate) fixed: Option<u32>,
}

/// The coding of a frame's channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channels {
    Independent(u8),
    LeftSide,
    SideRight,
    MidSide,
}

impl Channels {
    pub(crate) fn count(self) -> u8 {
        if let Channels::Independent(n) = self { n } else { 2 }
    }

    /// The channel that holds a difference, and so has one bit more than the others.
    pub(crate) fn side(self) -> Option<u8> {
        match self {
            Channels::Independent(_) => None,
            Channels::SideRight => Some(0),
            Channels::LeftSide | Channels::MidSide => Some(1),
        }
    }
}

/// A frame header that passed its CRC-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) is_variable: bool,
    /// Frame number, or sample number in streams of variable block size.
    pub(crate) number: u64,
    /// Samples per channel.
    pub(crate) block: u32,
    sample_rate: Option<u32>,
    pub(crate) channels: Channels,
    bits: Option<u8>,
    /// Bytes of the header, CRC-8 included.
    pub(crate) len: usize,
}

/// A frame of a stream: its start in bytes and in samples, and its length in samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) at: usize,
    pub(crate) first: u64,
    pub(crate) block: u32,
}

impl Header {
    /// Parses the header at the start of `bytes`; `None` if there is no valid one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<4>()?;
        if head[0] != 0xff || head[1] & 0xfe != 0xf8 || head[3] & 1 != 0 {
            return None;
        }
        let (number, mut at) = coded_number(&bytes[4..bytes.len().min(MAX_HEADER)])?;
        at += 4;
        let block = match head[2] >> 4 {
            0 => return None,
            1 => 192,
            code @ 2..=5 => 576 << (code - 2),
            6 => {
                at += 1;
                u32::from(*bytes.get(at - 1)?) + 1
            }
            7 => {
                at += 2;
                u32::from(u16::from_be_bytes([*bytes.get(at - 2)?, *bytes.get(at - 1)?])) + 1
            }
            code => 256 << (code - 8),
        };
        let mut field = |n: usize| {
            let value = bytes.get(at..at + n)?.iter().fold(0u32, |value, &byte| value << 8 | u32::from(byte));
            at += n;
            Some(value)
        };
        let sample_rate = match head[2] & 15 {
            0 => None,
            12 => Some(field(1)? * 1000),
            13 => Some(field(2)?),
            14 => Some(field(2)? * 10),
            15 => return None,
            code => Some(
                [88200, 176_400, 192_000, 8000, 16000, 22050, 24000, 32000, 44100, 48000, 96000]
                    [usize::from(code) - 1],
            ),
        };
        let channels = match head[3] >> 4 {
            code @ 0..=7 => Channels::Independent(code + 1),
            8 => Channels::LeftSide,
            9 => Channels::SideRight,
            10 => Channels::MidSide,
            _ => return None,
        };
        let bits = match (head[3] >> 1) & 7 {
            0 => None,
            3 => return None,
            code => Some([8, 12, 0, 16, 20, 24, 32][usize::from(code) - 1]),
        };
        (crc8(&bytes[..at]) == *bytes.get(at)?).then_some(Self {
            is_variable: head[1] & 1 != 0,
            number,
            block,
            sample_rate,
            channels,
            bits,
            len: at + 1,
        })
    }

    /// Whether rate, channels and width are those of `stream`.
    pub(crate) fn agrees(&self, stream: &Stream) -> bool {
        self.sample_rate.is_none_or(|rate| rate == stream.sample_rate)
            && self.channels.count() == stream.channels
            && self.bits.is_none_or(|bits| bits == stream.bits)
    }

    /// The sample number of the frame's first sample, if the header agrees with its stream.
    pub(crate) fn first_in(&self, stream: &Stream) -> Option<u64> {
        match stream.fixed {
            _ if !self.agrees(stream) || self.is_variable != stream.is_variable => None,
            None => Some(self.number),
            Some(block) if self.block <= block => Some(self.number * u64::from(block)),
            Some(_) => None,
        }
    }
}

/// A number of 1 to 7 bytes in UTF-8 coding extended to 36 bits, and the number of bytes.
fn coded_number(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let n = match first.leading_ones() as usize {
        0 => return Some((first.into(), 1)),
        n @ 2..=7 => n,
        _ => return None,
    };
    let mut value = u64::from(first) & ((1 << (7 - n)) - 1);
    for &byte in bytes.get(1..n)? {
        if byte & 0xc0 != 0x80 {
            return None;
        }
        value = value << 6 | u64::from(byte & 0x3f);
    }
    Some((value, n))
}

/// The next frame of `stream` whose header starts in `range` and, if `first` is given, with that sample
/// number.
pub(crate) fn next_header(
    bytes: &[u8],
    stream: &Stream,
    range: Range<usize>,
    first: Option<u64>,
) -> Option<Frame> {
    let mut at = range.start;
    while let Some(found) = find_sync(bytes, at..range.end) {
        if let Some(header) = Header::parse(&bytes[found..])
            && let Some(number) = header.first_in(stream)
            && first.is_none_or(|first| first == number)
        {
            return Some(Frame { at: found, first: number, block: header.block });
        }
        at = found + 1;
    }
    None
}

/// Finds the end of `frame` and, unless it is the last one, the next frame; `None` if the frame is damaged or
/// cut short.
///
/// Reads at most `budget` bytes.
pub(crate) fn end_of(
    bytes: &[u8],
    stream: &Stream,
    frame: Frame,
    budget: usize,
) -> Option<(usize, Option<Frame>)> {
    let limit = bytes.len().min(frame.at.saturating_add(budget));
    let want = frame.first + u64::from(frame.block);
    let (mut from, mut crc, mut summed) = (frame.at + 1, 0, frame.at);
    while let Some(next) = next_header(bytes, stream, from..limit, Some(want)) {
        crc = crc16(crc, &bytes[summed..next.at]);
        summed = next.at;
        if crc == 0 {
            return Some((next.at, Some(next)));
        }
        from = next.at + 1;
    }
    if limit < bytes.len() {
        return None;
    }
    // The last frame ends with the bytes, or before an ID3v1 tag.
    let tag = bytes.len().saturating_sub(128);
    if tag > summed && bytes[tag..].starts_with(b"TAG") && crc16(crc, &bytes[summed..tag]) == 0 {
        return Some((tag, None));
    }
    (crc16(crc, &bytes[summed..]) == 0).then_some((bytes.len(), None))
}

/// Finds the header after the frame at `at` by the frame's CRC-16, with any number. Reads at most `budget`
/// bytes.
pub(crate) fn follower(bytes: &[u8], at: usize, budget: usize) -> Option<Header> {
    let limit = bytes.len().min(at.saturating_add(budget));
    let (mut from, mut crc, mut summed) = (at + 1, 0, at);
    while let Some(found) = find_sync(bytes, from..limit) {
        if let Some(header) = Header::parse(&bytes[found..]) {
            crc = crc16(crc, &bytes[summed..found]);
            summed = found;
            if crc == 0 {
                return Some(header);
            }
        }
        from = found + 1;
    }
    None
}

/// The headers of the first complete frame in `range` and of the next frame, with any numbers.
///
/// `work` bounds the bytes of unsuccessful searches.
pub(crate) fn linked(
    bytes: &[u8],
    range: Range<usize>,
    budget: usize,
    work: &mut usize,
) -> Option<(Header, Header)> {
    let mut at = range.start;
    while let Some(found) = find_sync(bytes, at..range.end) {
        if let Some(header) = Header::parse(&bytes[found..]) {
            if let Some(next) = follower(bytes, found, budget) {
                return Some((header, next));
            }
            *work = work.checked_sub(budget.min(bytes.len() - found))?;
        }
        at = found + 1;
    }
    None
}

/// The first offset in `range` with a sync code.
fn find_sync(bytes: &[u8], range: Range<usize>) -> Option<usize> {
    let end = range.end.min(bytes.len().saturating_sub(1));
    let mut at = range.start;
    while at < end {
        // A block at a time: the compiler vectorises this loop, since it has no branches.
        let block = &bytes[at..end.min(at + 64)];
        let pairs = block.iter().zip(&bytes[at + 1..]);
        let is_sync = |(&byte, &next): (&u8, &u8)| (byte == 0xff) & (next & 0xfe == 0xf8);
        if pairs.clone().fold(false, |found, pair| found | is_sync(pair)) {
            return pairs.into_iter().position(is_sync).map(|i| at + i);
        }
        at += block.len();
    }
    None
}

/// CRC-8 with polynomial x^8 + x^2 + x + 1, of a header.
pub(crate) fn crc8(bytes: &[u8]) -> u8 {
    let mut crc = 0;
    for &byte in bytes {
        crc ^= byte;
        for _ in 0..8 {
            crc = if crc & 0x80 != 0 { crc << 1 ^ 0x07 } else { crc << 1 };
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_the_standard() {
        // RFC 9639, appendix D.1: the header and the frame of the first example.
        let frame =
            [0xff, 0xf8, 0x69, 0x18, 0x00, 0x00, 0xbf, 0x03, 0x58, 0xfd, 0x03, 0x12, 0x8b, 0xaa, 0x9a];
        let header = Header::parse(&frame).unwrap();
        assert_eq!(
            (header.number, header.block, header.channels.side(), header.bits),
            (0, 1, None, Some(16))
        );
        assert_eq!((header.sample_rate, header.len), (Some(44100), 7));
        assert_eq!(crc16(0, &frame), 0);
    }
}
