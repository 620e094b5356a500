//! What loaders are made of: parameters, the rows that are read, the work on a record, and batches.
//!
//! A configuration is checked and becomes plans; a task does the work on each record, on the threads of the
//! engine; batches are assembled of its examples. Nothing here knows Python.
//!
//! ```
//! use std::{path::PathBuf, time::Duration};
//!
//! use forebay_engine::engine::{Engine, Step};
//! use forebay_loader::{LoaderConfig, compose::compose, config::{Origin, Sources}};
//!
//! let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits"));
//! let arrow_files = Sources { groups: vec![vec![Origin::Path(folder)]], ..Sources::default() };
//! let config = LoaderConfig { arrow_files, batch_size: 4, clip_seconds: 0.5, ..LoaderConfig::eval() };
//! let plans = config.check()?;
//! let loader = compose(config, plans)?;
//! let mut engine = Engine::new(loader.selection, loader.task, loader.plan)?;
//! let Step::Batch(_, batch) = engine.next(Duration::from_secs(60))? else { panic!("no batch") };
//! assert_eq!(batch.rows, 4);
//! # Ok::<(), forebay_base::Error>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `config` | the parameters of all loaders, in tables; checks, and the plans that they make |
//! | `sampling` | which rows are read, and how often each comes |
//! | `targets` | what a loss function takes of each row |
//! | `tasks` | the work on a record: crop, decode, resample, augmentation, features; tokens; checks |
//! | `batch` | examples written one after the other, padded or packed |
//! | `access` | recordings by number, on a pool of threads |
//! | `compose` | source, task and plan of a loader of recordings, of its parameters |
//! | `memory`, `report` | the memory that a loader will take; what a check found |
//! | `state` | the position of a loader, and what it belongs to |
//!
//! Promises: all problems of a configuration are in one error; an example is a pure function of its record
//! and the plan; a state that belongs to other files or parameters is refused.

// In the order in which data flows.
pub mod config;
pub mod memory;
pub mod report;
pub mod targets;
pub mod sampling;
pub mod batch;
pub mod tasks;
pub mod access;
pub mod compose;
pub mod state;
#[cfg(test)]
#[path = "../../../tests/hostile_common/fuzzed.rs"]
mod fuzzed;
#[cfg(any(test, fuzzing))]
#[path = "../../../tests/hostile_common/in_memory.rs"]
mod in_memory;
#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use config::LoaderConfig;
use forebay_audio as audio;
use forebay_base::{Error, ErrorKind, Result, cancel, dtype, error, fallible_alloc, float_mode, seed, sync};
use forebay_cache::{self as cache, dataset};
use forebay_dsp as dsp;
use forebay_engine::{contract, engine, fields, order};
use forebay_source as source;
use forebay_storage as storage;
use forebay_text::{chat, infill, pack, tokenizer};
