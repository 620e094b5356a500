//! Files of a cache: their names, and how they are replaced and removed.
//!
//! A file is written under a partial name, synced and renamed, so that a reader sees either the old or the
//! new file.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// The ending of an incomplete file's name, which begins with a dot.
const PARTIAL: &str = ".forebay-part";

/// The number of a shard, by the name of its file.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    name.parse::<u64>().ok().filter(|number| number.to_string() == name)
}

/// The name of a file until it is complete.
pub(crate) fn partial(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(PARTIAL);
    path.with_file_name(name)
}

/// The final name of the file, if `name` is that of a partial one.
pub(crate) fn partial_of(name: &str) -> Option<&str> {
    name.strip_prefix('.')?.strip_suffix(PARTIAL)
}

/// Removes a file, if it exists.
///
/// # Errors
/// [`ErrorKind::Io`].
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(path, "remove", error)),
        _ => Ok(()),
    }
}

/// Removes a folder, if it exists and is empty.
///
/// # Errors
/// [`ErrorKind::Io`].
pub(crate) fn remove_folder(path: &Path) -> Result<()> {
    let is_left = |kind| matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty);
    match fs::remove_dir(path) {
        Err(error) if !is_left(error.kind()) => Err(Error::io(path, "remove", error)),
        _ => Ok(()),
    }
}

/// Writes a file under a temporary name, syncs and renames it, so that a complete file has the name at any
/// moment: the old or the new one.
///
/// # Errors
/// [`ErrorKind::Io`]; then the old file is unchanged.
pub(crate) fn replace(path: &Path, parts: &[&[u8]]) -> Result<()> {
    let partial = partial(path);
    let write = || {
        // A file that another writer left, or a link, which must not be followed.
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::File::create_new(&partial)?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        file.sync_data()?;
        fs::rename(&partial, path)
    };
    write().map_err(|error| {
        // The disk may be full: free the space of the incomplete file.
        let _ = fs::remove_file(&partial);
        Error::io(path, "write", error)
    })
}

/// Syncs a folder, so that the names in it are durable.
///
/// # Errors
/// [`ErrorKind::Io`].
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    #[cfg(unix)]
    fs::File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(|error| Error::io(folder, "sync", error))?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}
