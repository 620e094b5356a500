//! [`IdFiles`]: rows of token ids in files that hold nothing else: `.bin` with `.idx` of Megatron-LM, `.npy`.
//!
//! Input: paths. Output: the bytes of a row's ids, as they are in the file. Opening reads headers only; the
//! place of a row is read with the row. So neither memory nor time depends on what a header claims, beyond
//! the rows that are asked for.
//!
//! | file | a row |
//! |---|---|
//! | `a.bin` or `a.idx`, a pair | a document: its sequences, which follow one another |
//! | `a.npy` of two dimensions | a row of the array |
//! | `a.npy` of one dimension | all of it |
//!
//! Source: `.idx` as `IndexedDatasetBuilder` of Megatron-Core writes it: magic, version, a code for the
//! type, the numbers of sequences and of bounds of documents, then the lengths of sequences (int32), their
//! places in the `.bin` in bytes (int64) and the bounds (int64). `.npy`: NEP 1.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use super::{DocumentForm, DocumentRequest};
use crate::{
    Error, ErrorKind, RawRecord, ReadRequest, Result, StoredPayload, cancel,
    contract::ReadRecords,
    fallible_alloc,
    ids::IdType,
    open_files::{FileSet, OpenFiles},
    parallel,
    record_rules::{MAX_RECORD_BYTES, check_record_bytes},
    row_files::{DocumentFiles, DynReader},
    shard::check_rows,
    storage::{CountedStorage, Storage, StoredFile, Version},
    urls,
};

const GROUP_ROWS: u64 = 256;
/// The bytes that are read at a time of an index, and of ids.
const INDEX_PIECE: usize = 64 << 10;
const PIECE: usize = 1 << 20;

const INDEX_MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
/// Magic, version, type, and two numbers.
const INDEX_HEAD: u64 = 34;
const ARRAY_MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The longest header of an array.
const MOST_HEADER: u64 = 64 << 10;

/// Where the rows of a file are.
#[derive(Debug, Clone)]
enum Rows {
    Index { path: Arc<Path>, version: Version, n_sequences: u64, has_documents: bool },
    Array { begin: u64, row_bytes: u64 },
}

#[derive(Debug)]
struct IdFile {
    version: Version,
    id_type: IdType,
    rows: Rows,
    n_rows: u64,
}

#[derive(Debug)]
pub(super) struct IdFiles {
    files: FileSet,
    tables: Vec<IdFile>,
    max_record_bytes: u64,
}

impl IdFiles {
    /// Opens files: reads their headers.
    ///
    /// # Errors
    /// The first in the order of the files: [`ErrorKind::Format`], [`ErrorKind::Truncated`] for a file that
    /// is shorter than it says, [`ErrorKind::Unsupported`] for another type, those of [`StoredFile`].
    pub(super) fn open(storage: Arc<dyn Storage>, paths: &[PathBuf], max_record_bytes: u64) -> Result<Self> {
        let (storage, traffic) = CountedStorage::over(storage);
        let paths: Vec<Arc<Path>> = paths.iter().map(|path| Arc::from(data_path(path))).collect();
        let threads = urls::threads_for(&paths, 8);
        let tables = parallel::each("forebay-index", &paths, threads, |path| {
            cancel::check("opening")?;
            IdFile::open(&storage, path).map_err(|error| error.in_shard(path))
        })?;
        let rows = tables.iter().map(|file| (file.n_rows, file.version.size, None));
        let files = FileSet::new((storage, traffic), paths.iter().zip(rows))?;
        Ok(Self { files, tables, max_record_bytes })
    }

    pub(super) fn reader(self: &Arc<Self>) -> IdFilesReader {
        IdFilesReader { source: Arc::clone(self), open: None }
    }
}

impl OpenFiles for IdFiles {
    fn file_set(&self) -> &FileSet {
        &self.files
    }
}

impl DocumentFiles for IdFiles {
    fn group_rows(&self, shard: usize) -> Box<dyn Iterator<Item = u64> + '_> {
        let n_rows = self.shards()[shard].n_rows;
        let groups = 0..n_rows.div_ceil(GROUP_ROWS);
        Box::new(groups.map(move |group| GROUP_ROWS.min(n_rows - group * GROUP_ROWS)))
    }

    fn document_reader(self: Arc<Self>) -> Box<dyn DynReader> {
        Box::new(self.reader())
    }
}

