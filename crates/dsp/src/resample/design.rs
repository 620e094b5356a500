//! The low-pass prototype of every rate pair: a sinc under a Kaiser window, a function of continuous time.
//!
//! The unit of time is a sample of the lower of the two rates, so one prototype per quality serves all pairs.
//! Source: Kaiser, "Nonrecursive digital filter design using the I0-sinh window function" (1974), for the
//! window, its parameter and its length; the sampling of a continuous kernel is as in Smith, "Digital Audio
//! Resampling".

use super::Quality;
use std::f64::consts::{PI, TAU};

/// A low-pass kernel with gain 1, symmetric, zero beyond `half_width`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prototype {
    /// Middle of the transition band, as a fraction of the lower Nyquist frequency.
    cutoff: f64,
    /// In samples of the lower rate.
    pub(super) half_width: f64,
    beta: f64,
}

impl Prototype {
    pub(super) fn new(quality: Quality) -> Self {
        let (pass_band, attenuation_db) = quality.bands();
        // Kaiser's formulas fall up to 3 dB short at 140 dB; the transition band is from `pass_band` to 1,
        // the lower Nyquist frequency.
        let attenuation_db = attenuation_db + 5.0;
        let taps = (attenuation_db - 7.95) / (2.285 * PI * (1.0 - pass_band));
        let beta = 0.1102 * (attenuation_db - 8.7);
        Self { cutoff: 0.5 * (1.0 + pass_band), half_width: 0.5 * taps, beta }
    }

    /// An interpolator for signals below half the Nyquist frequency, used at their own rate: gain 1/2 at that
    /// frequency.
    pub(super) fn interpolator(half_width: f64, attenuation_db: f64) -> Self {
        Self { cutoff: 1.0, half_width, beta: 0.1102 * (attenuation_db - 8.7) }
    }

    pub(super) fn at(&self, time: f64) -> f64 {
        let inside = 1.0 - (time / self.half_width).powi(2);
        if inside < 0.0 {
            return 0.0;
        }
        let window = bessel_i0(self.beta * inside.sqrt()) / bessel_i0(self.beta);
        let angle = PI * self.cutoff * time;
        let sinc = if angle.abs() < 1e-9 { 1.0 } else { angle.sin() / angle };
        self.cutoff * sinc * window
    }

    /// The kernel's Fourier transform at `step * k` cycles per sample of the lower rate, for `k` in
    /// `0..count`.
    ///
    /// Trapezoidal sum with 16 points per sample: its error is the transform's own value 16 cycles away and
    /// beyond, far below the stop band. Cosines by Chebyshev's recurrence.
    pub(super) fn response(&self, step: f64, count: usize) -> Vec<f64> {
        const POINTS: f64 = 16.0;
        let n = (self.half_width * POINTS) as usize;
        let kernel: Vec<f64> = (0..=n).map(|i| self.at(i as f64 / POINTS)).collect();
        (0..count)
            .map(|k| {
                let twice = 2.0 * (TAU * step * k as f64 / POINTS).cos();
                let (mut before, mut now, mut sum) = (0.5 * twice, 1.0, 0.5 * kernel[0]);
                for value in &kernel[1..] {
                    (before, now) = (now, twice * now - before);
                    sum += value * now;
                }
                2.0 * sum / POINTS
            })
            .collect()
    }
}

/// Modified Bessel function of the first kind, order 0, by its power series: all terms are positive.
fn bessel_i0(x: f64) -> f64 {
    let (quarter, mut term, mut sum, mut k) = (0.25 * x * x, 1.0, 1.0, 1.0);
    while term > 1e-17 * sum {
        term *= quarter / (k * k);
        sum += term;
        k += 1.0;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bessel_matches_tables() {
        // Abramowitz and Stegun, table 9.8 (e^-x I0(x)).
        for (x, scaled) in
            [(0.0, 1.0), (1.0, 0.465_759_607_6), (5.0, 0.183_540_812_6), (10.0, 0.127_833_337_2)]
        {
            assert!((f64::exp(-x) * bessel_i0(x) - scaled).abs() < 1e-9, "{x}");
        }
    }

    #[test]
    fn bands_are_as_promised() {
        for quality in [Quality::Fast, Quality::Default, Quality::Best] {
            let prototype = Prototype::new(quality);
            let (pass_band, attenuation_db) = quality.bands();
            // Half a cycle per sample is the lower Nyquist frequency; checks up to five times that.
            let response = prototype.response(0.5 / 1000.0, 5000);
            let allowed = 10_f64.powf(-attenuation_db / 20.0);
            for (k, gain) in response.iter().enumerate() {
                let at = k as f64 / 1000.0;
                if at <= pass_band {
                    assert!((gain - 1.0).abs() < allowed, "{quality:?}: gain {gain} at {at}");
                } else if at >= 1.0 {
                    assert!(gain.abs() < allowed, "{quality:?}: gain {gain:e} at {at}");
                }
            }
        }
    }
}
