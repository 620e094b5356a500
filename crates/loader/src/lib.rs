//! What loaders are made of: parameters, the rows that are read, the work on a record, and batches.
//!
//! A configuration is checked and becomes plans; a task does the work on each record, on the threads of the
//! engine; batches are assembled of its examples. Nothing here knows Python.
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
//! | `decode` | what decoding and tokenizers give, for all of these |
//! | `memory`, `report` | the memory that a loader will take; what a check found |
//! | `state` | the position of a loader, and what it belongs to |

// In the order in which data flows.
pub mod config;
pub mod memory;
pub mod report;
pub mod targets;
pub mod sampling;
pub mod decode;
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
use forebay_base::{Error, ErrorKind, Result, cancel, dtype, error, fallible_alloc, float_mode, seed, sync};
use forebay_cache::{self as cache, dataset};
use forebay_dsp as transform;
use forebay_engine::{contract, engine, fields, order};
use forebay_source as source;
use forebay_storage as storage;
use forebay_text::{chat, infill, pack};
