//! The cost of a fixed order: the engine compared with the same threads without an order.
//!
//! `cargo bench --bench determinism`. Both read the same toy rows, and both work on each for about 1 ms, on
//! some four times as long as on others, as with recordings. The engine delivers examples in its order. The
//! other side sends finished examples into a channel, and a batch has the first ones to arrive. Runs are
//! interleaved; the figures are medians of speeds, and of the ratios within a round. Goal: under 3 %.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program that prints a table")]

use std::{
    hint::black_box,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay::{
    Result,
    contract::{BatchSizes, ExampleMaker, ReadRecords, Record, Source, Task},
    engine::{Engine, Plan, Step},
    order::{Assignment, Batching, Order},
    seed::mix,
};
use toy::{SOON, ToyCollate, toy};

#[path = "../crates/engine/tests/toy/mod.rs"]
mod toy;

const BATCH: usize = 64;
const WORKERS: usize = 2;
const RUNS: usize = 15;
const BATCHES: usize = 25;
const ROWS: u64 = 100_000;

/// Spins: for each row, equally long in every run.
#[derive(Clone, Copy)]
struct Spin;

impl Task for Spin {
    type Payload = Bytes;
    type Request<'a> = ();
    type Maker = Self;
    type Collate = ToyCollate;
    fn request<R>(&self, _: &Assignment, read: impl FnOnce(&()) -> R) -> R {
        read(&())
    }
    fn maker(&self) -> Self {
        Self
    }
    fn collate(&self, batches: BatchSizes) -> ToyCollate {
        ToyCollate::new(batches.size)
    }
}

impl ExampleMaker for Spin {
    type Payload = Bytes;
    type Example = (u64, u64);

    // Not inlined, so that both sides run the same instructions.
    #[inline(never)]
    fn run(&mut self, record: &Record<Bytes>) -> Result<(u64, u64)> {
        let quarters = if mix(record.index).is_multiple_of(8) { 10 } else { 3 };
        let mut state = record.index;
        for _ in 0..quarters * 60_000 {
            state = black_box(mix(state));
        }
        Ok((record.index, state))
    }
}

fn plan(order: Order, window: u64) -> Plan {
    Plan {
        order,
        window,
        batching: Batching::Rows(BATCH),
        infinite: true,
        buffer_size: 10_000,
        n_workers: WORKERS,
        worker_nice: 0,
        ..toy::plan()
    }
}

/// Examples per second of the engine's workers, from the fifth batch on.
fn ordered(order: Order, window: u64) -> f64 {
    let mut engine = Engine::new(Arc::new(toy(&[ROWS / 10; 10])), Spin, plan(order, window)).unwrap();
    let mut next = || match engine.next(SOON).unwrap() {
        Step::Batch(_, batch) => assert_eq!(batch.len(), BATCH),
        other => panic!("{other:?}"),
    };
    (0..4).for_each(|_| next());
    let before = engine_decoded(&engine);
    let begin = Instant::now();
    loop {
        let step = engine.next(SOON).unwrap();
        assert!(matches!(step, Step::Batch(..)));
        let decoded = engine_decoded(&engine) - before;
        if decoded >= (BATCHES * BATCH) as u64 {
            return decoded as f64 / begin.elapsed().as_secs_f64();
        }
    }
}

fn engine_decoded(engine: &Engine<toy::Toy, Spin>) -> u64 {
    engine.stats().records_decoded
}

/// Examples per second where a batch has the first ones to arrive.
fn unordered() -> f64 {
    let source = Arc::new(toy(&[ROWS / 10; 10]));
    let (to_workers, records) = crossbeam_channel::bounded(256);
    let (done, examples) = crossbeam_channel::bounded(10_000);
    let reader = thread::spawn({
        let mut reader = Source::reader(&source);
        move || {
            for row in 0.. {
                let record = reader.read(row % ROWS, 1, &()).unwrap();
                if to_workers.send(record.numbered(row % ROWS, 0, 0)).is_err() {
                    return;
                }
            }
        }
    });
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (records, done) = (records.clone(), done.clone());
            thread::spawn(move || {
                while let Ok(record) = records.recv() {
                    if done.send(Spin.run(&record).unwrap()).is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    drop((records, done));
    let next = || {
        let batch: Vec<_> =
            (0..BATCH).map(|_| examples.recv_timeout(Duration::from_secs(20)).unwrap()).collect();
        black_box(batch);
    };
    (0..4).for_each(|_| next());
    let begin = Instant::now();
    (0..BATCHES).for_each(|_| next());
    let speed = (BATCHES * BATCH) as f64 / begin.elapsed().as_secs_f64();
    drop(examples);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    reader.join().unwrap();
    speed
}

fn main() {
    let settings = [
        ("sequential", Order::Sequential, 1),
        ("window of 128", Order::Window, 128),
        ("window of 8000", Order::Window, 8000),
        ("global", Order::Global, 1),
    ];
    // For each round: the speed without order, and the speeds of the orders.
    let rounds: Vec<(f64, Vec<f64>)> = (0..RUNS)
        .map(|_| (unordered(), settings.iter().map(|&(_, order, window)| ordered(order, window)).collect()))
        .collect();
    let median = |values: &mut dyn Iterator<Item = f64>| {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let base = median(&mut rounds.iter().map(|(base, _)| *base));
    println!(
        "| order | examples/s | of the unordered |\n|---|---:|---:|\n| whatever came first | {base:.0} | |"
    );
    for (at, (name, ..)) in settings.iter().enumerate() {
        let speed = median(&mut rounds.iter().map(|(_, speeds)| speeds[at]));
        let ratio = median(&mut rounds.iter().map(|(base, speeds)| speeds[at] / base));
        println!("| {name} | {speed:.0} | {:.1} % |", 100.0 * ratio);
    }
}
