//! The hybrid filter bank of a granule: alias reduction, inverse MDCT, windows and overlap.
//!
//! Input: the lines of a channel. Output: 18 samples of each of the 32 subbands. Eight subbands go side by
//! side as lanes, from the transposition of the lines on. Subbands above the last line are left out. The
//! sign of every second sample of every second subband, which the polyphase filter needs, is part of the
//! windows, and so of the overlap.
//!
//! With `y` the DCT-IV of the 18 lines of a subband, the 36 values of the inverse MDCT are `y[9..18]`,
//! `-y[17..=0]` and `-y[0..9]`. A DCT-IV of `N` is a DCT-II of its input times `2 cos(pi (2 k + 1) / 4 N)`,
//! whose value `n` is the sum of the values `n` and `n - 1`. The DCT-II of 18 is split once more in that way.
//!
//! Source: ISO/IEC 11172-3 section 2.4.3.4.10; the transforms from their formulas.

use std::f64::consts::PI;

use crate::simd::{LANES, Lanes, Row};

use super::{
    bands::{Bands, Kind},
    side::{Channel, LINES},
};

pub(super) const SUBBANDS: usize = 32;
/// Lines of a subband, and samples of it in a granule.
pub(super) const SLOTS: usize = 18;
/// Groups of subbands that are side by side.
const GROUPS: usize = SUBBANDS / LANES;
/// The subbands with a normal window in a mixed block.
const MIXED_SUBBANDS: usize = 2;

/// One row of samples or lines: a value of each subband. Five groups, the last one for the boundary above
/// all.
pub(super) type Line = [Row; GROUPS + 1];

#[inline(always)]
pub(super) fn load<V: Lanes>(values: &[f32], at: usize) -> V {
    let mut row = [0.0; LANES];
    row.copy_from_slice(&values[at..at + LANES]);
    V::load(&row)
}

/// Writes eight values from `at` on.
#[inline(always)]
pub(super) fn store<V: Lanes>(row: V, values: &mut [f32], at: usize) {
    let mut copy = [0.0; LANES];
    row.store(&mut copy);
    values[at..at + LANES].copy_from_slice(&copy);
}

pub(super) struct Tables {
    /// By shape, for the 36 values; short: 12.
    windows: [[Row; 36]; 4],
    /// As `windows`, where two subbands have the normal one.
    mixed_windows: [[Row; 36]; 4],
    /// Factors of alias reduction for each boundary in a group: below the last, below the end of the last,
    /// and only below the first.
    alias: [[(Row, Row); 8]; 3],
    /// `2 cos(pi (2 k + 1) / 72)`.
    dct18: [f32; 18],
    /// `2 cos(pi (2 k + 1) / 36)`.
    dct9: [f32; 9],
    /// `cos(pi (2 n + 1) (2 k + 1) / 24)`.
    dct6: [[f32; 6]; 6],
}

impl Tables {
    pub(super) fn new() -> Self {
        let windows: [_; 4] = std::array::from_fn(|shape| std::array::from_fn(|i| window_row(shape, i)));
        let mut mixed_windows = windows;
        for rows in &mut mixed_windows {
            for (row, normal) in rows.iter_mut().zip(&windows[0]) {
                row.0[..MIXED_SUBBANDS].copy_from_slice(&normal.0[..MIXED_SUBBANDS]);
            }
        }
        // ISO/IEC 11172-3 table B.9.
        const C: [f64; 8] = [-0.6, -0.535, -0.33, -0.185, -0.095, -0.041, -0.0142, -0.0037];
        let alias = [0..8, 0..7, 0..1].map(|used: std::ops::Range<usize>| {
            C.map(|c| {
                let cs = 1.0 / (1.0 + c * c).sqrt();
                let row = |inside: f64, outside: f32| {
                    Row(std::array::from_fn(
                        |lane| if used.contains(&lane) { inside as f32 } else { outside },
                    ))
                };
                (row(cs, 1.0), row(c * cs, 0.0))
            })
        });
        let twice = |k: usize, n: f64| (2.0 * libm::cos(PI * (2 * k + 1) as f64 / n)) as f32;
        Self {
            windows,
            mixed_windows,
            alias,
            dct18: std::array::from_fn(|k| twice(k, 72.0)),
            dct9: std::array::from_fn(|k| twice(k, 36.0)),
            dct6: std::array::from_fn(|n| {
                std::array::from_fn(|k| libm::cos(PI * ((2 * n + 1) * (2 * k + 1)) as f64 / 24.0) as f32)
            }),
        }
    }
}

