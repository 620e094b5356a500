//! The fast version compared with the definition at every CPU level, and the contract of the plan.

use super::*;
use crate::dtype::{Dtype, each};
use half::{bf16, f16};
use rand::{RngExt, SeedableRng, rngs::StdRng};

fn run(transform: &SpectrogramTransform, waveform: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; transform.n_mels() * transform.n_frames(waveform.len())];
    transform.transform(waveform, &mut transform.scratch(), &mut out).unwrap();
    out
}

/// A chirp over noise about 40 dB lower, and a click: similar to a clean recording.
fn signal(n: usize) -> Vec<f32> {
    let mut rng = StdRng::seed_from_u64(1);
    let mut signal: Vec<f32> = (0..n)
        .map(|i| (0.3 * (1e-4 * (i as f64).powi(2)).sin()) as f32 + 3e-3 * rng.random_range(-1.0..1.0))
        .collect();
    signal[n / 3] += 0.5;
    signal
}

/// The tolerances in log units: mean 1e-5; max 1e-4 within 60 dB of the frame's largest band, 5e-3
/// elsewhere.
fn assert_close(config: &SpectrogramConfig, found: &[f32], expected: &[Vec<f64>], what: &str) {
    let decibels_60 = f64::from(config.power) * 3.0 * std::f64::consts::LN_10;
    let n_frames = expected[0].len();
    assert_eq!(found.len(), expected.len() * n_frames);
    let mut sum = 0.0;
    for frame in 0..n_frames {
        let largest = expected.iter().map(|row| row[frame]).fold(f64::MIN, f64::max);
        for (mel, row) in expected.iter().enumerate() {
            let error = (f64::from(found[mel * n_frames + frame]) - row[frame]).abs();
            let near = row[frame] > largest - decibels_60;
            let limit = if near { 1e-4 } else { 5e-3 };
            assert!(error <= limit, "{what}: band {mel}, frame {frame}: off by {error:e}");
            sum += error;
        }
    }
    assert!(sum / found.len() as f64 <= 1e-5, "{what}: mean {:e}", sum / found.len() as f64);
}

#[test]
fn equals_the_definition() {
    let base = SpectrogramConfig::default();
    let configs = [
        base.clone(),
        SpectrogramConfig { n_fft: 256, hop_length: 100, n_mels: 20, ..base.clone() },
        SpectrogramConfig { n_fft: 512, win_length: Some(400), hop_length: 160, power: 1.0, ..base.clone() },
        SpectrogramConfig { n_fft: 400, hop_length: 160, n_mels: 40, sample_rate: 16_000, ..base.clone() },
        SpectrogramConfig {
            n_fft: 255,
            hop_length: 77,
            n_mels: 16,
            f_min: 50.0,
            f_max: Some(9e3),
            ..base.clone()
        },
        SpectrogramConfig { n_fft: 64, hop_length: 500, n_mels: 10, center: false, ..base.clone() },
        SpectrogramConfig { n_fft: 16, hop_length: 5, n_mels: 4, ..base.clone() },
        SpectrogramConfig { n_fft: 240, hop_length: 77, n_mels: 16, mixed_radix: true, ..base.clone() },
        SpectrogramConfig { n_fft: 400, hop_length: 160, n_mels: 40, mixed_radix: true, ..base.clone() },
        SpectrogramConfig { n_fft: 2, hop_length: 1, n_mels: 1, ..base },
    ];
    for config in configs {
        for level in Level::available() {
            let transform = SpectrogramTransform::with_level(config.clone(), level).unwrap();
            for n in [config.n_fft, config.n_fft + 1, 2000] {
                let waveform = signal(n.max(3));
                let what = format!("{level:?}, {n} samples, {config:?}");
                assert_close(
                    &config,
                    &run(&transform, &waveform),
                    &naive::log_mel(&config, &waveform),
                    &what,
                );
            }
        }
    }
}

#[test]
fn shortest_waveform_is_reflected_once() {
    let transform = SpectrogramTransform::new(SpectrogramConfig::default()).unwrap();
    let waveform = signal(513);
    let (config, expected) = (transform.config(), naive::log_mel(transform.config(), &waveform));
    assert_close(config, &run(&transform, &waveform), &expected, "513 samples");
}

