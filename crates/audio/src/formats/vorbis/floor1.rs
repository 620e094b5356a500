//! Floors of type 1: a curve of integer line segments in decibels.
//!
//! Input: a packet's bits. Output: the lines of one channel, ready to be multiplied into its spectrum. A line
//! steps in fixed point: `y` has 24 fractional bits and a constant step, so that neither a division nor a
//! branch is left in the loop over bins. Invariant: the truncated `y` equals that of the specification's
//! integer algorithm at every bin (a test compares all lines).
//!
//! Refused, as in symphonia: more than 65 positions. Also refused: equal positions, which the specification
//! forbids.
//!
//! Source: Vorbis I specification, sections 7.2, 9.2.4 to 9.2.7, 10.1.

use super::{
    codebook::{Book, Stop},
    reservoir::Reservoir,
    setup::{self, Class, ilog},
};
use crate::fork_lock::OnceLock;

const MAX_POSITIONS: usize = 65;
/// The most steps of a line for which [`FRACTION`] bits are exact; a longer line is cut into level parts.
const LONGEST: u32 = 1 << 12;
/// The fractional bits of a height.
const FRACTION: u32 = 24;

/// A floor that is ready for use.
#[derive(Debug)]
pub(super) struct Lines {
    partitions: Vec<u8>,
    classes: Vec<Class>,
    multiplier: i32,
    points: Vec<Point>,
    sorted: Vec<u8>,
}

/// A position of the curve, and the earlier ones at both sides.
#[derive(Debug, Clone, Copy)]
struct Point {
    x: u32,
    low: u8,
    high: u8,
}

/// A part of a curve: the bins from the end of the previous line up to `end`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    end: u32,
    /// Height at the first bin, and its step, with [`FRACTION`] bits after the point.
    y: u32,
    step: u32,
}

