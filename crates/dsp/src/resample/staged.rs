//! Resampling in two stages, for rates whose ratio is awkward (35 467 to 32 000 Hz).
//!
//! The first stage works in the frequency domain (`block`), with the whole kernel. Its output is on a *fine*
//! grid of at least twice the lower rate and in a small ratio to the source. There the signal ends at a
//! quarter of the grid's rate and its first image begins at three quarters. So the second stage, a short
//! kernel of [`TAPS`], can interpolate between two samples. That kernel is the same for all pairs of rates.
//! It is a cubic between [`ROWS`] phases, whose coefficients, 24 KB, stay in the first-level cache.
//!
//! Fine samples are on an absolute grid, also before the recording's start, and each output is a sum in a
//! fixed order. So its bits do not depend on the requested span. Positions are exact fractions of integers.
//! Source: own; the two stages are as in Smith, "Digital Audio Resampling", the kernel is Kaiser's.

use super::{
    Ratio,
    block::{BlockPlan, is_smooth},
    design::Prototype,
};
use crate::{
    Result, fallible_alloc,
    simd::{LANES, Lanes, Level, Work},
};
use std::{cell::RefCell, ops::Range};

/// Fine samples under the short kernel.
const TAPS: usize = 24;

/// Taps before an output's position, not counting the one at or before it.
const BEFORE: i128 = TAPS as i128 / 2 - 1;

/// Phases per fine sample between which the short kernel is a cubic, through four of them, with an error
/// below -150 dB.
const ROWS: usize = 64;

/// Attenuation of the images, in dB: with this number of taps and a transition band of half the fine rate, it
/// is reached with a margin.
const ATTENUATION_DB: f64 = 165.0;

/// Largest denominator of fine rate / source rate.
const MAX_STEP: u32 = 16;

/// The coefficients of the weights' cubics from phase to phase, the constant ones first.
type Table = [[[f32; TAPS]; 4]; ROWS];

/// A plan for one pair of rates.
pub(super) struct Staged {
    /// From the source onto the fine grid.
    block: BlockPlan,
    /// Fine samples from one output to the next: `step / parts`.
    step: u64,
    parts: u64,
    table: Box<Table>,
}

