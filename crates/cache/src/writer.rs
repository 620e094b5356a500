//! The writer of a cache: appends documents, commits, and resumes after any interruption.
//!
//! A commit has an order. First the values, ends and shapes of all fields are written and synced, then the
//! metadata with their number, then entry 0 of each `offsets`, and last the ledger. If the writer dies in
//! between, the ledger of the previous commit remains, and the next writer cuts off everything after it.
//! Chunks are cut and encoded by position and value alone. So the bytes equal those of an uninterrupted run,
//! however often it commits.
//!
//! There is one writer at a time: it holds a lock on a file of the split, which the system releases when the
//! process ends.
//!
//! A writer removes and replaces only files that a ledger of forebay names (`owned`). A field is named before
//! its first file is written, so a killed writer leaves no file that is unknown to the next one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process,
};

use serde_json::{Map, Value};

use super::{
    append::write_json,
    batch::{BatchColumn, Processed},
    cast,
    files::{remove, remove_folder},
    jagged::{JaggedWriter, group},
    layout::ChunkCompression,
    ledger::{self, Ledger, Standing},
    owned::{self, Owned},
};
use crate::{Error, ErrorKind, Result, fields::DataType, fields::Field};

#[derive(Debug, Clone, Default)]
pub struct WriterOptions {
    pub compression: ChunkCompression,
    /// The processor of the documents: names and texts that a later run must repeat to resume.
    pub made_by: Map<String, Value>,
    /// The names of the shards, each once; a later run must have the same ones to resume.
    pub shards: Vec<String>,
    /// Whether the files of an existing cache are removed; other files are always kept.
    pub overwrite: bool,
}

/// Writes one split of a cache.
#[derive(Debug)]
pub struct CacheWriter {
    folder: PathBuf,
    compression: ChunkCompression,
    fields: Vec<JaggedWriter>,
    /// The ledger of the last commit, except for the standings: those are as of the next commit.
    ledger: Ledger,
    documents: u64,
    /// What this writer made of a cache that did not exist; empty for any other.
    made: NewFiles,
    /// A finished cache is opened without one.
    lock: Option<Lock>,
}

/// The folders and files that a writer made to begin a cache.
#[derive(Debug, Default)]
struct NewFiles {
    /// Inner folders first.
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
    /// The metadata of the folder of all splits.
    group: Option<PathBuf>,
}

/// The lock of a folder. A process forked meanwhile shares the open file and thus the lock, so closing the
/// file here would not release it.
#[derive(Debug)]
struct Lock {
    file: fs::File,
    process: u32,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.process == process::id()
            && let Err(error) = self.file.unlock()
        {
            log::warn!("the lock of a cache cannot be released: {error}");
        }
    }
}

impl NewFiles {
    /// Removes the files of the split in `folder`, the metadata of the folder of all splits if it has no
    /// other, and the folders that are empty then.
    fn remove(self, folder: &Path) -> Result<()> {
        self.files.iter().try_for_each(|path| remove(path))?;
        if self.folders.iter().any(|made| made == folder) {
            remove_folder(folder)?;
        }
        if let Some(group) = self.group {
            let folder = group.parent().unwrap_or(folder);
            let entries = fs::read_dir(folder).map_err(|error| Error::io(folder, "list", error))?;
            // Another folder may be a split that needs it.
            if !entries.flatten().any(|entry| entry.path().is_dir()) {
                remove(&group)?;
            }
        }
        self.folders.iter().try_for_each(|path| remove_folder(path))
    }
}

