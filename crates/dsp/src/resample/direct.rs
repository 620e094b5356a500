//! Resampling by the convolution sum, for rates whose ratio is extreme: the kernel is too long for blocks.
//!
//! A polyphase table could have a row per phase, up to 4 million of them. Instead the kernel is tabulated at
//! `rows` phases per source sample and interpolated between them by a cubic, four rows with four weights,
//! with an error below -150 dB. So the table stays near 100 KB for any ratio, until the kernel spans more
//! than [`MAX_TAPS`] source samples. Beyond that (decimation by several hundred) the kernel is evaluated tap
//! by tap. Each output is a sum of its own in a fixed order, so its bits do not depend on the requested span.
//! Source: Smith, "Digital Audio Resampling"; cubic Lagrange interpolation.

use super::{Ratio, design::Prototype, fill};
use crate::{Result, fallible_alloc, simd::Level};
use std::{cell::RefCell, ops::Range};

/// Points of the kernel per sample of the lower rate.
const POINTS: f64 = 128.0;

const MAX_TAPS: usize = 1 << 16;

/// Parallel sums, so that the compiler can use vector instructions.
const SUMS: usize = 16;

/// A plan for one rate pair.
pub(super) struct Direct {
    ratio: Ratio,
    /// Lower rate / source rate.
    scale: f64,
    /// Source samples on either side of an output.
    half: u64,
    kernel: Kernel,
}

enum Kernel {
    /// `rows + 3` rows of `taps`: phases from -1 to `rows + 1`, in units of `1 / rows` source samples.
    Table { rows: usize, taps: usize, table: Vec<f32> },
    /// The right half of the prototype, `POINTS` per sample of the lower rate, beginning one point left of
    /// its middle.
    Prototype(Vec<f64>),
}

