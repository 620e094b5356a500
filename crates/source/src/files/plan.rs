//! [`TablePlan`]: what is read as one table, and how it is opened.

use std::{
    collections::HashMap,
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    column::{Cell, ColumnBuilder},
    manifest::{Manifest, RowSource, TableRequest, plain, time_without_segments},
    names::TextList,
    rows::TableBuilder,
    table::{RecordingTable, check_named},
};
use crate::{
    Error, ErrorKind, Result,
    columns::{ColumnChoice, SchemaColumn},
    layouts::Archives,
    paths::{self, Reads},
    storage::{Storage, resolve},
    table_format::is_archive,
    urls,
};

/// What is read as one table.
#[derive(Debug)]
pub(crate) enum TablePlan {
    Manifest(Arc<Manifest>),
    /// The table of a folder that has the recordings in archives.
    Archived {
        manifest: Arc<Manifest>,
        archives: Archives,
    },
    Folder {
        folder: PathBuf,
        files: Vec<PathBuf>,
    },
    /// Recordings that are named one by one.
    List(Vec<PathBuf>),
}

impl RecordingTable {
    /// Reads a table.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] for a column that is missing or whose type is not supported;
    /// [`ErrorKind::Format`] for a table that cannot be read; [`ErrorKind::Config`] for rows that cannot be;
    /// [`ErrorKind::NotFound`], [`ErrorKind::Io`]; [`ErrorKind::Closed`] once the work is stopped.
    pub(super) fn open(
        plan: &TablePlan,
        storage: &Arc<dyn Storage>,
        asked: &TableRequest<'_>,
    ) -> Result<Self> {
        match plan {
            TablePlan::Folder { folder, files } => Self::of_folder(folder, files, asked),
            TablePlan::List(files) => Self::of_list(files, asked),
            TablePlan::Manifest(manifest) => Self::of_manifest(manifest, None, storage, asked),
            TablePlan::Archived { manifest, archives } => {
                Self::of_manifest(manifest, Some(archives), storage, asked)
            }
        }
    }

    /// Reads a table; `archives` are those of its folder, if it has any.
    fn of_manifest(
        manifest: &Manifest,
        archives: Option<&Archives>,
        storage: &Arc<dyn Storage>,
        asked: &TableRequest<'_>,
    ) -> Result<Self> {
        let path: Arc<Path> = manifest.path().into();
        let named = asked.recordings.map(|column| named_by_loader(manifest, column)).transpose();
        let named = named.map_err(|error| error.in_shard(&path))?;
        let manifest = named.as_ref().unwrap_or(manifest);
        let folder = match &manifest.rows {
            RowSource::File(path) => path.parent().unwrap_or(Path::new("")),
            RowSource::Given(_) => Path::new(""),
        };
        let root: Arc<Path> = manifest.root.as_deref().unwrap_or(folder).into();
        let mut builder = TableBuilder { unit: manifest.unit, ..TableBuilder::default() };
        if let RowSource::File(path) = &manifest.rows
            && !path.exists()
        {
            check_named(path)?;
        }
        let in_archives = manifest.root.as_deref().is_some_and(is_archive);
        if archives.is_some() && manifest.root.is_some() {
            let message = "root is the folder of relative paths, and this folder has its recordings in archives; \
                           leave root= out, or give the table and root= both";
            return Err(Error::new(ErrorKind::Config, message).in_shard(&path));
        }
        if let Some(root) = manifest.root.as_deref().filter(|_| !in_archives) {
            check_root(&**storage, root)?;
        }
        let read = match &manifest.rows {
            RowSource::File(_) => builder.read(storage, &path, manifest, asked),
            RowSource::Given(rows) => builder.given(rows, manifest, asked),
        };
        // A file beside the table is named already.
        read.map_err(|error| if error.place.shard.is_some() { error } else { error.in_shard(&path) })?;
        if *asked.label == ColumnChoice::Usual && builder.label_name.is_none() {
            tell_of_label(&path, &builder.schema, asked.others);
        }
        if [&manifest.start, &manifest.end] == [&ColumnChoice::Usual; 2] {
            tell_of_times(&path, &builder.schema);
        }
        let of_root;
        let archives = match archives {
            None if in_archives => {
                let paths = paths::expand(&[&root], Reads::Recordings, storage)?;
                of_root = Archives { paths, are_paired: false };
                Some(&of_root)
            }
            archives => archives,
        };
        if let Some(archives) = archives {
            builder.find_in(archives, &path, storage, asked)?;
        }
        let mut table = builder.finish(path, root);
        table.is_of_manifest = true;
        Ok(table)
    }

