//! Shards in files: Parquet, Arrow, JSON lines and text, plain or (lines) as `.gz` and `.zst`.
//!
//! In go paths, out come batches of rows: as tables, as JSON objects, as lines, or as recordings. The kind is told by the ending,
//! or by the first bytes of a file without one. Tables are decoded by `parquet` and `arrow-ipc` behind the guard of
//! [`crate::source::parquet`]; recordings are read by the sources that a loader has.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, SchemaRef};
use parquet::arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReaderBuilder};
use serde_json::Value;

use super::{ReadShard, Shards, Skips};
use crate::{
    Error, ErrorKind, Result,
    record::{RawRecord, ReadRecords},
    seed::mix,
    source::{
        AllowPaths, ArrowOptions, ArrowSource,
        parquet::{ParquetOptions, ParquetSource, guarded},
    },
};

/// Bytes at each end of a file that its fingerprint is made of.
const ENDS: u64 = 64 << 10;

/// Some rows of a file.
#[derive(Debug)]
pub enum Rows {
    /// Of a table: one batch of its file behind the other.
    Table(Vec<RecordBatch>),
    /// One JSON value each.
    Json(Vec<Value>),
    /// One line each.
    Text(Vec<String>),
    /// Encoded recordings and labels.
    Recordings(Vec<RawRecord>),
}

/// What of the rows is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// All columns.
    All,
    /// These columns of tables; of JSON all.
    Columns(Vec<String>),
    /// Recordings.
    Recordings {
        /// Their column; None for the usual one.
        column: Option<String>,
        /// Which files rows may name.
        allow_paths: AllowPaths,
    },
}

/// What is in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Parquet,
    Arrow,
    Json,
    Text,
}

/// Files as shards.
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    names: Vec<String>,
    kinds: Vec<Kind>,
    want: Want,
}

impl Files {
    /// Files of any of the kinds; a shard's name is its path as given.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Io`]; [`ErrorKind::Config`] for no files, or one of no kind that is read.
    pub fn new(paths: Vec<PathBuf>, want: Want) -> Result<Self> {
        if paths.is_empty() {
            return Err(Error::new(ErrorKind::Config, "there are no shards; name at least one file"));
        }
        let kinds = paths.iter().map(|path| kind_of(path)).collect::<Result<_>>()?;
        let names = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        Ok(Self { paths, names, kinds, want })
    }

    /// What tells each file from another of the same name: its size, and a hash of its ends.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn fingerprints(&self) -> Result<Vec<(String, String)>> {
        let one = |(path, name): (&PathBuf, &String)| Ok((name.clone(), fingerprint(path)?));
        self.paths.iter().zip(&self.names).map(one).collect()
    }
}

impl Shards for Files {
    type Batch = Rows;

    fn names(&self) -> &[String] {
        &self.names
    }

    fn open(&self, shard: usize, skip: u64, size: u64) -> Result<Box<dyn ReadShard<Rows>>> {
        let path = &self.paths[shard];
        let skip = skip * size;
        let wrong = |what: &str| {
            let message =
                format!("{} has {what}, and recordings are in columns of Parquet or Arrow", path.display());
            Err(Error::new(ErrorKind::Config, message))
        };
        match (self.kinds[shard], &self.want) {
            (Kind::Parquet, Want::Recordings { column, allow_paths }) => {
                let options = ParquetOptions {
                    payload: crate::source::Payload::Audio(column.clone()),
                    allow_paths: allow_paths.clone(),
                    ..ParquetOptions::audio()
                };
                let source = Arc::new(ParquetSource::open(
                    std::slice::from_ref(path),
                    &options,
                    &AtomicBool::new(false),
                )?);
                let rows = source.n_rows();
                Ok(Box::new(Recordings { reader: source.reader(), next: skip, rows, size }))
            }
            (Kind::Arrow, Want::Recordings { column, allow_paths }) => {
                let options = ArrowOptions {
                    audio_column: column.clone(),
                    allow_paths: allow_paths.clone(),
                    threads: 1,
                    ..ArrowOptions::default()
                };
                let source = Arc::new(ArrowSource::open(
                    std::slice::from_ref(path),
                    &options,
                    &AtomicBool::new(false),
                )?);
                if let Some(damage) = source.shards().first().and_then(|shard| shard.damage.clone()) {
                    return Err(damage);
                }
                let rows = source.n_rows();
                Ok(Box::new(Recordings { reader: source.reader(), next: skip, rows, size }))
            }
            (Kind::Json, Want::Recordings { .. }) => wrong("JSON"),
            (Kind::Text, Want::Recordings { .. }) => wrong("lines"),
            (Kind::Parquet, _) => Table::parquet(path, self.columns(), skip, size),
            (Kind::Arrow, _) => Table::arrow(path, self.columns(), skip, size),
            (kind, _) => Lines::open(path, kind, skip, size),
        }
    }
}

