//! Decodes the samples of a FLAC frame, and converts them to floats.
//!
//! Input: the bytes of a frame. Output: planar float32 samples of full scale 1. The samples are exact:
//! integers of 32 bits, rounded once to float32.
//!
//! | RFC 9639 | here |
//! |---|---|
//! | 8.2 STREAMINFO, 8.5 seek table | `head` |
//! | 9.1 frame header, 9.3 frame footer | `frame` |
//! | 4.2, 9.1.3 stereo decorrelation | [`FrameDecoder::write`] |
//! | 9.2.1 subframe header, 9.2.2 wasted bits | `subframe` |
//! | 9.2.3 constant, 9.2.4 verbatim | `subframe` |
//! | 9.2.5 fixed, 9.2.6 linear prediction | `predict` |
//! | 9.2.7 coded residual, Rice codes, escapes | `bits`, `subframe` |
//!
//! `side_by_side` decodes several frames at once, by the same sections.
//!
//! All of it is decoded here: 4 to 32 bits a sample, 33 bits of a difference channel, every block size and
//! order. A frame is decoded only after its CRC-16 was checked, so the decoder meets bits that no encoder
//! wrote only in crafted files. It refuses reserved codes, and predictors with a negative shift.
//!
//! Source: RFC 9639.

use std::ops::Range;

use super::{
    FramePools,
    bits::Bits,
    side_by_side::SideBySide,
    subframe::{BEFORE, subframe},
};
use crate::{
    Result,
    decoder_cache::{DecoderCache, PooledVec},
    fallible_alloc,
    formats::flac::frame::{Channels, Header, Stream},
    simd::{LANES, Lanes, Level, Work},
};

/// The most bits of a sample, and the most samples of a block, of frames side by side: others would be
/// refused, or their planes would exceed the cache.
const MOST_TOGETHER: (u8, u32) = (16, 8192);

/// Decodes frames, one after the other, in memory that the worker keeps.
#[derive(Debug)]
pub(super) struct FrameDecoder {
    level: Level,
    /// The channels of the last frames, each after [`BEFORE`] other values.
    samples: PooledVec<i32>,
    /// The difference channel of 33 bits.
    wide: PooledVec<i64>,
    block: usize,
    /// The coding of each of the last frames.
    channels: [Channels; LANES],
    /// The bits that a sample is shorter than 32.
    unused_bits: u32,
}

impl FrameDecoder {
    /// A decoder with the instructions of this process.
    pub(super) fn new(cache: &mut DecoderCache) -> Self {
        Self::at(Level::detect(), cache)
    }

    /// A decoder with the instructions of `level`.
    pub(super) fn at(level: Level, cache: &mut DecoderCache) -> Self {
        let pools = cache.pools::<FramePools>();
        let (samples, wide) = (pools.samples.take(), pools.wide.take());
        Self { level, samples, wide, block: 0, channels: [Channels::Independent(1); LANES], unused_bits: 0 }
    }

    /// Decodes the frame at the start of `bytes`, and returns the number of its bytes. The CRC-16 is counted,
    /// but not checked. `None` if the frame is damaged or cut short, or does not agree with `stream`.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if an allocation failed.
    pub(super) fn decode(&mut self, bytes: &[u8], stream: &Stream) -> Result<Option<usize>> {
        self.decode_until(bytes, stream, usize::MAX)
    }

