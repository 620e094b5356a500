//! Power spectra of eight real frames at once, for multiples of 16 without prime factors above 5.
//!
//! Input: windowed frames, transposed: row `n` holds sample `n` of eight frames. Output: row `k` holds bin
//! `k` of their eight spectra. With a lane per frame the transform needs no shuffles, twiddle factors are
//! broadcast, and the spectrum is in the order in which the mel filters read it.
//!
//! A frame of N real samples is taken as N/2 complex ones (even samples real, odd ones imaginary), so the
//! rows need no rearrangement. A Stockham transform (self-sorting, radix 8, then 4 and 2, 5 and 3 for the
//! rest) alternates between two buffers, and the last step untangles the real spectrum. Two real frames as
//! one complex frame would save that step, but rounding errors of a loud frame would leak into a silent one.
//! Source: own, after Van Loan, "Computational Frameworks for the Fast Fourier Transform" (1992), sections
//! 1.7 (Stockham) and 4.3 (real data).

use crate::simd::{Lanes, Row};
use std::f64::consts::{FRAC_1_SQRT_2, TAU};

/// Plan of a transform of `2 * half` real samples.
#[derive(Debug, Clone)]
pub(super) struct LaneFft {
    half: usize,
    gaps: Gaps,
    passes: Vec<StockhamPass>,
    /// `exp(-2 pi i k / n)` for `0..=half / 2`: untangles the real spectrum.
    untangle: Vec<(f32, f32)>,
}

/// One Stockham pass: `n / radix` butterflies over runs of `stride` complex rows.
#[derive(Debug, Clone)]
struct StockhamPass {
    radix: usize,
    n: usize,
    stride: usize,
    gaps: Gaps,
    /// `exp(-2 pi i p j / n)` for butterfly `p` and output `j` in `1..radix`.
    twiddles: Vec<(f32, f32)>,
}

/// Where complex rows are in memory. Butterflies of a large power of two access rows at distances of 4096
/// bytes, all in the same set of the first-level cache. A gap of one complex row after every 4096 bytes
/// spreads them. Other sizes need none.
#[derive(Debug, Clone, Copy)]
struct Gaps {
    /// The logarithm of the number of complex rows between two gaps.
    shift: u32,
}

impl Gaps {
    fn new(n_fft: usize) -> Self {
        Self { shift: if n_fft.is_power_of_two() { 6 } else { usize::BITS - 1 } }
    }

    /// The row at which complex row `i` begins.
    #[inline(always)]
    fn place(self, i: usize) -> usize {
        2 * (i + (i >> self.shift))
    }

    /// The most complex rows without a gap, of `n`.
    #[inline(always)]
    fn run(self, n: usize) -> usize {
        n.min(1 << self.shift)
    }

    /// The runs of complex rows that begin at complex row `start(k)`.
    #[inline(always)]
    fn runs<const R: usize>(
        self,
        rows: &[Row],
        start: impl Fn(usize) -> usize,
        run: usize,
    ) -> [&[[Row; 2]]; R] {
        let mut runs: [&[[Row; 2]]; R] = [&[]; R];
        for (k, slice) in runs.iter_mut().enumerate() {
            *slice = rows[self.place(start(k))..][..2 * run].as_chunks().0;
        }
        runs
    }
}

/// `exp(-2 pi i k / n)`.
fn root(k: usize, n: usize) -> (f32, f32) {
    let (sin, cos) = (-TAU * k as f64 / n as f64).sin_cos();
    (cos as f32, sin as f32)
}

