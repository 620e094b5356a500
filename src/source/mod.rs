//! Where records come from: the encoded bytes of a recording, or the text of a document, and its label, by
//! row number.
//!
//! A source is opened from a list of files, knows how many rows they hold, and lends readers, one to each I/O
//! thread. A reader turns a row number into a [`RawRecord`](crate::record::RawRecord). Rows are numbered over
//! the files in the order given, from zero; nothing here knows of shuffling, decoding or threads of the
//! pipeline.
//!
//! Files are read through [`Storage`], so that a test can count bytes and inject faults, and so that other
//! places than a local path can be added. A memory map is for local disks, and only where it is asked for
//! ([`MappedFiles`]): on a parallel file system each fault costs a round trip for 4 KiB, while a large
//! `pread` streams, and a file that shrinks under a map may kill the process.

pub(crate) mod arrow;
mod block;
pub(crate) mod columns;
mod folder;
mod leave;
mod linked;
mod mapped;
mod parallel;
#[cfg(feature = "parquet")]
pub mod parquet;
#[cfg(feature = "parquet")]
mod recordings;
mod shard;
mod storage;

pub use arrow::{ArrowOptions, ArrowReader, ArrowSource};
pub use columns::Payload;
pub use linked::AllowPaths;
pub use mapped::MappedFiles;
#[cfg(feature = "parquet")]
pub use recordings::{Recordings, RecordingsReader};
pub use shard::Shard;
pub use storage::{LocalFiles, ReadAt, Storage, Version};
#[cfg(feature = "cache")]
pub(crate) use storage::{StoredFile, open_regular};
