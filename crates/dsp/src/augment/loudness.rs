//! [`loudness`]: the gated loudness of samples, in LUFS, as a level.
//!
//! Sources: ITU-R BS.1770-5, annex 1; B. De Man, "Evaluation of implementations of the EBU R128 loudness
//! measurement" (2018), for its filters at other rates than 48 kHz.

use std::{f64::consts::PI, ops::Range};

use super::filter::{self, Biquad};
use crate::{Result, fallible_alloc};

/// Blocks have so many parts, of which the next block drops one: 400 ms, which overlap by 75 %.
const PARTS: usize = 4;
/// Parts per second.
const PARTS_PER_SECOND: usize = 10;
/// Decibels between the power of samples that pass both filters and their loudness.
const OFFSET: f64 = -0.691;
/// Blocks that are not louder do not count, LUFS.
const ABSOLUTE_GATE: f64 = -70.0;
/// Blocks with less than this share of the mean power of the others do not count either: 10 LU below it.
const RELATIVE_GATE: f64 = 0.1;

/// The loudness of `part` of each channel of `n` samples, as the amplitude whose decibels are LUFS; 0 if no
/// block passes the gates. All channels count alike. What is shorter than a block is one.
///
/// # Errors
/// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if an allocation failed.
pub(super) fn loudness(samples: &[f32], n: usize, part: Range<usize>, sample_rate: u32) -> Result<f64> {
    let rate = sample_rate as usize;
    // 64 bits: samples of a clip are below 2^30.
    let bound = |at: usize| at * rate / PARTS_PER_SECOND;
    let n_parts = part.len() * PARTS_PER_SECOND / rate.max(1);
    let is_short = n_parts < PARTS;
    let mut sums = fallible_alloc::filled(if is_short { 1 } else { n_parts }, 0.0)?;
    let filters = weighting(f64::from(sample_rate));
    for channel in samples.chunks_exact(n.max(1)) {
        let channel = &channel[part.clone()];
        let mut states = Default::default();
        for (at, sum) in sums.iter_mut().enumerate() {
            let piece =
                if is_short { channel } else { &channel[bound(at)..bound(at + 1).min(channel.len())] };
            *sum += filter::power(&filters, &mut states, piece);
        }
    }
    let width = if is_short { 1 } else { PARTS };
    let mean_above = |least: f64| {
        let (mut sum, mut count) = (0.0, 0.0);
        for (at, parts) in sums.windows(width).enumerate() {
            let len = if is_short { part.len() } else { bound(at + width) - bound(at) };
            let power = parts.iter().sum::<f64>() / len.max(1) as f64;
            if power > least {
                sum += power;
                count += 1.0;
            }
        }
        if count > 0.0 { sum / count } else { 0.0 }
    };
    let absolute = libm::pow(10.0, (ABSOLUTE_GATE - OFFSET) / 10.0);
    let relative = RELATIVE_GATE * mean_above(absolute);
    Ok((mean_above(absolute.max(relative)) * libm::pow(10.0, OFFSET / 10.0)).sqrt())
}

/// The two filters: a shelf, as a head has it, and a high-pass.
fn weighting(rate: f64) -> [Biquad; 2] {
    let tangent = |freq: f64| libm::tan(PI * (freq / rate).min(0.49));
    let (k, q) = (tangent(1681.974450955533), 0.7071752369554196);
    let high = libm::pow(10.0, 3.999843853973347 / 20.0);
    let middle = libm::pow(high, 0.4996667741545416);
    let b = [high + middle * k / q + k * k, 2.0 * (k * k - high), high - middle * k / q + k * k];
    let shelf = Biquad::from_parts(b, [1.0 + k / q + k * k, 2.0 * (k * k - 1.0), 1.0 - k / q + k * k]);
    let (k, q) = (tangent(38.13547087602444), 0.5003270373238773);
    let first = 1.0 + k / q + k * k;
    // The specification does not divide these numerators by the first coefficient.
    let b = [first, -2.0 * first, first];
    [shelf, Biquad::from_parts(b, [first, 2.0 * (k * k - 1.0), 1.0 - k / q + k * k])]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sine(freq: f64, amplitude: f64, seconds: f64, rate: u32) -> Vec<f32> {
        let n = (seconds * f64::from(rate)) as usize;
        let angle = |i: usize| 2.0 * PI * freq * i as f64 / f64::from(rate);
        (0..n).map(|i| (amplitude * libm::sin(angle(i))) as f32).collect()
    }

    fn lufs(samples: &[f32], n: usize, rate: u32) -> f64 {
        20.0 * libm::log10(loudness(samples, n, 0..n, rate).unwrap())
    }

    /// The specification's calibration: a sine of 997 Hz and full scale in one channel is -3.01 LKFS. At
    /// other rates than 48 kHz the bilinear transform moves the filters a little.
    #[test]
    fn a_sine_of_full_scale_is_3_decibels_below() {
        for (rate, most) in [(48_000, 1e-3), (8000, 0.05), (16_000, 0.05), (44_100, 0.05), (96_000, 0.05)] {
            let samples = sine(997.0, 1.0, 3.0, rate);
            let found = lufs(&samples, samples.len(), rate);
            assert!((found + 3.0103).abs() < most, "{found} at {rate} Hz");
        }
    }

    /// The coefficients that the specification prints for 48 kHz.
    #[test]
    fn filters_are_those_of_the_specification() {
        let [shelf, high_pass] = weighting(48_000.0);
        let close = |found: &[f64], expected: &[f64]| {
            found.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-12)
        };
        let (b, a) = shelf.parts();
        assert!(close(&b, &[1.53512485958697, -2.69169618940638, 1.19839281085285]), "{b:?}");
        assert!(close(&a, &[-1.69065929318241, 0.73248077421585]), "{a:?}");
        let (b, a) = high_pass.parts();
        assert!(close(&b, &[1.0, -2.0, 1.0]) && close(&a, &[-1.99004745483398, 0.99007225036621]), "{a:?}");
    }

    #[test]
    fn gates_leave_out_what_is_quiet() {
        let rate = 48_000;
        let loud = sine(997.0, 0.1, 4.0, rate);
        let alone = lufs(&loud, loud.len(), rate);
        // Silence and what is 20 dB below do not count, but for the blocks at the change.
        for (amplitude, most) in [(0.0, 0.3), (0.01, 0.3)] {
            let mut both = loud.clone();
            both.extend(sine(997.0, amplitude, 6.0, rate));
            let found = lufs(&both, both.len(), rate);
            assert!((alone - most..=alone + 1e-6).contains(&found), "{found} beside {alone}");
        }
        for silent in [vec![0.0; 48_000], vec![1e-6; 48_000], vec![0.0; 100], Vec::new()] {
            assert_eq!(loudness(&silent, silent.len(), 0..silent.len(), rate).unwrap(), 0.0);
        }
        // Two channels with the same sound are 3 dB louder than one; a short sound is a block.
        let twice = [loud.clone(), loud.clone()].concat();
        assert!((lufs(&twice, loud.len(), rate) - alone - 3.0103).abs() < 1e-4);
        let short = &loud[..9600];
        assert!((lufs(short, short.len(), rate) - alone).abs() < 0.2);
    }
}
