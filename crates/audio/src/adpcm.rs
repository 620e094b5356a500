//! Microsoft and IMA ADPCM in WAV blocks, and IMA ADPCM in the blocks of Apple (`ima4`).
//!
//! Every block starts with the decoder's whole state, so only the blocks that overlap the span are decoded.
//! Blocks are little-endian also in RIFX, whose byte order applies to the container's fields only.
//!
//! Source: Microsoft/IBM "New Multimedia Data Types and Data Techniques", chapters "Microsoft ADPCM" and "IMA
//! ADPCM". Deviation: the prediction of Microsoft ADPCM is shifted right (rounds down), as all encoders in
//! use do, where the text divides. Apple Technical Note TN1081 for `ima4`: its blocks begin with the upper 9
//! bits of a sample, and each is decoded from there on, as libsndfile does. Some players continue with the
//! exact sample of the block before if the header does not contradict it, which no span can know.

use std::ops::Range;

use crate::{
    Codec, Planes, Result, corrupt,
    field::{Endian, u16_at},
    unsupported,
};

#[rustfmt::skip]
const IMA_STEPS: [i32; 89] = [
    7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 21, 23, 25, 28, 31, 34, 37, 41, 45, 50, 55, 60, 66, 73, 80, 88, 97, 107, 118,
    130, 143, 157, 173, 190, 209, 230, 253, 279, 307, 337, 371, 408, 449, 494, 544, 598, 658, 724, 796, 876, 963, 1060,
    1166, 1282, 1411, 1552, 1707, 1878, 2066, 2272, 2499, 2749, 3024, 3327, 3660, 4026, 4428, 4871, 5358, 5894, 6484, 7132,
    7845, 8630, 9493, 10442, 11487, 12635, 13899, 15289, 16818, 18500, 20350, 22385, 24623, 27086, 29794, 32767,
];
/// Change of the step index by the low three bits of a code.
const IMA_INDEX: [i32; 8] = [-1, -1, -1, -1, 2, 4, 6, 8];
/// Factors, in 1/256, by which a code changes the step of Microsoft ADPCM.
static MS_ADAPT: [i32; 16] = [230, 230, 230, 230, 307, 409, 512, 614, 768, 614, 512, 409, 307, 230, 230, 230];

/// Bytes of a channel in a block of `ima4`.
const APPLE_BYTES: usize = 34;

#[derive(Debug, Clone, PartialEq, Eq)]
enum AdpcmKind {
    Ima,
    /// 34 bytes and 64 samples of each channel.
    Apple,
    /// Pairs of prediction coefficients, in 1/256.
    Ms(Vec<[i16; 2]>),
}

/// The geometry of an ADPCM recording's blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockLayout {
    kind: AdpcmKind,
    channels: usize,
    block_bytes: usize,
    /// Samples per channel and block.
    block_samples: usize,
}

impl BlockLayout {
    /// Format tag 0x0011. `own` are the codec's fields of the `fmt ` chunk: samples per block.
    pub(crate) fn ima(
        own: &[u8],
        endian: Endian,
        channels: u16,
        block_bytes: u16,
        bits: u16,
    ) -> Result<Self> {
        Self::new(AdpcmKind::Ima, own, endian, channels, block_bytes, bits)
    }

    /// Format tag 0x0002. `own` are the codec's fields of the `fmt ` chunk: samples per block, number of
    /// coefficient pairs, the pairs.
    pub(crate) fn ms(own: &[u8], endian: Endian, channels: u16, block_bytes: u16, bits: u16) -> Result<Self> {
        let n = u16_at(own, 2, endian).unwrap_or(0);
        let coefficient = |at| u16_at(own, at, endian).map(|x| x as i16);
        let pairs: Option<Vec<[i16; 2]>> = (0..usize::from(n.min(256)))
            .map(|i| Some([coefficient(4 + 4 * i)?, coefficient(6 + 4 * i)?]))
            .collect();
        match pairs {
            Some(pairs) if !pairs.is_empty() => {
                Self::new(AdpcmKind::Ms(pairs), own, endian, channels, block_bytes, bits)
            }
            _ => Err(corrupt("the Microsoft ADPCM header lacks its coefficients")),
        }
    }

