//! What the memory of a batch costs: examples written into a new vector, a new arena, and one that was in use before.
//!
//! `cargo bench --bench batch`. The vector is what each batch was before there were pools; up to 32 MiB glibc may have such memory at
//! hand, beyond that never.

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay::batch::{ArenaPool, FieldPool};

fn fill(batch: &mut [f32], example: &[f32]) {
    batch.chunks_exact_mut(example.len()).for_each(|row| row.copy_from_slice(example));
}

fn memory(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("batch");
    for (name, rows, len) in [("64x4_KiB", 64, 1024), ("64x5_s", 64, 128 * 501), ("256x5_s", 256, 128 * 501)]
    {
        let example = vec![1.0_f32; len];
        let n = rows * len;
        group.throughput(Throughput::Bytes(4 * n as u64));
        group.bench_function(format!("{name}/new_vector"), |bench| {
            bench.iter(|| {
                let mut batch = Vec::with_capacity(n);
                (0..rows).for_each(|_| batch.extend_from_slice(&example));
                black_box(batch)
            });
        });
        // Nothing rests in this pool.
        let new = FieldPool::<f32>::new(n, 0);
        group.bench_function(format!("{name}/new_arena"), |bench| {
            bench.iter(|| {
                let mut batch = new.acquire().unwrap();
                fill(&mut batch, &example);
                black_box(batch)
            });
        });
        let recycled = FieldPool::<f32>::new(n, 1);
        group.bench_function(format!("{name}/recycled"), |bench| {
            bench.iter(|| {
                let mut batch = recycled.acquire().unwrap();
                fill(&mut batch, &example);
                black_box(batch)
            });
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("slot");
    for (name, slots) in [("mapped", 0), ("recycled", 4)] {
        let pool = ArenaPool::new(16 << 20, slots);
        group.bench_function(name, |bench| bench.iter(|| black_box(pool.acquire().unwrap())));
    }
    group.finish();
}

criterion_group!(benches, memory);
criterion_main!(benches);
