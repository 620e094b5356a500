//! Reads recordings that a row gives as a path to a file.
//!
//! Shards are not trusted. A path in a row is read only below the folder of its shard, or below folders that
//! the user allows, after symbolic links and `..` are resolved.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

use super::{
    block::BlockPool,
    memory_permits::MemoryPermits,
    storage::{Storage, StoredFile, resolve},
    urls,
};
use crate::{Error, ErrorKind, Result, record_rules::check_record_bytes};

/// The longest path of a row, bytes.
const LONGEST_NAME: u64 = 1 << 16;

/// Which files the rows of a shard may name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AllowPaths {
    /// Files below the folder of the shard.
    #[default]
    BelowShard,
    /// Files below the folder of the shard, the files listed here, and files below the folders listed here.
    Below(Vec<PathBuf>),
    /// Any file that the process can open.
    Any,
}

/// Reads the files that rows name, if they are allowed.
#[derive(Debug, Default)]
pub(crate) struct PathPolicy {
    allowed: AllowPaths,
    /// The resolved folders that files may be below.
    folders: Mutex<HashMap<PathBuf, Arc<Path>>>,
}

impl PathPolicy {
    pub(crate) fn new(allowed: AllowPaths) -> Self {
        Self { allowed, folders: Mutex::default() }
    }

    /// Reads the file `name`, relative to the folder of `shard`, if it has at most `max_record_bytes`.
    ///
    /// # Errors
    /// [`ErrorKind::Unreadable`] if the file cannot be opened or is not allowed, [`ErrorKind::TooLarge`],
    /// [`ErrorKind::Io`].
    pub(crate) fn read(
        &self,
        storage: &Arc<dyn Storage>,
        blocks: &Arc<BlockPool>,
        shard: &Path,
        name: &str,
        max_record_bytes: u64,
        permits: &MemoryPermits,
    ) -> Result<Bytes> {
        let folder = shard.parent().unwrap_or(Path::new(""));
        let found =
            self.find(&**storage, folder, Path::new(name)).map_err(|error| unreadable(error, name))?;
        let path = found.map_err(|Outside { path, home }| {
            let message = format!(
                "the row has no bytes, only the path {name:?}, which is not below the shard's folder {}{}",
                home.display(),
                self.advice(&path, "shard"),
            );
            Error::new(ErrorKind::Unreadable, message)
        })?;
        let file = StoredFile::open(storage, &path).map_err(|error| unreadable(error, name))?;
        read_whole(&file, blocks, max_record_bytes, permits)
    }

    /// The path to open of `name` in `folder`: resolved, unless any file is allowed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Io`].
    pub(crate) fn find(
        &self,
        storage: &dyn Storage,
        folder: &Path,
        name: &Path,
    ) -> Result<Result<Arc<Path>, Outside>> {
        let path = urls::join(folder, name);
        let folders = match &self.allowed {
            AllowPaths::Any => return Ok(Ok(path.into())),
            AllowPaths::BelowShard => &[][..],
            AllowPaths::Below(folders) => folders,
        };
        let path = resolve(storage, &path)?;
        let home = self.folder(storage, folder)?;
        if path.starts_with(&home) {
            return Ok(Ok(path.into()));
        }
        for folder in folders {
            // A missing folder contains no files.
            if self.folder(storage, folder).is_ok_and(|folder| path.starts_with(folder)) {
                return Ok(Ok(path.into()));
            }
        }
        Ok(Err(Outside { path, home }))
    }

    /// The end of a message about a file outside: which folders were tried, and which parameter would allow
    /// it.
    pub(crate) fn advice(&self, path: &Path, trusted: &str) -> String {
        let folder = path.parent().unwrap_or(path);
        let (nor, remedy) = match &self.allowed {
            AllowPaths::Below(folders) if !folders.is_empty() => {
                (" nor below a folder of allow_paths=", format!("add {folder:?} to allow_paths="))
            }
            _ => ("", format!("pass allow_paths={folder:?}")),
        };
        format!(
            "{nor}; if you trust the {trusted}, {remedy} or a folder above it, or pass allow_paths=True for any path"
        )
    }

    /// The resolved path of a folder.
    fn folder(&self, storage: &dyn Storage, folder: &Path) -> Result<Arc<Path>> {
        let folders = || self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = folders().get(folder) {
            return Ok(Arc::clone(known));
        }
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let found: Arc<Path> = resolve(storage, here)?.into();
        folders().insert(folder.to_owned(), Arc::clone(&found));
        Ok(found)
    }
}

/// A file outside of the allowed folders.
#[derive(Debug)]
pub(crate) struct Outside {
    pub path: PathBuf,
    /// The folder that it should be below.
    pub home: Arc<Path>,
}

/// All bytes of a file, if it has at most `max_record_bytes`.
///
/// # Errors
/// [`ErrorKind::TooLarge`], [`ErrorKind::Io`], [`ErrorKind::Truncated`].
pub(crate) fn read_whole(
    file: &StoredFile,
    blocks: &Arc<BlockPool>,
    max_record_bytes: u64,
    permits: &MemoryPermits,
) -> Result<Bytes> {
    check_record_bytes(file.size(), max_record_bytes)?;
    let len = file.size() as usize;
    let permit = permits.admit(BlockPool::size_of(len) as u64)?;
    file.read_block(blocks.take(len, permit)?, 0)
}

/// Checks the length of a row's path before it is read.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it has more than [`LONGEST_NAME`] bytes.
pub(crate) fn check_name(len: u64) -> Result<()> {
    if len <= LONGEST_NAME {
        return Ok(());
    }
    let message = format!("the path has {len} bytes; at most {LONGEST_NAME} are read");
    Err(Error::new(ErrorKind::Corrupt, message))
}

/// A row's path as text; None for an empty one.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it is too long or not UTF-8.
pub(crate) fn name(bytes: &[u8]) -> Result<Option<String>> {
    check_name(bytes.len() as u64)?;
    match std::str::from_utf8(bytes) {
        Ok(path) => Ok(Some(path.to_owned()).filter(|path| !path.is_empty())),
        Err(error) => Err(Error::new(ErrorKind::Corrupt, "the path is not UTF-8").because(error)),
    }
}

/// Whether a path cannot be opened, and the system did not fail.
pub(crate) fn is_of_path(error: &Error) -> bool {
    let system = error.cause.as_deref().and_then(|cause| cause.downcast_ref::<io::Error>());
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound, PermissionDenied};
    #[cfg(unix)]
    if system.and_then(io::Error::raw_os_error) == Some(libc::ELOOP) {
        return true;
    }
    // A server that refuses one request may refuse all of them: credentials expire.
    let is_url = error.file.as_deref().is_some_and(|file| urls::is_url(file));
    match system.map(io::Error::kind) {
        Some(PermissionDenied) => !is_url,
        Some(NotFound | InvalidInput | InvalidFilename | NotADirectory) => true,
        _ => false,
    }
}

/// The error for a path that cannot be opened: the row's, unless the system failed.
fn unreadable(error: Error, name: &str) -> Error {
    match is_of_path(&error) {
        true => {
            let hint = if name.contains("://") { "; only files are opened, not URLs" } else { "" };
            let message =
                format!("the row has no bytes, only the path {name:?}, which cannot be opened{hint}");
            Error { message, kind: ErrorKind::Unreadable, ..error }
        }
        false => error,
    }
}