    /// Blocks of `ima4`.
    ///
    /// # Errors
    /// `Unsupported` for more than two channels, `Corrupt` for none.
    pub(crate) fn apple(channels: u16) -> Result<Self> {
        match channels {
            0 => Err(corrupt("the header declares 0 channels")),
            1 | 2 => {
                let channels = usize::from(channels);
                Ok(Self {
                    kind: AdpcmKind::Apple,
                    channels,
                    block_bytes: APPLE_BYTES * channels,
                    block_samples: 64,
                })
            }
            _ => Err(unsupported(format!("ADPCM of {channels} channels is not decoded, only 1 or 2"))),
        }
    }

    fn new(
        kind: AdpcmKind,
        own: &[u8],
        endian: Endian,
        channels: u16,
        block_bytes: u16,
        bits: u16,
    ) -> Result<Self> {
        // Some writers leave it 0 for the usual 4.
        if !matches!(bits, 0 | 4) {
            return Err(unsupported(format!("ADPCM of {bits} bits a sample is not decoded, only of 4")));
        }
        if !(1..=2).contains(&channels) {
            return Err(unsupported(format!("ADPCM of {channels} channels is not decoded, only 1 or 2")));
        }
        let mut blocks =
            Self { kind, channels: channels.into(), block_bytes: block_bytes.into(), block_samples: 0 };
        blocks.block_samples = blocks.samples_in(blocks.block_bytes);
        // The header may declare fewer samples: the encoder left the end of each block unused.
        match u16_at(own, 0, endian).map(usize::from) {
            Some(said) if said > 0 && said < blocks.block_samples => blocks.block_samples = said,
            _ => {}
        }
        if blocks.block_samples == 0 {
            return Err(corrupt(format!(
                "ADPCM blocks of {block_bytes} bytes are too short for their header"
            )));
        }
        Ok(blocks)
    }

    /// Numbers from which [`Self::from_fields`] makes equal blocks.
    pub(crate) fn fields(&self) -> (&[[i16; 2]], [usize; 3]) {
        let pairs: &[_] = if let AdpcmKind::Ms(pairs) = &self.kind { pairs } else { &[] };
        (pairs, [self.channels, self.block_bytes, self.block_samples])
    }

    /// Blocks of Microsoft ADPCM with these coefficients, of IMA ADPCM without; None if the numbers
    /// contradict each other.
    pub(crate) fn from_fields(pairs: Vec<[i16; 2]>, fields: [usize; 3]) -> Option<Self> {
        let [channels, block_bytes, block_samples] = fields;
        let kind = match pairs.is_empty() {
            false => AdpcmKind::Ms(pairs),
            // No block of WAV has this length: it is 4 bytes for each channel, and 4 for each 8 samples of
            // it.
            true if block_bytes == APPLE_BYTES * channels && block_samples == 64 => AdpcmKind::Apple,
            true => AdpcmKind::Ima,
        };
        let blocks = Self { kind, channels, block_bytes, block_samples };
        let is_valid = (1..=2).contains(&channels)
            && block_bytes <= usize::from(u16::MAX)
            && (1..=blocks.samples_in(block_bytes)).contains(&block_samples);
        is_valid.then_some(blocks)
    }

    pub(crate) fn codec(&self) -> Codec {
        match self.kind {
            AdpcmKind::Ima | AdpcmKind::Apple => Codec::AdpcmIma,
            AdpcmKind::Ms(_) => Codec::AdpcmMs,
        }
    }

    /// Samples per channel in a block of `bytes` existing bytes.
    fn samples_in(&self, bytes: usize) -> usize {
        match self.kind {
            AdpcmKind::Ima => {
                bytes.checked_sub(4 * self.channels).map_or(0, |body| 1 + body / (4 * self.channels) * 8)
            }
            AdpcmKind::Apple => bytes / (APPLE_BYTES * self.channels) * 64,
            AdpcmKind::Ms(_) => {
                bytes.checked_sub(7 * self.channels).map_or(0, |body| 2 + body * 2 / self.channels)
            }
        }
    }

