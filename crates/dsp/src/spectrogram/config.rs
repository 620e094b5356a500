//! [`SpectrogramConfig`]: the parameters of a spectrogram, their ranges, and what follows from them.

use std::ops::RangeInclusive;

use crate::{
    error::shown,
    mel::{MelBands, MelBank, MelScale},
    window::WindowFunction,
};

/// The least energy: lower ones are raised to it before the logarithm.
pub const FLOOR: f32 = 1e-10;

/// What the frames that reach over an end of the waveform read there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pad {
    /// The waveform mirrored at its first and last sample, repeatedly if it is short.
    #[default]
    Reflect,
    /// Zeros before the first sample and after the last.
    Constant,
}

/// Frames as in Kaldi: the window is at the start of the FFT, zeros are behind it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kaldi {
    /// Only frames that lie within the waveform. Otherwise there is one for each hop, rounded, and the ends
    /// are mirrored with the first and last sample repeated.
    pub snip_edges: bool,
    /// Subtracts its mean from each frame.
    pub remove_dc: bool,
    /// `x[i] -= preemphasis * x[i - 1]` in each frame, with `x[0]` in place of the sample before it.
    pub preemphasis: f32,
}

/// A function of each energy alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pointwise {
    /// The energy itself, or the magnitude.
    Linear,
    /// `ln(max(x, floor))`: lower energies are raised to this floor.
    LnFloor(f32),
    /// `ln(x + eps)`, with this `eps`.
    LnPlus(f32),
}

impl Default for Pointwise {
    fn default() -> Self {
        Self::LnFloor(FLOOR)
    }
}

/// What follows the function of each energy: `a * y + b`.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Affine {
    /// Values of the function stay as they are.
    #[default]
    None,
    /// The same `a` and `b` for all bands.
    All(f32, f32),
    /// `a` and `b` of each band.
    Bands(Vec<(f32, f32)>),
}

/// The parameters of a [`SpectrogramTransform`](super::SpectrogramTransform), with torchaudio's names and
/// meanings.
#[derive(Debug, Clone, PartialEq)]
pub struct SpectrogramConfig {
    /// Samples per second of the waveforms. 1 to 768 000.
    pub sample_rate: u32,
    /// Samples per FFT. 2 to 65 536; powers of two are faster, with
    /// `mixed_radix` also multiples of 16 without prime factors above 5.
    pub n_fft: usize,
    /// Samples under the window, centred in the FFT; `None` means `n_fft`. 1 to `n_fft`.
    pub win_length: Option<usize>,
    /// Samples from one frame to the next. 1 to 1 048 576.
    pub hop_length: usize,
    /// Mel bands, 1 to 4096; unused without `mel_scale`.
    pub n_mels: usize,
    /// Lower edge of the lowest band, hertz. From 0 to below `f_max`.
    pub f_min: f64,
    /// Upper edge of the highest band, hertz; `None` means half the sample rate, which is also the maximum.
    /// (For an odd `n_fft` and an odd rate, half the rate is rounded down, as in torchaudio.)
    pub f_max: Option<f64>,
    /// 2 for energies, 1 for magnitudes.
    pub power: f32,
    /// Whether frame `t` is centred on sample `t * hop_length`. Without `kaldi`.
    pub center: bool,
    /// What centred frames read over the ends.
    pub pad: Pad,
    /// Leaves the last centred frame out.
    pub drop_last: bool,
    /// Kaldi's frames instead of `center` and `pad`.
    pub kaldi: Option<Kaldi>,
    /// The weights of the samples of a frame.
    pub window: WindowFunction,
    /// A factor of all samples. Above 0.
    pub scale: f32,
    /// The scale of the bands. `None`: the bins of the spectrum are the bands.
    pub mel_scale: Option<MelScale>,
    /// Whether each triangle has the area 1 in hertz, instead of the height 1.
    pub has_unit_area: bool,
    /// Whether sizes with the prime factors 3 and 5 take the eight-frame transform too. The log-mel of
    /// loaders keeps the last bits that it had before there was one.
    pub mixed_radix: bool,
    /// The function of each band's energy.
    pub pointwise: Pointwise,
    /// What is done to that function's values.
    pub affine: Affine,
}

