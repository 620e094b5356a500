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

mod answer;
mod client;
mod clouds;
mod disk;
mod failure;
mod file;
mod flight;
mod hub;
mod list_answer;
mod listing;
mod object;
mod opener;
mod pages;
mod profiles;
mod runtime;
mod settings;
mod stores;
#[cfg(test)]
mod server;
#[cfg(test)]
mod tests;

pub use disk::DiskCache;
pub(super) use opener::Remote;

/// The cache of at most `bytes` in the folder `cache_dir`, if one is named.
///
/// # Errors
/// [`ErrorKind::Config`](crate::ErrorKind::Config) if the folder cannot be made or written to, or is a URL.
pub fn disk_cache(
    cache_dir: Option<&std::path::Path>,
    bytes: u64,
) -> crate::Result<Option<std::sync::Arc<DiskCache>>> {
    cache_dir.map(|folder| DiskCache::open(folder, bytes)).transpose()
}