#[test]
fn silence_is_the_floor() {
    let transform = SpectrogramTransform::new(SpectrogramConfig::default()).unwrap();
    let out = run(&transform, &[0.0; 160_000]);
    assert_eq!(out.len(), 128 * 501);
    assert!(out.iter().all(|x| (x - 1e-10_f32.ln()).abs() < 2e-6));
}

#[test]
fn a_frame_does_not_depend_on_its_neighbours() {
    // A click of full scale: frames that do not contain it stay at the floor, bit for bit.
    let transform = SpectrogramTransform::new(SpectrogramConfig::default()).unwrap();
    let mut waveform = vec![0.0; 32_000];
    let floor = run(&transform, &waveform)[0];
    waveform[16_000] = 1.0;
    let out = run(&transform, &waveform);
    for (mel, row) in out.chunks(101).enumerate() {
        for (frame, value) in row.iter().enumerate() {
            let inside = (16_000 + 512 - 320 * frame as i64) as u64 <= 1023;
            assert!(inside || *value == floor, "band {mel}, frame {frame}");
        }
    }
}

#[test]
fn frames_are_bit_equal_wherever_they_stand() {
    // The same samples in another lane of another block.
    let transform =
        SpectrogramTransform::new(SpectrogramConfig { center: false, ..Default::default() }).unwrap();
    let waveform = signal(32_000);
    let all = run(&transform, &waveform);
    let n_frames = transform.n_frames(waveform.len());
    let later = run(&transform, &waveform[3 * 320..]);
    for mel in 0..128 {
        let n = n_frames - 3;
        assert_eq!(all[mel * n_frames + 3..(mel + 1) * n_frames], later[mel * n..(mel + 1) * n]);
    }
}

#[test]
fn used_scratch_changes_nothing() {
    let transform = SpectrogramTransform::new(SpectrogramConfig::default()).unwrap();
    let (mut scratch, waveform) = (transform.scratch(), signal(5000));
    let mut out = vec![0.0; 128 * 16];
    transform.transform(&signal(5001), &mut scratch, &mut out).unwrap();
    transform.transform(&waveform, &mut scratch, &mut out).unwrap();
    assert_eq!(out, run(&transform, &waveform));
}

#[test]
fn every_problem_is_named() {
    let config = SpectrogramConfig {
        sample_rate: 0,
        n_fft: 1,
        win_length: Some(0),
        hop_length: 0,
        n_mels: 0,
        f_min: f64::NAN,
        f_max: Some(-1.0),
        power: 3.0,
        ..SpectrogramConfig::default()
    };
    let error = SpectrogramTransform::new(config).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config);
    for name in ["sample_rate", "n_fft", "win_length", "hop_length", "n_mels", "f_min", "f_max", "power"] {
        assert!(error.message.contains(&format!("{name} is")), "{name} in {error}");
    }
}

#[test]
fn one_mistake_is_one_problem() {
    let base = SpectrogramConfig::default();
    let mistakes = [
        (SpectrogramConfig { n_fft: 0, ..base.clone() }, "n_fft is 0, must be 2 to 65536"),
        (
            SpectrogramConfig { n_fft: usize::MAX, ..base.clone() },
            "n_fft is beyond int64, must be 2 to 65536",
        ),
        (SpectrogramConfig { sample_rate: 0, ..base.clone() }, "sample_rate is 0, must be 1 to 768000"),
        (
            SpectrogramConfig { win_length: Some(1025), ..base.clone() },
            "win_length is 1025, must be at most n_fft, 1024",
        ),
        (
            SpectrogramConfig { f_max: Some(16_001.0), ..base.clone() },
            "f_max is 16001, must be above 0 and at most half the sample rate",
        ),
        (
            SpectrogramConfig { f_min: f64::INFINITY, ..base.clone() },
            "f_min is inf, must be 0 or more and below f_max, 16000",
        ),
        (
            SpectrogramConfig { f_min: 500.0, f_max: Some(500.0), ..base },
            "f_min is 500, must be 0 or more and below f_max, 500",
        ),
    ];
    for (config, problem) in mistakes {
        assert_eq!(SpectrogramTransform::new(config).unwrap_err().message, problem);
    }
}

