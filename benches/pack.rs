//! The packing step alone, one thread: documents in memory become batches of 32 rows of 2048, as `[inputs |
//! targets]` in int64.
//!
//! `cargo bench --bench pack`; the goal: 100 M delivered tokens/s. The timed work is all
//! between tokenizer and batch: each document is copied into a spare vector (as a tokenizer would write it),
//! pushed, picked, and widened into both halves of the batch.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay::pack::{CropRule, Document, Packer};
use forebay::seed::{Purpose, hash};
use std::hint::black_box;

const BATCH: usize = 32;
const T: usize = 2048;
const BUFFER_SIZE: usize = 1000;
const UNIT: usize = 128;

/// A repeated set of documents: about 8 M tokens, more than the caches hold.
struct Corpus {
    documents: Vec<Vec<u32>>,
    next: usize,
}

impl Corpus {
    /// Log-normal lengths.
    fn new(median: f64, sigma: f64) -> Self {
        let (mut documents, mut n_tokens) = (Vec::new(), 0);
        while n_tokens < 8 << 20 {
            let n = documents.len() as u64;
            let uniform = |word| (hash(1, Purpose::Window, [n, word]) >> 11) as f64 / (1_u64 << 53) as f64;
            let normal = (-2.0 * (1.0 - uniform(0)).ln()).sqrt() * (std::f64::consts::TAU * uniform(1)).cos();
            let len = (normal * sigma).exp().mul_add(median, 2.0) as u32;
            n_tokens += len as usize;
            documents.push((0..len).collect());
        }
        Self { documents, next: 0 }
    }

    /// One unit of the refill.
    fn refill(&mut self, packer: &mut Packer) {
        for _ in 0..UNIT {
            let mut ids = packer.spare().unwrap_or_default();
            ids.extend_from_slice(&self.documents[self.next]);
            packer.push(Document { ids, row: self.next as u64, start: 1, ..Document::default() });
            self.next = (self.next + 1) % self.documents.len();
        }
    }
}

fn widen(to: &mut [i64], ids: &[u32]) {
    for (to, &id) in to.iter_mut().zip(ids) {
        *to = i64::from(id);
    }
}

/// Fills `[inputs | targets]`, each `[BATCH, T]`: a row less its last token, and less its first.
fn batch(packer: &mut Packer, corpus: &mut Corpus, out: &mut [i64]) {
    let (inputs, targets) = out.split_at_mut(BATCH * T);
    for (inputs, targets) in inputs.chunks_exact_mut(T).zip(targets.chunks_exact_mut(T)) {
        let mut at = 0;
        while at <= T {
            while packer.len() < BUFFER_SIZE {
                corpus.refill(packer);
            }
            let piece = packer.place(T + 1 - at, |ids| {
                widen(&mut inputs[at..], ids);
                match at {
                    0 => widen(targets, &ids[1..]),
                    _ => widen(&mut targets[at - 1..], ids),
                }
            });
            at += piece.map_or(T, |piece| piece.len);
        }
    }
}

fn pack(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pack");
    group.throughput(Throughput::Elements((BATCH * T) as u64)).sample_size(30);
    // No books with `Drop`: each would fill one row and then be dropped, so the time would mostly be that of
    // the copy into the spare vector.
    for (name, median, sigma, crop) in [
        ("web-like, mean 1000, drop", 556.0, 1.083, CropRule::Drop),
        ("web-like, mean 1000, carry", 556.0, 1.083, CropRule::Carry),
        ("book-like, mean 45 000, carry", 20_000.0, 1.3, CropRule::Carry),
    ] {
        let (mut packer, mut corpus) = (Packer::new(T + 1, 0, crop), Corpus::new(median, sigma));
        let mut out = vec![0_i64; 2 * BATCH * T];
        for _ in 0..200 {
            batch(&mut packer, &mut corpus, &mut out);
        }
        group.bench_function(name, |bench| {
            bench.iter(|| batch(&mut packer, &mut corpus, black_box(&mut out)));
        });
    }
    group.finish();
}

/// The lower bound for any packer: two copies that widen.
fn copies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pack");
    group.throughput(Throughput::Elements((BATCH * T) as u64)).sample_size(30);
    let corpus: Vec<u32> = (0..8 << 20).collect();
    let mut out = vec![0_i64; 2 * BATCH * T];
    let mut at = 0;
    group.bench_function("two copies alone", |bench| {
        bench.iter(|| {
            at = (at + BATCH * T) % (corpus.len() - BATCH * T);
            let (inputs, targets) = black_box(&mut out).split_at_mut(BATCH * T);
            widen(inputs, &corpus[at..]);
            widen(targets, &corpus[at + 1..]);
        });
    });
    group.finish();
}

criterion_group!(benches, pack, copies);
criterion_main!(benches);
