//! Second-order filters.
//!
//! Source: R. Bristow-Johnson, "Cookbook formulae for audio equalizer biquad filter coefficients" (W3C note,
//! 2021).

use std::f64::consts::PI;

/// The response of a second-order filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterShape {
    /// Passes what is below, 12 dB per octave.
    LowPass,
    /// Passes what is above, 12 dB per octave.
    HighPass,
    /// Passes a band; 0 dB in its middle.
    BandPass,
    /// Raises or lowers a band by `gain_db`; 0 dB elsewhere.
    Peak,
}

/// The coefficients of a filter, that of the newest output divided out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Biquad {
    b: [f64; 3],
    a: [f64; 2],
}

impl Biquad {
    /// At most 49 % of the rate are filtered, where all formulas hold.
    pub(super) fn new(shape: FilterShape, freq: f64, q: f64, gain_db: f64, rate: f64) -> Self {
        let w = 2.0 * PI * (freq / rate).min(0.49);
        let (sin, cos) = libm::sincos(w);
        let alpha = sin / (2.0 * q);
        let amplitude = libm::pow(10.0, gain_db / 40.0);
        let (b, a) = match shape {
            FilterShape::LowPass => {
                ([(1.0 - cos) / 2.0, 1.0 - cos, (1.0 - cos) / 2.0], [1.0 + alpha, -2.0 * cos, 1.0 - alpha])
            }
            FilterShape::HighPass => {
                ([(1.0 + cos) / 2.0, -(1.0 + cos), (1.0 + cos) / 2.0], [1.0 + alpha, -2.0 * cos, 1.0 - alpha])
            }
            FilterShape::BandPass => ([alpha, 0.0, -alpha], [1.0 + alpha, -2.0 * cos, 1.0 - alpha]),
            FilterShape::Peak => (
                [1.0 + alpha * amplitude, -2.0 * cos, 1.0 - alpha * amplitude],
                [1.0 + alpha / amplitude, -2.0 * cos, 1.0 - alpha / amplitude],
            ),
        };
        Self::from_parts(b, a)
    }

    /// Of a numerator and a denominator.
    pub(super) fn from_parts(b: [f64; 3], a: [f64; 3]) -> Self {
        Self { b: b.map(|b| b / a[0]), a: [a[1] / a[0], a[2] / a[0]] }
    }

    #[cfg(test)]
    pub(super) fn parts(&self) -> ([f64; 3], [f64; 2]) {
        (self.b, self.a)
    }
}

impl Biquad {
    /// Removes a frequency; a band of twice `width` around it loses 3 dB or more. Both are shares of half the
    /// sample rate, `width` below 0.5.
    pub(super) fn notch(freq: f64, width: f64) -> Self {
        // With a tangent in place of `sin / (2 q)` the band has exactly that width at any frequency.
        let alpha = libm::tan(PI * width);
        let (cos, a0) = (libm::cos(PI * freq), 1.0 + alpha);
        Self { b: [1.0 / a0, -2.0 * cos / a0, 1.0 / a0], a: [-2.0 * cos / a0, (1.0 - alpha) / a0] }
    }
}

/// Filters samples one filter after the other, before which all is silent. Four at a time in one pass,
/// since a filter waits for its own last value only.
pub(super) fn run(filters: &[Biquad], samples: &mut [f32]) {
    let (fours, rest) = filters.as_chunks::<4>();
    fours.iter().for_each(|filters| cascade(filters, samples));
    rest.iter().for_each(|filter| cascade(&[*filter], samples));
}

/// As [`run`], each filter twice, two of them or one in a pass.
pub(super) fn run_twice(filters: &[Biquad], samples: &mut [f32]) {
    let (pairs, rest) = filters.as_chunks::<2>();
    pairs.iter().for_each(|[one, other]| cascade(&[*one, *one, *other, *other], samples));
    rest.iter().for_each(|filter| cascade(&[*filter; 2], samples));
}

/// The sum of squares of what filters make of samples, from these states on.
pub(super) fn power<const N: usize>(
    filters: &[Biquad; N],
    states: &mut [[f64; 2]; N],
    samples: &[f32],
) -> f64 {
    samples.iter().map(|&sample| next(filters, states, sample)).map(|y| y * y).sum()
}

fn cascade<const N: usize>(filters: &[Biquad; N], samples: &mut [f32]) {
    let mut states = [[0.0; 2]; N];
    for sample in samples {
        *sample = next(filters, &mut states, *sample) as f32;
    }
}

#[inline(always)]
fn next<const N: usize>(filters: &[Biquad; N], states: &mut [[f64; 2]; N], sample: f32) -> f64 {
    // Transposed direct form II.
    let mut x = f64::from(sample);
    for (Biquad { b: [b0, b1, b2], a: [a1, a2] }, [one, two]) in filters.iter().zip(states) {
        let y = b0 * x + *one;
        *one = b1 * x - a1 * y + *two;
        *two = b2 * x - a2 * y;
        x = y;
    }
    x
}
