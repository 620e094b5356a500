//! Log-mel spectrograms of real recordings against torchaudio, and against the same definition computed in
//! float64.
//!
//! The golden data and the script that made it are in `tests/data/features`.
#![allow(clippy::unwrap_used, reason = "a test helper may panic")]

use forebay_dsp::{SpectrogramConfig, SpectrogramTransform};
use std::{f64::consts::LN_10, fs, path::Path};

struct Golden {
    name: String,
    config: SpectrogramConfig,
    n_frames: usize,
    samples: Vec<f32>,
    torchaudio: Vec<f32>,
    float64: Vec<f32>,
}

fn load() -> Vec<Golden> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/features");
    let table = fs::read_to_string(folder.join("golden.tsv")).unwrap();
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| {
        let fields: Vec<&str> = row.split('\t').collect();
        let number = |i: usize| fields[i].parse::<f64>().unwrap();
        let config = SpectrogramConfig {
            sample_rate: number(3) as u32,
            n_fft: number(4) as usize,
            win_length: Some(number(5) as usize),
            hop_length: number(6) as usize,
            n_mels: number(7) as usize,
            f_min: number(8),
            f_max: Some(number(9)),
            power: number(10) as f32,
            ..SpectrogramConfig::default()
        };
        let bytes = fs::read(folder.join(format!("{}.bin", fields[0]))).unwrap();
        let values: Vec<f32> = bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
        let (n_samples, n_frames) = (number(1) as usize, number(2) as usize);
        let (samples, mels) = values.split_at(n_samples);
        let (torchaudio, float64) = mels.split_at(config.n_mels * n_frames);
        let own = |part: &[f32]| part.to_vec();
        let name = fields[0].to_owned();
        Golden {
            name,
            config,
            n_frames,
            samples: own(samples),
            torchaudio: own(torchaudio),
            float64: own(float64),
        }
    })
    .collect()
}

/// Mean error, largest error where a band is within 60 dB of its frame's largest, and largest error
/// elsewhere.
fn errors(golden: &Golden, found: &[f32], expected: &[f32]) -> (f64, f64, f64) {
    let decibels_60 = 3.0 * LN_10 * f64::from(golden.config.power);
    let (mut sum, mut near, mut far) = (0.0, 0.0_f64, 0.0_f64);
    for frame in 0..golden.n_frames {
        let column = |values: &[f32]| -> Vec<f64> {
            values.iter().skip(frame).step_by(golden.n_frames).map(|x| f64::from(*x)).collect()
        };
        let expected = column(expected);
        let largest = expected.iter().copied().fold(f64::MIN, f64::max);
        for (x, y) in column(found).iter().zip(&expected) {
            let error = (x - y).abs();
            let worst = if *y > largest - decibels_60 { &mut near } else { &mut far };
            *worst = worst.max(error);
            sum += error;
        }
    }
    (sum / found.len() as f64, near, far)
}

#[test]
fn odd_sizes_equal_the_statement_of_torchaudio() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/features");
    let floats = |name: &str| -> Vec<f32> {
        let bytes = fs::read(folder.join(format!("{name}.bin"))).unwrap();
        bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
    };
    let table = fs::read_to_string(folder.join("odd.tsv")).unwrap();
    let mut n = 0;
    for row in table.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = row.split('\t').collect();
        let number = |i: usize| fields[i].parse::<f64>().unwrap();
        let (samples, float64) = (floats(fields[1])[..number(2) as usize].to_vec(), floats(fields[0]));
        let config = SpectrogramConfig {
            sample_rate: number(4) as u32,
            n_fft: number(5) as usize,
            win_length: Some(number(6) as usize),
            hop_length: number(7) as usize,
            n_mels: number(8) as usize,
            f_min: 0.0,
            // The default, as in torchaudio's definition.
            f_max: None,
            power: number(10) as f32,
            ..SpectrogramConfig::default()
        };
        let transform = SpectrogramTransform::new(config.clone()).unwrap();
        let n_frames = number(3) as usize;
        assert_eq!(transform.n_frames(samples.len()), n_frames, "{}", fields[0]);
        let mut out = vec![0.0; config.n_mels * n_frames];
        transform.transform(&samples, &mut transform.scratch(), &mut out).unwrap();
        let name = fields[0].to_owned();
        let golden = Golden { name, config, n_frames, samples, torchaudio: Vec::new(), float64 };
        let (mean, near, far) = errors(&golden, &out, &golden.float64);
        println!("{:16} against float64: mean {mean:.1e}, near {near:.1e}, far {far:.1e}", golden.name);
        // Tolerances in log units.
        assert!(mean <= 1e-5 && near <= 1e-4 && far <= 5e-3, "{}: {mean:e} {near:e} {far:e}", golden.name);
        n += 1;
    }
    assert_eq!(n, 6);
}

#[test]
fn equals_torchaudio_and_float64() {
    let all = load();
    assert_eq!(all.len(), 6);
    for golden in all {
        let transform = SpectrogramTransform::new(golden.config.clone()).unwrap();
        assert_eq!(transform.n_frames(golden.samples.len()), golden.n_frames);
        let mut out = vec![0.0; transform.n_mels() * golden.n_frames];
        transform.transform(&golden.samples, &mut transform.scratch(), &mut out).unwrap();
        let (mean, near, far) = errors(&golden, &out, &golden.float64);
        let (torch_mean, torch_near, torch_far) = errors(&golden, &golden.torchaudio, &golden.float64);
        let (_, near_torch, _) = errors(&golden, &out, &golden.torchaudio);
        println!(
            "{:10} against float64: mean {mean:.1e}, near {near:.1e}, far {far:.1e}; \
             torchaudio: {torch_mean:.1e}, {torch_near:.1e}, {torch_far:.1e}; ours to torchaudio, near: {near_torch:.1e}",
            golden.name
        );
        if golden.name == "speech" {
            // The dynamic range exceeds single precision: torchaudio is no reference here, only compared.
            assert!(mean <= torch_mean && near <= torch_near && far <= torch_far, "{}", golden.name);
        } else {
            // Tolerances in log units.
            assert!(
                mean <= 1e-5 && near <= 1e-4 && far <= 5e-3,
                "{}: {mean:e} {near:e} {far:e}",
                golden.name
            );
        }
        assert!(near_torch <= 1e-4, "{}: {near_torch:e}", golden.name);
    }
}
