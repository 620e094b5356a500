//! Mel filter bank: triangles whose corners are equidistant on a mel scale.
//!
//! Input: sample rate, FFT size, number of bands, frequency range, scale. Output: for each band its first FFT
//! bin and its weights, all contiguous in one buffer. The zeros of the dense matrix (98 % of it with 128
//! bands) are not stored. Designed in `f64`, stored as `f32`. Sources: HTK Book, section 5.4 (`mel = 2595
//! log10(1 + f / 700)`); Slaney, Auditory Toolbox (1998): linear below 1 kHz, logarithmic above; Kaldi's
//! `mel-computations.cc` (triangles on the mel axis, without the bin at half the sample rate).

/// A mel scale, and the form of its triangles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MelScale {
    /// `2595 log10(1 + f / 700)`; triangles are linear in hertz; bins are placed as in torchaudio.
    #[default]
    Htk,
    /// Linear up to 1 kHz, then 27 mel for each factor of 6.4; triangles are linear in hertz.
    Slaney,
    /// `1127 ln(1 + f / 700)`; triangles are linear in mel; the last bin has no weight.
    Kaldi,
}

impl MelScale {
    /// All scales, in the order in which messages list them.
    pub const ALL: [Self; 3] = [Self::Htk, Self::Slaney, Self::Kaldi];

    /// The name in user parameters, such as `htk`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Htk => "htk",
            Self::Slaney => "slaney",
            Self::Kaldi => "kaldi",
        }
    }

    pub(crate) fn mel(self, hz: f64) -> f64 {
        match self {
            Self::Htk => hz_to_mel(hz),
            Self::Slaney if hz < SLANEY_HZ => hz / SLANEY_STEP,
            Self::Slaney => SLANEY_HZ / SLANEY_STEP + (hz / SLANEY_HZ).ln() / slaney_log_step(),
            Self::Kaldi => 1127.0 * (1.0 + hz / 700.0).ln(),
        }
    }

    pub(crate) fn hz(self, mel: f64) -> f64 {
        match self {
            Self::Htk => mel_to_hz(mel),
            Self::Slaney if mel < SLANEY_HZ / SLANEY_STEP => mel * SLANEY_STEP,
            Self::Slaney => SLANEY_HZ * ((mel - SLANEY_HZ / SLANEY_STEP) * slaney_log_step()).exp(),
            Self::Kaldi => 700.0 * ((mel / 1127.0).exp() - 1.0),
        }
    }
}

/// Where Slaney's scale becomes logarithmic.
const SLANEY_HZ: f64 = 1000.0;
/// Hertz per mel below that.
const SLANEY_STEP: f64 = 200.0 / 3.0;

fn slaney_log_step() -> f64 {
    6.4_f64.ln() / 27.0
}

/// How the bands of a [`MelBank`] are placed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MelBands {
    /// How many there are, those without a weight included.
    pub n_mels: usize,
    /// The lower edge of the lowest, hertz.
    pub f_min: f64,
    /// The upper edge of the highest, hertz.
    pub f_max: f64,
    /// The scale on which they are equidistant.
    pub scale: MelScale,
    /// Whether weights are divided by half the width in hertz, so that each triangle has the area 1.
    pub has_unit_area: bool,
}

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
pub(crate) fn hz_to_mel(hz: f64) -> f64 {
    2595.0 * (1.0 + hz / 700.0).log10()
}

/// Mel on HTK's scale to hertz.
pub(crate) fn mel_to_hz(mel: f64) -> f64 {
    700.0 * (10_f64.powf(mel / 2595.0) - 1.0)
}

