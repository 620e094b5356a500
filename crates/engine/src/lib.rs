//! Makes batches of records in a given order, on threads of its own.
//!
//! A [`Source`](contract::Source) reads records, a [`Task`](contract::Task) turns records into examples and
//! examples into batches; [`engine::Engine`] runs both, and knows neither Arrow nor Python.
//!
//! | file | what |
//! |---|---|
//! | `order` | which record comes when: pure functions of seed, epoch, rank and position |
//! | `contract` | the types and traits between the stages: source, record, task, collator |
//! | `fields` | names, types and buffers of the arrays of a batch |
//! | `shuffle` | the `ConcurrentShuffleBuffer`: workers insert examples, the collator draws rows |
//! | `engine` | threads, backpressure, bad records, resume, statistics |
//!
//! Promises: batches are a pure function of records and configuration, for any number of threads and any
//! timing; a bad record does not change the position of another; what waits can be stopped; the configuration
//! bounds the memory. The models in `tests/loom` check what threads share, on all schedules.
//!
//! A source of numbers, and a task that squares them:
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//!
//! use forebay_base::{Result, error::Place};
//! use forebay_engine::{
//!     contract::{
//!         BatchSizes, BatchSlot, Collate, ExampleMaker, RawRecord, ReadRecords, Record, RowStore, Source,
//!         Task,
//!     },
//!     engine::{Engine, Plan, Step},
//!     fields::Row,
//!     order::{Assignment, Batching, Order},
//! };
//!
//! struct Numbers;
//!
//! impl RowStore for Numbers {
//!     fn shard_rows(&self, _epoch: u64) -> Result<Vec<u64>> {
//!         Ok(vec![60, 40])
//!     }
//!     fn place(&self, row: u64) -> Place {
//!         Place::in_shard("numbers", row)
//!     }
//!     fn random_access(&self) -> bool {
//!         true
//!     }
//! }
//!
//! impl Source for Numbers {
//!     type Reader = Self;
//!
//!     fn reader(self: &Arc<Self>) -> Self {
//!         Self
//!     }
//! }
//!
//! impl ReadRecords for Numbers {
//!     type Payload = ();
//!     type Request<'a> = ();
//!
//!     fn read(&mut self, _row: u64, _run: u64, _request: &()) -> Result<RawRecord<()>> {
//!         Ok(RawRecord::new((), Row::new()))
//!     }
//! }
//!
//! struct Square;
//!
//! impl Task for Square {
//!     type Payload = ();
//!     type Request<'a> = ();
//!     type Maker = Self;
//!     type Collate = Batch;
//!
//!     fn request<R>(&self, _: &Assignment, read: impl FnOnce(&()) -> R) -> R {
//!         read(&())
//!     }
//!     fn maker(&self) -> Self {
//!         Self
//!     }
//!     fn collate(&self, batches: BatchSizes) -> Batch {
//!         Batch(vec![0; batches.size])
//!     }
//! }
//!
//! impl ExampleMaker for Square {
//!     type Payload = ();
//!     type Example = u64;
//!
//!     fn run(&mut self, record: &Record<()>) -> Result<u64> {
//!         Ok(record.index * record.index)
//!     }
//! }
//!
//! struct Batch(Vec<u64>);
//!
//! impl Collate for Batch {
//!     type Example = u64;
//!     type Batch = Vec<u64>;
//!
//!     fn put(&mut self, slot: BatchSlot, example: u64) -> Result<()> {
//!         self.0[slot.row] = example;
//!         Ok(())
//!     }
//!     fn take(&mut self, rows: usize) -> Vec<u64> {
//!         self.0[..rows].to_vec()
//!     }
//! }
//!
//! let plan = Plan {
//!     order: Order::Global,
//!     batching: Batching::Rows(8),
//!     n_workers: 2,
//!     n_readers: 1,
//!     channel_size: 16,
//!     channel_bytes: 1 << 20,
//!     buffer_size: 32,
//!     prefetch_batches: 2,
//!     ..Plan::default()
//! };
//! let mut engine = Engine::new(Arc::new(Numbers), Square, plan)?;
//! let (mut sum, mut n_batches) = (0, 0);
//! loop {
//!     match engine.next(Duration::from_secs(60))? {
//!         Step::Batch(_, squares) => {
//!             sum += squares.iter().sum::<u64>();
//!             n_batches += 1;
//!         }
//!         Step::TimedOut => {}
//!         Step::End => break,
//!     }
//! }
//! assert_eq!((sum, n_batches), ((0..100).map(|n| n * n).sum(), 13));
//! # Ok::<_, forebay_base::Error>(())
//! ```

// In the order in which data flows.
pub mod order;
pub mod fields;
pub mod contract;
pub mod shuffle;
pub mod engine;
#[cfg(test)]
#[path = "../../../tests/patience/mod.rs"]
mod patience;

use forebay_base::{Error, ErrorKind, Result, cancel, dtype, error, float_mode, histogram, seed, sync};
