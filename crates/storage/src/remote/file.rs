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
use object_store::ObjectStoreExt;
use tokio::task::AbortHandle;

use super::{
    answer::{AnswerSlot, PendingAnswer},
    failure::Failure,
    object::{Object, version_of},
    pages,
    runtime::RemoteRuntime,
};
use crate::{MOST_REQUESTED, ReadAt, Version};

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
    ahead: Mutex<VecDeque<AheadRequest>>,
    /// Where the furthest of the long reads so far ended. What other threads read is not requested again.
    read_to: AtomicU64,
    /// Dropped last: it ends the threads that the requests run on.
    running: Arc<RemoteRuntime>,
}

/// A range that was requested ahead of time. Dropping it ends the request.
struct AheadRequest {
    range: Range<u64>,
    /// The bytes that were not read yet. Several readers may share a range, each with its part.
    left: u64,
    slot: Arc<AnswerSlot<Bytes>>,
    request: AbortHandle,
    /// The bytes of all ranges of the source.
    held: Arc<AtomicU64>,
}

impl Drop for AheadRequest {
    fn drop(&mut self) {
        self.request.abort();
        self.held.fetch_sub(self.range.end - self.range.start, Ordering::Relaxed);
    }
}

impl RemoteFile {
    pub(super) fn new(running: Arc<RemoteRuntime>, object: Arc<Object>) -> Self {
        Self {
            version: object.version(),
            object,
            is_changed: AtomicBool::new(false),
            ahead: Mutex::default(),
            read_to: AtomicU64::new(0),
            running,
        }
    }