    /// As [`FrameDecoder::decode`], but the samples from `until` on may be missing. The number of bytes is
    /// then meaningless. Damage in what is missing is not reported; the CRC-16 shows it.
    ///
    /// # Errors
    /// As [`FrameDecoder::decode`].
    pub(super) fn decode_until(
        &mut self,
        bytes: &[u8],
        stream: &Stream,
        until: usize,
    ) -> Result<Option<usize>> {
        let Some(header) = Header::parse(bytes).filter(|header| header.agrees(stream)) else {
            return Ok(None);
        };
        let stride = BEFORE + header.block as usize;
        let total = stride * usize::from(header.channels.count());
        if self.samples.len() < total {
            fallible_alloc::resize(&mut self.samples, total, 0)?;
        }
        let is_wide = stream.bits == 32 && header.channels.side().is_some();
        if is_wide && self.wide.len() < stride {
            fallible_alloc::resize(&mut self.wide, stride, 0)?;
        }
        (self.block, self.channels[0]) = (header.block as usize, header.channels);
        self.unused_bits = 32 - u32::from(stream.bits);
        let samples = &mut self.samples[..total];
        let end = if is_wide {
            let wide = &mut self.wide[..stride];
            self.level.run(Wide { bytes, header: &header, samples, wide })
        } else {
            self.level.run(Narrow { bytes, header: &header, samples, bits: stream.bits.into(), until })
        };
        if is_wide {
            // The differences are resolved.
            self.channels[0] = Channels::Independent(2);
        }
        Ok(end.map(|end| end + 2))
    }

    /// The most frames of `block` samples that [`Self::decode_together`] takes; 0 if it takes none.
    pub(super) fn most_together(stream: &Stream, block: u32) -> usize {
        let most = LANES / usize::from(stream.channels.max(1));
        if stream.bits > MOST_TOGETHER.0 || block > MOST_TOGETHER.1 || most < 2 { 0 } else { most }
    }

    /// Whether so many frames are faster together than one by one.
    pub(super) fn are_worth_it(stream: &Stream, n_frames: usize) -> bool {
        n_frames >= 2 && n_frames * usize::from(stream.channels) >= 3
    }

    /// Decodes whole frames of one length side by side, at most [`Self::most_together`]. The samples of the
    /// last one from `until` on may be missing. False if one of them has to be decoded by
    /// [`Self::decode`], which may find it damaged.
    ///
    /// # Errors
    /// As [`FrameDecoder::decode`].
    pub(super) fn decode_together(
        &mut self,
        frames: &[&[u8]],
        stream: &Stream,
        until: usize,
    ) -> Result<bool> {
        let Some(header) = frames.first().and_then(|bytes| Header::parse(bytes)) else { return Ok(false) };
        if frames.len() > Self::most_together(stream, header.block) {
            return Ok(false);
        }
        let mut parsed = [(frames[0], header); LANES];
        for (i, (to, &bytes)) in parsed.iter_mut().zip(frames).enumerate() {
            match Header::parse(bytes).filter(|next| next.agrees(stream) && next.block == header.block) {
                Some(header) => (*to, self.channels[i]) = ((bytes, header), header.channels),
                None => return Ok(false),
            }
        }
        let total = (BEFORE + header.block as usize) * frames.len() * usize::from(stream.channels);
        if self.samples.len() < total {
            fallible_alloc::resize(&mut self.samples, total, 0)?;
        }
        (self.block, self.unused_bits) = (header.block as usize, 32 - u32::from(stream.bits));
        let (frames, samples) = (&parsed[..frames.len()], &mut self.samples[..total]);
        Ok(self.level.run(SideBySide { frames, samples, bits: stream.bits.into(), until }).is_some())
    }

    /// The samples of a channel of the last frame.
    pub(super) fn block(&self) -> usize {
        self.block
    }

