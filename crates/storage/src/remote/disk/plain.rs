//! Opens the files of the folder, and nothing else that stands in their places.
//!
//! Others may write to the folder, too. A link would lead to a file elsewhere, which a write would change,
//! and a pipe would block its reader for ever. So links are not followed, pipes are not waited for, and what
//! is no plain file is an error. A file that has another name elsewhere is not begun anew.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
};

/// Opens a file for reading.
///
/// # Errors
/// Those of the system; `InvalidInput` for what is no plain file.
pub(super) fn read(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true))
}

/// Opens a file for reading and writing, and makes it if it is missing.
///
/// # Errors
/// As [`read`].
pub(super) fn write(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true).write(true).create(true).truncate(false))
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    // Elsewhere there is no such flag, and a link is a right that few users have.
    #[cfg(not(unix))]
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(other(path));
    }
    match options.open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(other(path)),
        // Some systems have other errors for links, pipes without a reader, and folders.
        Err(_) if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) => Err(other(path)),
        Err(error) => Err(error),
    }
}

fn other(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no file that forebay made", path.display()))
}

/// Whether a file has one name only.
pub(super) fn has_one_name(file: &File) -> io::Result<bool> {
    #[cfg(unix)]
    return file.metadata().map(|found| std::os::unix::fs::MetadataExt::nlink(&found) <= 1);
    #[cfg(not(unix))]
    return file.metadata().map(|_| true);
}