impl LaneFft {
    /// A plan for frames of `n_fft` samples, or `None` unless that is a multiple of 16 without prime factors
    /// above 5.
    pub(super) fn new(n_fft: usize) -> Option<Self> {
        if n_fft == 0 || !n_fft.is_multiple_of(16) {
            return None;
        }
        let (half, gaps) = (n_fft / 2, Gaps::new(n_fft));
        let (mut passes, mut n, mut stride) = (Vec::new(), half, 1);
        while n > 1 {
            let radix = match n {
                16 => 4,
                _ => [8, 4, 2, 5, 3].into_iter().find(|radix| n % radix == 0)?,
            };
            let twiddles = (0..n / radix).flat_map(|p| (1..radix).map(move |j| root(p * j % n, n))).collect();
            passes.push(StockhamPass { radix, n, stride, gaps, twiddles });
            n /= radix;
            stride *= radix;
        }
        let untangle = (0..=half / 2).map(|k| root(k, n_fft)).collect();
        Some(Self { half, gaps, passes, untangle })
    }

    /// Rows of `frames`, and of `spare`.
    pub(super) fn rows(&self) -> usize {
        self.gaps.place(self.half)
    }

    /// The rows in `frames` of sample `n`, a multiple of 8, and the seven after it.
    #[inline(always)]
    pub(super) fn samples(&self, n: usize) -> std::ops::Range<usize> {
        let first = self.gaps.place(n / 2);
        first..first + 8
    }

    /// Writes the squared magnitude of each bin to `power`, one row per bin.
    ///
    /// Samples must be multiplied by 1/2 already (the caller folds that into its window), so that the
    /// untangling step needs no factor. The result is the power of the samples without that factor. `frames`
    /// and `spare` are overwritten.
    #[inline(always)]
    pub(super) fn power<V: Lanes>(&self, frames: &mut [Row], spare: &mut [Row], power: &mut [Row]) {
        let (mut from, mut to) = (frames, spare);
        for pass in &self.passes {
            match pass.radix {
                8 => pass.run::<V, 8>(from, to),
                5 => pass.run::<V, 5>(from, to),
                4 => pass.run::<V, 4>(from, to),
                3 => pass.run::<V, 3>(from, to),
                _ => pass.run::<V, 2>(from, to),
            }
            std::mem::swap(&mut from, &mut to);
        }
        self.untangle::<V>(from, power);
    }

    /// Computes the power of the real samples from the spectrum Z of the complex ones.
    ///
    /// With E and O the spectra of even and odd samples, `2E = Z[k] + conj Z[-k]`, `2iO = Z[k] - conj Z[-k]`,
    /// and `X[k] = E + w^k O`, `X[half - k] = conj(E - w^k O)`. Both are formed before they are squared: the
    /// shorter form in `|E|^2 + |O|^2` and a cross term cancels where one bin is far below its mirror.
    #[inline(always)]
    fn untangle<V: Lanes>(&self, z: &[Row], power: &mut [Row]) {
        let half = self.half;
        let power = &mut power[..half + 1];
        let two = V::splat(2.0);
        let (re, im) = (V::load(&z[0].0) * two, V::load(&z[1].0) * two);
        let (sum, difference) = (re + im, re - im);
        (sum * sum).store(&mut power[0].0);
        (difference * difference).store(&mut power[half].0);
        for k in 1..half / 2 {
            let mirror = half - k;
            let LaneComplex { re: a, im: b } = LaneComplex::<V>::load(&z[self.gaps.place(k)..][..2]);
            let LaneComplex { re: c, im: d } = LaneComplex::<V>::load(&z[self.gaps.place(mirror)..][..2]);
            let (even_re, even_im) = (a + c, b - d);
            let (odd_re, odd_im) = (b + d, c - a);
            let (w_re, w_im) = (V::splat(self.untangle[k].0), V::splat(self.untangle[k].1));
            let turned_re = odd_im.neg_mul_add(w_im, odd_re * w_re);
            let turned_im = odd_re.mul_add(w_im, odd_im * w_re);
            let (x_re, x_im) = (even_re + turned_re, even_im + turned_im);
            let (y_re, y_im) = (even_re - turned_re, even_im - turned_im);
            x_re.mul_add(x_re, x_im * x_im).store(&mut power[k].0);
            y_re.mul_add(y_re, y_im * y_im).store(&mut power[mirror].0);
        }
        let middle = LaneComplex::<V>::load(&z[self.gaps.place(half / 2)..][..2]);
        let (re, im) = (middle.re * two, middle.im * two);
        re.mul_add(re, im * im).store(&mut power[half / 2].0);
    }
}

