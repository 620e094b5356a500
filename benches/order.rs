//! Index arithmetic, one thread: an index of a full shuffle, a draw from the window, and the window far into
//! a run.
//!
//! `cargo bench --bench order`; the goal: 40 ns for an index of a full shuffle of any size.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay::order::{
    Bijection, Bins, Buckets, Budget, CHAPTER, Chapter, ChapterRules, Eras, Mixture, Stop, WeightStage,
    WeightedRows, Window,
};
use forebay::seed::Purpose;
use std::{hint::black_box, sync::Arc};

/// Consecutive indices, as a loader requests them.
const RUN: u64 = 1000;

fn bijection(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bijection");
    group.throughput(Throughput::Elements(RUN));
    for (name, n) in [
        ("1e3", 1000),
        ("2^20 + 1", (1 << 20) + 1),
        ("1e9", 1_000_000_000),
        ("2^40", 1 << 40),
        ("2^62", Bijection::MAX),
    ] {
        let shuffle = Bijection::new(1, Purpose::Global, [0, 0], n);
        group.bench_function(name, |bench| {
            bench.iter(|| {
                (0..RUN).map(|position| black_box(&shuffle).at(position)).fold(0, u64::wrapping_add)
            });
        });
    }
    let shuffle = Bijection::new(1, Purpose::Global, [0, 0], 1_000_000_000);
    group.bench_function("1e9, inverse", |bench| {
        bench.iter(|| (0..RUN).map(|index| black_box(&shuffle).position(index)).fold(0, u64::wrapping_add));
    });
    group.bench_function("1e9, one after the other", |bench| {
        bench.iter(|| (0..RUN).fold(0, |index, _| black_box(&shuffle).at(index)));
    });
    let mut eras = Eras::new(1, 0, 1_000_000_000, 8192);
    group.bench_function("eras of 8192", |bench| {
        let mut begin = 0;
        bench.iter(|| {
            begin = (begin + RUN) % 1_000_000;
            (begin..begin + RUN).map(|position| eras.at(position)).fold(0, u64::wrapping_add)
        });
    });
    group.finish();
    criterion.bench_function("bijection/new", |bench| {
        bench.iter(|| Bijection::new(1, Purpose::Global, [black_box(0), 0], 1_000_000_000));
    });
}

/// The plan of a chapter of batches by length, of 2^20 draws in a full shuffle of `n` rows: what a resume
/// takes.
fn chapter(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("chapter");
    group.sample_size(10).throughput(Throughput::Elements(CHAPTER));
    for n in [1_000_000_u64, 100_000_000] {
        let seconds = |row| 1.0 + (forebay::seed::mix(row) % 20_000) as f32 / 1000.0;
        let budget =
            Budget { max_duration: 400.0, quadratic_duration: None, max_examples: None, max_tokens: None };
        let seconds: Arc<[f32]> = (0..n).map(seconds).collect();
        let Ok(buckets) = Buckets::new(seconds.into(), budget, Bins::Number(30), None) else { return };
        let shuffle = Bijection::new(1, Purpose::Global, [0, 0], n);
        group.bench_function(format!("{n:e} rows"), |bench| {
            bench.iter(|| {
                let rows: Vec<u64> = (0..CHAPTER).map(|draw| shuffle.at(draw % n)).collect();
                let lengths = buckets.lengths(&rows);
                let rules = ChapterRules { n_streams: 8, keeps_rest: false, keeps_order: false };
                Chapter::new(&buckets, lengths, rules, |n| {
                    let steps = Bijection::new(1, Purpose::Steps, [0, 0], n);
                    move |step| steps.at(step)
                })
            });
        });
    }
    group.finish();
}

/// The row of a copy, in storage order and scattered. `FOREBAY_ROWS` adds a number of rows: 1e9 take 16 GB.
fn weighted(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("weighted");
    group.throughput(Throughput::Elements(RUN));
    let more = std::env::var("FOREBAY_ROWS").ok().and_then(|n| n.parse().ok());
    for n in [1000, 1_000_000, 100_000_000].into_iter().chain(more) {
        // As the classes of a long tail, in no order.
        let weights: Vec<f64> =
            (0..n as u64).map(|row| 1.0 / (1 + forebay::seed::mix(row) % 1000) as f64).collect();
        let Ok(rows) = WeightedRows::new(&weights, n as u64) else { return };
        drop(weights);
        let copies = rows.epoch(1, 0);
        let shuffle = Bijection::new(1, Purpose::Global, [0, 0], n as u64);
        group.bench_function(format!("{n:e} in order"), |bench| {
            let mut begin = 0;
            bench.iter(|| {
                begin = (begin + RUN) % (n as u64 - RUN + 1);
                (begin..begin + RUN).map(|copy| rows.row(copies, copy)).fold(0, u64::wrapping_add)
            });
        });
        group.bench_function(format!("{n:e} scattered"), |bench| {
            let mut begin = 0;
            bench.iter(|| {
                begin = (begin + RUN) % (n as u64 - RUN + 1);
                (begin..begin + RUN).map(|copy| rows.row(copies, shuffle.at(copy))).fold(0, u64::wrapping_add)
            });
        });
    }
    group.finish();
}

fn mixture(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mixture");
    group.throughput(Throughput::Elements(RUN));
    let weights = (1..=8).map(f64::from).collect();
    if let Ok(mut mixture) =
        Mixture::new(1, &[WeightStage { start: 0, weights }], 1024, Stop::Restart, &[1000; 8])
    {
        let mut begin = 0;
        group.bench_function("8 sources, block of 1024", |bench| {
            bench.iter(|| {
                begin += RUN;
                (begin..begin + RUN).map(|position| mixture.at(position).1).fold(0, u64::wrapping_add)
            });
        });
    }
    group.finish();
}

fn window(criterion: &mut Criterion) {
    const SIZE: u64 = 8000;
    let mut group = criterion.benchmark_group("window");
    group.throughput(Throughput::Elements(RUN));
    let mut window = Window::new(1, 0, 0, SIZE, None);
    group.bench_function("draw", |bench| {
        bench.iter(|| (0..RUN).filter_map(|_| window.draw()).fold(0, u64::wrapping_add));
    });
    group.finish();
    criterion.bench_function("window/at", |bench| {
        bench.iter(|| Window::at(1, 0, 0, SIZE, None, black_box(1 << 40)));
    });
}

criterion_group!(benches, bijection, chapter, weighted, mixture, window);
criterion_main!(benches);
