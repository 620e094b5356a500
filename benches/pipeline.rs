//! The whole engine over the toy source and task of the tests: the cost of all threads together per example.
//!
//! `cargo bench --bench pipeline`. For reading rows of 8 bytes, the channel, the workers' hand-over, the
//! window and collating together, the goal is 0.1 ms per example. `ready_batch` requests a batch after a
//! pause in which it became ready: the wait of a training loop that is never starved (goal: 50 us).
//! `metering` is the cost of `stats()` per example: the clock readings of the threads that the example passes
//! (goal: 1 % of the fastest real example, 5 us).

use std::{
    thread,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use forebay::{
    engine::{Engine, Plan, meter_examples},
    order::{Batching, Order},
};
use toy::{QUICK, Toy, Work, next, toy};

#[path = "../crates/engine/tests/toy/mod.rs"]
mod toy;

const BATCH: usize = 64;

fn engine(n_workers: usize, order: Order) -> Engine<Toy, Work> {
    let plan = Plan {
        order,
        window: 8000,
        batching: Batching::Rows(BATCH),
        infinite: true,
        buffer_size: 10_000,
        n_workers,
        channel_size: 256,
        ..toy::plan()
    };
    let mut engine = toy::engine(plan, toy(&[10_000; 50]), QUICK);
    // Threads are started and the window is full.
    (0..400).for_each(|_| drop(next(&mut engine)));
    engine
}

fn pipeline(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pipeline");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, order) in [("window", Order::Window), ("global", Order::Global)] {
        for n_workers in [1, 2, 8] {
            let mut engine = engine(n_workers, order);
            group.bench_function(BenchmarkId::new(format!("batch_of_64_{name}"), n_workers), |bench| {
                bench.iter(|| next(&mut engine));
            });
        }
    }
    let mut engine = engine(2, Order::Window);
    group.sample_size(20).bench_function("ready_batch", |bench| {
        bench.iter_custom(|iterations| {
            let mut waited = Duration::ZERO;
            for _ in 0..iterations {
                thread::sleep(Duration::from_millis(2));
                let begin = Instant::now();
                drop(next(&mut engine));
                waited += begin.elapsed();
            }
            waited
        });
    });
    group.finish();
    criterion.bench_function("pipeline/metering", |bench| bench.iter_custom(meter_examples));
}

criterion_group!(benches, pipeline);
criterion_main!(benches);
