//! The mean of two channels, for less than the filters of both.
//!
//! Input: the lines of both channels of a granule, after stereo. Output: the samples of the subbands of their
//! mean. The hybrid filter bank is linear, so where both channels have the same window, their lines are
//! averaged and filtered once; otherwise each is filtered, and the results are added. The polyphase filter
//! then runs once in any case. Differs from the mean of both channels' samples by rounding only.
//!
//! Source: own.

use super::{
    bands::Bands,
    hybrid::{self, Line, Overlap, SLOTS, Tables},
    side::{Channel, LINES},
};
use crate::simd::Lanes;

/// As [`hybrid::filter`], for the mean of two channels, whose state is in the first of `overlaps`; the other
/// one is scratch.
#[inline(always)]
pub(super) fn filter<V: Lanes>(
    tables: &Tables,
    channels: &mut [Channel; 2],
    bands: &[Bands; 3],
    lines: &mut [[f32; LINES]; 2],
    overlaps: &mut [Overlap; 2],
    out: &mut [Line],
) {
    let ([one, other], [left, right], [overlap, scratch]) = (channels, lines, overlaps);
    let n = one.n_lines.max(other.n_lines);
    if (one.shape, one.is_mixed) == (other.shape, other.is_mixed) {
        // Lines that were not coded are zero.
        left[..n].iter_mut().zip(&right[..n]).for_each(|(left, right)| *left = (*left + right) * 0.5);
        one.n_lines = n;
        hybrid::filter::<V>(tables, one, &bands[one.kind() as usize], left, overlap, out);
        return;
    }
    for lines in [&mut *left, &mut *right] {
        lines[..n].iter_mut().for_each(|line| *line *= 0.5);
    }
    hybrid::filter::<V>(tables, one, &bands[one.kind() as usize], left, overlap, out);
    let mut more = [Line::default(); SLOTS];
    *scratch = Overlap::new();
    hybrid::filter::<V>(tables, other, &bands[other.kind() as usize], right, scratch, &mut more);
    hybrid::add(out, &more);
    overlap.add(scratch);
}
