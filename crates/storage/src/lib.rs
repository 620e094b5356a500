//! Where bytes are: files of disks, objects of stores and web servers, opened by path or URL and read at an
//! offset.
//!
//! Files are read through [`Storage`], so that tests can count bytes and inject faults, and other storage
//! than local paths can be added. Memory maps ([`MappedFiles`]) are for local disks and off by default: on a
//! parallel file system each page fault costs a round trip for 4 KiB, while a large `pread` streams. A file
//! that shrinks under a map may kill the process.
//!
//! ```
//! use std::{path::Path, sync::Arc};
//!
//! use forebay_storage::{PathOrUrl, StoreOptions, StoredFile};
//!
//! let storage = PathOrUrl::files(&StoreOptions::default(), None);
//! let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")); // or "s3://bucket/object"
//! let file = StoredFile::open(&storage, &Arc::from(path))?;
//! let mut section = [0; 9];
//! file.read_exact(&mut section, 0)?;
//! assert_eq!(&section, b"[package]");
//! # Ok::<(), forebay_base::Error>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `storage` | opens files and reads them at an offset, again after a transient failure |
//! | `mapped` | memory maps |
//! | `path_or_url`, `urls` | the storage of all sources: a path is a local file, a URL an object |
//! | `remote`, `store_options` | object stores and web servers, and what a user passes of them |
//! | `tree`, `pattern` | what is below a folder, local or remote, and patterns of names |
//! | `compression` | text of compressed files |
//! | `traffic` | what reads cost, and how much is read ahead |
//! | `block`, `memory_permits` | memory that is read into; permits for large reads |
//!
//! Promises: an exact read has all bytes that were asked for, or is an error with path and byte; a file that
//! was changed is an error when it is opened again, or ends early; transient failures are tried again, a few
//! times. No file here knows a format of rows or recordings.

#![cfg_attr(not(test), warn(unreachable_pub))]

pub mod block;
pub mod compression;
mod mapped;
pub mod memory_permits;
mod path_or_url;
pub mod pattern;
mod remote;
mod storage;
mod store_options;
mod traffic;
pub mod tree;
pub mod urls;
#[cfg(test)]
#[path = "../../../tests/patience/mod.rs"]
mod patience;

use forebay_base::{Error, ErrorKind, Result, cancel, fallible_alloc, fork_lock, seed};
use forebay_engine::contract;

pub use mapped::MappedFiles;
pub use path_or_url::PathOrUrl;
pub use remote::{DiskCache, disk_cache};
pub use storage::{
    CountedStorage, LocalFiles, ReadAt, Storage, StoredFile, Version, open_regular, past_the_end, resolve,
};
pub use store_options::{GivenOption, StoreOptions};
pub use traffic::{BLOCKS_AHEAD, MOST_REQUESTED, Traffic, scattered_readers};
