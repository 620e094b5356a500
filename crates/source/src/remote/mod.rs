//! Reads objects by URL: object stores (`s3://`, `gs://`, `az://`), web servers, and files of the Hub.
//!
//! A [`Remote`] belongs to one source. Its runtime of two threads starts with the first URL, ends when a
//! loader is closed or the source is dropped, and starts again if it is needed. Only ranges are
//! requested: of an object that was opened, with its ETag, so that a changed object is an error and never
//! mixed. Reads that are announced are requested ahead of time and wait in memory; the
//! order of records does not depend on when they arrive. Retries are those of all files (`storage`), with
//! longer pauses.
//!
//! With a [`DiskCache`] what was read is kept on a local disk.
//!
//! Without the cargo feature `remote`, a URL is an error that says so.

#[cfg(feature = "remote")]
mod answer;
#[cfg(feature = "remote")]
mod client;
#[cfg(feature = "remote")]
mod clouds;
#[cfg(feature = "remote")]
mod disk;
#[cfg(feature = "remote")]
mod failure;
#[cfg(feature = "remote")]
mod file;
#[cfg(feature = "remote")]
mod flight;
#[cfg(feature = "remote")]
mod hub;
#[cfg(feature = "remote")]
mod list_answer;
#[cfg(feature = "remote")]
mod listing;
#[cfg(feature = "remote")]
mod object;
#[cfg(feature = "remote")]
mod opener;
#[cfg(feature = "remote")]
mod pages;
#[cfg(feature = "remote")]
mod profiles;
#[cfg(feature = "remote")]
mod runtime;
#[cfg(feature = "remote")]
mod settings;
#[cfg(feature = "remote")]
mod stores;
#[cfg(feature = "remote")]
#[cfg(test)]
mod server;
#[cfg(feature = "remote")]
#[cfg(test)]
mod tests;

#[cfg(feature = "remote")]
pub use disk::DiskCache;
#[cfg(feature = "remote")]
pub(super) use opener::Remote;

/// A cache of objects in a build that reads none.
#[cfg(not(feature = "remote"))]
#[derive(Debug)]
pub enum DiskCache {}

/// The cache of at most `bytes` in the folder `cache_dir`, if one is named. A build that reads no URLs has
/// none.
///
/// # Errors
/// [`ErrorKind::Config`](crate::ErrorKind::Config) if the folder cannot be made or written to, or is a URL.
pub fn disk_cache(
    cache_dir: Option<&std::path::Path>,
    bytes: u64,
) -> crate::Result<Option<std::sync::Arc<DiskCache>>> {
    #[cfg(feature = "remote")]
    return cache_dir.map(|folder| DiskCache::open(folder, bytes)).transpose();
    #[cfg(not(feature = "remote"))]
    {
        let _ = (cache_dir, bytes);
        Ok(None)
    }
}

/// Storage of URLs in a build that reads none.
#[cfg(not(feature = "remote"))]
#[derive(Debug)]
pub(super) struct Remote {}

#[cfg(not(feature = "remote"))]
impl Remote {
    /// Counts nothing.
    pub(super) fn counted(
        _: &std::sync::Arc<crate::record::Traffic>,
        _: &super::store_options::StoreOptions,
        _: Option<std::sync::Arc<DiskCache>>,
    ) -> Self {
        Self {}
    }

    /// There are no threads.
    pub(super) fn rest(&self) {}

    /// The error for any URL.
    pub(super) fn open(&self, url: &std::path::Path) -> std::io::Result<Box<dyn super::ReadAt>> {
        super::urls::resolved(url)?;
        Err(std::io::ErrorKind::Unsupported.into())
    }

    /// The error for any folder.
    pub(super) fn page(
        &self,
        url: &std::path::Path,
        _: Option<&str>,
    ) -> std::io::Result<super::storage::ListingPage> {
        super::urls::resolved(url)?;
        Err(std::io::ErrorKind::Unsupported.into())
    }
}
