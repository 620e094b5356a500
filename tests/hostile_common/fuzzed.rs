//! Calls fuzz targets with real files and damaged copies of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    cell::Cell,
    env, fs,
    panic::{self, catch_unwind},
    path::Path,
};

#[path = "mutate.rs"]
mod mutate;
#[path = "../patience/mod.rs"]
pub mod patience;

/// The files of a target: those listed in `fuzz/seeds.txt`, and the fuzzer's corpus.
fn corpus(root: &Path, name: &str) -> Vec<Vec<u8>> {
    let seeds = include_str!("../../fuzz/seeds.txt").lines().filter_map(|line| line.split_once(' '));
    let seeds = seeds.filter(|(target, _)| *target == name);
    let mut files: Vec<_> = seeds.map(|(_, file)| root.join("tests/data").join(file)).collect();
    if let Ok(found) = fs::read_dir(root.join("fuzz/corpus").join(name)) {
        files.extend(found.map(|entry| entry.unwrap().path()));
    }
    files.sort();
    assert!(!files.is_empty(), "{name} has no seeds");
    // The first part of a large file is enough.
    files
        .iter()
        .map(|file| fs::read(file).unwrap())
        .map(|bytes| bytes[..bytes.len().min(60_000)].to_vec())
        .collect()
}

thread_local! {
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Records the thread of a panic of forebay, even if it is caught.
fn watch() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if info.location().is_some_and(|place| !place.file().contains("/registry/")) {
            IS_OURS.set(true);
        }
        before(info);
    }));
}

type Target = fn(&[u8]);

/// Each target over its corpus and damaged copies: 100, and 2000 under `make soak`. `root` is the repository.
pub fn check(root: impl AsRef<Path>, targets: &[(&str, Target)]) {
    watch();
    let soak: u64 = env::var("FOREBAY_SOAK").map_or(1, |n| n.parse().unwrap());
    for (name, target) in targets {
        let corpus = corpus(root.as_ref(), name);
        let mutants = (0..100 * soak).map(|trial| {
            let mut rng = mutate::Rng(trial);
            let base = rng.below(corpus.len());
            mutate::mutate(&mut rng, &corpus[base], &corpus)
        });
        for (number, bytes) in corpus.iter().cloned().chain(mutants).enumerate() {
            let begin = patience::thread_time();
            let returned = catch_unwind(|| target(&bytes));
            assert!(
                returned.is_ok() && !IS_OURS.get(),
                "{name}, number {number} of its trials: {} bytes",
                bytes.len()
            );
            let seconds = (patience::thread_time() - begin).as_secs();
            assert!(seconds < 20, "{name}, number {number} of its trials took {seconds} s");
        }
    }
}