impl CacheWriter {
    /// Opens a split of the cache in `path`: a new one, or where the last writer committed. A finished cache
    /// is opened without a lock and without writing, by any number of processes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if `split` is not a plain name, or a shard is in its folder.
    /// [`ErrorKind::State`], with the difference, if another writer holds the lock, if it was made by another
    /// call, or if the folder has files that no ledger of forebay names. Then no file is changed.
    /// [`ErrorKind::Io`], [`ErrorKind::Format`] and [`ErrorKind::Corrupt`] if the existing files cannot be
    /// read.
    pub fn open(path: &Path, split: &str, options: WriterOptions) -> Result<Self> {
        owned::check_split(split)?;
        let folder = path.join(split);
        owned::check_inputs(&folder, &options.shards)?;
        owned::has_group(path)?;
        let shards = options.shards.into_iter().map(|name| (name, Standing::default())).collect();
        // Once before any file is created, and once under the lock.
        if let Some(ledger) = owned::ledger_of(&folder)?
            && ledger.is_finished
            && !options.overwrite
        {
            check_same(&folder, &ledger, &options.made_by, &shards)?;
            // No field may be a link.
            Owned::of(&folder, &ledger.fields)?;
            let (documents, compression) = (ledger.documents, options.compression);
            let (fields, made) = (Vec::new(), NewFiles::default());
            return Ok(Self { folder, compression, fields, ledger, documents, made, lock: None });
        }
        let missing = folder.ancestors().take_while(|at| !at.as_os_str().is_empty() && !at.exists());
        let mut made = NewFiles { folders: missing.map(Path::to_owned).collect(), ..NewFiles::default() };
        fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, "make", error))?;
        let lock = lock(&folder)?;
        let found = owned::ledger_of(&folder)?;
        owned::has_group(&folder)?;
        let (mut ledger, stale) = match found {
            Some(mut found) if found.is_begun() && !options.overwrite => {
                check_same(&folder, &found, &options.made_by, &shards)?;
                // Fields of documents that were never committed.
                let stale = if found.documents == 0 { std::mem::take(&mut found.fields) } else { Vec::new() };
                (found, stale)
            }
            found => {
                if found.is_none() {
                    made.files.extend([ledger::FILE, owned::LOCK].map(|name| folder.join(name)));
                }
                let stale = found.map(|found| found.fields).unwrap_or_default();
                (Ledger { shards, made_by: options.made_by, ..Ledger::default() }, stale)
            }
        };
        let removed = Owned::of(&folder, &stale)?;
        let kept = Owned::of(&folder, &ledger.fields)?;
        if !ledger.is_begun() || !stale.is_empty() {
            // It names the files to be removed, so that the next writer knows them if this one dies. Without
            // documents, readers open no field.
            Ledger { fields: stale, ..ledger.clone() }.write(&folder)?;
        }
        removed.remove()?;
        kept.remove_partial(&folder)?;
        let open = |field: &Field| {
            let values = ledger.values.get(&field.name).copied().unwrap_or(0);
            let folder = folder.join(&field.name);
            JaggedWriter::open(
                &folder,
                field.dtype,
                field.rank(),
                options.compression,
                (ledger.documents, values),
            )
        };
        let mut fields: Vec<JaggedWriter> = ledger.fields.iter().map(open).collect::<Result<_>>()?;
        if !ledger.is_finished {
            for field in &mut fields {
                field.flush()?;
                field.commit(ledger.documents)?;
            }
            for folder in [path, &folder] {
                if !owned::has_group(folder)? {
                    write_json(folder, &group())?;
                    let file = folder.join("zarr.json");
                    if folder == path { made.group = Some(file) } else { made.files.push(file) }
                }
            }
            ledger.failure = None;
            ledger.write(&folder)?;
        }
        let documents = ledger.documents;
        let compression = options.compression;
        Ok(Self { folder, compression, fields, ledger, documents, made, lock: Some(lock) })
    }

    /// The ledger of the last commit, with the standing of each shard as of the next commit.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Documents so far, committed or not.
    pub fn documents(&self) -> u64 {
        self.documents
    }

    /// Values so far, of all fields.
    pub fn values(&self) -> u64 {
        match self.ledger.is_finished {
            true => self.ledger.values.values().sum(),
            false => self.fields.iter().map(JaggedWriter::values).sum(),
        }
    }

    /// Appends the documents of a batch, or of a part of one, of a shard.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if the documents have other fields than those before, or values that don't fit
    /// their types; [`ErrorKind::Io`]. After an error nothing more can be appended or committed: open the
    /// cache again.
    pub fn append(&mut self, shard: &str, processed: Option<Processed>) -> Result<()> {
        let documents = processed.as_ref().map_or(0, |processed| processed.documents);
        if let Some(processed) = processed.filter(|processed| processed.documents > 0) {
            self.append_documents(processed)?;
        }
        let Some(standing) = self.ledger.shards.get_mut(shard) else {
            return Err(Error::new(ErrorKind::Config, format!("there is no shard {shard:?}")));
        };
        standing.documents += documents;
        Ok(())
    }

    /// Notes that a batch of a shard was processed, or that there are no more.
    pub fn advance(&mut self, shard: &str, is_finished: bool) {
        if let Some(standing) = self.ledger.shards.get_mut(shard) {
            standing.batches += u64::from(!is_finished);
            standing.is_finished |= is_finished;
        }
    }

    /// Records a document of a shard that is left out; the error has its row.
    pub(super) fn leave_out(&mut self, shard: &str, error: &Error) {
        self.ledger.leave_out(shard, error);
    }

    fn append_documents(&mut self, mut processed: Processed) -> Result<()> {
        processed.check()?;
        if self.ledger.fields.is_empty() {
            let fields: Vec<Field> = processed.fields().collect();
            if fields.is_empty() {
                let message =
                    "the processor returned documents without fields; expected a dict of arrays for each";
                return Err(Error::new(ErrorKind::Schema, message));
            }
            // The ledger names a field before its files are created, so that the next writer can remove them.
            owned::check_room(&self.folder, &fields)?;
            let committed = Ledger::read_own(&self.folder)?.unwrap_or_default();
            Ledger { fields: fields.clone(), ..committed }.write(&self.folder)?;
            for field in &fields {
                let folder = self.folder.join(&field.name);
                self.fields.push(JaggedWriter::open(
                    &folder,
                    field.dtype,
                    field.rank(),
                    self.compression,
                    (0, 0),
                )?);
            }
            self.ledger.fields = fields;
        }
        check_fields(&self.ledger.fields, &processed)?;
        for (writer, column) in self.fields.iter_mut().zip(&processed.columns) {
            if column.dtype == writer.dtype() {
                writer.append(column, &column.data)?;
            } else {
                let values = converted(column, writer.dtype())?;
                writer.append(column, &values)?;
            }
        }
        self.documents += processed.documents;
        Ok(())
    }

    /// Commits all appended documents, which makes them visible to readers.
    ///
    /// # Errors
    /// [`ErrorKind::Io`]; then the previous commit is unchanged.
    pub fn commit(&mut self) -> Result<()> {
        if self.lock.is_none() {
            return Ok(());
        }
        for field in &mut self.fields {
            field.flush()?;
        }
        let names: Vec<String> = self.ledger.fields.iter().map(|field| field.name.clone()).collect();
        for (field, name) in self.fields.iter_mut().zip(names) {
            field.commit(self.documents)?;
            self.ledger.set_values(&name, field.values());
        }
        self.ledger.documents = self.documents;
        self.ledger.write(&self.folder)
    }

    /// Commits, and marks the cache as finished.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn finish(&mut self) -> Result<()> {
        if self.ledger.is_finished {
            return Ok(());
        }
        self.ledger.is_finished = true;
        self.commit()
    }

    /// Records the reason of a failure for readers; committed documents stay. If the call was wrong and this
    /// writer began the cache, nothing remains of it.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub fn fail(self, reason: &Error) -> Result<()> {
        let is_new = self.made.files.contains(&self.folder.join(ledger::FILE));
        let is_wrong = matches!(reason.kind, ErrorKind::Config | ErrorKind::Schema);
        if is_new && is_wrong && self.ledger.fields.is_empty() {
            return self.made.remove(&self.folder);
        }
        let reason = reason.to_string();
        let Some(committed) = Ledger::read(&self.folder)? else { return Ok(()) };
        Ledger { failure: Some(reason), ..committed }.write(&self.folder)
    }
}