impl Lines {
    /// Builds a floor; the text is the reason why it cannot be used.
    pub(super) fn new(of: &setup::Floor1) -> Result<Self, &'static str> {
        if of.xs.len() > MAX_POSITIONS {
            return Err("a floor has more than 65 positions");
        }
        let mut sorted: Vec<u8> = (0..of.xs.len() as u8).collect();
        sorted.sort_unstable_by_key(|&i| of.xs[usize::from(i)]);
        if sorted.windows(2).any(|two| of.xs[usize::from(two[0])] == of.xs[usize::from(two[1])]) {
            return Err("a floor has two points at one position");
        }
        let points = (0..of.xs.len()).map(|i| {
            let (x, before) = (of.xs[i], of.xs[..i].iter().enumerate());
            // Sections 9.2.4 and 9.2.5: neighbours among the points listed before this one only.
            let low = before.clone().filter(|(_, other)| **other < x).max_by_key(|(_, other)| **other);
            let high = before.filter(|(_, other)| **other > x).min_by_key(|(_, other)| **other);
            let index = |found: Option<(usize, &u16)>| found.map_or(0, |(i, _)| i as u8);
            Point { x: x.into(), low: index(low), high: index(high) }
        });
        Ok(Self {
            partitions: of.partitions.clone(),
            classes: of.classes.clone(),
            multiplier: of.multiplier.into(),
            points: points.collect(),
            sorted,
        })
    }

    /// Reads the curve of a channel in `half` bins; false if it is not used, or if the packet ends in it.
    ///
    /// # Errors
    /// [`Stop::Fault`] for a codebook without codewords, [`Stop::End`] if the packet ends.
    pub(super) fn read(
        &self,
        bits: &mut Reservoir<'_>,
        books: &[Book],
        half: u32,
        lines: &mut Vec<Line>,
    ) -> Result<bool, Stop> {
        lines.clear();
        if bits.read(1)? == 0 {
            return Ok(false);
        }
        // Section 7.2.3: the number of heights, by the multiplier.
        let range = [256, 128, 86, 64][self.multiplier as usize - 1];
        let width = ilog(range as u32 - 1);
        let mut ys = [0; MAX_POSITIONS];
        (ys[0], ys[1]) = (bits.read(width)? as i32, bits.read(width)? as i32);
        let mut rest = &mut ys[2..];
        for &class in &self.partitions {
            let class = &self.classes[usize::from(class)];
            let (part, behind) = rest.split_at_mut(class.dimensions.into());
            rest = behind;
            let mut selector = match class.subclass_bits {
                0 => 0,
                _ => books[usize::from(class.master_book)].entry(bits)?,
            };
            for y in part {
                let subclass = selector & ((1 << class.subclass_bits) - 1);
                // The master codeword holds one subclass for each dimension, the first in the lowest bits.
                selector >>= class.subclass_bits;
                // Without a codebook the difference is 0: the point lies on the line between its neighbours.
                if let Some(book) = class.books[subclass as usize] {
                    *y = books[usize::from(book)].entry(bits)? as i32;
                }
            }
        }
        let is_used = self.unwrap(&mut ys, range);
        self.draw(&ys, &is_used, half, lines);
        Ok(true)
    }

    /// Turns the differences `ys` into heights (section 7.2.4, step 1); returns which points the curve has.
    #[expect(clippy::inline_always, reason = "measured together with its only caller")]
    #[inline(always)]
    fn unwrap(&self, ys: &mut [i32; MAX_POSITIONS], range: i32) -> [bool; MAX_POSITIONS] {
        let mut is_used = [false; MAX_POSITIONS];
        (is_used[0], is_used[1]) = (true, true);
        for (i, point) in self.points.iter().enumerate().skip(2) {
            let (low, high) = (usize::from(point.low), usize::from(point.high));
            let (x0, y0) = (self.points[low].x, ys[low]);
            let (x1, y1) = (self.points[high].x, ys[high]);
            // Heights of codebooks with too many entries may wrap; they are limited when they are drawn.
            let dy = y1.wrapping_sub(y0);
            // Section 9.2.6, `render_point`. No two positions are equal, so the divisor is not 0.
            let off = (dy.unsigned_abs().wrapping_mul(point.x - x0) / (x1 - x0)) as i32;
            let predicted = if dy < 0 { y0.wrapping_sub(off) } else { y0.wrapping_add(off) };
            let value = ys[i];
            if value == 0 {
                ys[i] = predicted;
                continue;
            }
            // A coded point also fixes its neighbours: the curve passes through all three.
            (is_used[low], is_used[high], is_used[i]) = (true, true, true);
            let (high_room, low_room) = (range.wrapping_sub(predicted), predicted);
            let room = high_room.min(low_room).wrapping_mul(2);
            // Below `room`, odd values go down and even ones up. Above, only the side with more room is left.
            ys[i] = if value >= room {
                if high_room > low_room {
                    value.wrapping_sub(low_room).wrapping_add(predicted)
                } else {
                    predicted.wrapping_sub(value).wrapping_add(high_room).wrapping_sub(1)
                }
            } else if value & 1 == 1 {
                predicted.wrapping_sub((value + 1) / 2)
            } else {
                predicted.wrapping_add(value / 2)
            };
        }
        is_used
    }

    /// Lists the lines through the used points (step 2), up to bin `half`.
    fn draw(
        &self,
        ys: &[i32; MAX_POSITIONS],
        is_used: &[bool; MAX_POSITIONS],
        half: u32,
        lines: &mut Vec<Line>,
    ) {
        // The limits matter for crafted streams only: the table of amplitudes has 256 rows.
        let height = |i: usize| ys[i].wrapping_mul(self.multiplier).clamp(0, 255);
        let (mut x0, mut y0) = (0, height(usize::from(self.sorted[0])));
        for &i in &self.sorted[1..] {
            let i = usize::from(i);
            if is_used[i] && x0 < half {
                let (x1, y1) = (self.points[i].x, height(i));
                line([x0, x1], [y0, y1], half, lines);
                (x0, y0) = (x1, y1);
            }
        }
        if x0 < half {
            line([x0, half], [y0, y0], half, lines);
        }
    }
}

