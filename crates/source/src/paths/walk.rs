//! [`FolderWalk`]: the files that folders, patterns and URLs stand for.
//!
//! Source: own.

use std::{
    ffi::OsStr,
    fs,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use super::{
    content::FolderContent,
    names::{Reads, is_recording, name_of, natural, natural_paths, not_found},
};
use crate::{
    Error, ErrorKind, Result, cancel,
    compression::Compression,
    fallible_alloc,
    layouts::{self, FolderTable, is_metadata},
    pattern::Pattern,
    splits,
    storage::{Storage, StoredFile},
    table_format::is_archive,
    tree::{DEEPEST, FolderEntry, Tree},
    urls::{self, Named},
};

/// The most entries of folders that one expansion looks at, some 3 GB of names.
const MOST_ENTRIES: u64 = 1 << 24;

/// The longest `state.json` that is read: some hundred thousand shards.
pub(super) const LONGEST_STATE: u64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct RecordingFolder {
    pub path: PathBuf,
    /// The recordings below it, in natural order.
    pub recordings: Vec<PathBuf>,
    pub metadata: Vec<PathBuf>,
    /// Its tables, if the names of its files tell which they are.
    pub tables: Vec<FolderTable>,
}

/// Whether a file in a folder of recordings is most likely a table of them.
fn is_unread_table(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ["csv", "tsv", "jsonl"].iter().any(|table| ending.eq_ignore_ascii_case(table)))
}

/// Whether a path that does not exist has the form of a data set of the Hub, `owner/name`.
fn is_of_hub(path: &Path) -> bool {
    let is_name = |part: &OsStr| {
        let bytes = part.as_encoded_bytes();
        bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
    };
    let parts: Vec<_> = path.iter().collect();
    matches!(parts[..], [owner, name] if is_name(owner) && is_name(name) && Path::new(name).extension().is_none())
        && path.parent().is_some_and(|owner| fs::symlink_metadata(owner).is_err())
}

/// The folders on the way to the current one that were entered through a link, and the depth.
#[derive(Clone, Default)]
struct Way {
    depth: usize,
    links: Vec<PathBuf>,
}

pub(super) struct FolderWalk<'a> {
    reads: Reads,
    storage: &'a Arc<dyn Storage>,
    tree: Tree,
    /// The entries of folders that may still be looked at.
    pub left: u64,
    /// Whether a link was among them.
    pub has_links: bool,
    pub folders: Vec<RecordingFolder>,
}

impl<'a> FolderWalk<'a> {
    pub(super) fn new(reads: Reads, storage: &'a Arc<dyn Storage>) -> Self {
        let (tree, left, folders) = (Tree::Local, MOST_ENTRIES, Vec::new());
        Self { reads, storage, tree, left, has_links: false, folders }
    }

