//! Window functions by the names of torch and Kaldi.
//!
//! Output: the weights of `length` samples in `f64`. That of one sample is 1, as in torch. Sources: torch's
//! `hann_window` (periodic), Kaldi's `feature-window.cc` (the others, symmetric).

use std::f64::consts::TAU;

/// A window function, by its name in torch or Kaldi.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WindowFunction {
    /// Hann, periodic: the weight after the last would be the first.
    #[default]
    Hann,
    /// Hann, symmetric: 0 at both ends.
    Hanning,
    /// Hamming, symmetric: 0.08 at both ends.
    Hamming,
    /// Symmetric Hann to the power of 0.85.
    Povey,
    /// 1 for each sample: no window.
    Rectangular,
}

impl WindowFunction {
    /// All windows, in the order in which messages list them.
    pub const ALL: [Self; 5] = [Self::Hann, Self::Hanning, Self::Hamming, Self::Povey, Self::Rectangular];

    /// The name in user parameters, such as `hann`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hann => "hann",
            Self::Hanning => "hanning",
            Self::Hamming => "hamming",
            Self::Povey => "povey",
            Self::Rectangular => "rectangular",
        }
    }

    /// The weights of `length` samples, in their order.
    pub fn weights(self, length: usize) -> impl Iterator<Item = f64> {
        let period = if self == Self::Hann { length } else { length.saturating_sub(1) };
        (0..length).map(move |n| {
            let cosine = (TAU * n as f64 / period as f64).cos();
            match self {
                _ if length == 1 => 1.0,
                Self::Hann | Self::Hanning => 0.5 - 0.5 * cosine,
                Self::Hamming => 0.54 - 0.46 * cosine,
                Self::Povey => (0.5 - 0.5 * cosine).max(0.0).powf(0.85),
                Self::Rectangular => 1.0,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_by_hand() {
        let weights = |window: WindowFunction, n| window.weights(n).collect::<Vec<_>>();
        let close =
            |found: &[f64], expected: &[f64]| found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(close(&weights(WindowFunction::Hann, 4), &[0.0, 0.5, 1.0, 0.5]));
        assert!(close(&weights(WindowFunction::Hanning, 5), &[0.0, 0.5, 1.0, 0.5, 0.0]));
        assert!(close(&weights(WindowFunction::Hamming, 3), &[0.08, 1.0, 0.08]));
        assert!(close(
            &weights(WindowFunction::Povey, 5),
            &[0.0, 0.5_f64.powf(0.85), 1.0, 0.5_f64.powf(0.85), 0.0]
        ));
        for window in WindowFunction::ALL {
            assert_eq!(weights(window, 1), [1.0]);
            assert!(weights(window, 0).is_empty());
        }
    }
}