/// The values of a column in the field's type: integers that fit; any type if there are no values.
fn converted(column: &BatchColumn, to: DataType) -> Result<Vec<u8>> {
    let in_field =
        |error: Error| Error { message: format!("field {:?}: {}", column.name, error.message), ..error };
    if column.data.is_empty() {
        return Ok(Vec::new());
    }
    if column.dtype.is_integer() && to.is_integer() {
        return cast::cast(&column.data, column.dtype, to).map_err(in_field);
    }
    let message = format!(
        "field {:?} has values of {} now and had {} before; name its type in fields=, or convert in the processor",
        column.name,
        column.dtype.name(),
        to.name()
    );
    Err(Error::new(ErrorKind::Schema, message))
}

fn check_fields(expected: &[Field], processed: &Processed) -> Result<()> {
    let shown = |fields: &mut dyn Iterator<Item = (String, usize)>| {
        let all: Vec<String> = fields.map(|(name, rank)| format!("{name} (rank {rank})")).collect();
        all.join(", ")
    };
    let same = expected.len() == processed.columns.len()
        && expected.iter().zip(&processed.columns).all(|(a, b)| a.name == b.name && a.rank() == b.rank);
    if same {
        return Ok(());
    }
    let message = format!(
        "the processor returned the fields {}, expected those of the documents before: {}",
        shown(&mut processed.columns.iter().map(|column| (column.name.clone(), column.rank))),
        shown(&mut expected.iter().map(|field| (field.name.clone(), field.rank()))),
    );
    Err(Error::new(ErrorKind::Schema, message))
}