    fn wait(&self, slot: &AnswerSlot<Bytes>) -> io::Result<Bytes> {
        let bytes = slot.wait();
        if bytes.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Other) {
            self.is_changed.store(true, Ordering::Relaxed);
        }
        bytes
    }

    /// Requests a range, of which `left` bytes will be read.
    fn request(&self, range: Range<u64>, left: u64) -> io::Result<AheadRequest> {
        let slot = Arc::new(AnswerSlot::default());
        let (pending, object, wanted) = (PendingAnswer(slot.clone()), self.object.clone(), range.clone());
        let request = self.running.handle()?.spawn(async move {
            let answer = object.fetch(wanted).await;
            pending.0.fill(answer);
        });
        let held = self.running.ahead.clone();
        held.fetch_add(range.end - range.start, Ordering::Relaxed);
        Ok(AheadRequest { range, left, slot, request: request.abort_handle(), held })
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
            let (pending, object, wanted) = (PendingAnswer(slot), self.object.clone(), range.clone());
            self.running.handle()?.spawn(async move {
                let answer = object.fetch(wanted).await;
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

    /// Reads what is kept on disk.
    fn read_kept(&self, buffer: &mut [u8], at: u64) -> usize {
        let n = self.object.kept().map_or(0, |kept| kept.read(buffer, at));
        if n > 0 && self.object.is_due() {
            let object = self.object.clone();
            // Not waited for: the bytes are those of the version that was opened. Without an answer now, the
            // next request tells.
            if let Ok(handle) = self.running.handle() {
                handle.spawn(async move {
                    if let Ok(meta) = object.store.head(&object.location).await {
                        object.check(&meta);
                    }
                });
            }
        }
        n
    }
}

struct ReadPart {
    range: Range<u64>,
    slot: Arc<AnswerSlot<Bytes>>,
    /// The request of a part that was not requested ahead of time.
    _own: Option<AheadRequest>,
}

impl RemoteFile {
    /// The parts of a range in their order. Those that are not requested yet are requested at once, so that
    /// their latencies do not add up.
    fn parts(&self, wanted: &Range<u64>) -> io::Result<Vec<ReadPart>> {
        let known = |ahead: &AheadRequest| ahead.range.start < wanted.end && wanted.start < ahead.range.end;
        let mut found: Vec<_> = {
            let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
            ahead
                .iter()
                .filter(|ahead| known(ahead))
                .map(|ahead| (ahead.range.clone(), ahead.slot.clone()))
                .collect()
        };
        found.sort_by_key(|(range, _)| range.start);
        let (mut parts, mut at) = (Vec::new(), wanted.start);
        let own = |range: Range<u64>| -> io::Result<ReadPart> {
            let left = range.end - range.start;
            let request = self.request(self.object.whole(range), left)?;
            Ok(ReadPart { range: request.range.clone(), slot: request.slot.clone(), _own: Some(request) })
        };
        for (range, slot) in found {
            // bounded: at most two for each range that was requested ahead.
            if at < range.start {
                parts.push(own(at..range.start)?);
            }
            at = at.max(range.end);
            parts.push(ReadPart { range, slot, _own: None });
        }
        if at < wanted.end {
            parts.push(own(at..wanted.end)?);
        }
        Ok(parts)
    }
}

impl ReadAt for RemoteFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let len = (buffer.len() as u64).min(self.version.size.saturating_sub(at));
        if len == 0 {
            return Ok(0);
        }
        if self.object.is_changed() {
            self.is_changed.store(true, Ordering::Relaxed);
            return Err(Failure::changed().into());
        }
        let wanted = at..at + len;
        if len > pages::PAGE {
            self.note(wanted.end);
        }
        // Where a range that was requested ahead of time begins, if none has the first byte.
        let free = {
            let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
            let is_ahead = ahead.iter().any(|ahead| ahead.range.contains(&at));
            let next = ahead.iter().map(|ahead| ahead.range.start).filter(|&start| start > at).min();
            if is_ahead { at } else { next.unwrap_or(u64::MAX).min(wanted.end) }
        };
        if free == wanted.end && len <= pages::PAGE {
            return self.read_page(&mut buffer[..len as usize], at);
        }
        if free > at {
            let n = self.read_kept(&mut buffer[..(free - at) as usize], at);
            if n > 0 {
                return Ok(n);
            }
        }
        for part in self.parts(&wanted)? {
            let bytes = self.wait(&part.slot);
            let (from, to) = (part.range.start.max(wanted.start), part.range.end.min(wanted.end));
            // Read as a whole, or failed: another try is a request of its own.
            self.ahead.lock().unwrap_or_else(PoisonError::into_inner).retain_mut(|ahead| {
                if !Arc::ptr_eq(&ahead.slot, &part.slot) {
                    return true;
                }
                ahead.left = ahead.left.saturating_sub(to.saturating_sub(from));
                bytes.is_ok() && ahead.left > 0
            });
            let bytes = bytes?;
            let start = part.range.start;
            buffer[(from - at) as usize..(to - at) as usize]
                .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
        }
        Ok(len as usize)
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
        let at = at.max(self.read_to.load(Ordering::Relaxed)).min(end);
        if end - at > MOST_AHEAD {
            return;
        }
        let missing = self.object.kept().map_or(at..end, |kept| kept.missing(at..end));
        let Range { start: mut at, mut end } = missing;
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let known =
            |at: &u64| ahead.iter().find(|ahead| ahead.range.contains(at)).map(|ahead| ahead.range.end);
        while let Some(end) = known(&at) {
            at = end;
        }
        let next = ahead.iter().map(|ahead| ahead.range.start).filter(|&start| start > at).min();
        end = next.map_or(end, |next| next.min(end));
        if at >= end {
            return;
        }
        // What lies between two announcements, such as the header of a record batch or a record that was read
        // alone, is requested with one of them, if it is no longer: alone it would be waited for. It has the
        // sectors that would overlap.
        let before = ahead.iter().map(|ahead| ahead.range.end).filter(|&end| end <= at).max();
        let most_between = (end - at).max(pages::PAGE);
        if let Some(before) = before.filter(|before| at - before <= most_between) {
            at = before.max(self.read_to.load(Ordering::Relaxed)).min(at);
        }
        end = next.filter(|next| next - end <= pages::PAGE).unwrap_or(end);
        let Range { start, end: stop } = self.object.whole(at..end);
        if stop - start > MOST_AHEAD {
            return;
        }
        let is_full = |ahead: &VecDeque<AheadRequest>| {
            let held: u64 = ahead.iter().map(|ahead| ahead.range.end - ahead.range.start).sum();
            held + (stop - start) > MOST_AHEAD
                || self.running.ahead.load(Ordering::Relaxed) + (stop - start) > MOST_OF_ALL
        };
        // Ranges that were passed without being read make room, but none that is waited for.
        let read_to = self.read_to.load(Ordering::Relaxed);
        while is_full(&ahead)
            && let Some(passed) = ahead
                .iter()
                .position(|ahead| ahead.range.end <= read_to && Arc::strong_count(&ahead.slot) == 1)
        {
            ahead.remove(passed);
        }
        if is_full(&ahead) {
            return;
        }
        // It is advice: the read itself reports the error.
        if let Ok(request) = self.request(start..stop, end - at) {
            ahead.push_back(request);
        }
    }
}
