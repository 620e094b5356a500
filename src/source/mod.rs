//! Sources of records: the encoded bytes of a recording, or the text of a document, with its label, by row
//! number.
//!
//! A source is opened from a list of files, counts their rows, and makes one reader for each I/O thread. A
//! reader turns a row number into a [`RawRecord`](crate::record::RawRecord). Rows are numbered from zero over
//! the files in the order given. Sources are independent of shuffling, decoding and the pipeline's threads.
//!
//! Files are read through [`Storage`], so that tests can count bytes and inject faults, and other storage
//! than local paths can be added. Memory maps ([`MappedFiles`]) are for local disks and off by default: on a
//! parallel file system each page fault costs a round trip for 4 KiB, while a large `pread` streams. A file
//! that shrinks under a map may kill the process.

pub(crate) mod arrow;
mod block;
mod cells;
pub(crate) mod columns;
mod contents;
pub mod files;
mod open_recording;
mod mapped;
mod memory_permits;
mod order_of_rows;
pub(crate) mod parallel;
pub mod parquet;
mod path_or_url;
mod path_policy;
pub mod paths;
pub mod pattern;
mod recordings;
mod remote;
mod selection;
mod shard;
mod splits;
mod storage;
mod store_options;
mod tree;
pub(crate) mod urls;

pub use arrow::{ArrowOptions, ArrowReader, ArrowSource};
pub use columns::{ColumnChoice, ColumnType, ExtraColumn, Item, Nesting, Payload, SchemaColumn};
pub use contents::{ClassNames, Contents};
pub use mapped::MappedFiles;
pub use open_recording::{OpenRecording, info_of_row};
pub(crate) use path_or_url::PathOrUrl;
pub use path_policy::AllowPaths;
pub use recordings::{Entry, Recordings, RecordingsReader, RowInfo, RowStorage};
pub use remote::{DiskCache, disk_cache};
pub use selection::{Positions, RowWindows, Selection, Subset};
pub use shard::Shard;
pub use storage::{LocalFiles, ReadAt, Storage, Version};
pub(crate) use storage::{StoredFile, open_regular};
pub use store_options::{GivenOption, StoreOptions};