impl StockhamPass {
    /// Runs the pass: `to[q + stride (R p + j)] = w^(p j) DFT_R(from[q + stride (p + k n / R)])_j`.
    #[inline(always)]
    fn run<V: Lanes, const R: usize>(&self, from: &[Row], to: &mut [Row]) {
        if self.stride == 1 { self.run_first::<V, R>(from, to) } else { self.run_later::<V, R>(from, to) }
    }

    /// Stride 1: inputs run over `p`, outputs are adjacent.
    #[inline(always)]
    fn run_first<V: Lanes, const R: usize>(&self, from: &[Row], to: &mut [Row]) {
        let butterflies = self.n / R;
        let run = self.gaps.run(butterflies);
        for start in (0..butterflies).step_by(run) {
            let inputs = self.gaps.runs::<R>(from, |k| start + k * butterflies, run);
            for q in 0..run {
                let p = start + q;
                let twiddles = &self.twiddles[(R - 1) * p..][..R - 1];
                let values = butterfly::<V, R>(&inputs, q);
                let output = &mut to[self.gaps.place(R * p)..][..2 * R];
                values[0].store(&mut output[..2]);
                for j in 1..R {
                    values[j].turn(twiddles[j - 1]).store(&mut output[2 * j..][..2]);
                }
            }
        }
    }

