//! [`Entry`]: what a user names as a source, and the shards or tables that it stands for.
//!
//! A file whose name ends as a recording or a table does is that, any other a shard, whose format
//! `recordings` finds. Source: own.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_audio::{unread_advice, unread_format};

use crate::{
    Error, ErrorKind, Result,
    files::{Manifest, RowSource, TablePlan, check_named},
    layouts::FolderTable,
    paths::{self, Reads},
    storage::Storage,
    table_format::{TableFormat, ending_of},
    urls,
};

/// What a user names as a source, or a part of one.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// A file, a folder or a pattern.
    Path(PathBuf),
    /// A table whose rows name recordings.
    Manifest(Arc<Manifest>),
}

impl Entry {
    /// Whether it is a table, a folder or a recording, rather than a shard.
    pub fn is_of_files(&self) -> bool {
        match self {
            Self::Manifest(_) => true,
            Self::Path(path) => path.is_dir() || is_table(path) || paths::is_recording(path.as_os_str()),
        }
    }

    /// The path, or of rows in memory a name.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Path(path) => path.clone(),
            Self::Manifest(manifest) => manifest.path().to_owned(),
        }
    }
}

impl From<PathBuf> for Entry {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

/// A shard, or a table of recordings.
pub(crate) enum ShardOrTable {
    Shard(PathBuf),
    Table(TablePlan),
}

/// Adds the parts of one source.
pub(crate) fn parts_of(
    entries: Vec<Entry>,
    storage: &Arc<dyn Storage>,
    parts: &mut Vec<ShardOrTable>,
) -> Result<()> {
    let mut entries = entries.into_iter().peekable();
    while let Some(entry) = entries.next() {
        let path = match entry {
            Entry::Manifest(manifest) => {
                manifests_of(manifest, storage, parts)?;
                continue;
            }
            Entry::Path(path) => path,
        };
        // Paths are expanded together, so that a file that comes twice is found.
        let mut paths = vec![path];
        while let Some(Entry::Path(path)) = entries.next_if(|entry| matches!(entry, Entry::Path(_))) {
            paths.push(path);
        }
        for path in paths.iter().filter(|path| !path.exists()) {
            check_named(path)?;
        }
        let (files, folders) = paths::expand_folders(&paths, Reads::Recordings, storage)?;
        let (mut folders, mut list) = (folders.into_iter().peekable(), Vec::new());
        for file in files {
            if paths::is_recording(file.as_os_str())
                && folders.peek().is_none_or(|folder| folder.path != file)
            {
                list.push(file);
                continue;
            }
            if !list.is_empty() {
                parts.push(ShardOrTable::Table(TablePlan::List(std::mem::take(&mut list))));
            }
            if let Some(folder) = folders.next_if(|folder| folder.path == file) {
                parts.extend(tables_of(folder, Manifest::of).into_iter().map(ShardOrTable::Table));
            } else if is_table(&file) {
                parts.push(ShardOrTable::Table(TablePlan::Manifest(Arc::new(Manifest::of(file)))));
            } else if let Some((ending, name)) = unread(&file) {
                let message = unread_advice(name, &ending);
                return Err(Error::new(ErrorKind::Config, message).in_shard(&file));
            } else {
                parts.push(ShardOrTable::Shard(file));
            }
        }
        if !list.is_empty() {
            parts.push(ShardOrTable::Table(TablePlan::List(list)));
        }
    }
    Ok(())
}

/// Adds the table of a manifest, or of one that names a folder the tables of that.
///
/// # Errors
/// [`ErrorKind::Config`] for a folder without a table; those of [`paths::expand`].
fn manifests_of(
    manifest: Arc<Manifest>,
    storage: &Arc<dyn Storage>,
    parts: &mut Vec<ShardOrTable>,
) -> Result<()> {
    let RowSource::File(path) = &manifest.rows else {
        parts.push(ShardOrTable::Table(TablePlan::Manifest(manifest)));
        return Ok(());
    };
    let is_folder = match urls::is_url(path) {
        true => urls::named(path).is_ok_and(|named| named == urls::Named::Folder),
        false => path.is_dir(),
    };
    if !is_folder {
        parts.push(ShardOrTable::Table(TablePlan::Manifest(manifest)));
        return Ok(());
    }
    let (_, folders) = paths::expand_folders(&[path], Reads::Recordings, storage)?;
    let of = |table| Manifest { rows: RowSource::File(table), ..(*manifest).clone() };
    let plans: Vec<TablePlan> = folders.into_iter().flat_map(|folder| tables_of(folder, of)).collect();
    if plans.is_empty() || plans.iter().any(|plan| matches!(plan, TablePlan::Folder { .. })) {
        let message = format!(
            "table is the folder {}, which has no table that is known by its name (wav.scp of Kaldi, metadata.csv and the \
             like); give the path of the table, or the folder itself as the source",
            path.display()
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    parts.extend(plans.into_iter().map(ShardOrTable::Table));
    Ok(())
}

/// The tables of a folder: those that describe its recordings, else the folder itself. `of` makes the
/// manifest of a table.
fn tables_of(folder: paths::RecordingFolder, of: impl Fn(PathBuf) -> Manifest) -> Vec<TablePlan> {
    let paths::RecordingFolder { path, recordings, mut metadata, tables } = folder;
    let manifest = |table| TablePlan::Manifest(Arc::new(of(table)));
    if !tables.is_empty() {
        let plan = |FolderTable { table, archives }| match archives {
            None => manifest(table),
            Some(archives) => TablePlan::Archived { manifest: Arc::new(of(table)), archives },
        };
        return tables.into_iter().map(plan).collect();
    }
    // One at the top is for all that is below it.
    if let Some(top) = metadata.iter().position(|table| table.parent() == Some(&path)) {
        metadata = vec![metadata.swap_remove(top)];
    }
    match metadata.is_empty() {
        true => vec![TablePlan::Folder { folder: path, files: recordings }],
        false => metadata.into_iter().map(manifest).collect(),
    }
}

/// What the sources of a loader are.
pub(crate) enum ShardsOrTables {
    Shards(Vec<PathBuf>),
    Tables(Vec<TablePlan>),
}

/// The shards, or else the tables. Both together are an error.
pub(crate) fn shards_or_tables(parts: Vec<ShardOrTable>) -> Result<ShardsOrTables> {
    let (mut shards, mut tables) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            ShardOrTable::Shard(shard) => shards.push(shard),
            ShardOrTable::Table(table) => tables.push(table),
        }
    }
    match (shards.first(), tables.is_empty()) {
        (_, true) => Ok(ShardsOrTables::Shards(shards)),
        (None, false) => Ok(ShardsOrTables::Tables(tables)),
        (Some(shard), false) => {
            if !urls::is_url(shard) {
                fs::symlink_metadata(shard).map_err(|error| Error::io(shard, "open", error))?;
            }
            let message = format!(
                "{} is a shard, and other sources are recordings in files; the sources of a loader are all shards, or all \
                 tables, folders and files of recordings",
                shard.display()
            );
            Err(Error::new(ErrorKind::Config, message))
        }
    }
}

/// The ending and the name of a format of recordings that is not read.
fn unread(path: &Path) -> Option<(String, &'static str)> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    let name = unread_format(&ending)?;
    Some((ending, name))
}

/// Whether a path is that of a table that names recordings. Parquet is a shard.
fn is_table(path: &Path) -> bool {
    const PACKED: [&str; 5] = ["gz", "zst", "bz2", "xz", "zip"];
    let ending = ending_of(path);
    // Other formats as well: the error for tables says which are read.
    if ["tgz", "xls", "xlsx"].contains(&&*ending) {
        return true;
    }
    let inner = match PACKED.contains(&&*ending) {
        true => ending_of(Path::new(path.file_stem().unwrap_or_default())),
        false => ending,
    };
    TableFormat::of_ending(&inner).is_some_and(|format| format != TableFormat::Parquet)
}
