//! The reader of a cache: documents, or the concatenated values of all documents.
//!
//! Input: a path and numbers of documents or values. Output: values in the caller's memory. Threads share a
//! reader, and it may be open while the cache grows. Readable are the documents that the ledger had when it
//! was last checked ([`CacheReader::refresh`]); their number never falls. No value beyond them is read, so no
//! reader sees an incomplete document.

use std::{
    fs,
    ops::{Deref, Range},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use super::{
    jagged::{FieldDocuments, JaggedReader},
    layout::MAX_COUNT,
    ledger::{self, Ledger, Skipped},
    stored::foreign_url,
};
use crate::{
    Error, ErrorKind, Result,
    fields::Field,
    fork_lock,
    storage::{PathOrUrl, Storage, StoreOptions, urls},
};

/// The pauses between checks of a cache that grows: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLength {
    pub documents: u64,
    pub is_final: bool,
}

/// An open cache; clones share it.
#[derive(Debug, Clone)]
pub struct CacheReader(Arc<CacheState>);

#[derive(Debug)]
struct CacheState {
    folder: PathBuf,
    storage: Arc<dyn Storage>,
    /// Set once there is a document.
    arrays: fork_lock::OnceLock<(Vec<Field>, Vec<JaggedReader>)>,
    seen: fork_lock::RwLock<LedgerContent>,
    /// The last ledger read; held during a refresh, so that one thread checks at a time.
    looking: fork_lock::Mutex<Option<LedgerStamp>>,
}

/// The content of the ledger when it was last read.
#[derive(Debug)]
struct LedgerContent {
    length: CacheLength,
    values: Vec<u64>,
    made_by: serde_json::Map<String, serde_json::Value>,
}

/// Distinguishes a ledger from the one that replaced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LedgerStamp {
    modified: Option<SystemTime>,
    size: u64,
    inode: u64,
}

impl CacheReader {
    /// Opens a split of the cache in `path`, finished or not; by URL, a finished one that forebay wrote.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no cache, or none yet; [`ErrorKind::Format`] if its ledger or an
    /// array cannot be read; [`ErrorKind::State`] if its writer failed, or it is not finished and is read by
    /// URL; [`ErrorKind::Config`] for a URL that cannot be read, such as one with a password.
    pub fn open(path: &Path, split: &str) -> Result<Self> {
        let folder = path.join(split);
        // Before the URL is in any message.
        urls::check_path(path)?;
        urls::check(&folder.join(ledger::FILE))?;
        let storage = PathOrUrl::files(&StoreOptions::default(), None);
        let seen = LedgerContent {
            length: CacheLength { documents: 0, is_final: false },
            values: Vec::new(),
            made_by: serde_json::Map::new(),
        };
        let inner = CacheState {
            folder,
            storage,
            arrays: fork_lock::OnceLock::new(),
            seen: fork_lock::RwLock::new(seen),
            looking: fork_lock::Mutex::default(),
        };
        let reader = Self(Arc::new(inner));
        reader.refresh()?;
        Ok(reader)
    }

    /// Whether it is read by URL.
    pub fn is_remote(&self) -> bool {
        urls::is_url(&self.0.folder)
    }

    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// The fields, sorted by name; empty while the cache has no document, constant afterwards.
    pub fn fields(&self) -> &[Field] {
        self.0.arrays.get().map_or(&[], |(fields, _)| fields)
    }

    /// The index in [`Self::fields`] of the field `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there is none; the message lists the fields.
    pub fn field(&self, name: &str) -> Result<usize> {
        let fields = self.fields();
        fields.iter().position(|field| field.name == name).ok_or_else(|| {
            let names: Vec<&str> = fields.iter().map(|field| &field.name[..]).collect();
            let there = if names.is_empty() {
                "there are no documents yet".into()
            } else {
                format!("the fields are {}", names.join(", "))
            };
            let message = format!("there is no field {name:?} in {}; {there}", self.0.folder.display());
            Error::new(ErrorKind::Config, message)
        })
    }

    /// The documents left out of the part that is committed now.
    ///
    /// # Errors
    /// As [`Self::refresh`].
    pub fn skipped(&self) -> Result<Skipped> {
        Ok(self.ledger()?.skipped)
    }

