//! [`LinesSource`]: rows that are lines of text files, plain or compressed.
//!
//! Input: paths. Output: the bytes of lines by row number, without their ends. Lines of blanks alone are no
//! rows. What is in a line is for the caller to say.
//!
//! A reader has one file open and reads on from where it is; it begins again at the start of a row's
//! [group](super::line_index) if the row is elsewhere. The blocks of rows that it read last are kept, since a
//! packer's documents are read again when a run continues. Memory is [`MOST_KEPT`] bytes, and one line.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use super::line_index::{LineGroup, LineIndex};
use crate::{
    Error, ErrorKind, RawRecord, ReadRequest, Result, StoredPayload, cancel,
    compression::Compression,
    contract::ReadRecords,
    fallible_alloc,
    fields::Row,
    files::text_input::{FileBytes, read_some, unread},
    open_files::{FileSet, OpenFiles},
    parallel,
    ranged::sidecar::Sidecars,
    record_rules::check_record_bytes,
    row_files::{DocumentFiles, DynReader},
    shard::check_rows,
    storage::{CountedStorage, Storage, StoredFile},
    urls,
};

/// The rows and the bytes after which a block ends.
const BLOCK_ROWS: usize = 256;
const BLOCK_BYTES: usize = 1 << 20;
/// The bytes that are read at a time.
const PIECE: usize = 256 << 10;
/// The blocks that are kept, and their bytes.
const MOST_BLOCKS: usize = 64;
const MOST_KEPT: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct LinesSource {
    files: FileSet,
    indexes: Vec<LineIndex>,
    max_record_bytes: u64,
}

impl LinesSource {
    /// Opens files: reads each once, from start to end, unless its index was kept.
    ///
    /// # Errors
    /// The first in the order of the files: [`ErrorKind::Corrupt`] or [`ErrorKind::Truncated`] for a damaged
    /// stream without a row before the damage, those of [`LineIndex::of`].
    pub(super) fn open(storage: Arc<dyn Storage>, paths: &[PathBuf], max_record_bytes: u64) -> Result<Self> {
        let (storage, traffic) = CountedStorage::over(storage);
        let paths: Vec<Arc<Path>> = paths.iter().map(|path| Arc::from(path.as_path())).collect();
        let threads = urls::threads_for(&paths, 8);
        let sidecars = Sidecars::of_user();
        let indexes = parallel::each("forebay-index", &paths, threads, |path| {
            cancel::check("opening")?;
            let found = LineIndex::of(&storage, path, &sidecars).map_err(|error| error.in_shard(path))?;
            let n_rows = found.groups.iter().map(|group| group.n_rows).sum();
            check_rows(n_rows, found.version.size).map_err(|error| error.in_shard(path))?;
            match found.damage {
                Some(damage) if n_rows == 0 => Err(damage.in_shard(path)),
                damage => Ok(LineIndex { damage: damage.map(|damage| damage.in_shard(path)), ..found }),
            }
        })?;
        let of = |index: &LineIndex| {
            let n_rows = index.groups.iter().map(|group| group.n_rows).sum();
            (n_rows, index.version.size, index.damage.clone())
        };
        let files = FileSet::new((storage, traffic), paths.iter().zip(indexes.iter().map(of)))?;
        files.warn_of_damage();
        Ok(Self { files, indexes, max_record_bytes })
    }

    pub(super) fn reader(self: &Arc<Self>) -> LinesReader {
        LinesReader { source: Arc::clone(self), starts: None, stream: None, blocks: VecDeque::new() }
    }
}

impl OpenFiles for LinesSource {
    fn file_set(&self) -> &FileSet {
        &self.files
    }
}

impl DocumentFiles for LinesSource {
    fn group_rows(&self, shard: usize) -> Box<dyn Iterator<Item = u64> + '_> {
        Box::new(self.indexes[shard].groups.iter().map(|group| group.n_rows))
    }

    fn document_reader(self: Arc<Self>) -> Box<dyn DynReader> {
        Box::new(self.reader())
    }
}

pub(super) struct LinesReader {
    source: Arc<LinesSource>,
    /// A shard, and the first row of each of its groups.
    starts: Option<(usize, Vec<u64>)>,
    stream: Option<LineStream>,
    /// The blocks read last; the newest is the last.
    blocks: VecDeque<Block>,
}

impl std::fmt::Debug for LinesReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinesReader").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}

/// Some neighbouring rows of a shard.
struct Block {
    shard: usize,
    /// The number of the first one in its shard.
    first: u64,
    text: Bytes,
    rows: Vec<BlockRow>,
}

enum BlockRow {
    /// The place in the block's text.
    In(Range<usize>),
    /// A long line, in memory of its own.
    Alone(Bytes),
    /// The bytes of a line that is longer than is allowed.
    TooLong(u64),
}

