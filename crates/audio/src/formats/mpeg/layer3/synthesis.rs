//! The polyphase synthesis filter bank: 32 samples of each time slot from those of the 32 subbands.
//!
//! Eight time slots go side by side as lanes. The matrixing is a DCT-II of 32: with its values `X`, the
//! vector `V` of the standard is `X[16..32], 0, -X[31..=1], -X[0], -X[1..16]`. So each row of `X`, kept with
//! the 16 time slots before, gives the samples `16 - m` and `16 + m` of the rows `32 - m` and `m`. A DCT-II
//! splits into one of half its length of sums, and one of differences over `2 cos`, of which each two
//! neighbours add up to an odd value.
//!
//! Source: ISO/IEC 11172-3 section 2.4.3.2.2, annex A figure A.2, table B.3; Lee, "A new algorithm to compute
//! the discrete cosine transform", IEEE ASSP 32 (1984), for the split.

use std::f64::consts::PI;

use crate::simd::{LANES, Lanes};

use super::hybrid::{Line, SUBBANDS, load, store};

/// The most time slots of a frame, in whole vectors.
pub(super) const MAX_SLOTS: usize = 40;
/// Time slots kept: the window reaches back 15.
const KEPT: usize = 16;

/// The first half of the window `D` and its middle, times 65536.
const D: [i32; 257] = [
    0, -1, -1, -1, -1, -1, -1, -2, -2, -2, -2, -3, -3, -4, -4, -5, -5, -6, -7, -7, -8, -9, -10, -11, -13,
    -14, -16, -17, -19, -21, -24, -26, -29, -31, -35, -38, -41, -45, -49, -53, -58, -63, -68, -73, -79, -85,
    -91, -97, -104, -111, -117, -125, -132, -139, -147, -154, -161, -169, -176, -183, -190, -196, -202, -208,
    213, 218, 222, 225, 227, 228, 228, 227, 224, 221, 215, 208, 200, 189, 177, 163, 146, 127, 106, 83, 57,
    29, -2, -36, -72, -111, -153, -197, -244, -294, -347, -401, -459, -519, -581, -645, -711, -779, -848,
    -919, -991, -1064, -1137, -1210, -1283, -1356, -1428, -1498, -1567, -1634, -1698, -1759, -1817, -1870,
    -1919, -1962, -2001, -2032, -2057, -2075, -2085, -2087, -2080, -2063, 2037, 2000, 1952, 1893, 1822, 1739,
    1644, 1535, 1414, 1280, 1131, 970, 794, 605, 402, 185, -45, -288, -545, -814, -1095, -1388, -1692, -2006,
    -2330, -2663, -3004, -3351, -3705, -4063, -4425, -4788, -5153, -5517, -5879, -6237, -6589, -6935, -7271,
    -7597, -7910, -8209, -8491, -8755, -8998, -9219, -9416, -9585, -9727, -9838, -9916, -9959, -9966, -9935,
    -9863, -9750, -9592, -9389, -9139, -8840, -8492, -8092, -7640, -7134, 6574, 5959, 5288, 4561, 3776, 2935,
    2037, 1082, 70, -998, -2122, -3300, -4533, -5818, -7154, -8540, -9975, -11455, -12980, -14548, -16155,
    -17799, -19478, -21189, -22929, -24694, -26482, -28289, -30112, -31947, -33791, -35640, -37489, -39336,
    -41176, -43006, -44821, -46617, -48390, -50137, -51853, -53534, -55178, -56778, -58333, -59838, -61289,
    -62684, -64019, -65290, -66494, -67629, -68692, -69679, -70590, -71420, -72169, -72835, -73415, -73908,
    -74313, -74630, -74856, -74992, 75038,
];

pub(super) struct Tables {
    /// `1 / (2 cos(pi (2 k + 1) / 2 N))` for N of 32, 16, 8, 4 and 2, one after the other.
    halves: [f32; 31],
    /// For each m up to 16, and every second time slot back: the window of the rows `32 - m` and `m` for
    /// sample `16 - m`, then for sample `16 + m`.
    window: [[[f32; 4]; 8]; 17],
}

impl Tables {
    pub(super) fn new() -> Self {
        let halves = [16, 8, 4, 2, 1].into_iter().flat_map(|half| {
            (0..half).map(move |k| (0.5 / libm::cos(PI * (2 * k + 1) as f64 / (4 * half) as f64)) as f32)
        });
        let mut table = [0.0; 31];
        table.iter_mut().zip(halves).for_each(|(to, value)| *to = value);
        let window = std::array::from_fn(|m| {
            std::array::from_fn(|i| {
                // Rows that are zero, and samples beyond 31.
                let even = if m == 0 { 0.0 } else { 1.0 };
                let upper = if m == 16 { 0.0 } else { 1.0 };
                let upper_at = if m == 16 { 0 } else { 16 + m };
                [
                    even * window(16 - m + 64 * i),
                    -window(48 - m + 64 * i),
                    -even * upper * window(upper_at + 64 * i),
                    -upper * window(upper_at + 32 + 64 * i),
                ]
            })
        });
        Self { halves: table, window }
    }
}