#[test]
fn frames_of_no_real_length_do_not_overflow() {
    let transform = SpectrogramTransform::new(SpectrogramConfig::default()).unwrap();
    assert_eq!(transform.n_frames(usize::MAX), 1 + (usize::MAX - 1024) / 320);
}

#[test]
fn wrong_lengths_are_errors() {
    let transform = SpectrogramTransform::new(SpectrogramConfig::default()).unwrap();
    let mut scratch = transform.scratch();
    let kind = |result: Result<()>| result.unwrap_err().kind;
    let mut out = vec![0.0; 128 * 4];
    assert_eq!(kind(transform.transform(&[], &mut scratch, &mut [])), ErrorKind::Shape);
    assert_eq!(kind(transform.transform(&[0.0; 512], &mut scratch, &mut out[..256])), ErrorKind::Shape);
    assert_eq!(kind(transform.transform(&[0.0; 1000], &mut scratch, &mut out[..511])), ErrorKind::Shape);
    let other = SpectrogramConfig { n_fft: 512, ..Default::default() };
    let mut foreign = SpectrogramTransform::new(other).unwrap().scratch();
    assert_eq!(kind(transform.transform(&[0.0; 1000], &mut foreign, &mut out)), ErrorKind::Shape);
    let single = SpectrogramConfig { center: false, n_fft: 1024, ..Default::default() };
    let transform = SpectrogramTransform::new(single).unwrap();
    assert_eq!(transform.n_frames(1023), 0);
    assert_eq!(kind(transform.transform(&[0.0; 1023], &mut scratch, &mut [])), ErrorKind::Shape);
}

#[test]
fn what_is_not_finite_comes_out_as_nan() {
    let base = SpectrogramConfig { hop_length: 100, n_mels: 40, ..Default::default() };
    let configs = [
        SpectrogramConfig { n_fft: 256, win_length: Some(200), ..base.clone() },
        SpectrogramConfig { n_fft: 250, ..base.clone() },
        // Bands without a weight.
        SpectrogramConfig { n_fft: 64, n_mels: 128, power: 1.0, ..base },
    ];
    for config in configs {
        for level in Level::available() {
            let transform = SpectrogramTransform::with_level(config.clone(), level).unwrap();
            let clean = signal(3000);
            let expected = run(&transform, &clean);
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut waveform = clean.clone();
                waveform[1501] = value;
                let n_frames = transform.n_frames(waveform.len());
                for (i, (found, expected)) in run(&transform, &waveform).iter().zip(&expected).enumerate() {
                    let first = ((i % n_frames) * 100) as i64 - config.n_fft as i64 / 2;
                    let inside = (first..first + config.n_fft as i64).contains(&1501);
                    let what = format!("{level:?}, {value}, n_fft {}, value {i}", config.n_fft);
                    assert!(if inside { found.is_nan() } else { found == expected }, "{what}: {found}");
                }
            }
        }
    }
}

#[test]
fn hostile_samples_do_not_panic() {
    for level in Level::available() {
        let transform = SpectrogramTransform::with_level(SpectrogramConfig::default(), level).unwrap();
        for value in [f32::NAN, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE / 2.0] {
            run(&transform, &[value; 2000]);
        }
    }
}

/// As [`run`], in another form: values as `f32`, in memory order.
#[expect(clippy::useless_conversion, reason = "of the one type that is f32")]
fn run_to(transform: &SpectrogramTransform, form: Form, waveform: &[f32]) -> Vec<f32> {
    let [rows, columns] = form.shape(transform.n_mels(), transform.n_frames(waveform.len()));
    let mut out = form.dtype.zeros(rows * columns).unwrap();
    transform.transform_to(&form, waveform, &mut transform.scratch(), out.as_mut()).unwrap();
    each!(out, values => values.into_iter().map(f32::from).collect())
}

