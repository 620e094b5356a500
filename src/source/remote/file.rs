//! An open object as a file: reads its ranges, some of them requested ahead of time.
//!
//! All readers of a source share requests: size and ETag of an object are requested once, and small ranges,
//! such as the headers of a record batch, as whole [pages](super::pages), which are kept. Each answer is
//! checked against the version that was opened.

use std::{
    collections::VecDeque,
    io,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use tokio::task::AbortHandle;

use super::{
    answer::{Pending, Slot},
    object::{Object, version_of},
    pages,
    runtime::Running,
};
use crate::{
    record::MOST_REQUESTED,
    source::{ReadAt, Version},
};

/// The most bytes of one object that are requested ahead of time and not yet read.
const MOST_AHEAD: u64 = 64 << 20;
/// The same for all objects of a source.
const MOST_OF_ALL: u64 = MOST_REQUESTED - pages::MOST_BYTES;

/// An object that is read as a file.
pub(super) struct RemoteFile {
    object: Arc<Object>,
    version: Version,
    /// Whether an answer was of another version.
    is_changed: AtomicBool,
    ahead: Mutex<VecDeque<Ahead>>,
    /// Where the furthest of the long reads so far ended. What other threads read is not requested again.
    read_to: AtomicU64,
    /// Dropped last: it ends the threads that the requests run on.
    running: Arc<Running>,
}

/// A range that was requested ahead of time. Dropping it ends the request.
struct Ahead {
    range: Range<u64>,
    /// The bytes that were not read yet. Several readers may share a range, each with its part.
    left: u64,
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
    pub(super) fn new(running: Arc<Running>, object: Arc<Object>) -> Self {
        Self {
            version: object.version(),
            object,
            is_changed: AtomicBool::new(false),
            ahead: Mutex::default(),
            read_to: AtomicU64::new(0),
            running,
        }
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
        let (held, left) = (self.running.ahead.clone(), range.end - range.start);
        held.fetch_add(left, Ordering::Relaxed);
        Ok(Ahead { range, left, slot, request: request.abort_handle(), held })
    }

    /// Notes that a read up to `end` began. One far before the others begins a new pass.
    fn note(&self, end: u64) {
        let read_to = self.read_to.load(Ordering::Relaxed);
        if end > read_to || end + MOST_AHEAD < read_to {
            self.read_to.store(end, Ordering::Relaxed);
        }
    }

    /// Reads from a page that is kept, or requests it.
    fn read_page(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let range = pages::around(at..at + buffer.len() as u64, self.version.size);
        let slot = self.running.pages.slot(self.object.number, &range, |slot| {
            let (pending, object, wanted) = (Pending(slot), self.object.clone(), range.clone());
            self.running.handle()?.spawn(async move {
                let answer = object.get(wanted).await;
                pending.0.fill(answer);
            });
            Ok(())
        })?;
        let bytes = self.wait(&slot);
        if bytes.is_err() {
            self.running.pages.forget(&slot);
        }
        let from = (at - range.start) as usize;
        bytes.map(|bytes| {
            buffer.copy_from_slice(&bytes[from..from + buffer.len()]);
            buffer.len()
        })
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
            if len > pages::PAGE {
                self.note(at + len);
            }
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
            if len <= pages::PAGE {
                return self.read_page(&mut buffer[..len as usize], at);
            }
            let request = self.request(at..end)?;
            return self.wait(&request.slot).map(|bytes| copy(buffer, &bytes));
        };
        let bytes = self.wait(&slot);
        let n = match &bytes {
            Ok(bytes) => copy(buffer, &bytes[(at - range.start) as usize..]),
            Err(_) => 0,
        };
        // Read as a whole, or failed: another try is a request of its own.
        ahead().retain_mut(|ahead| {
            if !Arc::ptr_eq(&ahead.slot, &slot) {
                return true;
            }
            ahead.left = ahead.left.saturating_sub(n as u64);
            bytes.is_ok() && ahead.left > 0
        });
        bytes.map(|_| n)
    }

    fn version(&self) -> io::Result<Version> {
        // Each answer is checked, so nothing is asked as long as all had this version.
        if !self.is_changed.load(Ordering::Relaxed) {
            return Ok(self.version);
        }
        self.running.forget(&self.object);
        let Object { store, location, .. } = &*self.object;
        self.running.head(store, location).map(|meta| version_of(&meta))
    }

    fn will_need(&self, at: u64, len: u64) {
        let end = at.saturating_add(len).min(self.version.size);
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let at = at.max(self.read_to.load(Ordering::Relaxed));
        let is_known = ahead.iter().any(|ahead| ahead.range.start < end && at < ahead.range.end);
        if at >= end || end - at > MOST_AHEAD || is_known {
            return;
        }
        // The oldest ranges were passed without being read.
        let mut held: u64 = ahead.iter().map(|ahead| ahead.range.end - ahead.range.start).sum();
        let most = |held| {
            held + (end - at) > MOST_AHEAD
                || self.running.ahead.load(Ordering::Relaxed) + (end - at) > MOST_OF_ALL
        };
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
