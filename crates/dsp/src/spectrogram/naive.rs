//! The definition: one DFT sum per bin in `f64`, dense mel matrix, no plan. The oracle of the fast version.

use super::{FLOOR, SpectrogramConfig};
use crate::mel::{hz_to_mel, mel_to_hz};
use std::f64::consts::TAU;

/// `[n_mels][n_frames]`, natural log.
pub(super) fn log_mel(config: &SpectrogramConfig, waveform: &[f32]) -> Vec<Vec<f64>> {
    let (n_fft, hop) = (config.n_fft as i64, config.hop_length as i64);
    let (n, pad) = (waveform.len() as i64, if config.center { n_fft / 2 } else { 0 });
    let n_frames = 1 + (n + 2 * pad - n_fft) / hop;
    let length = config.win_length.unwrap_or(config.n_fft) as i64;
    let hann = |i: i64| {
        let i = i - (n_fft - length) / 2;
        if (0..length).contains(&i) {
            (std::f64::consts::PI * i as f64 / length as f64).sin().powi(2)
        } else {
            0.0
        }
    };
    let sample = |i: i64| {
        let i = i.abs();
        f64::from(waveform[(if i < n { i } else { 2 * (n - 1) - i }) as usize])
    };
    let f_max = config.f_max.unwrap_or(f64::from(config.sample_rate / 2));
    let corner = |i: usize| {
        let (low, high) = (hz_to_mel(config.f_min), hz_to_mel(f_max));
        mel_to_hz(low + (high - low) * i as f64 / (config.n_mels + 1) as f64)
    };
    let mut out = vec![Vec::new(); config.n_mels];
    for frame in 0..n_frames {
        let start = frame * hop - pad;
        let bins: Vec<f64> = (0..=n_fft / 2)
            .map(|k| {
                let (mut re, mut im) = (0.0, 0.0);
                for i in 0..n_fft {
                    let (sin, cos) = (TAU * ((k * i) % n_fft) as f64 / n_fft as f64).sin_cos();
                    let value = sample(start + i) * hann(i);
                    re += value * cos;
                    im -= value * sin;
                }
                (re * re + im * im).powf(f64::from(config.power) / 2.0)
            })
            .collect();
        for (mel, row) in out.iter_mut().enumerate() {
            let (left, peak, right) = (corner(mel), corner(mel + 1), corner(mel + 2));
            let energy: f64 = (bins.iter().enumerate())
                .map(|(k, power)| {
                    let hz = k as f64 * f64::from(config.sample_rate / 2) / (n_fft / 2) as f64;
                    let weight = ((hz - left) / (peak - left)).min((right - hz) / (right - peak));
                    power * weight.max(0.0)
                })
                .sum();
            row.push(energy.max(f64::from(FLOOR)).ln());
        }
    }
    out
}
