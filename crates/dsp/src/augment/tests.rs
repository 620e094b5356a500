//! Steps on arrays: what they keep, what they never do, and any values.

use proptest::prelude::*;

use super::*;
use crate::dtype::Dtype;
use crate::simd::Level;

fn bounds(low: f64, high: f64) -> Bounds {
    Bounds { low, high }
}

fn run(steps: Vec<Step>, seed: u64, samples: &mut [f32]) {
    let n = samples.len();
    let mut clips = Clips { samples, n, valid: 0..n, sample_rate: 32_000 };
    Augment::new(steps)
        .waveforms(seed, &mut clips, &mut AugmentScratch::default(), &mut |_, _, _| Ok(()))
        .unwrap();
}

fn step(kind: Kind) -> Step {
    Step { kind, p: 1.0 }
}

#[test]
fn a_further_step_changes_no_draw_of_the_others() {
    let gain = || step(Kind::Gain { db: bounds(-20.0, 20.0) });
    let flip = step(Kind::Polarity);
    for seed in 0..100 {
        let (mut alone, mut beside) = ([1.0_f32; 4], [1.0_f32; 4]);
        run(vec![gain()], seed, &mut alone);
        run(vec![flip.clone(), gain()], seed, &mut beside);
        assert_eq!(alone, beside.map(|x| -x));
        let mut twice = [1.0_f32; 4];
        run(vec![gain(), gain()], seed, &mut twice);
        // The second one draws its own.
        assert!((twice[0] - alone[0] * alone[0]).abs() > 1e-6 * twice[0]);
    }
}

#[test]
fn gaussian_noise_is_what_it_says() {
    let mut values = vec![0.0; 1 << 20];
    noise::gaussian(7, &mut values);
    let n = values.len() as f64;
    let moment = |k: i32| values.iter().map(|&x| f64::from(x).powi(k)).sum::<f64>() / n;
    // Six standard errors each.
    let bound = 6.0 / n.sqrt();
    assert!(moment(1).abs() < bound && (moment(2) - 1.0).abs() < bound * 2_f64.sqrt());
    assert!(moment(3).abs() < bound * 15_f64.sqrt() && (moment(4) - 3.0).abs() < bound * 96_f64.sqrt());
    let share = |limit: f32| values.iter().filter(|x| x.abs() > limit).count() as f64 / n;
    for (limit, expected) in [(1.0, 0.317_31), (2.0, 0.045_50), (3.0, 0.002_70)] {
        assert!((share(limit) - expected).abs() < bound, "{limit}: {}", share(limit));
    }
    for lag in [1, 2, 31, 32, 33, 63, 64, 65, 1000] {
        let products = values.iter().zip(&values[lag..]).map(|(&x, &y)| f64::from(x * y));
        assert!((products.sum::<f64>() / n).abs() < bound, "{lag}");
    }
    assert!(values.iter().all(|x| x.abs() < 5.9));
    // A sample depends on the seed and its number alone.
    for len in [0, 1, 31, 63, 64, 65, 1000] {
        let mut part = vec![0.0; len];
        noise::gaussian(7, &mut part);
        assert_eq!(part, values[..len]);
    }
    let mut others = vec![0.0; 1000];
    noise::gaussian(8, &mut others);
    assert_ne!(others, values[..1000]);
}

#[test]
fn every_level_has_the_same_bits() {
    let mut expected: Option<Vec<f32>> = None;
    for level in Level::available() {
        let mut values = vec![0.0; 10_000];
        level.run(noise::Gaussian { seed: 3, out: &mut values });
        for share in [-0.9, 0.3] {
            let colouring = noise::Colouring::new(share, 32_000.0);
            level.run(noise::Coloured { colouring: &colouring, values: &mut values[..9_997] });
        }
        assert_eq!(*expected.get_or_insert_with(|| values.clone()), values, "{level:?}");
    }
}

/// Each section after the other, in float64, is the oracle of the sum of sections.
#[test]
fn colouring_is_a_cascade_of_sections() {
    for (slope, rate) in
        [(-3.0, 32_000.0), (-6.0, 768_000.0), (-12.0, 44_100.0), (4.5, 16_000.0), (12.0, 8_000.0)]
    {
        let mut values = vec![0.0; 20_003];
        noise::gaussian(11, &mut values);
        let mut expected: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
        noise::coloured(slope, rate, &mut values);
        let first = 20.0 * 2_f64.log10();
        let passes = (slope.abs() / first).ceil();
        for _ in 0..passes as usize {
            let mut freq = 10.0;
            while freq < rate / 2.0 {
                let decay = |freq: f64| (-std::f64::consts::TAU * freq / rate).exp();
                let mut ends = [decay(freq), decay(freq * 4_f64.powf(slope.abs() / first / passes))];
                if slope > 0.0 {
                    ends.reverse();
                }
                let [pole, zero] = ends;
                let [mut x_before, mut y_before] = [0.0; 2];
                for x in &mut expected {
                    let y = *x - zero * x_before + pole * y_before;
                    (x_before, y_before) = (*x, y);
                    *x = y;
                }
                freq *= 4.0;
            }
        }
        let peak = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let off = values.iter().zip(&expected).map(|(&x, y)| (f64::from(x) - y).abs()).fold(0.0, f64::max);
        // What the lowest pole is off by in float32, as a share of its distance from 1.
        let rounded = 2_f64.powi(-25) / (1.0 - (-std::f64::consts::TAU * 10.0 / rate).exp());
        let bound = 1e-5 + 2.0 * passes * rounded;
        assert!(off < bound * peak, "{slope} dB at {rate} Hz: {:e}, bound {bound:e}", off / peak);
    }
}