thread_local! {
    /// Source samples of an output that reaches over an end of the source.
    static EDGE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Weights of the points -1, 0, 1, 2 in the cubic through them, at `x` in 0..1.
fn lagrange(x: f64) -> [f64; 4] {
    [
        -x * (x - 1.0) * (x - 2.0) / 6.0,
        (x + 1.0) * (x - 1.0) * (x - 2.0) / 2.0,
        -(x + 1.0) * x * (x - 2.0) / 2.0,
        (x + 1.0) * x * (x - 1.0) / 6.0,
    ]
}

impl Direct {
    pub(super) fn new(ratio: Ratio, prototype: &Prototype) -> Self {
        let scale = ratio.lower();
        let half = (prototype.half_width / scale).ceil() as usize + 1;
        let taps = (2 * half).next_multiple_of(SUMS);
        let kernel = if taps <= MAX_TAPS {
            let rows = (POINTS * scale).ceil() as usize;
            // bounded: by the rates; the table stays near 100 KB.
            let mut table = Vec::with_capacity((rows + 3) * taps);
            for row in 0..rows + 3 {
                let phase = (row as f64 - 1.0) / rows as f64;
                table.extend((0..taps).map(|i| {
                    let time = phase + half as f64 - 1.0 - i as f64;
                    (scale * prototype.at(scale * time)) as f32
                }));
            }
            Kernel::Table { rows, taps, table }
        } else {
            let points = (prototype.half_width * POINTS).ceil() as i64 + 4;
            Kernel::Prototype((-1..points).map(|i| scale * prototype.at(i as f64 / POINTS)).collect())
        };
        Self { ratio, scale, half: half as u64, kernel }
    }

    /// The source position at or before output `target`, and the output's distance from it, in `0..1`.
    fn position(&self, target: u64) -> (u128, f64) {
        let product = u128::from(target) * u128::from(self.ratio.source);
        let phases = u128::from(self.ratio.target);
        (product / phases, (product % phases) as f64 / phases as f64)
    }

    /// Source samples that `target` reads, from 0 on.
    pub(super) fn input_span(&self, target: Range<u64>) -> Range<u64> {
        let clamp = |position: u128| u64::try_from(position).unwrap_or(u64::MAX);
        let start = clamp(self.position(target.start).0).saturating_sub(self.half);
        start..clamp(self.position(target.end - 1).0).saturating_add(self.half + 1)
    }

    /// Writes outputs from `target_start` on; `source` begins at `source_start` and is surrounded by zeros.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the allocation of the thread's working memory
    /// failed.
    pub(super) fn run(
        &self,
        source: &[f32],
        source_start: u64,
        target_start: u64,
        out: &mut [f32],
    ) -> Result<()> {
        EDGE.with_borrow_mut(|edge| {
            if let Kernel::Table { taps, .. } = self.kernel
                && edge.len() < taps
            {
                fallible_alloc::resize(edge, taps, 0.0)?;
            }
            for (i, out) in out.iter_mut().enumerate() {
                let (position, phase) = self.position(target_start.saturating_add(i as u64));
                let first = position as i128 + 1 - i128::from(self.half) - i128::from(source_start);
                *out = match &self.kernel {
                    Kernel::Table { rows, taps, table } => {
                        let inside =
                            usize::try_from(first).ok().and_then(|at| source.get(at..)?.get(..*taps));
                        let samples = inside.unwrap_or_else(|| {
                            fill(&mut edge[..*taps], source, first);
                            &edge[..*taps]
                        });
                        let place = phase * *rows as f64;
                        let row = place as usize;
                        let weights = lagrange(place - row as f64).map(|w| w as f32);
                        interpolated_dot(&table[row * taps..][..4 * taps], weights, samples)
                    }
                    Kernel::Prototype(points) => {
                        let from = first.clamp(0, source.len() as i128) as usize;
                        let to = (first + 2 * i128::from(self.half)).clamp(0, source.len() as i128) as usize;
                        let before = (from as i128 - first) as f64;
                        let time = phase + self.half as f64 - 1.0 - before;
                        self.sparse_dot(points, time, &source[from..to])
                    }
                };
            }
            Ok(())
        })
    }

    /// The sum with the kernel evaluated at `time`, `time - 1`, ... source samples.
    fn sparse_dot(&self, points: &[f64], time: f64, samples: &[f32]) -> f32 {
        let sum: f64 = (samples.iter().enumerate())
            .map(|(i, sample)| {
                let place = (time - i as f64).abs() * self.scale * POINTS;
                let at = place as usize;
                points.get(at..at + 4).map_or(0.0, |near| {
                    let weights = lagrange(place - at as f64);
                    let kernel: f64 = near.iter().zip(weights).map(|(point, weight)| point * weight).sum();
                    kernel * f64::from(*sample)
                })
            })
            .sum();
        sum as f32
    }
}

/// The sum of `samples` times the cubic between four consecutive rows.
fn interpolated_dot(rows: &[f32], weights: [f32; 4], samples: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if Level::detect() != Level::Portable {
        // SAFETY: all other levels have these features.
        return unsafe { interpolated_dot_avx2(rows, weights, samples) };
    }
    interpolated_dot_at(rows, weights, samples, |a, b, c| a * b + c)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn interpolated_dot_avx2(rows: &[f32], weights: [f32; 4], samples: &[f32]) -> f32 {
    interpolated_dot_at(rows, weights, samples, f32::mul_add)
}

#[inline(always)]
fn interpolated_dot_at(
    rows: &[f32],
    [w0, w1, w2, w3]: [f32; 4],
    samples: &[f32],
    mul_add: impl Fn(f32, f32, f32) -> f32,
) -> f32 {
    let taps = samples.len();
    let row = |i: usize| rows[i * taps..][..taps].as_chunks::<SUMS>().0;
    let (r0, r1, r2, r3) = (row(0), row(1), row(2), row(3));
    let mut sums = [0.0; SUMS];
    for ((((a, b), c), d), x) in r0.iter().zip(r1).zip(r2).zip(r3).zip(samples.as_chunks::<SUMS>().0) {
        for i in 0..SUMS {
            let kernel = mul_add(d[i], w3, mul_add(c[i], w2, mul_add(b[i], w1, a[i] * w0)));
            sums[i] = mul_add(kernel, x[i], sums[i]);
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubic_passes_through_cubics() {
        let cubic = |x: f64| 3.0 - x + 0.5 * x * x - 2.0 * x * x * x;
        for x in [0.0, 0.25, 0.5, 1.0] {
            let found: f64 = lagrange(x).iter().enumerate().map(|(i, w)| w * cubic(i as f64 - 1.0)).sum();
            assert!((found - cubic(x)).abs() < 1e-12);
        }
    }

    #[test]
    fn levels_agree() {
        let value = |i: usize| ((i * 2_654_435_761) % 1000) as f32 / 1000.0 - 0.5;
        let rows: Vec<f32> = (0..4 * 160).map(value).collect();
        let samples: Vec<f32> = (0..160).map(|i| value(i + 77)).collect();
        let weights = lagrange(0.3).map(|w| w as f32);
        let portable = interpolated_dot_at(&rows, weights, &samples, |a, b, c| a * b + c);
        assert!((interpolated_dot(&rows, weights, &samples) - portable).abs() < 1e-5);
    }
}
