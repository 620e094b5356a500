//! Parses headers of MPEG audio frames, and the side information of layer III.
//!
//! Source: ISO/IEC 11172-3 section 2.4.1.3 and 2.4.2.3, ISO/IEC 13818-3 section 2.4.2.3; MPEG-2.5 is the
//! usual extension of MPEG-2 to half its rates.

pub(super) const HEADER_LEN: usize = 4;

/// Bit rates in kbit/s of MPEG-1 by layer and index; 0 is free format.
const RATES_1: [[u16; 15]; 3] = [
    [0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
    [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
];
/// Bit rates of MPEG-2 and 2.5: layer I, then layers II and III.
const RATES_2: [[u16; 15]; 2] = [
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub raw: [u8; HEADER_LEN],
    /// 1, 2 or 3.
    pub layer: u8,
    pub sample_rate: u32,
    pub channels: u8,
    /// Whether the rates are halved: MPEG-2 and 2.5.
    is_low_rate: bool,
    is_mpeg25: bool,
    has_crc: bool,
    /// Bytes of as many frames of this bit rate as a second has samples, and bytes of a slot, by which frames
    /// differ.
    rate: u32,
    slot: u8,
    /// Length of the frame with its header, in bytes; 0 for free format as long as its length is unknown.
    pub len: usize,
    /// Bytes of a frame of free format without padding; 0 for frames that declare their length.
    pub free: u32,
}

/// The longest frame of free format that is looked for: 640 kbit/s, the most that decoders must accept, at 32
/// kHz.
pub(crate) const MAX_FREE: usize = 2880;

impl Header {
    /// Parses the header at the start of `bytes`; None if there is none, or it has a reserved value.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let raw = *bytes.first_chunk::<HEADER_LEN>()?;
        let [sync, version, rates, mode] = raw;
        if sync != 0xff || version & 0xe0 != 0xe0 {
            return None;
        }
        let (is_low_rate, is_mpeg25) = match version >> 3 & 3 {
            0 => (true, true),
            2 => (true, false),
            3 => (false, false),
            _ => return None,
        };
        let layer = 4 - (version >> 1 & 3);
        let (index, rate) = (usize::from(rates >> 4), rates >> 2 & 3);
        if layer == 4 || index == 15 || rate == 3 {
            return None;
        }
        let divisor = 1 << (u8::from(is_low_rate) + u8::from(is_mpeg25));
        let sample_rate = [44_100, 48_000, 32_000][usize::from(rate)] / divisor;
        let kbits = match (is_low_rate, layer) {
            (false, _) => RATES_1[usize::from(layer - 1)][index],
            (true, 1) => RATES_2[0][index],
            (true, _) => RATES_2[1][index],
        };
        // Samples per frame / 8 bits, in slots of 4 bytes for layer I, else of 1 byte.
        let (factor, slot) = match layer {
            1 => (12_000, 4),
            3 if is_low_rate => (72_000, 1),
            _ => (144_000, 1),
        };
        let slots = factor * u32::from(kbits) / sample_rate + u32::from(rates >> 1 & 1);
        Some(Self {
            raw,
            layer,
            sample_rate,
            channels: if mode >> 6 == 3 { 1 } else { 2 },
            is_low_rate,
            is_mpeg25,
            has_crc: version & 1 == 0,
            rate: factor * u32::from(kbits) * slot as u32,
            slot: slot as u8,
            len: if index == 0 { 0 } else { slots as usize * slot },
            free: 0,
        })
    }

    /// Parses the header of another frame of this one's stream, whose frames may be of free format.
    pub(crate) fn parse_next(&self, bytes: &[u8]) -> Option<Self> {
        Some(Self::parse(bytes)?.of_free(self.free))
    }

    /// The header with these bytes and this [`Self::free`]; None if they contradict each other.
    pub(crate) fn of_parts(raw: &[u8; HEADER_LEN], free: u32) -> Option<Self> {
        Self::parse(raw)
            .filter(|header| free as usize <= MAX_FREE && (free > 0) == (header.len == 0))
            .map(|header| header.of_free(free))
    }

    /// The header of a frame of free format whose length without padding is `free`; others are unchanged.
    fn of_free(mut self, free: u32) -> Self {
        if self.len == 0 && free > 0 && self.layer == 3 {
            let has_padding = self.raw[2] & 2 != 0;
            self.free = free;
            self.len = free as usize + if has_padding { usize::from(self.slot) } else { 0 };
        }
        self
    }

    /// The header at the start of `bytes`, with its length also if it is of free format: that of the nearest
    /// frame with the same fixed bits, if another one follows that one in the same distance.
    ///
    /// Looks at up to `2 * MAX_FREE + 8` bytes.
    pub(crate) fn parse_first(bytes: &[u8]) -> Option<Self> {
        let header = Self::parse(bytes)?;
        if header.len > 0 || header.layer != 3 {
            return Some(header);
        }
        let is_same = |bytes: &[u8]| {
            Self::parse(bytes).is_some_and(|next| {
                next.len == 0
                    && header.is_akin(&next)
                    && (next.raw[1], next.raw[2] & 0xfd) == (header.raw[1], header.raw[2] & 0xfd)
            })
        };
        let least = header.side_offset() + header.side_len();
        let padding = usize::from(header.raw[2] >> 1 & 1);
        let last = bytes.len().saturating_sub(HEADER_LEN).min(MAX_FREE);
        let mut at = least;
        while at <= last {
            match bytes[at..=last].iter().position(|&byte| byte == 0xff) {
                Some(skipped) => at += skipped,
                None => break,
            }
            let free = header.of_free((at - padding) as u32);
            if is_same(&bytes[at..])
                && let Some(next) = free.parse_next(&bytes[at..])
                && (at + next.len == bytes.len() || bytes.get(at + next.len..).is_some_and(is_same))
            {
                return Some(free);
            }
            at += 1;
        }
        Some(header)
    }

    /// Whether `other` can be a frame of the same stream.
    pub(crate) fn is_akin(&self, other: &Self) -> bool {
        let key = |it: &Self| (it.layer, it.sample_rate, it.channels);
        key(self) == key(other)
    }

    /// Whether `other` has the same bit rate, too.
    pub(crate) fn has_rate_of(&self, other: &Self) -> bool {
        self.is_akin(other) && (self.rate, self.is_low_rate) == (other.rate, other.is_low_rate)
    }

    /// Bytes of `n` frames at a constant bit rate.
    pub(crate) fn bytes_of(&self, n: u64) -> u64 {
        (u128::from(n) * u128::from(self.rate) / u128::from(self.sample_rate)) as u64
    }

    /// Whether frame number `n` may begin `bytes` bytes after the first one at a constant bit rate: encoders
    /// round to slots in their own ways.
    pub(crate) fn is_near(&self, bytes: u64, n: u64) -> bool {
        bytes.abs_diff(self.bytes_of(n)) <= 2 * u64::from(self.slot)
    }

    /// Samples per channel in one frame.
    pub(crate) fn n_samples(&self) -> u32 {
        match self.layer {
            1 => 384,
            3 if self.is_low_rate => 576,
            _ => 1152,
        }
    }

    /// Length of the side information of layer III.
    pub(crate) fn side_len(&self) -> usize {
        match (self.is_low_rate, self.channels) {
            (false, 1) => 17,
            (false, _) => 32,
            (true, 1) => 9,
            (true, _) => 17,
        }
    }

    /// The offset of the side information in the frame.
    pub(crate) fn side_offset(&self) -> usize {
        HEADER_LEN + if self.has_crc { 2 } else { 0 }
    }

    /// Reads the position of the main data of the layer III frame `frame`.
    pub(super) fn main_data(&self, frame: &[u8]) -> MainData {
        let begin = self.side_offset() + self.side_len();
        let Some(side) = frame.get(self.side_offset()..begin) else { return MainData::default() };
        let (begin_bits, granules) = self.granules();
        let used_bits = granules.map(|at| bits(side, at, 12)).sum();
        MainData { back: bits(side, 0, begin_bits), len: frame.len() - begin, used_bits }
    }

    /// Whether the layer III frame `frame` has a mixed block: two windows in one granule, one for its two
    /// lowest subbands and one for the others.
    pub(crate) fn has_mixed_block(&self, frame: &[u8]) -> bool {
        if self.layer != 3 {
            return false;
        }
        let begin = self.side_offset();
        let Some(side) = frame.get(begin..begin + self.side_len()) else { return false };
        // After part2_3_length (12), big_values (9), global_gain (8) and scalefac_compress (4 or 9).
        let window = if self.is_low_rate { 38 } else { 33 };
        let (_, mut granules) = self.granules();
        // window_switching_flag, block_type and mixed_block_flag; an invalid value is damage and not a mixed
        // block.
        granules.any(|at| {
            let is_switched = bits(side, at + window, 1) == 1;
            let block_type = bits(side, at + window + 1, 2);
            let is_mixed = bits(side, at + window + 3, 1) == 1;
            is_switched && is_mixed && block_type != 0 && bits(side, at + 12, 9) <= 288
        })
    }

    /// Bits of `main_data_begin`, and the start of each channel of each granule in the side information.
    fn granules(&self) -> (usize, impl Iterator<Item = usize>) {
        let channels = usize::from(self.channels);
        // The fields before the granules, the number of granules, the bits per granule and channel.
        let (begin_bits, first, granules, step) = match (self.is_low_rate, channels) {
            (false, 1) => (9, 9 + 5 + 4, 2, 59),
            (false, _) => (9, 9 + 3 + 8, 2, 59),
            (true, 1) => (8, 8 + 1, 1, 63),
            (true, _) => (8, 8 + 2, 1, 63),
        };
        (begin_bits, (0..granules * channels).map(move |i| first + i * step))
    }
}

/// The `n <= 16` bits of `side` from bit `at` on.
fn bits(side: &[u8], at: usize, n: usize) -> usize {
    let byte = |i: usize| usize::from(side.get(at / 8 + i).copied().unwrap_or(0));
    (byte(0) << 16 | byte(1) << 8 | byte(2)) >> (24 - at % 8 - n) & ((1 << n) - 1)
}

/// The position of the main data of a layer III frame: it begins `back` bytes before the main data in the
/// frame itself, and has `used_bits` bits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MainData {
    /// `main_data_begin`.
    pub back: usize,
    /// Bytes of main data in this frame.
    pub len: usize,
    /// Sum of `part2_3_length`.
    pub used_bits: usize,
}