impl Default for SpectrogramConfig {
    fn default() -> Self {
        Self {
            sample_rate: 32_000,
            n_fft: 1024,
            win_length: None,
            hop_length: 320,
            n_mels: 128,
            f_min: 0.0,
            f_max: None,
            power: 2.0,
            center: true,
            pad: Pad::Reflect,
            drop_last: false,
            kaldi: None,
            window: WindowFunction::Hann,
            scale: 1.0,
            mixed_radix: false,
            mel_scale: Some(MelScale::Htk),
            has_unit_area: false,
            pointwise: Pointwise::default(),
            affine: Affine::None,
        }
    }
}

impl SpectrogramConfig {
    /// The integer parameters and their ranges; `win_length` may also not exceed `n_fft`.
    const RANGES: [(&str, RangeInclusive<i64>); 5] = [
        ("sample_rate", 1..=768_000),
        ("n_fft", 2..=65_536),
        ("win_length", 1..=65_536),
        ("hop_length", 1..=1 << 20),
        ("n_mels", 1..=4096),
    ];

    /// The problem of `value` for the integer parameter `name`, regardless of the type that stores it.
    pub fn out_of_range(name: &str, value: i64) -> Option<String> {
        let (_, range) = Self::RANGES.iter().find(|(known, _)| *known == name)?;
        let (low, high) = (range.start(), range.end());
        (!range.contains(&value)).then(|| format!("{name} is {}, must be {low} to {high}", shown(value)))
    }