impl Block {
    fn n_bytes(&self) -> usize {
        let alone = |row: &BlockRow| if let BlockRow::Alone(bytes) = row { bytes.len() } else { 0 };
        self.text.len() + self.rows.iter().map(alone).sum::<usize>()
    }

    fn row(&self, shard: usize, local: u64) -> Option<&BlockRow> {
        let at = local.checked_sub(self.first).filter(|_| self.shard == shard)?;
        self.rows.get(usize::try_from(at).ok()?)
    }
}

impl ReadRecords for LinesReader {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;

    /// Reads one line.
    ///
    /// # Errors
    /// Of the record: [`ErrorKind::TooLarge`], [`ErrorKind::Truncated`], [`ErrorKind::Corrupt`]. Of the run:
    /// [`ErrorKind::Io`] after retries or if the file was replaced, [`ErrorKind::NotFound`].
    ///
    /// # Panics
    /// If there is no such row.
    fn read(&mut self, row: u64, run: u64, _request: &dyn ReadRequest) -> Result<RawRecord> {
        let (shard, local) = self.source.locate(row);
        self.read_local(shard, local, run)
            .map_err(|error| error.in_shard(&self.source.shards()[shard].path).at_row(local))
    }
}

impl LinesReader {
    fn read_local(&mut self, shard: usize, local: u64, run: u64) -> Result<RawRecord> {
        let most = self.source.max_record_bytes;
        if self.blocks.iter().all(|block| block.row(shard, local).is_none()) {
            self.advance(shard, local)?;
        }
        let found = self.blocks.iter().rev().find_map(|block| Some((block, block.row(shard, local)?)));
        let bytes = match found {
            Some((block, BlockRow::In(place))) if run > 1 => block.text.slice(place.clone()),
            // A row that was requested alone would keep its whole block.
            Some((block, BlockRow::In(place))) => fallible_alloc::copy(&block.text[place.clone()])?.into(),
            Some((_, BlockRow::Alone(bytes))) => bytes.clone(),
            Some((_, BlockRow::TooLong(n))) => return Err(too_long(*n, most)),
            None => return Err(fewer_lines()),
        };
        Ok(RawRecord::new(bytes, Row::new()))
    }

    /// Reads on to the block with a row, which becomes the newest one.
    fn advance(&mut self, shard: usize, local: u64) -> Result<()> {
        let index = &self.source.indexes[shard];
        if self.starts.as_ref().is_none_or(|(known, _)| *known != shard) {
            let mut first = 0;
            let mut starts = fallible_alloc::with_room(index.groups.len())?;
            for group in &index.groups {
                starts.push(first);
                first += group.n_rows;
            }
            self.starts = Some((shard, starts));
        }
        let starts = self.starts.as_ref().map_or(&[][..], |(_, starts)| starts);
        let group = starts.partition_point(|&first| first <= local) - 1;
        let begin = starts[group];
        let goes_on =
            |stream: &&mut LineStream| stream.shard == shard && (begin..=local).contains(&stream.next);
        if self.stream.as_mut().filter(goes_on).is_none() {
            let path = &self.source.shards()[shard].path;
            let file = StoredFile::reopen(&self.source.files.storage, path, index.version)?;
            self.stream = Some(LineStream::open(file, index.groups[group], (shard, begin))?);
        }
        let most = self.source.max_record_bytes;
        while let Some(stream) = &mut self.stream {
            cancel::check("the read")?;
            let block = match stream.block(most) {
                Ok(block) if !block.rows.is_empty() => block,
                Ok(_) => break,
                Err(error) => {
                    self.stream = None;
                    return Err(error);
                }
            };
            let is_found = block.row(shard, local).is_some();
            self.blocks.push_back(block);
            let mut held: usize = self.blocks.iter().map(Block::n_bytes).sum();
            while self.blocks.len() > 1 && (held > MOST_KEPT || self.blocks.len() > MOST_BLOCKS) {
                held -= self.blocks.pop_front().map_or(0, |block| block.n_bytes());
            }
            if is_found {
                return Ok(());
            }
        }
        self.stream = None;
        Err(fewer_lines())
    }
}

fn fewer_lines() -> Error {
    let message = "the file has fewer lines than when it was opened; open it again";
    Error::new(ErrorKind::Truncated, message)
}

fn too_long(n: u64, most: u64) -> Error {
    match check_record_bytes(n, most) {
        Err(error) => error,
        Ok(()) => Error::new(ErrorKind::TooLarge, format!("the line has more than {n} bytes")),
    }
}

