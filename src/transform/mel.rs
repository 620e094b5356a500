//! Mel filter bank: triangles in hertz whose corners are equidistant on the mel scale.
//!
//! Input: sample rate, FFT size, number of bands, frequency range. Output: for each band its first FFT bin
//! and its weights, all contiguous in one buffer. The zeros of the dense matrix (98 % of it with 128 bands)
//! are not stored. Designed in `f64`, stored as `f32`. Source: HTK Book, section 5.4 (`mel = 2595 log10(1 + f
//! / 700)`); triangles of height 1, no area normalisation.

/// A sparse bank of triangular filters over the bins of a power spectrum.
#[derive(Debug, Clone)]
pub struct MelBank {
    bands: Vec<Band>,
    weights: Vec<f32>,
}

/// One filter: bins `first_bin..first_bin + len`, weights from `offset` on.
#[derive(Debug, Clone, Copy)]
struct Band {
    first_bin: usize,
    offset: usize,
    len: usize,
}

/// Hertz to mel on HTK's scale.
pub fn hz_to_mel(hz: f64) -> f64 {
    2595.0 * (1.0 + hz / 700.0).log10()
}

/// Mel on HTK's scale to hertz.
pub fn mel_to_hz(mel: f64) -> f64 {
    700.0 * (10_f64.powf(mel / 2595.0) - 1.0)
}

impl MelBank {
    /// Designs `n_mels` filters between `f_min` and `f_max` hertz over the `n_fft / 2 + 1` bins of an FFT.
    ///
    /// The last bin is at half the sample rate, rounded down, as in torchaudio. For an odd `n_fft` that bin's
    /// own frequency is half a bin lower; torchaudio ignores that, and so does this design.
    ///
    /// The values must be checked already: see [`SpectrogramConfig`](super::SpectrogramConfig). A filter
    /// narrower than the distance of two bins may have no weight at all; its energy is then 0.
    pub fn new(sample_rate: u32, n_fft: usize, n_mels: usize, f_min: f64, f_max: f64) -> Self {
        let (low, high) = (hz_to_mel(f_min), hz_to_mel(f_max));
        let corner = |i: usize| mel_to_hz(low + (high - low) * i as f64 / (n_mels + 1) as f64);
        let bin_hz = f64::from(sample_rate / 2) / (n_fft / 2) as f64;
        // bounded: `n_mels` is at most 4096.
        let (mut bands, mut weights) = (Vec::with_capacity(n_mels), Vec::new());
        for mel in 0..n_mels {
            let (left, peak, right) = (corner(mel), corner(mel + 1), corner(mel + 2));
            let weight = |bin: usize| {
                let hz = bin as f64 * bin_hz;
                ((hz - left) / (peak - left)).min((right - hz) / (right - peak)).max(0.0) as f32
            };
            // Wide bounds first; the zeros at both ends are removed below.
            let last = ((right / bin_hz).ceil() as usize).min(n_fft / 2);
            let inside = (left / bin_hz).floor() as usize..=last;
            let first_bin = inside.clone().find(|&bin| weight(bin) > 0.0).unwrap_or(0);
            let offset = weights.len();
            weights.extend(inside.map(weight).filter(|&w| w > 0.0));
            bands.push(Band { first_bin, offset, len: weights.len() - offset });
        }
        Self { bands, weights }
    }

    /// Number of bands.
    pub fn n_mels(&self) -> usize {
        self.bands.len()
    }

    /// The number of bands without a weight, whose energy is always 0.
    pub fn n_empty(&self) -> usize {
        self.bands.iter().filter(|band| band.len == 0).count()
    }

    /// First bin and weights of each band, lowest first.
    pub fn bands(&self) -> impl Iterator<Item = (usize, &[f32])> {
        self.bands.iter().map(|band| (band.first_bin, &self.weights[band.offset..band.offset + band.len]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_is_its_own_inverse() {
        for hz in [0.0, 20.0, 700.0, 1000.0, 16_000.0] {
            assert!((mel_to_hz(hz_to_mel(hz)) - hz).abs() < 1e-9);
        }
        // The HTK scale is pinned so that 1000 Hz is close to 1000 mel.
        assert!((hz_to_mel(1000.0) - 1000.0).abs() < 0.02);
    }

    #[test]
    fn equals_the_dense_matrix() {
        for (rate, n_fft, n_mels, f_min, f_max) in [
            (32_000, 1024, 128, 0.0, 16_000.0),
            (16_000, 400, 80, 20.0, 7_600.0),
            (8_000, 256, 3, 0.0, 4_000.0),
            (22_050, 511, 40, 50.0, 11_025.0),
            (11_025, 256, 80, 0.0, 5_512.0),
        ] {
            let bank = MelBank::new(rate, n_fft, n_mels, f_min, f_max);
            assert_eq!(bank.n_mels(), n_mels);
            for (mel, (first, weights)) in bank.bands().enumerate() {
                let at = |i: usize| {
                    let (low, high) = (hz_to_mel(f_min), hz_to_mel(f_max));
                    mel_to_hz(low + (high - low) * i as f64 / (n_mels + 1) as f64)
                };
                for bin in 0..=n_fft / 2 {
                    // The values of `torch.linspace(0, sample_rate // 2, n_fft // 2 + 1)`.
                    let hz = bin as f64 * f64::from(rate / 2) / (n_fft / 2) as f64;
                    let up = (hz - at(mel)) / (at(mel + 1) - at(mel));
                    let down = (at(mel + 2) - hz) / (at(mel + 2) - at(mel + 1));
                    let dense = up.min(down).max(0.0) as f32;
                    let sparse =
                        bin.checked_sub(first).and_then(|i| weights.get(i)).copied().unwrap_or_default();
                    assert_eq!(sparse, dense, "band {mel}, bin {bin}");
                }
            }
        }
    }

    #[test]
    fn narrow_filters_may_be_empty() {
        let bank = MelBank::new(32_000, 64, 128, 0.0, 16_000.0);
        assert!(bank.bands().any(|(_, weights)| weights.is_empty()));
        assert_eq!(bank.n_empty(), bank.bands().filter(|(_, weights)| weights.is_empty()).count());
        assert_eq!(MelBank::new(32_000, 1024, 128, 0.0, 16_000.0).n_empty(), 0);
    }
}