    /// Samples per channel in `bytes` bytes of blocks, the last of which may be cut short.
    pub(crate) fn n_samples(&self, bytes: u64) -> u64 {
        let (block_bytes, block_samples) = self.unit();
        let whole = (bytes / block_bytes).saturating_mul(block_samples);
        whole.saturating_add(self.samples_in((bytes % block_bytes) as usize).min(self.block_samples) as u64)
    }

    /// Bytes and samples per channel of a block.
    pub(crate) fn unit(&self) -> (u64, u64) {
        (self.block_bytes as u64, self.block_samples as u64)
    }

    /// Whether `n` samples end within the last block of `bytes` bytes. Only then is a `fact` chunk's number
    /// used, since some writers count other units. libsndfile divides by the channels once too often.
    pub(crate) fn is_in_last(&self, n: u64, bytes: u64) -> bool {
        let total = self.n_samples(bytes);
        let is_divided = self.channels > 1 && n == total / self.channels as u64;
        n <= total && n + self.block_samples as u64 > total && !is_divided
    }

    /// Decodes `span` of `data` into `out`; `scratch` holds two channels of a block, or two mono blocks.
    pub(crate) fn read(
        &self,
        data: &[u8],
        scratch: &mut Vec<i16>,
        span: Range<u64>,
        out: &mut Planes,
    ) -> Result<()> {
        let (start, end) = (span.start as usize, span.end as usize);
        let block_at = |block: usize| {
            let at = block * self.block_bytes;
            &data[at..(at + self.block_bytes).min(data.len())]
        };
        let mut done = start;
        while done < end {
            let block = done / self.block_samples;
            let one = block_at(block);
            let is_pair = self.channels == 1
                && (block + 1) * self.block_samples < end
                && data.len() >= (block + 2) * self.block_bytes;
            // Without another one, a mono block beside itself, which takes no longer than alone.
            let blocks = [one, if is_pair { block_at(block + 1) } else { one }];
            scratch.clear();
            match &self.kind {
                AdpcmKind::Ima => self.decode_ima(blocks, scratch)?,
                AdpcmKind::Apple => self.decode_apple(blocks, scratch)?,
                AdpcmKind::Ms(coefficients) => self.decode_ms(blocks, coefficients, scratch)?,
            }
            let pairs = scratch.as_chunks::<2>().0;
            for i in 0..1 + usize::from(is_pair) {
                let first = done - (block + i) * self.block_samples;
                let n = (self.block_samples - first).min(end - done);
                for c in 0..self.channels {
                    let to = &mut out.channel_mut(c)[done - start..][..n];
                    for (y, pair) in to.iter_mut().zip(&pairs[first..]) {
                        *y = f32::from(pair[i + c]) / 32768.0;
                    }
                }
                done += n;
            }
        }
        Ok(())
    }

    /// Decodes two mono blocks of IMA ADPCM, or both channels of the first, in turns: each is a chain of
    /// steps that wait for each other. A block has a sample and a step index per channel, then 8 codes per
    /// channel in turn.
    fn decode_ima(&self, blocks: [&[u8]; 2], out: &mut Vec<i16>) -> Result<()> {
        let channels = self.channels;
        let n = self.samples_in(blocks[0].len());
        // bounded: a block has less than 64 KiB.
        out.resize(2 * n, 0);
        let [one, other] = blocks.map(|block| block.as_chunks::<4>().0);
        let heads = [one[0], if channels == 2 { one[1] } else { other[0] }];
        let mut states = [Ima::default(); 2];
        for (state, head) in states.iter_mut().zip(heads) {
            *state = Ima::new(i16::from_le_bytes([head[0], head[1]]), head[2])?;
        }
        let [mut a, mut b] = states;
        let (first, to) = out.split_at_mut(2);
        first.copy_from_slice(&[a.sample as i16, b.sample as i16]);
        let to = to.as_chunks_mut::<16>().0.iter_mut();
        if channels == 2 {
            let codes = one[2..].as_chunks::<2>().0;
            to.zip(codes).for_each(|(to, [codes, others])| ima_eight(&mut a, &mut b, *codes, *others, to));
        } else {
            let codes = one[1..].iter().zip(&other[1..]);
            to.zip(codes).for_each(|(to, (codes, others))| ima_eight(&mut a, &mut b, *codes, *others, to));
        }
        Ok(())
    }

