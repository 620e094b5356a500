//! Decodes several frames of one length side by side.
//!
//! Input: the bytes of frames, at most eight subframes in all. Output: their samples as integers. A Rice code
//! begins where the one before ends, and a sample needs the one before: each frame is a chain of operations
//! that wait for each other. Those of different frames do not. So the codes of two frames are read in turns,
//! four by four, and then up to eight predictions run in lanes, one subframe each.
//!
//! What needs more than 32 bits is refused, as is everything that is not valid: the caller then decodes the
//! frames one by one, which decides. Lanes compute the sums of [`predict`](super::predict) in another order.
//! They wrap, so the samples are the same.
//!
//! Source: RFC 9639, section 9.2; the arrangement is own.

use super::{
    bits::{Bits, MAX_FOLDED, folded},
    subframe::{BEFORE, FIXED, Partitions, SubframeHead, is_short, linear, verbatim},
};
use crate::{
    formats::flac::frame::Header,
    simd::{Integers, LANES, Lanes, Work},
};

/// The most coefficients of a predictor.
const MAX_ORDER: usize = 32;

/// Frames of the same length and number of channels.
pub(super) struct SideBySide<'a, 'b> {
    pub(super) frames: &'b [(&'a [u8], Header)],
    /// The planes of all subframes, each with [`BEFORE`] values before its samples.
    pub(super) samples: &'b mut [i32],
    /// The bits of a sample, at most 16.
    pub(super) bits: u32,
    /// The samples of the last frame that are needed.
    pub(super) until: usize,
}

impl Work for SideBySide<'_, '_> {
    type Output = Option<()>;

    #[inline(always)]
    fn run<V: Lanes>(self) -> Option<()> {
        let Self { frames, samples, bits, until } = self;
        let (_, header) = frames.first()?;
        let (n_channels, stride) = (usize::from(header.channels.count()), BEFORE + header.block as usize);
        let n = frames.len() * n_channels;
        let mut predictors = [LanePredictor::default(); LANES];
        let planes = samples.chunks_exact_mut(n_channels * stride);
        let mut readers =
            frames.iter().zip(planes).zip(predictors.chunks_exact_mut(n_channels)).enumerate().map(
                |(i, ((frame, planes), predictors))| {
                    let until = if i + 1 == frames.len() { until } else { usize::MAX };
                    FrameReader::new(frame, bits, until, planes, predictors)
                },
            );
        while let Some(mut one) = readers.next() {
            let Some(mut other) = readers.next() else {
                one.finish()?;
                break;
            };
            let mut is_both = one.advance()? & other.advance()?;
            while is_both {
                let n = one.blocks().min(other.blocks());
                match one.k.max(other.k) {
                    0..=9 => read::<1>(&mut one, &mut other, n)?,
                    10..=20 => read::<2>(&mut one, &mut other, n)?,
                    _ => read::<4>(&mut one, &mut other, n)?,
                }
                is_both = (one.blocks() > 0 || one.advance()?) & (other.blocks() > 0 || other.advance()?);
            }
            one.finish()?;
            other.finish()?;
        }
        drop(readers);
        let predictors = predictors.get(..n)?;
        match predictors.iter().map(|predictor| predictor.order).max()? {
            0..=4 => predict::<V, 4>(predictors, samples, stride)?,
            5..=8 => predict::<V, 8>(predictors, samples, stride)?,
            9..=12 => predict::<V, 12>(predictors, samples, stride)?,
            _ => predict::<V, MAX_ORDER>(predictors, samples, stride)?,
        }
        for (predictor, plane) in predictors.iter().zip(samples.chunks_exact_mut(stride)) {
            if predictor.wasted > 0 {
                plane[BEFORE..].iter_mut().for_each(|x| *x = (i64::from(*x) << predictor.wasted) as i32);
            }
        }
        Some(())
    }
}

/// Reads `n` times four codes of each of two frames.
#[inline(always)]
fn read<const REFILLS: u32>(
    one: &mut FrameReader<'_, '_>,
    other: &mut FrameReader<'_, '_>,
    n: usize,
) -> Option<()> {
    // Copies, which stay in registers.
    let (mut a, mut b) = (one.bits, other.bits);
    let (k, l) = (one.k, other.k);
    let to = one.planes[one.at..one.at + 4 * n].as_chunks_mut::<4>().0;
    let also = other.planes[other.at..other.at + 4 * n].as_chunks_mut::<4>().0;
    for (to, also) in to.iter_mut().zip(also) {
        *to = a.folded_4::<REFILLS>(k)?.map(u32::cast_signed);
        *also = b.folded_4::<REFILLS>(l)?.map(u32::cast_signed);
    }
    (one.bits, other.bits) = (a, b);
    one.at += 4 * n;
    other.at += 4 * n;
    Some(())
}

