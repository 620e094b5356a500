//! The cost of a batch's memory: examples written into a new vector, a new arena, and a recycled arena; and
//! the cost of copying an example, through the caches and with non-temporal stores.
//!
//! `cargo bench --bench batch`. The vector is how batches were allocated before there were pools. Up to 32
//! MiB, glibc may reuse such memory; above, never.

#![allow(clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay::fields::{ArenaPool, BufferPool};

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
        // This pool keeps no free memory.
        let new = BufferPool::new(4 * n, 0);
        group.bench_function(format!("{name}/new_arena"), |bench| {
            bench.iter(|| {
                let mut batch = new.acquire().unwrap();
                fill(batch.values_mut(), &example);
                black_box(batch)
            });
        });
        let recycled = BufferPool::new(4 * n, 1);
        group.bench_function(format!("{name}/recycled"), |bench| {
            bench.iter(|| {
                let mut batch = recycled.acquire().unwrap();
                fill(batch.values_mut(), &example);
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

/// Copies with non-temporal stores: the lines of `to` are neither read before they are written nor cached.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn stream(to: &mut [f32], from: &[f32]) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    assert_eq!(to.len(), from.len());
    // SAFETY: any bits are valid numbers of either type.
    let (front, middle, back) = unsafe { to.align_to_mut::<__m256i>() };
    let (first, rest) = from.split_at(front.len());
    front.copy_from_slice(first);
    let (vectors, last) = rest.split_at(8 * middle.len());
    for (to, from) in middle.iter_mut().zip(vectors.as_chunks::<8>().0) {
        // SAFETY: `from` is as large as the vector, and `to` aligned.
        unsafe { _mm256_stream_si256(to, _mm256_loadu_si256(from.as_ptr().cast())) };
    }
    back.copy_from_slice(last);
    _mm_sfence();
}

/// The one copy of an example, into its row of one of seven recycled batches of 64. `hot` examples were
/// written just before, as without a window; `cold` ones are the last of 512 MB, as in a large window.
fn copy(criterion: &mut Criterion) {
    const ROWS: usize = 64;
    let mut group = criterion.benchmark_group("copy");
    for (name, len) in [("float32", 128 * 501), ("float16", 64 * 501)] {
        group.throughput(Throughput::Bytes(4 * len as u64));
        for (heat, n) in [("hot", 4), ("cold", (512 << 20) / (4 * len))] {
            let examples: Vec<Vec<f32>> = (0..n).map(|i| vec![i as f32; len]).collect();
            let pool = BufferPool::new(4 * ROWS * len, 7);
            let mut batches: Vec<_> = (0..7).map(|_| pool.acquire().unwrap()).collect();
            let (mut row, mut example) = (0, 0);
            let mut place = || {
                row = (row + 1) % (7 * ROWS);
                example = (example + 1) % n;
                (row / ROWS, row % ROWS, example)
            };
            group.bench_function(format!("{name}/{heat}/memcpy"), |bench| {
                bench.iter(|| {
                    let (batch, row, example) = place();
                    let place = &mut batches[batch].values_mut()[row * len..(row + 1) * len];
                    place.copy_from_slice(&examples[example]);
                });
            });
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") {
                group.bench_function(format!("{name}/{heat}/stream"), |bench| {
                    bench.iter(|| {
                        let (batch, row, example) = place();
                        let place = &mut batches[batch].values_mut()[row * len..(row + 1) * len];
                        // SAFETY: the CPU has it.
                        unsafe { stream(place, &examples[example]) };
                    });
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, memory, copy);
criterion_main!(benches);
