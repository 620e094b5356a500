//! A source of recordings in Arrow or Parquet shards.
//!
//! A file whose name ends in `.parquet` is read as Parquet, any other as Arrow. Files may be given in groups,
//! the sources of a mixture.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::{
    arrow::{ArrowOptions, ArrowReader, ArrowSource},
    columns::{Beside, ClassNames, ColumnType, SchemaColumn},
    parallel,
    parquet::{ParquetOptions, ParquetReader, ParquetSource},
    paths::{self, Reads},
    shard::Shard,
    storage::Storage,
};
use crate::{
    Error, ErrorKind, Result,
    fields::Value,
    record::{Gate, RawRecord, ReadRecords, Source, Wants},
};

/// An open dataset of recordings; immutable and shared.
#[derive(Debug)]
pub struct Recordings {
    files: Files,
    /// For each group, the number of shards up to its end.
    groups: Vec<usize>,
    /// The names of the other columns.
    column_names: Vec<String>,
}

#[derive(Debug)]
enum Files {
    Arrow(Arc<ArrowSource>),
    Parquet(Arc<ParquetSource>),
}

/// Calls the same method of either source or reader.
macro_rules! either {
    ($either:expr, $kind:ident, $one:ident => $call:expr) => {
        match $either {
            $kind::Arrow($one) => $call,
            $kind::Parquet($one) => $call,
        }
    };
}

impl Recordings {
    /// Opens local files in groups, one after the other; [`Self::group_starts`] returns where each begins.
    ///
    /// Folders and patterns are [expanded](paths). `stop` is checked between
    /// reads. Relative paths, those in rows too, are resolved against the folder that is current now.
    ///
    /// # Errors
    /// Those of [`ArrowSource::open`] or [`ParquetSource::open`]; [`ErrorKind::Config`] if both kinds of
    /// files are given, or Parquet is to be mapped.
    pub fn open(groups: &[impl AsRef<[PathBuf]>], options: &ArrowOptions, stop: &AtomicBool) -> Result<Self> {
        Self::open_in(options.storage(), groups, options, stop)
    }

    /// The same for files of any storage.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_in(
        storage: Arc<dyn Storage>,
        groups: &[impl AsRef<[PathBuf]>],
        options: &ArrowOptions,
        stop: &AtomicBool,
    ) -> Result<Self> {
        let (mut files, mut ends) = (Vec::new(), Vec::new());
        for group in groups {
            files.extend(paths::expand(group.as_ref(), Reads::Recordings, stop)?);
            ends.push(files.len());
        }
        let opened = match one_kind(&files)? {
            true if options.mmap => {
                let message = "mmap=True maps Arrow shards, but these are Parquet; use mmap=False";
                return Err(Error::new(ErrorKind::Config, message));
            }
            true => {
                let options = ParquetOptions::recordings(options);
                let source = ParquetSource::open_groups(storage, &files, &ends, &options, stop)?;
                Files::Parquet(Arc::new(source))
            }
            false => Files::Arrow(Arc::new(ArrowSource::open_groups(storage, &files, &ends, options, stop)?)),
        };
        Ok(Self { files: opened, groups: ends, column_names: options.columns.clone() })
    }

    /// The number of rows over all shards.
    pub fn n_rows(&self) -> u64 {
        either!(&self.files, Files, source => source.n_rows())
    }

    /// The shards in the order given.
    pub fn shards(&self) -> &[Shard] {
        either!(&self.files, Files, source => source.shards())
    }

    /// The first row of each group of files, and the number of all rows.
    pub fn group_starts(&self) -> Vec<u64> {
        let start = |&shard: &usize| self.shards().get(shard).map_or(self.n_rows(), |shard| shard.first_row);
        std::iter::once(0).chain(self.groups.iter().map(start)).collect()
    }

    /// The names of the classes of all columns, for each group of files.
    pub fn class_names(&self) -> &ClassNames {
        either!(&self.files, Files, source => source.class_names_of_groups())
    }

    /// The types of the other columns that are read.
    pub fn columns(&self) -> &[ColumnType] {
        either!(&self.files, Files, source => source.columns())
    }

    /// All columns of the first schema.
    pub fn schema(&self) -> &[SchemaColumn] {
        either!(&self.files, Files, source => source.schema())
    }

    /// Whether any shard has a label column. Rows of shards without are
    /// [`NO_LABEL`](crate::record::NO_LABEL).
    pub fn has_labels(&self) -> bool {
        either!(&self.files, Files, source => source.has_labels())
    }

    /// The values of a record, in order.
    pub fn beside(&self) -> &[Beside] {
        either!(&self.files, Files, source => source.beside())
    }

    /// Reads one of the other columns, without recordings, and collects what `keep` takes of the values of
    /// all rows, or of the errors of bad ones, on several threads: a result for each shard.
    ///
    /// # Errors
    /// As [`ReadRecords::read`]; those of `keep`; [`ErrorKind::Closed`] once `stop` is set.
    pub fn collect<T: Default + Send + Sync>(
        &self,
        column: &str,
        keep: impl Fn(&mut T, Result<&Value>) -> Result<()> + Sync,
        stop: &AtomicBool,
    ) -> Result<Vec<T>> {
        const THREADS: usize = 8;
        const POLLED: u64 = 1024;
        let number = self.column_names().iter().position(|name| name == column);
        let number =
            number.ok_or_else(|| Error::new(ErrorKind::Schema, format!("column {column:?} is not read")))?;
        let alone = match &self.files {
            Files::Arrow(_) => None,
            Files::Parquet(source) => {
                let options = ParquetOptions::columns(vec![column.to_owned()]);
                Some(Arc::new(source.reopened(&options, stop)?))
            }
        };
        parallel::each(self.shards(), THREADS, |shard| {
            let mut reader = match (&self.files, &alone) {
                (Files::Parquet(_), Some(alone)) => RecordingsReader::Parquet(Box::new(alone.reader())),
                _ => self.reader_of(),
            };
            let number = if alone.is_some() { 0 } else { number };
            let mut kept = T::default();
            let end = shard.first_row + shard.n_rows;
            for row in shard.first_row..end {
                if row % POLLED == 0 && stop.load(Ordering::Relaxed) {
                    return Err(Error::new(ErrorKind::Closed, "opening was stopped"));
                }
                let values = match &mut reader {
                    RecordingsReader::Arrow(reader) => reader.others(row),
                    RecordingsReader::Parquet(reader) => reader.others(row, end - row),
                };
                match values {
                    Ok(values) => keep(&mut kept, Ok(values.get(number).unwrap_or(&Value::Null)))?,
                    Err(error) if error.kind.is_record() => keep(&mut kept, Err(error))?,
                    Err(error) => return Err(error),
                }
            }
            Ok(kept)
        })
    }

    /// The names of the other columns.
    pub fn column_names(&self) -> &[String] {
        &self.column_names
    }

    /// The first row of each shard, and the number of all rows.
    pub fn shard_starts(&self) -> Vec<u64> {
        self.shards().iter().map(|shard| shard.first_row).chain([self.n_rows()]).collect()
    }

    /// A hash of the shards' row counts and file sizes, in order. Paths and times are left out, since a
    /// dataset may be copied to another place.
    pub fn fingerprint(&self) -> u64 {
        either!(&self.files, Files, source => source.fingerprint())
    }

    /// A reader, for one thread.
    pub fn reader(self: &Arc<Self>) -> RecordingsReader {
        self.reader_of()
    }

    fn reader_of(&self) -> RecordingsReader {
        match &self.files {
            Files::Arrow(source) => RecordingsReader::Arrow(source.reader()),
            Files::Parquet(source) => RecordingsReader::Parquet(Box::new(source.reader())),
        }
    }

    /// Whether reading a row's path costs little compared with its recording.
    pub fn has_cheap_paths(&self) -> bool {
        matches!(self.files, Files::Arrow(_))
    }
}

