//! An open object: reads its ranges, some of them requested ahead of time.

use std::{
    collections::VecDeque,
    io,
    ops::Range,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::SystemTime,
};

use bytes::Bytes;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use tokio::{sync::Semaphore, task::AbortHandle};

use super::{
    answer::{Pending, Slot},
    failure::Failure,
    runtime::Running,
};
use crate::{
    record::Traffic,
    seed::mix,
    source::{ReadAt, Version},
};

/// The most bytes of one object that are requested ahead of time and not yet read.
const MOST_AHEAD: u64 = 64 << 20;
/// The same for all objects of a source.
const MOST_OF_ALL: u64 = 256 << 20;

/// An object of a store.
pub(super) struct RemoteFile {
    object: Arc<Object>,
    version: Version,
    /// Whether an answer was of another version.
    is_changed: AtomicBool,
    ahead: Mutex<VecDeque<Ahead>>,
    /// Dropped last: it ends the threads that the requests run on.
    running: Arc<Running>,
}

/// What a request needs.
struct Object {
    store: Arc<dyn ObjectStore>,
    location: object_store::path::Path,
    requests: Arc<Semaphore>,
    /// A strong ETag: weak ones do not promise equal bytes.
    etag: Option<String>,
    meta: ObjectMeta,
    traffic: Arc<Traffic>,
}

/// A range that was requested ahead of time. Dropping it ends the request.
struct Ahead {
    range: Range<u64>,
    slot: Arc<Slot<Bytes>>,
    request: AbortHandle,
    /// The bytes of all ranges of the source.
    held: Arc<AtomicU64>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.request.abort();
        self.held.fetch_sub(self.range.end - self.range.start, Ordering::Relaxed);
    }
}

impl RemoteFile {
    pub(super) fn open(running: Arc<Running>, url: &Path) -> io::Result<Self> {
        let (store, location) = running.place(url)?;
        let meta = head(&running, &store, &location)?;
        let version = version_of(&meta);
        let etag = meta.e_tag.clone().filter(|etag| !etag.starts_with("W/"));
        let (requests, traffic) = (running.requests.clone(), running.traffic.clone());
        let object = Arc::new(Object { store, location, requests, etag, meta, traffic });
        Ok(Self { object, version, is_changed: AtomicBool::new(false), ahead: Mutex::default(), running })
    }

    /// Waits for a range.
    fn wait(&self, slot: &Slot<Bytes>) -> io::Result<Bytes> {
        let bytes = slot.wait();
        if bytes.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Other) {
            self.is_changed.store(true, Ordering::Relaxed);
        }
        bytes
    }

    /// Requests a range.
    fn request(&self, range: Range<u64>) -> io::Result<Ahead> {
        let slot = Arc::new(Slot::default());
        let (pending, object, wanted) = (Pending(slot.clone()), self.object.clone(), range.clone());
        let request = self.running.handle()?.spawn(async move {
            let answer = object.get(wanted).await;
            pending.0.fill(answer);
        });
        let held = self.running.ahead.clone();
        held.fetch_add(range.end - range.start, Ordering::Relaxed);
        Ok(Ahead { range, slot, request: request.abort_handle(), held })
    }
}

impl Object {
    /// The bytes of a range.
    async fn get(&self, wanted: Range<u64>) -> Result<Bytes, Failure> {
        let closed = |_| Failure::new(io::ErrorKind::Other, "the source is closed");
        let _permit = self.requests.acquire().await.map_err(closed)?;
        let len = wanted.end - wanted.start;
        let range = Some(GetRange::Bounded(wanted.clone()));
        let options = GetOptions { range, if_match: self.etag.clone(), ..GetOptions::default() };
        let answer =
            self.store.get_opts(&self.location, options).await.map_err(|error| Failure::of(&error))?;
        if !self.is_same(&answer.meta) {
            return Err(Failure::changed());
        }
        if answer.range != wanted {
            return Err(Failure::transient(format!(
                "the answer has bytes {:?}, not {wanted:?}",
                answer.range
            )));
        }
        let bytes = answer.bytes().await.map_err(|error| Failure::of(&error))?;
        self.traffic.received_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if bytes.len() as u64 != len {
            let message = format!("the answer has {} bytes, {len} were requested", bytes.len());
            return Err(Failure::transient(message));
        }
        Ok(bytes)
    }