    fn of_folder(folder: &Path, files: &[PathBuf], asked: &TableRequest<'_>) -> Result<Self> {
        let mut builder = TableBuilder::default();
        let (mut classes, mut first_at_top, mut n_at_top) = (TextList::default(), None, 0);
        for file in files {
            let name = file.strip_prefix(folder).unwrap_or(file);
            let name = if urls::is_url(folder) { urls::unescaped(name) } else { name.to_owned() };
            builder.add(None, Some(name.as_os_str().as_encoded_bytes()), None, None)?;
            let above = name.parent().and_then(Path::file_name);
            if above.is_none() {
                first_at_top.get_or_insert(file);
                n_at_top += 1;
            }
            classes.push(above.unwrap_or_default().as_encoded_bytes())?;
        }
        let all_below = n_at_top == 0;
        let n_below = files.len() - n_at_top;
        // Why folders are no classes, if some files lie in one.
        let unlabelled = first_at_top.filter(|_| n_below > 0).map(|first| {
            format!(
                "{n_below} of {} recordings lie in folders, whose names would be their classes, but {} does not, so none has a \
                 label; move those that lie in no folder of a class into one, or away",
                files.len(),
                first.display()
            )
        });
        let is_class = |name: &str| all_below && name == "label";
        let missing = |parameter: &str, name: &str| match &unlabelled {
            Some(reason) if name == "label" => {
                let message = format!("{parameter} {name:?} is requested: {reason}");
                Error::new(ErrorKind::Schema, message).in_shard(folder)
            }
            _ => no_columns(folder, parameter, name),
        };
        if let Some(name) = asked.recordings {
            return Err(no_columns(folder, "a column of recordings", name));
        }
        if let Some(name) = asked.label.name().filter(|name| !is_class(name)) {
            return Err(missing("label_column", name));
        }
        if let Some(name) = asked.others.iter().find(|name| !is_class(name)) {
            return Err(missing("a column", name));
        }
        if let Some(reason) = unlabelled.filter(|_| n_at_top < n_below && *asked.label == ColumnChoice::Usual)
        {
            log::warn!("{}: {reason}", folder.display());
        }
        if all_below && *asked.label == ColumnChoice::Usual {
            tell_of_nested(folder, files);
        }
        if all_below {
            let mut label = ColumnBuilder::default();
            classes.iter().try_for_each(|class| label.push(Cell::Text(class)))?;
            let label = label.finish()?;
            let content = label.column_type().to_string();
            builder.schema = vec![SchemaColumn::new("label".to_owned(), content)];
            builder.others = asked.others.iter().map(|_| label.clone()).collect();
            if *asked.label != ColumnChoice::Nothing {
                (builder.label, builder.label_name) = (Some(label), Some("label".to_owned()));
            }
        }
        Ok(builder.finish(folder.into(), folder.into()))
    }

    fn of_list(files: &[PathBuf], asked: &TableRequest<'_>) -> Result<Self> {
        let mut builder = TableBuilder::default();
        for file in files {
            builder.add(None, Some(file.as_os_str().as_encoded_bytes()), None, None)?;
        }
        let first = files.first().map_or(Path::new(""), PathBuf::as_path);
        if let Some(name) = asked.recordings {
            return Err(no_columns(first, "a column of recordings", name));
        }
        if let Some(name) = asked.label.name() {
            return Err(no_columns(first, "label_column", name));
        }
        if let Some(name) = asked.others.first() {
            return Err(no_columns(first, "a column", name));
        }
        // One file is its own shard; several are those of a folder.
        let folder = first.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let path = if files.len() == 1 { first } else { folder };
        let mut table = builder.finish(path.into(), Path::new("").into());
        table.is_trusted = true;
        Ok(table)
    }
}

