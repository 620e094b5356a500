//! An object of a store at one version: requests its ranges, and checks each answer. Ranges that are kept on
//! disk are read from there.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore};

use super::{
    disk::CachedObject,
    failure::Failure,
    flight::{Flight, Request},
    pages::PAGE,
};
use crate::{Traffic, Version, seed::mix};

/// The server is asked again for the version of an object that is read from the disk only after this.
const CHECKED: Duration = Duration::from_secs(60);

pub(super) struct Object {
    /// Its number among those of the source.
    pub number: u64,
    pub store: Arc<dyn ObjectStore>,
    pub location: object_store::path::Path,
    requests: Arc<Flight>,
    /// A strong ETag: weak ones do not promise equal bytes.
    etag: Option<String>,
    meta: ObjectMeta,
    traffic: Arc<Traffic>,
    kept: Option<Arc<CachedObject>>,
    /// The server's last word on the version.
    checked: Mutex<Instant>,
    /// Whether the server had another version then.
    is_changed: AtomicBool,
}

impl Object {
    pub(super) fn new(
        number: u64,
        store: Arc<dyn ObjectStore>,
        location: object_store::path::Path,
        meta: ObjectMeta,
        requests: Arc<Flight>,
        traffic: Arc<Traffic>,
        kept: Option<Arc<CachedObject>>,
    ) -> Self {
        let etag = meta.e_tag.clone().filter(|etag| !etag.starts_with("W/"));
        let (checked, is_changed) = (Mutex::new(Instant::now()), AtomicBool::new(false));
        Self { number, store, location, requests, etag, meta, traffic, kept, checked, is_changed }
    }

    pub(super) fn version(&self) -> Version {
        version_of(&self.meta)
    }

    /// The object on disk, if it is kept there.
    pub(super) fn kept(&self) -> Option<&CachedObject> {
        self.kept.as_deref()
    }

    /// The range as it is requested: in whole sectors if it will be kept.
    pub(super) fn whole(&self, range: Range<u64>) -> Range<u64> {
        self.kept.as_ref().map_or(range.clone(), |kept| kept.whole(range))
    }

    /// Whether a read from the disk should ask the server for the version. The caller does.
    pub(super) fn is_due(&self) -> bool {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = checked.elapsed() > CHECKED;
        if is_due {
            *checked = Instant::now();
        }
        is_due
    }

    /// Compares the version with that of an answer.
    pub(super) fn check(&self, meta: &ObjectMeta) {
        if !self.is_same(meta) {
            self.is_changed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the server said that it has another version.
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed.load(Ordering::Relaxed)
    }

    /// The bytes of a range that is [`whole`](Self::whole), from the disk as far as they are kept.
    pub(super) async fn fetch(&self, wanted: Range<u64>) -> Result<Bytes, Failure> {
        match &self.kept {
            Some(kept) => kept.fetch(wanted, |range| self.get(range)).await,
            None => self.get(wanted).await,
        }
    }

    /// The bytes of a range, from the server.
    async fn get(&self, wanted: Range<u64>) -> Result<Bytes, Failure> {
        let mut request = self.requests.begin(wanted.end - wanted.start).await?;
        let range = Some(GetRange::Bounded(wanted.clone()));
        let options = GetOptions { range, if_match: self.etag.clone(), ..GetOptions::default() };
        let answer =
            self.store.get_opts(&self.location, options).await.map_err(|error| Failure::of(&error))?;
        if !self.is_same(&answer.meta) {
            return Err(Failure::changed());
        }
        request.answered();
        let bytes = body(answer, wanted, &self.traffic, &mut request).await?;
        request.ended();
        *self.checked.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
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

/// The first page of an object and what the answer says of it, by one request; `None` if it may be empty.
pub(super) async fn first(
    store: &dyn ObjectStore,
    location: &object_store::path::Path,
    requests: &Flight,
    traffic: &Traffic,
) -> Result<Option<(ObjectMeta, Bytes)>, Failure> {
    let mut request = requests.begin(PAGE).await?;
    let range = Some(GetRange::Bounded(0..PAGE));
    let answer = match store.get_opts(location, GetOptions { range, ..GetOptions::default() }).await {
        Ok(answer) => answer,
        // Some servers answer so for an empty object.
        Err(object_store::Error::NotSupported { .. }) => return Ok(None),
        Err(error) if Failure::is_of_range(&error) => return Ok(None),
        Err(error) => return Err(Failure::of(&error)),
    };
    let (meta, end) = (answer.meta.clone(), PAGE.min(answer.meta.size));
    Ok(Some((meta, body(answer, 0..end, traffic, &mut request).await?)))
}

/// The body of an answer, which must be the range `wanted`.
async fn body(
    answer: GetResult,
    wanted: Range<u64>,
    traffic: &Traffic,
    request: &mut Request<'_>,
) -> Result<Bytes, Failure> {
    let len = wanted.end - wanted.start;
    if answer.range != wanted {
        return Err(Failure::transient(format!("the answer has bytes {:?}, not {wanted:?}", answer.range)));
    }
    let mut parts = answer.into_stream();
    let mut bytes = BytesMut::new();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| Failure::of(&error))?;
        traffic.received_bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
        if (bytes.len() + part.len()) as u64 > len {
            return Err(Failure::transient(format!(
                "the answer has more than the {len} bytes that were requested"
            )));
        }
        // bounded: the range, of which one block of a record is in memory.
        bytes.extend_from_slice(&part);
        request.received(part.len() as u64);
    }
    if bytes.len() as u64 != len {
        let message = format!("the answer has {} bytes, {len} were requested", bytes.len());
        return Err(Failure::transient(message));
    }
    Ok(bytes.freeze())
}

/// The version that an answer tells.
pub(super) fn version_of(meta: &ObjectMeta) -> Version {
    let hash = |etag: &String| etag.bytes().fold(1, |state, byte| mix(state ^ u64::from(byte)));
    Version {
        size: meta.size,
        // The store's default says nothing.
        modified: Some(SystemTime::from(meta.last_modified)).filter(|&time| time != SystemTime::UNIX_EPOCH),
        etag: meta.e_tag.as_ref().map(hash),
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn a_version_is_asked_for_again_after_a_minute() {
        let meta = ObjectMeta {
            location: "x".into(),
            last_modified: SystemTime::UNIX_EPOCH.into(),
            size: 3,
            e_tag: Some("\"1\"".to_owned()),
            version: None,
        };
        let (store, requests) = (Arc::new(InMemory::new()), Arc::new(Flight::default()));
        let object = Object::new(0, store, "x".into(), meta.clone(), requests, Arc::default(), None);
        assert!(!object.is_due());
        *object.checked.lock().unwrap() -= CHECKED + Duration::from_secs(1);
        // Once, for all readers.
        assert_eq!([object.is_due(), object.is_due()], [true, false]);
        object.check(&meta);
        assert!(!object.is_changed());
        object.check(&ObjectMeta { e_tag: Some("\"2\"".to_owned()), ..meta });
        assert!(object.is_changed());
    }
}
