//! Shards in files: Parquet, Arrow, JSON lines and text, plain or (lines) as `.gz` and `.zst`.
//!
//! Input: paths. Output: batches of rows: as tables, as JSON objects, as lines, or as recordings. The kind
//! follows from the ending, or from the first bytes of a file without one. Recordings are read by a loader's
//! sources, tables by similar readers, after the same checks of a file's claims (`source/arrow/table.rs`,
//! `source/parquet/table.rs`).
//!
//! A batch is read in pieces of some [`PIECE_BYTES`] if the processor handles each document alone. No
//! allocation depends on a number in a file alone: a record, a line and the parsed values of a line are
//! bounded by [`Limits`].

use std::{
    fs,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::RecordBatch;
use serde_json::Value;

use super::{DocumentPiece, ReadShard, Shards};
use crate::{
    Error, ErrorKind, Result,
    seed::mix,
    source::{
        self, AllowPaths, Entry, FileFormat, MAX_RECORD_BYTES, PayloadColumn, RawRecord, SourceOptions,
    },
    storage::{LocalFiles, Storage},
};

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod lines;
mod recordings;
mod tables;

use self::{lines::LineReader, recordings::RecordingReader, tables::TableReader};

/// Bytes at each end of a file that are hashed for its fingerprint.
const ENDS: u64 = 64 << 10;

/// Bytes of records, and of their results, after which a batch continues in another piece.
pub const PIECE_BYTES: u64 = 64 << 20;

/// The limits of one record, and of one read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// The most bytes of a record: of a recording, of a line. Also of a compressed buffer or a page, unless
    /// its compressed size is a 64th of it or more.
    pub max_record_bytes: u64,
    /// A batch continues in another piece after this many bytes; `u64::MAX` for whole batches.
    pub piece_bytes: u64,
    /// Bytes of the features of a recording of any length.
    pub recording_bytes: u64,
    /// Bytes of the features of each second of a recording.
    pub second_bytes: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_record_bytes: MAX_RECORD_BYTES,
            piece_bytes: PIECE_BYTES,
            recording_bytes: 0,
            second_bytes: 0.0,
        }
    }
}

#[derive(Debug)]
pub enum InputRows {
    /// A table, as consecutive record batches.
    Table(Vec<RecordBatch>),
    /// JSON values, one a row.
    Json(Vec<Value>),
    /// Lines, one a row.
    Text(Vec<String>),
    Recordings(Vec<RawRecord>),
}

