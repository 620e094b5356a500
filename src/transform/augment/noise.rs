//! Gaussian noise, white or with a spectrum that falls or rises.
//!
//! Sample `i` depends on the seed and `i` alone. Source: own; the Box-Muller transform, and a cascade of
//! first-order sections whose poles are two octaves apart.

use std::f64::consts::PI;

use smallvec::SmallVec;

use super::filter::{self, Biquad};
use crate::lanes::{Lanes, Level, Work};

/// Fills `out` with independent values of mean 0 and variance 1; the largest is below 5.9.
pub(super) fn gaussian(seed: u64, out: &mut [f32]) {
    Level::detect().run(Gaussian { seed, out });
}

/// Values that are made together.
const BLOCK: usize = 64;

pub(super) struct Gaussian<'a> {
    pub(super) seed: u64,
    pub(super) out: &'a mut [f32],
}

/// Spreads every bit over the whole word: a bijection of 32 bits.
#[inline(always)]
fn mix(x: u32) -> u32 {
    let x = (x ^ (x >> 17)).wrapping_mul(0xED5A_D4BB);
    let x = (x ^ (x >> 11)).wrapping_mul(0xAC4C_1B51);
    let x = (x ^ (x >> 15)).wrapping_mul(0x3184_8BAB);
    x ^ (x >> 14)
}

/// The natural logarithm of a positive normal number, to about 1e-7, by the series of `artanh`.
#[inline(always)]
fn ln(x: f32) -> f32 {
    let bits = x.to_bits() as i32 - 0x3f35_04f3;
    let exponent = (bits >> 23) as f32;
    let mantissa = f32::from_bits(((bits & 0x007f_ffff) + 0x3f35_04f3) as u32);
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let z = s * s;
    let series = 2.0 + z * (2.0 / 3.0 + z * (2.0 / 5.0 + z * (2.0 / 7.0 + z * (2.0 / 9.0))));
    exponent * std::f32::consts::LN_2 + s * series
}

/// The sine of `turns` whole circles, from -1/2 to 1/2, to about 1e-6.
#[inline(always)]
fn sine(turns: f32) -> f32 {
    let folded = if turns.abs() > 0.25 { 0.5_f32.copysign(turns) - turns } else { turns };
    let x = folded * std::f32::consts::TAU;
    let z = x * x;
    let series = z * (-1.0 / 6.0 + z * (1.0 / 120.0 + z * (-1.0 / 5040.0 + z * (1.0 / 362_880.0))));
    x + x * series
}

impl Work for Gaussian<'_> {
    type Output = ();
    #[inline(always)]
    fn run<V: Lanes>(self) {
        const HALF: usize = BLOCK / 2;
        const SCALE: f32 = 1.0 / (1 << 24) as f32;
        let [low, high] = [self.seed as u32, (self.seed >> 32) as u32];
        let mut values = [0.0; BLOCK];
        for (block, out) in self.out.chunks_mut(BLOCK).enumerate() {
            for i in 0..HALF {
                let number = (block * BLOCK + 2 * i) as u32;
                let first = mix(mix(number ^ low).wrapping_add(high));
                let second = mix(mix((number + 1) ^ low).wrapping_add(high));
                // In (0, 1], and in [-1/2, 1/2).
                let unit = ((first >> 8) + 1) as i32 as f32 * SCALE;
                let turns = (second >> 8) as i32 as f32 * SCALE - 0.5;
                let radius = (-2.0 * ln(unit)).max(0.0).sqrt();
                let quarter = if turns < 0.25 { turns + 0.25 } else { turns - 0.75 };
                values[i] = radius * sine(turns);
                values[HALF + i] = radius * sine(quarter);
            }
            out.copy_from_slice(&values[..out.len()]);
        }
    }
}

/// Frequency of the first pole, hertz: below it the spectrum is flat.
const LOWEST: f64 = 10.0;

/// Lets the spectrum rise by `slope_db` decibels per octave, or fall below 0, from 10 Hz to a tenth of the
/// sample rate, to 0.5 dB; less steeply above.
pub(super) fn coloured(slope_db: f64, rate: f64, values: &mut [f32]) {
    // What a filter of first order falls by.
    const FIRST: f64 = 20.0 * std::f64::consts::LOG10_2;
    let passes = (slope_db.abs() / FIRST).ceil();
    let share = slope_db.abs() / FIRST / passes.max(1.0);
    // First-order sections.
    let mut sections = SmallVec::<[Biquad; 24]>::new();
    for _ in 0..passes as usize {
        let mut freq = LOWEST;
        while freq < rate / 2.0 {
            let decay = |freq: f64| libm::exp(-2.0 * PI * freq / rate);
            // A zero at the next pole cancels it.
            let ends = [decay(freq), decay(freq * libm::pow(4.0, share))];
            let [pole, zero] = if slope_db < 0.0 { ends } else { [ends[1], ends[0]] };
            // bounded: two slopes of at most ten sections each.
            sections.push(Biquad::first_order(pole, zero));
            freq *= 4.0;
        }
    }
    filter::run(&sections, values);
}
