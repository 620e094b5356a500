//! Expands what a user names as shards, for every loader, build and command: files, folders, patterns, lists.
//!
//! Input: paths in the user's order. Output: files. The order depends on names alone, never on the system's
//! listing or locale:
//! - A list keeps its order; each entry is expanded in its place.
//! - A folder written by `save_to_disk` stands for the files in its `state.json`, in that order. Other files
//!   in it, such as the `cache-*.arrow` of `map`, are no part of the dataset.
//! - Any other folder stands for all shards below it, in [natural order](natural). Hidden names (`.x`, `_x`),
//!   unfinished files (`x.tmp`) and caches of `map` are left out. All must have one format. A folder of
//!   recordings without shards stands for itself, with the recordings below it, and a folder of Kaldi, Lhotse
//!   or NeMo (`layouts`) for itself, with its tables.
//! - A folder of recordings or their shards that has several splits (`splits`) is an error: mixing them is
//!   for the user to say, by naming them.
//! - A pattern stands for what it matches, in natural order: a file as it is, a folder as above.
//! - A range of numbers, `{000..127}` or as NeMo writes it `_OP_0..127_CL_`, stands for a path of each.
//! - A URL stands for one object. One that ends in `/`, that of a bucket, and a pattern are expanded in the
//!   same way.
//! - An existing path is taken literally, whatever characters it has.
//!
//! The crate `glob` was dropped: its order is that of bytes, and it bounds neither the number of entries nor
//! loops of links.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    fs,
    path::{self, Component, Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    Error, ErrorKind, Result, cancel,
    compression::Compression,
    fallible_alloc,
    layouts::{self, FolderTable, is_metadata},
    pattern::{self, Pattern},
    splits,
    storage::{Storage, StoredFile},
    tree::{DEEPEST, FolderEntry, Tree},
    urls::{self, Named},
};
use forebay_audio::{unread_advice, unread_format};

/// The longest `state.json` that is read: some hundred thousand shards.
const LONGEST_STATE: u64 = 64 << 20;
/// The most entries of folders that one expansion looks at.
const MOST_ENTRIES: u64 = 1 << 20;
/// The same for the list of a server, which is in memory.
const MOST_LISTED: u64 = 1 << 24;
/// Endings of recordings, in small letters.
pub(crate) const RECORDINGS: [&str; 30] = [
    "wav", "flac", "ogg", "mp3", "m4a", "opus", "aiff", "aif", "oga", "mp4", "aac", "caf", "wave", "au",
    "snd", "aifc", "mp2", "m4b", "rf64", "bwf", "w64", "sph", "sphere", "nist", "wv1", "wv2", "webm", "weba",
    "mka", "mkv",
];
/// Whether a name is that of a recording.
pub(crate) fn is_recording(name: &OsStr) -> bool {
    let ending = Path::new(name).extension().and_then(OsStr::to_str);
    ending.is_some_and(|ending| RECORDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

#[derive(Debug)]
pub(crate) struct RecordingFolder {
    pub path: PathBuf,
    /// The recordings below it, in natural order.
    pub recordings: Vec<PathBuf>,
    pub metadata: Vec<PathBuf>,
    /// Its tables, if the names of its files tell which they are.
    pub tables: Vec<FolderTable>,
}

/// A reader of shards; its formats decide which files of a folder are shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Recordings: Arrow or Parquet.
    Recordings,
    /// Documents: Parquet.
    Documents,
    /// Inputs of a cache: Arrow, Parquet, JSON lines, text.
    Inputs,
}

impl Reads {
    fn formats(self) -> &'static [(&'static str, &'static [&'static str])] {
        const ARROW: (&str, &[&str]) = ("Arrow", &["arrow"]);
        const PARQUET: (&str, &[&str]) = ("Parquet", &["parquet"]);
        const LINES: [(&str, &[&str]); 2] = [
            ("JSON lines", &["jsonl", "jsonl.gz", "jsonl.zst", "ndjson", "ndjson.gz", "ndjson.zst"]),
            ("text", &["txt", "txt.gz", "txt.zst"]),
        ];
        match self {
            Self::Recordings => &[ARROW, PARQUET],
            Self::Documents => &[PARQUET],
            Self::Inputs => &[ARROW, PARQUET, LINES[0], LINES[1]],
        }
    }

    /// The number of the format of a file, by the ending of its name.
    fn format_of(self, name: &OsStr) -> Option<usize> {
        let name = name.to_string_lossy().to_ascii_lowercase();
        let ends = |ending: &&str| {
            name.len() > ending.len() + 1
                && name.strip_suffix(*ending).is_some_and(|name| name.ends_with('.'))
        };
        self.formats().iter().position(|(_, endings)| endings.iter().any(ends))
    }

    /// Such as `.arrow or .parquet`.
    fn expected(self) -> String {
        let first = self.formats().iter().map(|(_, endings)| format!(".{}", endings[0]));
        let mut names: Vec<String> = first.collect();
        let last = names.pop().unwrap_or_default();
        let packed = if self == Self::Inputs { " (the last two also with .gz or .zst)" } else { "" };
        match names.is_empty() {
            true => last,
            false => format!("{} or {last}{packed}", names.join(", ")),
        }
    }
}