/// The window of a shape at value `i`.
pub(super) fn window(shape: usize, i: usize) -> f64 {
    let sine = |i: usize, n: f64| libm::sin(PI * (i as f64 + 0.5) / n);
    match (shape, i) {
        (0, _) | (1, 0..18) | (3, 18..) => sine(i, 36.0),
        (1, 18..24) | (3, 12..18) => 1.0,
        (1, 24..30) => sine(i - 18, 12.0),
        (3, 6..12) => sine(i - 6, 12.0),
        (2, 0..12) => sine(i, 12.0),
        _ => 0.0,
    }
}

/// The same for eight subbands, with the signs of the inverse MDCT and of the odd subbands.
fn window_row(shape: usize, i: usize) -> Row {
    // The first values of the DCT-IV that are not negated: a quarter of the window.
    let quarter = if shape == 2 { 3 } else { 9 };
    let value = if i < quarter { window(shape, i) } else { -window(shape, i) } as f32;
    Row(std::array::from_fn(|lane| if lane % 2 == 1 && i % 2 == 1 { -value } else { value }))
}

#[derive(Debug, Clone)]
pub(super) struct Overlap {
    rows: [Line; SLOTS],
    /// Groups of subbands that may not be zero.
    n_groups: usize,
}

impl Overlap {
    pub(super) fn new() -> Self {
        Self { rows: [Line::default(); SLOTS], n_groups: 0 }
    }

    /// Adds the state of another channel. Groups that are zero are so in `rows`, too.
    #[inline(always)]
    pub(super) fn add(&mut self, other: &Self) {
        add(&mut self.rows, &other.rows);
        self.n_groups = self.n_groups.max(other.n_groups);
    }
}

#[inline(always)]
pub(super) fn add(sums: &mut [Line], values: &[Line]) {
    for (sums, values) in sums.iter_mut().flatten().zip(values.iter().flatten()) {
        sums.0.iter_mut().zip(&values.0).for_each(|(sum, value)| *sum += value);
    }
}

/// Filters the lines of `channel` into `out`, one row per time slot.
#[inline(always)]
pub(super) fn filter<V: Lanes>(
    tables: &Tables,
    channel: &Channel,
    bands: &Bands,
    lines: &mut [f32; LINES],
    overlap: &mut Overlap,
    out: &mut [Line],
) {
    let kind = channel.kind();
    let n_lines = if kind == Kind::Long { channel.n_lines } else { reorder(channel, bands, lines) };
    let n_coded = n_lines.div_ceil(SLOTS).div_ceil(LANES);
    // Alias reduction reaches one subband further.
    let n_subbands = match kind {
        Kind::Long => (n_lines.div_ceil(SLOTS) + usize::from(n_lines > 0)).min(SUBBANDS),
        // Below its end, the lower two subbands.
        Kind::Mixed => n_lines.div_ceil(SLOTS).max(if n_lines > 0 { MIXED_SUBBANDS } else { 0 }),
        Kind::Short => n_lines.div_ceil(SLOTS),
    };
    let n_groups = n_subbands.div_ceil(LANES);

    let mut rows = [Line::default(); SLOTS];
    for group in 0..n_coded {
        gather::<V>(lines, group, &mut rows);
    }
    match kind {
        Kind::Long => {
            for group in 0..n_coded {
                let is_last = group == GROUPS - 1;
                reduce_alias::<V>(&tables.alias[usize::from(is_last)], group, &mut rows);
            }
        }
        Kind::Mixed => reduce_alias::<V>(&tables.alias[2], 0, &mut rows),
        Kind::Short => {}
    }
    for group in 0..n_groups {
        let is_mixed = group == 0 && channel.is_mixed;
        let mut x = [V::splat(0.0); SLOTS];
        for (x, row) in x.iter_mut().zip(&rows) {
            *x = V::load(&row[group].0);
        }
        if channel.shape != 2 {
            let windows = if is_mixed { &tables.mixed_windows } else { &tables.windows };
            long::<V>(tables, x, &windows[channel.shape], group, overlap, out);
        } else if is_mixed {
            mixed::<V>(tables, x, overlap, out);
        } else {
            short::<V>(tables, x, group, overlap, out);
        }
    }
    // Lines above are zero: only what the block before left over is due.
    for group in n_groups..GROUPS {
        let is_live = group < overlap.n_groups;
        for (out, saved) in out.iter_mut().zip(&mut overlap.rows) {
            out[group] = if is_live { std::mem::take(&mut saved[group]) } else { Row::default() };
        }
    }
    overlap.n_groups = n_groups;
}

