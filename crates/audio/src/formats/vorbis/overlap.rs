//! Windows two neighbouring blocks and adds them.
//!
//! Input: the transforms of two blocks of one channel. Output: the samples from the middle of the first block
//! to the middle of the second. Each half of a block has a symmetry, so half of the transform determines it:
//! with `u` of `n / 2` values and `q = n / 4`, the first half of the block is `u[q..]`, then the same
//! backwards and negated; the second half is `u[..q]` backwards and negated, then forwards and negated.
//!
//! Source: Vorbis I specification, sections 4.3.1 (windows) and 4.3.8; own.

use std::ops::Range;

/// Writes the samples `range` between the middles of two blocks with the transforms `before` and `after`.
///
/// `window` is the rising half of the window of the shorter one.
#[inline(always)]
pub(super) fn add(before: &[f32], after: &[f32], window: &[f32], range: Range<usize>, out: &mut [f32]) {
    // The overlap is centred on the quarters of both blocks.
    let (middle, quarter, length) = (before.len() / 2, after.len() / 2, window.len());
    let (begin, end) = (middle - length / 2, middle + length / 2);
    // Sample `i` of the output is sample `i + shift` of the later block, whose second quarter is backwards.
    let last = 3 * quarter - (quarter - length / 2) + begin;
    let part = |part: Range<usize>| {
        let from = part.start.clamp(range.start, range.end);
        from..part.end.clamp(from, range.end.max(from))
    };
    let places = |part: &Range<usize>| part.start - range.start..part.end - range.start;

    let flat = part(0..begin);
    let old = before[middle - flat.end.min(middle)..middle - flat.start.min(middle)].iter().rev();
    out[places(&flat)].iter_mut().zip(old).for_each(|(out, x)| *out = -x);

    let rising = part(begin..middle);
    if !rising.is_empty() {
        let (from, to) = (rising.start - begin, rising.end - begin);
        let old = before[middle - rising.end..middle - rising.start].iter().rev();
        let falling = window[length - to..length - from].iter().rev();
        let new = &after[2 * quarter - length / 2 + from..2 * quarter - length / 2 + to];
        let terms = old.zip(falling).zip(new.iter().zip(&window[from..to]));
        out[places(&rising)].iter_mut().zip(terms).for_each(|(out, ((x, v), (y, w)))| *out = y * w - x * v);
    }

    let falling = part(middle..end);
    if !falling.is_empty() {
        let (from, to) = (falling.start - begin, falling.end - begin);
        let old = &before[falling.start - middle..falling.end - middle];
        let back = window[length - to..length - from].iter().rev();
        let new = after[last - falling.end..last - falling.start].iter().rev();
        let terms = old.iter().zip(back).zip(new.zip(&window[from..to]));
        let places = places(&falling);
        out[places].iter_mut().zip(terms).for_each(|(out, ((x, v), (y, w)))| *out = -(x * v) - y * w);
    }

    let flat = part(end..middle + quarter);
    if !flat.is_empty() {
        let new = after[last - flat.end..last - flat.start].iter().rev();
        out[places(&flat)].iter_mut().zip(new).for_each(|(out, y)| *out = -y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sample `i` of a block with the transform `u`.
    fn sample(u: &[f32], i: usize) -> f32 {
        let quarter = u.len() / 2;
        match i / quarter {
            0 => u[quarter + i],
            1 => -u[3 * quarter - 1 - i],
            2 => -u[3 * quarter - 1 - i],
            _ => -u[i - 3 * quarter],
        }
    }

    /// All pairs of sizes, whole and in ranges, are those of section 4.3.8 sample by sample.
    #[test]
    fn samples_are_those_of_windowed_blocks() {
        let values = |n: u32, seed: u32| -> Vec<f32> {
            (0..n).map(|i| (i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 16) as f32).collect()
        };
        for (b, a) in [(64, 64), (64, 16), (16, 64), (16, 16)] {
            let (before, after, window) = (values(b, 1), values(a, 99), values(a.min(b), 7));
            let (b, a, w) = (b as usize, a as usize, window.len());
            let n = (b + a) / 2;
            // Windows: flat parts of ones and zeros around the slopes.
            let plain: Vec<f32> = (0..n)
                .map(|i| {
                    let (begin, at) = (b / 2 - w / 2, i as isize - (b / 2 - w / 2) as isize);
                    if i < begin {
                        sample(&before, b + i)
                    } else if at < w as isize {
                        let (at, skipped) = (at as usize, a / 2 - w / 2);
                        sample(&before, b + i) * window[w - 1 - at]
                            + sample(&after, at + skipped) * window[at]
                    } else {
                        sample(&after, at as usize + a / 2 - w / 2)
                    }
                })
                .collect();
            for from in 0..n {
                for to in from..=n {
                    let mut out = vec![0.5; to - from];
                    add(&before, &after, &window, from..to, &mut out);
                    assert_eq!(out, plain[from..to], "{b} {a}: {from}..{to}");
                }
            }
        }
    }
}