    /// The number of documents when the ledger was last checked.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] in a child, if a thread of the parent was reading the ledger at the fork.
    pub fn length(&self) -> Result<CacheLength> {
        Ok(self.seen()?.length)
    }

    /// The number of a field's values, at the time of [`Self::length`].
    ///
    /// # Errors
    /// As [`Self::length`].
    ///
    /// # Panics
    /// If there is no such field.
    pub fn flat_len(&self, field: usize) -> Result<u64> {
        Ok(self.seen()?.values[field])
    }

    fn ledger(&self) -> Result<Ledger> {
        let CacheState { folder, storage, .. } = &*self.0;
        Ledger::read_in(storage, folder)?.ok_or_else(|| no_cache(folder))
    }

    /// Checks the ledger: a `stat`, and a small read if it has changed.
    ///
    /// # Errors
    /// As [`Self::open`]; [`ErrorKind::State`] also if the cache has fewer documents than before, or was
    /// replaced.
    pub fn refresh(&self) -> Result<CacheLength> {
        let mut mark = fork_lock::lock(&self.0.looking)?;
        let known = self.length()?;
        if known.is_final {
            return Ok(known);
        }
        if self.is_remote() {
            let found = self.ledger()?;
            return if found.is_finished || found.failure.is_some() {
                self.take(found, true)
            } else {
                Err(not_finished(&self.0.folder))
            };
        }
        let now = mark_of(&self.0.folder.join(ledger::FILE))?;
        if *mark == Some(now) {
            return Ok(known);
        }
        let found = self.ledger()?;
        let is_first = mark.is_none();
        let length = self.take(found, is_first)?;
        *mark = Some(now);
        Ok(length)
    }

    fn take(&self, found: Ledger, is_first: bool) -> Result<CacheLength> {
        let folder = &self.0.folder;
        if let Some(failure) = found.failure {
            let message = format!("the writer of the cache {} failed: {failure}", folder.display());
            return Err(Error::new(ErrorKind::State, message));
        }
        let was = self.length()?;
        if !is_first && (found.documents < was.documents || found.made_by != self.seen()?.made_by) {
            let message = format!(
                "the cache {} was built again while it was open: it had {} documents and has {}; open it again",
                folder.display(),
                was.documents,
                found.documents
            );
            return Err(Error::new(ErrorKind::State, message));
        }
        if self.0.arrays.get().is_none() && found.documents > 0 {
            let opened = open_arrays(&self.0.storage, folder, &found)?;
            // `looking` is held, so no other thread sets it.
            self.0.arrays.get_or_init(|| opened);
        }
        let mut values = Vec::new();
        if let Some((fields, arrays)) = self.0.arrays.get() {
            for (field, array) in fields.iter().zip(arrays) {
                let counted = found.values.get(&field.name).copied();
                // Other programs store no counts, or different ones: use the end of the last document.
                let trusted = counted.filter(|_| !found.fields.is_empty());
                values.push(match trusted {
                    Some(values) => values,
                    None => array.end(found.documents).and_then(|end| believed(folder, end))?,
                });
            }
        }
        let length = CacheLength { documents: found.documents, is_final: found.is_finished };
        let now = LedgerContent { length, values, made_by: found.made_by };
        *fork_lock::write(&self.0.seen)? = now;
        Ok(length)
    }

