//! Reads the files that rows name.

use std::{borrow::Cow, ffi::OsStr, path::Path, sync::Arc};

use bytes::Bytes;

use super::{FilesSource, Table, name_of};
use crate::{
    Error, ErrorKind, Result,
    record::{Gate, PartOf, RawRecord, ReadRecords, SMALL_READ, Wants},
    source::{
        leave::Leave,
        linked::{self, Outside},
        paths::RECORDINGS,
        storage::StoredFile,
    },
};

/// Reads rows for one thread.
#[derive(Debug)]
pub struct FilesReader {
    source: Arc<FilesSource>,
    leave: Leave,
    /// Table and file of the last row, and the file's bytes: segments of a file are often neighbours.
    last: Option<(Arc<Path>, u32, Bytes)>,
}

impl FilesReader {
    pub(super) fn new(source: Arc<FilesSource>) -> Self {
        Self { source, leave: Leave::default(), last: None }
    }

    /// The row's path as the table has it, for reports.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn path(&self, row: u64) -> Option<String> {
        let (table, row) = self.source.table(row);
        name_of(table, row)
    }

    fn read_row(&mut self, row: u64, run: u64) -> Result<RawRecord> {
        let source = self.source.clone();
        let (table, row) = source.table(row);
        let values = source.values(table, row).map_err(|error| in_row(error, table, row))?;
        let part = Some(Box::new(PartOf { segment: table.segment(row) }));
        let file = table.file(row);
        if let Some((path, last, bytes)) = &self.last
            && (&**path, *last) == (&*table.path, file)
        {
            let bytes = bytes.clone();
            if !self.goes_on(table, row, run) {
                self.last = None;
            }
            return Ok(RawRecord { bytes, part, values });
        }
        self.last = None;
        let bytes = self.read_file(table, row).map_err(|error| in_row(error, table, row))?;
        if bytes.is_empty() {
            return Err(in_row(Error::new(ErrorKind::Empty, "the file has no bytes"), table, row));
        }
        if bytes.len() as u64 <= SMALL_READ && self.goes_on(table, row, run) {
            self.last = Some((table.path.clone(), file, bytes.clone()));
        }
        Ok(RawRecord { bytes, part, values })
    }

    /// Whether the next row is of the same file.
    fn goes_on(&self, table: &Table, row: u64, run: u64) -> bool {
        run > 1 && row + 1 < table.n_rows && table.file(row + 1) == table.file(row)
    }

    fn read_file(&self, table: &Table, row: u64) -> Result<Bytes> {
        let Some(name) = table.name(row) else {
            return Err(Error::new(ErrorKind::Unreadable, "the row has no path"));
        };
        let name = path_of(name);
        let file = self.open(table, &name)?;
        linked::read_whole(&file, &self.source.blocks, self.source.max_record_bytes, &self.leave)
    }

    /// Opens the file of a row: the one with that name, or of a name without an ending the recording.
    fn open(&self, table: &Table, name: &Path) -> Result<StoredFile> {
        let error = match self.open_one(table, name) {
            Err(error) if linked::is_of_path(&error) => error,
            opened => return opened,
        };
        if !has_ending(name) {
            for ending in RECORDINGS {
                let mut longer = name.as_os_str().to_owned();
                longer.push(".");
                longer.push(ending);
                match self.open_one(table, Path::new(&longer)) {
                    Err(error) if linked::is_of_path(&error) => {}
                    opened => return opened,
                }
            }
        }
        let message = format!("the file {name:?} cannot be opened");
        Err(Error { message, kind: ErrorKind::Unreadable, ..error })
    }

    fn open_one(&self, table: &Table, name: &Path) -> Result<StoredFile> {
        let source = &self.source;
        let path = match table.is_trusted {
            true => table.root.join(name).into(),
            false => {
                let found = source.linked.find(&*source.storage, &table.root, name)?;
                found.map_err(|Outside { path, home }| {
                    let message = format!(
                        "the file {name:?} is not below the folder {}{}; if you trust the table, pass allow_paths={:?} or a \
                         folder above it, or allow_paths=True for any path",
                        home.display(),
                        source.linked.nor(),
                        path.parent().unwrap_or(&path),
                    );
                    Error::new(ErrorKind::Unreadable, message)
                })?
            }
        };
        StoredFile::open(&source.storage, &path)
    }
}

/// Whether a name ends as files do; `a.b c` does not.
fn has_ending(name: &Path) -> bool {
    let ending = name.extension().and_then(OsStr::to_str);
    ending.is_some_and(|ending| RECORDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// A path of the bytes that a table has.
fn path_of(name: &[u8]) -> Cow<'_, Path> {
    match std::str::from_utf8(name) {
        Ok(name) => Cow::Borrowed(Path::new(name)),
        #[cfg(unix)]
        Err(_) => Cow::Borrowed(Path::new(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name))),
        #[cfg(not(unix))]
        Err(_) => Cow::Owned(std::path::PathBuf::from(String::from_utf8_lossy(name).into_owned())),
    }
}

/// The error with the line of its row.
fn in_row(mut error: Error, table: &Table, row: u64) -> Error {
    if let Some(line) = table.line(row).filter(|_| error.kind.is_record()) {
        error.message = format!("line {line}: {}", error.message);
    }
    error
}

impl ReadRecords for FilesReader {
    fn ask(&mut self, gate: Arc<dyn Gate>) {
        self.leave = Leave::of(gate);
    }

    fn read(&mut self, row: u64, run: u64, _wants: &dyn Wants) -> Result<RawRecord> {
        self.read_row(row, run)
    }
}