/// Brings the lines of short windows into the order of subbands; returns the number of lines that may not be
/// zero.
fn reorder(channel: &Channel, bands: &Bands, lines: &mut [f32; LINES]) -> usize {
    let old = *lines;
    let mut end = channel.n_lines.min(if bands.n_long > 0 { super::bands::MIXED_LINES } else { 0 });
    let mut starts = bands.iter().skip(bands.n_long);
    while let Some((start, second)) = starts.next() {
        if start >= channel.n_lines {
            break;
        }
        starts.next();
        starts.next();
        let width = second - start;
        end = start + 3 * width;
        let (first, rest) = old[start..end].split_at(width);
        let (second, third) = rest.split_at(width);
        for (to, ((a, b), c)) in
            lines[start..end].as_chunks_mut().0.iter_mut().zip(first.iter().zip(second).zip(third))
        {
            *to = [*a, *b, *c];
        }
    }
    end
}

/// Transposes the lines of eight subbands.
#[inline(always)]
fn gather<V: Lanes>(lines: &[f32; LINES], group: usize, rows: &mut [Line; SLOTS]) {
    let lines = lines[group * LANES * SLOTS..][..LANES * SLOTS].as_chunks::<SLOTS>().0;
    // 18 rows are two tiles and a rest: the third tile writes six rows again, with the same values.
    for at in [0, 8, SLOTS - LANES] {
        let mut tile = [V::splat(0.0); LANES];
        for (tile, lines) in tile.iter_mut().zip(lines) {
            *tile = load(lines, at);
        }
        for (row, values) in rows[at..].iter_mut().zip(V::transpose(tile)) {
            values.store(&mut row[group].0);
        }
    }
}

/// Mixes the lines beside the upper boundaries of the subbands of a group.
#[inline(always)]
fn reduce_alias<V: Lanes>(factors: &[(Row, Row); 8], group: usize, rows: &mut [Line; SLOTS]) {
    for (i, (cs, ca)) in factors.iter().enumerate() {
        let (cs, ca) = (V::load(&cs.0), V::load(&ca.0));
        let below = V::load(&rows[SLOTS - 1 - i][group].0);
        // The lines of the next subbands.
        let [this, next] = [rows[i][group].0, rows[i][group + 1].0];
        let mut above = [0.0; 2 * LANES];
        above[..LANES].copy_from_slice(&this);
        above[LANES..].copy_from_slice(&next);
        let upper: V = load(&above, 1);
        (below * cs - upper * ca).store(&mut rows[SLOTS - 1 - i][group].0);
        let mut mixed = [0.0; LANES];
        (upper * cs + below * ca).store(&mut mixed);
        rows[i][group].0[1..].copy_from_slice(&mixed[..LANES - 1]);
        rows[i][group + 1].0[0] = mixed[LANES - 1];
    }
}

/// Transforms eight subbands with one window.
#[inline(always)]
fn long<V: Lanes>(
    tables: &Tables,
    x: [V; SLOTS],
    window: &[Row; 36],
    group: usize,
    overlap: &mut Overlap,
    out: &mut [Line],
) {
    let y = dct4_18(tables, x);
    for i in 0..SLOTS {
        let saved = &mut overlap.rows[i][group].0;
        // The order of the 36 values is on the first page; their signs are part of `window`.
        let value = if i < 9 { y[9 + i] } else { y[26 - i] };
        (value * V::load(&window[i].0) + V::load(saved)).store(&mut out[i][group].0);
        let value = if i < 9 { y[8 - i] } else { y[i - 9] };
        (value * V::load(&window[SLOTS + i].0)).store(saved);
    }
}

/// Transforms eight subbands with three windows.
#[inline(always)]
fn short<V: Lanes>(tables: &Tables, x: [V; SLOTS], group: usize, overlap: &mut Overlap, out: &mut [Line]) {
    // Each window's 12 values begin 6 later than those of the one before, the first at 6.
    let mut all = [V::splat(0.0); 36];
    for first in 0..3 {
        let mut y = [V::splat(0.0); 6];
        for (y, factors) in y.iter_mut().zip(&tables.dct6) {
            for (k, factor) in factors.iter().enumerate() {
                *y = *y + x[3 * k + first] * V::splat(*factor);
            }
        }
        for i in 0..12 {
            let value = match i {
                0..3 => y[3 + i],
                3..9 => y[8 - i],
                _ => y[i - 9],
            };
            let at = 6 + 6 * first + i;
            all[at] = all[at] + value * V::load(&tables.windows[2][i].0);
        }
    }
    for i in 0..SLOTS {
        let saved = &mut overlap.rows[i][group].0;
        (all[i] + V::load(saved)).store(&mut out[i][group].0);
        all[SLOTS + i].store(saved);
    }
}

