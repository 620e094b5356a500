//! Opening shards and reading their rows, from a warm page cache: the cost of the source alone.
//!
//! `cargo bench --bench source`. Rows are 20 kB and 1 MB; "in order" reads blocks, "alone" one record at a
//! time.

#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay::contract::ReadRecords;
use forebay::source::{ArrowSource, OpenFiles, SourceOptions, WholeRecord};

/// `n_batches` batches of 100 rows of `len` bytes.
fn write(path: &Path, len: usize, n_batches: usize) {
    let recording = vec![7; len];
    let audio: ArrayRef = Arc::new(BinaryArray::from_iter_values((0..100).map(|_| &recording)));
    let label: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
    let batch = RecordBatch::try_from_iter([("audio", audio), ("label", label)]).unwrap();
    let mut writer = StreamWriter::try_new(File::create(path).unwrap(), &batch.schema()).unwrap();
    (0..n_batches).for_each(|_| writer.write(&batch).unwrap());
    writer.finish().unwrap();
}

fn open(paths: &[PathBuf]) -> Arc<ArrowSource> {
    Arc::new(ArrowSource::open(paths, &SourceOptions::default()).unwrap())
}

fn rows(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    for (name, len, n_batches) in [("20 kB", 20_000, 50), ("1 MB", 1_000_000, 2)] {
        let path = folder.path().join(format!("{len}.arrow"));
        write(&path, len, n_batches);
        let source = open(&[path]);
        let n = source.n_rows();
        let mut group = c.benchmark_group(format!("rows of {name}"));
        group.throughput(Throughput::Bytes(len as u64));
        for (how, run) in [("in order", 1000), ("alone", 1)] {
            let (mut reader, mut at) = (source.reader(), 0);
            group.bench_function(how, |b| {
                b.iter(|| {
                    at = (at + 1) % n;
                    reader.read(at, run, &WholeRecord::ONCE).unwrap()
                });
            });
        }
        let (mut reader, mut at) = (source.reader(), 0u64);
        group.bench_function("at random", |b| {
            b.iter(|| {
                at = at.wrapping_add(1);
                let row = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % n;
                reader.read(row, 1, &WholeRecord::ONCE).unwrap()
            });
        });
        group.finish();
    }
}

fn opening(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..100).map(|n| folder.path().join(format!("{n}.arrow"))).collect();
    paths.iter().for_each(|path| write(path, 8, 10));
    c.bench_function("open 100 shards of 10 batches", |b| b.iter(|| open(&paths)));
}

criterion_group!(benches, rows, opening);
criterion_main!(benches);