/// Opens files of token ids.
///
/// # Errors
/// As [`IdFiles::open`].
pub(super) fn open_documents(
    storage: Arc<dyn Storage>,
    paths: &[PathBuf],
    request: &DocumentRequest<'_>,
) -> Result<(Arc<dyn DocumentFiles>, DocumentForm)> {
    let files = IdFiles::open(storage, paths, MAX_RECORD_BYTES)?;
    Ok((Arc::new(files), request.content.form_of_values(request.column)))
}

/// The file of ids that a path stands for.
fn data_path(path: &Path) -> PathBuf {
    match path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("idx")) {
        true => path.with_extension("bin"),
        false => path.to_owned(),
    }
}

fn is_array(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npy"))
}

impl IdFile {
    fn open(storage: &Arc<dyn Storage>, path: &Arc<Path>) -> Result<Self> {
        let file = StoredFile::open(storage, path)?;
        if is_array(path) { Self::array(&file) } else { Self::indexed(storage, &file) }
    }

    fn indexed(storage: &Arc<dyn Storage>, file: &StoredFile) -> Result<Self> {
        let path: Arc<Path> = file.path().with_extension("idx").into();
        let index = StoredFile::open(storage, &path)?;
        let placed = |error: Error| error.in_shard(&path);
        let mut head = [0; INDEX_HEAD as usize];
        index.read_exact(&mut head, 0).map_err(placed)?;
        let wrong = |kind, message: String| Err(placed(Error::new(kind, message)));
        let (magic, rest) = head.split_at(INDEX_MAGIC.len());
        if magic != INDEX_MAGIC {
            let message = "it is no index of Megatron-LM, which begins with MMIDIDX".to_owned();
            return wrong(ErrorKind::Format, message);
        }
        let number = |at: usize| rest[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (version, code, n_sequences, n_bounds) = (number(0), rest[8], number(9), number(17));
        if version != 1 {
            return wrong(ErrorKind::Unsupported, format!("the index has version {version}, expected 1"));
        }
        let Some(id_type) = IdType::of_megatron(code) else {
            let message = format!("the index has the type {code}, expected integers (1 to 5, or 8)");
            return wrong(ErrorKind::Unsupported, message);
        };
        let needed = n_sequences.checked_mul(12).zip(n_bounds.checked_mul(8));
        let needed = needed.and_then(|(a, b)| a.checked_add(b)?.checked_add(INDEX_HEAD));
        if needed.is_none_or(|needed| needed > index.size()) {
            let message = format!(
                "the index claims {n_sequences} sequences and {n_bounds} bounds of documents, and has {} bytes",
                index.size()
            );
            return wrong(ErrorKind::Truncated, message);
        }
        let has_documents = n_bounds > 1;
        let n_rows = if has_documents { n_bounds - 1 } else { n_sequences };
        let rows = Rows::Index { path, version: index.version(), n_sequences, has_documents };
        Ok(Self { version: file.version(), id_type, rows, n_rows })
    }

    fn array(file: &StoredFile) -> Result<Self> {
        let mut head = [0; 12];
        file.read_exact(&mut head, 0)?;
        let wrong = |kind, message: String| Err(Error::new(kind, message));
        if !head.starts_with(ARRAY_MAGIC) {
            return wrong(ErrorKind::Format, "it is no array of numpy".to_owned());
        }
        let (from, len) = match head[6] {
            1 => (10, u64::from(u16::from_le_bytes([head[8], head[9]]))),
            2 | 3 => (12, u64::from(u32::from_le_bytes([head[8], head[9], head[10], head[11]]))),
            other => {
                let message = format!("the array has format version {other}, expected 1 to 3");
                return wrong(ErrorKind::Unsupported, message);
            }
        };
        if len > MOST_HEADER {
            let message = format!("the header of the array has {len} bytes, at most {MOST_HEADER} are read");
            return wrong(ErrorKind::TooLarge, message);
        }
        let mut header = fallible_alloc::zero_bytes(len as usize)?;
        file.read_exact(&mut header, from)?;
        let header = String::from_utf8_lossy(&header);
        let Some(ArrayHeader { descr, is_fortran, shape }) = ArrayHeader::of(&header) else {
            let message = format!(
                "the header of the array is {:?}, expected a dict with descr, fortran_order and shape, as numpy.save writes it",
                header.trim_end().chars().take(200).collect::<String>()
            );
            return wrong(ErrorKind::Format, message);
        };
        let Some(id_type) = IdType::of_numpy(&descr) else {
            let message = format!("the array is {descr:?}, expected integers in little-endian order");
            return wrong(ErrorKind::Unsupported, message);
        };
        let (n_rows, n_ids) = match shape[..] {
            [n] => (1, n),
            [n_rows, n] if !is_fortran => (n_rows, n),
            [..] => {
                let message = format!(
                    "the array has the shape {shape:?}{}, expected one or two dimensions in C order",
                    if is_fortran { " in Fortran order" } else { "" }
                );
                return wrong(ErrorKind::Unsupported, message);
            }
        };
        let begin = from + len;
        let row_bytes = n_ids.checked_mul(id_type.bytes() as u64);
        let end = row_bytes.and_then(|bytes| bytes.checked_mul(n_rows)?.checked_add(begin));
        let Some(row_bytes) = row_bytes.filter(|_| end.is_some_and(|end| end <= file.size())) else {
            let message =
                format!("the array claims the shape {shape:?}, and the file has {} bytes", file.size());
            return wrong(ErrorKind::Truncated, message);
        };
        // Rows without ids need no bytes.
        check_rows(n_rows, file.size())?;
        let rows = Rows::Array { begin, row_bytes };
        Ok(Self { version: file.version(), id_type, rows, n_rows })
    }
}

/// What the header of an array says.
struct ArrayHeader {
    descr: String,
    is_fortran: bool,
    shape: Vec<u64>,
}

impl ArrayHeader {
    /// Reads a literal of Python such as `{'descr': '<i4', 'fortran_order': False, 'shape': (3, 4), }`.
    fn of(header: &str) -> Option<Self> {
        let value = |name: &str| {
            let (_, rest) = header.split_once(&format!("'{name}'"))?;
            rest.trim_start().strip_prefix(':').map(str::trim_start)
        };
        let descr = value("descr")?.strip_prefix('\'')?.split_once('\'')?.0.to_owned();
        let order = value("fortran_order")?;
        let is_fortran = order.starts_with("True");
        if !is_fortran && !order.starts_with("False") {
            return None;
        }
        let (shape, _) = value("shape")?.strip_prefix('(')?.split_once(')')?;
        let numbers = shape.split(',').map(str::trim).filter(|number| !number.is_empty());
        Some(Self {
            descr,
            is_fortran,
            shape: numbers.map(|number| number.parse().ok()).collect::<Option<_>>()?,
        })
    }
}

/// A part of a file in memory.
#[derive(Debug, Default)]
struct IdsPiece {
    at: u64,
    bytes: Bytes,
}

impl IdsPiece {
    /// The bytes of a range, of which at least the range, and up to `ahead` bytes, are read.
    fn get(&mut self, file: &StoredFile, range: Range<u64>, ahead: usize) -> Result<Bytes> {
        let len = range.end - range.start;
        let is_here = range.start >= self.at && range.end - self.at <= self.bytes.len() as u64;
        if !is_here {
            let room = file.size().saturating_sub(range.start).min(len.max(ahead as u64));
            let mut bytes = fallible_alloc::zero_bytes(room.max(len) as usize)?;
            file.read_exact(&mut bytes, range.start)?;
            *self = Self { at: range.start, bytes: bytes.into() };
        }
        let from = (range.start - self.at) as usize;
        Ok(self.bytes.slice(from..from + len as usize))
    }
}

/// A file that is open, and what of it is in memory.
struct OpenIds {
    shard: usize,
    file: StoredFile,
    index: Option<StoredFile>,
    ids: IdsPiece,
    /// Parts of the lengths, the places and the bounds in the index.
    parts: [IdsPiece; 3],
}

/// Reads rows of ids, for one thread.
pub(super) struct IdFilesReader {
    source: Arc<IdFiles>,
    open: Option<OpenIds>,
}

impl std::fmt::Debug for IdFilesReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdFilesReader").finish_non_exhaustive()
    }
}

