//! Datasets: the cost of a position of a tree on one thread, in batches of 1024, and random batches of tokens
//! by the engine.
//!
//! `cargo bench --bench dataset`; the goals: 40 ns an index, 190 million tokens/s by two
//! threads in batches of 32 windows of 2048, from a cache of 2^26 tokens in the page cache. For comparison,
//! one thread copies the same windows from a memory-mapped file.

use std::{fs, hint::black_box, path::Path, sync::Arc, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay::{
    Result,
    cache::{BatchColumn, CacheWriter, Processed, WriterOptions},
    config::DatasetConfig,
    dataset::{CacheStore, Dataset, Leaf, LeafLength, LeafSelection, MixtureRules, TokenLeaf},
    engine::{Engine, Step},
    fields::{ColumnPool, DataType, Field},
    order::{Stop, WeightStage},
    seed::{below, mix},
    tasks::{DatasetSource, DatasetTask, SharedTask},
};

const BATCH: u64 = 1024;

/// Rows that are counted but never read.
#[derive(Debug)]
struct Counted(u64);

impl Leaf for Counted {
    fn fields(&self) -> Result<Arc<[Field]>> {
        Ok(Arc::new([]))
    }

    fn length(&self) -> Result<LeafLength> {
        Ok(LeafLength { rows: self.0, is_final: true })
    }

    fn wait(&self, _rows: u64, _give_up: &dyn Fn() -> bool) -> Result<LeafLength> {
        self.length()
    }

    fn select<'a>(&'a self, _rows: &[u64]) -> Result<Box<dyn LeafSelection + 'a>> {
        unimplemented!("nothing is read here")
    }

    fn describe(&self) -> String {
        format!("{} rows", self.0)
    }
}

fn leaf() -> Dataset {
    Dataset::of(Arc::new(Counted(1_000_000_000)))
}

fn mixture(sources: Vec<(String, Dataset)>) -> Result<Dataset> {
    let weights = (1..=sources.len()).map(|n| n as f64).collect();
    let stages = vec![WeightStage { start: 0, weights }];
    Dataset::mixture(sources, MixtureRules { stages, block: Some(1024), stop: Stop::Restart, seed: 1 })
}

fn map(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dataset");
    group.throughput(Throughput::Elements(BATCH));
    let four = |make: fn() -> Result<Dataset>| -> Result<Dataset> {
        mixture((0..4).map(|n| Ok((n.to_string(), make()?))).collect::<Result<_>>()?)
    };
    let trees: [(&str, Result<Dataset>); 6] = [
        ("leaf", Ok(leaf())),
        ("permutation", leaf().permutation(1)),
        ("eras of 8192", leaf().eras(8192, 1)),
        ("mixture of 4", four(|| Ok(leaf()))),
        ("mixture of 4 permutations", four(|| leaf().permutation(1))),
        (
            "eras of a mixture of 4 permutations",
            four(|| leaf().permutation(1)).and_then(|tree| tree.eras(8192, 1)),
        ),
    ];
    for (name, tree) in trees {
        let Ok(mut tree) = tree else { continue };
        let mut begin = 0;
        group.bench_function(name, |bench| {
            bench.iter(|| {
                begin += BATCH;
                black_box(tree.locate(0, begin..begin + BATCH))
            });
        });
    }
    group.finish();
}

const TOKENS: u64 = 1 << 26;
const LENGTH: u64 = 2048;
const ROWS: u64 = 32;

/// Ids distributed like those of a text: small ones are frequent.
fn id(at: u64) -> i32 {
    below(mix(at), below(mix(!at), 50_257) + 1) as i32
}

/// A cache of documents of 1024 tokens, int32 or uint16.
fn write(folder: &Path, dtype: DataType) -> Result<()> {
    let options = WriterOptions { shards: vec!["one".into()], ..WriterOptions::default() };
    let mut writer = CacheWriter::open(folder, "train", options)?;
    for begin in (0..TOKENS).step_by(1 << 20) {
        let bytes = |at| id(at).to_le_bytes().into_iter().take(dtype.bytes());
        let data: Vec<u8> = (begin..begin + (1 << 20)).flat_map(bytes).collect();
        let lengths = (0..1 << 10).map(|_| 1 << 10).collect();
        let columns = vec![BatchColumn::flat("input_ids", dtype, data, lengths)];
        writer.append("one", Some(Processed { documents: 1 << 10, columns }))?;
    }
    writer.advance("one", true);
    writer.finish()
}