/// The predictor of a subframe, and the bits by which its samples are shifted at last.
#[derive(Clone, Copy, Default)]
struct LanePredictor {
    order: usize,
    coefficients: [i32; MAX_ORDER],
    shift: u32,
    wasted: u32,
}

/// Reads the subframes of a frame: the samples before a predictor's first as they are, all else folded.
struct FrameReader<'a, 'b> {
    bits: Bits<'a>,
    header: &'b Header,
    /// The bits of a sample.
    width: u32,
    until: usize,
    planes: &'b mut [i32],
    predictors: &'b mut [LanePredictor],
    n_begun: usize,
    /// Where the next residual goes in `planes`, and where its partition and its subframe end. Before the
    /// first partition of a predictor, `stop` is where its subframe begins: at or before `at`.
    at: usize,
    stop: usize,
    end: usize,
    /// The length of a partition, and the bits of a Rice parameter.
    len: usize,
    parameter_bits: u32,
    k: u32,
}

impl<'a, 'b> FrameReader<'a, 'b> {
    fn new(
        (bytes, header): &'b (&'a [u8], Header),
        width: u32,
        until: usize,
        planes: &'b mut [i32],
        predictors: &'b mut [LanePredictor],
    ) -> Self {
        let bits = Bits::new(bytes, header.len);
        let (at, stop, end, len) = (0, 0, 0, 0);
        Self {
            bits,
            header,
            width,
            until,
            planes,
            predictors,
            n_begun: 0,
            at,
            stop,
            end,
            len,
            parameter_bits: 4,
            k: 0,
        }
    }

    /// How many times four codes are left of the partition.
    fn blocks(&self) -> usize {
        self.stop.saturating_sub(self.at) / 4
    }

    /// Reads the codes that are left of a partition, fewer than four, and all up to the next partition of at
    /// least four. False at the end of the frame; None if the frame is refused.
    #[inline(never)]
    fn advance(&mut self) -> Option<bool> {
        loop {
            while self.at < self.stop {
                self.planes[self.at] = self.bits.folded(self.k)?.cast_signed();
                self.at += 1;
            }
            let is_last = self.n_begun == self.predictors.len();
            let n_done = self.block() - (self.end - self.at);
            // By the partitions: one without residuals, behind as many samples as the block has, is still
            // read.
            if self.stop == self.end || is_last && n_done >= self.until {
                if is_last {
                    return Some(false);
                }
                self.begin()?;
                continue;
            }
            self.stop += self.len;
            self.k = self.bits.unsigned(self.parameter_bits) as u32;
            // The escape: residuals of a fixed width, without codes (section 9.2.7).
            if self.k == (1 << self.parameter_bits) - 1 {
                let raw = self.bits.unsigned(5) as u32;
                for residual in &mut self.planes[self.at..self.stop] {
                    *residual = folded(self.bits.signed(raw) as i32);
                }
                self.at = self.stop;
            } else if self.k > MAX_FOLDED {
                return None;
            } else if self.blocks() > 0 {
                return Some(true);
            }
        }
    }

    /// Reads the rest of the frame.
    #[inline(always)]
    fn finish(&mut self) -> Option<()> {
        while self.blocks() > 0 || self.advance()? {
            let (mut bits, k) = (self.bits, self.k);
            let n = 4 * self.blocks();
            for to in self.planes[self.at..self.at + n].as_chunks_mut::<4>().0 {
                *to = bits.folded_4::<4>(k)?.map(u32::cast_signed);
            }
            self.bits = bits;
            self.at += n;
        }
        self.bits.end().map(|_| ())
    }

    fn block(&self) -> usize {
        self.header.block as usize
    }

    /// Reads a subframe up to its residual; all of it, if it has none.
    fn begin(&mut self) -> Option<()> {
        let (bits, c, n) = (&mut self.bits, self.n_begun, self.header.block as usize);
        let is_side = self.header.channels.side().map(usize::from) == Some(c);
        let SubframeHead { kind, width, wasted } =
            SubframeHead::parse(bits, self.width + u32::from(is_side))?;
        let first = c * (BEFORE + n) + BEFORE;
        let plane = self.planes.get_mut(first..first + n)?;
        let predictor = self.predictors.get_mut(c)?;
        (predictor.wasted, self.n_begun, self.end) = (wasted, c + 1, first + n);
        match kind {
            0 => plane.fill(folded(bits.signed(width) as i32)),
            1 => {
                verbatim(bits, width, plane);
                plane.iter_mut().for_each(|x| *x = folded(*x));
            }
            8..=12 | 32.. => {
                predictor.order = if kind < 32 { kind - 8 } else { kind - 31 };
                verbatim(bits, width, plane.get_mut(..predictor.order)?);
                if kind < 32 {
                    predictor.coefficients[..kind - 8].copy_from_slice(FIXED[kind - 8]);
                } else {
                    (predictor.coefficients, predictor.shift) = linear(bits, predictor.order)?;
                }
                if !is_short(&predictor.coefficients, width) {
                    return None;
                }
                let partitions = Partitions::parse(bits, n, predictor.order)?;
                (self.parameter_bits, self.len) = (partitions.parameter_bits, partitions.len);
                (self.at, self.stop) = (first + predictor.order, first);
                return Some(());
            }
            _ => return None,
        }
        (self.at, self.stop) = (self.end, self.end);
        Some(())
    }
}

