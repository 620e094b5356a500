//! Sources of records: the encoded bytes of a recording, or the text of a document, with its label, by row
//! number.
//!
//! A source is opened from a list of files, counts their rows, and makes one reader for each I/O thread. A
//! reader turns a row number into a [`RawRecord`]. Rows are numbered from zero over the
//! files in the order given. Sources are independent of shuffling, decoding and the pipeline's threads.
//!
//! Files are opened and read by `forebay-storage`.
//!
//! ```
//! use std::{path::PathBuf, sync::Arc};
//!
//! use forebay_engine::contract::ReadRecords;
//! use forebay_source::{Recordings, SourceOptions, WholeRecord};
//!
//! let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits"));
//! let source = Arc::new(Recordings::open(&[[folder]], &SourceOptions::default())?);
//! assert!(source.n_rows() > 20);
//! let record = source.reader().read(3, 1, &WholeRecord::default())?;
//! assert_eq!(&record.payload.bytes[..4], b"RIFF");
//! # Ok::<(), forebay_base::Error>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `arrow` | recordings in Arrow IPC streams and files |
//! | `parquet` | recordings and documents in Parquet files |
//! | `files` | recordings in files of their own: tables that name them, folders, archives, lists |
//! | `open_files`, `row_groups` | what open files of any format have in common; their groups of rows |
//! | `row_files`, `recordings` | open files of any of these formats, and a source of them |
//! | `documents` | documents: a text of each row of Parquet, Arrow, JSON lines or text |
//! | `record_rules` | the most bytes of a record, and where its label is |
//! | `options` | which columns are read, and how files are opened |
//! | `entries` | what a user names as a source, and the shards or tables that it stands for |
//! | `columns`, `contents` | which columns are read, and what all shards have in common |
//! | `chat_columns`, `nested` | conversations as lists of structs, and how these become JSON |
//! | `lists` | recordings as lists of bytes or of samples |
//! | `ids` | token ids in the bytes of a row |
//! | `cells` | values of decoded Arrow arrays, one by one |
//! | `json_line_error` | why a line of a file is not JSON |
//! | `shard` | the files of a dataset, and their row numbers |
//! | `selection` | a part of the rows, or the windows of recordings, as a source of its own |
//! | `order_of_rows` | the rows in an order of the user |
//! | `stored_payload` | what is read of a row: bytes, or the part of a file |
//! | `request` | what a task needs of a record, so that not all of it is read |
//! | `ranged` | recordings of which parts are read, and their indexes |
//! | `open_recording` | the recording of a record: all bytes, or the part that was read |
//! | `file_format` | what a file of rows is: Parquet, Arrow, lines, ids |
//! | `table_format` | what a table of recordings is: text, lines, Kaldi, Parquet, archives |
//! | `paths`, `splits` | files, folders, patterns and splits that a user names |
//! | `progress_log` | what a long loop over recordings logs |
//! | `layouts` | folders of Kaldi, Lhotse and NeMo |
//! | `path_policy` | recordings that a row gives as a path |
//!
//! Promises: opening reads heads and indexes, never recordings; a row has the same number and bytes
//! whichever rows were read before it; the bytes in a file bound each allocation that they ask for; a bad row
//! is an error with file and row, of a kind for which
//! [`is_record`](forebay_base::ErrorKind::is_record) holds, and the other rows can be read.

#![cfg_attr(not(test), warn(unreachable_pub))]

#[cfg(any(test, fuzzing))]
extern crate self as forebay_source;

pub mod arrow;
mod cells;
mod chat_columns;
pub mod columns;
mod contents;
mod documents;
mod entries;
mod file_format;
pub mod files;
mod ids;
mod json_line_error;
mod layouts;
mod lists;
mod open_recording;
mod options;
mod nested;
mod open_files;
mod order_of_rows;
pub mod parquet;
mod path_policy;
pub mod paths;
mod progress_log;
mod ranged;
mod record_rules;
mod recordings;
mod request;
mod row_files;
mod row_groups;
mod selection;
mod shard;
mod splits;
mod stored_payload;
mod table_format;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(test)]
#[path = "../../../tests/hostile_common/fuzzed.rs"]
mod fuzzed;
#[cfg(any(test, fuzzing))]
#[path = "../../../tests/hostile_common/in_memory.rs"]
mod in_memory;

use forebay_base::{
    Error, ErrorKind, Result, cancel, catch_panic, error, fallible_alloc, parallel, seed, signatures,
};
use forebay_engine::{contract, fields, order};
use forebay_storage::{
    self as storage, BLOCKS_AHEAD, DiskCache, MappedFiles, PathOrUrl, Storage, StoreOptions, Traffic, block,
    compression, memory_permits, pattern, scattered_readers, tree, urls,
};

pub use arrow::{ArrowReader, ArrowSource};
pub use columns::{
    ChatColumns, ColumnChoice, ColumnType, ExtraColumn, IdFields, Item, Nesting, OtherChatColumns,
    PairColumns, PayloadColumn, SchemaColumn,
};
pub use contents::{ClassNames, Contents};
pub use documents::{ChatForm, DocumentForm, DocumentSource, DocumentSources, DocumentsReader, TextContent};
pub use entries::Entry;
pub use file_format::FileFormat;
pub use json_line_error::JsonLineError;
pub use open_files::{FileSet, OpenFiles};
pub use open_recording::{OpenRecording, info_of_row};
pub use options::SourceOptions;
pub use path_policy::AllowPaths;
pub use ranged::{IndexLocation, ReadCounts};
pub use record_rules::{MAX_RECORD_BYTES, NO_LABEL, check_record_bytes, label_of};
pub use recordings::{Recordings, RecordingsReader, RowInfo, RowStorage};
pub use request::{ReadRequest, RowExtent, RunRequest, WholeRecord};
pub use row_files::ReadRows;
pub use selection::{Positions, RowWindows, Selection, Subset};
pub use shard::Shard;
pub use stored_payload::{
    FileRecording, PayloadSource, RawRecord, ReadPayloads, Record, Segment, StoredPayload, WindowRun,
};
