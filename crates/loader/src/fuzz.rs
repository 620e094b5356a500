//! Fuzz targets: every parser of forebay as a function of bytes. The fuzzer calls them (`fuzz/`), and so do
//! the tests here, with real files and damaged copies of them.
//!
//! A target must return for any bytes. If there are two ways to the same result, it compares them. The
//! behaviour of libraries is tested elsewhere (`tests/hostile.rs`).
//!
//! Built for tests and with `--cfg fuzzing` only. Source: own.

use std::{path::PathBuf, sync::Arc, time::Duration};

use crate::{
    LoaderConfig,
    config::CountOrAuto,
    contract::TaskFor,
    engine::{Engine, Plan, Step},
    in_memory::InMemory,
    source::{Recordings, SourceOptions},
    state::{Identity, Share},
    storage::Storage,
    tasks::{AudioTask, CheckTask},
};

/// A parser, called with any bytes.
pub type Target = fn(&[u8]);

/// The targets by name. The other packages have their own, such as `forebay_audio::fuzz`.
pub const TARGETS: [(&str, Target); 3] = [("loader", loader), ("check", check), ("state", state)];

fn in_memory(bytes: &[u8]) -> Arc<dyn Storage> {
    Arc::new(InMemory::new(bytes))
}

/// The limit of a record in the targets, small enough that code which ignores it shows in memory use.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// The most batches that a target takes of a shard.
const BATCHES: usize = 16;
/// The longest time for a batch of a small shard; a longer one counts as a hang.
const MOST_TIME: Duration = Duration::from_secs(60);

/// Opens a whole shard, Arrow or Parquet, as the Python classes do.
fn recordings(bytes: &[u8]) -> Option<Arc<Recordings>> {
    let storage = in_memory(bytes);
    let name = if bytes.starts_with(&forebay_base::signatures::PARQUET) { "a.parquet" } else { "a.arrow" };
    let options =
        SourceOptions { threads: 1, max_record_bytes: MAX_RECORD_BYTES, ..SourceOptions::default() };
    Recordings::open_in(storage, &[[PathBuf::from(name)]], &options).ok().map(Arc::new)
}

/// Takes the first batches of a pass. Returns their rows, found by `rows`, and after a whole pass the failed
/// rows too. None if an error ended the pass.
fn take<K: TaskFor<Recordings>>(
    source: &Arc<Recordings>,
    task: K,
    plan: Plan,
    rows: impl Fn(<K::Collate as crate::contract::Collate>::Batch) -> Vec<u64>,
) -> Option<Vec<u64>> {
    let n_rows = source.n_rows();
    let mut engine = Engine::new(Arc::clone(source), task, plan).ok()?;
    let mut found = Vec::new();
    for _ in 0..BATCHES {
        match engine.next(MOST_TIME) {
            Ok(Step::Batch(_, batch)) => found.extend(rows(batch)),
            Ok(Step::End) => {
                found.extend(engine.errors().filter_map(|error| error.place.index));
                found.sort_unstable();
                assert!(found.iter().copied().eq(0..n_rows), "of {n_rows} rows: {found:?}");
                return Some(found);
            }
            Ok(Step::TimedOut) => panic!("a batch took longer than {MOST_TIME:?}"),
            Err(_) => return None,
        }
    }
    assert!(found.iter().all(|&row| row < n_rows));
    Some(found)
}

/// Runs a whole shard through the engine of a `Loader`: read, decode, crop, features and batches, in two
/// orders. In a complete pass each row is delivered or reported as an error, once.
fn loader(bytes: &[u8]) {
    let Some(source) = recordings(bytes) else { return };
    for order in ["sequential", "global"] {
        let config = LoaderConfig {
            batch_size: 4,
            shuffle_buffer_size: 8,
            sample_rate: 8000,
            clip_seconds: 0.1,
            n_mels: 8,
            n_fft: 256,
            hop_length: 80,
            n_workers: CountOrAuto::Exactly(2),
            n_readers: 2,
            prefetch_batches: CountOrAuto::Exactly(1),
            max_record_bytes: MAX_RECORD_BYTES as i64,
            max_decoded_seconds: 60.0,
            order: Some(order.into()),
            ..LoaderConfig::eval()
        };
        let planned = config.check().map(|(plan, audio)| (plan, AudioTask::new(audio)));
        match planned {
            Ok((plan, task)) => take(&source, task, plan, |batch| {
                batch.columns[1].values.values::<i64>().iter().map(|&row| row as u64).collect()
            }),
            Err(error) => panic!("{error}"),
        };
    }
}

/// Runs a whole shard through the engine of `forebay check`: every recording from end to end.
fn check(bytes: &[u8]) {
    let Some(source) = recordings(bytes) else { return };
    let plan = Plan { n_workers: 2, ..CheckTask::plan() };
    take(&source, CheckTask::default(), plan, |findings| {
        findings.into_iter().map(|finding| finding.index).collect()
    });
}

/// Parses a state of a loader.
fn state(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice(bytes) else { return };
    let identity = Identity {
        kind: "forebay.Loader",
        config: serde_json::Map::new(),
        data: serde_json::Map::new(),
        former: serde_json::Map::new(),
        names: std::collections::BTreeMap::new(),
        share: Share { rank: 1, world_size: 2 },
        per_packer: 1,
        default_order: None,
    };
    if let Ok(position) = identity.position(&value) {
        // Writing a parsed position and parsing it again gives the same position.
        assert_eq!(
            identity.position(&identity.state(&position)).map_err(|error| error.message),
            Ok(position)
        );
    }
}

/// Calls target `name`. From the first call on, a panic of forebay aborts the process even if it is caught; a
/// panic of a library does not.
#[cfg(fuzzing)]
#[allow(clippy::print_stderr, reason = "the process aborts after it")]
pub fn run(name: &str, bytes: &[u8]) {
    use std::sync::Once;

    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            if !info.location().is_some_and(|place| place.file().contains("/registry/")) {
                eprintln!("{info}");
                std::process::abort();
            }
        }));
    });
    let elsewhere = [
        &forebay_audio::fuzz::TARGETS[..],
        &forebay_cache::fuzz::TARGETS,
        &forebay_text::fuzz::TARGETS,
        &forebay_source::fuzz::TARGETS,
    ];
    if let Some((_, target)) =
        TARGETS.iter().chain(elsewhere.into_iter().flatten()).find(|(known, _)| *known == name)
    {
        target(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::TARGETS;
    use crate::fuzzed;

    #[test]
    fn targets_return_whatever_the_bytes_are() {
        fuzzed::check(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."), &TARGETS);
    }
}
