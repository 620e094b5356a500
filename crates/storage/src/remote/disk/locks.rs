//! Locks of ranges of one file, between threads and between processes.
//!
//! They save requests and keep the sum of all sizes right; no byte that is read depends on them. Where the
//! system or the file system has none, an error says so and callers go on without. A lock of the system ends
//! with its process, so a killed holder does not block others.
//!
//! Source: fcntl(2), open file description locks: they belong to one `open`, so threads exclude one another.

use std::{fs, io, ops::Range, path::Path};

/// A lock, until it is dropped.
pub(super) struct FileLock {
    #[cfg(target_os = "linux")]
    file: fs::File,
    #[cfg(target_os = "linux")]
    range: Range<u64>,
}

/// Locks a range of the file `path`, which is made if it is missing; `None` if another holder has a part of
/// it.
///
/// # Errors
/// Those of the system; `Unsupported` where there are no such locks.
#[cfg(target_os = "linux")]
pub(super) fn try_lock(path: &Path, range: Range<u64>) -> io::Result<Option<FileLock>> {
    let file = super::plain::write(path)?;
    match set(&file, libc::F_WRLCK, &range) {
        Ok(()) => Ok(Some(FileLock { file, range })),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// As above.
#[cfg(not(target_os = "linux"))]
pub(super) fn try_lock(path: &Path, _: Range<u64>) -> io::Result<Option<FileLock>> {
    fs::metadata(path)?;
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
fn set(file: &fs::File, kind: libc::c_int, range: &Range<u64>) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let wrong = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: range.start.try_into().map_err(wrong)?,
        l_len: (range.end - range.start).try_into().map_err(wrong)?,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open as long as `file` lives, and `lock` is a valid struct that the call only
    // reads.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(target_os = "linux")]
impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing is not enough: after a fork the child has the same open file. If this fails, the lock ends
        // with both.
        let _ = set(&self.file, libc::F_UNLCK, &self.range);
    }
}