/// Whether the files are Parquet. Mixed formats are an error.
fn one_kind(files: &[PathBuf]) -> Result<bool> {
    let is_parquet = |path: &&PathBuf| is_parquet(path);
    let (parquet, other) = (files.iter().find(is_parquet), files.iter().find(|path| !is_parquet(path)));
    if let (Some(parquet), Some(other)) = (parquet, other) {
        let message = format!(
            "{} is Parquet and {} is not; the shards of a loader are all Parquet or all Arrow",
            parquet.display(),
            other.display()
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok(parquet.is_some())
}

fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("parquet"))
}

impl Source for Recordings {
    type Reader = RecordingsReader;

    fn shard_rows(&self) -> Vec<u64> {
        either!(&self.files, Files, source => source.shard_rows())
    }

    fn locate(&self, row: u64) -> (Arc<Path>, u64) {
        either!(&self.files, Files, source => Source::locate(&**source, row))
    }

    fn random_access(&self) -> bool {
        either!(&self.files, Files, source => Source::random_access(&**source))
    }

    fn check_scattered(&self) -> Result<()> {
        either!(&self.files, Files, source => source.check_scattered())
    }

    fn block_rows(&self, row: u64, run: u64) -> u64 {
        either!(&self.files, Files, source => source.block_rows(row, run))
    }

    fn most_blocks(&self) -> usize {
        either!(&self.files, Files, source => source.most_blocks())
    }

    fn bytes_in_use(&self) -> usize {
        either!(&self.files, Files, source => source.bytes_in_use())
    }

    fn retries(&self) -> Arc<AtomicU64> {
        either!(&self.files, Files, source => source.retries())
    }

    fn reader(self: &Arc<Self>) -> RecordingsReader {
        self.reader()
    }
}

/// A reader of either format, for one thread.
#[derive(Debug)]
pub enum RecordingsReader {
    /// Of Arrow shards.
    Arrow(ArrowReader),
    /// Of Parquet files.
    Parquet(Box<ParquetReader>),
}

impl RecordingsReader {
    /// The recording's own path field, if the row has one; for reports.
    ///
    /// # Errors
    /// As [`ReadRecords::read`].
    ///
    /// # Panics
    /// If there is no such row.
    pub fn path(&mut self, row: u64) -> Result<Option<String>> {
        either!(self, Self, reader => reader.path(row))
    }
}

impl ReadRecords for RecordingsReader {
    fn ask(&mut self, gate: Arc<dyn Gate>) {
        match self {
            Self::Arrow(reader) => ReadRecords::ask(reader, gate),
            Self::Parquet(reader) => ReadRecords::ask(&mut **reader, gate),
        }
    }

    fn read(&mut self, row: u64, run: u64, wants: &dyn Wants) -> Result<RawRecord> {
        match self {
            Self::Arrow(reader) => ReadRecords::read(reader, row, run, wants),
            Self::Parquet(reader) => ReadRecords::read(&mut **reader, row, run, wants),
        }
    }
}
