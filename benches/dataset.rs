//! Index mapping of datasets, one thread: what a position of a tree costs, in batches of 1024.
//!
//! `cargo bench --bench dataset`; the goal in the design: 40 ns.
#![allow(missing_docs, reason = "criterion declares its own functions")]

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay::{
    Result,
    dataset::{Dataset, Field, Leaf, Length, MixtureRules, Selection},
    order::{Stage, Stop},
};

const BATCH: u64 = 1024;

/// Rows that are only counted.
#[derive(Debug)]
struct Counted(u64);

impl Leaf for Counted {
    fn fields(&self) -> Result<Arc<[Field]>> {
        Ok(Arc::new([]))
    }

    fn length(&self) -> Result<Length> {
        Ok(Length { rows: self.0, is_final: true })
    }

    fn wait(&self, _rows: u64, _give_up: &dyn Fn() -> bool) -> Result<Length> {
        self.length()
    }

    fn select<'a>(&'a self, _rows: &[u64]) -> Result<Box<dyn Selection + 'a>> {
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
    let stages = vec![Stage { start: 0, weights }];
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

criterion_group!(benches, map);
criterion_main!(benches);
