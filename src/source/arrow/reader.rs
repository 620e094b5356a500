//! Reads rows: finds the batch, the value, and the block that it comes in.
//!
//! A row that is wanted alone costs one read of its range. Rows that will be wanted in order are read together, in blocks of
//! some 4 MiB, and handed out as slices of the block. A reader keeps open the files and batches that it used last, and the
//! current block; rows read alone leave that block in place, so both ways may be mixed.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use super::{ArrowSource, array::Array, buffer::Part, index::Span};
use crate::{
    Error, ErrorKind, Result,
    record::{Excerpt, HEAD_BYTES, NO_LABEL, RawRecord},
    source::{
        block::BlockPool,
        storage::{StoredFile, past_the_end},
    },
};

/// How many bytes are read together at most; a longer record is read alone.
const BLOCK: u64 = 4 << 20;
/// How many rows are looked at to fill a block; a guard where rows are empty.
const BLOCK_ROWS: u64 = 1 << 16;
/// The largest record.
const LARGEST_RECORD: u64 = i32::MAX as u64;
/// How many files stay open.
const OPEN_FILES: usize = 8;
/// Records of at least so many bytes may be read in parts; below, one read of all is as quick.
const SMALLEST_IN_PARTS: u64 = 256 << 10;
/// How many batches stay open, and how many of them where bodies are decompressed.
const OPEN_BATCHES: usize = 8;
const OPEN_COMPRESSED_BATCHES: usize = 2;

/// Reads rows of an [`ArrowSource`]; one per thread.
pub struct ArrowReader {
    source: Arc<ArrowSource>,
    /// The last used in front.
    files: Vec<(usize, StoredFile)>,
    /// The last used in front.
    batches: Vec<OpenBatch>,
    block: Option<HeldBlock>,
}

/// The columns of a batch.
struct OpenBatch {
    shard: usize,
    first_row: u64,
    n_rows: u64,
    audio_struct: Option<Array>,
    bytes: Option<Array>,
    path: Option<Array>,
    label: Option<Array>,
}

/// Bytes of a shard that were read together.
struct HeldBlock {
    shard: usize,
    at: u64,
    bytes: Bytes,
}

impl HeldBlock {
    fn slice(&self, shard: usize, span: Span) -> Option<Bytes> {
        let from = usize::try_from(span.at.checked_sub(self.at)?).ok()?;
        let end = from.checked_add(usize::try_from(span.len).ok()?)?;
        (shard == self.shard && end <= self.bytes.len()).then(|| self.bytes.slice(from..end))
    }
}

impl std::fmt::Debug for ArrowReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArrowReader").field("open_files", &self.files.len()).finish_non_exhaustive()
    }
}

impl ArrowReader {
    pub(crate) fn new(source: Arc<ArrowSource>) -> Self {
        Self { source, files: Vec::new(), batches: Vec::new(), block: None }
    }