/// Appends the line between two points, up to bin `half`.
fn line([x0, x1]: [u32; 2], [y0, y1]: [i32; 2], half: u32, lines: &mut Vec<Line>) {
    let (length, dy) = (x1 - x0, (y1 - y0).unsigned_abs());
    if length <= LONGEST {
        // `dy` is at most 255, so 32 bits hold it. Rounded up, the height after `k < length` steps is too
        // large by less than `length / 2^24`, which is at most `1 / length`. So it has the integer part of
        // `k dy / length`.
        let up = (dy << FRACTION).div_ceil(length);
        // Downwards, the height is rounded up.
        let (part, step) = if y1 < y0 { ((1 << FRACTION) - 1, up.wrapping_neg()) } else { (0, up) };
        lines.push(Line { end: x1.min(half), y: (y0 as u32) << FRACTION | part, step });
        return;
    }
    for level in 0..=dy {
        let y = if y1 < y0 { y0 as u32 - level } else { y0 as u32 + level };
        // The first bin of the next level.
        let end = if level < dy { x0 + ((level + 1) * length).div_ceil(dy) } else { x1 };
        lines.push(Line { end: end.min(half), y: y << FRACTION, step: 0 });
        if end >= half {
            return;
        }
    }
}

/// Multiplies a curve into a spectrum.
#[inline(always)]
pub(super) fn apply(lines: &[Line], table: &[f32; 256], spectrum: &mut [f32]) {
    let mut begin = 0;
    for &Line { end, mut y, step } in lines {
        for value in &mut spectrum[begin..end as usize] {
            // Eight bits are left, so the index is below 256 and needs no check.
            *value *= table[(y >> FRACTION) as usize];
            y = y.wrapping_add(step);
        }
        begin = end as usize;
    }
}

/// The amplitudes of heights 0 to 255, in steps of 140/256 dB up to 1. The table of section 10.1 was made
/// with ln(10)/20 cut to eight digits, which is 7e-7 of the smallest amplitude.
pub(super) fn amplitudes() -> &'static [f32; 256] {
    static TABLE: OnceLock<[f32; 256]> = OnceLock::new();
    TABLE.get_or_init(|| {
        std::array::from_fn(|i| libm::exp((i as f64 - 255.0) * (140.0 / 256.0 * 0.115_129_25)) as f32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 9.2.7 as it is written there.
    fn plain(x0: i32, y0: i32, x1: i32, y1: i32, end: i32, out: &mut Vec<i32>) {
        let (dy, adx) = (y1 - y0, x1 - x0);
        let base = dy / adx;
        let ady = dy.abs() - base.abs() * adx;
        let sy = if dy < 0 { base - 1 } else { base + 1 };
        let (mut y, mut err) = (y0, 0);
        out.push(y);
        for _ in x0 + 1..x1.min(end) {
            err += ady;
            if err >= adx {
                err -= adx;
                y += sy;
            } else {
                y += base;
            }
            out.push(y);
        }
    }

    /// All rises over all lengths that occur: short ones, the longest, and some between.
    #[test]
    fn lines_are_those_of_the_specification() {
        let table = std::array::from_fn(|i| i as f32);
        let lengths =
            (1..200).chain([255, 256, 257, 1000, 1023, 1024, 2047, 2048, 4095, 4096, 4097, 8192, 32_768]);
        let (mut lines, mut heights) = (Vec::new(), Vec::new());
        for length in lengths {
            for dy in -255..=255 {
                let y0 = if dy < 0 { 255 } else { 0 };
                let half = 4096;
                lines.clear();
                heights.clear();
                line([0, length], [y0, y0 + dy], half, &mut lines);
                plain(0, y0, length as i32, y0 + dy, half as i32, &mut heights);
                let mut spectrum = vec![1.0; length.min(half) as usize];
                apply(&lines, &table, &mut spectrum);
                assert!(
                    spectrum.iter().map(|&y| y as i32).eq(heights.iter().copied())
                        && heights.len() == spectrum.len(),
                    "{length} {dy}"
                );
            }
        }
    }

    #[test]
    fn amplitudes_are_those_of_the_specification() {
        for (i, value) in [
            (0, 1.064_986_3e-7),
            (1, 1.134_195_1e-7),
            (152, 0.001_526_138_2),
            (253, 0.881_683_07),
            (255, 1.0),
        ] {
            let found = amplitudes()[i];
            assert!((found / value - 1.0).abs() < 1.2e-7, "{i}: {found}");
        }
    }
}
