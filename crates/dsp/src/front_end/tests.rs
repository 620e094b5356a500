//! What can be said of front ends by hand; the golden files are compared in Python.

use super::*;
use crate::{Kaldi, dtype::each};

fn run(config: FrontEndConfig, waveform: &[f32]) -> Vec<f32> {
    let plan = FrontEnd::new(config, true).unwrap();
    let [rows, columns] = plan.shape(waveform.len());
    let mut out = vec![f32::NAN; rows * columns];
    plan.transform(waveform, 0..waveform.len(), &mut plan.scratch(), Typed::Float32(&mut out)).unwrap();
    out
}

fn signal(n: usize) -> Vec<f32> {
    (0..n).map(|i| (0.4 * (3e-5 * (i * i) as f64).sin()) as f32 + 1e-3 * ((i * 7919) % 101) as f32).collect()
}

#[test]
fn the_default_is_the_log_mel() {
    let waveform = signal(20_000);
    let transform = SpectrogramTransform::new(SpectrogramConfig::default()).unwrap();
    let mut expected = vec![0.0; transform.n_mels() * transform.n_frames(waveform.len())];
    transform.transform(&waveform, &mut transform.scratch(), &mut expected).unwrap();
    assert_eq!(run(FrontEndConfig::default(), &waveform), expected);
}

/// One pass and the second pass over the whole example compute the same.
#[test]
fn both_paths_agree() {
    let waveform = signal(9000);
    let form = Form { n_frames: Some(40), ..Form::default() };
    let standard = Normalization::Standard { mean: vec![-4.0], std: vec![3.0], factor: 2.0 };
    for fill in [PadValue::Silence, PadValue::Number(1.5)] {
        for compression in [
            SpectrumCompression::LnFloor(1e-6),
            SpectrumCompression::LnPlus(1e-5),
            SpectrumCompression::Log10 { floor: 1e-10, range: None },
            SpectrumCompression::Decibel { reference: Some(2.0), amin: 1e-10, top_db: None },
        ] {
            let config = FrontEndConfig {
                compression,
                fill,
                form,
                normalization: standard.clone(),
                ..FrontEndConfig::default()
            };
            assert!(config.is_single_pass());
            let one = run(config.clone(), &waveform);
            // A range that changes nothing needs the second pass.
            let two = match compression {
                SpectrumCompression::Log10 { floor, .. } => {
                    SpectrumCompression::Log10 { floor, range: Some(1e9) }
                }
                SpectrumCompression::Decibel { reference, amin, .. } => {
                    SpectrumCompression::Decibel { reference, amin, top_db: Some(1e9) }
                }
                other => other,
            };
            let config = FrontEndConfig { compression: two, ..config };
            let plan = FrontEnd::new(config.clone(), true).unwrap();
            if config.is_single_pass() {
                continue;
            }
            let mut other = vec![0.0; one.len()];
            plan.transform(&waveform, 0..waveform.len(), &mut plan.scratch(), Typed::Float32(&mut other))
                .unwrap();
            for (a, b) in one.iter().zip(&other) {
                assert!((a - b).abs() < 1e-5, "{compression:?} {fill:?}: {a} {b}");
            }
        }
    }
}