    /// Writes the samples `range` of `channel` of the last frame number `i` to `out`, which is as long.
    pub(super) fn write(&self, i: usize, channel: u8, range: Range<usize>, out: &mut [f32]) {
        let channels = self.channels[i];
        let plane = |c: u8| {
            let begin = (i * usize::from(channels.count()) + usize::from(c)) * (BEFORE + self.block) + BEFORE;
            &self.samples[begin + range.start..begin + range.end]
        };
        let (level, unused_bits) = (self.level, self.unused_bits);
        let (a, b) = (plane(0), if channels.count() > 1 { plane(1) } else { plane(0) });
        match (channels, channel) {
            (Channels::LeftSide, 1) => {
                level.run(Floats { a, b, unused_bits, out, join: |a: i32, b| a.wrapping_sub(b) });
            }
            (Channels::SideRight, 0) => {
                level.run(Floats { a, b, unused_bits, out, join: |a: i32, b| a.wrapping_add(b) });
            }
            (Channels::MidSide, 0) => level.run(Floats { a, b, unused_bits, out, join: left }),
            (Channels::MidSide, _) => {
                level.run(Floats { a, b, unused_bits, out, join: |a, b| left(a, b).wrapping_sub(b) });
            }
            _ => {
                let a = plane(channel);
                level.run(Floats { a, b: a, unused_bits, out, join: |a, _| a });
            }
        }
    }
}

/// The left channel of `mid` and `side`: `(2 mid + (side & 1) + side) / 2`, without the 33rd bit.
#[inline(always)]
fn left(mid: i32, side: i32) -> i32 {
    mid.wrapping_add(side >> 1).wrapping_add(side & 1)
}

/// The subframes of a frame whose samples have at most 32 bits.
struct Narrow<'a> {
    bytes: &'a [u8],
    header: &'a Header,
    samples: &'a mut [i32],
    bits: u32,
    until: usize,
}

impl Work for Narrow<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<V: Lanes>(self) -> Option<usize> {
        let Self { bytes, header, samples, bits: width, until } = self;
        let mut bits = Bits::new(bytes, header.len);
        let n_channels = header.channels.count();
        for (c, samples) in (0..).zip(samples.chunks_exact_mut(BEFORE + header.block as usize)) {
            // A difference needs one bit more than the samples.
            let width = width + u32::from(header.channels.side() == Some(c));
            let until = if c + 1 == n_channels { until } else { usize::MAX };
            subframe::<V, _>(&mut bits, width, samples, until)?;
        }
        bits.end()
    }
}

/// The subframes of a frame of two channels of 32 bits, one of them as a difference of 33 bits.
struct Wide<'a> {
    bytes: &'a [u8],
    header: &'a Header,
    samples: &'a mut [i32],
    wide: &'a mut [i64],
}

impl Work for Wide<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<V: Lanes>(self) -> Option<usize> {
        let Self { bytes, header, samples, wide } = self;
        let mut bits = Bits::new(bytes, header.len);
        let (first, second) = samples.split_at_mut(BEFORE + header.block as usize);
        for c in 0..2 {
            if header.channels.side() == Some(c) {
                subframe::<V, _>(&mut bits, 33, wide, usize::MAX)?;
            } else {
                subframe::<V, _>(&mut bits, 32, if c == 0 { &mut *first } else { &mut *second }, usize::MAX)?;
            }
        }
        let planes = first[BEFORE..].iter_mut().zip(&mut second[BEFORE..]);
        for ((a, b), &side) in planes.zip(&wide[BEFORE..]) {
            // The lowest 32 bits of the sums are the samples.
            match header.channels {
                Channels::LeftSide => *b = a.wrapping_sub(side as i32),
                Channels::SideRight => *a = b.wrapping_add(side as i32),
                _ => {
                    *a = a.wrapping_add((side >> 1) as i32).wrapping_add((side & 1) as i32);
                    *b = a.wrapping_sub(side as i32);
                }
            }
        }
        bits.end()
    }
}

/// Joins two channels, and converts the result to floats of full scale 1.
struct Floats<'a, F> {
    a: &'a [i32],
    b: &'a [i32],
    unused_bits: u32,
    out: &'a mut [f32],
    join: F,
}

impl<F: Fn(i32, i32) -> i32> Work for Floats<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        for ((y, &a), &b) in self.out.iter_mut().zip(self.a).zip(self.b) {
            // Full scale as an integer first: the conversion rounds once, and the power of 2 is exact.
            *y = ((self.join)(a, b) << self.unused_bits) as f32 * (1.0 / 2_147_483_648.0);
        }
    }
}