    /// Stride above 1: inputs and outputs run over `q`.
    #[allow(clippy::needless_range_loop, reason = "`q` runs over inputs and outputs alike")]
    #[inline(always)]
    fn run_later<V: Lanes, const R: usize>(&self, from: &[Row], to: &mut [Row]) {
        let butterflies = self.n / R;
        let run = self.gaps.run(self.stride);
        for p in 0..butterflies {
            let mut factors = [(V::splat(1.0), V::splat(0.0)); R];
            for (factor, (re, im)) in factors[1..].iter_mut().zip(&self.twiddles[(R - 1) * p..]) {
                *factor = (V::splat(*re), V::splat(*im));
            }
            for start in (0..self.stride).step_by(run) {
                let inputs = self.gaps.runs::<R>(from, |k| self.stride * (p + k * butterflies) + start, run);
                let mut outputs: [&mut [[Row; 2]]; R] = std::array::from_fn(|_| Default::default());
                let (mut rest, mut gone) = (&mut *to, 0);
                for (j, output) in outputs.iter_mut().enumerate() {
                    let at = self.gaps.place(self.stride * (R * p + j) + start);
                    let (now, later) = rest[at - gone..].split_at_mut(2 * run);
                    (*output, rest, gone) = (now.as_chunks_mut().0, later, at + 2 * run);
                }
                if p == 0 {
                    for q in 0..run {
                        let values = butterfly::<V, R>(&inputs, q);
                        for j in 0..R {
                            values[j].store(&mut outputs[j][q]);
                        }
                    }
                } else {
                    for q in 0..run {
                        let values = butterfly::<V, R>(&inputs, q);
                        values[0].store(&mut outputs[0][q]);
                        for j in 1..R {
                            values[j].times(factors[j]).store(&mut outputs[j][q]);
                        }
                    }
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
struct LaneComplex<V> {
    re: V,
    im: V,
}

impl<V: Lanes> LaneComplex<V> {
    #[inline(always)]
    fn load(rows: &[Row]) -> Self {
        Self { re: V::load(&rows[0].0), im: V::load(&rows[1].0) }
    }

    #[inline(always)]
    fn store(self, rows: &mut [Row]) {
        self.re.store(&mut rows[0].0);
        self.im.store(&mut rows[1].0);
    }

    #[inline(always)]
    fn plus(self, b: Self) -> Self {
        Self { re: self.re + b.re, im: self.im + b.im }
    }

    #[inline(always)]
    fn minus(self, b: Self) -> Self {
        Self { re: self.re - b.re, im: self.im - b.im }
    }

    /// `self - i b`.
    #[inline(always)]
    fn minus_i(self, b: Self) -> Self {
        Self { re: self.re + b.im, im: self.im - b.re }
    }

    /// `self + i b`.
    #[inline(always)]
    fn plus_i(self, b: Self) -> Self {
        Self { re: self.re - b.im, im: self.im + b.re }
    }

    /// `self * factor` for a real factor.
    #[inline(always)]
    fn scaled(self, factor: f32) -> Self {
        let factor = V::splat(factor);
        Self { re: self.re * factor, im: self.im * factor }
    }

    /// `self + factor * b` for a real factor.
    #[inline(always)]
    fn plus_scaled(self, factor: f32, b: Self) -> Self {
        let factor = V::splat(factor);
        Self { re: b.re.mul_add(factor, self.re), im: b.im.mul_add(factor, self.im) }
    }

    /// `self * w`.
    #[inline(always)]
    fn turn(self, (re, im): (f32, f32)) -> Self {
        self.times((V::splat(re), V::splat(im)))
    }

    /// `self * w` for a factor that is broadcast already.
    #[inline(always)]
    fn times(self, (w_re, w_im): (V, V)) -> Self {
        Self { re: self.im.neg_mul_add(w_im, self.re * w_re), im: self.re.mul_add(w_im, self.im * w_re) }
    }
}

/// The transform of length `R` over the complex rows at `q` of each input.
#[inline(always)]
fn butterfly<V: Lanes, const R: usize>(inputs: &[&[[Row; 2]]; R], q: usize) -> [LaneComplex<V>; R] {
    let first = LaneComplex::<V>::load(&inputs[0][q]);
    let mut a = [first; R];
    for k in 1..R {
        a[k] = LaneComplex::load(&inputs[k][q]);
    }
    let mut out = a;
    match R {
        2 => {
            out[0] = a[0].plus(a[1]);
            out[1] = a[0].minus(a[1]);
        }
        3 => {
            const SIN: f32 = 0.866_025_4;
            let sum = a[1].plus(a[2]);
            let even = a[0].plus_scaled(-0.5, sum);
            let odd = a[1].minus(a[2]).scaled(SIN);
            (out[0], out[1], out[2]) = (a[0].plus(sum), even.minus_i(odd), even.plus_i(odd));
        }
        5 => {
            // Cosines and sines of one and two fifths of a turn.
            const COS: [f32; 2] = [0.309_017, -0.809_017];
            const SIN: [f32; 2] = [0.951_056_5, 0.587_785_24];
            let (sum1, sum2) = (a[1].plus(a[4]), a[2].plus(a[3]));
            let (difference1, difference2) = (a[1].minus(a[4]), a[2].minus(a[3]));
            let even1 = a[0].plus_scaled(COS[0], sum1).plus_scaled(COS[1], sum2);
            let even2 = a[0].plus_scaled(COS[1], sum1).plus_scaled(COS[0], sum2);
            let odd1 = difference1.scaled(SIN[0]).plus_scaled(SIN[1], difference2);
            let odd2 = difference1.scaled(SIN[1]).plus_scaled(-SIN[0], difference2);
            out[0] = a[0].plus(sum1).plus(sum2);
            (out[1], out[4]) = (even1.minus_i(odd1), even1.plus_i(odd1));
            (out[2], out[3]) = (even2.minus_i(odd2), even2.plus_i(odd2));
        }
        4 => {
            let [y0, y1, y2, y3] = dft4(a[0], a[1], a[2], a[3]);
            (out[0], out[1], out[2], out[3]) = (y0, y1, y2, y3);
        }
        _ => {
            let [e0, e1, e2, e3] = dft4(a[0], a[2], a[4], a[6]);
            let [o0, o1, o2, o3] = dft4(a[1], a[3], a[5], a[7]);
            let h = V::splat(FRAC_1_SQRT_2 as f32);
            // o1 (1 - i) and o3 (1 + i); the factor sqrt(1/2) is fused into the sums.
            let (r1, i1) = (o1.re + o1.im, o1.im - o1.re);
            let (r3, i3) = (o3.re - o3.im, o3.im + o3.re);
            (out[0], out[4]) = (e0.plus(o0), e0.minus(o0));
            out[1] = LaneComplex { re: r1.mul_add(h, e1.re), im: i1.mul_add(h, e1.im) };
            out[5] = LaneComplex { re: r1.neg_mul_add(h, e1.re), im: i1.neg_mul_add(h, e1.im) };
            (out[2], out[6]) = (e2.minus_i(o2), e2.plus_i(o2));
            // o3 (-1 - i) sqrt(1/2) is minus the above.
            out[3] = LaneComplex { re: r3.neg_mul_add(h, e3.re), im: i3.neg_mul_add(h, e3.im) };
            out[7] = LaneComplex { re: r3.mul_add(h, e3.re), im: i3.mul_add(h, e3.im) };
        }
    }
    out
}

#[inline(always)]
fn dft4<V: Lanes>(
    a: LaneComplex<V>,
    b: LaneComplex<V>,
    c: LaneComplex<V>,
    d: LaneComplex<V>,
) -> [LaneComplex<V>; 4] {
    let (ac, ac_minus) = (a.plus(c), a.minus(c));
    let (bd, bd_minus) = (b.plus(d), b.minus(d));
    [ac.plus(bd), ac_minus.minus_i(bd_minus), ac.minus(bd), ac_minus.plus_i(bd_minus)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{LANES, Portable};

    #[test]
    fn equals_the_definition() {
        for n_fft in [16, 32, 48, 64, 80, 128, 240, 256, 400, 512, 720, 960, 1024, 1536, 1920, 2000, 2048] {
            let plan = LaneFft::new(n_fft).unwrap();
            let mut state = 1_u32;
            let mut noise = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state as f32 / u32::MAX as f32 - 0.5
            };
            let frames: Vec<Row> = (0..n_fft).map(|_| Row(std::array::from_fn(|_| noise()))).collect();
            let mut halved = vec![Row::default(); plan.rows()];
            let mut spare = halved.clone();
            for (i, chunk) in frames.chunks(8).enumerate() {
                for (to, row) in halved[plan.samples(8 * i)].iter_mut().zip(chunk) {
                    *to = Row(row.0.map(|x| 0.5 * x));
                }
            }
            let mut power = vec![Row::default(); n_fft / 2 + 1];
            plan.power::<Portable>(&mut halved, &mut spare, &mut power);
            let largest = n_fft as f64; // about: the energy of white noise is n / 12 per bin
            for lane in [0, LANES - 1] {
                for (bin, row) in power.iter().enumerate() {
                    let (mut re, mut im) = (0.0, 0.0);
                    for (n, frame) in frames.iter().enumerate() {
                        let (sin, cos) = (TAU * (bin * n % n_fft) as f64 / n_fft as f64).sin_cos();
                        re += f64::from(frame.0[lane]) * cos;
                        im -= f64::from(frame.0[lane]) * sin;
                    }
                    let error = (f64::from(row.0[lane]) - (re * re + im * im)).abs();
                    assert!(error < 1e-6 * largest, "n {n_fft}, bin {bin}: off by {error:e}");
                }
            }
        }
    }

    #[test]
    fn other_sizes_are_left_to_others() {
        assert!([0, 8, 24, 250, 448, 1102].iter().all(|&n_fft| LaneFft::new(n_fft).is_none()));
    }
}
