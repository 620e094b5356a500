//! The threads that run the requests of one source.

use std::{
    collections::HashMap,
    io,
    path::Path,
    process,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use object_store::ObjectStore;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::Semaphore,
};

use super::stores;
use crate::record::Traffic;

/// The most requests of one source at a time.
const IN_FLIGHT: usize = 16;
/// How long the end of a source waits for its threads, which have nothing to finish.
const ENDING: Duration = Duration::from_millis(200);

/// A host, and whether it gets a token.
type Key = (String, bool);

/// A runtime with its stores.
pub(super) struct Running {
    /// Started by the first request.
    runtime: Mutex<Option<Runtime>>,
    process: u32,
    pub(super) requests: Arc<Semaphore>,
    /// Bytes of ranges that were requested ahead of time and not read.
    pub(super) ahead: Arc<AtomicU64>,
    pub(super) traffic: Arc<Traffic>,
    stores: Mutex<HashMap<Key, Arc<dyn ObjectStore>>>,
}

impl Running {
    pub(super) fn new(traffic: &Arc<Traffic>) -> Self {
        // The first provider of the process stays; another one serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            runtime: Mutex::default(),
            process: process::id(),
            requests: Arc::new(Semaphore::new(IN_FLIGHT)),
            ahead: Arc::default(),
            traffic: traffic.clone(),
            stores: Mutex::default(),
        }
    }

    /// An error in a child process: the threads exist only in the parent.
    pub(super) fn check_process(&self) -> io::Result<()> {
        if self.process == process::id() {
            return Ok(());
        }
        Err(io::Error::other("the source was opened before a fork; open it in the child process"))
    }

    /// Where requests run.
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
    pub(super) fn rest(&self) {
        let taken = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(runtime) = taken else { return };
        if self.process == process::id() {
            runtime.shutdown_timeout(ENDING);
        } else {
            // Its threads do not exist here, so there is nothing to wait for.
            std::mem::forget(runtime);
        }
    }

    /// The store of a URL's host or bucket, made once, and the URL's place there.
    pub(super) fn place(&self, url: &Path) -> io::Result<(Arc<dyn ObjectStore>, object_store::path::Path)> {
        let address = stores::Address::of(url, |name| std::env::var(name).ok())?;
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let store = match stores.get(&address.key()) {
            Some(store) => store.clone(),
            None => {
                let store = address.store(&self.traffic)?;
                stores.insert(address.key(), store.clone());
                store
            }
        };
        Ok((store, address.location))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.rest();
    }
}