thread_local! {
    /// Fine samples of a pair of blocks, after the last ones of the previous pair.
    static FINE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// The position of an output's first tap.
struct Cursor {
    /// The index in the buffer of fine samples.
    at: usize,
    /// The output's distance from the sample at `at + BEFORE`, in parts.
    part: u64,
    /// The step from output to output.
    whole_step: usize,
    part_step: u64,
    parts: u64,
}

impl Cursor {
    fn advance(&mut self) {
        self.at += self.whole_step;
        self.part += self.part_step;
        if self.part >= self.parts {
            self.part -= self.parts;
            self.at += 1;
        }
    }
}

/// Coefficients of the cubic through `[before, at, behind, further]` at -1, 0, 1 and 2, the constant one
/// first.
fn cubic([before, at, behind, further]: [f64; 4]) -> [f64; 4] {
    [
        at,
        behind - further / 6.0 - at / 2.0 - before / 3.0,
        (before + behind) / 2.0 - at,
        (further - before) / 6.0 + (at - behind) / 2.0,
    ]
}

impl Staged {
    /// A plan, or `None` if the first stage needs blocks that are too long.
    pub(super) fn new(ratio: Ratio, prototype: &Prototype) -> Option<Self> {
        // The lowest fine rate, as a fraction of the source rate, that is high enough and has only factors
        // with a fast transform.
        let enough = 2.0 * ratio.lower();
        let (fine, per) = (1..=MAX_STEP)
            .filter(|&per| is_smooth(per as usize, 5))
            .filter_map(|per| {
                let least = (enough * f64::from(per)).ceil() as u32;
                Some(((least..=2 * MAX_STEP).find(|&fine| is_smooth(fine as usize, 5))?, per))
            })
            .min_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)))?;
        let block = BlockPlan::new(Ratio { source: per, target: fine }, ratio.lower(), prototype)?;
        let kernel = Prototype::interpolator(TAPS as f64 / 2.0, ATTENUATION_DB);
        let table = Box::new(std::array::from_fn(|row| {
            let cubics: [[f64; 4]; TAPS] =
                std::array::from_fn(|i| {
                    let points = [-1.0, 0.0, 1.0, 2.0];
                    cubic(points.map(|point| {
                        kernel.at((row as f64 + point) / ROWS as f64 + BEFORE as f64 - i as f64)
                    }))
                });
            std::array::from_fn(|power| cubics.map(|cubic| cubic[power] as f32))
        }));
        let (step, parts) =
            (u64::from(ratio.source) * u64::from(fine), u64::from(ratio.target) * u64::from(per));
        Some(Self { block, step, parts, table })
    }

    /// The fine sample at or before output `target`, and the output's distance from it, in parts.
    fn position(&self, target: u64) -> (i128, u64) {
        let (product, parts) = (i128::from(target) * i128::from(self.step), i128::from(self.parts));
        (product / parts, (product % parts) as u64)
    }

    /// Source samples that `target` reads, from 0 on.
    pub(super) fn input_span(&self, target: Range<u64>) -> Range<u64> {
        let first = self.position(target.start).0 - BEFORE;
        let last = self.position(target.end - 1).0 - BEFORE + TAPS as i128 - 1;
        self.block.input_span(first..last + 1)
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
        let pair_len = self.block.pair_len();
        let (position, part) = self.position(target_start);
        let mut fine_start = (position - BEFORE).div_euclid(pair_len as i128) * pair_len as i128;
        let mut cursor = Cursor {
            // The pair with the first tap follows `TAPS` samples that no output of this call reads.
            at: TAPS + (position - BEFORE - fine_start) as usize,
            part,
            whole_step: (self.step / self.parts) as usize,
            part_step: self.step % self.parts,
            parts: self.parts,
        };
        FINE.with_borrow_mut(|fine| {
            let len = TAPS + pair_len;
            if fine.len() < len {
                fallible_alloc::resize(fine, len, 0.0)?;
            }
            let fine = &mut fine[..len];
            let mut rest = out;
            while !rest.is_empty() {
                self.block.run(source, source_start, fine_start, &mut fine[TAPS..])?;
                let count = interpolate(&self.table, fine, &mut cursor, rest);
                rest = &mut rest[count..];
                fine.copy_within(pair_len.., 0);
                fine_start += pair_len as i128;
                cursor.at -= pair_len.min(cursor.at);
            }
            Ok(())
        })
    }
}

/// Writes the outputs from `cursor` on whose taps are all within `fine`; returns their number.
fn interpolate(table: &Table, fine: &[f32], cursor: &mut Cursor, out: &mut [f32]) -> usize {
    Level::detect().run(Interpolate { table, fine, cursor, out })
}

struct Interpolate<'a> {
    table: &'a Table,
    fine: &'a [f32],
    cursor: &'a mut Cursor,
    out: &'a mut [f32],
}

impl Work for Interpolate<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<V: Lanes>(self) -> usize {
        interpolate_at::<V>(self.table, self.fine, self.cursor, self.out)
    }
}

