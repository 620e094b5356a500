//! Reads the files that rows name: small ones whole, of others what is wanted.

use std::{
    borrow::Cow,
    cell::Cell,
    ffi::OsStr,
    io,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;

use super::{FilesSource, RecordingTable, kaldi, name_of, table::ArchivePlace};
use crate::WholeRecord;
use crate::{
    Error, ErrorKind, FileRecording, RawRecord, ReadRequest, Result, Segment, StoredPayload,
    contract::{MemoryLimiter, ReadRecords},
    fields::{Row, Value},
    memory_permits::MemoryPermits,
    path_policy::{self, Outside},
    paths::RECORDINGS,
    ranged::{IndexLocation, Key, StoredRecording},
    row_files::ReadRows,
    storage::StoredFile,
    urls,
};
use forebay_audio::{AudioDecoder, Info};

/// Files of at most this many bytes are read whole, in one read.
const SMALL: u64 = 256 << 10;

#[derive(Debug)]
pub struct FilesReader {
    source: Arc<FilesSource>,
    permits: MemoryPermits,
    /// The last small file and its bytes: segments of a file are often neighbours.
    last: Option<(Key, Bytes)>,
    decoder: AudioDecoder,
}

impl FilesReader {
    pub(super) fn new(source: Arc<FilesSource>) -> Self {
        let mut decoder = AudioDecoder::new();
        decoder.track = source.recordings.track;
        Self { source, permits: MemoryPermits::default(), last: None, decoder }
    }

    /// The values of a row, without its recording.
    #[cfg(test)]
    pub(super) fn values(&self, row: u64) -> Result<Row> {
        let (_, table, row) = self.source.table(row);
        self.source.values(table, row)
    }

    #[cfg(test)]
    pub(super) fn segment(&self, row: u64) -> Option<Segment> {
        let (_, table, row) = self.source.table(row);
        table.segment(row)
    }

    /// Codec, rate, channels and length of the recording that a row names, its bytes, and where its index is
    /// now.
    ///
    /// # Errors
    /// As [`ReadRecords::read`].
    pub fn index(&mut self, row: u64) -> Result<(Info, u64, IndexLocation)> {
        let source = self.source.clone();
        let (number, table, row) = source.table(row);
        let permits = self.permits.clone();
        let mut found = || {
            let place = find(&source, &permits, number, table, row)?;
            let indexed = if place.len > SMALL {
                source.recordings.indexes.keep(&mut self.decoder, &place)
            } else {
                let read = self.read_place(&place, None, (&WholeRecord::ONCE, &Row::new()));
                read.and_then(|read| Ok((self.decoder.open(&read.bytes)?.info(), IndexLocation::Needless)))
            };
            if indexed.is_err() {
                source.opened.remove(place.key);
            }
            let (info, kept) = unchanged(&place.file, indexed)?;
            Ok((info, place.len, kept))
        };
        found().map_err(|error| in_row(error, table, row))
    }

    fn read_row(&mut self, row: u64, run: u64, request: &dyn ReadRequest) -> Result<RawRecord> {
        let source = self.source.clone();
        let (number, table, row) = source.table(row);
        self.read_in(&source, number, row, run, request).map_err(|error| in_row(error, table, row))
    }

    fn read_in(
        &mut self,
        source: &FilesSource,
        number: usize,
        row: u64,
        run: u64,
        request: &dyn ReadRequest,
    ) -> Result<RawRecord> {
        let table = &source.tables[number];
        let values = source.values(table, row)?;
        let segment = table.segment(row);
        let key = (number, false, table.file(row).into());
        let goes_on = run > 1 && row + 1 < table.n_rows && table.file(row + 1) == table.file(row);
        let last = self.last.take().filter(|(last, _)| *last == key);
        let mut payload = match last {
            Some((_, bytes)) => bytes.into(),
            None => {
                let permits = self.permits.clone();
                let place = find(source, &permits, number, table, row)?;
                let read = self.read_place(&place, segment, (request, &values));
                if read.is_err() {
                    source.opened.remove(place.key);
                }
                unchanged(&place.file, read)?
            }
        };
        if payload.is_whole() && payload.bytes.len() as u64 <= SMALL && goes_on {
            self.last = Some((key, payload.bytes.clone()));
        }
        payload.file = Some(FileRecording { segment });
        Ok(RawRecord::new(payload, values))
    }

    /// Reads what is wanted of a recording.
    fn read_place(
        &mut self,
        place: &StoredRecording<'_>,
        segment: Option<Segment>,
        request: (&dyn ReadRequest, &Row),
    ) -> Result<StoredPayload> {
        if place.len == 0 {
            return Err(Error::new(ErrorKind::Empty, "the file has no bytes"));
        }
        let is_part = segment.is_some() || request.0.takes_spans() || place.len > place.most();
        if place.len <= SMALL || !is_part {
            return Ok(place.read_range(0..place.len)?.into());
        }
        let decoder = &mut self.decoder;
        let (index, span) = place.shared.indexes.wanted(decoder, place, segment, request)?;
        Ok(index.span_bytes(decoder, place, span)?.into())
    }
}

/// Finds the bytes of a row's recording.
fn find<'a>(
    source: &'a FilesSource,
    permits: &'a MemoryPermits,
    number: usize,
    table: &RecordingTable,
    row: u64,
) -> Result<StoredRecording<'a>> {
    let Some(name) = table.name(row) else {
        return Err(Error::new(ErrorKind::Null, "the row has no path"));
    };
    let name = path_of(name);
    let FilesSource { opened: files, recordings: shared, .. } = source;
    let place = match table.place(row) {
        None => None,
        Some(Some(place)) => Some(place),
        Some(None) => {
            return Err(Error::new(ErrorKind::Unreadable, format!("no archive has the member {name:?}")));
        }
    };
    let key = match place {
        Some(ArchivePlace { archive, .. }) => (number, true, archive.into()),
        None => (number, false, table.file(row).into()),
    };
    let file = match files.get(key).filter(|file| file.is_current()) {
        Some(file) => file,
        None => {
            files.remove(key);
            let file = Arc::new(match place {
                Some(ArchivePlace { archive, .. }) if table.are_archives_of_rows => {
                    open_archive_of_row(source, table, archive)?
                }
                Some(ArchivePlace { archive, .. }) => {
                    StoredFile::open(&source.files.storage, &table.archives[archive as usize])?
                }
                None => open(source, table, &name)?,
            });
            shared.counts.opened.fetch_add(1, Ordering::Relaxed);
            if place.is_some() || file.size() > SMALL {
                files.put(key, file.clone(), 1);
            }
            file
        }
    };
    let (at, len) = match place {
        None => (0, file.size()),
        Some(ArchivePlace { at, len: Some(len), .. }) => (at, len),
        Some(ArchivePlace { at, len: None, .. }) => kaldi::recording_at(&file, at)?,
    };
    // A member of an archive has an index of its own.
    let key = if place.is_some() { (number, true, table.file(row).into()) } else { key };
    Ok(StoredRecording { file, at, len, key, shared, permits, n_read: Cell::new(0) })
}

