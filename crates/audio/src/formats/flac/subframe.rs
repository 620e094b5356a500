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
const FIXED: [&[i32]; 5] = [&[], &[1], &[2, -1], &[3, -3, 1], &[4, -6, 4, -1]];

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
    if bits.unsigned(1) != 0 {
        return None;
    }
    let kind = bits.unsigned(6) as usize;
    let wasted = if bits.unsigned(1) == 1 { bits.unary()?.checked_add(1)? } else { 0 };
    // All bits may be wasted, as far as symphonia is concerned.
    let width = u64::from(width).checked_sub(wasted)? as u32;
    let wasted = wasted as u32;
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
            let precision = bits.unsigned(4) as u32 + 1;
            // Section 9.2.6: four set bits are no precision, and a shift must not be negative.
            let shift = u32::try_from(bits.signed(5)).ok().filter(|_| precision < 16)?;
            let mut coefficients = [0; 32];
            for coefficient in &mut coefficients[..order] {
                *coefficient = bits.signed(precision) as i32;
            }
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
fn verbatim<T: Sample>(bits: &mut Bits<'_>, width: u32, samples: &mut [T]) {
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
    let total: u64 = coefficients.iter().map(|c| u64::from(c.unsigned_abs())).sum();
    // Samples are at most 2^(width - 1).
    let is_short = total << width >> 1 <= i32::MAX as u64;
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
    let parameter_bits = match bits.unsigned(2) {
        0 => 4,
        1 => 5,
        _ => return None,
    };
    let n_partitions = 1usize << bits.unsigned(4);
    let len = n / n_partitions;
    // The first partition has `order` residuals fewer than the others.
    if !n.is_multiple_of(n_partitions) || len < order {
        return None;
    }
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