fn lock(folder: &Path) -> Result<Lock> {
    let path = folder.join(owned::LOCK);
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| Error::io(&path, "open", error))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock { file, process: process::id() }),
        Err(fs::TryLockError::WouldBlock) => {
            let message = format!(
                "another writer has the cache {}; wait until it ends, or stop it, before you build there",
                folder.display()
            );
            Err(Error::new(ErrorKind::State, message))
        }
        Err(fs::TryLockError::Error(error)) => Err(Error::io(&path, "lock", error)),
    }
}

/// The entries; those that are objects are replaced by their own entries.
fn flattened(all: &Map<String, Value>) -> BTreeMap<String, &Value> {
    let mut found = BTreeMap::new();
    for (name, value) in all {
        match value {
            Value::Object(inner) => {
                found.extend(inner.iter().map(|(key, value)| (format!("{name} {key:?}"), value)));
            }
            value => {
                found.insert(name.clone(), value);
            }
        }
    }
    found
}

/// Checks that a cache was made with the same parameters from the same shards.
fn check_same(
    folder: &Path,
    ledger: &Ledger,
    made_by: &Map<String, Value>,
    shards: &BTreeMap<String, Standing>,
) -> Result<()> {
    let mut differences = Vec::new();
    let shown = |value: Option<&Value>| value.map_or("nothing".into(), Value::to_string);
    let (was, is) = (flattened(&ledger.made_by), flattened(made_by));
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    // Processors of two kinds have few parameters in common.
    const KIND: &str = "processor \"type\"";
    let is_other_kind = was.get(KIND) != is.get(KIND);
    for name in names {
        if is_other_kind && name.starts_with("processor \"") && name != KIND {
            continue;
        }
        let (was, is) = (was.get(name).copied(), is.get(name).copied());
        // Caches of before 0.2 don't say which column it was.
        if name == "audio_column" && was.is_none() {
            continue;
        }
        // Shards that are missing or new are listed below, by name.
        if was != is && name != "shards" {
            differences.push(format!("{name} was {} and is {}", shown(was), shown(is)));
        }
    }
    let gone: Vec<_> = ledger.shards.keys().filter(|name| !shards.contains_key(*name)).collect();
    let new: Vec<_> = shards.keys().filter(|name| !ledger.shards.contains_key(*name)).collect();
    for (what, names) in [("is missing", gone), ("is new", new)] {
        if let Some(first) = names.first() {
            let more =
                if names.len() > 1 { format!(" (and {} more)", names.len() - 1) } else { String::new() };
            differences.push(format!("the shard {first:?} {what}{more}"));
        }
    }
    if differences.is_empty() && was.get("shards") != is.get("shards") {
        differences.push("the shards were given in another order".into());
    }
    if differences.is_empty() {
        return Ok(());
    }
    let message = format!(
        "the cache {} was made with other parameters: {}; pass overwrite=True to build it again, or another path",
        folder.display(),
        differences.join("; ")
    );
    Err(Error::new(ErrorKind::State, message))
}