/// Tries to open the files of rows, in order, until one opens: the files of a table with a wrong root, or
/// with another column of paths, are all missing. URLs and archives are not tried.
///
/// # Errors
/// [`ErrorKind::NotFound`] or [`ErrorKind::Config`] for the first row, if none of the files can be opened.
pub(super) fn try_rows(source: &FilesSource, rows: &[u64]) -> Result<()> {
    let (mut first, mut n_tried) = (None, 0);
    for &row in rows {
        let (_, table, row) = source.table(row);
        let place = match table.place(row) {
            None => None,
            Some(place) if table.are_archives_of_rows => place,
            Some(_) => continue,
        };
        let Some(name) = table.name(row).map(path_of) else { continue };
        if urls::is_url(&urls::join(&table.root, &name)) {
            return Ok(());
        }
        let opened = match place {
            Some(ArchivePlace { archive, .. }) => open_archive_of_row(source, table, archive),
            None => open(source, table, &name),
        };
        let Err(error) = opened else { return Ok(()) };
        // The system failed: the read of the row tells it.
        if error.kind != ErrorKind::Unreadable {
            return Ok(());
        }
        n_tried += 1;
        first.get_or_insert_with(|| in_row(error, table, row).in_shard(&table.path));
    }
    let Some(error) = first else { return Ok(()) };
    let is_missing = error.cause.as_deref().and_then(|cause| cause.downcast_ref::<io::Error>());
    let is_missing = is_missing.is_some_and(|error| error.kind() == io::ErrorKind::NotFound);
    let others = match n_tried {
        1 => String::new(),
        n => format!("; the files of {} other rows that were tried cannot be opened either", n - 1),
    };
    // The columns of a wav.scp have no names.
    let table = error.place.shard.as_deref();
    let is_script = table.and_then(|table| table.extension()).is_some_and(|ending| ending == "scp");
    let column = if is_script { "" } else { ", and path_column= names the column of paths" };
    let message = format!(
        "{}{others}; relative paths begin at root=, by default the table's own folder{column}",
        error.message
    );
    Err(Error { kind: if is_missing { ErrorKind::NotFound } else { ErrorKind::Config }, message, ..error })
}

