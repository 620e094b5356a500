//! Decodes one subframe: one channel of a frame.
//!
//! Input: the bits of a subframe, its width. Output: its samples as integers. Residual and prediction are one
//! pass. Coefficients are padded to 4, 8, 12 or 32, so that few loops are compiled.
//!
//! Source: RFC 9639, section 9.2.

use super::{
    bits::Bits,
    predict::{BLOCK, Predictor, Sample, Sum},
};
use crate::simd::Lanes;

/// The samples before the first one, which predictors of padded order read and multiply by 0.
pub(super) const BEFORE: usize = 32;

/// The fixed predictors by order: RFC 9639, section 9.2.5.
pub(super) const FIXED: [&[i32]; 5] = [&[], &[1], &[2, -1], &[3, -3, 1], &[4, -6, 4, -1]];

/// A sample with the sums that bound predictors need.
pub(super) trait Stored: Sample {
    /// The sum if 32 bits are enough.
    type Short: Sum<Self>;
}

impl Stored for i32 {
    type Short = i32;
}

impl Stored for i64 {
    type Short = i64;
}

/// What a subframe begins with: its kind, the width of its samples less the wasted bits, and these.
pub(super) struct SubframeHead {
    pub(super) kind: usize,
    pub(super) width: u32,
    pub(super) wasted: u32,
}

impl SubframeHead {
    #[inline(always)]
    pub(super) fn parse(bits: &mut Bits<'_>, width: u32) -> Option<Self> {
        if bits.unsigned(1) != 0 {
            return None;
        }
        let kind = bits.unsigned(6) as usize;
        let wasted = if bits.unsigned(1) == 1 { bits.unary()?.checked_add(1)? } else { 0 };
        // All bits may be wasted, as far as symphonia is concerned.
        let width = u64::from(width).checked_sub(wasted)? as u32;
        Some(Self { kind, width, wasted: wasted as u32 })
    }
}

/// Reads the coefficients and the shift of a linear predictor.
#[inline(always)]
pub(super) fn linear(bits: &mut Bits<'_>, order: usize) -> Option<([i32; 32], u32)> {
    let precision = bits.unsigned(4) as u32 + 1;
    // Section 9.2.6: four set bits are no precision, and a shift must not be negative.
    let shift = u32::try_from(bits.signed(5)).ok().filter(|_| precision < 16)?;
    let mut coefficients = [0; 32];
    for coefficient in &mut coefficients[..order] {
        *coefficient = bits.signed(precision) as i32;
    }
    Some((coefficients, shift))
}

/// Whether predictions from samples of `width` bits fit in 32 bits.
#[inline(always)]
pub(super) fn is_short(coefficients: &[i32], width: u32) -> bool {
    let total: u64 = coefficients.iter().map(|c| u64::from(c.unsigned_abs())).sum();
    // Samples are at most 2^(width - 1).
    total << width >> 1 <= i32::MAX as u64
}

pub(super) struct Partitions {
    /// The bits of a Rice parameter.
    pub(super) parameter_bits: u32,
    pub(super) n: usize,
    /// Residuals in each; the first one has as many fewer as the order of the predictor.
    pub(super) len: usize,
}

impl Partitions {
    /// The partitions of the residual of a block of `n_samples`.
    #[inline(always)]
    pub(super) fn parse(bits: &mut Bits<'_>, n_samples: usize, order: usize) -> Option<Self> {
        let parameter_bits = match bits.unsigned(2) {
            0 => 4,
            1 => 5,
            _ => return None,
        };
        let n = 1usize << bits.unsigned(4);
        let len = n_samples / n;
        (n_samples.is_multiple_of(n) && len >= order).then_some(Self { parameter_bits, n, len })
    }
}