pub(super) fn window(i: usize) -> f32 {
    let value = match i {
        0..=256 => D[i],
        _ if i.is_multiple_of(64) => D[512 - i],
        _ => -D[512 - i],
    };
    value as f32 / 65536.0
}

/// The state of a channel: the values of the DCT by row, for the time slots of the last frame and of this.
#[derive(Debug, Clone)]
pub(super) struct History {
    rows: [[f32; KEPT + MAX_SLOTS]; SUBBANDS],
}

impl History {
    pub(super) fn new() -> Self {
        Self { rows: [[0.0; KEPT + MAX_SLOTS]; SUBBANDS] }
    }
}

/// Synthesizes `n_slots` time slots of `subbands` into 32 times as many samples.
#[inline(always)]
pub(super) fn synthesize<V: Lanes>(
    tables: &Tables,
    history: &mut History,
    subbands: &[Line; MAX_SLOTS],
    n_slots: usize,
    out: &mut [f32],
) {
    let out = out.as_chunks_mut::<SUBBANDS>().0;
    // 18 or 36 slots are no multiple of eight: the last batch has more slots than `out`, which `zip` drops.
    for (batch, slots) in
        subbands[..n_slots.next_multiple_of(LANES)].as_chunks::<LANES>().0.iter().enumerate()
    {
        let at = KEPT + batch * LANES;
        let mut x = [V::splat(0.0); SUBBANDS];
        for group in 0..SUBBANDS / LANES {
            let mut tile = [V::splat(0.0); LANES];
            for (tile, slot) in tile.iter_mut().zip(slots) {
                *tile = V::load(&slot[group].0);
            }
            x[group * LANES..][..LANES].copy_from_slice(&V::transpose(tile));
        }
        for (row, value) in history.rows.iter_mut().zip(dct32(tables, x)) {
            store(value, row, at);
        }
        let mut samples = [V::splat(0.0); SUBBANDS];
        filter(tables, history, at, &mut samples);
        let out = &mut out[batch * LANES..];
        for (group, samples) in samples.as_chunks::<LANES>().0.iter().enumerate() {
            for (out, values) in out.iter_mut().zip(V::transpose(*samples)) {
                store(values, out, group * LANES);
            }
        }
    }
    // Moved once a frame, so that the filter reads a row as one piece instead of as a ring.
    for row in &mut history.rows {
        row.copy_within(n_slots..n_slots + KEPT, 0);
    }
}

/// Sums the windowed rows of the eight time slots from `at` on.
#[inline(always)]
fn filter<V: Lanes>(tables: &Tables, history: &History, at: usize, samples: &mut [V; SUBBANDS]) {
    let zero = V::splat(0.0);
    for (m, factors) in tables.window.iter().enumerate() {
        // Every second time slot from 16 before on.
        let rows = [&history.rows[(SUBBANDS - m) % SUBBANDS], &history.rows[m]];
        let [even, odd] = rows.map(|row| &row[at - KEPT..][..KEPT + LANES]);
        let mut sums = [zero; 4];
        for (i, factors) in factors.iter().enumerate() {
            let (even, odd): (V, V) = (load(even, KEPT - 2 * i), load(odd, KEPT - 1 - 2 * i));
            sums[0] = sums[0] + even * V::splat(factors[0]);
            sums[1] = sums[1] + odd * V::splat(factors[1]);
            sums[2] = sums[2] + even * V::splat(factors[2]);
            sums[3] = sums[3] + odd * V::splat(factors[3]);
        }
        samples[16 - m] = sums[0] + sums[1];
        if m < 16 {
            samples[16 + m] = sums[2] + sums[3];
        }
    }
}

/// The DCT-II of `$n` from two of half its length, with the factors from `$at` on.
macro_rules! dct2 {
    ($name:ident, $n:literal, $half:ident, $at:literal) => {
        #[inline(always)]
        fn $name<V: Lanes>(tables: &Tables, x: [V; $n]) -> [V; $n] {
            // Loops, since a closure is compiled without the instructions of its level unless it is inlined.
            let factors = &tables.halves[$at..$at + $n / 2];
            let (mut even, mut odd) = ([x[0]; $n / 2], [x[0]; $n / 2]);
            for k in 0..$n / 2 {
                even[k] = x[k] + x[$n - 1 - k];
                odd[k] = (x[k] - x[$n - 1 - k]) * V::splat(factors[k]);
            }
            let (even, odd) = ($half(tables, even), $half(tables, odd));
            let mut all = x;
            for k in 0..$n / 2 {
                all[2 * k] = even[k];
                all[2 * k + 1] = if k + 1 < $n / 2 { odd[k] + odd[k + 1] } else { odd[k] };
            }
            all
        }
    };
}

#[inline(always)]
fn dct1<V: Lanes>(_: &Tables, x: [V; 1]) -> [V; 1] {
    x
}

dct2!(dct2, 2, dct1, 30);
dct2!(dct4, 4, dct2, 28);
dct2!(dct8, 8, dct4, 24);
dct2!(dct16, 16, dct8, 16);
dct2!(dct32, 32, dct16, 0);
