//! Opens files by path and reads them at an offset, with retries of transient failures.
//!
//! [`Storage`] and [`ReadAt`] are the traits: [`LocalFiles`] implements them in production, a counting or
//! failing storage in tests. A `StoredFile` adds complete reads, retries, and a check that the file is still
//! the one that was indexed.
//!
//! Calls to parallel file systems fail transiently (EIO, ESTALE, timeouts). Such a call is retried up to 4
//! times, with growing pauses; each retry is logged and counted. The pauses add up to 345 ms, less than the
//! half second in which a closing loader joins its threads.

use std::{
    fmt, fs, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, atomic::Ordering},
    thread,
    time::{Duration, SystemTime},
};

use bytes::Bytes;

use super::{
    block::{BlockPool, PooledBlock},
    memory_permits::{MemoryPermits, covered},
    urls,
};
use crate::{Error, ErrorKind, Result, Traffic, cancel, seed::mix};

/// Opens files by path.
pub trait Storage: fmt::Debug + Send + Sync {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// The error of the system; `InvalidInput` if the path is not a regular file.
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>>;

    /// The path with symbolic links and `..` resolved.
    ///
    /// # Errors
    /// The error of the system; `NotFound` if there is no such file or folder.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    /// Names of objects below a folder of a server, one page of them after the other.
    ///
    /// # Errors
    /// The error of the server; `Unsupported` for a folder that is not listed in this way.
    fn page(&self, _folder: &Path, _after: Option<&str>) -> io::Result<ListingPage> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Notes that a call failed transiently and is retried.
    fn retried(&self) {}

    /// Ends its threads, which start again if they are needed.
    fn end_threads(&self) {}

    /// Where its requests are counted.
    fn traffic(&self) -> Arc<Traffic> {
        Arc::default()
    }
}

/// A part of the list of the objects below a folder.
#[derive(Debug, Clone, Default)]
pub struct ListingPage {
    /// Their names below the folder, with `/` between their parts.
    pub names: Vec<String>,
    /// What the next page follows; `None` for the last one.
    pub next: Option<String>,
    /// The objects that have no path.
    pub left_out: OmittedObjects,
}

/// Objects of a server that have no path, such as `a//b`.
#[derive(Debug, Clone, Default)]
pub struct OmittedObjects {
    pub n: u64,
    /// The name of the first.
    pub first: Option<String>,
}

impl OmittedObjects {
    pub fn push(&mut self, name: &str) {
        self.n += 1;
        self.first.get_or_insert_with(|| name.chars().take(256).collect());
    }

    pub fn add(&mut self, others: Self) {
        self.n += others.n;
        self.first = self.first.take().or(others.first);
    }
}

/// Storage that counts what it costs, for all its readers.
#[derive(Debug)]
pub struct CountedStorage {
    storage: Arc<dyn Storage>,
    traffic: Arc<Traffic>,
}

impl CountedStorage {
    /// A storage that counts what is read from `storage`, and its counts.
    pub fn over(storage: Arc<dyn Storage>) -> (Arc<dyn Storage>, Arc<Traffic>) {
        let traffic = storage.traffic();
        (Arc::new(Self { storage, traffic: traffic.clone() }), traffic)
    }
}

impl Storage for CountedStorage {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        self.storage.open(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.storage.resolve(path)
    }

    fn page(&self, folder: &Path, after: Option<&str>) -> io::Result<ListingPage> {
        self.storage.page(folder, after)
    }

    fn end_threads(&self) {
        self.storage.end_threads();
    }

    fn retried(&self) {
        self.traffic.retries.fetch_add(1, Ordering::Relaxed);
    }
}

/// An open file that is read by offset, by several threads at a time.
pub trait ReadAt: Send + Sync {
    /// Reads into `buffer` from offset `at` with one call. Returns the number of bytes, which is 0 only at
    /// the end of the file.
    ///
    /// # Errors
    /// The error of the system.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// The file's current size and modification time.
    ///
    /// # Errors
    /// The error of the system.
    fn version(&self) -> io::Result<Version>;

    /// Advises that the range will be read soon.
    fn will_need(&self, _at: u64, _len: u64) {}

    /// The `len` bytes at `at` without a copy, if the file is mapped; `None` if it is not. Loads the bytes in
    /// `needed`, counted from `at`, into memory first.
    ///
    /// # Errors
    /// The error of the system; `UnexpectedEof` if the file ends before the range does.
    fn mapped(&self, _at: u64, _len: usize, _needed: Range<usize>) -> Option<io::Result<Bytes>> {
        None
    }
}

