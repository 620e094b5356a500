//! A complex FFT of eight columns side by side, between the two rotations of a DCT of type IV.
//!
//! Input: `n = 8 m` points as rows of eight: point `8 i + l` is in lane `l` of row `i`. Each lane first goes
//! through an FFT of its `m` points (Stockham's, radix 4), in which all lanes have the same factors. Then
//! the rows are turned by factors of their own, and eight rows are transposed and combined by a DFT of eight
//! points, from which eight neighbouring frequencies come out in a vector. Invariant: sums and products
//! only, none of them fused, in the same order at each level of [`crate::simd`]: the same bits on every CPU.
//!
//! Source: own; the split is the usual one of Cooley and Tukey (1965).

use std::f64::consts::PI;

use crate::simd::{LANES, Lanes, Row};

/// Rows of complex points: real and imaginary parts.
pub(super) type Rows = [Vec<Row>; 2];

#[derive(Clone, Copy)]
struct Complex<V>([V; 2]);

impl<V: Lanes> Complex<V> {
    #[inline(always)]
    fn load(rows: &[&[Row]; 2], i: usize) -> Self {
        Self([V::load(&rows[0][i].0), V::load(&rows[1][i].0)])
    }
    #[inline(always)]
    fn splat(value: [f32; 2]) -> Self {
        Self([V::splat(value[0]), V::splat(value[1])])
    }
    #[inline(always)]
    fn store(self, rows: &mut [&mut [Row]; 2], i: usize) {
        self.0[0].store(&mut rows[0][i].0);
        self.0[1].store(&mut rows[1][i].0);
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self([self.0[0] + other.0[0], self.0[1] + other.0[1]])
    }
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        Self([self.0[0] - other.0[0], self.0[1] - other.0[1]])
    }
    /// `self - i * other`.
    #[inline(always)]
    fn minus_i(self, other: Self) -> Self {
        Self([self.0[0] + other.0[1], self.0[1] - other.0[0]])
    }
    /// `self + i * other`.
    #[inline(always)]
    fn plus_i(self, other: Self) -> Self {
        Self([self.0[0] - other.0[1], self.0[1] + other.0[0]])
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        Self([a * c - b * d, a * d + b * c])
    }
    #[inline(always)]
    fn four([a, b, c, d]: [Self; 4]) -> [Self; 4] {
        let (sum, difference) = (a.plus(c), a.minus(c));
        let (other, turned) = (b.plus(d), b.minus(d));
        [sum.plus(other), difference.minus_i(turned), sum.minus(other), difference.plus_i(turned)]
    }
    #[inline(always)]
    fn eight(points: [Self; 8]) -> [Self; 8] {
        let [a, b, c, d, e, f, g, h] = points;
        let [e0, e1, e2, e3] = Self::four([a, c, e, g]);
        let [o0, o1, o2, o3] = Self::four([b, d, f, h]);
        let root = V::splat(std::f32::consts::FRAC_1_SQRT_2);
        // Times (1 - i), and times (1 + i), both over the square root of 2.
        let o1 = Self([(o1.0[0] + o1.0[1]) * root, (o1.0[1] - o1.0[0]) * root]);
        let o3 = Self([(o3.0[0] - o3.0[1]) * root, (o3.0[0] + o3.0[1]) * root]);
        [
            e0.plus(o0),
            e1.plus(o1),
            e2.minus_i(o2),
            e3.minus(o3),
            e0.minus(o0),
            e1.minus(o1),
            e2.plus_i(o2),
            e3.plus(o3),
        ]
    }
}

#[derive(Debug)]
pub(super) struct Fft {
    /// The roots of unity of order `m`.
    roots: Vec<[f32; 2]>,
    /// The factors of each row between the two steps.
    between: Rows,
    /// The rotation before and after: `exp(-i pi (k + 1/8) / n)` for point `k`, over twice `n` points.
    turn: Rows,
}

/// A number of rows, from a formula for the angle of each point.
fn rows(n: usize, angle: impl Fn(usize, usize) -> f64) -> Rows {
    [libm::cos, libm::sin]
        .map(|f| (0..n).map(|row| Row(std::array::from_fn(|lane| f(angle(row, lane)) as f32))).collect())
}