/// Opens the file of a row: the one with that name, or of a name without an ending the recording.
fn open(source: &FilesSource, table: &RecordingTable, name: &Path) -> Result<StoredFile> {
    let error = match open_one(source, table, name) {
        Err(error) if path_policy::is_of_path(&error) => error,
        opened => return opened,
    };
    if !has_ending(name) {
        for ending in RECORDINGS {
            let mut longer = name.as_os_str().to_owned();
            longer.push(".");
            longer.push(ending);
            match open_one(source, table, Path::new(&longer)) {
                Err(error) if path_policy::is_of_path(&error) => {}
                opened => return opened,
            }
        }
    }
    Err(unopened(table, name, error))
}

/// Opens an archive that rows name.
fn open_archive_of_row(source: &FilesSource, table: &RecordingTable, archive: u32) -> Result<StoredFile> {
    let name = &table.archives[archive as usize];
    match open_one(source, table, name) {
        Err(error) if path_policy::is_of_path(&error) => Err(unopened(table, name, error)),
        opened => opened,
    }
}

/// The error of a file that cannot be opened by its name.
fn unopened(table: &RecordingTable, name: &Path, error: Error) -> Error {
    let root = table.root.display().to_string();
    let below = if name.is_absolute() || root.is_empty() { String::new() } else { format!(" below {root}") };
    let is_of_windows = name.as_os_str().as_encoded_bytes().contains(&b'\\');
    let hint = if is_of_windows { " (folders in a path are separated by /)" } else { "" };
    let message = format!("the file {name:?} cannot be opened{below}{hint}");
    Error { message, kind: ErrorKind::Unreadable, ..error }
}

fn open_one(source: &FilesSource, table: &RecordingTable, name: &Path) -> Result<StoredFile> {
    let path = match table.is_trusted {
        true => urls::join(&table.root, name).into(),
        false => {
            let found = source.path_policy.find(&*source.files.storage, &table.root, name)?;
            found.map_err(|Outside { path, home }| {
                let message = format!(
                    "the file {name:?} is not below the folder {}{}",
                    home.display(),
                    source.path_policy.advice(&path, "table"),
                );
                Error::new(ErrorKind::Unreadable, message)
            })?
        }
    };
    StoredFile::open(&source.files.storage, &path)
}

/// What was read of a file, if the file did not change meanwhile: otherwise the record is bad.
fn unchanged<T>(file: &StoredFile, read: Result<T>) -> Result<T> {
    match read {
        // The system failed, or the loader was closed.
        Err(error) if error.kind.is_io() && error.cause.is_some() || error.kind == ErrorKind::Closed => {
            Err(error)
        }
        read if file.is_current() => read,
        _ => Err(Error::new(ErrorKind::Unreadable, "the file was changed while it was read")),
    }
}

/// Whether a name ends as recordings do; `a.b c` does not.
fn has_ending(name: &Path) -> bool {
    let ending = name.extension().and_then(OsStr::to_str);
    ending.is_some_and(|ending| RECORDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// A path of the bytes that a table has.
pub(super) fn path_of(name: &[u8]) -> Cow<'_, Path> {
    match std::str::from_utf8(name) {
        Ok(name) => Cow::Borrowed(Path::new(name)),
        #[cfg(unix)]
        Err(_) => Cow::Borrowed(Path::new(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name))),
        #[cfg(not(unix))]
        Err(_) => Cow::Owned(std::path::PathBuf::from(String::from_utf8_lossy(name).into_owned())),
    }
}

/// The error with the line of its row.
fn in_row(mut error: Error, table: &RecordingTable, row: u64) -> Error {
    if let Some(line) = table.line(row).filter(|_| error.kind.is_record()) {
        error.message = format!("line {line}: {}", error.message);
    }
    error
}

impl ReadRows for FilesReader {
    /// The row's path as the table has it.
    fn path(&mut self, row: u64) -> Result<Option<String>> {
        let (_, table, row) = self.source.table(row);
        Ok(name_of(table, row))
    }

    fn value(&mut self, row: u64, _run: u64, number: usize) -> Result<Value> {
        self.source.other(row, number)
    }
}

impl ReadRecords for FilesReader {
    type Payload = StoredPayload;
    type Request<'a> = dyn ReadRequest + 'a;

    fn set_limiter(&mut self, limiter: Arc<dyn MemoryLimiter>) {
        self.permits = MemoryPermits::of(limiter);
    }

    fn read(&mut self, row: u64, run: u64, request: &dyn ReadRequest) -> Result<RawRecord> {
        self.read_row(row, run, request)
    }
}