#[test]
fn every_form_has_the_same_values() {
    let silence = run(&SpectrogramTransform::new(SpectrogramConfig::default()).unwrap(), &[0.0; 600])[0];
    for (n_mels, n_fft) in [(1, 64), (7, 64), (8, 64), (20, 100), (128, 64)] {
        let config = SpectrogramConfig { n_fft, hop_length: 25, n_mels, ..SpectrogramConfig::default() };
        for level in Level::available() {
            let transform = SpectrogramTransform::with_level(config.clone(), level).unwrap();
            let waveform = signal(1000);
            let expected = run(&transform, &waveform);
            let natural = transform.n_frames(1000);
            assert_eq!(natural, 41);
            for dtype in Dtype::FLOATS {
                let rounded = |x: f32| match dtype {
                    Dtype::Float32 => x,
                    Dtype::Float16 => f16::from_f32(x).to_f32(),
                    Dtype::Bfloat16 => bf16::from_f32(x).to_f32(),
                    Dtype::Int16 => panic!("no type of spectrograms"),
                };
                for n_frames in [None, Some(1), Some(7), Some(8), Some(40), Some(41), Some(42), Some(100)] {
                    let wanted = n_frames.unwrap_or(natural);
                    let at = |mel: usize, frame: usize| match frame < natural {
                        true => rounded(expected[mel * natural + frame]),
                        false => rounded(silence),
                    };
                    let by_mel: Vec<f32> = (0..n_mels * wanted).map(|i| at(i / wanted, i % wanted)).collect();
                    let by_time: Vec<f32> =
                        (0..n_mels * wanted).map(|i| at(i % n_mels, i / n_mels)).collect();
                    let form = Form { dtype, layout: Layout::Mel, n_frames };
                    assert_eq!(run_to(&transform, form, &waveform), by_mel, "{level:?} {n_mels} {form:?}");
                    let form = Form { layout: Layout::Time, ..form };
                    assert_eq!(run_to(&transform, form, &waveform), by_time, "{level:?} {n_mels} {form:?}");
                }
            }
        }
    }
}

#[test]
fn a_wrong_output_is_refused() {
    let transform = SpectrogramTransform::new(SpectrogramConfig::default()).unwrap();
    let (waveform, mut scratch) = (signal(1000), transform.scratch());
    let form = Form { dtype: Dtype::Float16, layout: Layout::Time, n_frames: Some(10) };
    for (dtype, len) in [(Dtype::Float16, 1279), (Dtype::Float16, 1281), (Dtype::Bfloat16, 1280)] {
        let mut out = dtype.zeros(len).unwrap();
        let error = transform.transform_to(&form, &waveform, &mut scratch, out.as_mut()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Shape);
        assert!(error.message.ends_with("expected 10 x 128 of float16"), "{error}");
    }
    let other =
        SpectrogramTransform::new(SpectrogramConfig { n_mels: 127, ..SpectrogramConfig::default() }).unwrap();
    let mut out = Dtype::Float16.zeros(1280).unwrap();
    let error = transform.transform_to(&form, &waveform, &mut other.scratch(), out.as_mut()).unwrap_err();
    assert!(error.message.contains("another plan"), "{error}");
}

#[test]
fn a_click_is_loudest_in_the_frame_whose_middle_it_is_at() {
    let base = SpectrogramConfig {
        n_fft: 256,
        hop_length: 80,
        n_mels: 8,
        sample_rate: 8000,
        ..SpectrogramConfig::default()
    };
    let kaldi = |snip_edges| {
        let kaldi = Some(Kaldi { snip_edges, remove_dc: false, preemphasis: 0.0 });
        SpectrogramConfig { kaldi, win_length: Some(200), ..base.clone() }
    };
    for (config, first) in [
        (base.clone(), 0.0),
        (SpectrogramConfig { center: false, ..base.clone() }, 128.0),
        (SpectrogramConfig { win_length: Some(160), ..base.clone() }, 0.0),
        (SpectrogramConfig { n_fft: 255, ..base.clone() }, 0.5),
        (kaldi(true), 100.0),
        (kaldi(false), 40.0),
    ] {
        assert_eq!(config.first_middle(), first, "{config:?}");
        let transform = SpectrogramTransform::new(config.clone()).unwrap();
        for frame in [6, 7, 12] {
            let mut waveform = vec![0.0; 2000];
            waveform[first as usize + frame * 80] = 1.0;
            let found = run(&transform, &waveform);
            let n_frames = transform.n_frames(waveform.len());
            let energy = |at: usize| (0..8).map(|band| found[band * n_frames + at].exp()).sum::<f32>();
            let loudest = (0..n_frames).max_by(|&one, &other| energy(one).total_cmp(&energy(other)));
            assert_eq!(loudest, Some(frame), "{config:?}");
        }
    }
}
