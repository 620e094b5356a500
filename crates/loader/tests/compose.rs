//! Loaders of recordings made of their parameters, without Python.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::PathBuf, time::Duration};

use forebay_base::ErrorKind;
use forebay_engine::engine::{Engine, Step};
use forebay_loader::{
    LoaderConfig,
    compose::{Composed, compose},
    config::{CountOrAuto, Origin, Sources},
};

/// A pass ends long before.
const HANGS: Duration = Duration::from_secs(300);

/// Spoken digits, in order.
fn digits() -> LoaderConfig {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/digits");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "wav"));
    files.sort();
    assert!(files.len() > 20, "of {}", folder.display());
    LoaderConfig {
        arrow_files: Sources {
            groups: vec![files.into_iter().map(Origin::Path).collect()],
            ..Sources::default()
        },
        sample_rate: 8000,
        clip_seconds: 0.3,
        batch_size: 7,
        ..LoaderConfig::eval()
    }
}

fn composed(config: LoaderConfig) -> forebay_base::Result<Composed> {
    let plans = config.check()?;
    compose(config, plans)
}

/// The rows of a pass, and the bytes of its features.
fn pass(config: LoaderConfig) -> (Vec<i64>, Vec<u8>) {
    let Composed { selection, task, plan, .. } = composed(config).unwrap();
    let index = task.fields().iter().position(|field| field.name == "index").unwrap();
    let mut engine = Engine::new(selection, task, plan).unwrap();
    let (mut rows, mut features) = (Vec::new(), Vec::new());
    loop {
        match engine.next(HANGS).unwrap() {
            Step::Batch(_, batch) => {
                rows.extend_from_slice(batch.columns[index].values.values::<i64>());
                features.extend_from_slice(batch.columns[0].values.values::<u8>());
            }
            Step::End => return (rows, features),
            Step::TimedOut => panic!("no batch within {HANGS:?}"),
        }
    }
}

#[test]
fn a_pass_has_each_row_once_and_the_same_bytes_on_any_number_of_threads() {
    let n_rows = digits().arrow_files.groups[0].len() as i64;
    let (rows, features) = pass(digits());
    assert_eq!(rows, (0..n_rows).collect::<Vec<_>>());
    let one = LoaderConfig { n_workers: CountOrAuto::Exactly(1), n_readers: 1, ..digits() };
    assert_eq!(pass(one), (rows, features));
}

#[test]
fn a_shuffled_pass_has_the_same_rows_in_another_order() {
    let in_order = pass(digits()).0;
    let LoaderConfig { arrow_files, sample_rate, clip_seconds, .. } = digits();
    let shuffled = LoaderConfig { infinite: false, drop_last: false, seed: 5, ..LoaderConfig::train() };
    let mut rows = pass(LoaderConfig { arrow_files, sample_rate, clip_seconds, ..shuffled }).0;
    assert!(!rows.is_sorted());
    rows.sort_unstable();
    assert_eq!(rows, in_order);
}

#[test]
fn a_file_that_is_missing_is_an_error() {
    let mut missing = digits();
    missing.arrow_files.groups[0] = vec![Origin::Path("none/such.wav".into())];
    let error = composed(missing).err().unwrap();
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
}
