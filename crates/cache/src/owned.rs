//! The files of a folder that belong to the cache: a writer replaces and removes only these.
//!
//! The ledger names the fields, and the layout defines the files of a field. All other files are foreign and
//! stay as they are. A writer refuses a folder that has files and no ledger of forebay, before it changes
//! anything. Links are not followed.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use super::{
    files::{number_of, partial, partial_of, remove, remove_folder},
    json::read_metadata,
    ledger::{self, Ledger, local},
};
use crate::{Error, ErrorKind, Result, fields::Field};

/// The file that a writer locks.
pub(crate) const LOCK: &str = ".writer";
/// The most foreign files that an error names.
const NAMED: usize = 3;

/// Checks that a split's name is the plain name of one folder within the cache's.
///
/// # Errors
/// [`ErrorKind::Config`] for any other text.
pub(crate) fn check_split(split: &str) -> Result<()> {
    let mut parts = Path::new(split).components();
    let is_plain =
        matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == split);
    if is_plain && !split.contains(['/', '\\', '\0']) && split != "zarr.json" {
        return Ok(());
    }
    let message = format!(
        "split is {split:?}, must be the plain name of a folder within path, such as \"train\": not empty, not \".\", \"..\" or \
         \"zarr.json\", and without a separator"
    );
    Err(Error::new(ErrorKind::Config, message))
}

/// Checks that no input file is in the folder of the split. Shards in files have their paths as names.
///
/// # Errors
/// [`ErrorKind::Config`], with the first input that is.
pub(crate) fn check_inputs(folder: &Path, shards: &[String]) -> Result<()> {
    // A folder that does not exist has no files.
    let Ok(target) = fs::canonicalize(folder) else { return Ok(()) };
    let inside =
        |name: &&String| fs::canonicalize(name.as_str()).is_ok_and(|input| input.starts_with(&target));
    match shards.iter().find(inside) {
        None => Ok(()),
        Some(name) => Err(Error::new(
            ErrorKind::Config,
            format!(
                "the shard {name:?} is in {}, where the cache is to be written; give another path or split, or move the shard",
                folder.display()
            ),
        )),
    }
}

/// The ledger of the cache in `folder`, or None where a new cache may begin: in a folder that is missing,
/// empty, or left by a writer that died before it had a ledger.
///
/// # Errors
/// [`ErrorKind::State`] if the folder has files and no ledger of forebay; [`ErrorKind::Io`];
/// [`ErrorKind::Format`] for a damaged ledger.
pub(crate) fn ledger_of(folder: &Path) -> Result<Option<Ledger>> {
    if let Some(ledger) = Ledger::read_own(folder)? {
        return Ok(Some(ledger));
    }
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(|error| Error::io(folder, "list", error))?,
    };
    let mut foreign = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Error::io(folder, "list", error))?;
        let name = entry.file_name();
        let is_ours = match name.to_str() {
            Some(LOCK) => entry.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0),
            Some(name) => partial_of(name) == Some(ledger::FILE),
            None => false,
        };
        if !is_ours {
            foreign.push(format!("{:?}", name.display().to_string()));
        }
    }
    if foreign.is_empty() {
        return Ok(None);
    }
    foreign.sort();
    let more = foreign.len().saturating_sub(NAMED);
    foreign.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let message = format!(
        "{} has no {} and is not empty, so it is not a cache of forebay; nothing in it was changed; it has {}{more}; give another \
         path or split",
        folder.display(),
        ledger::FILE,
        foreign.join(", "),
    );
    Err(Error::new(ErrorKind::State, message))
}

/// Whether `folder` has the `zarr.json` of a group, which is left unchanged.
///
/// # Errors
/// [`ErrorKind::State`] if it has another `zarr.json`; [`ErrorKind::Io`].
pub(crate) fn has_group(folder: &Path) -> Result<bool> {
    let path = folder.join("zarr.json");
    let json = match read_metadata(&local(), &path) {
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(false),
        json => json?.unwrap_or_default(),
    };
    if json["zarr_format"] == 3 && json["node_type"] == "group" {
        return Ok(true);
    }
    let message = format!(
        "{} is not the metadata of a Zarr v3 group, so no cache can be written in its folder; give another path",
        path.display()
    );
    Err(Error::new(ErrorKind::State, message))
}

/// Checks that the places of the fields' files are free.
///
/// # Errors
/// [`ErrorKind::State`], with the existing file; [`ErrorKind::Io`].
pub(crate) fn check_room(folder: &Path, fields: &[Field]) -> Result<()> {
    let mut owned = Owned::default();
    for field in fields {
        owned.field(folder, field)?;
        if let Some(path) = owned.files.first() {
            return Err(blocked(path, field));
        }
    }
    Ok(())
}

/// The files of some fields of a cache, and the folders that they are in.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    files: Vec<PathBuf>,
    /// Outer folders first.
    folders: Vec<PathBuf>,
}

