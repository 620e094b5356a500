//! Lanes in plain arrays: the build's baseline, and the oracle of the other levels.

use std::ops::{Add, Mul, Sub};

use half::slice::HalfFloatSliceExt;

use super::{Integers, LANES, Lanes, SQRT_HALF_BITS, bf16, f16};

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