/// Decodes a subframe of samples of `width` bits, at most 33, into `samples` after the first [`BEFORE`] ones.
///
/// Stops after `until` samples, if this is the last subframe of which more are needed. None if the bits are
/// no valid subframe.
#[inline(always)]
pub(super) fn subframe<V: Lanes, T: Stored>(
    bits: &mut Bits<'_>,
    width: u32,
    samples: &mut [T],
    until: usize,
) -> Option<()> {
    let SubframeHead { kind, width, wasted } = SubframeHead::parse(bits, width)?;
    // Section 9.2.1: 8 to 12 are the fixed predictors of order 0 to 4, 32 to 63 linear ones of order 1 to 32.
    match kind {
        0 => samples[BEFORE..].fill(T::cut(bits.signed(width))),
        1 => verbatim(bits, width, &mut samples[BEFORE..]),
        8..=12 => {
            verbatim(bits, width, samples.get_mut(BEFORE..BEFORE + kind - 8)?);
            predicted::<V, T>(bits, width, samples, FIXED[kind - 8], 0, until)?;
        }
        32.. => {
            let order = kind - 31;
            verbatim(bits, width, samples.get_mut(BEFORE..BEFORE + order)?);
            let (coefficients, shift) = linear(bits, order)?;
            predicted::<V, T>(bits, width, samples, &coefficients[..order], shift, until)?;
        }
        _ => return None,
    }
    if wasted > 0 {
        samples[BEFORE..].iter_mut().for_each(|x| *x = T::cut(x.wide() << wasted));
    }
    Some(())
}

/// Reads samples that are stored verbatim.
#[inline(always)]
pub(super) fn verbatim<T: Sample>(bits: &mut Bits<'_>, width: u32, samples: &mut [T]) {
    for x in samples {
        *x = T::cut(bits.signed(width));
    }
}

/// Reads the residual and adds the prediction, with the loop for this order and width.
#[inline(always)]
fn predicted<V: Lanes, T: Stored>(
    bits: &mut Bits<'_>,
    width: u32,
    samples: &mut [T],
    coefficients: &[i32],
    shift: u32,
    until: usize,
) -> Option<()> {
    let is_short = is_short(coefficients, width);
    let order = coefficients.len();
    macro_rules! run {
        ($n:literal) => {
            if is_short {
                restored::<V, T, T::Short, $n>(
                    bits,
                    samples,
                    order,
                    &Predictor::new(coefficients, shift),
                    until,
                )
            } else {
                restored::<V, T, i64, $n>(bits, samples, order, &Predictor::new(coefficients, shift), until)
            }
        };
    }
    match order {
        0..=4 => run!(4),
        5..=8 => run!(8),
        9..=12 => run!(12),
        _ => run!(32),
    }
}

/// Reads the residual after `order` samples, and adds the prediction.
#[inline(always)]
fn restored<V: Lanes, T: Sample, A: Sum<T>, const N: usize>(
    bits: &mut Bits<'_>,
    samples: &mut [T],
    order: usize,
    predictor: &Predictor<N>,
    until: usize,
) -> Option<()> {
    let n = samples.len() - BEFORE;
    let Partitions { parameter_bits, n: n_partitions, len } = Partitions::parse(bits, n, order)?;
    let mut i = BEFORE + order;
    // A copy, which stays in registers.
    let mut here = *bits;
    for partition in 1..=n_partitions {
        let stop = BEFORE + partition * len;
        let k = here.unsigned(parameter_bits) as u32;
        // The escape: residuals of a fixed width, without codes (section 9.2.7).
        if k == (1 << parameter_bits) - 1 {
            let raw = here.unsigned(5) as u32;
            while i < stop {
                predictor.one::<T, A>(samples, i, here.signed(raw));
                i += 1;
            }
        } else {
            let mut recent = [samples[i - 1], samples[i - 2]];
            while stop - i >= BLOCK {
                recent = predictor.block::<V, T, A>(samples, i, here.rice_4(k)?, recent);
                i += BLOCK;
            }
            while i < stop {
                predictor.one::<T, A>(samples, i, here.rice(k)?);
                i += 1;
            }
        }
        if i - BEFORE >= until {
            break;
        }
    }
    *bits = here;
    Some(())
}
