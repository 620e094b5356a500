//! The folder of the parts: its marker, what it holds, and which files are removed when it is full.
//!
//! ```text
//! CACHE_DIR/forebay-objects/CACHEDIR.TAG   made by forebay; backups leave the folder out
//!                           usage          the bytes of all parts, as counted so far
//!                           lock           ranges of it are locked
//!                           0a/1b…f.part   parts
//! ```
//!
//! Only files of these names that begin as parts do are ever removed, and only [plain](super::plain) files
//! are opened. A part's time of modification is the time of its last use: it is set at reads, since times of
//! access may not be kept (`noatime`, `relatime`). `usage` is a count that a crash or a file system without
//! locks may make wrong, so what is really there is measured when the count reaches the limit, and after each
//! sixteenth of it.
//!
//! Source: the marker is that of the Cache Directory Tagging Specification.

use std::{
    collections::BinaryHeap,
    fs, io,
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use super::{part::KIND, plain};
use crate::{Error, ErrorKind, Result};

/// The folder in `cache_dir` in which everything is.
const NAME: &str = "forebay-objects";
const MARKER: &str = "CACHEDIR.TAG";
const SIGNATURE: &str = "Signature: 8a477f597d28d172789f06886806bc55\n";
const USAGE: &str = "usage";
const LOCK: &str = "lock";
/// The most bytes of a count: two numbers.
const LONGEST_COUNT: u64 = 64;
/// Makes names of temporary files differ within the process.
static NEXT: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub(super) struct PartFolder {
    pub path: PathBuf,
    limit: u64,
    /// Bytes that this process added since it measured.
    added: AtomicU64,
}

impl PartFolder {
    /// The folder below `cache_dir`, which is made, and the error of a disk that is full: what the folder has
    /// can be read all the same.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it cannot be made or written to.
    pub(super) fn open(cache_dir: &Path, limit: u64) -> Result<(Self, Option<io::Error>)> {
        let refused = |error: io::Error| {
            let message = format!(
                "cache_dir is {}, where no files can be kept ({error}); name a folder on a local disk that this process may \
                 write to",
                cache_dir.display()
            );
            Error::new(ErrorKind::Config, message)
        };
        let cache_dir = std::path::absolute(cache_dir).map_err(refused)?;
        let path = cache_dir.join(NAME);
        let is_full = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        };
        let folder = Self { path, limit, added: AtomicU64::new(0) };
        match fs::create_dir_all(&folder.path) {
            Err(error) if is_full(&error) => return Ok((folder, Some(error))),
            Err(_) if fs::metadata(&cache_dir).is_ok_and(|found| !found.is_dir()) => {
                return Err(refused(io::Error::other("it is no folder")));
            }
            made => made.map_err(refused)?,
        }
        if !folder.is_ours().map_err(refused)? {
            let message = format!(
                "cache_dir has a folder {} that forebay did not make; name another folder",
                folder.path.display()
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        // The lock shows that files can be written here.
        match folder.mark().and_then(|()| plain::write(&folder.lock())) {
            Err(error) if is_full(&error) => Ok((folder, Some(error))),
            marked => marked.map(|_| (folder, None)).map_err(refused),
        }
    }

    /// Whether the folder has the marker, or nothing but what is named like ours: the marker is missing while
    /// another process makes the folder, or removes it.
    fn is_ours(&self) -> io::Result<bool> {
        match plain::read(&self.path.join(MARKER)) {
            Ok(file) => {
                let mut begin = Vec::new();
                file.take(SIGNATURE.len() as u64).read_to_end(&mut begin)?;
                return Ok(begin == SIGNATURE.as_bytes());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let is_known =
                |name: &str| name.starts_with(MARKER) || [USAGE, LOCK].contains(&name) || is_hex(name, 2);
            if !name.to_str().is_some_and(is_known) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the marker, unless it is there.
    fn mark(&self) -> io::Result<()> {
        let marker = self.path.join(MARKER);
        if fs::symlink_metadata(&marker).is_ok() {
            return Ok(());
        }
        // A process of the same number, in another container or before this one, may have made the same name.
        let (new, mut file) = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let new = self.path.join(format!("{MARKER}.{}.{number}.tmp", process::id()));
            match fs::File::create_new(&new) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => break (new, made?),
            }
        };
        let text = format!(
            "{SIGNATURE}# Parts of objects that forebay read by URL. This folder may be removed at any time.\n"
        );
        let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&new, &marker));
        if written.is_err() {
            // It may have been removed with the folder.
            let _ = fs::remove_file(&new);
        }
        written
    }

    /// Makes the folder again after it was removed.
    pub(super) fn make(&self) -> io::Result<()> {
        fs::create_dir_all(&self.path)?;
        self.mark()
    }

    /// The file of which ranges are locked.
    pub(super) fn lock(&self) -> PathBuf {
        self.path.join(LOCK)
    }

    /// Counts `bytes` that will be written, and removes the parts that were used least recently if the limit
    /// would be passed. Returns whether there is room.
    ///
    /// # Errors
    /// Those of the system; `StorageFull` if what takes the room cannot be removed.
    pub(super) fn make_room(&self, bytes: u64) -> io::Result<bool> {
        if bytes > self.limit {
            return Ok(false);
        }
        let often = self.limit / 16;
        let used = match self.counted() {
            Some(used)
                if used.saturating_add(bytes) <= self.limit
                    && self.added.load(Ordering::Relaxed) <= often =>
            {
                used
            }
            _ => {
                self.added.store(0, Ordering::Relaxed);
                let used = self.measure()?;
                match (used + bytes).checked_sub(self.limit) {
                    None | Some(0) => used,
                    // More than is needed now, so that it is long until the next time.
                    Some(excess) => used.saturating_sub(self.remove_oldest(excess + often)?),
                }
            }
        };
        if used + bytes > self.limit {
            let message =
                format!("{used} of its {} bytes are taken by files that are not removed", self.limit);
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
        self.added.fetch_add(bytes, Ordering::Relaxed);
        self.count(used + bytes)?;
        Ok(true)
    }

    /// The count, unless it is missing or torn.
    fn counted(&self) -> Option<u64> {
        let text = read_count(&plain::read(&self.path.join(USAGE)).ok()?).ok()??;
        let (used, again) = text.trim_end().split_once(' ')?;
        if used == again { used.parse().ok() } else { None }
    }

    fn count(&self, used: u64) -> io::Result<()> {
        let path = self.path.join(USAGE);
        let mut file = plain::write(&path)?;
        if read_count(&file)?.is_none() {
            let message = format!("{} is no file that forebay made", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(format!("{used} {used}\n").as_bytes())
    }

    /// The bytes of all parts on the disk.
    pub(super) fn measure(&self) -> io::Result<u64> {
        let mut total = 0;
        self.each(|part| total += part.bytes)?;
        Ok(total)
    }

    /// Removes the parts that were used least recently, with at least `bytes` in all; returns their bytes.
    fn remove_oldest(&self, bytes: u64) -> io::Result<u64> {
        // The newest is on top: the oldest ones that are enough stay.
        let (mut oldest, mut held) = (BinaryHeap::<FoundPart>::new(), 0);
        self.each(|part| {
            let is_newer = held >= bytes && oldest.peek().is_some_and(|newest| part >= *newest);
            // Files that cannot be removed are passed over.
            if is_newer || !is_part(&part.path).unwrap_or(false) {
                return;
            }
            held += part.bytes;
            // bounded: by the bytes that are removed.
            oldest.push(part);
            while let Some(newest) = oldest.peek()
                && held - newest.bytes >= bytes
            {
                held -= newest.bytes;
                oldest.pop();
            }
        })?;
        let mut freed = 0;
        for part in oldest {
            match fs::remove_file(&part.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    log::debug!("{} cannot be removed: {error}", part.path.display());
                }
                // Another process may have removed it.
                _ => freed += part.bytes,
            }
        }
        log::debug!("{freed} bytes of parts were removed from {}", self.path.display());
        Ok(freed)
    }

    /// Calls `take` with each part. Other files and links are left out.
    fn each(&self, mut take: impl FnMut(FoundPart)) -> io::Result<()> {
        for folder in fs::read_dir(&self.path)? {
            let folder = folder?;
            if !folder.file_name().to_str().is_some_and(|name| is_hex(name, 2))
                || !folder.file_type()?.is_dir()
            {
                continue;
            }
            // Another process may remove what is listed here.
            let Ok(entries) = fs::read_dir(folder.path()) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let stem = name.to_str().and_then(|name| name.strip_suffix(".part"));
                let Some(found) = stem.filter(|stem| is_hex(stem, 30)).and_then(|_| entry.metadata().ok())
                else {
                    continue;
                };
                if found.is_file() {
                    let used = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    take(FoundPart { used, bytes: bytes_on_disk(&found), path: entry.path() });
                }
            }
        }
        Ok(())
    }
}

/// A part in the folder, ordered by the time of its last use.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FoundPart {
    used: SystemTime,
    bytes: u64,
    path: PathBuf,
}

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The text of a file of a count; `None` if the file is another's.
fn read_count(file: &fs::File) -> io::Result<Option<String>> {
    let mut text = Vec::new();
    // bounded: `LONGEST_COUNT`.
    file.take(LONGEST_COUNT + 1).read_to_end(&mut text)?;
    // After a crash of the machine it may be zeros.
    let is_count = text.len() as u64 <= LONGEST_COUNT
        && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b' ' | b'\n' | 0));
    Ok(String::from_utf8(text).ok().filter(|_| is_count))
}

/// Whether a file begins as parts of any version do, or was not written to.
fn is_part(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    plain::read(path)?.take(KIND.len() as u64).read_to_end(&mut begin)?;
    Ok(KIND.starts_with(&begin) || begin.iter().all(|&byte| byte == 0))
}

/// What a file takes of the disk: its holes take nothing.
fn bytes_on_disk(found: &fs::Metadata) -> u64 {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::blocks(found) * 512;
    #[cfg(not(unix))]
    return found.len();
}
