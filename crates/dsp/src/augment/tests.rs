//! Steps on arrays: what they keep, what they never do, and any values.

use proptest::prelude::*;

use super::*;
use crate::{Layout, dtype::Dtype, seed::below, simd::Level};

fn bounds(low: f64, high: f64) -> Bounds {
    Bounds { low, high }
}

fn run(steps: Vec<Step>, seed: u64, samples: &mut [f32]) {
    let n = samples.len();
    let mut clips = Clips { samples, n, valid: 0..n, sample_rate: 32_000 };
    Augment::new(steps)
        .waveforms(seed, &mut clips, &mut AugmentScratch::default(), &mut |_, _, _, _| Ok(()))
        .unwrap();
}

fn step(kind: StepKind) -> Step {
    Step { kind, p: 1.0, choice: None, only: None }
}

#[test]
fn a_further_step_changes_no_draw_of_the_others() {
    let gain = || step(StepKind::Gain { db: bounds(-20.0, 20.0) });
    let flip = step(StepKind::Polarity);
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
    let noise = StepKind::Noise {
        snr_db: bounds(0.0, 0.0),
        slope_db: bounds(-12.0, 12.0),
        loudness: Loudness::Active,
    };
    for kind in [noise, StepKind::Clip { db: bounds(-10.0, 0.0) }, StepKind::Gain { db: bounds(6.0, 6.0) }] {
        let mut silent = [0.0; 100];
        run(vec![step(kind)], 1, &mut silent);
        assert_eq!(silent, [0.0; 100]);
    }
    run(vec![step(StepKind::Roll { shift: bounds(-1.0, 1.0), wraps: true })], 1, &mut []);
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
        max_share: None,
        warp: 0,
    };
    for (layout, seed) in [(super::super::Layout::Mel, 1), (super::super::Layout::Time, 2)] {
        let axis = FrameAxis { layout, n_bands: 8, n_frames: 20, first: 5, n_valid: 10 };
        let augment = Augment::new(vec![
            step(StepKind::SpecAugment(masks)),
            step(StepKind::FrameRoll { shift: bounds(-1.0, 1.0) }),
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

fn masks_with(warp: usize) -> BandMasks {
    let widest = Width::Count(4);
    BandMasks {
        freq: widest,
        n_freq: 1,
        time: widest,
        n_time: 2,
        fill: Fill::Number(-9.0),
        pads: false,
        max_share: None,
        warp,
    }
}

fn spectrogram(axis: FrameAxis) -> Vec<f32> {
    let mut values = vec![0.0; axis.n_bands * axis.n_frames];
    noise::gaussian(5, &mut values);
    values
}

fn on_features(kind: StepKind, seed: u64, axis: FrameAxis, values: &mut [f32]) {
    let mut scratch = AugmentScratch::default();
    let augment = Augment::new(vec![step(kind)]);
    augment.features(seed, axis, &mut scratch, crate::dtype::ValuesMut::Float32(values)).unwrap();
}

/// Each frame by the definition, in float64: where its middle was, and the line between the two frames there.
#[test]
fn a_warp_is_two_lines() {
    let none = BandMasks { n_freq: 0, n_time: 0, ..masks_with(7) };
    let mut moved = std::collections::BTreeSet::new();
    for (layout, seed) in (0..300).map(|n| ([Layout::Mel, Layout::Time][n % 2], n as u64)) {
        let axis = FrameAxis { layout, n_bands: 3, n_frames: 40, first: 4, n_valid: 30 };
        let at = |band: usize, frame: usize| match layout {
            Layout::Mel => band * 40 + frame,
            Layout::Time => frame * 3 + band,
        };
        let plain = spectrogram(axis);
        let mut found = plain.clone();
        on_features(StepKind::SpecAugment(none), seed, axis, &mut found);
        let mut draws = Draws { seed, key: 8 << 32, reading: 0, next: 1 };
        let from = 8 + below(draws.bits(), 15) as usize;
        let to = from + below(draws.bits(), 15) as usize - 7;
        moved.insert((from, to));
        for band in 0..3 {
            for frame in 0..40 {
                let value = f64::from(found[at(band, frame)]);
                if !(4..34).contains(&frame) {
                    assert_eq!(found[at(band, frame)], plain[at(band, frame)]);
                    continue;
                }
                let x = (frame - 4) as f64 + 0.5;
                let (from, to) = (from as f64, to as f64);
                let x = if x < to { x / to * from } else { 30.0 - (30.0 - x) / (30.0 - to) * (30.0 - from) };
                let x = (x - 0.5).clamp(0.0, 29.0);
                let of = |frame: f64| f64::from(plain[at(band, 4 + frame as usize)]);
                let expected = of(x.floor()) * (1.0 - x.fract()) + of(x.ceil()) * x.fract();
                assert!((value - expected).abs() < 1e-5, "{from} to {to}: {value} is not {expected}");
            }
        }
    }
    let ends = |side: fn(&(usize, usize)) -> usize| {
        [moved.iter().map(side).min().unwrap(), moved.iter().map(side).max().unwrap()]
    };
    assert_eq!((ends(|(from, _)| *from), ends(|(_, to)| *to)), ([8, 22], [1, 29]));
}

#[test]
fn masks_are_the_same_with_a_warp() {
    let axis = FrameAxis { layout: Layout::Time, n_bands: 8, n_frames: 50, first: 0, n_valid: 50 };
    let mut changed = 0;
    for seed in 0..50 {
        let [mut with, mut without] = [spectrogram(axis), spectrogram(axis)];
        on_features(StepKind::SpecAugment(masks_with(10)), seed, axis, &mut with);
        on_features(StepKind::SpecAugment(masks_with(0)), seed, axis, &mut without);
        let masked = |values: &[f32]| values.iter().map(|x| *x == -9.0).collect::<Vec<_>>();
        assert_eq!(masked(&with), masked(&without));
        changed += usize::from(with != without);
    }
    assert!(changed > 40);
}

/// Under the masks that a device is told of lie the values that a worker masks.
#[test]
fn numbers_are_the_masks_of_a_worker() {
    let axis = FrameAxis { layout: Layout::Time, n_bands: 8, n_frames: 50, first: 5, n_valid: 40 };
    let masks = masks_with(0);
    let augment = Augment::new(vec![
        step(StepKind::SpecAugment(masks)),
        step(StepKind::FrameRoll { shift: bounds(0.5, 0.5) }),
    ]);
    let examples: Vec<_> = (0..50).map(|bits| Drawing { bits, axis, slot: bits as usize }).collect();
    let n = augment.n_numbers();
    assert_eq!(n, 2 + 4 + 2 * (masks.n_freq + masks.n_time) + 2);
    let mut numbers = vec![-1.0; n * examples.len()];
    augment.numbers(&examples, axis, &mut numbers);
    for (Drawing { bits, .. }, row) in examples.iter().zip(numbers.chunks_exact(n)) {
        let mut values = spectrogram(axis);
        on_features(StepKind::SpecAugment(masks), *bits, axis, &mut values);
        let is_in = |place: usize, range: &[f64]| (range[0]..range[1]).contains(&(place as f64));
        let (of_bands, of_frames) = row[6..n - 2].split_at(2 * masks.n_freq);
        for (at, value) in values.iter().enumerate() {
            let (frame, band) = (at / 8, at % 8);
            let by_band = is_in(frame, &row[4..6]) && of_bands.chunks(2).any(|range| is_in(band, range));
            let is_masked = by_band || of_frames.chunks(2).any(|range| is_in(frame, range));
            assert_eq!(*value == -9.0, is_masked);
        }
        assert_eq!((&row[..4], &row[n - 2..]), (&[5.0, 40.0, 0.0, 0.0][..], &[0.0, 20.0][..]));
    }
}

/// Of examples whose neighbours are missing, those are pairs that were drawn as pairs.
#[test]
fn pairs_are_those_that_were_drawn() {
    let axis = FrameAxis { layout: Layout::Time, n_bands: 8, n_frames: 50, first: 0, n_valid: 50 };
    let augment =
        Augment::new(vec![step(StepKind::Pair(Pairing { exchange: Exchange::CutFrames, beta: 1.0 }))]);
    let n = augment.n_numbers();
    assert_eq!(n, 2 + 5 + 2);
    let numbers = |slots: &[usize]| {
        let examples: Vec<_> =
            slots.iter().map(|&slot| Drawing { bits: slot as u64 * 77, axis, slot }).collect();
        let mut numbers = vec![-1.0; n * slots.len()];
        augment.numbers(&examples, axis, &mut numbers);
        numbers
    };
    let all = numbers(&[0, 1, 2, 3, 4, 5]);
    let missing = numbers(&[1, 2, 3, 5]);
    let partners = |numbers: &[f64]| numbers.chunks(n).map(|row| row[n - 2]).collect::<Vec<_>>();
    assert_eq!(partners(&all), [1.0, 0.0, 3.0, 2.0, 5.0, 4.0]);
    assert_eq!(partners(&missing), [0.0, 2.0, 1.0, 3.0]);
    for (row, slot) in [(1, 2), (2, 3)] {
        assert_eq!(missing[row * n..][..7], all[slot * n..][..7]);
        assert_eq!(missing[row * n + n - 1], all[slot * n + n - 1]);
    }
    for row in [0, 3] {
        assert_eq!(missing[row * n + 2..][..5], [0.0; 5]);
    }
}

#[test]
fn few_frames_are_not_warped() {
    for (n_valid, is_warped) in [(0, false), (1, false), (41, false), (42, true)] {
        let axis = FrameAxis { layout: Layout::Mel, n_bands: 2, n_frames: 60, first: 0, n_valid };
        let none = BandMasks { n_freq: 0, n_time: 0, ..masks_with(20) };
        let is_changed = (0..20).any(|seed| {
            let mut values = spectrogram(axis);
            on_features(StepKind::SpecAugment(none), seed, axis, &mut values);
            values != spectrogram(axis)
        });
        assert_eq!(is_changed, is_warped, "{n_valid} frames");
    }
}

fn on_clips(kind: StepKind, seed: u64, samples: &mut [f32], valid: Range<usize>, sample_rate: u32) {
    let mut clips = Clips { n: samples.len() / 2, samples, valid: valid.clone(), sample_rate };
    let mut scratch = AugmentScratch::default();
    Augment::new(vec![step(kind)])
        .waveforms(seed, &mut clips, &mut scratch, &mut |_, _, _, _| Ok(()))
        .unwrap();
    assert_eq!(clips.valid, valid);
}

#[test]
fn dither_is_the_same_on_silence_and_spares_padding() {
    let n = 1 << 16;
    let amount = 1.0 / 32768.0;
    let mut samples = vec![0.0; 2 * n];
    on_clips(StepKind::Dither { amount: bounds(amount, amount) }, 3, &mut samples, 100..n - 50, 16_000);
    let parts = samples.chunks_exact(n).map(|channel| &channel[100..n - 50]);
    for part in parts.clone() {
        // Six standard errors.
        assert!((rms(part) / amount - 1.0).abs() < 6.0 / (2.0 * n as f64).sqrt());
    }
    assert_eq!(
        samples.iter().filter(|x| **x != 0.0).count(),
        parts.clone().flatten().filter(|x| **x != 0.0).count()
    );
    assert_ne!(samples[..n], samples[n..]);
    let mut loud = vec![0.5; 2 * n];
    on_clips(StepKind::Dither { amount: bounds(amount, amount) }, 3, &mut loud, 100..n - 50, 16_000);
    assert!(loud.iter().zip(&samples).all(|(loud, noise)| *loud == 0.5 + noise));
}

/// The response to an impulse, frequency by frequency.
#[test]
fn notches_remove_their_bands() {
    for (freq, width) in [(0.5, 0.05), (0.1, 0.02), (0.9, 0.1), (0.3, 0.25), (0.25, 0.001)] {
        let mut samples = vec![0.0; 2 << 15];
        [samples[0], samples[1 << 15]] = [1.0; 2];
        let kind = StepKind::DropFreq {
            freq: bounds(freq, freq),
            width: bounds(width, width),
            n: Counts { low: 1, high: 1 },
        };
        on_clips(kind, 1, &mut samples, 0..1 << 15, 16_000);
        let (response, other) = samples.split_at(1 << 15);
        assert_eq!(response, other);
        let gain = |freq: f64| {
            let turn = std::f64::consts::PI * freq;
            let of = |part: fn(f64) -> f64| {
                response.iter().enumerate().map(|(i, x)| f64::from(*x) * part(turn * i as f64)).sum::<f64>()
            };
            of(f64::cos).hypot(of(f64::sin))
        };
        // The edges lie so that their distance is twice the width, and cosines are in proportion.
        let middle = ((std::f64::consts::PI * freq).cos() * (std::f64::consts::PI * width).cos()).acos();
        let middle = middle / std::f64::consts::PI;
        assert!(gain(freq) < 1e-4);
        for edge in [middle - width, middle + width] {
            assert!((gain(edge) - 0.5).abs() < 1e-4, "{freq} and {width}: {}", gain(edge));
        }
        let far = if freq < 0.5 { 1.0 } else { 0.0 };
        assert!((gain(far) - 1.0).abs() < 1e-4);
    }
}

#[test]
fn chunks_are_zeros_or_noise_within_the_recording() {
    let n = 16_000;
    let valid = 1000..15_000;
    for noise_factor in [0.0, 0.5] {
        let kind = StepKind::DropChunk {
            length_ms: bounds(10.0, 20.0),
            n: Counts { low: 0, high: 3 },
            noise_factor: bounds(noise_factor, noise_factor),
        };
        let mut seen = [0; 4];
        for seed in 0..100 {
            let mut samples = vec![1.0; 2 * n];
            on_clips(kind.clone(), seed, &mut samples, valid.clone(), 16_000);
            let (left, right) = samples.split_at(n);
            let changed = |channel: &[f32]| -> Vec<usize> { (0..n).filter(|&i| channel[i] != 1.0).collect() };
            let at = changed(left);
            assert_eq!(at, changed(right));
            assert!(at.iter().all(|i| valid.contains(i)));
            let mut draws = Draws { seed, key: 17 << 32, reading: 0, next: 1 };
            let count = below(draws.bits(), 4) as usize;
            seen[count] += 1;
            assert!(at.len() <= count * 320 && at.is_empty() == (count == 0));
            if count == 1 {
                assert!((160..=320).contains(&at.len()) && at[at.len() - 1] - at[0] + 1 == at.len());
            }
            if noise_factor == 0.0 {
                assert!(at.iter().all(|&i| left[i] == 0.0));
            } else if count > 0 {
                let noise: Vec<f32> = at.iter().map(|&i| left[i]).collect();
                // Six standard errors of at least 160 samples.
                assert!((rms(&noise) - 0.5).abs() < 0.5 * 6.0 / 320_f64.sqrt());
                assert_ne!(noise, at.iter().map(|&i| right[i]).collect::<Vec<_>>());
            }
        }
        assert!(seen.iter().all(|&count| count > 8), "{seen:?}");
    }
}

#[test]
fn a_gain_is_drawn_as_a_factor_too() {
    let n = 4000;
    let factor = |seed| {
        let mut samples = [1.0, -0.5];
        run(vec![step(StepKind::Scale { factor: bounds(0.125, 2.0) })], seed, &mut samples);
        assert_eq!(samples[1], -0.5 * samples[0]);
        let drawn = Augment::new(vec![step(StepKind::Scale { factor: bounds(0.125, 2.0) })])
            .drawn(seed, Outcome::Gain);
        assert!((ratio(drawn) - f64::from(samples[0])).abs() < 1e-6);
        f64::from(samples[0])
    };
    let raised = (0..n).filter(|&seed| factor(seed) > 1.0).count() as f64 / n as f64;
    // Six standard errors around 1 of 1.875.
    assert!((raised - 1.0 / 1.875).abs() < 6.0 * 0.5 / (n as f64).sqrt());
}

#[test]
fn one_step_of_a_group_is_applied() {
    let gain = |db| StepKind::Gain { db: bounds(db, db) };
    let n = 6000;
    for (weights, p) in [([1.0, 1.0, 1.0], 1.0), ([1.0, 2.0, 5.0], 0.5), ([1e-9, 0.1, 1e9], 0.9)] {
        let mut choices = Choice::of_weights(0, p, &weights);
        let mut chosen = |kind, p| Step { kind, p, choice: choices.next(), only: None };
        // The second is applied to half of the examples for which it is chosen.
        let steps = vec![chosen(gain(20.0), 1.0), chosen(gain(40.0), 0.5), chosen(StepKind::Polarity, 1.0)];
        assert_eq!(choices.next(), None);
        let mut seen = [0; 4];
        for seed in 0..n {
            let mut sample = [1.0];
            run(steps.clone(), seed, &mut sample);
            let which = [10.0, 100.0, -1.0, 1.0].iter().position(|x: &f32| (x - sample[0]).abs() < 1e-4);
            seen[which.expect("two steps were applied")] += 1;
        }
        let whole: f64 = weights.iter().sum();
        let mut shares = weights.map(|weight| p * weight / whole).to_vec();
        shares[1] /= 2.0;
        shares.push(1.0 - shares.iter().sum::<f64>());
        for (count, share) in seen.iter().zip(shares) {
            let found = f64::from(*count) / n as f64;
            // Six standard errors.
            let error = 6.0 * (share * (1.0 - share) / n as f64).sqrt();
            assert!((found - share).abs() <= error + 1e-9, "{seen:?} of {weights:?}");
        }
    }
}

/// A step draws in a group what it draws alone, and groups choose by themselves.
#[test]
fn a_group_changes_no_draw() {
    let gain = |choice| Step { kind: StepKind::Gain { db: bounds(-20.0, 20.0) }, p: 1.0, choice, only: None };
    let groups = [0, 1].map(|group| Choice::of_weights(group, 1.0, &[1.0, 1.0]).next());
    let mut both = [0; 4];
    for seed in 0..1000 {
        let applied = groups.map(|choice| {
            let (mut alone, mut in_group) = ([1.0], [1.0]);
            run(vec![gain(None)], seed, &mut alone);
            run(vec![gain(choice)], seed, &mut in_group);
            assert!(in_group == alone || in_group == [1.0]);
            in_group == alone
        });
        both[usize::from(applied[0]) * 2 + usize::from(applied[1])] += 1;
    }
    assert!(both.iter().all(|&count| (150..350).contains(&count)), "{both:?}");
}

/// A step for one field draws what it draws for all, and leaves the others as they are.
#[test]
fn a_step_changes_one_field_alone() {
    let only = Only { field: "b".to_owned(), waveforms: 0..0, of: 1 };
    let gain = |only| Step { only, ..step(StepKind::Gain { db: bounds(-20.0, 20.0) }) };
    let places = |name: &str| (name == "b").then_some((1..3, 4));
    for seed in 0..100 {
        let mut alone = [1.0_f32; 2];
        run(vec![gain(None)], seed, &mut alone);
        let mut samples = [1.0_f32; 8];
        let mut clips = Clips { samples: &mut samples, n: 2, valid: 0..2, sample_rate: 8000 };
        Augment::new(vec![gain(Some(only.clone()))])
            .over(4, places)
            .waveforms(seed, &mut clips, &mut AugmentScratch::default(), &mut |_, _, _, _| Ok(()))
            .unwrap();
        assert_eq!(samples[2..6], [alone[0]; 4]);
        assert_eq!([&samples[..2], &samples[6..]], [&[1.0; 2][..]; 2]);
    }
}

/// Some waveforms of a row by themselves: each step draws what it draws for the row, and those for other
/// fields are not among them.
#[test]
fn steps_of_some_waveforms() {
    let gain = |field: Option<&str>| {
        let only = field.map(|field| Only { field: field.to_owned(), waveforms: 0..0, of: 1 });
        Step { only, ..step(StepKind::Gain { db: bounds(-20.0, 20.0) }) }
    };
    let of = Some(Only { field: "a".to_owned(), waveforms: 0..0, of: 1 });
    let level = StepKind::Level { db: bounds(-20.0, -20.0), loudness: Loudness::Rms, of, peak: None };
    let places = |name: &str| Some(if name == "a" { (0..1, 4) } else { (2..3, 4) });
    for seed in 0..50 {
        let steps = vec![gain(Some("a")), gain(None), gain(Some("b")), step(level.clone())];
        let all = Augment::new(steps[..3].to_vec()).over(4, places);
        let some = Augment::new(steps).over(4, places).of_waveforms(&(1..4));
        let (mut row, mut part) = ([1.0_f32; 8], [1.0_f32; 6]);
        for (recipe, samples) in [(all, &mut row[..]), (some, &mut part[..])] {
            let mut clips = Clips { samples, n: 2, valid: 0..2, sample_rate: 8000 };
            recipe
                .waveforms(seed, &mut clips, &mut AugmentScratch::default(), &mut |_, _, _, _| Ok(()))
                .unwrap();
        }
        assert_eq!(row[2..], part);
        assert_ne!(row[..2], row[2..4]);
    }
}

#[test]
fn a_step_for_a_field_changes_each_of_its_waveforms() {
    let both = || Some(Only { field: "both".into(), waveforms: 0..0, of: 0 });
    let gain = Step { only: both(), ..step(StepKind::Gain { db: bounds(6.0, 6.0) }) };
    let level = StepKind::Level { db: bounds(-20.0, -20.0), loudness: Loudness::Rms, of: both(), peak: None };
    let all = Augment::new(vec![gain, step(level)]).over(4, |_| Some((2..4, 4)));
    assert_eq!(all.only_of(Outcome::Gain), Some(2..4));
    assert_eq!((all.only_of(Outcome::Level), all.only_of(Outcome::Clip)), (None, None));
    for (part, n) in [(0..2, 0), (2..3, 2), (3..4, 2), (1..4, 2)] {
        let some = all.of_waveforms(&part);
        assert_eq!(some.steps().count(), n);
        for step in some.steps().filter(|_| part.start > 1) {
            assert!(step.only.as_ref().is_none_or(|only| only.waveforms == (0..1) && only.of == 1));
        }
    }
}

proptest! {
    #[test]
    fn any_masks_fit(
        n_bands in 1_usize..40, n_frames in 0_usize..40, first in 0_usize..40, n_valid in 0_usize..40,
        count in 0_usize..100, share in 0.0_f64..=1.0, seed: u64, pads: bool, which in 0..3,
        warp in 0_usize..20,
    ) {
        let first = first.min(n_frames);
        let axis = FrameAxis {
            layout: super::super::Layout::Time, n_bands, n_frames, first, n_valid: n_valid.min(n_frames - first),
        };
        let fill = [Fill::Mean, Fill::Minimum, Fill::Silence][which as usize];
        let masks = BandMasks {
            freq: Width::Share(share), n_freq: 3, time: Width::Count(count), n_time: 3, fill, pads, warp,
            max_share: (share < 0.7).then_some(share),
        };
        let mut values = Dtype::Float32.zeros(n_bands * n_frames).unwrap();
        let pairing = Pairing { exchange: Exchange::CutBox, beta: 0.3 };
        let augment = Augment::new(vec![
            step(StepKind::SpecAugment(masks)),
            step(StepKind::FrameRoll { shift: bounds(-1.0, 1.0) }),
            step(StepKind::Pair(pairing)),
        ]);
        augment.features(seed, axis, &mut AugmentScratch::default(), values.as_mut()).unwrap();
        let mut numbers = vec![0.0; 3 * augment.n_numbers()];
        let examples = [0, 1, 2].map(|slot| Drawing { bits: seed, axis, slot });
        augment.numbers(&examples, axis, &mut numbers);
        prop_assert!(numbers.iter().all(|number| *number >= 0.0));
    }

    #[test]
    fn any_clip_is_possible(
        samples in prop::collection::vec(-2.0_f32..2.0, 0..200), seed: u64, low in -1.0_f64..1.0, wraps: bool,
    ) {
        let mut changed = samples.clone();
        let loudness = [Loudness::Rms, Loudness::Active, Loudness::Clip, Loudness::Lufs][seed as usize % 4];
        run(
            vec![
                step(StepKind::Roll { shift: bounds(low, 1.0), wraps }),
                step(StepKind::Noise {
                    snr_db: bounds(-30.0, 30.0), slope_db: bounds(-12.0, 12.0), loudness: Loudness::Active,
                }),
                step(StepKind::Filter {
                    shape: FilterShape::Peak, freq: bounds(1.0, 384_000.0), q: bounds(0.01, 100.0),
                    gain_db: bounds(-60.0, 60.0), n: 3,
                }),
                step(StepKind::Dither { amount: bounds(0.0, 1.0) }),
                step(StepKind::DropFreq {
                    freq: bounds(0.0, 1.0), width: bounds(0.001, 0.25), n: Counts { low: 0, high: 32 },
                }),
                step(StepKind::DropChunk {
                    length_ms: bounds(0.0, 60_000.0), n: Counts { low: 0, high: 64 },
                    noise_factor: bounds(0.0, 100.0),
                }),
                step(StepKind::Level { db: bounds(-60.0, 0.0), loudness, of: None, peak: wraps.then_some(0.5) }),
                step(StepKind::SwapChannels),
                step(StepKind::Scale { factor: bounds(1e-10, 100.0) }),
                step(StepKind::Clip { db: bounds(-60.0, 0.0) }),
            ],
            seed,
            &mut changed,
        );
        prop_assert!(changed.iter().all(|x| x.is_finite()));
    }
}