    /// Decodes two mono blocks of `ima4`, or both channels of the first: for each the upper 9 bits of a
    /// sample, 7 bits of a step index, and 64 codes.
    fn decode_apple(&self, blocks: [&[u8]; 2], out: &mut Vec<i16>) -> Result<()> {
        // bounded: a block has 64 samples.
        out.resize(2 * 64, 0);
        let [one, other] = blocks.map(|block| block.as_chunks::<APPLE_BYTES>().0);
        let Some((&one, rest)) = one.split_first() else { return Ok(()) };
        let Some(&other) = rest.first().or(other.first()) else { return Ok(()) };
        let mut states = [Ima::default(); 2];
        for (state, part) in states.iter_mut().zip([one, other]) {
            let head = u16::from_be_bytes([part[0], part[1]]);
            *state = Ima::new((head & 0xff80) as i16, (head & 0x7f) as u8)?;
        }
        let [mut a, mut b] = states;
        let codes = one[2..].as_chunks().0.iter().zip(other[2..].as_chunks().0);
        for (to, (codes, others)) in out.as_chunks_mut::<16>().0.iter_mut().zip(codes) {
            ima_eight(&mut a, &mut b, *codes, *others, to);
        }
        Ok(())
    }

    /// Decodes two mono blocks of Microsoft ADPCM, or both channels of the first, in turns. A block has a
    /// predictor, a step and two samples per channel, then codes in turn.
    fn decode_ms(&self, blocks: [&[u8]; 2], coefficients: &[[i16; 2]], out: &mut Vec<i16>) -> Result<()> {
        let channels = self.channels;
        let n = self.samples_in(blocks[0].len());
        // bounded: a block has less than 64 KiB.
        out.resize(2 * n, 0);
        let [one, other] = blocks;
        let mut states = [Ms::default(); 2];
        for (i, state) in states.iter_mut().enumerate() {
            let (block, c) = if channels == 2 { (one, i) } else { (blocks[i], 0) };
            *state = Ms::new(block, c, channels, coefficients)?;
        }
        let [mut a, mut b] = states;
        let (first, to) = out.split_at_mut(4);
        for (i, x) in [a.before2, b.before2, a.before, b.before].into_iter().enumerate() {
            first[i] = x as i16;
        }
        if channels == 2 {
            for (to, &byte) in to.as_chunks_mut::<2>().0.iter_mut().zip(&one[14..]) {
                *to = [a.next(byte >> 4), b.next(byte)];
            }
        } else {
            for (to, (&x, &y)) in to.as_chunks_mut::<4>().0.iter_mut().zip(one[7..].iter().zip(&other[7..])) {
                *to = [a.next(x >> 4), b.next(y >> 4), a.next(x), b.next(y)];
            }
        }
        Ok(())
    }
}

/// What a code of IMA ADPCM does, at `16 * step index + code`: the change of the sample, and in the lowest 11
/// bits 16 times the next step index.
static IMA_CODES: [i32; 16 * IMA_STEPS.len()] = {
    let mut codes = [0; 16 * IMA_STEPS.len()];
    let mut at = 0;
    while at < codes.len() {
        let (index, code) = (at / 16, at % 16);
        let step = IMA_STEPS[index];
        let mut change = step >> 3;
        if code & 4 != 0 {
            change += step;
        }
        if code & 2 != 0 {
            change += step >> 1;
        }
        if code & 1 != 0 {
            change += step >> 2;
        }
        let next = index as i32 + IMA_INDEX[code & 7];
        let last = IMA_STEPS.len() as i32 - 1;
        let next = if next < 0 {
            0
        } else if next > last {
            last
        } else {
            next
        };
        codes[at] = (if code & 8 != 0 { -change } else { change }) << 11 | next << 4;
        at += 1;
    }
    codes
};

