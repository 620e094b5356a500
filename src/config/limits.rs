//! The limits of a record's bytes and seconds, for all readers, and those between the commits of a cache.

#[cfg(feature = "cache")]
use std::time::Duration;

use super::table::{above, range};
#[cfg(feature = "cache")]
use crate::cache::build::Commits;
use crate::{Error, ErrorKind, Result, record::MAX_RECORD_BYTES};

/// The limits of a record, as given by the user.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimitConfig {
    /// The most bytes of a record; larger records are bad.
    pub max_record_bytes: i64,
    /// The most seconds of a recording; longer recordings are bad.
    pub max_decoded_seconds: f64,
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self { max_record_bytes: MAX_RECORD_BYTES as i64, max_decoded_seconds: 86_400.0 }
    }
}

impl LimitConfig {
    /// Adds a message for each limit out of range to `problems`.
    pub(super) fn find(&self, problems: &mut Vec<String>) {
        let Self { max_record_bytes, max_decoded_seconds } = self;
        problems.extend(range("max_record_bytes", max_record_bytes, 1, i32::MAX.into()));
        let expected = "above 0 and at most 1e9";
        problems.extend(above("max_decoded_seconds", max_decoded_seconds, 0.0, 1e9, expected));
    }

    /// The limits in bytes and seconds.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names every limit out of range.
    pub fn check(&self) -> Result<(u64, f64)> {
        let mut problems = Vec::new();
        self.find(&mut problems);
        if problems.is_empty() {
            return Ok((self.max_record_bytes as u64, self.max_decoded_seconds));
        }
        Err(Error::new(ErrorKind::Config, problems.join("; ")))
    }
}

/// The limits between the commits of a cache, as given by the user.
#[cfg(feature = "cache")]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CommitConfig {
    /// The most seconds between commits.
    pub commit_seconds: f64,
    /// The most documents between commits.
    pub commit_documents: i64,
}

#[cfg(feature = "cache")]
impl CommitConfig {
    /// When to commit.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names every limit out of range.
    pub fn check(&self) -> Result<Commits> {
        let Self { commit_seconds, commit_documents } = self;
        let mut problems = Vec::new();
        problems.extend(above("commit_seconds", commit_seconds, 0.0, 1e9, "above 0 and at most 1e9"));
        problems.extend(range("commit_documents", commit_documents, 1, i32::MAX.into()));
        if problems.is_empty() {
            let time = Duration::from_secs_f64(*commit_seconds);
            return Ok(Commits { documents: *commit_documents as u64, time });
        }
        Err(Error::new(ErrorKind::Config, problems.join("; ")))
    }
}