/// The files that `paths` stand for.
///
/// # Errors
/// [`ErrorKind::NotFound`] for a folder without shards or a pattern without match; [`ErrorKind::Config`] for
/// an invalid pattern, shards of several formats in a folder, too many entries, a loop of links, or a file
/// that a folder or a pattern has and that is named again; [`ErrorKind::Format`] for a folder of several
/// splits, or a `state.json` without shards; [`ErrorKind::Io`]; [`ErrorKind::Closed`] once the work is
/// stopped. A path that does not exist is an error; shards of recordings, and a list of recordings, are left
/// to their storage.
pub fn expand(paths: &[impl AsRef<Path>], reads: Reads, storage: &Arc<dyn Storage>) -> Result<Vec<PathBuf>> {
    expand_folders(paths, reads, storage).map(|(files, _)| files)
}

/// The same, and the folders of recordings among what is found.
///
/// # Errors
/// As [`expand`].
pub(crate) fn expand_folders(
    paths: &[impl AsRef<Path>],
    reads: Reads,
    storage: &Arc<dyn Storage>,
) -> Result<(Vec<PathBuf>, Vec<RecordingFolder>)> {
    let mut walk = FolderWalk::new(reads, storage);
    let mut files = Vec::new();
    fallible_alloc::reserve(&mut files, paths.len())?;
    // The entry that each file is from, and whether it is the entry itself.
    let mut from = Vec::new();
    fallible_alloc::reserve(&mut from, paths.len())?;
    for (entry, path) in paths.iter().map(AsRef::as_ref).enumerate() {
        cancel::check("opening")?;
        match of_range(path)? {
            None => {
                let is_literal = walk.entry(path, paths.len(), &mut files)?;
                fallible_alloc::resize(&mut from, files.len(), (entry, is_literal))?;
            }
            Some(names) => {
                for name in names {
                    walk.entry(Path::new(&name), paths.len().max(2), &mut files)?;
                }
                fallible_alloc::resize(&mut from, files.len(), (entry, false))?;
            }
        }
    }
    // One folder or pattern has a file twice only through a link.
    let is_found = from.iter().any(|(_, is_literal)| !is_literal);
    if walk.has_links || paths.len() > 1 && (is_found || reads != Reads::Recordings) {
        check_twice(&files, &from, paths, reads)?;
    }
    Ok((files, walk.folders))
}

