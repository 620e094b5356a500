//! [`RecordingTable`]: the rows of one table, folder or list in memory.

use std::{path::Path, sync::Arc};

use super::{column::TableColumn, manifest::Unit, names::TextList};
use crate::{
    Error, ErrorKind, Result, Segment,
    columns::SchemaColumn,
    fields::Value,
    seed::{hash_bytes, mix},
    urls,
};

/// The number of a row that names no file.
pub(super) const NO_FILE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct RecordingTable {
    /// The table's file, the folder, or a name for rows in memory.
    pub path: Arc<Path>,
    /// The folder of relative paths.
    pub root: Arc<Path>,
    /// Whether the user named each file.
    pub is_trusted: bool,
    /// Whether a table names the files, which may not exist.
    pub is_of_manifest: bool,
    pub n_rows: u64,
    pub n_bytes: u64,
    /// What is wrong with the table from some row on.
    pub damage: Option<Error>,
    pub names: TextList,
    pub files: Vec<u32>,
    /// The archives that have the files, and the place of each file; empty for files of their own.
    pub archives: Vec<Arc<Path>>,
    /// Whether rows name the archives, so that files without a place are files of their own, instead of the
    /// user.
    pub are_archives_of_rows: bool,
    pub places: Vec<Option<ArchivePlace>>,
    pub segments: Option<Segments>,
    /// Numbers of classes, or numbers.
    pub label: Option<TableColumn>,
    /// The name of the label's column.
    pub label_name: Option<String>,
    pub others: Vec<TableColumn>,
    /// All columns, with types as the first rows have them.
    pub schema: Vec<SchemaColumn>,
    pub lines: Option<LineNumbers>,
}

/// The place of a file in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArchivePlace {
    pub archive: u32,
    pub at: u64,
    /// None: as the recording's own header says.
    pub len: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Segments {
    pub unit: Unit,
    /// Starts and ends; NaN: none.
    pub starts: Vec<f64>,
    pub ends: Vec<f64>,
}

/// The line of each row; rows follow each other unless a row is listed here.
#[derive(Debug, Default)]
pub(super) struct LineNumbers(pub Vec<(u64, u64)>);

impl LineNumbers {
    pub(super) fn of(&self, row: u64) -> u64 {
        let at = self.0.partition_point(|&(first, _)| first <= row).saturating_sub(1);
        self.0.get(at).map_or(row + 1, |&(first, line)| line + (row - first))
    }
}

impl RecordingTable {
    /// The path of a row as the table has it; None if the row has none.
    pub(super) fn name(&self, row: u64) -> Option<&[u8]> {
        let file = self.files[row as usize];
        (file != NO_FILE).then(|| self.names.get(file as usize))
    }

    /// The number of the row's file.
    pub(super) fn file(&self, row: u64) -> u32 {
        self.files[row as usize]
    }

    /// The samples of the recording that are the row's.
    pub(super) fn segment(&self, row: u64) -> Option<Segment> {
        let segments = self.segments.as_ref()?;
        let (start, end) = (segments.starts[row as usize], segments.ends[row as usize]);
        if start.is_nan() && end.is_nan() {
            return None;
        }
        let start = if start.is_nan() { 0.0 } else { start };
        let end = if end.is_nan() { f64::INFINITY } else { end };
        Some(match segments.unit {
            Unit::Seconds => Segment::Seconds(start, end),
            Unit::Samples => Segment::Samples(start as u64, end as u64),
        })
    }

    /// The number of a row's class; none if there is no label, or a null.
    ///
    /// # Errors
    /// As [`TableColumn::value`].
    pub(super) fn label_of(&self, row: u64) -> Result<Option<i64>> {
        let label = self.label.as_ref().map(|label| label.value(row as usize)).transpose()?;
        Ok(label.as_ref().and_then(Value::as_int))
    }

    /// Whether the row's file is in an archive, and its place there, if it was found.
    pub(super) fn place(&self, row: u64) -> Option<Option<ArchivePlace>> {
        let place = self.places.get(self.file(row) as usize).copied().flatten();
        let is_archived = !self.archives.is_empty() && (place.is_some() || !self.are_archives_of_rows);
        is_archived.then_some(place)
    }

