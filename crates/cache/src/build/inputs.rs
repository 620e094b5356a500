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
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{Array, ArrayRef, RecordBatch, cast::AsArray};
use arrow_schema::{DataType, SchemaRef};
use serde_json::Value;

use super::{DocumentPiece, ReadShard, Shards, Skips};
use crate::{
    Error, ErrorKind, Result,
    contract::{MAX_RECORD_BYTES, Payload},
    fallible_alloc,
    json::{self, NoValue},
    seed::mix,
    source::{
        self, AllowPaths, ArrowOptions, ArrowSource, Entry, FileFormat, LocalFiles, OpenRecording, RawRecord,
        ReadRecordings, Storage, WholeRecord,
        arrow::table::ArrowTable,
        compression::{Compression, is_wide_window},
        info_of_row,
        parquet::{ParquetOptions, ParquetSource, table::ParquetTable},
    },
};
use forebay_audio::AudioDecoder;

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

/// Bytes at each end of a file that are hashed for its fingerprint.
const ENDS: u64 = 64 << 10;

/// Bytes of records, and of their results, after which a batch continues in another piece.
pub const PIECE_BYTES: u64 = 64 << 20;
/// The most bytes of a line, and of consecutive blank lines; above it, reading ends with an error.
const LONGEST_LINE: u64 = 1 << 31;
/// How many times `max_record_bytes` the values of a line of JSON may take, if that is more than
/// [`PIECE_BYTES`].
const JSON_FACTOR: u64 = 4;

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
pub enum Rows {
    /// A table, as consecutive record batches.
    Table(Vec<RecordBatch>),
    /// JSON values, one a row.
    Json(Vec<Value>),
    /// Lines, one a row.
    Text(Vec<String>),
    Recordings(Vec<RawRecord>),
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
        /// The files that rows may name.
        allow_paths: AllowPaths,
    },
}