fn batches(criterion: &mut Criterion) {
    let Ok(folder) = tempfile::tempdir() else { return };
    let flat = folder.path().join("tokens.bin");
    let bytes: Vec<u8> = (0..TOKENS).flat_map(|at| id(at).to_le_bytes()).collect();
    let made = write(folder.path(), DataType::Int32).and_then(|()| CacheStore::open(folder.path(), "train"));
    let (Ok(()), Ok(store)) = (fs::write(&flat, bytes), made) else { return };
    let mut group = criterion.benchmark_group("batches of 32 x 2048");
    group.throughput(Throughput::Elements(ROWS * LENGTH)).measurement_time(Duration::from_secs(5));
    let Ok(windows) = TokenLeaf::new(Arc::new(store), "input_ids", LENGTH, false) else { return };
    let Ok(mut dataset) = Dataset::of(Arc::new(windows)).permutation(1) else { return };
    for n_workers in [1, 2] {
        let config = DatasetConfig {
            n_workers: forebay::config::CountOrAuto::Exactly(n_workers),
            ..DatasetConfig::new(ROWS as i64)
        };
        let Ok((plan, share)) = config.check() else { continue };
        let Ok(source) = DatasetSource::new(dataset.clone(), share).map(Arc::new) else { continue };
        let task = SharedTask(Arc::new(DatasetTask::new(source.clone(), 16)));
        let Ok(mut engine) = Engine::new(source, task, plan) else { continue };
        group.bench_function(format!("engine, {n_workers} workers"), |bench| {
            bench.iter(|| {
                loop {
                    match engine.next(Duration::from_secs(1)) {
                        Ok(Step::Batch(_, rows)) => break black_box(rows.rows),
                        Ok(Step::TimedOut) => {}
                        end => assert!(matches!(end, Ok(Step::End)) && engine.rewind().is_ok(), "{end:?}"),
                    }
                }
            });
        });
        engine.close();
    }
    let Ok(file) = fs::File::open(&flat) else { return };
    // SAFETY: no other process changes the file.
    let Ok(mapped) = (unsafe { memmap2::Mmap::map(&file) }) else { return };
    let mut begin = 0;
    group.bench_function("memory-mapped file, 1 thread", |bench| {
        bench.iter(|| {
            let n = TOKENS / LENGTH;
            begin = (begin + ROWS) % (n - ROWS);
            let mut batch = vec![0u8; (ROWS * LENGTH * 4) as usize];
            let picks = dataset.locate(0, begin..begin + ROWS).unwrap_or_default();
            for (row, pick) in batch.chunks_exact_mut(LENGTH as usize * 4).zip(picks) {
                let at = (pick.row * LENGTH * 4) as usize;
                row.copy_from_slice(&mapped[at..at + row.len()]);
            }
            black_box(batch)
        });
    });
    group.finish();
}

/// Windows of a cache of uint16, unchanged and in the types that models take.
fn types(criterion: &mut Criterion) {
    let Ok(folder) = tempfile::tempdir() else { return };
    let made = write(folder.path(), DataType::Uint16).and_then(|()| CacheStore::open(folder.path(), "train"));
    let Ok(windows) = made.and_then(|store| TokenLeaf::new(Arc::new(store), "input_ids", LENGTH, false))
    else {
        return;
    };
    let mut group = criterion.benchmark_group("read 32 x 2048 of uint16");
    group.throughput(Throughput::Elements(ROWS * LENGTH));
    let Ok(windows) = Dataset::of(Arc::new(windows)).permutation(1) else { return };
    for dtype in [DataType::Uint16, DataType::Int32, DataType::Int64] {
        let mut dataset = windows.clone().with_integers(dtype, None);
        let Ok(fields) = dataset.fields() else { return };
        let pool = ColumnPool::new(fields, ROWS as usize, 2);
        let mut begin = 0;
        group.bench_function(format!("as {}", dtype.name()), |bench| {
            bench.iter(|| {
                begin = (begin + ROWS) % (TOKENS / LENGTH - ROWS);
                let picks = dataset.locate(0, begin..begin + ROWS).unwrap_or_default();
                black_box(dataset.read(&picks, &pool)).is_ok()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, map, batches, types);
criterion_main!(benches);
