//! The definition: each output is the sum of all source samples under the continuous kernel, in `f64`. The
//! oracle of the fast versions.

use super::{Quality, design::Prototype};

/// Outputs `0..n` of the whole recording `source`.
pub(super) fn resample(
    source: &[f32],
    source_hz: u32,
    target_hz: u32,
    quality: Quality,
    n: usize,
) -> Vec<f64> {
    let prototype = Prototype::new(quality);
    let scale = (f64::from(target_hz) / f64::from(source_hz)).min(1.0);
    (0..n)
        .map(|m| {
            let time = m as f64 * f64::from(source_hz) / f64::from(target_hz);
            let kernel = |i: usize| scale * prototype.at(scale * (time - i as f64));
            source.iter().enumerate().map(|(i, sample)| f64::from(*sample) * kernel(i)).sum()
        })
        .collect()
}