    /// The entries of a folder in natural order, broken links as files.
    fn list(&mut self, folder: &Path) -> Result<Vec<FolderEntry>> {
        cancel::check("opening")?;
        let mut entries = Vec::new();
        let Self { tree, left, has_links, .. } = self;
        tree.each(folder, |entry, is_link| {
            let Some(fewer) = left.checked_sub(1) else {
                let message = format!(
                    "there are more than {MOST_ENTRIES} files and folders to look at, the last ones in {}; name a folder or a \
                     pattern that has fewer",
                    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }.display()
                );
                return Err(Error::new(ErrorKind::Config, message));
            };
            *left = fewer;
            *has_links |= is_link;
            fallible_alloc::push(&mut entries, entry)
        })?;
        let tree = &self.tree;
        entries
            .sort_unstable_by(|a, b| natural(name_of(&tree.shown(&a.path)), name_of(&tree.shown(&b.path))));
        Ok(entries)
    }

    /// The way into a folder; an error if it is too deep, or leads back to where it came from.
    fn enter(&self, folder: &Path, way: &Way) -> Result<Way> {
        let mut way = Way { depth: way.depth + 1, links: way.links.clone() };
        let refused = |what: String| Err(Error::new(ErrorKind::Config, what));
        if way.depth > DEEPEST {
            return refused(format!(
                "{} is more than {DEEPEST} folders deep; name a folder further down",
                folder.display()
            ));
        }
        let is_link = fs::symlink_metadata(folder).is_ok_and(|found| found.is_symlink());
        if way.depth > 1 && is_link {
            let real =
                |path: &Path| fs::canonicalize(path).map_err(|error| Error::io(path, "resolve", error));
            let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
            let (target, here) = (real(folder)?, real(parent.unwrap_or(Path::new(".")))?);
            if here.starts_with(&target) || way.links.iter().any(|link| link.starts_with(&target)) {
                return refused(format!(
                    "{} is a link to {}, which contains it, so there would be no end; remove the link, or name the \
                     folders beside it",
                    folder.display(),
                    target.display()
                ));
            }
            way.links.push(here);
        }
        Ok(way)
    }

    /// Adds what one path stands for, of `n` that are expanded; returns whether it is a file as it is named.
    pub(super) fn entry(&mut self, path: &Path, n: usize, files: &mut Vec<PathBuf>) -> Result<bool> {
        if urls::is_url(path) {
            return self.url(path, files);
        }
        urls::check_path(path)?;
        let is_pattern = path.as_os_str().as_encoded_bytes().iter().any(|byte| b"*?[".contains(byte));
        if path.is_dir() {
            self.folder(path, files)?;
            return Ok(false);
        }
        if is_pattern && fs::symlink_metadata(path).is_err() {
            self.pattern(PathBuf::new(), path, path, files)?;
            return Ok(false);
        }
        if is_of_hub(path) {
            return Err(not_found(
                path,
                format!(
                    "there is no file or folder {0}; a data set of the Hub is hf://datasets/{0}",
                    path.display()
                ),
            ));
        }
        if let Some(advice) = layouts::advice_on(path).filter(|_| self.reads == Reads::Recordings) {
            return Err(Error::new(ErrorKind::Config, advice));
        }
        // Of a list of recordings, a missing one is a bad record.
        let is_needed = n == 1 && is_recording(path.as_os_str());
        if self.reads != Reads::Recordings || is_needed {
            fs::symlink_metadata(path).map_err(|error| Error::io(path, "open", error))?;
        }
        fallible_alloc::push(files, path.to_owned())?;
        Ok(true)
    }

    /// Adds the files that a folder stands for.
    pub(super) fn folder(&mut self, folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
        let (before, mut found) = (files.len(), FolderContent::default());
        self.below(folder, &Way::default(), files, &mut found)?;
        if !found.tables.is_empty() {
            let (path, tables) = (folder.to_owned(), found.tables);
            let found = RecordingFolder { path, recordings: Vec::new(), metadata: Vec::new(), tables };
            fallible_alloc::push(&mut self.folders, found)?;
            return fallible_alloc::push(files, folder.to_owned());
        }
        let formats = self.reads.formats();
        // Beside recordings, metadata.parquet is no shard.
        let are_metadata = |files: &[PathBuf]| files.iter().all(|file| is_metadata(name_of(file)));
        if !found.recordings.is_empty() && are_metadata(&files[before..]) {
            files.truncate(before);
            found.warn(folder);
            let FolderContent { recordings, metadata, unread_table, .. } = found;
            // Recordings in folders have these as labels.
            let is_at_top = |recording: &PathBuf| recording.parent() == Some(folder);
            if let Some(table) =
                unread_table.filter(|_| metadata.is_empty() && recordings.iter().any(is_at_top))
            {
                log::warn!(
                    "{} is not read, and recordings have no labels: pass the table in place of its folder",
                    table.display()
                );
            }
            // A table at the top says itself what is to be read.
            let is_told = metadata.iter().any(|table| table.parent() == Some(folder));
            if let Some(message) = splits::of_recordings(folder, &recordings).filter(|_| !is_told) {
                return Err(Error::new(ErrorKind::Config, message));
            }
            fallible_alloc::push(
                &mut self.folders,
                RecordingFolder { path: folder.to_owned(), recordings, metadata, tables: Vec::new() },
            )?;
            return fallible_alloc::push(files, folder.to_owned());
        }
        if matches!(self.reads, Reads::Texts | Reads::Ids) && found.formats.len() > 1 {
            let first = found.formats.keys().next().copied();
            let is_first = |file: &PathBuf| self.reads.format_of(name_of(file)) == first;
            let mut kept = before;
            for at in before..files.len() {
                if is_first(&files[at]) {
                    files.swap(kept, at);
                    kept += 1;
                }
            }
            files.truncate(kept);
        } else if found.formats.len() > 1 {
            let counted =
                found.formats.iter().map(|(&format, n)| format!("{n} of {}", formats[format].name()));
            let first = formats[found.formats.keys().next().copied().unwrap_or_default()];
            let message = format!(
                "{} has shards of several formats: {}; name one kind, as in {}",
                folder.display(),
                counted.collect::<Vec<_>>().join(", "),
                folder.join(format!("**/*{}", first.ending())).display()
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        if files.len() == before {
            if !found.archives.is_empty() {
                found.warn(folder);
            }
            files.append(&mut found.archives);
        }
        if files.len() > before {
            return match splits::of_shards(folder, &files[before..]) {
                Some(message) if self.reads == Reads::Recordings => {
                    Err(Error::new(ErrorKind::Config, message))
                }
                _ => Ok(()),
            };
        }
        let message = format!(
            "{} has no shards that can be read here: expected are files that end in {}{}, found {}",
            folder.display(),
            self.reads.expected(),
            if self.reads == Reads::Recordings {
                ", recordings such as .wav, or .tar archives of them"
            } else {
                ""
            },
            found.told(self.reads)
        );
        Err(not_found(folder, message))
    }

    /// Adds the shards below a folder.
    fn below(
        &mut self,
        folder: &Path,
        way: &Way,
        files: &mut Vec<PathBuf>,
        found: &mut FolderContent,
    ) -> Result<()> {
        let way = self.enter(folder, way)?;
        if let Some(shards) = saved(&self.tree, folder)? {
            if let Some(shard) = shards.iter().find(|shard| self.reads.format_of(name_of(shard)).is_none()) {
                let message = format!(
                    "{} was written by save_to_disk and has the shard {}; expected are files that end in {}: write \
                     them with to_parquet",
                    folder.display(),
                    name_of(shard).display(),
                    self.reads.expected()
                );
                return Err(Error::new(ErrorKind::Config, message));
            }
            found.saved(self.reads, &shards);
            files.extend(shards);
            return Ok(());
        }
        if self.tree.is_file(&folder.join("dataset_dict.json")) {
            let mut splits = self.list(folder)?;
            splits.retain(|entry| self.tree.is_file(&entry.path.join("state.json")));
            if let [split] = &splits[..] {
                return self.below(&split.path, &way, files, found);
            }
            let names: Vec<_> = splits.iter().map(|entry| format!("{:?}", entry.path)).collect();
            let names = if names.is_empty() { "none is there".to_owned() } else { names.join(", ") };
            let message =
                format!("{} holds several splits; pass the folder of one split: {names}", folder.display());
            return Err(Error::new(ErrorKind::Format, message));
        }
        let entries = self.list(folder)?;
        if self.reads == Reads::Recordings && way.depth == 1 {
            found.tables = layouts::tables_of(&entries)?;
            if !found.tables.is_empty() {
                return Ok(());
            }
        } else if self.reads == Reads::Recordings
            && found.inner.is_none()
            && !layouts::tables_of(&entries).is_ok_and(|tables| tables.is_empty())
        {
            found.inner = Some(folder.to_owned());
        }
        for FolderEntry { path, is_folder } in entries {
            let name = name_of(&path);
            if matches!(name.as_encoded_bytes().first(), Some(b'.' | b'_')) || is_left_out(name) {
                found.left_out += 1;
            } else if is_folder {
                self.below(&path, &way, files, found)?;
            } else {
                // A compressed copy follows its table, and is left out.
                let plain = |path: &Path| path.with_file_name(Compression::split(path).0);
                let is_copy = || found.metadata.last().is_some_and(|table| plain(table) == plain(&path));
                if self.reads == Reads::Recordings && is_metadata(name) && !is_copy() {
                    fallible_alloc::push(&mut found.metadata, path.clone())?;
                } else if way.depth == 1 && is_unread_table(&path) {
                    found.unread_table.get_or_insert_with(|| path.clone());
                }
                if self.reads == Reads::Recordings && is_archive(&path) {
                    fallible_alloc::push(&mut found.archives, path)?;
                } else if found.count(self.reads, name) {
                    fallible_alloc::push(files, path)?;
                } else if self.reads == Reads::Recordings && is_recording(name) {
                    fallible_alloc::push(&mut found.recordings, path)?;
                }
            }
        }
        Ok(())
    }

    /// Adds the objects that a URL stands for; returns whether it is the URL of one.
    fn url(&mut self, url: &Path, files: &mut Vec<PathBuf>) -> Result<bool> {
        let named = urls::named(url)?;
        // Of a list that is in memory, a pattern may look at the same folder several times.
        let left = std::mem::replace(&mut self.left, MOST_ENTRIES);
        match &named {
            Named::Object => fallible_alloc::push(files, url.to_owned())?,
            Named::Folder => {
                self.tree = Tree::listed(self.storage, url, left)?;
                self.folder(url, files)?;
            }
            Named::Pattern(folder, parts) => {
                self.tree = Tree::listed(self.storage, folder, left)?;
                self.pattern(folder.clone(), parts, url, files)?;
            }
        }
        (self.tree, self.left) = (Tree::Local, left);
        Ok(named == Named::Object)
    }

    /// Adds the files that a pattern stands for: `parts` below the folder `base`.
    fn pattern(
        &mut self,
        mut base: PathBuf,
        parts: &Path,
        pattern: &Path,
        files: &mut Vec<PathBuf>,
    ) -> Result<()> {
        let invalid = |why: &str| {
            let message = format!("{:?} is not a valid pattern: {why}", pattern.display().to_string());
            Err(Error::new(ErrorKind::Config, message))
        };
        let components = parts.components();
        let mut parts = Vec::new();
        for component in components {
            let text = component.as_os_str();
            let is_pattern = text.as_encoded_bytes().iter().any(|byte| b"*?[".contains(byte));
            let part = match (is_pattern, text.to_str()) {
                (false, _) if parts.is_empty() => {
                    base.push(text);
                    continue;
                }
                (false, _) => PatternPart::Name(text),
                (true, None) => return invalid("it is not UTF-8"),
                (true, Some("**")) if matches!(parts.last(), Some(PatternPart::Folders)) => continue,
                (true, Some("**")) => PatternPart::Folders,
                (true, Some(text)) if text.contains("**") => {
                    return invalid("** stands between slashes, as in folder/**/*.parquet");
                }
                (true, Some(text)) => match Pattern::new(text) {
                    Ok(pattern) => PatternPart::Pattern(pattern),
                    Err(why) => return invalid(why),
                },
            };
            parts.push(part);
        }
        let mut matches = Vec::new();
        self.matching(&base, &parts, &Way::default(), &mut matches)?;
        let tree = &self.tree;
        matches.sort_unstable_by(|a, b| natural_paths(&tree.shown(&a.path), &tree.shown(&b.path)));
        matches.dedup_by(|a, b| a.path == b.path);
        if matches.is_empty() {
            let message = format!("no file matches the pattern {}", pattern.display());
            return Err(not_found(pattern, message));
        }
        for FolderEntry { path, is_folder } in matches {
            match is_folder {
                true => self.folder(&path, files)?,
                false => fallible_alloc::push(files, path)?,
            }
        }
        Ok(())
    }

    /// Adds what matches `parts` below a folder, a folder that matches without what is in it.
    fn matching(
        &mut self,
        folder: &Path,
        parts: &[PatternPart<'_>],
        way: &Way,
        matches: &mut Vec<FolderEntry>,
    ) -> Result<()> {
        let Some((part, rest)) = parts.split_first() else {
            let is_folder = self.tree.is_folder(folder);
            if is_folder || self.tree.is_there(folder) {
                fallible_alloc::push(matches, FolderEntry { path: folder.to_owned(), is_folder })?;
            }
            return Ok(());
        };
        if !folder.as_os_str().is_empty() && !self.tree.is_folder(folder) {
            return Ok(());
        }
        match part {
            PatternPart::Name(name) => self.matching(&folder.join(name), rest, way, matches),
            PatternPart::Folders if rest.is_empty() => self.matching(folder, rest, way, matches),
            PatternPart::Folders => {
                let way = self.enter(folder, way)?;
                let entries = self.list(folder)?;
                match rest {
                    [PatternPart::Pattern(pattern), rest @ ..] => {
                        self.matching_entries(&entries, pattern, rest, &way, matches)?;
                    }
                    _ => self.matching(folder, rest, &way, matches)?,
                }
                for FolderEntry { path, is_folder } in entries {
                    let is_hidden = matches!(name_of(&path).as_encoded_bytes().first(), Some(b'.' | b'_'));
                    if is_folder && !is_hidden {
                        self.matching(&path, parts, &way, matches)?;
                    }
                }
                Ok(())
            }
            PatternPart::Pattern(pattern) => {
                let entries = self.list(folder)?;
                self.matching_entries(&entries, pattern, rest, way, matches)
            }
        }
    }

    /// Adds what matches `pattern` among the entries of a folder, or `rest` below those that do.
    fn matching_entries(
        &mut self,
        entries: &[FolderEntry],
        pattern: &Pattern,
        rest: &[PatternPart<'_>],
        way: &Way,
        matches: &mut Vec<FolderEntry>,
    ) -> Result<()> {
        for entry in entries {
            let shown = self.tree.shown(&entry.path);
            let name = name_of(&shown);
            if !pattern.matches(&name.to_string_lossy()) || leaves_out(pattern, name) {
                continue;
            }
            match rest.is_empty() {
                true => fallible_alloc::push(matches, entry.clone())?,
                false if entry.is_folder => self.matching(&entry.path, rest, way, matches)?,
                false => {}
            }
        }
        Ok(())
    }
}

enum PatternPart<'a> {
    Name(&'a OsStr),
    Pattern(Pattern),
    /// `**`: any number of folders.
    Folders,
}

/// Whether a name is left out, though the pattern matches it: one that is hidden (`.x`, `_x`), unfinished
/// (`x.tmp`) or a cache of `map`, unless the pattern spells out its first character.
fn leaves_out(pattern: &Pattern, name: &OsStr) -> bool {
    let text = name.to_string_lossy();
    if text.ends_with(".tmp") {
        return true;
    }
    let is_special = text.starts_with(['.', '_']) || is_left_out(name);
    is_special && (text.is_empty() || pattern.first() != text.chars().next())
}

/// Whether a file is no shard whatever its ending: unfinished, or a cache of `map` of `datasets`.
fn is_left_out(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    if name.ends_with(".tmp") {
        return true;
    }
    // `cache-` and 16 digits, for a part also `_00000_of_00004`.
    let Some(rest) = name.strip_prefix("cache-").and_then(|name| name.strip_suffix(".arrow")) else {
        return false;
    };
    let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
    digits == 16 && (rest.len() == 16 || rest.as_bytes()[16] == b'_')
}

/// The shards of a folder that `save_to_disk` wrote; None for another folder.
fn saved(tree: &Tree, folder: &Path) -> Result<Option<Vec<PathBuf>>> {
    let state: Arc<Path> = folder.join("state.json").into();
    if !tree.is_there(&state) {
        return Ok(None);
    }
    let file = match StoredFile::open(&tree.storage(), &state) {
        Ok(file) => file,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let size = file.size();
    if size > LONGEST_STATE {
        let message = format!(
            "{} has {size} bytes, at most {LONGEST_STATE} are read; pass the shards as a list of files",
            state.display()
        );
        return Err(Error::new(ErrorKind::Format, message));
    }
    let mut json = fallible_alloc::zero_bytes(size as usize)?;
    file.read_exact(&mut json, 0)?;
    let wrong = || {
        let message =
            format!("{} lists no shards under _data_files; pass them as a list of files", state.display());
        Error::new(ErrorKind::Format, message)
    };
    let parsed: Value = serde_json::from_slice(&json).map_err(|error| wrong().because(error))?;
    let files = parsed.get("_data_files").and_then(Value::as_array).ok_or_else(wrong)?;
    let mut shards = Vec::new();
    fallible_alloc::reserve(&mut shards, files.len())?;
    for file in files {
        let name = file.get("filename").and_then(Value::as_str).ok_or_else(wrong)?;
        // Shards must be below the folder: a file elsewhere would not belong to the dataset.
        if name.is_empty() || !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
            let message = format!(
                "{} names the shard {name:?}, which is not below its folder; pass the shards as a list of files",
                state.display()
            );
            return Err(Error::new(ErrorKind::Format, message));
        }
        shards.push(folder.join(name));
    }
    Ok(Some(shards))
}
