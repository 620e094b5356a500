//! The fast methods compared with the definition, absolute phase, and the contract of the plan.

use super::*;
use crate::target_len;
use proptest::prelude::*;

/// Usual pairs, up and down, then awkward and extreme ones.
const PAIRS: [(u32, u32); 16] = [
    (44_100, 32_000),
    (48_000, 32_000),
    (22_050, 32_000),
    (16_000, 32_000),
    (8_000, 32_000),
    (96_000, 32_000),
    (192_000, 32_000),
    (11_025, 32_000),
    (32_000, 44_100),
    (35_467, 32_000),
    (11_127, 32_000),
    (44_056, 16_000),
    (47_999, 48_000),
    (768_000, 11_127),
    (1, 32_000),
    (3, 2),
];

fn noise(n: usize) -> Vec<f32> {
    let mut state = 7_u32;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state as f32 / u32::MAX as f32 - 0.5
        })
        .collect()
}

fn span(resampler: &Resampler, whole: &[f32], target: Range<u64>) -> Vec<f32> {
    let input = resampler.input_span(target.clone(), whole.len() as u64);
    let mut out = vec![f32::NAN; (target.end - target.start) as usize];
    let source = &whole[input.start as usize..input.end as usize];
    resampler.resample(source, input.start, target.start, &mut out).unwrap();
    out
}

#[test]
fn equals_the_definition() {
    for (source_hz, target_hz) in PAIRS {
        for quality in [Quality::Fast, Quality::Default, Quality::Best] {
            let whole = noise(3000);
            let n = target_len(3000, source_hz, target_hz).min(6000);
            let resampler = Resampler::new(source_hz, target_hz, quality).unwrap();
            let found = span(&resampler, &whole, 0..n);
            let expected = naive::resample(&whole, source_hz, target_hz, quality, n as usize);
            // Noise up to 0.5: rounding of f32, and for `block` the leakage of the stop band.
            let allowed = match quality {
                Quality::Fast => 1e-5,
                _ => 3e-6,
            };
            for (m, (x, y)) in found.iter().zip(&expected).enumerate() {
                let error = (f64::from(*x) - y).abs();
                assert!(error < allowed, "{resampler:?}: sample {m} is {x}, not {y}: {error:e}");
            }
        }
    }
}

#[test]
fn span_equals_slice_of_whole() {
    for (source_hz, target_hz) in PAIRS {
        let whole = noise(if source_hz < 10 { 20 } else { 20_000 });
        let n = target_len(whole.len() as u64, source_hz, target_hz);
        let resampler = Resampler::new(source_hz, target_hz, Quality::Default).unwrap();
        let all = span(&resampler, &whole, 0..n);
        for start in [0, 1, n / 3, n / 2 + 17, n - 1] {
            let start = start.min(n - 1);
            let end = (start + 3001).min(n);
            assert!(
                span(&resampler, &whole, start..end) == all[start as usize..end as usize],
                "{resampler:?}"
            );
        }
        // More source than needed changes nothing.
        let mut out = vec![0.0; 10.min(n as usize)];
        resampler.resample(&whole, 0, 0, &mut out).unwrap();
        assert_eq!(out, all[..out.len()]);
    }
}

#[test]
fn outside_is_silence_in_the_end() {
    let resampler = Resampler::new(44_100, 32_000, Quality::Default).unwrap();
    let out = span(&resampler, &noise(44_100), 100_000..101_000);
    assert_eq!(out, vec![0.0; 1000]);
    assert_eq!(resampler.input_span(100_000..101_000, 44_100), 44_100..44_100);
    assert_eq!(resampler.input_span(5..5, 44_100), 0..0);
}

#[test]
fn equal_rates_are_a_copy() {
    let (resampler, whole) = (Resampler::new(32_000, 32_000, Quality::Fast).unwrap(), noise(100));
    assert_eq!(resampler.input_span(90..110, 100), 90..100);
    let mut out = vec![1.0; 20];
    resampler.resample(&whole[90..], 90, 90, &mut out).unwrap();
    assert_eq!((&out[..10], &out[10..]), (&whole[90..], &[0.0; 10][..]));
}

#[test]
fn constant_stays_constant() {
    for (source_hz, target_hz) in PAIRS.into_iter().filter(|pair| pair.0 > 1000) {
        let resampler = Resampler::new(source_hz, target_hz, Quality::Default).unwrap();
        let whole = vec![1.0; 40_000];
        let n = target_len(40_000, source_hz, target_hz);
        for value in span(&resampler, &whole, n / 2..n / 2 + 100) {
            assert!((value - 1.0).abs() < 1e-5, "{resampler:?}: {value}");
        }
    }
}

#[test]
fn any_rates_work_within_bounded_memory() {
    let edges = [1, 2, 7, 999, 31_999, 32_000, 35_467, 767_999, MAX_HZ];
    for source_hz in edges {
        for target_hz in edges {
            let resampler = Resampler::new(source_hz, target_hz, Quality::Default).unwrap();
            assert!(span(&resampler, &noise(500), 0..20).iter().all(|x| x.is_finite()), "{resampler:?}");
        }
    }
    assert_eq!(Resampler::new(0, 1, Quality::Fast).unwrap_err().kind, ErrorKind::Unsupported);
    assert_eq!(Resampler::new(1, MAX_HZ + 1, Quality::Fast).unwrap_err().kind, ErrorKind::Config);
}

#[test]
fn far_positions_do_not_overflow() {
    for (source_hz, target_hz) in [(44_100, 32_000), (35_467, 32_000), (32_000, 32_000)] {
        let resampler = Resampler::new(source_hz, target_hz, Quality::Default).unwrap();
        let mut out = [1.0; 8];
        resampler.input_span(u64::MAX - 8..u64::MAX, u64::MAX);
        resampler.resample(&[1.0; 4], 0, u64::MAX - 8, &mut out).unwrap();
        assert_eq!(out, [0.0; 8]);
        assert_eq!(resampler.resample(&[], 0, u64::MAX, &mut out).unwrap_err().kind, ErrorKind::Shape);
    }
}

#[test]
fn plans_are_kept_by_rate_pair() {
    let plans = Resamplers::new(Quality::Default);
    let first = plans.get(44_100, 32_000).unwrap();
    assert!(Arc::ptr_eq(&first, &plans.get(44_100, 32_000).unwrap()));
    for hz in 1..=Resamplers::CAPACITY as u32 {
        plans.get(hz, hz).unwrap();
    }
    assert!(!Arc::ptr_eq(&first, &plans.get(44_100, 32_000).unwrap()));
    assert!(plans.get(0, 32_000).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn spans_agree_for_any_pair(source_hz in 1000_u32..200_000, target_hz in 1000_u32..200_000, at in 0.0..1.0) {
        let whole = noise(4000);
        let resampler = Resampler::new(source_hz, target_hz, Quality::Fast).unwrap();
        let n = target_len(4000, source_hz, target_hz);
        let start = (at * n as f64) as u64;
        let end = (start + 200).min(n);
        let all = span(&resampler, &whole, 0..end);
        prop_assert!(span(&resampler, &whole, start..end) == all[start as usize..]);
    }
}