/// Size, modification time and ETag: they differ between a file and its replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    pub size: u64,
    /// The time of the last change, if the system has it.
    pub modified: Option<SystemTime>,
    /// A hash of the ETag of an object that is read by URL.
    pub etag: Option<u64>,
}

/// Files of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalFiles;

impl Storage for LocalFiles {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        Ok(Box::new(LocalFile(open_regular(path)?)))
    }
}

/// Opens a regular file; an error for a folder, a pipe or a device.
pub fn open_regular(path: &Path) -> io::Result<fs::File> {
    // Checked before opening: a pipe would block in `open`, and a folder would fail only in the first read.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    fs::File::open(path)
}

/// Reads into `buffer` from offset `at` with one call. Returns the number of bytes.
pub(crate) fn read_file_at(file: &fs::File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, buffer, at);
    #[cfg(windows)]
    return std::os::windows::fs::FileExt::seek_read(file, buffer, at);
}

/// The version of an open file.
pub(crate) fn version_of(file: &fs::File) -> io::Result<Version> {
    let metadata = file.metadata()?;
    Ok(Version { size: metadata.len(), modified: metadata.modified().ok(), etag: None })
}

struct LocalFile(fs::File);

impl ReadAt for LocalFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        read_file_at(&self.0, buffer, at)
    }

    fn version(&self) -> io::Result<Version> {
        version_of(&self.0)
    }

    #[cfg(target_os = "linux")]
    fn will_need(&self, at: u64, len: u64) {
        use std::os::fd::AsRawFd;
        if let (Ok(at), Ok(len)) = (i64::try_from(at), i64::try_from(len)) {
            // SAFETY: the descriptor is open as long as `self` lives; the call reads no memory of the
            // process. It is advice, so its result does not matter.
            unsafe { libc::posix_fadvise(self.0.as_raw_fd(), at, len, libc::POSIX_FADV_WILLNEED) };
        }
    }
}

/// The most bytes of a long read between two checks for a stopped run.
const SLICE: usize = 8 << 20;

/// The pauses before the retries of a transient failure.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(5),
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(240),
];

/// The same for a URL: 6.3 s in all, so that a server may be restarted meanwhile.
const REMOTE_PAUSES: [Duration; 6] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
    Duration::from_millis(3200),
];
/// The time between two checks for a stopped run in a pause.
const CHECKED: Duration = Duration::from_millis(50);

/// The longest pause that a server may ask for: a longer one would look like a hang.
const LONGEST: Duration = Duration::from_secs(30);

/// A failure of a server that says how long to wait, as the cause of an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct AskedToWait {
    pub message: String,
    pub pause: Duration,
}

/// The pause before the next try. Those of a URL are up to a quarter shorter, so that many readers do not ask
/// a server at the same moment, and as long as it asks for.
fn pause_after(error: &io::Error, next: Duration, is_url: bool) -> Duration {
    if !is_url {
        return next;
    }
    let asked = error.get_ref().and_then(|cause| cause.downcast_ref::<AskedToWait>());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let jitter = mix(now.as_nanos() as u64 ^ u64::from(std::process::id())) % 256;
    let next = next - next * jitter as u32 / 1024;
    next.max(asked.map_or(Duration::ZERO, |asked| asked.pause.min(LONGEST)))
}

/// Sleeps, unless the thread's work is stopped; returns whether it was.
fn pause(mut left: Duration) -> bool {
    while !left.is_zero() && !cancel::is_stopped() {
        let part = left.min(CHECKED);
        thread::sleep(part);
        left -= part;
    }
    cancel::is_stopped()
}

fn is_transient(error: &io::Error) -> bool {
    #[cfg(unix)]
    if error.raw_os_error() == Some(libc::EIO) {
        return true;
    }
    use io::ErrorKind::{StaleNetworkFileHandle, TimedOut, WouldBlock};
    matches!(error.kind(), TimedOut | WouldBlock | StaleNetworkFileHandle)
}

