//! A cache of objects on a local disk: the parameters `cache_dir` and `cache_bytes`.
//!
//! In: ranges of objects that were opened, in one version. Out: the same bytes, from the disk if they were
//! requested before, by any process that has the same folder.
//!
//! What is kept are the ranges that were requested, rounded to sectors of 4 KiB, in files of [parts](part) of
//! 4 MiB. Whole blocks of 1 MiB or more would make a row of 200 kB, or five seconds of an hour, cost several
//! times its bytes, and without end if the cache holds less than the objects. A file for each range would
//! need an index, and a range at other borders, as another order or number of ranks has them, would be
//! requested again. With sectors a request sends at most 8 KiB more than was wanted, and what was sent is
//! kept for any range.
//!
//! An object is named by its URL and server, ETag, size and time of the last change. One whose version is not
//! certain, because it has no strong ETag and was changed in the last minute or has no time, is not kept. Nor
//! is one with an identity that is too long.
//!
//! Reads need no lock ([`part`] says why). Two that want the same sectors at the same time wait for each
//! other: a [lock](locks) on these sectors is held from before the request until its answer is kept. Sectors
//! that a request shares with its neighbours are not locked, or neighbours would wait for each other. After
//! [`PATIENCE`] the request is sent anyway. Writers take turns by another lock, so that the folder keeps its
//! limit.
//!
//! Failures of the disk are no failures of reads: what cannot be read is requested, and after a failure to
//! write, such as a full disk, this source keeps nothing more and says so once.

mod folder;
mod locks;
#[cfg(test)]
#[cfg(unix)]
mod others;
mod part;
mod plain;
#[cfg(test)]
mod tests;

