//! The threads that run the requests of one source.

use std::{
    collections::HashMap,
    future::Future,
    io,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use tokio::runtime::{Builder, Handle, Runtime};

use super::{
    answer::{AnswerSlot, PendingAnswer},
    disk::{CachedObject, DiskCache},
    failure::Failure,
    flight::Flight,
    hub::Hub,
    object::{self, Object},
    pages::Pages,
    settings::Settings,
    stores::{Address, StoreClient},
};
use crate::{StoreOptions, Traffic};

/// The most objects that are kept: some 20 MB.
const MOST_OBJECTS: usize = 1 << 16;
/// The most bytes of an object: no store has larger ones.
const LARGEST: u64 = 1 << 60;
/// How long the end of a source waits for its threads, which have nothing to finish.
const ENDING: Duration = Duration::from_millis(200);

/// A host, and whether it gets a token.
type Key = (String, bool);

pub(super) struct RemoteRuntime {
    /// Started by the first request.
    runtime: Mutex<Option<Runtime>>,
    process: u32,
    pub(super) requests: Arc<Flight>,
    /// Bytes of ranges that were requested ahead of time and not read.
    pub(super) ahead: Arc<AtomicU64>,
    pub(super) traffic: Arc<Traffic>,
    pub(super) cache: Option<Arc<DiskCache>>,
    clients: Mutex<HashMap<Key, StoreClient>>,
    /// Objects whose size and ETag are known.
    objects: Mutex<HashMap<PathBuf, Arc<Object>>>,
    n_objects: AtomicU64,
    pub(super) pages: Pages,
    settings: Settings,
    /// Made with the first URL of the Hub.
    hub: OnceLock<Hub>,
}

/// Installs the provider of cryptography that clients need, once for the process.
pub(super) fn install_tls() {
    // The first one stays; another one serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

impl RemoteRuntime {
    /// With the settings of this moment.
    pub(super) fn new(traffic: &Arc<Traffic>, options: &StoreOptions, cache: Option<Arc<DiskCache>>) -> Self {
        install_tls();
        Self {
            runtime: Mutex::default(),
            process: process::id(),
            requests: Arc::default(),
            ahead: Arc::default(),
            traffic: traffic.clone(),
            cache,
            clients: Mutex::default(),
            objects: Mutex::default(),
            n_objects: AtomicU64::new(0),
            pages: Pages::default(),
            settings: Settings::here(options),
            hub: OnceLock::new(),
        }
    }

    /// The Hub.
    ///
    /// # Errors
    /// For settings that are wrong.
    pub(super) fn hub(&self) -> io::Result<&Hub> {
        match self.hub.get() {
            Some(hub) => Ok(hub),
            None => Hub::new(&self.settings).map(|hub| self.hub.get_or_init(|| hub)),
        }
    }

    /// An error in a child process: the threads exist only in the parent.
    pub(super) fn check_process(&self) -> io::Result<()> {
        if self.process == process::id() {
            return Ok(());
        }
        Err(io::Error::other("the source was opened before a fork; open it in the child process"))
    }

    pub(super) fn handle(&self) -> io::Result<Handle> {
        self.check_process()?;
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*runtime {
            return Ok(runtime.handle().clone());
        }
        let mut builder = Builder::new_multi_thread();
        let started = builder.worker_threads(2).thread_name("forebay-remote").enable_all().build()?;
        Ok(runtime.insert(started).handle().clone())
    }

    /// Ends the threads. What they were requesting is given up.
    pub(super) fn end_threads(&self) {
        let taken = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(runtime) = taken else { return };
        if self.process == process::id() {
            runtime.shutdown_timeout(ENDING);
        } else {
            // Its threads do not exist here, so there is nothing to wait for.
            std::mem::forget(runtime);
        }
    }

    /// The client of an address's host or bucket, made once.
    pub(super) fn client(&self, address: &Address) -> io::Result<StoreClient> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&address.key()) {
            return Ok(client.clone());
        }
        let client = address.client(&self.settings, &self.traffic)?;
        clients.insert(address.key(), client.clone());
        Ok(client)
    }

    /// The object of a URL that was opened before.
    pub(super) fn opened(&self, url: &Path) -> Option<Arc<Object>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).get(url).cloned()
    }

    /// Asks for size and ETag of an object, and keeps them for the next readers.
    pub(super) fn object(&self, url: &Path, address: Address) -> io::Result<Arc<Object>> {
        let client = self.client(&address)?;
        let (name, store) = (address.identity(&client), client.objects);
        let location = address.location;
        // One answer has both, and the first page, which may be on the disk if there is a cache.
        let (meta, first) = match is_read_from_its_end(url) || self.cache.is_some() {
            true => match self.head(&store, &location) {
                // The server answers GET only.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => self.first(&store, &location)?,
                head => (head?, None),
            },
            false => self.first(&store, &location)?,
        };
        if meta.size > LARGEST {
            let message = format!("the server says that the object has {} bytes", meta.size);
            return Err(io::Error::other(message));
        }
        let number = self.n_objects.fetch_add(1, Ordering::Relaxed);
        if let Some(first) = first {
            self.pages.keep(number, 0..first.len() as u64, first);
        }
        let (requests, traffic) = (self.requests.clone(), self.traffic.clone());
        let kept = self.cache.as_ref().and_then(|cache| CachedObject::new(cache, &name, &meta, &traffic));
        let object = Arc::new(Object::new(number, store, location, meta, requests, traffic, kept));
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        if objects.len() < MOST_OBJECTS {
            objects.insert(url.to_owned(), object.clone());
        }
        Ok(object)
    }

    /// Asks for the first page, of which the answer has size and ETag.
    fn first(
        &self,
        store: &Arc<dyn ObjectStore>,
        location: &object_store::path::Path,
    ) -> io::Result<(ObjectMeta, Option<Bytes>)> {
        let (requests, traffic) = (self.requests.clone(), self.traffic.clone());
        let (from, at) = (store.clone(), location.clone());
        let answer = self.wait_for(async move { object::first(&*from, &at, &requests, &traffic).await })?;
        match answer {
            Some((meta, first)) => Ok((meta, Some(first))),
            // An empty object has no range.
            None => Ok((self.head(store, location)?, None)),
        }
    }

    /// Asks for size and ETag.
    pub(super) fn head(
        &self,
        store: &Arc<dyn ObjectStore>,
        location: &object_store::path::Path,
    ) -> io::Result<ObjectMeta> {
        let (store, location) = (store.clone(), location.clone());
        self.wait_for(async move { store.head(&location).await.map_err(|error| Failure::of(&error)) })
    }

    /// Forgets an object that was changed.
    pub(super) fn forget(&self, object: &Arc<Object>) {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.retain(|_, kept| !Arc::ptr_eq(kept, object));
    }

    /// Waits for the answer of `asked`, which ends with the thread's work.
    pub(super) fn wait_for<T: Clone + Send + 'static>(
        &self,
        asked: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> io::Result<T> {
        let slot = Arc::new(AnswerSlot::default());
        let pending = PendingAnswer(slot.clone());
        let request = self.handle()?.spawn(async move { pending.0.fill(asked.await) });
        let answer = slot.wait();
        request.abort();
        answer
    }
}

impl Drop for RemoteRuntime {
    fn drop(&mut self) {
        self.end_threads();
    }
}

/// Whether the format of an object has its beginning at the end.
fn is_read_from_its_end(url: &Path) -> bool {
    url.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("parquet"))
}