/// Runs `attempt` until it succeeds, fails permanently, no retries are left, or the thread's work is stopped.
fn retry<T>(
    storage: &dyn Storage,
    path: &Path,
    doing: &str,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let is_url = urls::is_url(path);
    let pauses = if is_url { &REMOTE_PAUSES[..] } else { &PAUSES };
    let mut pauses = pauses.iter();
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_transient(&error) => {
                let Some(&next) = pauses.next() else { return Err(error) };
                let next = pause_after(&error, next, is_url);
                log::warn!("cannot {doing} {}: {error}; trying again in {next:?}", path.display());
                storage.retried();
                if pause(next) {
                    return Err(error);
                }
            }
            result => return result,
        }
    }
}

/// A page of the objects below a folder.
///
/// # Errors
/// As [`Storage::page`], after retries.
pub(crate) fn page(storage: &dyn Storage, folder: &Path, after: Option<&str>) -> Result<ListingPage> {
    retry(storage, folder, "list", || storage.page(folder, after))
        .map_err(|error| failed(folder, "list", error))
}

/// `path` with symbolic links and `..` resolved.
///
/// # Errors
/// As [`Storage::resolve`], after retries.
pub fn resolve(storage: &dyn Storage, path: &Path) -> Result<PathBuf> {
    retry(storage, path, "resolve", || storage.resolve(path)).map_err(|error| failed(path, "open", error))
}

/// An open file with its path and version; shared by all its readers.
pub struct StoredFile {
    path: Arc<Path>,
    storage: Arc<dyn Storage>,
    /// Replaced when the handle went stale.
    file: RwLock<Arc<dyn ReadAt>>,
    version: Version,
}

impl fmt::Debug for StoredFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl StoredFile {
    /// Opens `path` and stores its version.
    pub fn open(storage: &Arc<dyn Storage>, path: &Arc<Path>) -> Result<Self> {
        retry(&**storage, path, "open", || {
            let file = storage.open(path)?;
            let version = file.version()?;
            let file = RwLock::new(Arc::from(file));
            Ok(Self { path: Arc::clone(path), storage: Arc::clone(storage), file, version })
        })
        .map_err(|error| failed(path, "open", error))
    }

    /// Opens `path` again; an error if it no longer has the `version` that was indexed.
    pub fn reopen(storage: &Arc<dyn Storage>, path: &Arc<Path>, version: Version) -> Result<Self> {
        let file = Self::open(storage, path)?;
        if file.version == version { Ok(file) } else { Err(changed(path, version, file.version)) }
    }