    /// Waits until there are `documents` documents or the cache is finished, checking with growing pauses.
    /// Ends early if `give_up`, which is called before each pause, returns true.
    ///
    /// # Errors
    /// As [`Self::refresh`].
    pub fn wait_until(&self, documents: u64, give_up: &dyn Fn() -> bool) -> Result<CacheLength> {
        let (mut pause, longest) = PAUSES;
        loop {
            let length = self.refresh()?;
            if length.is_final || length.documents >= documents || give_up() {
                return Ok(length);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(longest);
        }
    }

    /// Fills `out` with a field's values from `start` on, concatenated over all documents. Allocates nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Index`] beyond the committed values; [`ErrorKind::Shape`] if `out` does not hold a whole
    /// number of values; [`ErrorKind::Io`], [`ErrorKind::Truncated`], [`ErrorKind::Corrupt`] for files that
    /// cannot be read or are damaged.
    ///
    /// # Panics
    /// If there is no such field.
    pub fn read_flat(&self, field: usize, start: u64, out: &mut [u8]) -> Result<()> {
        self.array(field).read_flat(start, out, self.flat_len(field)?)
    }

    /// The start of the first of the documents, and the end of each, in values.
    ///
    /// # Errors
    /// As [`Self::read_flat`].
    ///
    /// # Panics
    /// If there is no such field.
    pub fn offsets(&self, field: usize, documents: Range<u64>) -> Result<Vec<u64>> {
        self.check(documents.end)?;
        self.array(field).offsets(documents, self.length()?.documents)
    }

    /// The shapes of the documents: as many numbers each as the field has axes.
    ///
    /// # Errors
    /// As [`Self::read_flat`].
    ///
    /// # Panics
    /// If there is no such field.
    pub fn shapes(&self, field: usize, documents: Range<u64>) -> Result<Vec<u64>> {
        self.check(documents.end)?;
        self.array(field).shapes(documents, self.length()?.documents)
    }

    /// The shapes of the documents with these numbers, as [`Self::shapes`].
    ///
    /// # Errors
    /// As [`Self::read_flat`].
    ///
    /// # Panics
    /// If there is no such field.
    pub(crate) fn shapes_of(&self, field: usize, documents: &[u64]) -> Result<Vec<u64>> {
        self.check(documents.iter().max().map_or(0, |last| last.saturating_add(1)))?;
        self.array(field).shapes_of(documents, self.length()?.documents)
    }

    /// Requests the [offsets](Self::offsets) of these documents at once, if they are read by URL.
    ///
    /// # Errors
    /// As [`Self::read_flat`].
    ///
    /// # Panics
    /// If there is no such field.
    pub(crate) fn request_ends(&self, field: usize, documents: &[u64]) -> Result<()> {
        if !self.is_remote() {
            return Ok(());
        }
        self.check(documents.iter().max().map_or(0, |last| last.saturating_add(1)))?;
        self.array(field).request_ends(documents, self.length()?.documents)
    }

    /// Reads the documents with these numbers, in this order. Documents close to each other are read
    /// together.
    ///
    /// # Errors
    /// As [`Self::read_flat`].
    ///
    /// # Panics
    /// If there is no such field.
    pub fn documents(&self, field: usize, indices: &[u64]) -> Result<FieldDocuments> {
        if let Some(&largest) = indices.iter().max() {
            self.check(largest.saturating_add(1))?;
        }
        let (length, values) = {
            let seen = self.seen()?;
            (seen.length.documents, seen.values[field])
        };
        self.array(field).documents(indices, length, values)
    }

    /// The document that a value is in, given by its index in the concatenated values.
    ///
    /// # Errors
    /// As [`Self::read_flat`].
    ///
    /// # Panics
    /// If there is no such field.
    pub fn document_of(&self, field: usize, value: u64) -> Result<u64> {
        let (length, values) = {
            let seen = self.seen()?;
            (seen.length.documents, seen.values[field])
        };
        if value >= values {
            let message = format!("value {value} is requested, and there are {values}");
            return Err(Error::new(ErrorKind::Index, message));
        }
        self.array(field).document_of(value, length)
    }

    fn check(&self, end: u64) -> Result<()> {
        let CacheLength { documents, .. } = self.length()?;
        if end <= documents {
            return Ok(());
        }
        let last = end - 1;
        Err(Error::new(
            ErrorKind::Index,
            format!("document {last} of {} is requested, and there are {documents}", self.0.folder.display()),
        ))
    }

    fn array(&self, field: usize) -> &JaggedReader {
        let Some((_, arrays)) = self.0.arrays.get() else {
            panic!("field {field} of a cache without documents")
        };
        &arrays[field]
    }

    fn seen(&self) -> Result<impl Deref<Target = LedgerContent> + '_> {
        fork_lock::read(&self.0.seen)
    }
}

