//! AVX2, FMA and F16C. Every method is inlined into a function that is called only after detection.

use std::{
    arch::x86_64::*,
    ops::{Add, Mul, Sub},
};

use super::{Integers, LANES, Lanes, SQRT_HALF_BITS, bf16, f16};

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