    /// The size when the file was opened.
    pub fn size(&self) -> u64 {
        self.version.size
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether the file still has the version that it had when it was opened.
    pub fn is_current(&self) -> bool {
        self.handle().version().is_ok_and(|now| now == self.version)
    }

    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// Its path with symbolic links and `..` resolved.
    ///
    /// # Errors
    /// As [`Storage::resolve`].
    pub fn resolved(&self) -> io::Result<PathBuf> {
        self.storage.resolve(&self.path)
    }

    /// Reads from `at` on until `buffer` is full or the file ends; returns the number of bytes.
    pub fn read(&self, buffer: &mut [u8], at: u64) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let from = at.checked_add(filled as u64).ok_or_else(|| past_the_end(u64::MAX, self.size()))?;
            let n = retry(&*self.storage, &self.path, "read", || {
                self.fresh_if_stale(|file| file.read_at(&mut buffer[filled..], from))
            })
            .map_err(|error| self.unread(error, from))?;
            if n == 0 {
                break;
            }
            filled += n;
        }
        Ok(filled)
    }

    /// Fills all of `buffer` from `at` on, 8 MiB at a time, so that a long read ends soon after the run is
    /// stopped.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`] if the file ends before; [`ErrorKind::Io`] if reading fails, or if it has
    /// changed since it was opened; [`ErrorKind::Closed`] once the work is stopped.
    pub fn read_exact(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        let end = at.saturating_add(buffer.len() as u64);
        let mut at = at;
        for (n, slice) in buffer.chunks_mut(SLICE).enumerate() {
            if n > 0 {
                cancel::check("the read")?;
            }
            if self.read(slice, at)? < slice.len() {
                return Err(self.cut_off(end));
            }
            at = at.saturating_add(slice.len() as u64);
        }
        Ok(())
    }

    /// The bytes of `range`: without a copy if the file is mapped, else in a block of `blocks`. They hold the
    /// permit of their memory.
    ///
    /// # Errors
    /// As [`Self::read_exact`]; [`ErrorKind::Memory`].
    pub fn bytes(
        &self,
        range: Range<u64>,
        blocks: &Arc<BlockPool>,
        permits: &MemoryPermits,
    ) -> Result<Bytes> {
        let len = (range.end - range.start) as usize;
        let permit = permits.admit(BlockPool::size_of(len) as u64)?;
        match self.mapped(range.start, len, 0..len) {
            Some(bytes) => bytes.map(|bytes| covered(bytes, permit)),
            None => self.read_block(blocks.take(len, permit)?, range.start),
        }
    }

    /// Fills `block` from `at` on.
    ///
    /// # Errors
    /// As [`Self::read_exact`].
    pub fn read_block(&self, mut block: PooledBlock, at: u64) -> Result<Bytes> {
        self.read_exact(block.as_mut_slice(), at)?;
        Ok(Bytes::from_owner(block))
    }

    /// The range without a copy, if the file is mapped. Loads the bytes in `needed` into memory, 8 MiB at a
    /// time.
    ///
    /// # Errors
    /// As [`Self::read_exact`].
    pub fn mapped(&self, at: u64, len: usize, needed: Range<usize>) -> Option<Result<Bytes>> {
        let mut from = needed.start;
        loop {
            let to = needed.end.min(from.saturating_add(SLICE));
            let bytes = self.mapped_slice(at, len, from..to)?;
            if bytes.is_err() || to >= needed.end {
                return Some(bytes);
            }
            if let Err(stopped) = cancel::check("the read") {
                return Some(Err(stopped));
            }
            from = to;
        }
    }

    fn mapped_slice(&self, at: u64, len: usize, needed: Range<usize>) -> Option<Result<Bytes>> {
        let mapped = retry(&*self.storage, &self.path, "read", || {
            self.fresh_if_stale(|file| file.mapped(at, len, needed.clone()).transpose())
        });
        match mapped {
            Ok(bytes) => bytes.map(Ok),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Some(Err(self.cut_off(at.saturating_add(len as u64))))
            }
            Err(error) => Some(Err(self.unread(error, at))),
        }
    }

    /// Advises that the range will be read soon.
    pub fn will_need(&self, at: u64, len: u64) {
        self.handle().will_need(at, len);
    }

    fn handle(&self) -> Arc<dyn ReadAt> {
        self.file.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs `read`. If the handle is stale, opens the file again for the next try.
    fn fresh_if_stale<T>(&self, read: impl FnOnce(&dyn ReadAt) -> io::Result<T>) -> io::Result<T> {
        let result = read(&*self.handle());
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::StaleNetworkFileHandle
            && let Ok(fresh) = self.storage.open(&self.path)
            && fresh.version().is_ok_and(|now| now == self.version)
        {
            *self.file.write().unwrap_or_else(PoisonError::into_inner) = Arc::from(fresh);
        }
        result
    }

    fn unread(&self, error: io::Error, at: u64) -> Error {
        failed(&self.path, "read", error).in_shard(&self.path).at_byte(at)
    }

    /// The error for a file that ends before byte `end`: it was always shorter, or it has changed.
    fn cut_off(&self, end: u64) -> Error {
        match self.handle().version() {
            Ok(now) if now != self.version => changed(&self.path, self.version, now),
            _ => past_the_end(end, self.size()),
        }
    }
}

/// The error for a file, or for the stopped work that read it.
fn failed(path: &Path, doing: &str, error: io::Error) -> Error {
    if urls::is_url(path) && cancel::is_stopped() {
        return Error::new(ErrorKind::Closed, "the loader was closed during the read");
    }
    Error::io(path, doing, error)
}

/// The error for bytes up to `end` of a file of `size` bytes.
pub fn past_the_end(end: u64, size: u64) -> Error {
    let message = format!("the shard is cut off: it has {size} bytes, and bytes up to {end} are needed");
    Error::new(ErrorKind::Truncated, message).at_byte(size)
}

fn changed(path: &Arc<Path>, was: Version, is: Version) -> Error {
    let what = if was.etag != is.etag {
        "another ETag".to_string()
    } else if was.size == is.size {
        "another modification time".to_string()
    } else {
        format!("{} bytes instead of {}", is.size, was.size)
    };
    let message = format!("the shard was changed after it was opened: it now has {what}; open it again");
    Error::new(ErrorKind::Io, message).in_shard(path)
}
