//! One clip of 5 s in each step of the transform stage, one thread.
//!
//! `cargo bench --bench transform`; the goals: log-mel 0.45 ms, resampling from 44.1 kHz
//! 0.8 ms.
#![allow(clippy::unwrap_used, reason = "a bench may panic")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay::{
    dsp::{
        CropMode, Form, Layout, Padding, Quality, Resampler, SpectrogramConfig, SpectrogramTransform, crop,
        target_len,
    },
    dtype::Dtype,
};
use std::hint::black_box;

const CLIP_SECONDS: usize = 5;
const RATE: u32 = 32_000;

/// Noise that is the same in every run.
fn noise(n: usize) -> Vec<f32> {
    let mut state = 1_u32;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state as f32 / u32::MAX as f32 - 0.5
        })
        .collect()
}

fn log_mel(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("log_mel");
    group.throughput(Throughput::Elements(1));
    for (name, n_fft) in [("5s_32k", 1024), ("5s_32k_n_fft_1000", 1000), ("5s_32k_n_fft_2048", 2048)] {
        let config = SpectrogramConfig { n_fft, ..SpectrogramConfig::default() };
        let transform = SpectrogramTransform::new(config).unwrap();
        let waveform = noise(CLIP_SECONDS * RATE as usize);
        let mut scratch = transform.scratch();
        let mut out = vec![0.0; transform.n_mels() * transform.n_frames(waveform.len())];
        group.bench_function(name, |bench| {
            bench.iter(|| transform.transform(black_box(&waveform), &mut scratch, &mut out).unwrap());
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("form");
    group.throughput(Throughput::Elements(1));
    let transform = SpectrogramTransform::new(SpectrogramConfig::default()).unwrap();
    let waveform = noise(CLIP_SECONDS * RATE as usize);
    let mut scratch = transform.scratch();
    for layout in [Layout::Mel, Layout::Time] {
        for dtype in Dtype::FLOATS {
            let form = Form { dtype, layout, n_frames: None };
            let mut out = dtype.zeros(transform.n_mels() * transform.n_frames(waveform.len())).unwrap();
            group.bench_function(format!("{}/{}", layout.name(), dtype.name()), |bench| {
                let waveform = black_box(waveform.as_slice());
                bench.iter(|| transform.transform_to(&form, waveform, &mut scratch, out.as_mut()).unwrap());
            });
        }
    }
    group.finish();
}

fn resample(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("resample");
    group.throughput(Throughput::Elements(1));
    for source in [44_100, 48_000, 22_050, 16_000, 96_000, 35_467] {
        let resampler = Resampler::new(source, RATE, Quality::Default).unwrap();
        let n_source = 10 * u64::from(source);
        let whole = noise(n_source as usize);
        let target = RATE as u64..RATE as u64 * (1 + CLIP_SECONDS as u64);
        let span = resampler.input_span(target.clone(), n_source);
        let source_span = &whole[span.start as usize..span.end as usize];
        let mut out = vec![0.0; CLIP_SECONDS * RATE as usize];
        group.bench_function(format!("{source}_5s"), |bench| {
            bench.iter(|| {
                resampler.resample(black_box(source_span), span.start, target.start, &mut out).unwrap();
            });
        });
    }
    group.finish();
}

fn crop_arithmetic(criterion: &mut Criterion) {
    criterion.bench_function("crop", |bench| {
        bench.iter(|| {
            let n = target_len(black_box(2_646_000), 44_100, RATE);
            crop(CropMode::Random, Padding::Behind, n, 160_000, black_box(0x9e37_79b9_7f4a_7c15))
        });
    });
}

criterion_group!(benches, log_mel, resample, crop_arithmetic);
criterion_main!(benches);