    /// Reads one row. `run` says how many rows from this one on will be wanted next, in storage order: more than one
    /// lets the reader fetch a block of several MiB at once; one reads just this record's range.
    ///
    /// The bytes are a slice of a block that is used again when all of its slices are dropped.
    ///
    /// # Errors
    /// Of the record: [`ErrorKind::Truncated`] if its bytes or its label lie past the end of the shard, [`ErrorKind::Unreadable`] if bytes and
    /// path are null or the path leads nowhere, [`ErrorKind::Empty`], [`ErrorKind::TooLarge`], [`ErrorKind::Corrupt`] if the shard
    /// contradicts itself. Of the run: [`ErrorKind::Io`] after retries or if the shard was replaced, [`ErrorKind::NotFound`] if
    /// it was removed, [`ErrorKind::Schema`] for a label beyond int64.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn read(&mut self, row: u64, run: u64) -> Result<RawRecord> {
        self.read_excerpt(row, run, &|_, _| None)
    }

    /// The same, but of a large record that is not part of a block only its head and `excerpt` are read.
    ///
    /// # Errors
    /// As [`Self::read`].
    ///
    /// # Panics
    /// If there is no such row.
    pub fn read_excerpt(&mut self, row: u64, run: u64, excerpt: Excerpt<'_>) -> Result<RawRecord> {
        let (shard, local) = self.source.locate(row);
        self.read_local(shard, local, run.max(1), excerpt).map_err(|error| self.placed(error, shard, local))
    }

    /// The recording's own path field, if the row has one; for reports.
    ///
    /// # Errors
    /// As [`Self::read`].
    ///
    /// # Panics
    /// If there is no such row.
    pub fn path(&mut self, row: u64) -> Result<Option<String>> {
        let (shard, local) = self.source.locate(row);
        self.path_local(shard, local).map_err(|error| self.placed(error, shard, local))
    }

    fn placed(&self, error: Error, shard: usize, local: u64) -> Error {
        error.in_shard(Arc::clone(&self.source.shards[shard].path)).at_row(local)
    }

    fn read_local(&mut self, shard: usize, local: u64, run: u64, excerpt: Excerpt<'_>) -> Result<RawRecord> {
        self.open_batch(shard, local)?;
        let (Some(batch), Some((_, file))) = (self.batches.first_mut(), self.files.first_mut()) else {
            return Err(Error::new(ErrorKind::Io, "no file is open"));
        };
        let row = local - batch.first_row;
        let label = batch.label(file, row)?;
        let bytes = match batch.part(file, row)? {
            Some(Part::Memory(bytes)) => bytes,
            Some(Part::File(span)) => match self.block.as_ref().and_then(|block| block.slice(shard, span)) {
                Some(bytes) => bytes,
                None => match read_part(file, &self.source.blocks, span, excerpt)? {
                    Some(bytes) => bytes,
                    None => self.read_block(shard, row, span, run)?,
                },
            },
            None => self.read_other_file(shard, row)?,
        };
        if bytes.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "the recording has no bytes"));
        }
        Ok(RawRecord { bytes, label })
    }

    /// Reads `span`, which is row `row` of the first open batch, and with it what follows of the run.
    fn read_block(&mut self, shard: usize, row: u64, span: Span, run: u64) -> Result<Bytes> {
        let (Some(batch), Some((_, file))) = (self.batches.first_mut(), self.files.first_mut()) else {
            return Err(Error::new(ErrorKind::Io, "no file is open"));
        };
        if span.len > LARGEST_RECORD {
            let message = format!("the recording has {} bytes; {LARGEST_RECORD} are read at most", span.len);
            return Err(Error::new(ErrorKind::TooLarge, message).at_byte(span.at));
        }
        let size = file.size();
        let mut end = span.at + span.len;
        if end > size {
            return Err(past_the_end(end, size));
        }
        let rows = batch.n_rows.min(row.saturating_add(run.min(BLOCK_ROWS)));
        for next in row + 1..rows {
            // What is wrong with a later row is said when its turn comes.
            match batch.part(file, next) {
                Ok(Some(Part::File(part))) if part.at == end && part.len > 0 => {
                    let longer = end + part.len;
                    if longer - span.at > BLOCK || longer > size {
                        break;
                    }
                    end = longer;
                }
                Ok(Some(Part::File(part))) if part.len > 0 => break,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        if run > 1 {
            // What the last block held may be used again at once.
            self.block = None;
        }
        // The range lies within the file, so its bytes back the allocation.
        let mut block = self.source.blocks.take((end - span.at) as usize);
        file.read_exact(block.as_mut_slice(), span.at)?;
        let bytes = Bytes::from_owner(block);
        if run == 1 {
            return Ok(bytes);
        }
        file.will_need(end, BLOCK.min(size - end));
        let record = bytes.slice(..span.len as usize);
        self.block = Some(HeldBlock { shard, at: span.at, bytes });
        Ok(record)
    }

    /// Reads the file that the row's path names.
    fn read_other_file(&mut self, shard: usize, row: u64) -> Result<Bytes> {
        let Some(name) = self.first_path(shard, row)? else {
            return Err(Error::new(ErrorKind::Unreadable, "the row has neither bytes nor a path"));
        };
        let relative_to = self.source.shards[shard].path.parent().unwrap_or(Path::new(""));
        let path: Arc<Path> = Arc::from(relative_to.join(PathBuf::from(&name)));
        let mut file =
            StoredFile::open(&self.source.storage, &path).map_err(|error| unreadable(error, &name))?;
        if file.size() > LARGEST_RECORD {
            let message =
                format!("{} has {} bytes; {LARGEST_RECORD} are read at most", path.display(), file.size());
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let mut block = self.source.blocks.take(file.size() as usize);
        file.read_exact(block.as_mut_slice(), 0)?;
        Ok(Bytes::from_owner(block))
    }

    fn path_local(&mut self, shard: usize, local: u64) -> Result<Option<String>> {
        self.open_batch(shard, local)?;
        let row = self.batches.first().map_or(0, |batch| local - batch.first_row);
        self.first_path(shard, row)
    }

    /// The path field of a row of the first open batch.
    fn first_path(&mut self, shard: usize, row: u64) -> Result<Option<String>> {
        let (Some(batch), Some((_, file))) = (self.batches.first_mut(), self.files.first_mut()) else {
            return Ok(None);
        };
        if !batch.is_valid(file, row)? {
            return Ok(None);
        }
        let Some(path) = &mut batch.path else { return Ok(None) };
        let bytes = match path.bytes(file, row)? {
            None => return Ok(None),
            Some(Part::Memory(bytes)) => bytes,
            Some(Part::File(span)) => match self.block.as_ref().and_then(|block| block.slice(shard, span)) {
                Some(bytes) => bytes,
                None => {
                    const LONGEST_PATH: u64 = 1 << 16;
                    if span.len > LONGEST_PATH {
                        let message =
                            format!("the path has {} bytes; {LONGEST_PATH} are read at most", span.len);
                        return Err(Error::new(ErrorKind::Corrupt, message).at_byte(span.at));
                    }
                    let mut bytes = vec![0; span.len as usize];
                    file.read_exact(&mut bytes, span.at)?;
                    bytes.into()
                }
            },
        };
        match String::from_utf8(bytes.to_vec()) {
            Ok(path) => Ok(Some(path).filter(|path| !path.is_empty())),
            Err(error) => Err(Error::new(ErrorKind::Corrupt, "the path is not UTF-8").because(error)),
        }
    }

    /// Brings the file and the batch of a row to the front.
    fn open_batch(&mut self, shard: usize, local: u64) -> Result<()> {
        let source = &self.source;
        let index = &source.indexes[shard];
        match self.files.iter().position(|(open, _)| *open == shard) {
            Some(at) => self.files[..=at].rotate_right(1),
            None => {
                let path = &source.shards[shard].path;
                let file = StoredFile::reopen(&source.storage, path, index.version)?;
                self.files.truncate(OPEN_FILES - 1);
                self.files.insert(0, (shard, file));
            }
        }
        let held = |open: &OpenBatch| {
            open.shard == shard && (open.first_row..open.first_row + open.n_rows).contains(&local)
        };
        if let Some(at) = self.batches.iter().position(held) {
            self.batches[..=at].rotate_right(1);
            return Ok(());
        }
        let at = index.batches.partition_point(|batch| batch.first_row + batch.n_rows <= local);
        let (Some(batch), Some(columns)) = (index.batches.get(at), &index.columns) else {
            return Err(Error::new(ErrorKind::Corrupt, "the row is in no batch"));
        };
        let array = |which: Option<usize>| {
            which.map(|which| {
                let (wanted, spans) = (&columns.arrays[which], &batch.arrays[which]);
                Array::new(&wanted.layout, spans, batch.codec, &index.dictionaries, at)
            })
        };
        let open = OpenBatch {
            shard,
            first_row: batch.first_row,
            n_rows: batch.n_rows,
            audio_struct: array(columns.audio_struct),
            bytes: array(columns.bytes),
            path: array(columns.path),
            label: array(columns.label),
        };
        let kept = if batch.codec.is_some() { OPEN_COMPRESSED_BATCHES } else { OPEN_BATCHES };
        self.batches.truncate(kept - 1);
        self.batches.insert(0, open);
        Ok(())
    }
}

/// Reads head and excerpt of a record at `span`, into a block of the record's size; None if all of it is to be read.
fn read_part(
    file: &mut StoredFile,
    blocks: &Arc<BlockPool>,
    span: Span,
    excerpt: Excerpt<'_>,
) -> Result<Option<Bytes>> {
    if !(SMALLEST_IN_PARTS..=LARGEST_RECORD).contains(&span.len) || span.at + span.len > file.size() {
        return Ok(None);
    }
    let mut head = [0; HEAD_BYTES];
    file.read_exact(&mut head, span.at)?;
    let Some(part) = excerpt(&head, span.len).filter(|part| {
        part.start <= part.end && part.end <= span.len && part.end - part.start <= span.len / 2
    }) else {
        return Ok(None);
    };
    let mut block = blocks.take(span.len as usize);
    let bytes = block.as_mut_slice();
    // Where assertions are on, a stage that looks outside of its excerpt is found out.
    if cfg!(debug_assertions) {
        bytes.fill(0xA5);
    }
    bytes[..HEAD_BYTES].copy_from_slice(&head);
    file.read_exact(&mut bytes[part.start as usize..part.end as usize], span.at + part.start)?;
    Ok(Some(Bytes::from_owner(block)))
}

impl OpenBatch {
    fn label(&mut self, file: &mut StoredFile, row: u64) -> Result<i64> {
        let Some(label) = &mut self.label else { return Ok(NO_LABEL) };
        match label.int(file, row)? {
            None => Ok(NO_LABEL),
            Some(value) => i64::try_from(value).map_err(|_| {
                let message =
                    format!("the label {value} does not fit int64; name another column with label_column=");
                Error::new(ErrorKind::Schema, message)
            }),
        }
    }

    /// Whether the audio struct is there, if the column is one; the fields of a null are not to be looked at.
    fn is_valid(&mut self, file: &mut StoredFile, row: u64) -> Result<bool> {
        self.audio_struct.as_mut().map_or(Ok(true), |audio| audio.is_valid(file, row))
    }

    /// Where the recording's bytes are; None if they are null.
    fn part(&mut self, file: &mut StoredFile, row: u64) -> Result<Option<Part>> {
        if !self.is_valid(file, row)? {
            return Ok(None);
        }
        self.bytes.as_mut().map_or(Ok(None), |bytes| bytes.bytes(file, row))
    }
}

/// The error for a row whose path cannot be opened. Only what the system failed to do is no fault of the row.
fn unreadable(error: Error, name: &str) -> Error {
    let system = error.cause.as_deref().and_then(|cause| cause.downcast_ref::<io::Error>());
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound, PermissionDenied};
    match system.map(io::Error::kind) {
        Some(NotFound | PermissionDenied | InvalidInput | InvalidFilename | NotADirectory) => {
            let hint = if name.contains("://") { "; addresses are not followed, only files" } else { "" };
            let message =
                format!("the row has no bytes, only the path {name:?}, and that cannot be opened{hint}");
            Error { message, kind: ErrorKind::Unreadable, ..error }
        }
        _ => error,
    }
}
