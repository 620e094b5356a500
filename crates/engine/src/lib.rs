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