use std::{
    future::Future,
    io,
    ops::Range,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use object_store::ObjectMeta;

pub(super) use self::part::SECTOR;
use self::{
    folder::PartFolder,
    locks::{FileLock, try_lock},
    part::{PART, PartPlace},
};
use super::failure::Failure;
use crate::{Result, Traffic, seed::mix};

/// How long a request waits for the same one of another process.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a writer waits for its turn, in ms. Then its bytes are not kept.
const TURN: u64 = 8000;
const POLLED: Duration = Duration::from_millis(5);
/// As many kept sectors between two missing ones are not requested: 64 KiB.
const RUN: usize = 16;
/// The time since its last change from which a time tells versions apart: it may be rounded to seconds.
const SETTLED: Duration = Duration::from_secs(60);
/// A part's time of use is set after this.
const TOUCHED: Duration = Duration::from_secs(10);
/// The most bytes of an identity.
const LONGEST: usize = 8192;
/// Where the locks of sectors begin in the file of locks. Before are those of writers.
const FIRST_SECTOR: u64 = 1 << 20;

/// A cache on disk that the sources of a loader share.
#[derive(Debug)]
pub struct DiskCache {
    folder: PartFolder,
    /// One writer of this process at a time.
    writing: Mutex<()>,
    /// Whether writing failed: then nothing more is kept.
    is_off: AtomicBool,
    /// How long the next writer waits for its turn, in ms.
    patience: AtomicU64,
}

impl DiskCache {
    /// A cache of at most `bytes` in the folder `cache_dir`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the folder cannot be made or written to, or is a
    /// URL.
    pub(super) fn open(cache_dir: &Path, bytes: u64) -> Result<Arc<Self>> {
        let shown = cache_dir.display().to_string();
        let scheme = shown.split_once("://").map(|(scheme, _)| scheme);
        let scheme = scheme.filter(|scheme| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let wrong = if let Some(scheme) = scheme {
            // Of other schemes, too: they would be relative folders. One with a password is not quoted.
            Some(format!("a URL ({scheme}://)"))
        } else if cache_dir.as_os_str().is_empty() {
            Some("empty".to_owned())
        } else if cache_dir.starts_with("~") {
            Some(format!(
                "{shown:?}, and ~ is not expanded; give the folder's whole path, as by os.path.expanduser"
            ))
        } else {
            None
        };
        if let Some(wrong) = wrong {
            let message = format!("cache_dir is {wrong}; it must be a folder on a local disk");
            return Err(crate::Error::new(crate::ErrorKind::Config, message));
        }
        let (folder, full) = PartFolder::open(cache_dir, bytes)?;
        let cache = Self {
            folder,
            writing: Mutex::default(),
            is_off: AtomicBool::new(false),
            patience: AtomicU64::new(TURN),
        };
        full.iter().for_each(|error| cache.failed(error));
        Ok(Arc::new(cache))
    }

    /// Waits for the turn to write; `None` if it does not come in time. The next writer waits half as long
    /// then, so that a stopped process, which keeps its turn, costs a few seconds in all. Without locks in
    /// the file system no writer waits.
    fn turn(&self) -> Option<Option<FileLock>> {
        let patience = self.patience.load(Ordering::Relaxed);
        let end = Instant::now() + Duration::from_millis(patience);
        let turn = loop {
            match try_lock(&self.folder.lock(), 0..1) {
                Ok(Some(held)) => break Some(Some(held)),
                Ok(None) if Instant::now() > end => break None,
                Ok(None) => thread::sleep(POLLED),
                Err(_) => break Some(None),
            }
        };
        self.patience.store(if turn.is_some() { TURN } else { patience / 2 }, Ordering::Relaxed);
        turn
    }

    /// Notes a failure to write, once.
    fn failed(&self, error: &io::Error) {
        if !self.is_off.swap(true, Ordering::Relaxed) {
            log::warn!(
                "cannot write to cache_dir ({}): {error}; this loader goes on without keeping more there",
                self.folder.path.display()
            );
        }
    }
}

pub(super) struct CachedObject {
    cache: Arc<DiskCache>,
    identity: String,
    size: u64,
    traffic: Arc<Traffic>,
}

impl CachedObject {
    /// The object called `name`, in the version that the server describes; `None` if no later answer could be
    /// told from another version.
    pub(super) fn new(
        cache: &Arc<DiskCache>,
        name: &str,
        meta: &ObjectMeta,
        traffic: &Arc<Traffic>,
    ) -> Option<Arc<Self>> {
        let changed = SystemTime::from(meta.last_modified);
        let has_strong_tag = meta.e_tag.as_ref().is_some_and(|etag| !etag.starts_with("W/"));
        // The store's default is no time. A time in the future is not settled.
        let is_settled =
            changed != SystemTime::UNIX_EPOCH && changed.elapsed().is_ok_and(|age| age > SETTLED);
        let identity = format!(
            "{name:?} {:?} {} {}",
            meta.e_tag.as_deref().unwrap_or(""),
            meta.size,
            meta.last_modified.timestamp_millis()
        );
        let is_kept = (has_strong_tag || is_settled) && identity.len() <= LONGEST && meta.size > 0;
        is_kept.then(|| {
            Arc::new(Self { cache: cache.clone(), identity, size: meta.size, traffic: traffic.clone() })
        })
    }

    /// The range in whole sectors, in which it is requested.
    pub(super) fn whole(&self, range: Range<u64>) -> Range<u64> {
        if self.is_off() {
            return range;
        }
        range.start / SECTOR * SECTOR..range.end.next_multiple_of(SECTOR).min(self.size)
    }

    fn is_off(&self) -> bool {
        self.cache.is_off.load(Ordering::Relaxed)
    }

    fn place(&self, at: u64) -> PartPlace {
        PartPlace::new(&self.cache.folder.path, &self.identity, self.size, at)
    }

    /// Reads from `at` on, up to the end of the buffer or the first byte that is not kept.
    pub(super) fn read(&self, buffer: &mut [u8], at: u64) -> usize {
        let mut n = 0;
        while n < buffer.len() {
            let from = at + n as u64;
            let place = self.place(from);
            let read = place.open().and_then(|part| {
                let Some(part) = part else { return Ok((0, 0)) };
                let wanted = ((part.end() - from) as usize).min(buffer.len() - n);
                let read = part.read(&mut buffer[n..n + wanted], from)?;
                let is_old = |used: SystemTime| used.elapsed().is_ok_and(|age| age > TOUCHED);
                if read > 0 && part.file.metadata()?.modified().is_ok_and(is_old) {
                    // Only its owner may; then it counts as unused since.
                    let _ = part.file.set_modified(SystemTime::now());
                }
                Ok((read, wanted))
            });
            match read {
                Ok((read, wanted)) => {
                    n += read;
                    if read < wanted || wanted == 0 {
                        break;
                    }
                }
                Err(error) => {
                    log::debug!("{} is not readable: {error}", place.path.display());
                    break;
                }
            }
        }
        if n > 0 {
            self.traffic.cache_hits.fetch_add(1, Ordering::Relaxed);
            self.traffic.cached_bytes.fetch_add(n as u64, Ordering::Relaxed);
        }
        n
    }

    /// Whether each sector of a range is kept, as the files tell; the sectors are not read.
    fn sectors(&self, range: &Range<u64>) -> Vec<bool> {
        let mut all = Vec::new();
        for piece in pieces(range.clone()) {
            let place = self.place(piece.start);
            let kept = place.open().and_then(|part| part.map(|part| part.kept(&piece)).transpose());
            // bounded: a sector is 4 KiB of a block that is read.
            all.extend(kept.ok().flatten().unwrap_or_default());
            // bounded: the same.
            all.resize((piece.end.div_ceil(SECTOR) - range.start / SECTOR) as usize, false);
        }
        all
    }

    /// The range without what is kept at its begin and end; empty if all is.
    pub(super) fn missing(&self, range: Range<u64>) -> Range<u64> {
        let kept = self.sectors(&range);
        let (first, last) = (kept.iter().position(|kept| !kept), kept.iter().rposition(|kept| !kept));
        let (Some(first), Some(last)) = (first, last) else { return range.end..range.end };
        let at = |sector: usize| (range.start / SECTOR + sector as u64) * SECTOR;
        at(first).max(range.start)..at(last + 1).min(range.end)
    }

    /// Where the next request for bytes of the range ends, which begins with a sector that is missing or
    /// damaged: before the next run of sectors that is worth another request.
    fn gap(&self, range: &Range<u64>) -> u64 {
        let kept = self.sectors(range);
        if kept.first() == Some(&true) {
            return range.end;
        }
        let next = kept.windows(RUN).position(|run| run.iter().all(|&kept| kept));
        let tail = kept.iter().rposition(|kept| !kept).map_or(kept.len(), |last| last + 1);
        (range.start / SECTOR + next.unwrap_or(tail) as u64).saturating_mul(SECTOR).min(range.end)
    }

    /// The bytes of a [whole](Self::whole) range: from the disk, or by `get`, whose answers are kept.
    pub(super) async fn fetch<A: Future<Output = Fetched>>(
        self: &Arc<Self>,
        wanted: Range<u64>,
        get: impl Fn(Range<u64>) -> A,
    ) -> Fetched {
        let _lock = self.lock(&wanted).await;
        let (mut bytes, mut at) = (Vec::new(), wanted.start);
        while at < wanted.end {
            let (kept, wanted_here) = (self.clone(), wanted.clone());
            let (found, gap) = blocking(move || kept.read_on(bytes, at, &wanted_here)).await?;
            (bytes, at) = (found, gap.start);
            if gap.is_empty() {
                continue;
            }
            let answer = get(gap.clone()).await?;
            let (kept, answered) = (self.clone(), answer.clone());
            blocking(move || kept.keep(&answered, gap.start)).await?;
            if gap == wanted {
                return Ok(answer);
            }
            let from = (gap.start - wanted.start) as usize;
            bytes[from..from + answer.len()].copy_from_slice(&answer);
            at = gap.end;
        }
        Ok(bytes.into())
    }

    /// Reads bytes of the range `wanted` from `at` on, and returns the gap after them. The buffer, which is
    /// for the whole range, is made if it is needed.
    fn read_on(&self, mut bytes: Vec<u8>, at: u64, wanted: &Range<u64>) -> (Vec<u8>, Range<u64>) {
        if bytes.is_empty() && self.gap(wanted) == wanted.end && self.missing(wanted.clone()) == *wanted {
            return (bytes, wanted.clone());
        }
        // bounded: the range, of which one block of a record is in memory.
        bytes.resize((wanted.end - wanted.start) as usize, 0);
        let at = at + self.read(&mut bytes[(at - wanted.start) as usize..], at) as u64;
        let end = if at < wanted.end { self.gap(&(at..wanted.end)) } else { at };
        (bytes, at..end)
    }

    /// Locks the sectors that are wholly in the range and that no neighbour shares, for at most [`PATIENCE`].
    async fn lock(&self, range: &Range<u64>) -> Option<FileLock> {
        let hash = self.identity.bytes().fold(mix(3), |state, byte| mix(state ^ u64::from(byte)));
        let from = (hash >> 3).max(FIRST_SECTOR);
        // The last sector of a request belongs to the next one as well, unless the object ends there.
        let first = range.start / SECTOR + u64::from(range.start > 0);
        let last = match range.end == self.size {
            true => range.end.div_ceil(SECTOR),
            // Not of a whole sector, if nothing more is kept.
            false => (range.end / SECTOR).saturating_sub(1),
        };
        if first >= last {
            return None;
        }
        let end = Instant::now() + PATIENCE;
        loop {
            match try_lock(&self.cache.folder.lock(), from + first..from + last) {
                Ok(None) if Instant::now() < end => tokio::time::sleep(POLLED).await,
                Ok(held) => return held,
                Err(_) => return None,
            }
        }
    }

    /// Keeps bytes of the object: whole sectors from `at` on.
    fn keep(&self, bytes: &Bytes, at: u64) {
        if self.is_off() {
            return;
        }
        let mut kept = self.try_keep(bytes, at);
        if kept.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            // The folder was removed, or the part by another process.
            kept = self.cache.folder.make().and_then(|()| self.try_keep(bytes, at));
        }
        if let Err(error) = kept {
            self.cache.failed(&error);
        }
    }

    fn try_keep(&self, bytes: &Bytes, at: u64) -> io::Result<()> {
        let _one = self.cache.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(_turn) = self.cache.turn() else { return Ok(()) };
        for piece in pieces(at..at + bytes.len() as u64) {
            let place = self.place(piece.start);
            let len = piece.end - piece.start;
            // And a block in which a file system lists where a file's bytes are.
            let header = if place.path.exists() { 0 } else { place.data_at() + SECTOR };
            if !self.cache.folder.make_room(len + header)? {
                return Ok(());
            }
            let from = (piece.start - at) as usize;
            match place.make() {
                Ok(part) => part.write(&bytes[from..from + len as usize], piece.start)?,
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    log::debug!("{} is not a part of {}", place.path.display(), self.identity);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

type Fetched = std::result::Result<Bytes, Failure>;

/// The pieces of a range, each in one part.
fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let next = move |at: &u64| Some((at / PART + 1) * PART).filter(|&next| next < range.end);
    std::iter::successors(Some(range.start).filter(|&at| at < range.end), next)
        .map(move |at| at..((at / PART + 1) * PART).min(range.end))
}

/// Runs `work` on a thread for calls that block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> std::result::Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Failure::transient("the request was given up"))
}