impl InputRows {
    pub fn len(&self) -> usize {
        match self {
            Self::Table(tables) => tables.iter().map(RecordBatch::num_rows).sum(),
            Self::Json(values) => values.len(),
            Self::Text(lines) => lines.len(),
            Self::Recordings(records) => records.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The part of the rows that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Projection {
    All,
    /// These columns of tables; of JSON, all.
    Columns(Vec<String>),
    Recordings {
        /// The column of recordings; None for the default one.
        column: Option<String>,
        /// The number of their audio track; None for the usual one.
        track: Option<u32>,
        /// The files that rows may name.
        allow_paths: AllowPaths,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShardKind {
    Rows(FileFormat),
    /// A table whose rows name recordings in files of their own.
    Recordings,
}

#[derive(Debug)]
pub struct Files {
    entries: Vec<Entry>,
    paths: Vec<PathBuf>,
    names: Vec<String>,
    kinds: Vec<ShardKind>,
    projection: Projection,
    limits: Limits,
}

impl Files {
    /// Files of any of the formats; a shard's name is its path as given.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Io`]; [`ErrorKind::Config`] if there are no files, or for a file
    /// in another format.
    pub fn new<T: Into<Entry>>(shards: Vec<T>, projection: Projection, limits: Limits) -> Result<Self> {
        if shards.is_empty() {
            return Err(Error::new(ErrorKind::Config, "there are no shards; name at least one file"));
        }
        let entries: Vec<Entry> = shards.into_iter().map(Into::into).collect();
        let has_recordings = matches!(projection, Projection::Recordings { .. });
        let kind = |entry: &Entry| match entry {
            entry if has_recordings && entry.is_of_files() => Ok(ShardKind::Recordings),
            Entry::Path(path) => Ok(ShardKind::Rows(format_of(path)?)),
            Entry::Manifest(_) => {
                let message =
                    "a forebay.Manifest names recordings; give an object of forebay.features as processor";
                Err(Error::new(ErrorKind::Config, message))
            }
        };
        let kinds = entries.iter().map(kind).collect::<Result<_>>()?;
        let paths: Vec<PathBuf> = entries.iter().map(Entry::path).collect();
        let names = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        Ok(Self { entries, paths, names, kinds, projection, limits })
    }

    fn options(&self) -> SourceOptions {
        let (column, track, allow_paths) = match &self.projection {
            Projection::Recordings { column, track, allow_paths } => {
                (column.clone(), *track, allow_paths.clone())
            }
            _ => (None, None, AllowPaths::default()),
        };
        SourceOptions {
            payload: PayloadColumn::Audio(column),
            track,
            allow_paths,
            threads: 1,
            max_record_bytes: self.limits.max_record_bytes,
            ..SourceOptions::default()
        }
    }

    fn table(&self, shard: usize) -> Result<Arc<source::Recordings>> {
        let options = SourceOptions { payload: PayloadColumn::Audio(None), ..self.options() };
        self.recordings(shard, &options)
    }

    fn recordings(&self, shard: usize, options: &SourceOptions) -> Result<Arc<source::Recordings>> {
        let entries = [&self.entries[shard..=shard]];
        source::Recordings::open(&entries, options).map(Arc::new)
    }

    /// The name and fingerprint of each file: its size, and a hash of both its ends; of a table, a hash of
    /// its rows.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn fingerprints(&self) -> Result<Vec<(String, String)>> {
        let one = |shard: usize| match self.kinds[shard] {
            ShardKind::Recordings => {
                let table = self.table(shard)?;
                Ok(format!("{} rows, {:016x}", table.n_rows(), table.fingerprint()))
            }
            _ => fingerprint(&self.paths[shard]),
        };
        (0..self.paths.len()).map(|shard| Ok((self.names[shard].clone(), one(shard)?))).collect()
    }
}

impl Shards for Files {
    type Batch = InputRows;

    fn names(&self) -> &[String] {
        &self.names
    }

    fn open(&self, shard: usize, skip: u64, size: u64) -> Result<Box<dyn ReadShard<InputRows>>> {
        let path = &self.paths[shard];
        // The number is from the ledger and may exceed the rows of any file.
        let skip = skip.saturating_mul(size);
        let at = BatchPosition { size, row: 0, limits: self.limits };
        let wrong = |what: &str| {
            let message = format!(
                "{} has {what}, expected Parquet or Arrow with a column of recordings",
                path.display()
            );
            Err(Error::new(ErrorKind::Config, message))
        };
        let format = match self.kinds[shard] {
            ShardKind::Rows(format) => format,
            ShardKind::Recordings => {
                return Ok(RecordingReader::over(&self.table(shard)?, skip, at));
            }
        };
        match (format, &self.projection) {
            (FileFormat::Parquet | FileFormat::Arrow, Projection::Recordings { .. }) => {
                let source = self.recordings(shard, &self.options())?;
                if let Some(damage) = source.shards().first().and_then(|shard| shard.damage.clone()) {
                    return Err(damage);
                }
                Ok(RecordingReader::over(&source, skip, at))
            }
            (FileFormat::JsonLines, Projection::Recordings { .. }) => wrong("JSON"),
            (_, Projection::Recordings { .. }) => wrong("lines"),
            (FileFormat::Parquet | FileFormat::Arrow, _) => {
                let storage: Arc<dyn Storage> = Arc::new(LocalFiles);
                Ok(Box::new(TableReader::open(&storage, path, format, self.columns(), skip, at)?))
            }
            _ => Ok(Box::new(LineReader::open(Box::new(open(path)?), path, format, skip, at)?)),
        }
    }
}

impl Files {
    fn columns(&self) -> Option<&[String]> {
        match &self.projection {
            Projection::Columns(columns) => Some(columns),
            _ => None,
        }
    }
}

/// The position of a reader in its batch, and the limit of one read.
#[derive(Debug, Clone, Copy)]
struct BatchPosition {
    size: u64,
    /// Rows of the batch that were read.
    row: u64,
    limits: Limits,
}

impl BatchPosition {
    /// Rows that are left to read of the batch.
    fn missing(&self) -> u64 {
        self.size.saturating_sub(self.row)
    }

    /// A piece of `rows` rows; the last one of its batch if the batch is complete, or if the file ends.
    fn piece(&mut self, documents: InputRows, rows: u64, is_last: bool) -> DocumentPiece<InputRows> {
        self.row += rows;
        let ends_batch = is_last || self.row >= self.size;
        if ends_batch {
            self.row = 0;
        }
        DocumentPiece { documents, rows, ends_batch }
    }
}

/// The format of a shard of rows.
fn format_of(path: &Path) -> Result<FileFormat> {
    open(path)?;
    let storage: Arc<dyn Storage> = Arc::new(LocalFiles);
    match FileFormat::detect(&storage, &Arc::from(path))? {
        Some(format) if !format.is_of_ids() => Ok(format),
        _ => {
            let message = format!(
                "{} is not a shard in a known format; expected .parquet, .arrow, or lines in .jsonl or .txt, these also with .gz or .zst",
                path.display()
            );
            Err(Error::new(ErrorKind::Config, message))
        }
    }
}

fn open(path: &Path) -> Result<fs::File> {
    crate::storage::open_regular(path).map_err(|error| Error::io(path, "open", error))
}

fn fingerprint(path: &Path) -> Result<String> {
    let read = || -> io::Result<_> {
        let mut file = fs::File::open(path)?;
        let size = file.metadata()?.len();
        let mut ends = Vec::new();
        file.by_ref().take(ENDS).read_to_end(&mut ends)?;
        file.seek(SeekFrom::Start(size.saturating_sub(ENDS)))?;
        file.take(ENDS).read_to_end(&mut ends)?;
        Ok((size, ends))
    };
    let (size, ends) = read().map_err(|error| Error::io(path, "read", error))?;
    let hash = ends.chunks(8).fold(mix(size), |state, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(state ^ mix(u64::from_le_bytes(word)))
    });
    Ok(format!("{size} bytes, {hash:016x}"))
}
