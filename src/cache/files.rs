//! Files of a cache: their names, and how they are replaced and removed.
//!
//! A file is written under a partial name, synced and renamed, so that a reader sees the old one or the new
//! one.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// How the name of a file ends that is not complete; it begins with a dot.
const PARTIAL: &str = ".forebay-part";

/// The number of a shard, by the name of its file.
pub fn number_of(name: &str) -> Option<u64> {
    name.parse::<u64>().ok().filter(|number| number.to_string() == name)
}

/// The name of a file until it is complete.
pub fn partial(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(PARTIAL);
    path.with_file_name(name)
}

/// The name that a file gets once it is complete, if this is the name of a partial one.
pub fn partial_of(name: &str) -> Option<&str> {
    name.strip_prefix('.')?.strip_suffix(PARTIAL)
}

/// Removes a file that may be there.
///
/// # Errors
/// [`ErrorKind::Io`].
pub fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(path, "remove", error)),
        _ => Ok(()),
    }
}

/// Removes a folder that may be there, if it is empty.
///
/// # Errors
/// [`ErrorKind::Io`].
pub fn remove_folder(path: &Path) -> Result<()> {
    let is_left = |kind| matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty);
    match fs::remove_dir(path) {
        Err(error) if !is_left(error.kind()) => Err(Error::io(path, "remove", error)),
        _ => Ok(()),
    }
}

/// Writes a file under a temporary name, syncs it and gives it its name, so that it is the old one or the new
/// one at any moment.
///
/// # Errors
/// [`ErrorKind::Io`]; then the old one is still there.
pub fn replace(path: &Path, parts: &[&[u8]]) -> Result<()> {
    let partial = partial(path);
    let write = || {
        // What another writer left there, or a link, which is not to be followed.
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
        // What is left of it would only take space that may be short.
        let _ = fs::remove_file(&partial);
        Error::io(path, "write", error)
    })
}

/// Syncs a folder, so that the names in it last.
///
/// # Errors
/// [`ErrorKind::Io`].
pub fn sync_folder(folder: &Path) -> Result<()> {
    #[cfg(unix)]
    fs::File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(|error| Error::io(folder, "sync", error))?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}
