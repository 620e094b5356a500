//! Adds prediction and residual: the recurrence of FLAC's fixed and linear predictors.
//!
//! Input: coefficients, the samples before, residuals of four samples. Output: four samples.
//! The recurrence is serial, since every sample needs the one before it. Only the terms of the last two
//! samples before a block of four, and those within it, are computed one by one. Those of older samples are
//! summed for all four at once, in vectors of four: they depend on nothing recent, so they run beside the
//! serial part. All terms are loaded one by one and broadcast, because a vector load of samples that were
//! just stored has to wait for the stores.
//!
//! Sums are of 32 bits if the coefficients and the width of the samples bound them, else of 64. They wrap, so
//! the samples of a crafted stream that exceeds its width are arbitrary, but equal on every CPU.
//!
//! Source: RFC 9639, sections 9.2.5 and 9.2.6; the order of the sums is own.

use crate::simd::Lanes;

/// A stored sample: 32 bits, or 64 for a difference of 32-bit channels.
pub(super) trait Sample: Copy {
    /// The lowest bits of `value`.
    fn cut(value: i64) -> Self;
    fn wide(self) -> i64;
}

impl Sample for i32 {
    #[inline(always)]
    fn cut(value: i64) -> Self {
        value as i32
    }
    #[inline(always)]
    fn wide(self) -> i64 {
        self.into()
    }
}

impl Sample for i64 {
    #[inline(always)]
    fn cut(value: i64) -> Self {
        value
    }
    #[inline(always)]
    fn wide(self) -> i64 {
        self
    }
}

/// The sum of a prediction, which wraps.
pub(super) trait Sum<T>: Copy {
    const ZERO: Self;
    /// `self + coefficient * sample`.
    fn plus(self, coefficient: i32, sample: T) -> Self;
    /// `self >> shift`.
    fn shifted(self, shift: u32) -> i64;
    /// [`Sum::plus`] for each sum of a block.
    #[inline(always)]
    fn plus_each<V: Lanes>(sums: [Self; BLOCK], coefficients: &[i32; BLOCK], sample: T) -> [Self; BLOCK]
    where
        T: Copy,
    {
        std::array::from_fn(|i| sums[i].plus(coefficients[i], sample))
    }
}

impl Sum<i32> for i32 {
    const ZERO: Self = 0;
    #[inline(always)]
    fn plus(self, coefficient: i32, sample: i32) -> Self {
        self.wrapping_add(coefficient.wrapping_mul(sample))
    }
    #[inline(always)]
    fn shifted(self, shift: u32) -> i64 {
        (self >> shift).into()
    }
    // By name, since a compiler that chooses vectors by itself does so in one build and not in the next.
    #[inline(always)]
    fn plus_each<V: Lanes>(sums: [i32; BLOCK], coefficients: &[i32; BLOCK], sample: i32) -> [i32; BLOCK] {
        V::add_products(sums, sample, coefficients)
    }
}

impl<T: Sample> Sum<T> for i64 {
    const ZERO: Self = 0;
    #[inline(always)]
    fn plus(self, coefficient: i32, sample: T) -> Self {
        self.wrapping_add(i64::from(coefficient).wrapping_mul(sample.wide()))
    }
    #[inline(always)]
    fn shifted(self, shift: u32) -> i64 {
        self >> shift
    }
}

pub(super) const BLOCK: usize = 4;
/// The samples before a block whose terms belong to the serial part.
const RECENT: usize = 2;

/// A predictor of at most `N` coefficients; the others are 0.
#[derive(Debug)]
pub(super) struct Predictor<const N: usize> {
    /// The coefficient of the sample before, of the one before that, and so on.
    coefficients: [i32; N],
    shift: u32,
    /// `lanes[j]` are the coefficients of the sample `j + 1` before a block, for its four samples.
    lanes: [[i32; BLOCK]; N],
}

impl<const N: usize> Predictor<N> {
    /// The predictor of at most `N` coefficients.
    #[inline(always)]
    pub(super) fn new(given: &[i32], shift: u32) -> Self {
        let mut coefficients = [0; N];
        coefficients[..given.len()].copy_from_slice(given);
        let lane = |j: usize, b: usize| coefficients.get(j + b).copied().unwrap_or(0);
        let lanes = std::array::from_fn(|j| std::array::from_fn(|b| lane(j, b)));
        Self { coefficients, shift, lanes }
    }

    /// Computes sample `i` of `samples`, which has at least `N` before it.
    #[inline(always)]
    pub(super) fn one<T: Sample, A: Sum<T>>(&self, samples: &mut [T], i: usize, residual: i64) {
        let (before, rest) = samples[i - N..].split_at_mut(N);
        let sum = before.iter().rev().zip(&self.coefficients).fold(A::ZERO, |sum, (x, c)| sum.plus(*c, *x));
        rest[0] = T::cut(sum.shifted(self.shift).wrapping_add(residual));
    }

    /// Computes the samples from `i` on. `recent` are the two before, the last one first.
    #[inline(always)]
    pub(super) fn block<V: Lanes, T: Sample, A: Sum<T>>(
        &self,
        samples: &mut [T],
        i: usize,
        residuals: [i64; BLOCK],
        recent: [T; RECENT],
    ) -> [T; RECENT] {
        let (before, rest) = samples[i - N..i + BLOCK].split_at_mut(N);
        let mut sums = [A::ZERO; BLOCK];
        for j in RECENT..N {
            sums = A::plus_each::<V>(sums, &self.lanes[j], before[N - 1 - j]);
        }
        let c = |lag: usize| if lag <= N { self.coefficients[lag - 1] } else { 0 };
        let done = |sum: A, b: usize| T::cut(sum.shifted(self.shift).wrapping_add(residuals[b]));
        let [p, q] = recent;
        // Without loops and arrays, which would go through memory; the newest sample last, since the sum
        // waits for it.
        let s = done(sums[0].plus(c(2), q).plus(c(1), p), 0);
        let t = done(sums[1].plus(c(3), q).plus(c(2), p).plus(c(1), s), 1);
        let mut sum = sums[2].plus(c(4), q).plus(c(3), p);
        let u = done(sum.plus(c(2), s).plus(c(1), t), 2);
        sum = sums[3].plus(c(4), p).plus(c(3), s);
        if N > 4 {
            sum = sum.plus(c(5), q);
        }
        let v = done(sum.plus(c(2), t).plus(c(1), u), 3);
        rest[0] = s;
        rest[1] = t;
        rest[2] = u;
        rest[3] = v;
        [v, u]
    }
}