fn no_cache(folder: &Path) -> Error {
    let message = format!(
        "there is no cache in this folder: it has no {}; build it with forebay.cache.build",
        ledger::FILE
    );
    Error { file: Some(Arc::new(folder.to_owned())), ..Error::new(ErrorKind::NotFound, message) }
}

fn not_finished(folder: &Path) -> Error {
    let message = format!(
        "the cache {} is not finished, and by URL it is read only then: wait for its build, or read it on the disk where \
         it is built",
        folder.display()
    );
    Error::new(ErrorKind::State, message)
}

fn mark_of(path: &Path) -> Result<LedgerStamp> {
    let metadata = fs::metadata(path).map_err(|error| match (error.kind(), path.parent()) {
        (std::io::ErrorKind::NotFound, Some(folder)) => no_cache(folder),
        _ => Error::io(path, "look at the ledger", error),
    })?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let inode = 0;
    Ok(LedgerStamp { modified: metadata.modified().ok(), size: metadata.len(), inode })
}

/// Opens the arrays of the fields in the ledger; of a cache by another program, those found in its folder.
fn open_arrays(
    storage: &Arc<dyn Storage>,
    folder: &Path,
    ledger: &Ledger,
) -> Result<(Vec<Field>, Vec<JaggedReader>)> {
    if !ledger.fields.is_empty() {
        let open = |field: &Field| {
            let array = JaggedReader::open(storage, &folder.join(&field.name), Some(field.rank()))?;
            if array.dtype() == field.dtype {
                return Ok(array);
            }
            let message = format!(
                "field {:?} of {} has values of {}, and the ledger has {}; build the cache again with overwrite=True",
                field.name,
                folder.display(),
                array.dtype().name(),
                field.dtype.name()
            );
            Err(Error::new(ErrorKind::Format, message))
        };
        let arrays: Result<_> = ledger.fields.iter().map(open).collect();
        return Ok((ledger.fields.clone(), arrays?));
    }
    if urls::is_url(folder) {
        return Err(foreign_url(folder));
    }
    let mut opened = (Vec::new(), Vec::new());
    for name in field_names(folder)? {
        let array = JaggedReader::open(storage, &folder.join(&name), None)?;
        opened.0.push(Field::of_rank(name, array.dtype(), array.rank()));
        opened.1.push(array);
    }
    Ok(opened)
}

/// The number of values according to the offsets, if it is within [`MAX_COUNT`].
fn believed(folder: &Path, values: u64) -> Result<u64> {
    if values <= MAX_COUNT {
        return Ok(values);
    }
    let message =
        format!("the offsets of {} end at {values} values, the limit is {MAX_COUNT}", folder.display());
    Err(Error::new(ErrorKind::Corrupt, message))
}

/// The most folders searched for fields, and the greatest depth: links may form cycles.
const MOST_FOLDERS: usize = 10_000;
const DEEPEST: usize = 16;

/// The fields of a cache whose ledger does not name them: the paths of the folders with `data` and `offsets`,
/// sorted.
///
/// # Errors
/// [`ErrorKind::Io`] if a folder cannot be listed, [`ErrorKind::Format`] if there are too many.
pub fn field_names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    find_fields(folder, "", &mut names, &mut 0)?;
    names.sort();
    Ok(names)
}

/// Adds the paths of the folders with `data` and `offsets`.
fn find_fields(folder: &Path, path: &str, names: &mut Vec<String>, seen: &mut usize) -> Result<()> {
    let here = folder.join(path);
    *seen += 1;
    if *seen > MOST_FOLDERS || path.split('/').count() > DEEPEST {
        let message = format!(
            "{} has more than {MOST_FOLDERS} folders, or is deeper than {DEEPEST}: it is not the folder of a cache",
            folder.display()
        );
        return Err(Error::new(ErrorKind::Format, message));
    }
    if here.join("data/zarr.json").is_file() && here.join("offsets/zarr.json").is_file() {
        names.push(path.into());
        return Ok(());
    }
    let failed = |error| Error::io(&here, "list", error);
    for entry in fs::read_dir(&here).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let (true, Ok(name)) = (entry.path().is_dir(), entry.file_name().into_string()) {
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            find_fields(folder, &path, names, seen)?;
        }
    }
    Ok(())
}