#[test]
fn silence_stays_silent() {
    let noise =
        Kind::Noise { snr_db: bounds(0.0, 0.0), slope_db: bounds(-12.0, 12.0), loudness: Loudness::Active };
    for kind in [noise, Kind::Clip { db: bounds(-10.0, 0.0) }, Kind::Gain { db: bounds(6.0, 6.0) }] {
        let mut silent = [0.0; 100];
        run(vec![step(kind)], 1, &mut silent);
        assert_eq!(silent, [0.0; 100]);
    }
    run(vec![step(Kind::Roll { shift: bounds(-1.0, 1.0), wraps: true })], 1, &mut []);
}

#[test]
fn masks_lie_within_the_frames_that_are_no_padding() {
    let masks = BandMasks {
        freq: Width::Count(3),
        n_freq: 2,
        time: Width::Share(0.5),
        n_time: 3,
        fill: Fill::Number(-9.0),
        pads: false,
    };
    for (layout, seed) in [(super::super::Layout::Mel, 1), (super::super::Layout::Time, 2)] {
        let axis = FrameAxis { layout, n_bands: 8, n_frames: 20, first: 5, n_valid: 10 };
        let augment = Augment::new(vec![
            step(Kind::SpecAugment(masks)),
            step(Kind::FrameRoll { shift: bounds(-1.0, 1.0) }),
        ]);
        let mut any = false;
        for seed in (0..200).map(|n| n * 2 + seed) {
            for dtype in Dtype::FLOATS {
                let mut values = dtype.zeros(160).unwrap();
                augment.features(seed, axis, &mut AugmentScratch::default(), values.as_mut()).unwrap();
                let crate::dtype::Typed::Float32(values) = values else { continue };
                for band in 0..8 {
                    for frame in (0..5).chain(15..20) {
                        let at = if layout == super::super::Layout::Mel {
                            band * 20 + frame
                        } else {
                            frame * 8 + band
                        };
                        assert_eq!(values[at], 0.0);
                    }
                }
                any |= values.contains(&-9.0);
            }
        }
        assert!(any);
    }
}

proptest! {
    #[test]
    fn any_masks_fit(
        n_bands in 1_usize..40, n_frames in 0_usize..40, first in 0_usize..40, n_valid in 0_usize..40,
        count in 0_usize..100, share in 0.0_f64..=1.0, seed: u64, pads: bool, which in 0..3,
    ) {
        let first = first.min(n_frames);
        let axis = FrameAxis {
            layout: super::super::Layout::Time, n_bands, n_frames, first, n_valid: n_valid.min(n_frames - first),
        };
        let fill = [Fill::Mean, Fill::Minimum, Fill::Silence][which as usize];
        let masks = BandMasks {
            freq: Width::Share(share), n_freq: 3, time: Width::Count(count), n_time: 3, fill, pads,
        };
        let mut values = Dtype::Float32.zeros(n_bands * n_frames).unwrap();
        Augment::new(vec![step(Kind::SpecAugment(masks)), step(Kind::FrameRoll { shift: bounds(-1.0, 1.0) })])
            .features(seed, axis, &mut AugmentScratch::default(), values.as_mut())
            .unwrap();
    }

    #[test]
    fn any_clip_is_possible(
        samples in prop::collection::vec(-2.0_f32..2.0, 0..200), seed: u64, low in -1.0_f64..1.0, wraps: bool,
    ) {
        let mut changed = samples.clone();
        run(
            vec![
                step(Kind::Roll { shift: bounds(low, 1.0), wraps }),
                step(Kind::Noise {
                    snr_db: bounds(-30.0, 30.0), slope_db: bounds(-12.0, 12.0), loudness: Loudness::Active,
                }),
                step(Kind::Filter {
                    shape: Shape::Peak, freq: bounds(1.0, 384_000.0), q: bounds(0.01, 100.0),
                    gain_db: bounds(-60.0, 60.0), n: 3,
                }),
                step(Kind::Clip { db: bounds(-60.0, 0.0) }),
            ],
            seed,
            &mut changed,
        );
        prop_assert!(changed.iter().all(|x| x.is_finite()));
    }
}
