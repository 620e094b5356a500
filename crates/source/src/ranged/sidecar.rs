//! Indexes of recordings on disk, in a folder of the user's cache.
//!
//! Input: the resolved path of a recording and its version. Output: the bytes of its index, if they were
//! written for this version. A file is never changed: a new one takes its name, so readers see an old one or
//! a new one. What is missing, damaged or stale is made again; what cannot be written is left out.
//!
//! The file is an [index file](index_file) whose key is the recording's size (u64) and time of the last
//! change (u64 seconds, u32 nanoseconds), and its path; to a URL's path a zero and a hash of the ETag (u64)
//! are added. The path also names the member of an archive, and the track. Its name is a hash of the path.

use std::{
    env, fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::UNIX_EPOCH,
};

use forebay_audio::index_file;

use crate::{
    seed::hash_bytes,
    storage::{Version, open_regular},
};

/// The most bytes of a file that is read.
const MOST: u64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct Sidecars {
    folder: Option<PathBuf>,
    /// Whether an index could not be written, which is told once.
    has_failed: AtomicBool,
}

/// Numbers the temporary files of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Sidecars {
    /// In the user's cache: `$XDG_CACHE_HOME/forebay/index`, by default in `~/.cache`.
    pub(crate) fn of_user() -> Self {
        let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = set("XDG_CACHE_HOME").or_else(|| match cfg!(windows) {
            true => set("LOCALAPPDATA"),
            false => set("HOME").map(|home| home.join(".cache")),
        });
        Self { folder: cache.map(|cache| cache.join("forebay/index")), has_failed: AtomicBool::new(false) }
    }

    /// None is kept.
    pub(super) fn nowhere() -> Self {
        Self { folder: None, has_failed: AtomicBool::new(false) }
    }

    #[cfg(test)]
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()), has_failed: AtomicBool::new(false) }
    }

    /// The index of a recording, if there is one of this version.
    pub(crate) fn read(&self, path: &Path, version: Version) -> Option<Vec<u8>> {
        let file = open_regular(&self.folder.as_deref()?.join(name(path))).ok()?;
        let mut bytes = Vec::new();
        file.take(MOST + 1).read_to_end(&mut bytes).ok()?;
        index(&bytes, path, version).map(<[u8]>::to_vec)
    }

    /// The folder, unless the user has none.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Writes an index, if that is possible.
    pub(crate) fn write(&self, path: &Path, version: Version, index: &[u8]) {
        if let Err(error) = self.try_write(path, version, index)
            && let Some(folder) = &self.folder
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            log::info!("indexes of recordings are not kept in {}: {error}", folder.display());
        }
    }

    /// Writes an index.
    ///
    /// # Errors
    /// Those of the system; if there is no folder; if the recording has no time of its last change.
    pub(super) fn try_write(&self, path: &Path, version: Version, index: &[u8]) -> io::Result<()> {
        let Some(folder) = &self.folder else {
            return Err(io::Error::other("neither XDG_CACHE_HOME nor HOME is set"));
        };
        let Some(key) = key(path, version) else {
            return Err(io::Error::other("the file system has no times of changes"));
        };
        let bytes = index_file::seal(&key, index).map_err(io::Error::other)?;
        fs::create_dir_all(folder)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let new = folder.join(format!("{}.{}.{number}.tmp", name(path), std::process::id()));
        let written = fs::File::create_new(&new)
            .and_then(|mut file| file.write_all(&bytes))
            .and_then(|()| fs::rename(&new, folder.join(name(path))));
        if written.is_err() {
            // It may not exist.
            let _ = fs::remove_file(&new);
        }
        written
    }
}

/// The name of the file for a recording.
fn name(path: &Path) -> String {
    let path = path.as_os_str().as_encoded_bytes();
    format!("{:016x}{:016x}", hash_bytes(1, path), hash_bytes(2, path))
}

