//! The shuffle stage: draws of the window, and the buffer's cost per example between producers and a
//! consumer.
//!
//! `cargo bench --bench shuffle`. Examples are 8 bytes, so all time is overhead. Producers take rising
//! tickets from a counter, and the consumer draws from a window of 8000, the default. The goal: 0.1 ms per
//! example for everything but decoding, resampling and features.
#![allow(clippy::unwrap_used, reason = "a bench may panic")]

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use forebay::{
    order::Window,
    shuffle::{ConcurrentShuffleBuffer, Popped},
};

const WINDOW: u64 = 8000;
const SOON: Duration = Duration::from_secs(10);

fn window(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("window");
    for size in [1, WINDOW, 1 << 20] {
        let mut window = Window::new(1, 0, 0, size, None);
        group.bench_function(BenchmarkId::new("draw", size), |bench| bench.iter(|| window.draw()));
    }
    // A resume in the middle of a stream.
    group.bench_function(BenchmarkId::new("at", WINDOW), |bench| {
        bench.iter(|| Window::at(1, 0, 0, WINDOW, None, black_box(1 << 30)));
    });
    group.finish();
}

/// Pushes `n` tickets by `producers` threads and pops as many as can be drawn.
fn pass(producers: usize, n: u64) {
    let buffer = ConcurrentShuffleBuffer::new(2 * WINDOW as usize, WINDOW as usize, 1).unwrap();
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..producers {
            scope.spawn(|| {
                loop {
                    let ticket = next.fetch_add(1, Ordering::Relaxed);
                    if ticket >= n || !buffer.push(ticket, Ok(ticket)) {
                        break;
                    }
                }
            });
        }
        // Every ticket of these draws is below `n`.
        for _ in 0..n + 1 - WINDOW {
            match buffer.try_pop(SOON) {
                Popped::Item(ticket) => black_box(ticket),
                other => panic!("{other:?}"),
            };
        }
    });
}

fn buffer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("buffer");
    group.throughput(Throughput::Elements(1));
    for producers in [1, 2, 8] {
        group.bench_function(BenchmarkId::new("push_and_pop", producers), |bench| {
            bench.iter_custom(|iterations| {
                let begin = Instant::now();
                pass(producers, iterations + WINDOW);
                begin.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, window, buffer);
criterion_main!(benches);
