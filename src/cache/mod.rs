//! Processed documents with random access: built once, read in any order, readable while they grow.
//!
//! A document is a tree of arrays (`prompt/input_ids`), each of any shape. On disk it is Zarr v3, one folder
//! for each field: `<split>/<field>/{data,offsets[,shapes]}`. `shard_ledger.json` beside them records what is
//! committed.
//!
//! ```text
//! writer ──▶ jagged ──▶ append ──▶ chunk     documents; one field; one array; bytes
//! reader ──▶ jagged ──▶ stored ──▶ chunk
//!    └──── ledger         └──────▶ foreign   what is committed; arrays that others wrote
//! ```
//!
//! Why not `zarrs` alone: a random window of tokens takes it some 50 us, mostly for work that is constant
//! here, and it writes a shard in place, so readers could see a torn one. It reads the layouts that we don't
//! write, and our tests compare with it.
//!
//! `docs/cache.md` defines the layout and the commit.

mod append;
mod batch;
pub mod build;
mod chunk;
pub(crate) mod cast;
mod files;
#[cfg(feature = "zarr")]
mod foreign;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod jagged;
mod json;
mod layout;
mod ledger;
mod owned;
mod reader;
mod stored;
mod writer;

pub use self::{
    batch::{Column, Processed},
    jagged::FieldDocuments,
    layout::{Compression, MAX_RANK},
    ledger::{Ledger, LeftOut, Skipped, Standing},
    reader::{CacheLength, CacheReader},
    writer::{CacheWriter, WriterOptions},
};
