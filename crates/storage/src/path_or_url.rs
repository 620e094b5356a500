//! [`PathOrUrl`], the storage of all sources: paths lead to files of this machine, URLs to servers.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    remote::{DiskCache, Remote},
    storage::{ListingPage, LocalFiles, ReadAt, Storage},
    store_options::StoreOptions,
    urls,
};
use crate::Traffic;

/// Storage that resolves relative paths against one folder, and reads URLs from where they lead to. Messages
/// have the paths as given.
#[derive(Debug)]
pub struct PathOrUrl<S> {
    root: PathBuf,
    storage: S,
    remote: Remote,
    traffic: Arc<Traffic>,
}

impl<S> PathOrUrl<S> {
    /// Resolves against the current folder; if that was deleted, relative paths stay as they are. URLs are
    /// read with the options, and kept in `cache`.
    pub fn here(storage: S, options: &StoreOptions, cache: Option<Arc<DiskCache>>) -> Self {
        let traffic: Arc<Traffic> = Arc::default();
        let remote = Remote::counted(&traffic, options, cache);
        Self { root: std::env::current_dir().unwrap_or_default(), storage, remote, traffic }
    }
}

impl PathOrUrl<LocalFiles> {
    /// Storage of local files and URLs.
    pub fn files(options: &StoreOptions, cache: Option<Arc<DiskCache>>) -> Arc<dyn Storage> {
        Arc::new(Self::here(LocalFiles, options, cache))
    }
}

impl<S: Storage> Storage for PathOrUrl<S> {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        if urls::is_url(path) {
            return self.remote.open(path);
        }
        self.storage.open(&self.root.join(path))
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        if urls::is_url(path) {
            return urls::resolved(path);
        }
        self.storage.resolve(&self.root.join(path))
    }

    fn page(&self, folder: &Path, after: Option<&str>) -> io::Result<ListingPage> {
        self.remote.page(folder, after)
    }

    fn end_threads(&self) {
        self.remote.end_threads();
    }

    fn traffic(&self) -> Arc<Traffic> {
        self.traffic.clone()
    }
}