/// Adds the predictions to the residuals, one subframe in each lane.
#[inline(always)]
fn predict<V: Lanes, const N: usize>(
    predictors: &[LanePredictor],
    samples: &mut [i32],
    stride: usize,
) -> Option<()> {
    let n = stride - BEFORE;
    let order = predictors.iter().map(|predictor| predictor.order).max()?;
    // Lanes begin behind the samples that any of them has stored, with whole tiles left.
    let start = order + (n - order) % LANES;
    for (plane, predictor) in samples.chunks_exact_mut(stride).zip(predictors) {
        for i in BEFORE + predictor.order..BEFORE + start {
            let before = plane[i - N..i].iter().rev().zip(&predictor.coefficients);
            let sum = before.fold(0i32, |sum, (x, c)| sum.wrapping_add(x.wrapping_mul(*c)));
            let residual = plane[i];
            let residual = (residual.cast_unsigned() >> 1).cast_signed() ^ -(residual & 1);
            plane[i] = (sum >> predictor.shift).wrapping_add(residual);
        }
    }
    let zero = V::Integers::load(&[0; LANES]);
    let (mut coefficients, mut window, mut row) = ([zero; N], [zero; MAX_ORDER + LANES], [0; LANES]);
    // Lanes without a subframe do the work of the first one once more.
    let mut lanes = [(BEFORE, &predictors[0]); LANES];
    for (i, predictor) in predictors.iter().enumerate() {
        lanes[i] = (i * stride + BEFORE, predictor);
    }
    for j in 0..N {
        for (value, (_, predictor)) in row.iter_mut().zip(lanes) {
            *value = predictor.coefficients[j];
        }
        coefficients[j] = V::Integers::load(&row);
        for (value, (first, _)) in row.iter_mut().zip(lanes) {
            *value = samples[first + start - 1 - j];
        }
        window[N - 1 - j] = V::Integers::load(&row);
    }
    for (value, (_, predictor)) in row.iter_mut().zip(lanes) {
        *value = predictor.shift.cast_signed();
    }
    let shift = V::Integers::load(&row);
    let mut i = start;
    while i < n {
        let mut tile = [zero; LANES];
        for lane in 0..LANES {
            tile[lane] = V::Integers::load(samples[lanes[lane].0 + i..].first_chunk()?);
        }
        tile = V::Integers::transpose(tile);
        let mut last = window[N - 1];
        for t in 0..LANES {
            // The newest sample last, since the sum waits for it.
            let mut sum = coefficients[N - 1].times(window[t]);
            for j in (1..N - 1).rev() {
                sum = sum.plus(coefficients[j].times(window[N - 1 + t - j]));
            }
            sum = sum.plus(coefficients[0].times(last));
            last = sum.shifted(shift).plus(tile[t].unfolded());
            tile[t] = last;
            window[N + t] = last;
        }
        tile = V::Integers::transpose(tile);
        for lane in 0..LANES {
            tile[lane].store(samples[lanes[lane].0 + i..].first_chunk_mut()?);
        }
        for j in 0..N {
            window[j] = window[LANES + j];
        }
        i += LANES;
    }
    Some(())
}