#[inline(always)]
fn interpolate_at<L: Lanes>(table: &Table, fine: &[f32], cursor: &mut Cursor, out: &mut [f32]) -> usize {
    let rows_per_part = ROWS as f64 / cursor.parts as f64;
    for (count, out) in out.iter_mut().enumerate() {
        let Some(samples) = fine.get(cursor.at..).and_then(|rest| rest.first_chunk::<TAPS>()) else {
            return count;
        };
        let place = cursor.part as f64 * rows_per_part;
        let row = (place as usize).min(ROWS - 1);
        let x = L::splat((place - row as f64) as f32);
        let [c0, c1, c2, c3] = &table[row];
        let mut sum = L::splat(0.0);
        for group in 0..TAPS / LANES {
            let lanes = |of: &[f32; TAPS]| L::load(&of.as_chunks().0[group]);
            let weight = lanes(c3).mul_add(x, lanes(c2)).mul_add(x, lanes(c1)).mul_add(x, lanes(c0));
            sum = weight.mul_add(lanes(samples), sum);
        }
        let mut sums = [0.0; LANES];
        sum.store(&mut sums);
        // A sum of pairs has a shorter chain of additions.
        let four: [f32; 4] = std::array::from_fn(|i| sums[i] + sums[i + 4]);
        *out = (four[0] + four[2]) + (four[1] + four[3]);
        cursor.advance();
    }
    out.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Quality, simd::Portable};

    fn plan(source: u32, target: u32) -> Staged {
        Staged::new(Ratio::new(source, target), &Prototype::new(Quality::Default)).unwrap()
    }

    #[test]
    fn fine_rate_is_at_least_twice_the_lower() {
        for (source, target) in [(35_467, 32_000), (11_127, 32_000), (44_056, 16_000), (64_001, 32_000)] {
            let plan = plan(source, target);
            let fine = f64::from(target) * plan.step as f64 / plan.parts as f64;
            let least = 2.0 * f64::from(source.min(target));
            assert!((least..1.2 * least).contains(&fine), "{source} to {target}: {fine} Hz");
        }
    }

    #[test]
    fn cubic_passes_through_its_points() {
        let value = |[a, b, c, d]: [f64; 4], x: f64| ((d * x + c) * x + b) * x + a;
        let points = [0.3, -1.0, 2.5, 0.7];
        for (x, point) in [-1.0, 0.0, 1.0, 2.0].into_iter().zip(points) {
            assert!((value(cubic(points), x) - point).abs() < 1e-12, "{x}");
        }
    }

    #[test]
    fn short_kernel_keeps_what_is_below_a_quarter_of_the_rate() {
        let plan = plan(35_467, 32_000);
        for cycles in [0.0, 0.01, 0.1, 0.2, 0.25] {
            let wave = |time: f64| (std::f64::consts::TAU * cycles * time).cos();
            let fine: Vec<f32> = (0..2000).map(|i| wave(f64::from(i)) as f32).collect();
            let mut cursor = Cursor { at: 100, part: 3, whole_step: 1, part_step: 7_919, parts: 10_007 };
            let mut out = vec![0.0; 1000];
            let start = 100.0 + BEFORE as f64;
            assert_eq!(interpolate(&plan.table, &fine, &mut cursor, &mut out), 1000);
            for (i, found) in out.iter().enumerate() {
                let time = start + (3.0 + i as f64 * (10_007.0 + 7_919.0)) / 10_007.0;
                assert!((f64::from(*found) - wave(time)).abs() < 5e-7, "{cycles} cycles, output {i}");
            }
        }
    }

    #[test]
    fn levels_agree() {
        let plan = plan(35_467, 32_000);
        let fine: Vec<f32> = (0..300).map(|i| ((i * 7_919) % 1000) as f32 / 1000.0 - 0.5).collect();
        let cursor = || Cursor { at: 0, part: 0, whole_step: 1, part_step: 977, parts: 1000 };
        let (mut fast, mut portable) = (vec![0.0; 400], vec![0.0; 400]);
        let count = interpolate(&plan.table, &fine, &mut cursor(), &mut fast);
        let same = interpolate_at::<Portable>(&plan.table, &fine, &mut cursor(), &mut portable);
        assert!(count == same && (130..150).contains(&count), "{count} and {same}");
        assert!(fast.iter().zip(&portable).all(|(a, b)| (a - b).abs() < 1e-6));
    }
}