    /// Whether an answer is of the version that was opened: by its strong ETag, otherwise by size and time.
    fn is_same(&self, meta: &ObjectMeta) -> bool {
        let has_same_tag = match (&meta.e_tag, &self.meta.e_tag) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let is_strong = self.etag.is_some() && meta.e_tag.is_some();
        let has_same_time = is_strong || meta.last_modified == self.meta.last_modified;
        meta.size == self.meta.size && has_same_tag && has_same_time
    }
}

impl ReadAt for RemoteFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let len = (buffer.len() as u64).min(self.version.size.saturating_sub(at));
        if len == 0 {
            return Ok(0);
        }
        let ahead = || self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, end) = {
            let ahead = ahead();
            let found = ahead.iter().find(|ahead| ahead.range.contains(&at));
            let next = ahead.iter().map(|ahead| ahead.range.start).filter(|&start| start > at).min();
            let found = found.map(|ahead| (ahead.range.clone(), ahead.slot.clone()));
            (found, next.unwrap_or(u64::MAX).min(at + len))
        };
        let copy = |buffer: &mut [u8], bytes: &[u8]| {
            let n = bytes.len().min(buffer.len());
            buffer[..n].copy_from_slice(&bytes[..n]);
            n
        };
        let Some((range, slot)) = found else {
            let request = self.request(at..end)?;
            return self.wait(&request.slot).map(|bytes| copy(buffer, &bytes));
        };
        let bytes = self.wait(&slot);
        let n = match &bytes {
            Ok(bytes) => copy(buffer, &bytes[(at - range.start) as usize..]),
            Err(_) => 0,
        };
        // Read to its end, or failed: another try is a request of its own.
        if bytes.is_err() || at + n as u64 == range.end {
            ahead().retain(|ahead| !Arc::ptr_eq(&ahead.slot, &slot));
        }
        bytes.map(|_| n)
    }

    fn version(&self) -> io::Result<Version> {
        // Each answer is checked, so nothing is asked as long as all had this version.
        if !self.is_changed.load(Ordering::Relaxed) {
            return Ok(self.version);
        }
        head(&self.running, &self.object.store, &self.object.location).map(|meta| version_of(&meta))
    }

    fn will_need(&self, at: u64, len: u64) {
        let end = at.saturating_add(len).min(self.version.size);
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = ahead.iter().any(|ahead| ahead.range.start < end && at < ahead.range.end);
        if at >= end || end - at > MOST_AHEAD || is_known {
            return;
        }
        // The oldest ranges were passed without being read.
        let mut held: u64 = ahead.iter().map(|ahead| ahead.range.end - ahead.range.start).sum();
        let most =
            |held| held + (end - at) > MOST_AHEAD || self.running.ahead.load(Ordering::Relaxed) > MOST_OF_ALL;
        while most(held)
            && let Some(oldest) = ahead.pop_front()
        {
            held -= oldest.range.end - oldest.range.start;
        }
        if most(held) {
            return;
        }
        // It is advice: the read itself reports the error.
        if let Ok(request) = self.request(at..end) {
            ahead.push_back(request);
        }
    }
}

/// Asks for size and ETag.
fn head(
    running: &Running,
    store: &Arc<dyn ObjectStore>,
    location: &object_store::path::Path,
) -> io::Result<ObjectMeta> {
    let slot = Arc::new(Slot::default());
    let (pending, store, location) = (Pending(slot.clone()), store.clone(), location.clone());
    let request = running.handle()?.spawn(async move {
        let answer = store.head(&location).await;
        pending.0.fill(answer.map_err(|error| Failure::of(&error)));
    });
    let answer = slot.wait();
    request.abort();
    answer
}

fn version_of(meta: &ObjectMeta) -> Version {
    let hash = |etag: &String| etag.bytes().fold(1, |state, byte| mix(state ^ u64::from(byte)));
    Version {
        size: meta.size,
        // The store's default says nothing.
        modified: Some(SystemTime::from(meta.last_modified)).filter(|&time| time != SystemTime::UNIX_EPOCH),
        etag: meta.e_tag.as_ref().map(hash),
    }
}
