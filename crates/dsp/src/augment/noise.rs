//! Gaussian noise, white or with a spectrum that falls or rises.
//!
//! Sample `i` of white noise depends on the seed and `i` alone. Source: own; the Box-Muller transform, and
//! filters whose poles and zeros alternate, two octaves from pole to pole.

use std::f64::consts::PI;

use crate::simd::{LANES, Lanes, Level, Work};

/// Fills `out` with independent values of mean 0 and variance 1; the largest is below 5.9.
pub(super) fn gaussian(seed: u64, out: &mut [f32]) {
    Level::detect().run(Gaussian { seed, out });
}

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

/// Lets the spectrum rise by `slope_db` decibels per octave, or fall below 0, from 40 Hz to a tenth of the
/// sample rate, to 0.5 dB; less steeply below and above.
pub(super) fn coloured(slope_db: f64, rate: f64, values: &mut [f32]) {
    // What a filter of first order falls by.
    const FIRST: f64 = 20.0 * std::f64::consts::LOG10_2;
    let passes = (slope_db.abs() / FIRST).ceil();
    let share = slope_db.abs() / FIRST / passes.max(1.0);
    let colouring = Colouring::new(share.copysign(slope_db), rate);
    for _ in 0..passes as usize {
        Level::detect().run(Coloured { colouring: &colouring, values });
    }
}

/// A filter of up to eight poles as a sum of filters of one pole each, which run side by side, a lane each.
///
/// With `Z = exp(i w)`, the product of `(Z - zero) / (Z - pole)` over all poles and zeros is one more than
/// the sum of `weight / (Z - pole)`.
pub(super) struct Colouring {
    poles: [f32; LANES],
    weights: [f32; LANES],
}

impl Colouring {
    /// A slope as a share of that of a filter of first order, from -1 to 1, at a sample rate of at most
    /// 768 kHz: from 10 Hz to half of it are fewer than eight times two octaves.
    pub(super) fn new(share: f64, rate: f64) -> Self {
        let decay = |freq: f64| libm::exp(-2.0 * PI * freq / rate);
        let lows = std::iter::successors(Some(LOWEST), |freq| Some(freq * 4.0));
        let lows = lows.take(LANES).take_while(|&freq| freq < rate / 2.0);
        // A zero at the next pole cancels it.
        let ends = lows.map(|freq| [freq, freq * libm::pow(4.0, share.abs())].map(decay));
        let sections = ends.map(|[low, high]| if share < 0.0 { [low, high] } else { [high, low] });
        let (mut poles, mut weights) = ([0.0; LANES], [0.0; LANES]);
        for (at, [pole, zero]) in sections.clone().enumerate() {
            let others = sections.clone().enumerate().filter(|(other, _)| *other != at);
            let others = others.map(|(_, [other, zero])| (pole - zero) / (pole - other));
            poles[at] = pole as f32;
            weights[at] = ((pole - zero) * others.product::<f64>()) as f32;
        }
        Self { poles, weights }
    }
}

pub(super) struct Coloured<'a> {
    pub(super) colouring: &'a Colouring,
    pub(super) values: &'a mut [f32],
}

impl Work for Coloured<'_> {
    type Output = ();
    #[inline(always)]
    fn run<V: Lanes>(self) {
        let Self { colouring: Colouring { poles, weights }, values } = self;
        let (pole, weight) = (V::load(poles), V::load(weights));
        let squared = pole * pole;
        let mut state = V::splat(0.0);
        let (rows, rest) = values.as_chunks_mut::<LANES>();
        let mut last = [0.0; LANES];
        last[..rest.len()].copy_from_slice(rest);
        for row in rows.iter_mut().chain([&mut last]) {
            // A row for each sample, whose sum is what the poles add to it.
            let mut added = [V::splat(0.0); LANES];
            for at in (0..LANES).step_by(2) {
                // Two samples at a time: the state waits for half as many steps.
                let (one, two) = (V::splat(row[at]), V::splat(row[at + 1]));
                added[at] = weight * state;
                added[at + 1] = weight * (pole * state + one);
                state = squared * state + (pole * one + two);
            }
            let [a, b, c, d, e, f, g, h] = V::transpose(added);
            let sum = ((a + b) + (c + d)) + ((e + f) + (g + h));
            (V::load(row) + sum).store(row);
        }
        rest.copy_from_slice(&last[..rest.len()]);
    }
}