/// The paths of a range of numbers in a path; None for a path without one, and for an existing one.
fn of_range(path: &Path) -> Result<Option<Vec<String>>> {
    let Some(found) = path.to_str().and_then(|text| pattern::numbered(text, MOST_ENTRIES as usize)) else {
        return Ok(None);
    };
    if !urls::is_url(path) && fs::symlink_metadata(path).is_ok() {
        return Ok(None);
    }
    found.map(Some).map_err(|message| Error::new(ErrorKind::Config, message))
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

/// An error if the same file is there twice, links resolved. Recordings that a user names twice, each time by
/// the file's own path, are read twice, as they always were.
fn check_twice(
    files: &[PathBuf],
    from: &[(usize, bool)],
    paths: &[impl AsRef<Path>],
    reads: Reads,
) -> Result<()> {
    let mut seen: HashMap<PathBuf, usize> = HashMap::new();
    seen.try_reserve(files.len()).map_err(|_| {
        Error::new(ErrorKind::Memory, format!("allocation failed for the names of {} files", files.len()))
    })?;
    for (number, file) in files.iter().enumerate() {
        // A missing file is reported when it is opened.
        let real = fs::canonicalize(file).or_else(|_| path::absolute(file)).unwrap_or_else(|_| file.clone());
        let Some(&before) = seen.get(&real) else {
            seen.insert(real, number);
            continue;
        };
        let (one, other) = (from[before], from[number]);
        let is_literal = one.1 && other.1;
        if is_literal && reads == Reads::Recordings {
            continue;
        }
        let named = match files[before] == *file {
            true => format!("the shard {} is given twice", file.display()),
            false => format!("{} and {} are the same file", files[before].display(), file.display()),
        };
        let entry = |(entry, _): (usize, bool)| paths[entry].as_ref().display();
        let by = match () {
            () if is_literal => String::new(),
            () if one.0 == other.0 => format!(", both in {}", entry(one)),
            () => format!(", by {} and by {}", entry(one), entry(other)),
        };
        let message = format!("{named}{by}, so its rows would come twice; name each file once");
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok(())
}

/// Compares two names: numbers in them by value, other bytes by value, and equal ones by all bytes.
///
/// So `shard_2` precedes `shard_10`, and names with zeros in front are in the order of their bytes.
pub fn natural(one: &OsStr, other: &OsStr) -> Ordering {
    let (mut a, mut b) = (one.as_encoded_bytes(), other.as_encoded_bytes());
    /// The leading digits, and the rest.
    fn number(bytes: &[u8]) -> (&[u8], &[u8]) {
        bytes.split_at(bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len()))
    }
    fn value(digits: &[u8]) -> &[u8] {
        &digits[digits.iter().position(|&digit| digit != b'0').unwrap_or(digits.len())..]
    }
    while let (&[first, ..], &[second, ..]) = (a, b) {
        let order = if first.is_ascii_digit() && second.is_ascii_digit() {
            let ((digits, rest), (others, other_rest)) = (number(a), number(b));
            (a, b) = (rest, other_rest);
            let (digits, others) = (value(digits), value(others));
            digits.len().cmp(&others.len()).then_with(|| digits.cmp(others))
        } else {
            (a, b) = (&a[1..], &b[1..]);
            first.cmp(&second)
        };
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len()).then_with(|| one.cmp(other))
}

/// Compares two paths, component by component, each by [`natural`].
fn natural_paths(one: &Path, other: &Path) -> Ordering {
    let pairs = one.components().zip(other.components());
    let mut orders = pairs.map(|(one, other)| natural(one.as_os_str(), other.as_os_str()));
    let counts = || one.components().count().cmp(&other.components().count());
    orders.find(|order| order.is_ne()).unwrap_or_else(counts)
}

/// The folders on the way to the current one that were entered through a link, and the depth.
#[derive(Clone, Default)]
struct Way {
    depth: usize,
    links: Vec<PathBuf>,
}

struct FolderWalk<'a> {
    reads: Reads,
    storage: &'a Arc<dyn Storage>,
    tree: Tree,
    /// The entries of folders that may still be looked at.
    left: u64,
    /// Whether a link was among them.
    has_links: bool,
    folders: Vec<RecordingFolder>,
}

impl<'a> FolderWalk<'a> {
    fn new(reads: Reads, storage: &'a Arc<dyn Storage>) -> Self {
        let (tree, left, folders) = (Tree::Local, MOST_ENTRIES, Vec::new());
        Self { reads, storage, tree, left, has_links: false, folders }
    }

