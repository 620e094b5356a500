//! Opens objects by URL.

use std::{
    fmt, io,
    path::Path,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use super::{
    disk::DiskCache,
    file::RemoteFile,
    listing,
    runtime::RemoteRuntime,
    stores::{Address, ObjectPlace},
};
use crate::{LocalFiles, ReadAt, Storage, StoreOptions, Traffic, storage::ListingPage, urls};

/// Opens URLs; starts its threads with the first.
#[derive(Default)]
pub(crate) struct Remote {
    running: Mutex<Option<Arc<RemoteRuntime>>>,
    traffic: Arc<Traffic>,
    options: StoreOptions,
    cache: Option<Arc<DiskCache>>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

impl Remote {
    /// Counts its requests in `traffic`, keeps what it reads in `cache`, and reads it from there.
    pub(crate) fn counted(
        traffic: &Arc<Traffic>,
        options: &StoreOptions,
        cache: Option<Arc<DiskCache>>,
    ) -> Self {
        traffic.is_cached.store(cache.is_some(), Ordering::Relaxed);
        Self { running: Mutex::default(), traffic: traffic.clone(), options: options.clone(), cache }
    }

    /// Opens an object: asks for its size and ETag.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`; `InvalidInput` for a URL that cannot be read; `TimedOut` if another
    /// try may succeed.
    pub(crate) fn open(&self, url: &Path) -> io::Result<Box<dyn ReadAt>> {
        urls::check(url).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.message))?;
        let running = self.running()?;
        // An object that is read from its server stays there.
        let object = match running.opened(url) {
            Some(object) => object,
            None => match Address::of(url, || running.hub())? {
                ObjectPlace::Here(path) => return LocalFiles.open(&path),
                ObjectPlace::There(address) => running.object(url, address)?,
            },
        };
        Ok(Box::new(RemoteFile::new(running, object)))
    }

    /// A page of the objects below the folder `url`.
    ///
    /// # Errors
    /// As [`Remote::open`].
    pub(crate) fn page(&self, url: &Path, after: Option<&str>) -> io::Result<ListingPage> {
        urls::resolved(url)?;
        let running = self.running()?;
        listing::page(&running, url, after)
    }

    /// Ends the threads. The next request starts them again.
    pub(crate) fn end_threads(&self) {
        if let Some(running) = &*self.running.lock().unwrap_or_else(PoisonError::into_inner) {
            running.end_threads();
        }
    }

    fn running(&self) -> io::Result<Arc<RemoteRuntime>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*running {
            running.check_process()?;
            return Ok(running.clone());
        }
        let started = Arc::new(RemoteRuntime::new(&self.traffic, &self.options, self.cache.clone()));
        *running = Some(started.clone());
        Ok(started)
    }
}