impl MelBank {
    /// Designs the filters over the `n_fft / 2 + 1` bins of an FFT.
    ///
    /// For the HTK scale the last bin is at half the sample rate, rounded down, as in torchaudio. (For an odd
    /// `n_fft` that bin's own frequency is half a bin lower; torchaudio ignores that, and so does this
    /// design.) For the others bin `k` is at `k * sample_rate / n_fft`.
    ///
    /// The values must be checked already: see [`SpectrogramConfig`](super::SpectrogramConfig). A filter
    /// narrower than the distance of two bins may have no weight at all; its energy is then 0.
    pub fn new(sample_rate: u32, n_fft: usize, bands: MelBands) -> Self {
        let MelBands { n_mels, f_min, f_max, scale, has_unit_area } = bands;
        let (low, high) = (scale.mel(f_min), scale.mel(f_max));
        let corner = |i: usize| low + (high - low) * i as f64 / (n_mels + 1) as f64;
        let bin_hz = match scale {
            MelScale::Htk => f64::from(sample_rate / 2) / (n_fft / 2) as f64,
            MelScale::Slaney | MelScale::Kaldi => f64::from(sample_rate) / n_fft as f64,
        };
        let last_bin = match scale {
            MelScale::Kaldi => (n_fft / 2).saturating_sub(1),
            _ => n_fft / 2,
        };
        // bounded: `n_mels` is at most 4096.
        let (mut found, mut weights) = (Vec::with_capacity(n_mels), Vec::new());
        for mel in 0..n_mels {
            let corners = [corner(mel), corner(mel + 1), corner(mel + 2)];
            let hz = corners.map(|corner| scale.hz(corner));
            let [left, peak, right] = if scale == MelScale::Kaldi { corners } else { hz };
            let height = if has_unit_area { 2.0 / (hz[2] - hz[0]) } else { 1.0 };
            let weight = |bin: usize| {
                let at = bin as f64 * bin_hz;
                let at = if scale == MelScale::Kaldi { scale.mel(at) } else { at };
                let triangle = ((at - left) / (peak - left)).min((right - at) / (right - peak));
                (height * triangle.max(0.0)) as f32
            };
            // Wide bounds first; the zeros at both ends are removed below.
            let last = ((hz[2] / bin_hz).ceil() as usize).min(last_bin);
            let inside = (hz[0] / bin_hz).floor() as usize..=last;
            let first_bin = inside.clone().find(|&bin| weight(bin) > 0.0).unwrap_or(0);
            let offset = weights.len();
            weights.extend(inside.map(weight).filter(|&w| w > 0.0));
            found.push(Band { first_bin, offset, len: weights.len() - offset });
        }
        Self { bands: found, weights }
    }

    /// The bins of the spectrum themselves: `n_fft / 2 + 1` bands with one weight of 1 each.
    pub fn bins(n_fft: usize) -> Self {
        // bounded: `n_fft` is at most 65 536.
        let n = n_fft / 2 + 1;
        let bands = (0..n).map(|bin| Band { first_bin: bin, offset: bin, len: 1 }).collect();
        // bounded: as above.
        Self { bands, weights: vec![1.0; n] }
    }

    /// The number of bands, those without a weight included.
    pub fn n_mels(&self) -> usize {
        self.bands.len()
    }

    /// The number of bands without a weight, whose energy is always 0.
    pub(crate) fn n_empty(&self) -> usize {
        self.bands.iter().filter(|band| band.len == 0).count()
    }

    /// The first band without a weight.
    pub(crate) fn first_empty(&self) -> Option<usize> {
        self.bands.iter().position(|band| band.len == 0)
    }

    /// First bin and weights of each band, lowest first.
    pub fn bands(&self) -> impl Iterator<Item = (usize, &[f32])> {
        self.bands.iter().map(|band| (band.first_bin, &self.weights[band.offset..band.offset + band.len]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bands on the HTK scale with triangles of height 1.
    fn htk(n_mels: usize, f_min: f64, f_max: f64) -> MelBands {
        MelBands { n_mels, f_min, f_max, scale: MelScale::Htk, has_unit_area: false }
    }

    #[test]
    fn each_scale_is_its_own_inverse() {
        for scale in MelScale::ALL {
            for hz in [0.0, 20.0, 700.0, 999.9, 1000.0, 16_000.0] {
                assert!((scale.hz(scale.mel(hz)) - hz).abs() < 1e-9, "{scale:?}");
            }
        }
        assert!((MelScale::Slaney.mel(6400.0) - 42.0).abs() < 1e-9);
        assert!((MelScale::Kaldi.mel(1000.0) - 1000.0).abs() < 0.02);
    }

    #[test]
    fn triangles_of_unit_area() {
        let (rate, n_fft) = (16_000, 16_384);
        let bands = MelBands { scale: MelScale::Slaney, has_unit_area: true, ..htk(40, 0.0, 8000.0) };
        for (_, weights) in MelBank::new(rate, n_fft, bands).bands() {
            let area = weights.iter().map(|&w| f64::from(w)).sum::<f64>() * f64::from(rate) / n_fft as f64;
            assert!((area - 1.0).abs() < 0.01, "{area}");
        }
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
            let bank = MelBank::new(rate, n_fft, htk(n_mels, f_min, f_max));
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
        let bank = MelBank::new(32_000, 64, htk(128, 0.0, 16_000.0));
        assert!(bank.bands().any(|(_, weights)| weights.is_empty()));
        assert_eq!(bank.n_empty(), bank.bands().filter(|(_, weights)| weights.is_empty()).count());
        assert_eq!(MelBank::new(32_000, 1024, htk(128, 0.0, 16_000.0)).n_empty(), 0);
    }
}