    /// The entries of a folder in natural order, broken links as files.
    fn list(&mut self, folder: &Path) -> Result<Vec<FolderEntry>> {
        cancel::check("opening")?;
        let mut entries = Vec::new();
        let Self { tree, left, has_links, .. } = self;
        let most = if matches!(tree, Tree::Local) { MOST_ENTRIES } else { MOST_LISTED };
        tree.each(folder, |entry, is_link| {
            let Some(fewer) = left.checked_sub(1) else {
                let message = format!(
                    "there are more than {most} files and folders to look at, the last ones in {}; name a folder or a \
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
    fn entry(&mut self, path: &Path, n: usize, files: &mut Vec<PathBuf>) -> Result<bool> {
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
        // Of a list of recordings, a missing one is a bad record.
        let is_needed = n == 1 && is_recording(path.as_os_str());
        if self.reads != Reads::Recordings || is_needed {
            fs::symlink_metadata(path).map_err(|error| Error::io(path, "open", error))?;
        }
        fallible_alloc::push(files, path.to_owned())?;
        Ok(true)
    }

    /// Adds the files that a folder stands for.
    fn folder(&mut self, folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
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
            let FolderContent { recordings, metadata, .. } = found;
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
        if found.formats.len() > 1 {
            let counted = found.formats.iter().map(|(&format, n)| format!("{n} of {}", formats[format].0));
            let (_, endings) = formats[found.formats.keys().next().copied().unwrap_or_default()];
            let message = format!(
                "{} has shards of several formats: {}; name one kind, as in {}",
                folder.display(),
                counted.collect::<Vec<_>>().join(", "),
                folder.join(format!("**/*.{}", endings[0])).display()
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
                }
                if self.reads == Reads::Recordings
                    && path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("tar"))
                {
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
        let left = std::mem::replace(&mut self.left, MOST_LISTED);
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
                self.matching(folder, rest, &way, matches)?;
                for FolderEntry { path, is_folder } in self.list(folder)? {
                    let is_hidden = matches!(name_of(&path).as_encoded_bytes().first(), Some(b'.' | b'_'));
                    if is_folder && !is_hidden {
                        self.matching(&path, parts, &way, matches)?;
                    }
                }
                Ok(())
            }
            PatternPart::Pattern(pattern) => {
                for FolderEntry { path, is_folder } in self.list(folder)? {
                    let shown = self.tree.shown(&path);
                    let name = name_of(&shown);
                    if !pattern.matches(&name.to_string_lossy()) || leaves_out(pattern, name) {
                        continue;
                    }
                    match rest.is_empty() {
                        true => fallible_alloc::push(matches, FolderEntry { path, is_folder })?,
                        false if is_folder => self.matching(&path, rest, way, matches)?,
                        false => {}
                    }
                }
                Ok(())
            }
        }
    }
}

/// The files in a folder, counted for errors.
#[derive(Default)]
struct FolderContent {
    /// The number of shards of each format.
    formats: BTreeMap<usize, u64>,
    /// The number of other files by their ending.
    others: BTreeMap<String, u64>,
    /// Whether there is the ledger of a cache.
    is_cache: bool,
    /// Hidden, unfinished and cached files, and hidden folders.
    left_out: u64,
    archives: Vec<PathBuf>,
    /// Recordings, and the tables that describe them, for a reader of recordings.
    recordings: Vec<PathBuf>,
    metadata: Vec<PathBuf>,
    tables: Vec<FolderTable>,
    /// The first folder below it whose files say that it has tables.
    inner: Option<PathBuf>,
}

impl FolderContent {
    /// Logs what a folder of recordings has beside them.
    fn warn(&self, folder: &Path) {
        let unread: Vec<_> = self.unread().collect();
        if let Some(&(ending, name, _)) = unread.first() {
            let counted = unread.iter().map(|(ending, name, n)| format!("{n} of {name} (.{ending})"));
            log::warn!(
                "{}: files of formats that are not read are left out: {}; {}",
                folder.display(),
                counted.collect::<Vec<_>>().join(", "),
                unread_advice(name, ending)
            );
        }
        if let Some(inner) = &self.inner {
            log::warn!(
                "{}: the recordings are read without the table in {}; give that folder itself to read its rows and columns",
                folder.display(),
                inner.display()
            );
        }
    }

    /// The endings and names of formats that are not read, and their numbers of files.
    fn unread(&self) -> impl Iterator<Item = (&str, &'static str, u64)> {
        self.others.iter().filter_map(|(ending, &n)| Some((&**ending, unread_format(ending)?, n)))
    }

    /// Counts a file; returns whether it is a shard.
    fn count(&mut self, reads: Reads, name: &OsStr) -> bool {
        if let Some(format) = reads.format_of(name) {
            *self.formats.entry(format).or_default() += 1;
            return true;
        }
        self.is_cache |= name == "shard_ledger.json";
        let ending = Path::new(name).extension().map_or("", |ending| ending.to_str().unwrap_or(""));
        // Bounded: the names of endings are for an error.
        if self.others.len() < 1000 || self.others.contains_key(ending) {
            *self.others.entry(ending.to_ascii_lowercase()).or_default() += 1;
        }
        false
    }

    /// Counts the shards of a folder that `save_to_disk` wrote.
    fn saved(&mut self, reads: Reads, shards: &[PathBuf]) {
        let formats = shards.iter().filter_map(|shard| reads.format_of(name_of(shard)));
        formats.for_each(|format| *self.formats.entry(format).or_default() += 1);
    }

    /// Such as `12 files that end in .wav, 3 in .txt`, with advice for recordings.
    fn told(&self, reads: Reads) -> String {
        let mut others: Vec<(&String, u64)> = self.others.iter().map(|(ending, &n)| (ending, n)).collect();
        others.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
        let counted = others.iter().take(4).enumerate().map(|(number, (ending, n))| {
            let files = match number {
                0 => {
                    if *n == 1 {
                        " file"
                    } else {
                        " files"
                    }
                }
                _ => "",
            };
            match &ending[..] {
                "" => format!("{n}{files} without an ending"),
                ending => format!("{n}{files} ending in .{ending}"),
            }
        });
        let mut told: Vec<String> = counted.collect();
        if self.left_out > 0 {
            let n = self.left_out;
            told.push(format!(
                "{n} left out (hidden: .x or _x; unfinished: x.tmp; caches of map: cache-*.arrow)"
            ));
        }
        let told = if told.is_empty() { "none".to_owned() } else { told.join(", ") };
        match others.first() {
            Some((ending, _)) if RECORDINGS.contains(&&ending[..]) => {
                let advice = match reads {
                    Reads::Inputs => {
                        "a cache of recordings needs a processor, as forebay.cache.Features(\"whisper\")"
                    }
                    _ => "recordings are read by forebay.Loader",
                };
                format!("{told}; {advice}")
            }
            _ if self.is_cache => format!("{told}; it is a cache, which forebay.cache.TreeStore opens"),
            _ => match (&self.inner, self.unread().next()) {
                (Some(inner), _) => {
                    format!("{told}; {} has a table: give that folder itself", inner.display())
                }
                (None, Some((ending, name, _))) => format!("{told}; {}", unread_advice(name, ending)),
                (None, None) => told,
            },
        }
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

fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

fn not_found(path: &Path, message: String) -> Error {
    Error { file: Some(Arc::new(path.to_owned())), ..Error::new(ErrorKind::NotFound, message) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalFiles;
    use std::fs::File;

    /// A folder with these empty files.
    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            File::create(file).unwrap();
        }
        folder
    }

    fn expand_as(paths: &[PathBuf], reads: Reads) -> Result<Vec<PathBuf>> {
        let storage: Arc<dyn Storage> = Arc::new(LocalFiles);
        expand(paths, reads, &storage)
    }

    /// What `named`, joined by commas, stands for below a folder; or the kind of the error and its message.
    fn found(folder: &Path, named: &str, reads: Reads) -> std::result::Result<String, (ErrorKind, String)> {
        let paths: Vec<PathBuf> = named.split(',').map(|name| folder.join(name)).collect();
        let files = expand_as(&paths, reads).map_err(|error| (error.kind, error.message))?;
        let names = files.iter().map(|file| file.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
        Ok(names.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn numbers_are_in_natural_order() {
        let sorted = [
            "A_3",
            "a",
            "a_01",
            "a_1",
            "a_2",
            "a_02_x",
            "a_2_x",
            "a_10",
            "a_99999999999999999999999998",
            "a_99999999999999999999999999",
            "a_x",
            "b",
            "\u{e4}",
        ];
        for (i, one) in sorted.iter().enumerate() {
            for (j, other) in sorted.iter().enumerate() {
                assert_eq!(natural(OsStr::new(one), OsStr::new(other)), i.cmp(&j), "{one} {other}");
            }
        }
        // Names with zeros in front are in the order of their bytes, as they always were.
        let names: Vec<String> = (0..1100).map(|n| format!("shard_{n:05}-of-01100.parquet")).collect();
        assert!(names.windows(2).all(|two| natural(two[0].as_ref(), two[1].as_ref()).is_lt()));
    }

    #[test]
    fn folders_patterns_and_lists() {
        let all = folder(&[
            "shard_10.parquet",
            "shard_2.parquet",
            "b/shard_1.parquet",
            "_hidden/x.parquet",
            ".x.parquet",
            "_x.parquet",
            "late.parquet.tmp",
            "README.md",
            "c/d/shard_3.parquet",
            "[x].parquet",
            "[x]/e.parquet",
        ]);
        let at = |named: &str| found(all.path(), named, Reads::Documents).unwrap();
        let top = "[x]/e.parquet [x].parquet b/shard_1.parquet c/d/shard_3.parquet shard_2.parquet shard_10.parquet";
        assert_eq!(at(""), top);
        assert_eq!(at("**"), top);
        assert_eq!(at("**/*.parquet"), top);
        assert_eq!(at("*.parquet"), "[x].parquet shard_2.parquet shard_10.parquet");
        assert_eq!(at("shard_?.parquet"), "shard_2.parquet");
        assert_eq!(at("shard_[!2]*"), "shard_10.parquet");
        assert_eq!(at("*/d"), "c/d/shard_3.parquet");
        assert_eq!(at("**/d/*"), "c/d/shard_3.parquet");
        assert_eq!(at("[bc]"), "b/shard_1.parquet c/d/shard_3.parquet");
        assert_eq!(at("_*"), "_hidden/x.parquet _x.parquet");
        assert_eq!(at(".*"), ".x.parquet");
        // What is there is taken literally.
        assert_eq!(at("[x].parquet"), "[x].parquet");
        assert_eq!(at("[x]"), "[x]/e.parquet");
        // A list keeps its order.
        assert_eq!(at("shard_10.parquet,b,*_2*"), "shard_10.parquet b/shard_1.parquet shard_2.parquet");
        let (kind, message) = found(all.path(), "b,gone", Reads::Documents).unwrap_err();
        assert!(kind == ErrorKind::NotFound && message.starts_with("cannot open"), "{message}");
        assert_eq!(found(all.path(), "gone", Reads::Recordings).unwrap(), "gone");
    }

    #[test]
    fn nothing_found_says_what_is_there() {
        let all = folder(&["a/1.wav", "a/2.wav", "a/x.txt", "b/.git/x.parquet", "c/x.parquet.tmp", "d/none"]);
        let error = |named: &str| found(all.path(), named, Reads::Recordings).unwrap_err();
        // A folder of recordings stands for itself, where recordings are read.
        assert_eq!(found(all.path(), "a", Reads::Recordings).unwrap(), "a");
        let (kind, message) = found(all.path(), "a", Reads::Documents).unwrap_err();
        assert_eq!(kind, ErrorKind::NotFound);
        assert!(
            message.contains("end in .parquet, found 2 files ending in .wav, 1 ending in .txt"),
            "{message}"
        );
        let expected = "end in .arrow or .parquet, recordings such as .wav, or .tar archives of them, found";
        assert!(error("b,c").1.contains(expected));
        assert!(message.ends_with("; recordings are read by forebay.Loader"), "{message}");
        for hidden in ["b", "c"] {
            assert!(error(hidden).1.contains("found 1 left out (hidden"), "{hidden}");
        }
        assert!(error("d").1.contains("found 1 file without an ending"));
        assert_eq!(error("*.arrow").0, ErrorKind::NotFound);
        assert_eq!(error("gone/*").0, ErrorKind::NotFound);
        for (wrong, why) in
            [("[", "[ has no ]"), ("**.parquet", "** stands between slashes"), ("a/[]/x", "[ has no ]")]
        {
            let (kind, message) = error(wrong);
            assert_eq!(kind, ErrorKind::Config);
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn one_format_in_a_folder() {
        let all = folder(&["a.arrow", "sub/b.parquet", "c.jsonl.zst", "d.TXT"]);
        let error = |reads| found(all.path(), "", reads).unwrap_err();
        let (kind, message) = error(Reads::Recordings);
        assert_eq!(kind, ErrorKind::Config);
        assert!(message.contains("1 of Arrow, 1 of Parquet; name one kind, as in"), "{message}");
        assert!(error(Reads::Inputs).1.contains("1 of JSON lines, 1 of text"));
        assert_eq!(found(all.path(), "", Reads::Documents).unwrap(), "sub/b.parquet");
        assert_eq!(found(all.path(), "**/*.[ap]*", Reads::Recordings).unwrap(), "a.arrow sub/b.parquet");
    }

    #[test]
    fn a_file_comes_once() {
        let all = folder(&["x/a.arrow", "x/b.arrow", "y/c.arrow"]);
        for twice in ["x,x/a.arrow", "x/a.arrow,x/*", "x/../x/b.arrow,**", "x,x"] {
            let (kind, message) = found(all.path(), twice, Reads::Recordings).unwrap_err();
            assert_eq!(kind, ErrorKind::Config, "{twice}");
            assert!(message.contains("rows would come twice; name each file once"), "{message}");
        }
        let twice = "x/a.arrow,x/a.arrow";
        assert_eq!(found(all.path(), twice, Reads::Recordings).unwrap(), "x/a.arrow x/a.arrow");
        let (_, message) = found(all.path(), twice, Reads::Inputs).unwrap_err();
        assert!(message.starts_with("the shard ") && message.contains("is given twice, so"), "{message}");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_end() {
        use std::os::unix::fs::symlink;
        let all = folder(&["a/1.arrow", "b/2.arrow", "c/d/3.arrow"]);
        let at = |name: &str| all.path().join(name);
        symlink(at("b"), at("a/link")).unwrap();
        assert_eq!(found(all.path(), "a", Reads::Recordings).unwrap(), "a/1.arrow a/link/2.arrow");
        assert_eq!(found(all.path(), "a/**/*.arrow", Reads::Recordings).unwrap(), "a/1.arrow a/link/2.arrow");
        let (_, message) = found(all.path(), "", Reads::Recordings).unwrap_err();
        assert!(
            message.contains("a/link/2.arrow and ") && message.contains("are the same file, both in"),
            "{message}"
        );
        symlink(at("c"), at("c/d/up")).unwrap();
        symlink(at("a"), at("b/back")).unwrap();
        for endless in ["c", "c/**/*.arrow", "a", "b"] {
            let (kind, message) = found(all.path(), endless, Reads::Recordings).unwrap_err();
            assert_eq!(kind, ErrorKind::Config, "{endless}");
            assert!(message.contains("which contains it, so there would be no end"), "{message}");
        }
        // A link that leads nowhere is for the reader.
        symlink(at("gone"), at("broken.arrow")).unwrap();
        assert_eq!(found(all.path(), "*.arrow", Reads::Recordings).unwrap(), "broken.arrow");
    }

    #[test]
    fn the_work_is_bounded() {
        let all = folder(&["a.arrow", "b.arrow", "c/d.arrow"]);
        let storage: Arc<dyn Storage> = Arc::new(LocalFiles);
        let mut walk = FolderWalk { left: 4, ..FolderWalk::new(Reads::Recordings, &storage) };
        let mut files = Vec::new();
        walk.folder(all.path(), &mut files).unwrap();
        assert_eq!((files.len(), walk.left), (3, 0));
        assert!(walk.folder(all.path(), &mut files).unwrap_err().message.contains("more than 1048576 files"));
        let deep = tempfile::tempdir().unwrap();
        let path = (0..DEEPEST).fold(deep.path().to_owned(), |path, _| path.join("x"));
        fs::create_dir_all(&path).unwrap();
        for named in ["", "**/*.arrow"] {
            assert!(
                found(deep.path(), named, Reads::Recordings).unwrap_err().1.contains("64 folders deep"),
                "{named}"
            );
        }
        let stopped = cancel::during(Some(Arc::new(|| true)), || {
            expand(&[all.path()], Reads::Recordings, &storage).unwrap_err()
        });
        assert_eq!(stopped.kind, ErrorKind::Closed);
    }

    #[test]
    fn caches_of_map_are_left_out() {
        let all = folder(&[
            "x-train.arrow",
            "cache-0123456789abcdef.arrow",
            "cache-0123456789abcdef_00001_of_00004.arrow",
            "cache-of-mine.arrow",
        ]);
        let at = |named: &str| found(all.path(), named, Reads::Recordings).unwrap();
        assert_eq!(at(""), "cache-of-mine.arrow x-train.arrow");
        assert_eq!(at("*.arrow"), "cache-of-mine.arrow x-train.arrow");
        assert_eq!(at("cache-01*f.arrow"), "cache-0123456789abcdef.arrow");
    }

    #[test]
    fn the_state_names_the_shards() {
        let all = folder(&["one/a.arrow", "one/b.arrow", "one/other.arrow", "two/0.arrow"]);
        let state = all.path().join("one/state.json");
        fs::write(&state, r#"{"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}]}"#).unwrap();
        let at = |named: &str, reads| found(all.path(), named, reads);
        assert_eq!(at("one", Reads::Recordings).unwrap(), "one/b.arrow one/a.arrow");
        // Also as a folder in a folder, and as a match.
        assert_eq!(at("", Reads::Recordings).unwrap(), "one/b.arrow one/a.arrow two/0.arrow");
        assert_eq!(at("*", Reads::Inputs).unwrap(), "one/b.arrow one/a.arrow two/0.arrow");
        let (_, message) = at("one", Reads::Documents).unwrap_err();
        assert!(message.contains("written by save_to_disk") && message.contains("to_parquet"), "{message}");
        fs::write(&state, "{}").unwrap();
        assert_eq!(at("one", Reads::Recordings).unwrap_err().0, ErrorKind::Format);
        fs::write(all.path().join("two/dataset_dict.json"), "{}").unwrap();
        let (kind, message) = at("two", Reads::Recordings).unwrap_err();
        assert_eq!(kind, ErrorKind::Format);
        assert!(message.contains("several splits"), "{message}");
        // Of several splits the error names each, and one is taken.
        let dict = folder(&["dict/dataset_dict.json", "dict/test/state.json", "dict/test/0.arrow"]);
        let state = r#"{"_data_files": [{"filename": "0.arrow"}]}"#;
        fs::write(dict.path().join("dict/test/state.json"), state).unwrap();
        assert_eq!(found(dict.path(), "dict", Reads::Inputs).unwrap(), "dict/test/0.arrow");
        fs::create_dir(dict.path().join("dict/train")).unwrap();
        fs::write(dict.path().join("dict/train/state.json"), state).unwrap();
        let (_, message) = found(dict.path(), "dict", Reads::Recordings).unwrap_err();
        assert!(message.contains("dict/test\", \"") && message.contains("dict/train\""), "{message}");
    }

    #[test]
    fn shards_lie_below_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["/etc/hostname", "../a.arrow", "sub/../../a.arrow", "", "."] {
            let state = serde_json::json!({"_data_files": [{"filename": name}]});
            fs::write(folder.path().join("state.json"), state.to_string()).unwrap();
            let error = expand_as(&[folder.path().to_owned()], Reads::Recordings).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Format, "{name}");
            assert!(error.message.contains("not below its folder"), "{error}");
        }
    }

    #[test]
    fn a_state_of_no_real_size_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state.json");
        File::create(&state).unwrap().set_len(LONGEST_STATE + 1).unwrap();
        let error = expand_as(&[folder.path().to_owned()], Reads::Recordings).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Format);
        assert!(error.message.contains("67108865 bytes"), "{error}");
        fs::remove_file(&state).unwrap();
        fs::create_dir(&state).unwrap();
        assert_eq!(
            expand_as(&[folder.path().to_owned()], Reads::Recordings).unwrap_err().kind,
            ErrorKind::Io
        );
    }
}