    /// The line of a row in a table of text.
    pub(super) fn line(&self, row: u64) -> Option<u64> {
        self.lines.as_ref().map(|lines| lines.of(row))
    }

    /// A hash of the rows: paths, segments, label, and the columns with these numbers, in order.
    pub(super) fn hash(&self, columns: &[usize]) -> u64 {
        let state = mix(self.n_rows);
        let state = match self.is_trusted {
            false => self.names.hash(state),
            true => {
                let shared = shared_folder(self.names.iter());
                self.names.iter().fold(state, |state, name| hash_bytes(state, &name[shared..]))
            }
        };
        self.hash_rows(state, columns.iter().map(|&column| &self.others[column]))
    }

    /// The same as earlier versions had it.
    pub(super) fn former_hash(&self) -> u64 {
        self.hash_rows(self.names.hash(mix(self.n_rows)), self.others.iter())
    }

    fn hash_rows<'a>(&'a self, state: u64, columns: impl Iterator<Item = &'a TableColumn>) -> u64 {
        let mut state = self.files.iter().fold(state, |state, &file| mix(state ^ u64::from(file)));
        if let Some(segments) = &self.segments {
            state = hash_bytes(state, &[segments.unit as u8]);
            let both = segments.starts.iter().chain(&segments.ends);
            state = both.fold(state, |state, place| mix(state ^ place.to_bits()));
        }
        self.label.iter().chain(columns).fold(state, |state, column| column.hash(state))
    }

    /// Whether any of the files, or what they are below, is named by URL.
    pub(super) fn is_by_url(&self) -> bool {
        let is_url = |name: &[u8]| std::str::from_utf8(name).is_ok_and(|name| urls::is_url(Path::new(name)));
        let mut folders = self.archives.iter().chain([&self.root]);
        folders.any(|path| urls::is_url(path)) || self.names.iter().any(is_url)
    }

    pub(super) fn bytes_held(&self) -> usize {
        let segments = self
            .segments
            .as_ref()
            .map_or(0, |segments| (segments.starts.capacity() + segments.ends.capacity()) * size_of::<f64>());
        let lines = self.lines.as_ref().map_or(0, |lines| lines.0.capacity() * size_of::<(u64, u64)>());
        let lines = lines + self.places.capacity() * size_of::<Option<ArchivePlace>>();
        let columns: usize = self.label.iter().chain(&self.others).map(TableColumn::bytes_held).sum();
        self.names.bytes_held() + self.files.capacity() * size_of::<u32>() + segments + lines + columns
    }
}

/// The bytes of the folder that all paths share, up to its last separator.
fn shared_folder<'a>(mut paths: impl Iterator<Item = &'a [u8]>) -> usize {
    let folder = |path: &[u8]| {
        path.iter().rposition(|&byte| std::path::is_separator(byte.into())).map_or(0, |at| at + 1)
    };
    let Some(first) = paths.next() else { return 0 };
    let mut shared = &first[..folder(first)];
    for path in paths {
        while !path.starts_with(shared) {
            shared = &shared[..folder(&shared[..shared.len() - 1])];
        }
    }
    shared.len()
}

/// Checks a path that the user names.
///
/// # Errors
/// [`ErrorKind::Config`] for one that is no file's, such as a URL.
pub(crate) fn check_named(path: &Path) -> Result<()> {
    check_local(path.as_os_str().as_encoded_bytes()).map_err(|message| Error::new(ErrorKind::Config, message))
}

/// Checks the path of a recording, which may be a URL; the error is the message.
pub(super) fn check_local(path: &[u8]) -> Result<(), String> {
    let Ok(path) = std::str::from_utf8(path).map(Path::new) else { return Ok(()) };
    match urls::is_url(path) {
        true => urls::resolved(path).map(|_| ()).map_err(|error| error.to_string()),
        false => urls::check_path(path).map_err(|error| error.message),
    }
}