/// Transforms the first eight subbands of a mixed block: two with one window, the others with three.
fn mixed<V: Lanes>(tables: &Tables, x: [V; SLOTS], overlap: &mut Overlap, out: &mut [Line]) {
    // Both transforms run on all eight subbands; the lower two lanes then take the result of `long`.
    let mut lower = overlap.clone();
    let mut lower_out = [Line::default(); SLOTS];
    long::<V>(tables, x, &tables.windows[0], 0, &mut lower, &mut lower_out);
    short::<V>(tables, x, 0, overlap, out);
    for i in 0..SLOTS {
        let (to, from) = (&mut out[i][0].0, &lower_out[i][0].0);
        to[..MIXED_SUBBANDS].copy_from_slice(&from[..MIXED_SUBBANDS]);
        let (to, from) = (&mut overlap.rows[i][0].0, &lower.rows[i][0].0);
        to[..MIXED_SUBBANDS].copy_from_slice(&from[..MIXED_SUBBANDS]);
    }
}

#[inline(always)]
fn dct4_18<V: Lanes>(tables: &Tables, x: [V; 18]) -> [V; 18] {
    // Loops, since a closure is compiled without the instructions of its level unless it is inlined.
    let half = V::splat(0.5);
    let (mut even, mut odd) = ([half; 9], [half; 9]);
    for k in 0..9 {
        let (a, b) = (x[k] * V::splat(tables.dct18[k]), x[17 - k] * V::splat(tables.dct18[17 - k]));
        even[k] = a + b;
        odd[k] = (a - b) * V::splat(tables.dct9[k]);
    }
    let (even, odd) = (dct2_9(even), dct2_9(odd));
    let mut y = [V::splat(0.0); 18];
    // The odd values of the DCT-II, from their sums; then those of the DCT-IV.
    let mut before = odd[0] * half;
    y[0] = even[0] * half;
    y[1] = before - y[0];
    for n in 1..9 {
        y[2 * n] = even[n] - y[2 * n - 1];
        before = odd[n] - before;
        y[2 * n + 1] = before - y[2 * n];
    }
    y
}

#[inline(always)]
fn dct2_9<V: Lanes>(a: [V; 9]) -> [V; 9] {
    const C30: f32 = 0.866_025_4;
    const C40: f32 = 0.766_044_44;
    const C50: f32 = 0.642_787_6;
    const C70: f32 = 0.342_020_14;
    const C80: f32 = 0.173_648_18;
    let [s0, s1, s2, s3] = [a[0] + a[8], a[1] + a[7], a[2] + a[6], a[3] + a[5]];
    let [d0, d1, d2, d3] = [a[0] - a[8], a[1] - a[7], a[2] - a[6], a[3] - a[5]];
    // Even values, where cos 20 = cos 40 + cos 80.
    let (u, v, w) = (s2 - s0, s3 - s0, s2 - s3);
    let sum = s0 + s2 + s3;
    let flat = a[4] - s1 * V::splat(0.5);
    let e2 = V::splat(0.0) - flat - (u * V::splat(C80) + v * V::splat(C40));
    let e6 = sum * V::splat(0.5) - s1 - a[4];
    let e4 = flat - (u * V::splat(C40) + w * V::splat(C80));
    let e8 = flat - v * V::splat(C80) + w * V::splat(C40);
    // Odd values, where cos 10 = cos 50 + cos 70.
    let h = d1 * V::splat(C30);
    let (p, q, r) = (d0 + d2, d0 + d3, d2 - d3);
    let o1 = p * V::splat(C50) + q * V::splat(C70) + h;
    let o3 = (d0 - d2 - d3) * V::splat(C30);
    let o5 = q * V::splat(C50) - r * V::splat(C70) - h;
    let o7 = p * V::splat(C70) + r * V::splat(C50) - h;
    [sum + s1 + a[4], o1, e2, o3, e4, o5, e6, o7, e8]
}
