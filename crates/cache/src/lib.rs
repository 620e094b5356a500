//! Processed documents with random access: built once, read in any order, readable while they grow.
//!
//! A document is a tree of arrays (`prompt/input_ids`), each of any shape. On disk it is Zarr v3, one folder
//! for each field: `<split>/<field>/{data,offsets[,shapes]}`. `shard_ledger.json` beside them records what is
//! committed.
//!
//! ```text
//! writer ──▶ jagged ──▶ append ──▶ chunk     documents; one field; one array; bytes
//! reader ──▶ jagged ──▶ stored ──▶ chunk
//!    └──── ledger                           what is committed
//! ```
//!
//! ```
//! use forebay_cache::{BatchColumn, CacheReader, CacheWriter, Processed, WriterOptions};
//! use forebay_engine::fields::DataType;
//!
//! let folder = tempfile::tempdir()?;
//! let options = WriterOptions { shards: vec!["a".into()], ..WriterOptions::default() };
//! let mut writer = CacheWriter::open(folder.path(), "train", options)?;
//! // Two documents, of three ids and of one.
//! let ids = BatchColumn::flat("ids", DataType::Uint8, vec![7, 8, 9, 5], vec![3, 1]);
//! writer.append("a", Some(Processed { documents: 2, columns: vec![ids] }))?;
//! writer.advance("a", true);
//! writer.finish()?;
//! let reader = CacheReader::open(folder.path(), "train")?;
//! assert_eq!(reader.length()?.documents, 2);
//! assert_eq!(reader.documents(reader.field("ids")?, &[1, 0])?.data, [5, 7, 8, 9]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Why not the crate `zarrs`: a random window of tokens takes it some 50 us, mostly for work that is constant
//! here, and it writes a shard in place, so readers could see a torn one. Tests compare with zarr-python and
//! tensorstore.
//!
//! `docs/cache.md` defines the layout and the commit. Promises: a reader sees committed documents alone, and
//! a committed file never changes; a writer that was killed leaves a cache that is read, and built further.
//!
//! | file | what |
//! |---|---|
//! | `build` | many threads read and process shards, one thread writes the batches in a fixed order |
//! | `batch`, `cast` | the output of a processor, and its conversion to the types of the fields |
//! | `writer`, `jagged`, `append` | the writers of a cache, of a field and of an array |
//! | `reader`, `stored` | the readers of a cache and of an array |
//! | `ledger` | which documents are committed, from which shards, and how they were made |
//! | `layout`, `chunk` | an array in files; chunks, and the index of a shard |
//! | `files`, `owned` | names and replacement of files; which of a folder belong to the cache |
//! | `json` | untrusted JSON, checked before memory is allocated for it |
//! | `dataset` | random access to the rows of caches and lists, by views: permutations, eras, mixtures |

#![cfg_attr(not(test), warn(unreachable_pub))]

mod append;
mod batch;
pub mod build;
mod chunk;
pub mod cast;
mod files;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(test)]
#[path = "../../../tests/hostile_common/fuzzed.rs"]
mod fuzzed;
#[cfg(any(test, fuzzing))]
#[path = "../../../tests/hostile_common/in_memory.rs"]
mod in_memory;
mod jagged;
mod json;
mod layout;
mod ledger;
mod owned;
mod reader;
mod stored;
mod writer;
pub mod dataset;

use forebay_base::{Error, ErrorKind, Result, dtype, fallible_alloc, fork_lock, parallel, seed, sync};
use forebay_engine::{contract, engine, fields, order};
use forebay_source as source;
use forebay_storage as storage;

pub use self::{
    batch::{BatchColumn, Processed},
    jagged::FieldDocuments,
    layout::{ChunkCompression, MAX_RANK},
    ledger::{Ledger, LeftOutDocument, Skipped, Standing},
    reader::{CacheLength, CacheReader, field_names},
    stored::array_metadata,
    writer::{CacheWriter, WriterOptions},
};