#[test]
fn any_length_and_type_has_its_shape() {
    let kaldi = |snip_edges| SpectrogramConfig {
        n_fft: 512,
        win_length: Some(397),
        n_mels: 23,
        kaldi: Some(super::super::Kaldi { snip_edges, remove_dc: true, preemphasis: 0.97 }),
        ..SpectrogramConfig::default()
    };
    let centred = SpectrogramConfig { n_fft: 255, n_mels: 23, ..SpectrogramConfig::default() };
    for spectrogram in [kaldi(true), kaldi(false), centred] {
        for normalization in [
            Normalization::None,
            Normalization::MinMax,
            Normalization::ZScore { per_band: true, ddof: 1, eps: 1e-5 },
        ] {
            for n in [0, 1, 2, 100, 396, 397, 398, 2000] {
                for (layout, n_frames) in
                    [(Layout::Mel, None), (Layout::Time, Some(5)), (Layout::Mel, Some(9))]
                {
                    for dtype in Dtype::FLOATS {
                        let config = FrontEndConfig {
                            spectrogram: spectrogram.clone(),
                            normalization: normalization.clone(),
                            form: Form { dtype, layout, n_frames },
                            fill: PadValue::Minimum,
                            ..FrontEndConfig::default()
                        };
                        let plan = FrontEnd::new(config, true).unwrap();
                        let [rows, columns] = plan.shape(n);
                        let mut out = dtype.zeros(rows * columns).unwrap();
                        plan.transform(&signal(n), 0..n, &mut plan.scratch(), out.as_mut()).unwrap();
                        #[expect(clippy::useless_conversion, reason = "of the one type that is f32")]
                        let finite = each!(&out, values => values.iter().all(|&x| f32::from(x).is_finite()));
                        assert!(finite, "{n} {layout:?} {dtype:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn not_a_number_stays() {
    let mut waveform = signal(4000);
    waveform[2000] = f32::NAN;
    let config = FrontEndConfig {
        compression: SpectrumCompression::Decibel { reference: None, amin: 1e-10, top_db: Some(80.0) },
        ..FrontEndConfig::default()
    };
    assert!(run(config, &waveform).iter().any(|x| x.is_nan()));
}

#[test]
fn problems_come_together() {
    let config = FrontEndConfig {
        conditioning: Conditioning { scale: 0.0, preemphasis: 2.0, ..Conditioning::default() },
        spectrogram: SpectrogramConfig { n_fft: 1, ..SpectrogramConfig::default() },
        normalization: Normalization::Standard { mean: vec![0.0; 3], std: vec![0.0], factor: 1.0 },
        ..FrontEndConfig::default()
    };
    let message = FrontEnd::new(config, false).unwrap_err().message;
    for part in ["scale is 0.0", "preemphasis is 2.0", "mean has 3", "std is 0.0", "n_fft is 1"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let empty = SpectrogramConfig { n_fft: 64, ..SpectrogramConfig::default() };
    let config = FrontEndConfig { spectrogram: empty, ..FrontEndConfig::default() };
    assert!(FrontEnd::new(config.clone(), true).is_ok());
    let message = FrontEnd::new(config, false).unwrap_err().message;
    assert!(message.contains("n_mels is 128, of which band 0"), "{message}");
}

#[test]
fn the_least_energy_has_its_name() {
    let decibel = SpectrumCompression::Decibel { reference: None, amin: 0.0, top_db: None };
    let log10 = SpectrumCompression::Log10 { floor: f32::NAN, range: None };
    for (compression, name) in [
        (decibel, "amin"),
        (log10, "floor"),
        (SpectrumCompression::LnFloor(1e31), "floor"),
        (SpectrumCompression::LnPlus(-1.0), "eps"),
    ] {
        let config = FrontEndConfig { compression, ..FrontEndConfig::default() };
        let message = FrontEnd::new(config, true).unwrap_err().message;
        assert!(message.starts_with(&format!("{name} is ")) && !message.contains(';'), "{message}");
    }
}

#[test]
fn means_may_not_be_missing() {
    for (mean, std) in [(vec![], vec![1.0]), (vec![0.0], vec![]), (vec![0.0; 2], vec![1.0; 3])] {
        let normalization = Normalization::Standard { mean, std, factor: 1.0 };
        let config = FrontEndConfig { normalization, ..FrontEndConfig::default() };
        let message = FrontEnd::new(config, true).unwrap_err().message;
        assert!(message.contains("must be one, or one for each band"), "{message}");
    }
}

#[test]
fn the_fewest_samples_of_a_frame() {
    let kaldi = |snip_edges| Some(Kaldi { snip_edges, remove_dc: true, preemphasis: 0.97 });
    for n_fft in [64, 65] {
        for hop_length in [1, 2, 7, 32, 100] {
            for (center, drop_last, kaldi) in [
                (true, false, None),
                (true, true, None),
                (false, false, None),
                (true, false, kaldi(true)),
                (true, false, kaldi(false)),
            ] {
                for drops_first in [false, true] {
                    let spectrogram = SpectrogramConfig {
                        n_fft,
                        win_length: Some(50),
                        hop_length,
                        n_mels: 4,
                        center,
                        drop_last,
                        kaldi,
                        ..SpectrogramConfig::default()
                    };
                    let conditioning =
                        Conditioning { preemphasis: 0.5, drops_first, ..Conditioning::default() };
                    let config = FrontEndConfig { spectrogram, conditioning, ..FrontEndConfig::default() };
                    let plan = FrontEnd::new(config.clone(), true).unwrap();
                    let least = plan.least_samples();
                    // With a hop of 1 a centred sample makes two frames.
                    assert!(plan.n_real_frames(least) > 0, "{config:?}");
                    assert_eq!(plan.n_real_frames(least - 1), 0, "{config:?}");
                    let form = Form { n_frames: Some(3), ..Form::default() };
                    assert_eq!(
                        FrontEnd::new(FrontEndConfig { form, ..config }, true).unwrap().least_samples(),
                        0
                    );
                }
            }
        }
    }
}