impl ReadRecords for IdFilesReader {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;

    /// Reads one row.
    ///
    /// # Errors
    /// Of the record: [`ErrorKind::Corrupt`] if the index places it outside of the file,
    /// [`ErrorKind::TooLarge`], [`ErrorKind::Empty`]. Of the run: [`ErrorKind::Io`] after retries or if the
    /// file was replaced, [`ErrorKind::NotFound`].
    ///
    /// # Panics
    /// If there is no such row.
    fn read(&mut self, row: u64, run: u64, _request: &dyn ReadRequest) -> Result<RawRecord> {
        let (shard, local) = self.source.locate(row);
        self.read_local(shard, local, run)
            .map_err(|error| error.in_shard(&self.source.shards()[shard].path).at_row(local))
    }
}

impl IdFilesReader {
    fn read_local(&mut self, shard: usize, local: u64, run: u64) -> Result<RawRecord> {
        let IdFiles { files: FileSet { storage, shards, .. }, tables, max_record_bytes } = &*self.source;
        let file = &tables[shard];
        let open = match &mut self.open {
            Some(open) if open.shard == shard => open,
            open => {
                let ids = StoredFile::reopen(storage, &shards[shard].path, file.version)?;
                let index = match &file.rows {
                    Rows::Index { path, version, .. } => Some(StoredFile::reopen(storage, path, *version)?),
                    Rows::Array { .. } => None,
                };
                open.insert(OpenIds {
                    shard,
                    file: ids,
                    index,
                    ids: IdsPiece::default(),
                    parts: Default::default(),
                })
            }
        };
        let range = open.place(file, local)?;
        let size = open.file.size();
        if range.start > range.end || range.end > size {
            let message = format!(
                "the index places the row at the bytes {} to {}, and the file has {size}",
                range.start, range.end
            );
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let len = range.end - range.start;
        if len == 0 {
            return Err(Error::new(ErrorKind::Empty, "the row has no ids"));
        }
        check_record_bytes(len, *max_record_bytes)?;
        let bytes = if run > 1 && len <= PIECE as u64 {
            open.ids.get(&open.file, range, PIECE)?
        } else {
            let mut bytes = fallible_alloc::zero_bytes(len as usize)?;
            open.file.read_exact(&mut bytes, range.start)?;
            bytes.into()
        };
        Ok(RawRecord::new(bytes, file.id_type.row()))
    }
}

impl OpenIds {
    /// The bytes of a row in the file.
    fn place(&mut self, file: &IdFile, local: u64) -> Result<Range<u64>> {
        let (n_sequences, has_documents) = match file.rows {
            Rows::Array { begin, row_bytes } => {
                return Ok(begin + local * row_bytes..begin + (local + 1) * row_bytes);
            }
            Rows::Index { n_sequences, has_documents, .. } => (n_sequences, has_documents),
        };
        let sequences = match has_documents {
            false => local..local + 1,
            true => self.number(2, n_sequences, local)?..self.number(2, n_sequences, local + 1)?,
        };
        if sequences.start > sequences.end || sequences.end > n_sequences {
            let message = format!(
                "the index gives the document the sequences {} to {}, and has {n_sequences}",
                sequences.start, sequences.end
            );
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        if sequences.is_empty() {
            return Ok(0..0);
        }
        let begin = self.number(1, n_sequences, sequences.start)?;
        let last = sequences.end - 1;
        let end = self.number(1, n_sequences, last)?;
        let len = self.number(0, n_sequences, last)?;
        Ok(begin..end.saturating_add(len.saturating_mul(file.id_type.bytes() as u64)))
    }

    /// Number `at` of the lengths, the places or the bounds; a negative one is far beyond the file.
    fn number(&mut self, part: usize, n_sequences: u64, at: u64) -> Result<u64> {
        let Some(index) = &self.index else { return Ok(0) };
        let (begin, width) = match part {
            0 => (INDEX_HEAD, 4),
            1 => (INDEX_HEAD + 4 * n_sequences, 8),
            _ => (INDEX_HEAD + 12 * n_sequences, 8),
        };
        let from = begin + width * at;
        let bytes = self.parts[part].get(index, from..from + width, INDEX_PIECE)?;
        Ok(match bytes[..] {
            [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
            _ => bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)),
        })
    }
}
