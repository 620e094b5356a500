//! A minute-long recording of each format, one thread: open, a random 5 s span, the whole, and an example.
//!
//! ```text
//! python benches/recordings.py     # once; wants numpy and soundfile
//! cargo bench --bench decode
//! ```
//!
//! `example` is all of a worker's work: crop, decode, resample to 32 kHz, log-mel of 128 bands. There are no
//! encoders in Rust here, so libsndfile makes the recordings from those in `tests/data/recordings`. Spans and
//! crops change from call to call. benches/README.md has the goals.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a bench may panic")]

use std::{fs, hint::black_box, path::Path};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use forebay::{
    LoaderConfig,
    audio::{AudioDecoder, Planes},
    contract::{BatchSizes, BatchSlot, Collate, ExampleMaker, Task},
    seed::{below, mix},
    source::RawRecord,
    tasks::AudioTask,
};

const FILES: [&str; 5] = ["wav.wav", "flac.flac", "mp3.mp3", "ogg.ogg", "ogg_44100_stereo.ogg"];

/// Name and bytes of each recording.
fn recordings() -> impl Iterator<Item = (&'static str, Bytes)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-recordings");
    FILES.into_iter().map(move |file| {
        let bytes = fs::read(folder.join(file)).expect("run `python benches/recordings.py` first");
        (file.split('.').next().unwrap(), Bytes::from(bytes))
    })
}

fn decode(criterion: &mut Criterion) {
    for (name, bytes) in recordings() {
        let (mut decoder, mut planes) = (AudioDecoder::new(), Planes::new());
        let mut group = criterion.benchmark_group("decode");
        group.bench_function(BenchmarkId::new("open", name), |bench| {
            bench.iter(|| decoder.open(black_box(&bytes)).unwrap().info());
        });
        let recording = decoder.open(&bytes).unwrap();
        let info = recording.info();
        let span = 5 * u64::from(info.sample_rate);
        let mut call = 0;
        group.bench_function(BenchmarkId::new("span_5s", name), |bench| {
            bench.iter(|| {
                call += 1;
                let start = below(mix(call), info.n_samples - span);
                decoder.read(&recording, start..start + span, &mut planes).unwrap();
            });
        });
        group.sample_size(10);
        group.bench_function(BenchmarkId::new("whole", name), |bench| {
            bench.iter(|| decoder.read(&recording, 0..info.n_samples, &mut planes).unwrap());
        });
    }
}

fn example(criterion: &mut Criterion) {
    let (_, plan) = LoaderConfig::default().check().unwrap();
    let task = AudioTask::new(plan);
    let mut group = criterion.benchmark_group("example");
    for (name, bytes) in recordings() {
        let (mut stage, mut collate) =
            (task.maker(), task.collate(BatchSizes { size: 1, n_streams: 1, ahead: 1 }));
        let mut record = RawRecord::new(bytes, Default::default()).numbered(0, 0, 0);
        group.bench_function(name, |bench| {
            bench.iter(|| {
                record.seed = mix(record.seed);
                let example = stage.run(&record).unwrap();
                collate.put(BatchSlot::at_row(0), example).unwrap();
            });
        });
    }
}

criterion_group!(benches, decode, example);
criterion_main!(benches);
