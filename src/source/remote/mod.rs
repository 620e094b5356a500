//! Reads objects by URL: object stores (`s3://`, `gs://`, `az://`), web servers, and files of the Hub.
//!
//! A [`Remote`] belongs to one source. Its runtime of two threads starts with the first URL, ends when a
//! loader is closed or the source is dropped, and starts again if it is needed. Only ranges are
//! requested: of an object that was opened, with its ETag, so that a changed object is an error and never
//! mixed. Reads that are announced are requested ahead of time and wait in memory; the
//! order of records does not depend on when they arrive. Retries are those of all files (`storage`), with
//! longer pauses.
//!
//! Without the cargo feature `remote`, a URL is an error that says so.

#[cfg(feature = "remote")]
mod answer;
#[cfg(feature = "remote")]
mod client;
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
pub(super) use opener::Remote;

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
    ) -> std::io::Result<super::storage::Page> {
        super::urls::resolved(url)?;
        Err(std::io::ErrorKind::Unsupported.into())
    }
}
