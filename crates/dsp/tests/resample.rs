//! Resampling of sums of sinusoids compared with the analytic answer, and of tones that must vanish.
//!
//! The data and the script that cut it are in `tests/data/resample`.
#![allow(clippy::unwrap_used, reason = "a test helper may panic")]

use forebay_dsp::{Quality, Resampler, target_len};
use std::{f64::consts::TAU, fs, path::Path};

const RATE: u32 = 32_000;

/// The whole recording at 32 kHz.
fn resample(samples: &[f32], source_hz: u32, target_hz: u32, quality: Quality) -> Vec<f32> {
    let resampler = Resampler::new(source_hz, target_hz, quality).unwrap();
    let mut out = vec![0.0; target_len(samples.len() as u64, source_hz, target_hz) as usize];
    resampler.resample(samples, 0, 0, &mut out).unwrap();
    out
}

fn energy<T: Copy + Into<f64>>(samples: &[T]) -> f64 {
    samples.iter().map(|&x| x.into().powi(2)).sum::<f64>() / samples.len() as f64
}

fn decibels(ratio: f64) -> f64 {
    10.0 * ratio.log10()
}

/// The middle half: the recording's ends are steps, for which there is no analytic answer.
fn middle<T>(samples: &[T]) -> &[T] {
    &samples[samples.len() / 4..samples.len() * 3 / 4]
}

fn tone(hz: f64, rate: u32, n: usize) -> Vec<f32> {
    (0..n).map(|i| (0.5 * (TAU * hz * i as f64 / f64::from(rate)).sin()) as f32).collect()
}

/// The error in dB of a resampled tone, relative to the tone computed at the target rate.
fn tone_error(hz: f64, source_hz: u32, target_hz: u32, quality: Quality) -> f64 {
    let found = resample(&tone(hz, source_hz, source_hz as usize / 4), source_hz, target_hz, quality);
    let exact = tone(hz, target_hz, found.len());
    let error: Vec<f32> = found.iter().zip(&exact).map(|(x, y)| x - y).collect();
    decibels(energy(middle(&error)) / energy(middle(&exact)))
}

#[test]
fn equals_the_analytic_answer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/resample");
    let table = fs::read_to_string(folder.join("sizes.tsv")).unwrap();
    let mut rates = 0;
    for row in table.lines().filter(|line| !line.starts_with('#')) {
        let sizes: Vec<usize> = row.split('\t').map(|field| field.parse().unwrap()).collect();
        let rate = sizes[0] as u32;
        let bytes = fs::read(folder.join(format!("{rate}.bin"))).unwrap();
        let values: Vec<f32> = bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
        let (samples, rest) = values.split_at(sizes[1]);
        let (exact, aliases) = rest.split_at(sizes[2]);
        assert_eq!(aliases.len(), sizes[3]);

        let found = resample(samples, rate, RATE, Quality::Default);
        assert_eq!(found.len(), exact.len());
        let error: Vec<f32> = found.iter().zip(exact).map(|(x, y)| x - y).collect();
        let snr = decibels(energy(middle(exact)) / energy(middle(&error)));
        println!("{rate}: {snr:.1} dB");
        assert!(snr > 110.0, "{rate}: {snr:.1} dB");

        if !aliases.is_empty() {
            let found = resample(aliases, rate, RATE, Quality::Default);
            let level = decibels(energy(middle(&found)) / energy(middle(aliases)));
            println!("{rate}: aliases at {level:.1} dB");
            assert!(level < -110.0, "{rate}: aliases at {level:.1} dB");
        }
        rates += 1;
    }
    assert_eq!(rates, 5);
}

#[test]
fn pass_band_is_flat_to_its_end() {
    for (source_hz, target_hz) in [(44_100, 32_000), (22_050, 32_000), (35_467, 32_000), (32_000, 8_000)] {
        let nyquist = f64::from(source_hz.min(target_hz)) / 2.0;
        for (quality, end, limit) in
            [(Quality::Fast, 0.85, -98.0), (Quality::Default, 0.91, -108.0), (Quality::Best, 0.95, -125.0)]
        {
            for part in [0.01, 0.3, 0.6, 0.9, 1.0] {
                let error = tone_error(part * end * nyquist, source_hz, target_hz, quality);
                assert!(
                    error < limit,
                    "{source_hz} to {target_hz}, {quality:?}, {part} of the band: {error:.1} dB"
                );
            }
        }
    }
}

#[test]
fn stop_band_begins_at_the_lower_nyquist_frequency() {
    for source_hz in [44_100, 48_000, 96_000, 35_467, 64_001] {
        for (quality, limit) in [(Quality::Fast, -100.0), (Quality::Default, -110.0), (Quality::Best, -125.0)]
        {
            let top = f64::from(source_hz) / 2.0;
            for hz in [16_000.0, 16_050.0, 16_700.0, 17_500.0, 0.999 * top] {
                let found = resample(&tone(hz, source_hz, source_hz as usize / 4), source_hz, RATE, quality);
                let level = decibels(energy(middle(&found)) / 0.125);
                assert!(level < limit, "{source_hz}, {quality:?}: {hz} Hz at {level:.1} dB");
            }
        }
    }
}

#[test]
fn upsampling_leaves_no_images() {
    for source_hz in [8_000, 16_000, 22_050, 11_127] {
        // At 0.91 of the source's Nyquist frequency the first image is nearest.
        let error = tone_error(0.455 * f64::from(source_hz), source_hz, RATE, Quality::Default);
        assert!(error < -108.0, "{source_hz}: {error:.1} dB");
    }
}

#[test]
fn impulse_keeps_its_time_and_weight() {
    for (source_hz, target_hz) in [(44_100, 32_000), (16_000, 32_000), (35_467, 32_000)] {
        let mut samples = vec![0.0; source_hz as usize / 2];
        samples[source_hz as usize / 4] = 1.0;
        let found = resample(&samples, source_hz, target_hz, Quality::Default);
        let sum: f64 = found.iter().map(|x| f64::from(*x)).sum();
        let moment: f64 = found.iter().enumerate().map(|(i, x)| i as f64 * f64::from(*x)).sum();
        let scale = f64::from(target_hz) / f64::from(source_hz);
        let time = f64::from(source_hz / 4) * scale;
        assert!((sum / scale - 1.0).abs() < 1e-4, "{source_hz}: weight {}", sum / scale);
        assert!((moment / sum - time).abs() < 0.05, "{source_hz}: at {}, not {time}", moment / sum);
    }
}