/// Tracks the bytes of main data that a decoder holds and has not used, after each frame.
///
/// A decoder that starts at a frame lacks the bytes before it. After the first frame with all of its main
/// data it holds the same bytes as in a full decode. Earlier frames give silence for the granules whose start
/// is missing.
#[derive(Debug, Default)]
pub(super) struct ReservoirCount {
    unused: usize,
}

impl ReservoirCount {
    /// Feeds a frame; returns whether the decoder has all of its main data.
    pub(super) fn feed(&mut self, frame: MainData) -> bool {
        let missing = frame.back.saturating_sub(self.unused);
        let held = frame.back.min(self.unused) + frame.len;
        let used = frame.used_bits.saturating_sub(8 * missing).div_ceil(8);
        self.unused = held.saturating_sub(used);
        missing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_follow_the_standard() {
        // MPEG-1 layer III 128 kbit/s 44.1 kHz with padding, joint stereo.
        let header = Header::parse(&[0xff, 0xfb, 0x92, 0x64]).unwrap();
        assert_eq!((header.layer, header.sample_rate, header.channels, header.len), (3, 44_100, 2, 418));
        // MPEG-2.5 layer III 8 kbit/s 8 kHz mono.
        let header = Header::parse(&[0xff, 0xe3, 0x18, 0xc0]).unwrap();
        assert_eq!(
            (header.sample_rate, header.channels, header.n_samples(), header.len),
            (8_000, 1, 576, 72)
        );
        // Layer I counts in slots of 4 bytes.
        let header = Header::parse(&[0xff, 0xff, 0xc0, 0x00]).unwrap();
        assert_eq!((header.layer, header.n_samples(), header.len), (1, 384, 416));
        for reserved in
            [[0xff, 0xeb, 0x90, 0], [0xff, 0xf9, 0x90, 0], [0xff, 0xfb, 0xf0, 0], [0xff, 0xfb, 0x9c, 0]]
        {
            assert_eq!(Header::parse(&reserved), None);
        }
    }
}