/// What an index is made from; None if the recording has no time.
fn key(path: &Path, version: Version) -> Option<Vec<u8>> {
    let time = version.modified?.duration_since(UNIX_EPOCH).ok()?;
    let size = version.size.to_le_bytes();
    let (seconds, nanoseconds) = (time.as_secs().to_le_bytes(), time.subsec_nanos().to_le_bytes());
    let mut key = [&size[..], &seconds, &nanoseconds, path.as_os_str().as_encoded_bytes()].concat();
    if let Some(etag) = version.etag {
        key.push(0);
        key.extend_from_slice(&etag.to_le_bytes());
    }
    Some(key)
}

/// The index in the bytes of a file, if they are those of this recording and version.
pub(super) fn index<'a>(bytes: &'a [u8], path: &Path, version: Version) -> Option<&'a [u8]> {
    if bytes.len() as u64 > MOST {
        return None;
    }
    index_file::open(bytes, &key(path, version)?)
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, SystemTime},
    };

    use super::*;

    fn version(size: u64, seconds: u64) -> Version {
        Version { size, modified: Some(UNIX_EPOCH + Duration::from_secs(seconds)), etag: None }
    }

    #[test]
    fn an_index_is_found_for_its_recording_alone() {
        let folder = tempfile::tempdir().unwrap();
        let sidecars = Sidecars::in_folder(&folder.path().join("new/index"));
        let path = Path::new("/a/b.flac");
        assert_eq!(sidecars.read(path, version(3, 4)), None);
        sidecars.write(path, version(3, 4), b"index");
        assert_eq!(sidecars.read(path, version(3, 4)).unwrap(), b"index");
        for (other, size, time) in [("/a/c.flac", 3, 4), ("/a/b.flac", 4, 4), ("/a/b.flac", 3, 5)] {
            assert_eq!(sidecars.read(Path::new(other), version(size, time)), None);
        }
        assert_eq!(sidecars.read(path, Version { size: 3, modified: None, etag: None }), None);
        assert_eq!(sidecars.read(path, Version { etag: Some(6), ..version(3, 4) }), None);
        sidecars.write(path, version(3, 5), b"newer");
        assert_eq!(sidecars.read(path, version(3, 5)).unwrap(), b"newer");
        assert_eq!(sidecars.read(path, version(3, 4)), None);
        // No temporary file is left.
        assert_eq!(fs::read_dir(folder.path().join("new/index")).unwrap().count(), 1);
    }

    #[test]
    fn damaged_ones_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let sidecars = Sidecars::in_folder(folder.path());
        let path = Path::new("/a/b.flac");
        sidecars.write(path, version(3, 4), b"some index");
        let file = folder.path().join(name(path));
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            assert_eq!(index(&damaged, path, version(3, 4)), None, "{at}");
            assert_eq!(index(&whole[..at], path, version(3, 4)), None, "{at}");
        }
        fs::write(&file, &whole[..9]).unwrap();
        assert_eq!(sidecars.read(path, version(3, 4)), None);
        sidecars.write(path, version(3, 4), b"some index");
        assert_eq!(sidecars.read(path, version(3, 4)).unwrap(), b"some index");
        // A folder in place of the file, and no folder at all.
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        sidecars.write(path, version(3, 4), b"some index");
        assert_eq!(sidecars.read(path, version(3, 4)), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        let sidecars = Sidecars::in_folder(&file);
        sidecars.write(path, version(3, 4), b"some index");
        assert_eq!(sidecars.read(path, version(3, 4)), None);
    }

    #[test]
    fn several_may_write_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = Path::new("/a/b.flac");
        let now = Version { size: 9, modified: Some(SystemTime::now()), etag: None };
        let all: Vec<Vec<u8>> = (0..4).map(|n| vec![n; 5000]).collect();
        thread::scope(|scope| {
            for index in &all {
                scope.spawn(|| {
                    let sidecars = Sidecars::in_folder(folder.path());
                    for _ in 0..50 {
                        sidecars.write(path, now, index);
                        let found = sidecars.read(path, now).unwrap();
                        assert!(all.contains(&found));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
