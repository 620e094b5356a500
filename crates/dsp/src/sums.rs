//! Sums over samples in float64, in one order on every CPU. Source: own.

use std::ops::Add;

use crate::simd::{self, Lanes, Work};

/// The sum of squares, with the same bits on every CPU.
pub fn squares(values: &[f32]) -> f64 {
    reduce(values, |x| x * x, f64::add)
}

/// The root mean square; 0 of none.
pub(crate) fn rms(values: &[f32]) -> f64 {
    (squares(values) / values.len().max(1) as f64).sqrt()
}

/// The mean; 0 of none.
pub(super) fn mean(values: &[f32]) -> f64 {
    reduce(values, |x| x, f64::add) / values.len().max(1) as f64
}

/// Combines what `map` makes of the values, beginning with 0.
pub(super) fn reduce(values: &[f32], map: impl Fn(f64) -> f64, combine: impl Fn(f64, f64) -> f64) -> f64 {
    simd::Level::detect().run(Reduce { values, map, combine })
}

/// The work of [`reduce`], in sixteen parts that do not wait for each other.
struct Reduce<'a, M, C> {
    values: &'a [f32],
    map: M,
    combine: C,
}

impl<M: Fn(f64) -> f64, C: Fn(f64, f64) -> f64> Work for Reduce<'_, M, C> {
    type Output = f64;
    #[inline(always)]
    fn run<V: Lanes>(self) -> f64 {
        let Self { values, map, combine } = self;
        let (rows, rest) = values.as_chunks::<16>();
        let mut parts = [0.0; 16];
        for row in rows {
            for (part, &x) in parts.iter_mut().zip(row) {
                *part = combine(*part, map(f64::from(x)));
            }
        }
        let rest = rest.iter().map(|&x| map(f64::from(x)));
        parts.into_iter().chain(rest).fold(0.0, combine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_a_loop() {
        for n in [0_u16, 1, 15, 16, 17, 1003] {
            let samples: Vec<f32> = (0..n).map(|n| f32::from(n % 17) / 16.0 - 0.5).collect();
            let plain: f64 = samples.iter().map(|&x| f64::from(x).powi(2)).sum();
            assert!((squares(&samples) - plain).abs() < 1e-9, "{n}");
            assert!((rms(&samples) - (plain / f64::from(n.max(1))).sqrt()).abs() < 1e-12, "{n}");
        }
    }

    #[test]
    fn every_level_has_the_same_bits() {
        let samples: Vec<f32> = (0..10_000_u16).map(|n| (f32::from(n) * 0.37).sin()).collect();
        let of =
            |level: simd::Level| level.run(Reduce { values: &samples, map: |x| x * x, combine: f64::add });
        let found: Vec<_> = simd::Level::available().into_iter().map(of).collect();
        assert!(found.iter().all(|sum| sum.to_bits() == found[0].to_bits()), "{found:?}");
    }
}
