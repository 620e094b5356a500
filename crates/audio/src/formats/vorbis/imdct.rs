//! The inverse MDCT of one block size, and its window.
//!
//! Input: the `n / 2` values of a spectrum. Output: `n / 2` values from which the windowed block follows by
//! its symmetries ([`Overlap`](super::overlap)): those of a DCT of type IV, which is computed by a complex
//! FFT of `n / 4` points between two rotations. The tables of a size are built once in a process.
//!
//! Source: own; the reduction is the one of P. Duhamel, Y. Mahieux and J. P. Petit (ICASSP 1991). Vorbis I
//! specification, sections 1.3.2 and 4.3.1 (window), 4.3.7 (transform).

use std::f64::consts::{FRAC_PI_2, PI};

use super::fft::{Fft, Rows};
use crate::{
    fork_lock::OnceLock,
    simd::{LANES, Lanes, Row},
};

/// The tables of one block size.
#[derive(Debug)]
pub(super) struct Plan {
    transform: Transform,
    /// The rising half of the window.
    pub window: Vec<f32>,
}

#[derive(Debug)]
enum Transform {
    /// Of blocks below 256 samples.
    Plain(Plain),
    Lanes(Fft),
}

#[derive(Debug)]
pub(super) struct Scratch {
    plain: [Points; 2],
    rows: [Rows; 2],
}

impl Scratch {
    /// For blocks of up to `block` samples.
    pub(super) fn new(block: usize) -> Self {
        let points = || [vec![0.0; MAX_PLAIN], vec![0.0; MAX_PLAIN]];
        // bounded: a block is at most 8192 samples.
        // A quarter of a block in complex points, eight to a row.
        let rows = || [vec![Row::default(); block / 32], vec![Row::default(); block / 32]];
        Self { plain: [points(), points()], rows: [rows(), rows()] }
    }
}

impl Plan {
    /// The tables of blocks of `block` samples: a power of 2 from 64 to 8192.
    pub(super) fn of(block: u16) -> &'static Self {
        static PLANS: [OnceLock<Plan>; 8] = [const { OnceLock::new() }; 8];
        let size = (block.ilog2() - 6) as usize;
        PLANS[size].get_or_init(|| Self::new(block.into()))
    }

    fn new(block: usize) -> Self {
        let (half, quarter) = (block / 2, block / 4);
        // Section 4.3.1: the sine of a squared sine; the squares of both slopes add up to 1.
        let window = |i: usize| {
            let sine = libm::sin(FRAC_PI_2 * (i as f64 + 0.5) / half as f64);
            libm::sin(FRAC_PI_2 * sine * sine) as f32
        };
        let transform = match quarter {
            ..=MAX_PLAIN => Transform::Plain(Plain::new(quarter)),
            _ => Transform::Lanes(Fft::new(quarter)),
        };
        Self { transform, window: (0..half).map(window).collect() }
    }

    /// Transforms `spectrum`, of half a block, into `out`, of the same length.
    #[inline(always)]
    pub(super) fn transform<V: Lanes>(&self, spectrum: &[f32], out: &mut [f32], scratch: &mut Scratch) {
        let fft = match &self.transform {
            Transform::Plain(plain) => return plain.transform(spectrum, out, &mut scratch.plain),
            Transform::Lanes(fft) => fft,
        };
        let [one, other] = &mut scratch.rows;
        // The even values, and the odd ones from the end.
        let chunks = spectrum.as_chunks::<16>().0;
        let [re, im] = &mut *one;
        for ((re, front), (im, back)) in re.iter_mut().zip(chunks).zip(im.iter_mut().zip(chunks.iter().rev()))
        {
            for lane in 0..LANES {
                re.0[lane] = front[2 * lane];
                im.0[lane] = back[15 - 2 * lane];
            }
        }
        let [re, im] = fft.run::<V>(one, other);
        // Real parts are the even values, negated imaginary parts the odd ones from the end.
        let out = out.as_chunks_mut::<16>().0;
        let n = out.len();
        for ((out, re), im) in out.iter_mut().zip(&re[..n]).zip(im[..n].iter().rev()) {
            for lane in 0..LANES {
                out[2 * lane] = re.0[lane];
                out[2 * lane + 1] = -im.0[LANES - 1 - lane];
            }
        }
    }
}

/// The most points of a plain transform.
const MAX_PLAIN: usize = 32;

/// Complex points, as real and imaginary parts.
type Points = [Vec<f32>; 2];