/// The manifest with the column of paths that a loader names.
///
/// # Errors
/// [`ErrorKind::Config`] if the manifest names one, too.
fn named_by_loader(manifest: &Manifest, column: &str) -> Result<Manifest> {
    if let Some(named) = &manifest.path_column {
        let message = format!(
            "the loader takes recordings from column {column:?}, and path_column of the Manifest is {named:?}; leave path_column out"
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok(Manifest { path_column: Some(column.to_owned()), ..manifest.clone() })
}

/// Warns if no column is the label, but one has a name that people give to labels.
fn tell_of_label(path: &Path, schema: &[SchemaColumn], read: &[String]) {
    // As `forebay._annotations` knows them, and some of tables whose rows are whole recordings.
    const NAMES: [&str; 14] = [
        "label",
        "labels",
        "annotation",
        "species",
        "class",
        "ebirdcode",
        "speciescode",
        "commonname",
        "eventlabel",
        "scientificname",
        "classname",
        "primarylabel",
        "category",
        "tag",
    ];
    let is_usual = |name: &str| NAMES.contains(&&*plain(name));
    if let Some(column) = schema.iter().find(|column| is_usual(&column.name) && !read.contains(&column.name))
    {
        log::warn!(
            "{}: no column is called label, so batches have no label; to have {:?} as the label, pass label_column={:?} or targets=",
            path.display(),
            column.name,
            column.name
        );
    }
}

/// Warns if the rows are whole recordings, but a column seems to have their starts or ends.
fn tell_of_times(path: &Path, schema: &[SchemaColumn]) {
    if let Some(column) = time_without_segments(schema.iter().map(|column| &*column.name)) {
        log::warn!(
            "{}: {column:?} is half of a pair of starts and ends, so rows are whole recordings; if they are segments, name both \
             columns: Manifest(..., start=, end=); if not, give start=\"\"",
            path.display()
        );
    }
}

/// Warns if two folders have one name, which makes their recordings one class.
fn tell_of_nested(folder: &Path, files: &[PathBuf]) {
    let mut folders: HashMap<&OsStr, &Path> = HashMap::new();
    let mut last = None;
    for file in files {
        let Some(above) = file.parent() else { continue };
        // Files of a folder follow each other.
        if last.replace(above) == Some(above) {
            continue;
        }
        let Some(name) = above.file_name() else { continue };
        let first = *folders.entry(name).or_insert(above);
        if first != above {
            log::warn!(
                "{}: the folders {} and {} have one name, so their recordings are one class, {name:?}: the class of a recording is \
                 the folder directly above it; for other classes give a table, such as forebay.Manifest(rows)",
                folder.display(),
                first.display(),
                above.display()
            );
            return;
        }
    }
}

/// Checks the folder that a user names for relative paths.
fn check_root(storage: &dyn Storage, root: &Path) -> Result<()> {
    check_named(root)?;
    let here = if root.as_os_str().is_empty() { Path::new(".") } else { root };
    let found = resolve(storage, here)?;
    if !found.is_file() {
        return Ok(());
    }
    let message = format!(
        "root is the file {}, expected the folder that paths start from, or archives that end in .tar (unpacked ones)",
        root.display()
    );
    Err(Error::new(ErrorKind::Config, message))
}

fn no_columns(path: &Path, parameter: &str, name: &str) -> Error {
    let message = format!(
        "{parameter} {name:?} is requested, and recordings without a table have no columns; give a table, as \"labels.csv\" or \
         forebay.Manifest, or write a metadata.csv into the folder"
    );
    Error::new(ErrorKind::Schema, message).in_shard(path)
}