impl Owned {
    /// Lists the files of `fields` in `folder`.
    ///
    /// # Errors
    /// [`ErrorKind::State`], with the path of a link or of anything else that the layout does not have at its
    /// place: a writer would follow it. [`ErrorKind::Io`].
    pub(crate) fn of(folder: &Path, fields: &[Field]) -> Result<Self> {
        let mut owned = Self::default();
        fields.iter().try_for_each(|field| owned.field(folder, field))?;
        Ok(owned)
    }

    /// Adds the files of a field.
    fn field(&mut self, folder: &Path, field: &Field) -> Result<()> {
        let mut at = folder.to_owned();
        for part in field.name.split('/') {
            at.push(part);
            match fs::symlink_metadata(&at) {
                Ok(metadata) if metadata.is_dir() => self.folders.push(at.clone()),
                Ok(_) => return Err(blocked(&at, field)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(Error::io(&at, "look at", error)),
            }
        }
        self.walk(&at, &mut Vec::new(), field)
    }

    fn walk(&mut self, folder: &Path, within: &mut Vec<String>, field: &Field) -> Result<()> {
        for entry in fs::read_dir(folder).map_err(|error| Error::io(folder, "list", error))? {
            let entry = entry.map_err(|error| Error::io(folder, "list", error))?;
            let (path, kind) = (entry.path(), entry.file_type());
            let kind = kind.map_err(|error| Error::io(&path, "look at", error))?;
            within.push(entry.file_name().into_string().unwrap_or_default());
            match (is_folder(within), is_file(within)) {
                (true, _) if kind.is_dir() => {
                    self.folders.push(path.clone());
                    self.walk(&path, within, field)?;
                }
                (_, true) if kind.is_file() => self.files.push(path),
                (false, false) => {}
                _ => return Err(blocked(&path, field)),
            }
            within.pop();
        }
        Ok(())
    }

    /// Removes the files, then the folders that are empty.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub(crate) fn remove(self) -> Result<()> {
        self.files.iter().try_for_each(|path| remove(path))?;
        self.folders.iter().rev().try_for_each(|path| remove_folder(path))
    }

    /// Removes only partial files that a killed writer left, including those of the ledger and the metadata
    /// of `folder`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`].
    pub(crate) fn remove_partial(&self, folder: &Path) -> Result<()> {
        for name in [ledger::FILE, "zarr.json"] {
            remove(&partial(&folder.join(name)))?;
        }
        let is_partial =
            |path: &&PathBuf| path.file_name().and_then(|name| name.to_str()).and_then(partial_of).is_some();
        self.files.iter().filter(is_partial).try_for_each(|path| remove(path))
    }
}

fn blocked(path: &Path, field: &Field) -> Error {
    let message = format!(
        "{} is where the field {:?} is to be written, and does not belong to this cache; move it, or give another path or split",
        path.display(),
        field.name
    );
    Error::new(ErrorKind::State, message)
}

/// Whether a field's layout has this folder; `within` is its path within the field's folder.
fn is_folder(within: &[String]) -> bool {
    match &within.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [array] | [array, "c"] => is_array(array),
        ["shapes", "c", number] => is_number(number),
        _ => false,
    }
}

/// Whether a field's layout has this file, complete or partial.
fn is_file(within: &[String]) -> bool {
    let mut within: Vec<&str> = within.iter().map(String::as_str).collect();
    if let Some(last) = within.last_mut() {
        *last = partial_of(last).unwrap_or(last);
    }
    match within[..] {
        ["zarr.json"] => true,
        [array, "zarr.json"] => is_array(array),
        [array, "c", number] => is_array(array) && is_number(number),
        ["shapes", "c", number, "0"] => is_number(number),
        _ => false,
    }
}

fn is_array(name: &str) -> bool {
    matches!(name, "data" | "offsets" | "shapes")
}

fn is_number(name: &str) -> bool {
    number_of(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_splits() {
        for split in ["train", "val-2", "ü", "...", ".hidden", "a b"] {
            assert!(check_split(split).is_ok(), "{split}");
        }
        for split in
            ["", ".", "..", "/", "/etc", "a/b", "a/", "./a", "../a", "a/..", "a\\b", "\0", "zarr.json"]
        {
            assert_eq!(check_split(split).unwrap_err().kind, ErrorKind::Config, "{split}");
        }
    }

    #[test]
    fn the_layout_names_its_files() {
        let within = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
        for path in ["zarr.json", "data/zarr.json", "offsets/c/0", "data/c/12", "shapes/c/3/0"] {
            assert!(is_file(&within(path)), "{path}");
            let partial = partial(Path::new(path));
            assert!(is_file(&within(partial.to_str().unwrap())), "{partial:?}");
        }
        for path in
            ["data/c/01", "data/c/+1", "data/c/0/0", "c/0", "notes.txt", "data/c/0.tmp", "x/zarr.json"]
        {
            assert!(!is_file(&within(path)), "{path}");
        }
        assert!(is_folder(&within("shapes/c/3")) && !is_folder(&within("data/c/3")));
    }
}
