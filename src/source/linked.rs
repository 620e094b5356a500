//! Recordings that a row only names.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use super::{
    block::BlockPool,
    leave::Leave,
    storage::{Storage, StoredFile},
};
use crate::{Error, ErrorKind, Result, record::check_record_bytes};

/// Reads the file `name`, relative to the folder of `shard`, if it has at most `max_record_bytes`.
///
/// # Errors
/// [`ErrorKind::Unreadable`] if it cannot be opened, [`ErrorKind::TooLarge`], [`ErrorKind::Io`].
pub(crate) fn read(
    storage: &Arc<dyn Storage>,
    blocks: &Arc<BlockPool>,
    shard: &Path,
    name: &str,
    max_record_bytes: u64,
    leave: &Leave,
) -> Result<Bytes> {
    let relative_to = shard.parent().unwrap_or(Path::new(""));
    let path: Arc<Path> = Arc::from(relative_to.join(PathBuf::from(name)));
    let file = StoredFile::open(storage, &path).map_err(|error| unreadable(error, name))?;
    check_record_bytes(file.size(), max_record_bytes)?;
    let len = file.size() as usize;
    let permit = leave.admit(BlockPool::size_of(len) as u64)?;
    let mut block = blocks.take(len, permit)?;
    file.read_long(block.as_mut_slice(), 0, leave)?;
    Ok(Bytes::from_owner(block))
}

/// The error for a path that cannot be opened. Only what the system failed to do is no fault of the row.
fn unreadable(error: Error, name: &str) -> Error {
    let system = error.cause.as_deref().and_then(|cause| cause.downcast_ref::<io::Error>());
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound, PermissionDenied};
    match system.map(io::Error::kind) {
        Some(NotFound | PermissionDenied | InvalidInput | InvalidFilename | NotADirectory) => {
            let hint = if name.contains("://") { "; addresses are not followed, only files" } else { "" };
            let message =
                format!("the row has no bytes, only the path {name:?}, and that cannot be opened{hint}");
            Error { message, kind: ErrorKind::Unreadable, ..error }
        }
        _ => error,
    }
}