/// The tables of a plain transform, which is used for the smallest blocks, and the oracle of the other one.
#[derive(Debug)]
struct Plain {
    /// The rotation before and after the FFT, by point.
    turn: Points,
    roots: Points,
}

impl Plain {
    fn new(quarter: usize) -> Self {
        let turn = |k: usize| -PI * (8 * k + 1) as f64 / (16 * quarter) as f64;
        let root = |k: usize| -2.0 * PI * k as f64 / quarter as f64;
        let both = |angle: &dyn Fn(usize) -> f64| {
            [libm::cos, libm::sin].map(|f| (0..quarter).map(|k| f(angle(k)) as f32).collect())
        };
        Self { turn: both(&turn), roots: both(&root) }
    }

    fn transform(&self, spectrum: &[f32], out: &mut [f32], [front, back]: &mut [Points; 2]) {
        let quarter = self.roots[0].len();
        let half = 2 * quarter;
        for k in 0..quarter {
            let (re, im) = (spectrum[2 * k], spectrum[half - 1 - 2 * k]);
            let (cos, sin) = (self.turn[0][k], self.turn[1][k]);
            (front[0][k], front[1][k]) = (re * cos - im * sin, re * sin + im * cos);
        }
        let [re, im] = self.fft(front, back);
        for k in 0..quarter {
            let (cos, sin) = (self.turn[0][k], self.turn[1][k]);
            out[2 * k] = re[k] * cos - im[k] * sin;
            out[half - 1 - 2 * k] = -(re[k] * sin + im[k] * cos);
        }
    }

    /// The FFT of the points in `front`, in the order of frequency (Stockham's, radix 2).
    fn fft<'a>(&self, mut front: &'a mut Points, mut back: &'a mut Points) -> &'a Points {
        let (mut n, mut stride) = (self.roots[0].len(), 1);
        while n > 1 {
            let m = n / 2;
            for p in 0..m {
                let (cos, sin) = (self.roots[0][p * stride], self.roots[1][p * stride]);
                for q in 0..stride {
                    let (a, b) = (q + stride * p, q + stride * (p + m));
                    let (x, y) = (q + stride * 2 * p, q + stride * (2 * p + 1));
                    let (re, im) = (front[0][a] - front[0][b], front[1][a] - front[1][b]);
                    back[0][x] = front[0][a] + front[0][b];
                    back[1][x] = front[1][a] + front[1][b];
                    back[0][y] = re * cos - im * sin;
                    back[1][y] = re * sin + im * cos;
                }
            }
            std::mem::swap(&mut front, &mut back);
            (n, stride) = (m, 2 * stride);
        }
        front
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Level, Work};

    struct Run<'a>(&'a Plan, &'a [f32], &'a mut [f32]);

    impl Work for Run<'_> {
        type Output = ();
        #[inline(always)]
        fn run<V: Lanes>(self) {
            self.0.transform::<V>(self.1, self.2, &mut Scratch::new(2 * self.1.len()));
        }
    }

    /// The values are those of the sum of cosines, to float32's precision, and the same at each level.
    #[test]
    fn transforms_are_sums_of_cosines() {
        for block in (6..=13).map(|bits| 1u16 << bits) {
            let half = usize::from(block / 2);
            let spectrum: Vec<f32> = (0..half as u32)
                .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0)
                .collect();
            let exact: Vec<f64> = (0..half)
                .map(|j| {
                    let step = PI * (2 * j + 1) as f64 / (4 * half) as f64;
                    let value = |(k, &x): (usize, &f32)| f64::from(x) * (step * (2 * k + 1) as f64).cos();
                    spectrum.iter().enumerate().map(value).sum()
                })
                .collect();
            let mut plain = vec![0.0; half];
            let points = || [vec![0.0; half / 2], vec![0.0; half / 2]];
            Plain::new(half / 2).transform(&spectrum, &mut plain, &mut [points(), points()]);
            let mut first: Option<Vec<f32>> = None;
            for level in Level::available() {
                let mut out = vec![0.0; half];
                level.run(Run(Plan::of(block), &spectrum, &mut out));
                let limit = 3e-7 * (half as f64).sqrt() * 4.0;
                for ((&found, &plain), exact) in out.iter().zip(&plain).zip(&exact) {
                    assert!((f64::from(found) - exact).abs() < limit, "{level:?} {block}: {found} {exact}");
                    assert!((f64::from(plain) - exact).abs() < limit, "{block}: {plain} {exact}");
                }
                assert!(*first.get_or_insert_with(|| out.clone()) == out, "{level:?}");
            }
        }
    }
}
