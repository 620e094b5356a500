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
//! The level is chosen once per process. `FOREBAY_CPU=portable` forces the portable one.

use std::{
    ops::{Add, Mul, Sub},
    sync::OnceLock,
};

use half::{bf16, f16, slice::HalfFloatSliceExt};

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

#[derive(Clone, Copy)]
pub struct Portable([f32; LANES]);

impl Portable {
    #[inline(always)]
    fn zip(self, b: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], b.0[i])))
    }
}

impl Add for Portable {
    type Output = Self;
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        self.zip(b, |a, b| a + b)
    }
}

impl Sub for Portable {
    type Output = Self;
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        self.zip(b, |a, b| a - b)
    }
}

impl Mul for Portable {
    type Output = Self;
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        self.zip(b, |a, b| a * b)
    }
}

#[derive(Clone, Copy)]
pub struct PortableIntegers([i32; LANES]);

impl PortableIntegers {
    #[inline(always)]
    fn zip(self, b: Self, f: impl Fn(i32, i32) -> i32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], b.0[i])))
    }
}

// SAFETY: it uses the instructions of the build's baseline.
unsafe impl Integers for PortableIntegers {
    #[inline(always)]
    fn load(row: &[i32; LANES]) -> Self {
        Self(*row)
    }
    #[inline(always)]
    fn store(self, row: &mut [i32; LANES]) {
        *row = self.0;
    }
    #[inline(always)]
    fn plus(self, b: Self) -> Self {
        self.zip(b, i32::wrapping_add)
    }
    #[inline(always)]
    fn times(self, b: Self) -> Self {
        self.zip(b, i32::wrapping_mul)
    }
    #[inline(always)]
    fn shifted(self, by: Self) -> Self {
        self.zip(by, |x, by| x.wrapping_shr(by as u32))
    }
    #[inline(always)]
    fn unfolded(self) -> Self {
        Self(self.0.map(|x| (x as u32 >> 1) as i32 ^ -(x & 1)))
    }
    #[inline(always)]
    fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        std::array::from_fn(|j| Self(std::array::from_fn(|i| rows[i].0[j])))
    }
}

