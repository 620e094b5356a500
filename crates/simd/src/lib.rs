//! Eight `f32` lanes, and the choice of instructions by the CPU.
//!
//! In the spectrogram a lane is a frame. Eight frames go through window, FFT, mel and logarithm together, so
//! no step shuffles within a vector, and twiddle factors and weights are broadcast. The algorithms are
//! generic over [`Lanes`] and `inline(always)`. [`Level::run`] instantiates them once per CPU level inside a
//! `#[target_feature]` function. The portable implementation is the oracle of the others. The pattern is
//! memchr's.
//!
//! ```
//! use forebay_simd::{Lanes, Level, Row, Work};
//!
//! struct Squares<'a>(&'a mut [Row]);
//!
//! impl Work for Squares<'_> {
//!     type Output = ();
//!
//!     #[inline(always)]
//!     fn run<V: Lanes>(self) {
//!         for Row(row) in self.0 {
//!             let x = V::load(row);
//!             (x * x).store(row);
//!         }
//!     }
//! }
//!
//! let mut rows = [Row([3.0; 8]); 2];
//! Level::detect().run(Squares(&mut rows));
//! assert_eq!(rows[1].0, [9.0; 8]);
//! ```
//!
//! | file | what |
//! |---|---|
//! | `portable` | lanes in arrays, in the instructions of the build's baseline |
//! | `avx2` | lanes in registers of 256 bits |
//!
//! The level is chosen once per process. `FOREBAY_CPU=portable` forces the portable one.

#![cfg_attr(not(test), warn(unreachable_pub))]

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;
#[cfg(test)]
mod tests;

use std::{
    ops::{Add, Mul, Sub},
    sync::OnceLock,
};

use half::{bf16, f16};

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
pub use portable::Portable;

/// Frames processed together.
pub const LANES: usize = 8;

/// Eight values in memory: one sample, bin or band of eight frames, aligned so that no row
/// straddles a line.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(align(32))]
pub struct Row(pub [f32; LANES]);

/// The environment variable that forces a level.
const VARIABLE: &str = "FOREBAY_CPU";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The build's baseline.
    Portable,
    /// AVX2, FMA, F16C, LZCNT, BMI1 and BMI2, required together.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The same with 32 registers instead of 16, which AVX-512VL has: the same instructions in the same
    /// order, and so the same bits, with fewer detours through memory.
    #[cfg(target_arch = "x86_64")]
    Avx2Wide,
}

impl Level {
    /// The level of this process: the best one of this CPU, unless `FOREBAY_CPU` forces another.
    pub fn detect() -> Self {
        static LEVEL: OnceLock<Level> = OnceLock::new();
        *LEVEL.get_or_init(|| match std::env::var_os(VARIABLE) {
            None => Self::best(),
            Some(forced) if forced == "portable" => Self::Portable,
            Some(other) => {
                log::warn!("{VARIABLE} is {other:?}, which is ignored; expected portable, or no value");
                Self::best()
            }
        })
    }

    fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("fma")
            && std::arch::is_x86_feature_detected!("f16c")
            && std::arch::is_x86_feature_detected!("lzcnt")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
        {
            let is_wide = std::arch::is_x86_feature_detected!("avx512f")
                && std::arch::is_x86_feature_detected!("avx512vl");
            return if is_wide { Self::Avx2Wide } else { Self::Avx2 };
        }
        Self::Portable
    }

    /// Does `work` with the lanes of this level.
    pub fn run<W: Work>(self, work: W) -> W::Output {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,lzcnt,bmi1,bmi2")]
        fn avx2<W: Work>(work: W) -> W::Output {
            work.run::<Avx2>()
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,lzcnt,bmi1,bmi2,avx512f,avx512vl")]
        fn avx2_wide<W: Work>(work: W) -> W::Output {
            work.run::<Avx2>()
        }
        match self {
            Self::Portable => work.run::<Portable>(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `detect` and `available` give this level only on a CPU that has it.
            Self::Avx2 => unsafe { avx2(work) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Self::Avx2Wide => unsafe { avx2_wide(work) },
        }
    }

    /// Every level that this CPU has, for tests.
    pub fn available() -> Vec<Self> {
        match Self::best() {
            Self::Portable => vec![Self::Portable],
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => vec![Self::Portable, Self::Avx2],
            #[cfg(target_arch = "x86_64")]
            Self::Avx2Wide => vec![Self::Portable, Self::Avx2, Self::Avx2Wide],
        }
    }
}

/// Work that is compiled once for each level.
pub trait Work {
    type Output;
    /// Does it; to be `inline(always)`, as all that it calls with lanes.
    fn run<V: Lanes>(self) -> Self::Output;
}

/// Arithmetic on eight lanes.
///
/// # Safety
/// Methods are safe to call, so an implementation must be named only where the CPU has its instructions.
pub unsafe trait Lanes: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {
    /// Eight integers in registers of the same kind.
    type Integers: Integers;
    /// The same value in every lane.
    fn splat(value: f32) -> Self;
    fn load(row: &[f32; LANES]) -> Self;
    fn store(self, row: &mut [f32; LANES]);
    /// Writes one row, rounded to nearest, ties to even. Values beyond the range become infinite; NaN stays
    /// NaN.
    fn store_f16(self, row: &mut [f16; LANES]);
    /// As [`Lanes::store_f16`].
    fn store_bf16(self, row: &mut [bf16; LANES]);
    /// `self * b + c`, fused where the CPU can.
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// `c - self * b`, fused where the CPU can.
    fn neg_mul_add(self, b: Self, c: Self) -> Self;
    fn div(self, b: Self) -> Self;
    fn sqrt(self) -> Self;
    /// The larger of each pair; `b` where either is NaN.
    fn max(self, b: Self) -> Self;
    /// Splits positive normal numbers into exponent and a mantissa in `[1, 2) / sqrt(2)`, roughly: `self = m
    /// * 2^e`.
    fn split(self) -> (Self, Self);
    /// `self * 2^n` for whole numbers from -126 to 127.
    fn times_two_to(self, n: Self) -> Self;
    /// Transposes an 8 x 8 tile: lane `i` of result `j` is lane `j` of `rows[i]`.
    fn transpose(rows: [Self; LANES]) -> [Self; LANES];
    /// `sums + x * factors` for four integers, which wrap.
    fn add_products(sums: [i32; 4], x: i32, factors: &[i32; 4]) -> [i32; 4];

    /// 0 where the value is finite, NaN where it is not.
    #[inline(always)]
    #[expect(clippy::eq_op, reason = "infinity less infinity is NaN")]
    fn zero_or_nan(self) -> Self {
        self - self
    }

    /// Natural logarithm of positive normal numbers, to 2 ulp of the result; NaN of NaN and infinity.
    ///
    /// `ln(m 2^e) = e ln 2 + 2 artanh((m - 1) / (m + 1))` with `m` within a factor `sqrt(2)` of 1. The series
    /// `artanh s = s + s^3/3 + s^5/5 + ...` ends after `s^9`: the rest is below 7e-10. `ln 2` is split so
    /// that the product of its high part (9 bits) with the exponent is exact. The mantissa of infinity and
    /// NaN looks like any other, so `zero_or_nan` is added to one product: one more subtraction for eight
    /// values.
    #[inline(always)]
    fn ln(self) -> Self {
        const LN2_HIGH: f32 = 0.693_359_4; // 355 / 512
        const LN2_LOW: f32 = -2.121_944_4e-4; // ln 2 - 355 / 512
        let (exponent, mantissa) = self.split();
        let one = Self::splat(1.0);
        let s = (mantissa - one).div(mantissa + one);
        let z = s * s;
        let series = Self::splat(2.0 / 9.0)
            .mul_add(z, Self::splat(2.0 / 7.0))
            .mul_add(z, Self::splat(2.0 / 5.0))
            .mul_add(z, Self::splat(2.0 / 3.0));
        let low = exponent.mul_add(Self::splat(LN2_LOW), self.zero_or_nan());
        let small = (series * z).mul_add(s, low);
        exponent.mul_add(Self::splat(LN2_HIGH), s + s + small)
    }

    /// Positive normal numbers to the power of `y`; NaN of NaN and infinity. Results beyond the range of
    /// normal numbers become numbers near its ends.
    ///
    /// `(m 2^e)^y = 2^(y e + y log2 m)`, with `log2 m` as in [`Lanes::ln`], and the whole part of the
    /// exponent taken out before the parts are added: the error is that of `y log2 m` and of a fused product.
    #[inline(always)]
    fn pow(self, y: f32) -> Self {
        const LN_2: f32 = std::f32::consts::LN_2;
        const LARGEST: f32 = 12_582_912.0; // 1.5 * 2^23: numbers added to it lose their fraction
        if y == 0.5 {
            return self.sqrt();
        }
        let (exponent, mantissa) = self.split();
        let one = Self::splat(1.0);
        let s = (mantissa - one).div(mantissa + one);
        let z = s * s;
        let series = Self::splat(2.0 / 9.0)
            .mul_add(z, Self::splat(2.0 / 7.0))
            .mul_add(z, Self::splat(2.0 / 5.0))
            .mul_add(z, Self::splat(2.0 / 3.0));
        // The natural logarithm of the mantissa, then of the fraction of the result's exponent.
        let log = (series * z).mul_add(s, s + s) * Self::splat(y);
        let y = Self::splat(y);
        let whole = log.mul_add(Self::splat(1.0 / LN_2), exponent * y);
        let whole = whole.max(Self::splat(-126.0)) - (whole - Self::splat(127.0)).max(Self::splat(0.0));
        let whole = (whole + Self::splat(LARGEST)) - Self::splat(LARGEST);
        let x = exponent.mul_add(y, self.zero_or_nan() - whole).mul_add(Self::splat(LN_2), log);
        let power = Self::splat(1.0 / 5040.0)
            .mul_add(x, Self::splat(1.0 / 720.0))
            .mul_add(x, Self::splat(1.0 / 120.0))
            .mul_add(x, Self::splat(1.0 / 24.0))
            .mul_add(x, Self::splat(1.0 / 6.0))
            .mul_add(x, Self::splat(0.5))
            .mul_add(x, one)
            .mul_add(x, one);
        power.times_two_to(whole)
    }

    /// The values, at most eight, and the first of them in the other lanes.
    #[inline(always)]
    fn load_part(values: &[f32]) -> Self {
        if let Ok(row) = values.try_into() {
            return Self::load(row);
        }
        let mut row = [values[0]; LANES];
        row[..values.len()].copy_from_slice(values);
        Self::load(&row)
    }
}

/// Arithmetic on eight integers of 32 bits. Sums and products wrap.
///
/// # Safety
/// As of [`Lanes`].
pub unsafe trait Integers: Copy {
    fn load(row: &[i32; LANES]) -> Self;
    fn store(self, row: &mut [i32; LANES]);
    fn plus(self, b: Self) -> Self;
    fn times(self, b: Self) -> Self;
    /// `self >> by`, with a count from 0 to 31 for each lane.
    fn shifted(self, by: Self) -> Self;
    /// The signed numbers of folded ones: 0, -1, 1, -2, 2...
    fn unfolded(self) -> Self;
    /// As [`Lanes::transpose`].
    fn transpose(rows: [Self; LANES]) -> [Self; LANES];
}

/// Bits of the `f32` nearest to `sqrt(1/2)`: mantissas are taken relative to it.
const SQRT_HALF_BITS: i32 = 0x3f35_04f3;