/// What a shard is.
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

    fn table(&self, shard: usize) -> Result<Arc<source::Recordings>> {
        let allow_paths = match &self.projection {
            Projection::Recordings { allow_paths, .. } => allow_paths.clone(),
            _ => AllowPaths::default(),
        };
        let options = ArrowOptions {
            allow_paths,
            threads: 1,
            max_record_bytes: self.limits.max_record_bytes,
            ..ArrowOptions::default()
        };
        let entries = [&self.entries[shard..=shard]];
        source::Recordings::open(&entries, &options).map(Arc::new)
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
    type Batch = Rows;

    fn names(&self) -> &[String] {
        &self.names
    }

    fn open(&self, shard: usize, skip: u64, size: u64) -> Result<Box<dyn ReadShard<Rows>>> {
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
        let max_record_bytes = self.limits.max_record_bytes;
        let format = match self.kinds[shard] {
            ShardKind::Rows(format) => format,
            ShardKind::Recordings => {
                let source = self.table(shard)?;
                let rows = source.n_rows();
                return Ok(RecordingReader::over(source.reader(), rows, skip, at));
            }
        };
        match (format, &self.projection) {
            (FileFormat::Parquet, Projection::Recordings { column, allow_paths }) => {
                let options = ParquetOptions {
                    payload: crate::source::Payload::Audio(column.clone()),
                    allow_paths: allow_paths.clone(),
                    max_record_bytes,
                    ..ParquetOptions::audio()
                };
                let source = Arc::new(ParquetSource::open(std::slice::from_ref(path), &options)?);
                let rows = source.n_rows();
                Ok(RecordingReader::over(source.reader(), rows, skip, at))
            }
            (FileFormat::Arrow, Projection::Recordings { column, allow_paths }) => {
                let options = ArrowOptions {
                    audio_column: column.clone(),
                    allow_paths: allow_paths.clone(),
                    threads: 1,
                    max_record_bytes,
                    ..ArrowOptions::default()
                };
                let source = Arc::new(ArrowSource::open(std::slice::from_ref(path), &options)?);
                if let Some(damage) = source.shards().first().and_then(|shard| shard.damage.clone()) {
                    return Err(damage);
                }
                let rows = source.n_rows();
                Ok(RecordingReader::over(source.reader(), rows, skip, at))
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
    fn piece(&mut self, documents: Rows, rows: u64, is_last: bool) -> DocumentPiece<Rows> {
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
    crate::source::open_regular(path).map_err(|error| Error::io(path, "open", error))
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

/// The record batches of a table in its file.
enum TableBatches {
    Parquet(Box<ParquetTable>),
    Arrow(Box<ArrowTable>),
}

struct TableReader {
    batches: TableBatches,
    /// The rest of the record batch that was read last.
    rest: Option<RecordBatch>,
    /// Rows that are still to be skipped.
    skip: u64,
    read: u64,
    rows: Option<u64>,
    at: BatchPosition,
}

impl TableReader {
    fn open(
        storage: &Arc<dyn Storage>,
        path: &Path,
        format: FileFormat,
        columns: Option<&[String]>,
        skip: u64,
        at: BatchPosition,
    ) -> Result<Self> {
        let max_record_bytes = at.limits.max_record_bytes;
        if format == FileFormat::Parquet {
            let mut table = ParquetTable::open(storage, path, max_record_bytes)?;
            if let Some(places) = places(table.schema(), columns)? {
                table.select(places)?;
            }
            table.skip(skip);
            let rows = Some(table.n_rows());
            return Ok(Self {
                batches: TableBatches::Parquet(Box::new(table)),
                rest: None,
                skip: 0,
                read: skip,
                rows,
                at,
            });
        }
        let mut table = ArrowTable::open(storage, path, max_record_bytes)?;
        table.select(places(table.schema(), columns)?);
        Ok(Self { batches: TableBatches::Arrow(Box::new(table)), rest: None, skip, read: 0, rows: None, at })
    }

    fn next_table(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(rest) = self.rest.take() {
            return Ok(Some(rest));
        }
        match &mut self.batches {
            TableBatches::Parquet(table) => table.next_batch(),
            TableBatches::Arrow(table) => table.next_batch(),
        }
    }
}

/// The largest number of rows of a table, of `n` from `from` on, whose values take at most `bytes`; at least
/// one.
fn rows_within(table: &RecordBatch, from: usize, n: usize, bytes: u64) -> usize {
    let held = |n: usize| -> u64 {
        table.columns().iter().map(|column| bytes_of(&column.slice(from, n))).fold(0, u64::saturating_add)
    };
    if bytes == u64::MAX || held(n) <= bytes {
        return n;
    }
    // The number of rows that fit is at least `low` and less than `high`.
    let (mut low, mut high) = (1, n.max(1));
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if held(middle) <= bytes {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The bytes of an array's values; shared values of a view count each time.
fn bytes_of(array: &ArrayRef) -> u64 {
    match array.data_type() {
        DataType::Utf8View => {
            array.as_string_view().views().iter().map(|&view| u64::from(view as u32) + 16).sum()
        }
        DataType::BinaryView => {
            array.as_binary_view().views().iter().map(|&view| u64::from(view as u32) + 16).sum()
        }
        _ => array.to_data().get_slice_memory_size().unwrap_or(usize::MAX) as u64,
    }
}

/// The indices of the columns in a schema; None for all.
fn places(schema: &SchemaRef, columns: Option<&[String]>) -> Result<Option<Vec<usize>>> {
    let Some(columns) = columns else { return Ok(None) };
    let place = |name: &String| {
        schema.index_of(name).map_err(|_| {
            let names: Vec<_> = schema.fields().iter().map(|field| &field.name()[..]).collect();
            let message = format!("there is no column {name:?}; the columns are {}", names.join(", "));
            Error::new(ErrorKind::Schema, message)
        })
    };
    columns.iter().map(place).collect::<Result<_>>().map(Some)
}

impl ReadShard<Rows> for TableReader {
    fn next(&mut self, _skips: &mut Skips<'_>) -> Result<Option<DocumentPiece<Rows>>> {
        let (mut piece, mut rows, mut room) = (Vec::new(), 0, self.at.limits.piece_bytes);
        let mut is_last = false;
        while rows < self.at.missing() && room > 0 {
            let Some(table) = self.next_table()? else {
                is_last = true;
                break;
            };
            let passed = self.skip.min(table.num_rows() as u64) as usize;
            self.skip -= passed as u64;
            let n = (table.num_rows() - passed).min((self.at.missing() - rows) as usize);
            let n = if n > 0 { rows_within(&table, passed, n, room) } else { 0 };
            self.read += (passed + n) as u64;
            let behind = table.num_rows() - passed - n;
            if behind > 0 {
                self.rest = Some(table.slice(passed + n, behind));
            }
            if n > 0 {
                let part = table.slice(passed, n);
                if room < u64::MAX {
                    let held = part.columns().iter().map(bytes_of).fold(1, u64::saturating_add);
                    room = room.saturating_sub(held);
                }
                piece.push(part);
                rows += n as u64;
            }
        }
        // If a batch was cut and the file ends there, a piece without rows ends the batch.
        let goes_on = !piece.is_empty() || self.at.row > 0;
        Ok(goes_on.then(|| self.at.piece(Rows::Table(piece), rows, is_last)))
    }

    fn part(&self) -> Option<f64> {
        self.rows.map(|rows| self.read as f64 / rows.max(1) as f64)
    }
}

struct LineReader {
    lines: Box<dyn BufRead + Send>,
    is_json: bool,
    line: u64,
    at: BatchPosition,
}

impl LineReader {
    /// Opens the file at `path`, whose bytes are `file`.
    fn open(
        file: Box<dyn Read + Send>,
        path: &Path,
        format: FileFormat,
        skip: u64,
        at: BatchPosition,
    ) -> Result<Self> {
        let bytes = match Compression::split(path).1 {
            Some(compression) => compression
                .decoder(BufReader::new(file))
                .map_err(|error| Error::io(path, "decompress", error))?,
            None => file,
        };
        // bounded: a constant.
        let lines = Box::new(BufReader::with_capacity(1 << 20, bytes));
        let mut lines = Self { lines, is_json: format == FileFormat::JsonLines, line: 0, at };
        for _ in 0..skip {
            if lines.read()?.is_none() {
                break;
            }
        }
        Ok(lines)
    }

    /// The next line without its end, or the error of this line alone; of JSON, the next line that is not
    /// blank.
    fn read(&mut self) -> Result<Option<Result<String>>> {
        let mut blank = 0;
        loop {
            let mut line = Vec::new();
            let n = self.read_line(&mut line)?;
            if n == 0 {
                return Ok(None);
            }
            self.line += 1;
            let limit = self.at.limits.max_record_bytes;
            if n > limit && line.len() as u64 > limit {
                let message = format!("line {} has {n} bytes, max_record_bytes allows {limit}", self.line);
                return Ok(Some(Err(Error::new(ErrorKind::TooLarge, message))));
            }
            if !self.is_json || !line.trim_ascii().is_empty() {
                return Ok(Some(String::from_utf8(line).map_err(|error| {
                    let message = format!("line {} cannot be read as UTF-8", self.line);
                    Error::new(ErrorKind::Corrupt, message).because(error.utf8_error())
                })));
            }
            blank += n;
            if blank > LONGEST_LINE {
                return Err(self.endless("blank lines"));
            }
        }
    }

    /// Reads to the end of a line. A line within the limit is kept whole, without its end; of a longer one,
    /// at most two bytes more than the limit. Returns the number of bytes in the file, including the line's
    /// end.
    fn read_line(&mut self, line: &mut Vec<u8>) -> Result<u64> {
        // A line of exactly the limit may be followed by its end.
        let most = self.at.limits.max_record_bytes.saturating_add(2);
        let mut n = 0u64;
        loop {
            let found = match self.lines.fill_buf() {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.unreadable(error)),
            };
            // `BufRead` of a slice finds a byte faster than a loop here.
            let part = (&found[..]).skip_until(b'\n').unwrap_or(found.len());
            let has_end = found[..part].ends_with(b"\n");
            let kept = part.min(most.saturating_sub(line.len() as u64) as usize);
            fallible_alloc::grow(line, kept)?;
            line.extend_from_slice(&found[..kept]);
            self.lines.consume(part);
            n += part as u64;
            if has_end || part == 0 {
                break;
            }
            if n > LONGEST_LINE {
                return Err(self.endless("one line"));
            }
        }
        if line.len() as u64 == n && line.pop_if(|byte| *byte == b'\n').is_some() {
            line.pop_if(|byte| *byte == b'\r');
        }
        Ok(n)
    }

    fn unreadable(&self, error: io::Error) -> Error {
        if is_wide_window(&error) {
            let message =
                "the zstd stream needs more than 128 MiB of memory to decompress; compress it without --long";
            return Error::new(ErrorKind::Unsupported, message);
        }
        let kind = match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => {
                ErrorKind::Corrupt
            }
            io::ErrorKind::OutOfMemory => ErrorKind::Memory,
            _ => ErrorKind::Io,
        };
        Error::new(kind, format!("line {} cannot be read", self.line + 1)).because(error)
    }

    fn endless(&self, of: &str) -> Error {
        let message = format!(
            "near line {} there are more than {LONGEST_LINE} bytes of {of}: the file does not hold lines of documents",
            self.line
        );
        Error::new(ErrorKind::Format, message)
    }

    /// The value of a line, and the bytes that it may take.
    fn parse(&self, line: &str) -> Result<(Value, u64)> {
        let most = self.at.limits.max_record_bytes.saturating_mul(JSON_FACTOR).max(PIECE_BYTES);
        json::parse(line.as_bytes(), most).map_err(|error| match error {
            NoValue::Wrong(error) => {
                Error::new(ErrorKind::Corrupt, format!("line {} is not JSON", self.line)).because(error)
            }
            NoValue::TooLarge(bytes) => {
                let message = format!(
                    "the values of line {} would take {bytes} bytes of memory; with max_record_bytes={} at most {most} are allowed",
                    self.line, self.at.limits.max_record_bytes
                );
                Error::new(ErrorKind::TooLarge, message)
            }
        })
    }
}

impl ReadShard<Rows> for LineReader {
    fn next(&mut self, skips: &mut Skips<'_>) -> Result<Option<DocumentPiece<Rows>>> {
        let mut rows = if self.is_json { Rows::Json(Vec::new()) } else { Rows::Text(Vec::new()) };
        let (mut n, mut held, mut is_last) = (0, 0u64, false);
        while n < self.at.missing() && held < self.at.limits.piece_bytes {
            let Some(line) = self.read()? else {
                is_last = true;
                break;
            };
            let kept = line.and_then(|line| {
                match &mut rows {
                    Rows::Json(values) => {
                        let (value, bytes) = self.parse(&line)?;
                        held = held.saturating_add(bytes);
                        values.push(value);
                    }
                    Rows::Text(lines) => {
                        held = held.saturating_add(line.len() as u64);
                        lines.push(line);
                    }
                    _ => {}
                }
                Ok(())
            });
            kept.or_else(|error| skips.unread(n, error))?;
            n += 1;
        }
        let goes_on = n > 0 || self.at.row > 0;
        Ok(goes_on.then(|| self.at.piece(rows, n, is_last)))
    }
}

struct RecordingReader<R> {
    reader: R,
    next: u64,
    rows: u64,
    at: BatchPosition,
    /// Determines the length of a recording before the next one is read.
    decoder: AudioDecoder,
}

impl<R: ReadRecordings + 'static> RecordingReader<R> {
    fn over(reader: R, rows: u64, skip: u64, at: BatchPosition) -> Box<dyn ReadShard<Rows>> {
        Box::new(Self { reader, next: skip, rows, at, decoder: AudioDecoder::new() })
    }
}

impl<R: ReadRecordings> ReadShard<Rows> for RecordingReader<R> {
    fn next(&mut self, skips: &mut Skips<'_>) -> Result<Option<DocumentPiece<Rows>>> {
        let limits = self.at.limits;
        let begin = self.next;
        let end = begin.saturating_add(self.at.missing()).min(self.rows);
        let (mut records, mut held) = (Vec::new(), 0u64);
        while self.next < end && held < limits.piece_bytes {
            match self.reader.read(self.next, self.rows - self.next, &WholeRecord::ONCE) {
                Ok(record) => {
                    held = held.saturating_add(record.payload.n_bytes() as u64 + limits.recording_bytes);
                    // A recording that cannot be decoded counts as empty; the decoder reports the error.
                    if limits.second_bytes > 0.0
                        && let Ok(recording) = OpenRecording::open(&mut self.decoder, &record.payload)
                        && let Ok((info, _)) = info_of_row(recording.info(), record.payload.file.as_deref())
                    {
                        let seconds = info.n_samples as f64 / f64::from(info.sample_rate.max(1));
                        held = held.saturating_add((seconds * limits.second_bytes) as u64);
                    }
                    records.push(record);
                }
                Err(error) => skips.unread(self.next - begin, error)?,
            }
            self.next += 1;
        }
        let n = self.next.saturating_sub(begin);
        let is_last = self.next >= self.rows;
        Ok((n > 0).then(|| self.at.piece(Rows::Recordings(records), n, is_last)))
    }

    fn part(&self) -> Option<f64> {
        Some(self.next as f64 / self.rows.max(1) as f64)
    }
}

impl Rows {
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