// SAFETY: it uses the instructions of the build's baseline.
unsafe impl Lanes for Portable {
    type Integers = PortableIntegers;
    #[inline(always)]
    fn splat(value: f32) -> Self {
        Self([value; LANES])
    }
    #[inline(always)]
    fn load(row: &[f32; LANES]) -> Self {
        Self(*row)
    }
    #[inline(always)]
    fn store(self, row: &mut [f32; LANES]) {
        *row = self.0;
    }
    #[inline(always)]
    fn store_f16(self, row: &mut [f16; LANES]) {
        row.convert_from_f32_slice(&self.0);
    }
    #[inline(always)]
    fn store_bf16(self, row: &mut [bf16; LANES]) {
        row.convert_from_f32_slice(&self.0);
    }
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        self * b + c // not f32::mul_add, which calls a library where FMA is not in the baseline
    }
    #[inline(always)]
    fn neg_mul_add(self, b: Self, c: Self) -> Self {
        c - self * b
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        self.zip(b, |a, b| a / b)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(self.0.map(f32::sqrt))
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        self.zip(b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn split(self) -> (Self, Self) {
        let relative = self.0.map(|x| x.to_bits() as i32 - SQRT_HALF_BITS);
        let exponent = relative.map(|r| (r >> 23) as f32);
        let mantissa = relative.map(|r| f32::from_bits(((r & 0x007f_ffff) + SQRT_HALF_BITS) as u32));
        (Self(exponent), Self(mantissa))
    }
    #[inline(always)]
    fn times_two_to(self, n: Self) -> Self {
        self.zip(n, |x, n| x * f32::from_bits(((n as i32 + 127) << 23) as u32))
    }
    #[inline(always)]
    fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        std::array::from_fn(|j| Self(std::array::from_fn(|i| rows[i].0[j])))
    }
    #[inline(always)]
    fn add_products(sums: [i32; 4], x: i32, factors: &[i32; 4]) -> [i32; 4] {
        std::array::from_fn(|i| sums[i].wrapping_add(x.wrapping_mul(factors[i])))
    }
}

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    //! AVX2, FMA and F16C. Every method is inlined into a function that is called only after detection.

    use super::{Add, Integers, LANES, Lanes, Mul, SQRT_HALF_BITS, Sub, bf16, f16};
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    pub struct Avx2(__m256);

    macro_rules! avx2 {
        ($call:expr) => {
            // SAFETY: see the module: only code that runs after detection instantiates this type. Memory
            // operands are arrays of eight.
            unsafe { $call }
        };
    }

    impl Add for Avx2 {
        type Output = Self;
        #[inline(always)]
        fn add(self, b: Self) -> Self {
            Self(avx2!(_mm256_add_ps(self.0, b.0)))
        }
    }

    impl Sub for Avx2 {
        type Output = Self;
        #[inline(always)]
        fn sub(self, b: Self) -> Self {
            Self(avx2!(_mm256_sub_ps(self.0, b.0)))
        }
    }

    impl Mul for Avx2 {
        type Output = Self;
        #[inline(always)]
        fn mul(self, b: Self) -> Self {
            Self(avx2!(_mm256_mul_ps(self.0, b.0)))
        }
    }

    #[derive(Clone, Copy)]
    pub struct Avx2Integers(__m256i);

    // SAFETY: only `Level::run` names it, in functions that have its instructions.
    unsafe impl Integers for Avx2Integers {
        #[inline(always)]
        fn load(row: &[i32; LANES]) -> Self {
            Self(avx2!(_mm256_loadu_si256(row.as_ptr().cast())))
        }
        #[inline(always)]
        fn store(self, row: &mut [i32; LANES]) {
            avx2!(_mm256_storeu_si256(row.as_mut_ptr().cast(), self.0));
        }
        #[inline(always)]
        fn plus(self, b: Self) -> Self {
            Self(avx2!(_mm256_add_epi32(self.0, b.0)))
        }
        #[inline(always)]
        fn times(self, b: Self) -> Self {
            Self(avx2!(_mm256_mullo_epi32(self.0, b.0)))
        }
        #[inline(always)]
        fn shifted(self, by: Self) -> Self {
            Self(avx2!(_mm256_srav_epi32(self.0, by.0)))
        }
        #[inline(always)]
        fn unfolded(self) -> Self {
            avx2!({
                let sign = _mm256_and_si256(self.0, _mm256_set1_epi32(1));
                let sign = _mm256_sub_epi32(_mm256_setzero_si256(), sign);
                Self(_mm256_xor_si256(_mm256_srli_epi32::<1>(self.0), sign))
            })
        }
        #[inline(always)]
        fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
            // The bits only move, so their type does not matter.
            let float = |i: usize| Avx2(avx2!(_mm256_castsi256_ps(rows[i].0)));
            let rows = [float(0), float(1), float(2), float(3), float(4), float(5), float(6), float(7)];
            let columns = Avx2::transpose(rows);
            let whole = |i: usize| Self(avx2!(_mm256_castps_si256(columns[i].0)));
            [whole(0), whole(1), whole(2), whole(3), whole(4), whole(5), whole(6), whole(7)]
        }
    }

    // SAFETY: only `Level::run` names it, in functions that have its instructions.
    unsafe impl Lanes for Avx2 {
        type Integers = Avx2Integers;
        #[inline(always)]
        fn splat(value: f32) -> Self {
            Self(avx2!(_mm256_set1_ps(value)))
        }
        #[inline(always)]
        fn load(row: &[f32; LANES]) -> Self {
            Self(avx2!(_mm256_loadu_ps(row.as_ptr())))
        }
        #[inline(always)]
        fn store(self, row: &mut [f32; LANES]) {
            avx2!(_mm256_storeu_ps(row.as_mut_ptr(), self.0));
        }
        #[inline(always)]
        fn store_f16(self, row: &mut [f16; LANES]) {
            avx2!({
                let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0);
                _mm_storeu_si128(row.as_mut_ptr().cast(), halves);
            });
        }
        #[inline(always)]
        fn store_bf16(self, row: &mut [bf16; LANES]) {
            avx2!({
                let bits = _mm256_castps_si256(self.0);
                let upper = _mm256_srli_epi32::<16>(bits);
                // Rounds by the carry: adds half a unit of the kept bits, less one if the kept bits are even.
                let is_odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
                let half = _mm256_add_epi32(is_odd, _mm256_set1_epi32(0x7fff));
                let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half));
                // Of NaN, the upper half, made quiet: a carry could turn it into infinity, and the upper half
                // of the mantissa may be zero.
                let nan = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
                let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0));
                let words = _mm256_blendv_epi8(rounded, nan, is_nan);
                let packed = _mm256_packus_epi32(words, words);
                let packed = _mm256_permute4x64_epi64::<0b1000>(packed);
                _mm_storeu_si128(row.as_mut_ptr().cast(), _mm256_castsi256_si128(packed));
            });
        }
        #[inline(always)]
        fn mul_add(self, b: Self, c: Self) -> Self {
            Self(avx2!(_mm256_fmadd_ps(self.0, b.0, c.0)))
        }
        #[inline(always)]
        fn neg_mul_add(self, b: Self, c: Self) -> Self {
            Self(avx2!(_mm256_fnmadd_ps(self.0, b.0, c.0)))
        }
        #[inline(always)]
        fn div(self, b: Self) -> Self {
            Self(avx2!(_mm256_div_ps(self.0, b.0)))
        }
        #[inline(always)]
        fn sqrt(self) -> Self {
            Self(avx2!(_mm256_sqrt_ps(self.0)))
        }
        #[inline(always)]
        fn max(self, b: Self) -> Self {
            Self(avx2!(_mm256_max_ps(self.0, b.0)))
        }
        #[inline(always)]
        fn split(self) -> (Self, Self) {
            avx2!({
                let base = _mm256_set1_epi32(SQRT_HALF_BITS);
                let relative = _mm256_sub_epi32(_mm256_castps_si256(self.0), base);
                let exponent = _mm256_cvtepi32_ps(_mm256_srai_epi32::<23>(relative));
                let fraction = _mm256_and_si256(relative, _mm256_set1_epi32(0x007f_ffff));
                let mantissa = _mm256_castsi256_ps(_mm256_add_epi32(fraction, base));
                (Self(exponent), Self(mantissa))
            })
        }
        #[inline(always)]
        fn times_two_to(self, n: Self) -> Self {
            avx2!({
                let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n.0), _mm256_set1_epi32(127));
                let factor = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent));
                Self(_mm256_mul_ps(self.0, factor))
            })
        }
        #[inline(always)]
        fn transpose(r: [Self; LANES]) -> [Self; LANES] {
            avx2!({
                // Pairs, then quads within each 128-bit half, then the halves.
                let p0 = _mm256_unpacklo_ps(r[0].0, r[1].0);
                let p1 = _mm256_unpackhi_ps(r[0].0, r[1].0);
                let p2 = _mm256_unpacklo_ps(r[2].0, r[3].0);
                let p3 = _mm256_unpackhi_ps(r[2].0, r[3].0);
                let p4 = _mm256_unpacklo_ps(r[4].0, r[5].0);
                let p5 = _mm256_unpackhi_ps(r[4].0, r[5].0);
                let p6 = _mm256_unpacklo_ps(r[6].0, r[7].0);
                let p7 = _mm256_unpackhi_ps(r[6].0, r[7].0);
                let q0 = _mm256_shuffle_ps::<0x44>(p0, p2);
                let q1 = _mm256_shuffle_ps::<0xee>(p0, p2);
                let q2 = _mm256_shuffle_ps::<0x44>(p1, p3);
                let q3 = _mm256_shuffle_ps::<0xee>(p1, p3);
                let q4 = _mm256_shuffle_ps::<0x44>(p4, p6);
                let q5 = _mm256_shuffle_ps::<0xee>(p4, p6);
                let q6 = _mm256_shuffle_ps::<0x44>(p5, p7);
                let q7 = _mm256_shuffle_ps::<0xee>(p5, p7);
                [
                    Self(_mm256_permute2f128_ps::<0x20>(q0, q4)),
                    Self(_mm256_permute2f128_ps::<0x20>(q1, q5)),
                    Self(_mm256_permute2f128_ps::<0x20>(q2, q6)),
                    Self(_mm256_permute2f128_ps::<0x20>(q3, q7)),
                    Self(_mm256_permute2f128_ps::<0x31>(q0, q4)),
                    Self(_mm256_permute2f128_ps::<0x31>(q1, q5)),
                    Self(_mm256_permute2f128_ps::<0x31>(q2, q6)),
                    Self(_mm256_permute2f128_ps::<0x31>(q3, q7)),
                ]
            })
        }
        #[inline(always)]
        fn add_products(mut sums: [i32; 4], x: i32, factors: &[i32; 4]) -> [i32; 4] {
            avx2!({
                let products = _mm_mullo_epi32(_mm_loadu_si128(factors.as_ptr().cast()), _mm_set1_epi32(x));
                let total = _mm_add_epi32(_mm_loadu_si128(sums.as_ptr().cast()), products);
                _mm_storeu_si128(sums.as_mut_ptr().cast(), total);
            });
            sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row = [f32; LANES];

    struct Ln<'a>(&'a Row);

    impl Work for Ln<'_> {
        type Output = Row;
        #[inline(always)]
        fn run<V: Lanes>(self) -> Row {
            let mut out = [0.0; LANES];
            V::load(self.0).ln().store(&mut out);
            out
        }
    }

    struct Pow<'a>(&'a Row, f32);

    impl Work for Pow<'_> {
        type Output = Row;
        #[inline(always)]
        fn run<V: Lanes>(self) -> Row {
            let mut out = [0.0; LANES];
            V::load(self.0).pow(self.1).store(&mut out);
            out
        }
    }

    struct Transpose<'a>(&'a [Row; LANES]);

    impl Work for Transpose<'_> {
        type Output = [Row; LANES];
        #[inline(always)]
        fn run<V: Lanes>(self) -> [Row; LANES] {
            let mut out = [[0.0; LANES]; LANES];
            let columns = V::transpose(std::array::from_fn(|i| V::load(&self.0[i])));
            columns.iter().zip(&mut out).for_each(|(column, out)| column.store(out));
            out
        }
    }

    #[test]
    fn logarithm_is_exact_to_two_ulp() {
        for level in Level::available() {
            // Every 997th normal number from 1e-10 to the largest, and the neighbourhood of 1.
            let all = (1e-10_f32.to_bits()..f32::MAX.to_bits()).step_by(997);
            let near_one = 1_f32.to_bits() - 4000..1_f32.to_bits() + 4000;
            let mut bits = all.chain(near_one);
            loop {
                let row: Row = std::array::from_fn(|_| bits.next().map_or(1.0, f32::from_bits));
                if row == [1.0; LANES] {
                    break;
                }
                for (x, y) in row.iter().zip(level.run(Ln(&row))) {
                    let exact = f64::from(*x).ln();
                    let error = (f64::from(y) - exact).abs();
                    let ulp = f64::from(f32::from_bits(y.abs().to_bits() + 1) - y.abs());
                    assert!(error <= 2.0 * ulp, "{level:?}: ln {x:e} = {y:e}, off by {error:e}");
                }
            }
        }
    }

    #[test]
    fn powers_are_exact_to_some_ulp() {
        for level in Level::available() {
            // The portable product of exponent and `y` is rounded: half a unit in 127 is 32 in the result.
            let limit = if level == Level::Portable { 40.0 } else { 4.0 };
            for y in [0.02, 0.25, 0.5, 0.98, 1.0, -0.7, 2.0] {
                let mut bits = (1e-18_f32.to_bits()..1e18_f32.to_bits()).step_by(9973);
                loop {
                    let row: Row = std::array::from_fn(|_| bits.next().map_or(1.0, f32::from_bits));
                    if row == [1.0; LANES] {
                        break;
                    }
                    for (x, found) in row.iter().zip(level.run(Pow(&row, y))) {
                        let exact = f64::from(*x).powf(f64::from(y));
                        let error = (f64::from(found) / exact - 1.0).abs() / f64::from(f32::EPSILON);
                        assert!(error <= limit, "{level:?}: {x:e}^{y} = {found:e}, off by {error} ulp");
                    }
                }
            }
            let [nan, infinite, tiny, huge, ..] =
                level.run(Pow(&[f32::NAN, f32::INFINITY, 1e-30, 1e30, 1.0, 1.0, 1.0, 1.0], 3.0));
            assert!(nan.is_nan() && infinite.is_nan() && tiny < 2e-38 && huge > 1e38, "{level:?}");
        }
    }

    #[test]
    fn logarithm_of_what_is_not_finite_is_nan() {
        for level in Level::available() {
            for value in [f32::NAN, -f32::NAN, f32::INFINITY] {
                let row = [1.0, value, f32::MAX, value, value, 1e-10, 2.0, value];
                let ln = level.run(Ln(&row));
                assert!(row.iter().zip(ln).all(|(x, y)| x.is_finite() != y.is_nan()), "{level:?}: {ln:?}");
            }
        }
    }

    struct Products([i32; 4], i32, [i32; 4]);

    impl Work for Products {
        type Output = [i32; 4];
        #[inline(always)]
        fn run<V: Lanes>(self) -> [i32; 4] {
            V::add_products(self.0, self.1, &self.2)
        }
    }

    #[test]
    fn products_of_integers_wrap() {
        for level in Level::available() {
            let sums = level.run(Products([1, i32::MAX, -5, 0], 1 << 20, [3, 0, 1 << 12, -1]));
            assert_eq!(sums, [(3 << 20) + 1, i32::MAX, -5, -(1 << 20)], "{level:?}");
            assert_eq!(level.run(Products([i32::MAX; 4], 1, [1; 4])), [i32::MIN; 4], "{level:?}");
        }
    }

    #[test]
    fn transposes() {
        let rows: [Row; LANES] = std::array::from_fn(|i| std::array::from_fn(|j| (8 * i + j) as f32));
        for level in Level::available() {
            let columns = level.run(Transpose(&rows));
            for i in 0..LANES {
                for j in 0..LANES {
                    assert_eq!(columns[j][i], rows[i][j]);
                }
            }
        }
    }
}