impl Files {
    fn columns(&self) -> Option<&[String]> {
        match &self.want {
            Want::Columns(columns) => Some(columns),
            _ => None,
        }
    }
}

/// A name without the ending of a compression, and that ending.
fn split_packing(path: &Path) -> (&Path, Option<&str>) {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some(packing @ ("gz" | "zst")) => (Path::new(path.file_stem().unwrap_or_default()), Some(packing)),
        _ => (path, None),
    }
}

fn kind_of(path: &Path) -> Result<Kind> {
    let mut start = [0; 8];
    let n = open(path)?.read(&mut start).map_err(|error| Error::io(path, "read", error))?;
    let (plain, packing) = split_packing(path);
    let ending =
        plain.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    let kind = match (&ending[..], packing) {
        ("jsonl" | "ndjson" | "json", _) => Some(Kind::Json),
        ("txt" | "text", _) => Some(Kind::Text),
        (_, Some(_)) => None,
        ("parquet", None) => Some(Kind::Parquet),
        ("arrow" | "feather", None) => Some(Kind::Arrow),
        _ if start[..n].starts_with(b"PAR1") => Some(Kind::Parquet),
        _ if start[..n].starts_with(b"ARROW1") || start[..n].starts_with(&[0xFF; 4]) => Some(Kind::Arrow),
        _ => None,
    };
    kind.ok_or_else(|| {
        let message = format!(
            "{} is no shard that is read; expected .parquet, .arrow, or lines in .jsonl or .txt, these also with .gz or .zst",
            path.display()
        );
        Error::new(ErrorKind::Config, message)
    })
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

/// Batches as a file has them.
type Tables = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;

/// Reads a table.
struct Table {
    tables: Tables,
    /// What is left of the batch that was read last.
    rest: Option<RecordBatch>,
    size: u64,
    /// Rows that are yet to be passed over.
    skip: u64,
    read: u64,
    rows: Option<u64>,
}

impl Table {
    fn parquet(
        path: &Path,
        columns: Option<&[String]>,
        skip: u64,
        size: u64,
    ) -> Result<Box<dyn ReadShard<Rows>>> {
        let damaged =
            |error| Error::new(ErrorKind::Format, format!("cannot read {}", path.display())).because(error);
        let file = open(path)?;
        let builder = guarded(|| ParquetRecordBatchReaderBuilder::try_new(file))?.map_err(damaged)?;
        let places = places(builder.schema(), columns)?;
        let rows = builder.metadata().file_metadata().num_rows().max(0) as u64;
        let mask = ProjectionMask::roots(
            builder.parquet_schema(),
            places.unwrap_or_else(|| (0..builder.schema().fields().len()).collect()),
        );
        let builder = builder.with_projection(mask).with_batch_size(size as usize).with_offset(skip as usize);
        let tables: Tables = Box::new(guarded(|| builder.build())?.map_err(damaged)?);
        Ok(Box::new(Self { tables, rest: None, size, skip: 0, read: skip, rows: Some(rows) }))
    }

    fn arrow(
        path: &Path,
        columns: Option<&[String]>,
        skip: u64,
        size: u64,
    ) -> Result<Box<dyn ReadShard<Rows>>> {
        let damaged =
            |error| Error::new(ErrorKind::Format, format!("cannot read {}", path.display())).because(error);
        let is_file = {
            let mut start = [0; 6];
            open(path)?.read_exact(&mut start).is_ok() && &start == b"ARROW1"
        };
        let tables = |places| -> Result<(SchemaRef, Tables), ArrowError> {
            let file = BufReader::with_capacity(1 << 20, fs::File::open(path)?);
            Ok(if is_file {
                let reader = FileReader::try_new(file, places)?;
                (reader.schema(), Box::new(reader) as Tables)
            } else {
                let reader = StreamReader::try_new(file, places)?;
                (RecordBatchReader::schema(&reader), Box::new(reader) as Tables)
            })
        };
        let (schema, all) = guarded(|| tables(None))?.map_err(damaged)?;
        let tables = match places(&schema, columns)? {
            None => all,
            some => guarded(|| tables(some))?.map_err(damaged)?.1,
        };
        Ok(Box::new(Self { tables, rest: None, size, skip, read: 0, rows: None }))
    }
}

/// The places of the columns in a schema; None for all.
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

impl ReadShard<Rows> for Table {
    fn next(&mut self, _skips: &mut Skips<'_>) -> Result<Option<Rows>> {
        let (mut batch, mut missing) = (Vec::new(), self.size as usize);
        while missing > 0 {
            let table = match self.rest.take() {
                Some(table) => table,
                None => match guarded(|| self.tables.next())? {
                    Some(table) => table.map_err(|error| {
                        Error::new(ErrorKind::Corrupt, "the shard is damaged").because(error)
                    })?,
                    None => break,
                },
            };
            let passed = self.skip.min(table.num_rows() as u64) as usize;
            self.skip -= passed as u64;
            let n = (table.num_rows() - passed).min(missing);
            self.read += (passed + n) as u64;
            let behind = table.num_rows() - passed - n;
            if behind > 0 {
                self.rest = Some(table.slice(passed + n, behind));
            }
            if n > 0 {
                batch.push(table.slice(passed, n));
                missing -= n;
            }
        }
        Ok((!batch.is_empty()).then_some(Rows::Table(batch)))
    }

    fn part(&self) -> Option<f64> {
        self.rows.map(|rows| self.read as f64 / rows.max(1) as f64)
    }
}

/// Reads lines.
struct Lines {
    lines: Box<dyn BufRead + Send>,
    is_json: bool,
    size: u64,
    line: u64,
}

impl Lines {
    fn open(path: &Path, kind: Kind, skip: u64, size: u64) -> Result<Box<dyn ReadShard<Rows>>> {
        let file = open(path)?;
        let bytes: Box<dyn Read + Send> = match split_packing(path).1 {
            Some("gz") => Box::new(flate2::read::MultiGzDecoder::new(file)),
            Some(_) => {
                let reader = zstd::stream::read::Decoder::new(file);
                Box::new(reader.map_err(|error| Error::io(path, "decompress", error))?)
            }
            None => Box::new(file),
        };
        let lines = Box::new(BufReader::with_capacity(1 << 20, bytes));
        let mut lines = Self { lines, is_json: kind == Kind::Json, size, line: 0 };
        for _ in 0..skip {
            if lines.read()?.is_none() {
                break;
            }
        }
        Ok(Box::new(lines))
    }

    /// The next line without its end, or what is wrong with it alone; of JSON the next that is not blank.
    fn read(&mut self) -> Result<Option<Result<String>>> {
        loop {
            let mut line = Vec::new();
            let n = self.lines.read_until(b'\n', &mut line).map_err(|error| {
                let kind = match error.kind() {
                    io::ErrorKind::InvalidData
                    | io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::InvalidInput => ErrorKind::Corrupt,
                    _ => ErrorKind::Io,
                };
                Error::new(kind, format!("line {} cannot be read", self.line + 1)).because(error)
            })?;
            if n == 0 {
                return Ok(None);
            }
            self.line += 1;
            if line.pop_if(|byte| *byte == b'\n').is_some() {
                line.pop_if(|byte| *byte == b'\r');
            }
            if !self.is_json || !line.trim_ascii().is_empty() {
                return Ok(Some(String::from_utf8(line).map_err(|error| {
                    let message = format!("line {} cannot be read as UTF-8", self.line);
                    Error::new(ErrorKind::Corrupt, message).because(error.utf8_error())
                })));
            }
        }
    }

    fn parse(&self, line: &str) -> Result<Value> {
        serde_json::from_str(line).map_err(|error| {
            Error::new(ErrorKind::Corrupt, format!("line {} is not JSON", self.line)).because(error)
        })
    }
}

impl ReadShard<Rows> for Lines {
    fn next(&mut self, skips: &mut Skips<'_>) -> Result<Option<Rows>> {
        let mut rows = if self.is_json { Rows::Json(Vec::new()) } else { Rows::Text(Vec::new()) };
        let mut n = 0;
        while n < self.size {
            let Some(line) = self.read()? else { break };
            let kept = line.and_then(|line| {
                match &mut rows {
                    Rows::Json(values) => values.push(self.parse(&line)?),
                    Rows::Text(lines) => lines.push(line),
                    _ => {}
                }
                Ok(())
            });
            kept.or_else(|error| skips.unread(n, error))?;
            n += 1;
        }
        Ok((n > 0).then_some(rows))
    }
}

/// Reads recordings.
struct Recordings<R> {
    reader: R,
    next: u64,
    rows: u64,
    size: u64,
}

impl<R: ReadRecords> ReadShard<Rows> for Recordings<R> {
    fn next(&mut self, skips: &mut Skips<'_>) -> Result<Option<Rows>> {
        let n = self.size.min(self.rows.saturating_sub(self.next));
        let mut records = Vec::with_capacity(n as usize);
        for row in self.next..self.next + n {
            match self.reader.read(row, self.rows - row, &|_, _| None) {
                Ok(record) => records.push(record),
                Err(error) => skips.unread(row - self.next, error)?,
            }
        }
        self.next += n;
        Ok((n > 0).then_some(Rows::Recordings(records)))
    }

    fn part(&self) -> Option<f64> {
        Some(self.next as f64 / self.rows.max(1) as f64)
    }
}

impl Rows {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Table(tables) => tables.iter().map(RecordBatch::num_rows).sum(),
            Self::Json(values) => values.len(),
            Self::Text(lines) => lines.len(),
            Self::Recordings(records) => records.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