/// The lines of a file from some row on.
struct LineStream {
    shard: usize,
    /// The number of the next row in its shard.
    next: u64,
    bytes: Box<dyn Read + Send>,
    compression: Option<Compression>,
    size: u64,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    /// What was read of a line that goes on.
    line: Vec<u8>,
    /// The damage behind the rows that were returned.
    damage: Option<Error>,
}

impl LineStream {
    fn open(file: StoredFile, group: LineGroup, (shard, next): (usize, u64)) -> Result<Self> {
        let (size, compression) = (file.size(), Compression::split(file.path()).1);
        let file = FileBytes::new(file, group.at);
        let bytes: Box<dyn Read + Send> = match compression {
            None => Box::new(file),
            Some(compression) => {
                // bounded: a constant.
                let bytes = compression.decoder(BufReader::with_capacity(PIECE, file));
                bytes.map_err(|error| unread(error, Some(compression), size))?
            }
        };
        let buffer = fallible_alloc::filled(PIECE, 0)?;
        let mut stream = Self {
            shard,
            next,
            bytes,
            compression,
            size,
            buffer,
            from: 0,
            to: 0,
            line: Vec::new(),
            damage: None,
        };
        let mut skip = group.skip;
        while skip > 0 && stream.fill()? {
            let n = skip.min((stream.to - stream.from) as u64);
            stream.from += n as usize;
            skip -= n;
        }
        Ok(stream)
    }

    /// Reads a piece if none is left; false at the end.
    fn fill(&mut self) -> Result<bool> {
        if self.from == self.to {
            if let Some(damage) = &self.damage {
                return Err(damage.clone());
            }
            cancel::check("the read")?;
            let n = read_some(&mut *self.bytes, &mut self.buffer);
            let n = n.map_err(|error| unread(error, self.compression, self.size))?;
            (self.from, self.to) = (0, n);
        }
        Ok(self.from < self.to)
    }

    /// The next rows; none at the end. Those before damage are returned first.
    fn block(&mut self, most: u64) -> Result<Block> {
        let mut text = fallible_alloc::with_room(PIECE)?;
        let (mut rows, first) = (Vec::new(), self.next);
        while rows.len() < BLOCK_ROWS && text.len() < BLOCK_BYTES {
            match self.line(&mut text, most) {
                Ok(Some(row)) => rows.extend(row),
                Ok(None) => break,
                Err(damage) if damage.kind.is_record() && !rows.is_empty() => {
                    self.damage = Some(damage);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        self.next += rows.len() as u64;
        Ok(Block { shard: self.shard, first, text: text.into(), rows })
    }

    /// Reads a line into `text`, or into memory of its own; `Some(None)` for blanks, `None` at the end.
    fn line(&mut self, text: &mut Vec<u8>, most: u64) -> Result<Option<Option<BlockRow>>> {
        self.line.clear();
        let (mut n, mut has_content) = (0u64, false);
        loop {
            if !self.fill()? {
                break;
            }
            let rest = &self.buffer[self.from..self.to];
            // `BufRead` of a slice finds a byte faster than a loop here.
            let len = { rest }.skip_until(b'\n').unwrap_or(rest.len());
            let part = &rest[..len];
            self.from += len;
            let has_end = part.ends_with(b"\n");
            if n == 0 && has_end {
                let line = trimmed(part);
                return Ok(Some(match part.trim_ascii_end().is_empty() {
                    true => None,
                    false if line.len() as u64 > most => Some(BlockRow::TooLong(line.len() as u64)),
                    false => Some(put(text, line)?),
                }));
            }
            has_content |= !part.trim_ascii().is_empty();
            n += len as u64;
            // A line of exactly the limit may be followed by its end.
            if n <= most.saturating_add(2) {
                fallible_alloc::grow(&mut self.line, len)?;
                self.line.extend_from_slice(part);
            }
            if has_end {
                break;
            }
        }
        if n == 0 {
            return Ok(None);
        }
        if !has_content {
            return Ok(Some(None));
        }
        let line = trimmed(&self.line);
        if self.line.len() as u64 != n || line.len() as u64 > most {
            self.line = Vec::new();
            return Ok(Some(Some(BlockRow::TooLong(n))));
        }
        if line.len() <= PIECE {
            return Ok(Some(Some(put(text, line)?)));
        }
        let len = line.len();
        let mut line = std::mem::take(&mut self.line);
        line.truncate(len);
        Ok(Some(Some(BlockRow::Alone(line.into()))))
    }
}

/// The line without its end.
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn put(text: &mut Vec<u8>, line: &[u8]) -> Result<BlockRow> {
    let from = text.len();
    fallible_alloc::grow(text, line.len())?;
    text.extend_from_slice(line);
    Ok(BlockRow::In(from..text.len()))
}
