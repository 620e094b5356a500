//! A toy source and a toy task: rows whose bytes are their own number, examples that are (row, seed).

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part; a test fails by panicking")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use forebay_base::{Error, ErrorKind, Result, error::Place, seed};
use forebay_engine::{
    contract::{
        BatchSizes, BatchSlot, Collate, ExampleMaker, RawRecord, ReadRecords, Record, RowStore, Source, Task,
        TaskLabels,
    },
    engine::{Engine, Plan, Step},
    fields::Value,
    order::{Assignment, Batching, Order},
};

/// How long a test waits for a batch that must come.
pub const SOON: Duration = Duration::from_secs(60);

/// Shards of rows whose bytes are their own number.
pub struct Toy {
    pub shards: Vec<u64>,
    pub unreadable: fn(u64) -> Option<ErrorKind>,
    pub random_access: bool,
    pub reads: AtomicU64,
}

pub struct ToyReader(Arc<Toy>);

impl RowStore for Toy {
    fn shard_rows(&self, _epoch: u64) -> Result<Vec<u64>> {
        Ok(self.shards.clone())
    }
    fn place(&self, row: u64) -> Place {
        Place::in_shard("toy", row)
    }
    fn random_access(&self) -> bool {
        self.random_access
    }
}

impl Source for Toy {
    type Reader = ToyReader;

    fn reader(self: &Arc<Self>) -> ToyReader {
        ToyReader(self.clone())
    }
}

impl ReadRecords for ToyReader {
    type Payload = Bytes;
    type Request<'a> = ();

    fn read(&mut self, row: u64, _run: u64, _request: &()) -> Result<RawRecord<Bytes>> {
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        match (self.0.unreadable)(row) {
            Some(kind) => Err(Error::new(kind, "cannot be read")),
            None => {
                let values = [Value::Int(row as i64)].into_iter().collect();
                Ok(RawRecord::new(Bytes::copy_from_slice(&row.to_le_bytes()), values))
            }
        }
    }
}

/// Examples are (row, seed); at random a worker sleeps, a record is bad, or a worker panics.
#[derive(Clone, Copy)]
pub struct Work {
    pub bad_in_100: u64,
    pub panics_at: Option<u64>,
    pub dawdles: bool,
    /// Called before the rest.
    pub first: fn(),
    pub slow: Duration,
}

pub const QUICK: Work =
    Work { bad_in_100: 0, panics_at: None, dawdles: false, first: || (), slow: Duration::ZERO };

pub struct ToyCollate(Vec<Option<(u64, u64)>>);

impl ToyCollate {
    pub fn new(batch_size: usize) -> Self {
        Self(vec![None; batch_size])
    }
}

impl Task for Work {
    const WORDS: TaskLabels = TaskLabels { work: "decoding", ..TaskLabels::DEFAULT };

    type Payload = Bytes;
    type Request<'a> = ();
    type Maker = Self;
    type Collate = ToyCollate;
    fn request<R>(&self, _: &Assignment, read: impl FnOnce(&()) -> R) -> R {
        read(&())
    }
    fn maker(&self) -> Self {
        *self
    }
    fn collate(&self, batches: BatchSizes) -> ToyCollate {
        ToyCollate::new(batches.size)
    }
}

impl ExampleMaker for Work {
    type Payload = Bytes;
    type Example = (u64, u64);

    fn run(&mut self, record: &Record<Bytes>) -> Result<(u64, u64)> {
        let row = u64::from_le_bytes(record.payload[..].try_into().unwrap());
        assert_eq!(record.index, row);
        assert_ne!(self.panics_at, Some(row), "asked for");
        (self.first)();
        thread::sleep(self.slow);
        // Timing only, random in each run.
        if self.dawdles && rand::random_ratio(1, 20) {
            thread::sleep(Duration::from_micros(rand::random_range(0..500)));
        }
        if seed::mix(row) % 100 < self.bad_in_100 {
            return Err(Error::new(ErrorKind::Corrupt, "a bad one"));
        }
        Ok((row, record.seed))
    }
}

impl Collate for ToyCollate {
    type Example = (u64, u64);
    type Batch = Vec<(u64, u64)>;
    fn put(&mut self, BatchSlot { row, .. }: BatchSlot, example: (u64, u64)) -> Result<()> {
        assert!(self.0[row].replace(example).is_none(), "row {row} was written twice");
        Ok(())
    }
    fn take(&mut self, rows: usize) -> Vec<(u64, u64)> {
        let mut fresh = vec![None; self.0.len()];
        std::mem::swap(&mut self.0, &mut fresh);
        assert!(fresh[rows..].iter().all(Option::is_none));
        fresh.into_iter().take(rows).map(Option::unwrap).collect()
    }
}

pub fn plan() -> Plan {
    Plan {
        seed: 1,
        order: Order::Window,
        window: 20,
        batching: Batching::Rows(8),
        buffer_size: 50,
        n_workers: 2,
        n_readers: 3,
        channel_size: 16,
        channel_bytes: 1 << 20,
        prefetch_batches: 2,
        ..Plan::default()
    }
}

pub fn toy(shards: &[u64]) -> Toy {
    Toy { shards: shards.to_vec(), unreadable: |_| None, random_access: true, reads: AtomicU64::new(0) }
}

pub fn engine(plan: Plan, source: Toy, work: Work) -> Engine<Toy, Work> {
    Engine::new(Arc::new(source), work, plan).unwrap()
}

pub fn next(engine: &mut Engine<Toy, Work>) -> Option<Vec<(u64, u64)>> {
    match engine.next(SOON).unwrap() {
        Step::Batch(_, batch) => Some(batch),
        Step::End => None,
        Step::TimedOut => panic!("no batch within {SOON:?}: a deadlock"),
    }
}

pub fn batches(engine: &mut Engine<Toy, Work>, n: usize) -> Vec<Vec<(u64, u64)>> {
    std::iter::from_fn(|| next(engine)).take(n).collect()
}

pub fn rows(batches: &[Vec<(u64, u64)>]) -> Vec<u64> {
    batches.iter().flatten().map(|&(row, _)| row).collect()
}