    /// The problems of the values, one sentence each. Problems that follow from another one are left out.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut is_fine = |name: &str, value: usize| {
            let problem = Self::out_of_range(name, i64::try_from(value).unwrap_or(i64::MAX));
            problems.extend(problem.clone());
            problem.is_none()
        };
        let rate_is_fine = is_fine("sample_rate", self.sample_rate as usize);
        let n_fft_is_fine = is_fine("n_fft", self.n_fft);
        is_fine("hop_length", self.hop_length);
        is_fine("n_mels", self.n_mels);
        if let Some(length) = self.win_length
            && is_fine("win_length", length)
            && n_fft_is_fine
            && length > self.n_fft
        {
            problems.push(format!("win_length is {length}, must be at most n_fft, {}", self.n_fft));
        }
        let nyquist = if rate_is_fine { f64::from(self.sample_rate) / 2.0 } else { f64::INFINITY };
        let mut highest = nyquist;
        if let Some(f_max) = self.f_max {
            if f_max > 0.0 && f_max <= nyquist {
                highest = f_max;
            } else {
                problems.push(format!("f_max is {f_max}, must be above 0 and at most half the sample rate"));
            }
        }
        if !(self.f_min >= 0.0 && self.f_min < highest) {
            problems.push(format!("f_min is {}, must be 0 or more and below f_max, {highest}", self.f_min));
        }
        if let Pointwise::LnFloor(least) | Pointwise::LnPlus(least) = self.pointwise
            && !(f32::MIN_POSITIVE..=1e30).contains(&least)
        {
            let name = if matches!(self.pointwise, Pointwise::LnPlus(_)) { "eps" } else { "floor" };
            problems.push(format!("{name} is {least:?}, must be {:e} to 1e30", f32::MIN_POSITIVE));
        }
        if let Some(Kaldi { preemphasis, .. }) = self.kaldi
            && !(0.0..=1.0).contains(&preemphasis)
        {
            problems.push(format!("preemphasis is {preemphasis:?}, must be 0 to 1"));
        }
        if self.drop_last && !self.center {
            problems.push("drop_last is True, which needs center=True".to_owned());
        }
        if self.power != 1.0 && self.power != 2.0 {
            problems.push(format!("power is {}, must be 1 or 2", self.power));
        }
        problems
    }

    /// Rows of the output: mel bands, or bins.
    pub fn n_bands(&self) -> usize {
        if self.mel_scale.is_some() { self.n_mels } else { self.n_fft / 2 + 1 }
    }

    /// Frames of a waveform of `n_samples`: `1 + n_samples / hop_length` if centred and `n_fft` is even.
    pub fn n_frames(&self, n_samples: usize) -> usize {
        if n_samples == 0 {
            return 0;
        }
        match self.kaldi {
            None => {}
            Some(Kaldi { snip_edges: false, .. }) => {
                return n_samples.saturating_add(self.hop_length / 2) / self.hop_length;
            }
            Some(_) => {
                let room = n_samples.checked_sub(self.win_length());
                return room.map_or(0, |room| 1 + room / self.hop_length);
            }
        }
        match n_samples.saturating_add(2 * self.pad()).checked_sub(self.n_fft) {
            Some(room) => usize::from(!self.drop_last) + room / self.hop_length,
            None => 0,
        }
    }

    /// The fewest samples of a waveform that make a frame.
    pub(crate) fn samples_of_a_frame(&self) -> usize {
        let hop = self.hop_length;
        let n = match self.kaldi {
            None => {
                let inside = self.n_fft - 2 * self.pad();
                if self.drop_last { inside + hop } else { inside }
            }
            Some(Kaldi { snip_edges: false, .. }) => hop - hop / 2,
            Some(_) => self.win_length(),
        };
        n.max(1)
    }

    /// Samples of a centred frame before the waveform.
    pub(super) fn pad(&self) -> usize {
        if self.center { self.n_fft / 2 } else { 0 }
    }

    /// The samples before the middle of the first frame.
    pub fn first_middle(&self) -> f64 {
        let span = self.span();
        let first = match self.kaldi {
            Some(Kaldi { snip_edges: false, .. }) => (self.hop_length / 2) as f64 - (span / 2) as f64,
            Some(_) => 0.0,
            None => -(self.pad() as f64),
        };
        first + span as f64 / 2.0
    }

    /// The samples that a frame reads: with Kaldi's frames those under the window.
    pub(super) fn span(&self) -> usize {
        if self.kaldi.is_some() { self.win_length() } else { self.n_fft }
    }

    pub(super) fn win_length(&self) -> usize {
        self.win_length.unwrap_or(self.n_fft)
    }

    pub(super) fn f_max(&self) -> f64 {
        self.f_max.unwrap_or_else(|| match self.mel_scale {
            Some(MelScale::Slaney | MelScale::Kaldi) => f64::from(self.sample_rate) / 2.0,
            Some(MelScale::Htk) | None => f64::from(self.sample_rate / 2),
        })
    }

    /// The window of `win_length` in `n_fft`: in the middle, or at the start with Kaldi's frames.
    pub(super) fn window(&self) -> Vec<f64> {
        let length = self.win_length();
        let front = if self.kaldi.is_some() { 0 } else { (self.n_fft - length) / 2 };
        // bounded: `n_fft` is at most 65 536.
        let mut window = vec![0.0; self.n_fft];
        for (value, weight) in window[front..].iter_mut().zip(self.window.weights(length)) {
            *value = weight;
        }
        window
    }

    /// The mel bank, or one band for each bin.
    pub(super) fn bank(&self) -> MelBank {
        let Some(scale) = self.mel_scale else { return MelBank::bins(self.n_fft) };
        let Self { sample_rate, n_fft, n_mels, f_min, has_unit_area, .. } = *self;
        MelBank::new(
            sample_rate,
            n_fft,
            MelBands { n_mels, f_min, f_max: self.f_max(), scale, has_unit_area },
        )
    }
}