impl Fft {
    /// For `n` points, a power of 2 from 64 on.
    pub(super) fn new(n: usize) -> Self {
        let m = n / LANES;
        let root = |k: usize| -2.0 * PI * k as f64 / m as f64;
        Self {
            roots: (0..m).map(|k| [libm::cos(root(k)) as f32, libm::sin(root(k)) as f32]).collect(),
            between: rows(m, |row, lane| -2.0 * PI * (row * lane) as f64 / n as f64),
            turn: rows(m, |row, lane| -PI * (8 * (LANES * row + lane) + 1) as f64 / (16 * n) as f64),
        }
    }

    /// Rotates the points in `one`, transforms them, and rotates the result, which is in the order of
    /// frequency. Returns the one of both that holds it.
    #[inline(always)]
    pub(super) fn run<'a, V: Lanes>(&self, one: &'a mut Rows, other: &'a mut Rows) -> &'a Rows {
        let m = self.roots.len();
        let [a, b] = &mut *one;
        let mut front = [&mut a[..m], &mut b[..m]];
        let [a, b] = &mut *other;
        let mut back = [&mut a[..m], &mut b[..m]];
        let turn = [&self.turn[0][..m], &self.turn[1][..m]];
        for i in 0..m {
            let point = Complex::<V>::load(&[front[0], front[1]], i);
            point.times(Complex::load(&turn, i)).store(&mut front, i);
        }
        let (mut n, mut stride, mut swaps) = (m, 1, 0);
        while n > 1 {
            let from = [&*front[0], &*front[1]];
            // Stockham's steps write in sorted order to the other buffer, so no bit reversal follows. Radix 4
            // needs half the passes over memory; an odd power of 2 ends with one step of radix 2.
            if n % 4 == 0 {
                let part = stride * (n / 4);
                for p in 0..n / 4 {
                    let one = Complex::<V>::splat(self.roots[p * stride]);
                    let two = Complex::<V>::splat(self.roots[2 * p * stride]);
                    let three = Complex::<V>::splat(self.roots[3 * p * stride]);
                    for q in 0..stride {
                        let i = q + stride * p;
                        let [a, b, c, d] = Complex::<V>::four([
                            Complex::load(&from, i),
                            Complex::load(&from, i + part),
                            Complex::load(&from, i + 2 * part),
                            Complex::load(&from, i + 3 * part),
                        ]);
                        let i = q + stride * 4 * p;
                        a.store(&mut back, i);
                        b.times(one).store(&mut back, i + stride);
                        c.times(two).store(&mut back, i + 2 * stride);
                        d.times(three).store(&mut back, i + 3 * stride);
                    }
                }
                (n, stride) = (n / 4, stride * 4);
            } else {
                for q in 0..stride {
                    let (a, b) = (Complex::<V>::load(&from, q), Complex::load(&from, q + stride));
                    a.plus(b).store(&mut back, q);
                    a.minus(b).store(&mut back, q + stride);
                }
                (n, stride) = (n / 2, stride * 2);
            }
            std::mem::swap(&mut front, &mut back);
            swaps += 1;
        }
        let between = [&self.between[0][..m], &self.between[1][..m]];
        for first in (0..m).step_by(LANES) {
            let from = [&*front[0], &*front[1]];
            // Loops, since the closures of `map` and `from_fn` would not be compiled for the level.
            let (mut re, mut im) = ([V::splat(0.0); LANES], [V::splat(0.0); LANES]);
            for i in 0..LANES {
                let row = first + i;
                let point = Complex::<V>::load(&from, row).times(Complex::load(&between, row));
                [re[i], im[i]] = point.0;
            }
            let (re, im) = (V::transpose(re), V::transpose(im));
            let mut points = [Complex::<V>::splat([0.0; 2]); LANES];
            for i in 0..LANES {
                points[i] = Complex([re[i], im[i]]);
            }
            let points = Complex::eight(points);
            for (j, point) in points.into_iter().enumerate() {
                // Lane `k` of point `j` is the frequency `first + k + m j`.
                let row = (first + m * j) / LANES;
                point.times(Complex::load(&turn, row)).store(&mut back, row);
            }
        }
        // The last step writes to where the one before it did not.
        if swaps % 2 == 0 { other } else { one }
    }
}
