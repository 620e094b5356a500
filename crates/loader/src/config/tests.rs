//! Tests of the checks of a loader's parameters.

use super::*;
use crate::{dsp::CropMode, tasks::ClipRule};

#[test]
fn the_presets_are_what_the_readme_says() {
    let (train, audio) = LoaderConfig::train().check().unwrap();
    assert_eq!((train.window, train.buffer_size, train.n_workers), (8000, 10_000, 8));
    assert_eq!((audio.clip_samples, audio.crop), (160_000, ClipRule::Clip(CropMode::Random.into())));
    let (eval, audio) = LoaderConfig::eval().check().unwrap();
    assert_eq!((eval.window, eval.buffer_size, eval.n_workers), (1, 1000, 4));
    assert_eq!((eval.order, audio.crop), (Order::Sequential, ClipRule::Clip(CropMode::Center.into())));
}

#[test]
fn all_problems_are_told_at_once() {
    let config = LoaderConfig {
        order: Some("window".into()),
        batch_size: 0,
        shuffle_buffer_size: 10,
        shuffle_min_size: 11,
        clip_seconds: f64::NAN,
        n_workers: CountOrAuto::Exactly(-1),
        ..LoaderConfig::default()
    };
    let error = config.check().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config);
    for part in ["batch_size is 0", "shuffle_min_size is 11", "clip_seconds is NaN", "n_workers is -1"] {
        assert!(error.message.contains(part), "{part} missing in: {error}");
    }
}

#[test]
fn numbers_beyond_the_range_are_not_shown_as_its_ends() {
    let config = LoaderConfig { n_fft: i64::MAX, hop_length: i64::MIN, ..LoaderConfig::default() };
    let error = config.check().unwrap_err();
    assert_eq!(
        error.message,
        "n_fft is beyond int64, must be 2 to 65536; hop_length is beyond int64, must be 1 to 1048576"
    );
}

#[test]
fn a_batch_counts_the_rows_that_there_are() {
    let config = LoaderConfig { batch_size: 1 << 20, ..LoaderConfig::eval() };
    let (mut plan, audio) = config.check().unwrap();
    config.fit(&mut plan, &audio, &Outputs::default(), 1000, 0).unwrap();
    let too_large = "batch_size is 1048576, which makes batches of 23 GiB, at most 8 are allowed";
    assert_eq!(
        config.fit(&mut plan, &audio, &Outputs::default(), 100_000, 0).unwrap_err().message,
        too_large
    );
    let infinite = LoaderConfig { infinite: true, ..config };
    assert!(infinite.check().unwrap_err().message.contains("250 GiB"));
}

#[test]
fn numbers_left_to_the_loader_have_bounds() {
    let auto = LoaderConfig {
        n_workers: CountOrAuto::Auto,
        prefetch_batches: CountOrAuto::Auto,
        cpu_budget: Some(3),
        ..LoaderConfig::default()
    };
    let (plan, audio) = auto.check().unwrap();
    assert_eq!((plan.n_workers, plan.prefetch_batches), (3, 8));
    assert_eq!(plan.auto, Auto { workers: true, prefetch: true });
    let (plan, _) = LoaderConfig { cpu_budget: None, ..auto.clone() }.check().unwrap();
    assert_eq!(plan.n_workers, cores());
    let both = LoaderConfig { n_workers: 8.into(), ..auto.clone() };
    assert!(both.check().unwrap_err().message.contains("cpu_budget is 3, but n_workers is 8"));
    let none = LoaderConfig { cpu_budget: Some(0), ..auto.clone() };
    assert!(none.check().unwrap_err().message.contains("cpu_budget is 0, must be 1 to 1024"));
    // A worker takes 30 MiB: the third does not fit.
    let small =
        LoaderConfig { shuffle_buffer_size: 64, shuffle_min_size: 0, memory_budget: Some(436 << 20), ..auto };
    let (mut plan, _) = small.check().unwrap();
    small.fit(&mut plan, &audio, &Outputs::default(), 1 << 20, 0).unwrap();
    assert_eq!((plan.n_workers, plan.prefetch_batches), (2, 2));
    assert!((32..64).contains(&(plan.channel_bytes >> 20)), "{plan:?}");
}

#[test]
fn a_clip_must_be_longer_than_the_reflection() {
    let config = LoaderConfig { clip_seconds: 0.016, ..LoaderConfig::default() };
    assert!(config.check().unwrap_err().message.contains("half of n_fft"));
}