/// The state of a channel of IMA ADPCM: its last sample and its step.
#[derive(Clone, Copy, Default)]
struct Ima {
    sample: i32,
    /// 16 times the step index.
    at: usize,
}

impl Ima {
    fn new(sample: i16, index: u8) -> Result<Self> {
        if usize::from(index) >= IMA_STEPS.len() {
            return Err(corrupt(format!(
                "an IMA ADPCM block starts with step index {index}, at most 88 is valid"
            )));
        }
        Ok(Self { sample: sample.into(), at: 16 * usize::from(index) })
    }

    /// The next sample, by the lowest 4 bits of `code`.
    #[inline(always)]
    fn next(&mut self, code: u32) -> i16 {
        let change = IMA_CODES[self.at | (code & 15) as usize];
        self.at = (change & 0x7f0) as usize;
        self.sample = (self.sample + (change >> 11)).clamp(-32768, 32767);
        self.sample as i16
    }
}

/// Decodes eight codes of each of two channels, in turns; the low half of each byte comes first.
#[inline(always)]
fn ima_eight(a: &mut Ima, b: &mut Ima, codes: [u8; 4], others: [u8; 4], out: &mut [i16; 16]) {
    let (codes, others) = (u32::from_le_bytes(codes), u32::from_le_bytes(others));
    for k in 0..8 {
        out[2 * k] = a.next(codes >> (4 * k));
        out[2 * k + 1] = b.next(others >> (4 * k));
    }
}

/// The state of a channel of Microsoft ADPCM: its predictor, step and last two samples.
#[derive(Clone, Copy, Default)]
struct Ms {
    /// The coefficients, in 1/256, of the sample before and of the one before that.
    first: i64,
    second: i64,
    before: i64,
    before2: i64,
    step: i64,
}

impl Ms {
    /// Channel `c` at the start of a block.
    fn new(block: &[u8], c: usize, channels: usize, coefficients: &[[i16; 2]]) -> Result<Self> {
        let head = |at: usize| i64::from(i16::from_le_bytes([block[at], block[at + 1]]));
        let which = usize::from(block[c]);
        let Some(&[first, second]) = coefficients.get(which) else {
            let have = coefficients.len();
            return Err(corrupt(format!("a Microsoft ADPCM block uses predictor {which} of {have}")));
        };
        Ok(Self {
            first: first.into(),
            second: second.into(),
            before: head(3 * channels + 2 * c),
            before2: head(5 * channels + 2 * c),
            step: head(channels + 2 * c),
        })
    }

    /// The next sample, by the lowest 4 bits of `code`.
    #[inline(always)]
    fn next(&mut self, code: u8) -> i16 {
        let signed = i64::from((code << 4) as i8 >> 4);
        let sum = self.before * self.first + self.before2 * self.second;
        let sample = ((sum >> 8) + signed * self.step).clamp(-32768, 32767);
        (self.before, self.before2) = (sample, self.before);
        let adapt = i64::from(MS_ADAPT[usize::from(code & 15)]);
        self.step = ((adapt * self.step) >> 8).clamp(16, i64::from(i32::MAX));
        sample as i16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_samples_that_are_believed() {
        // By libsndfile, at 44.1 kHz in stereo: blocks of 2041 samples, and a number divided by the channels.
        let blocks = BlockLayout::ima(&2041u16.to_le_bytes(), Endian::Little, 2, 2048, 4).unwrap();
        assert_eq!(blocks.n_samples(2048), 2041);
        for (n, bytes, is_believed) in [
            (2000, 2048, true),
            (1020, 2048, false),
            (2041, 4096, false),
            (3000, 4096, true),
            (2042, 2048, false),
        ] {
            assert_eq!(blocks.is_in_last(n, bytes), is_believed, "{n} of {bytes} bytes");
        }
        let mono = BlockLayout::ima(&2041u16.to_le_bytes(), Endian::Little, 1, 1024, 4).unwrap();
        assert!(mono.is_in_last(1020, 1024));
    }
}
