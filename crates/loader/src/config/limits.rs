//! The limits of a record's bytes and seconds, for all readers, and those between the commits of a cache.

use std::time::Duration;

use super::table::{above, range};
use crate::cache::build::Commits;
use crate::{Error, ErrorKind, Result, audio::Damage, source::MAX_RECORD_BYTES};

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

/// What becomes of damaged frames, as given by the user.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DamageConfig<'a> {
    /// `"error"` or `"silence"`.
    pub damage: &'a str,
    /// The largest share of a clip that may be silence in their place.
    pub max_damage: f64,
}

impl DamageConfig<'_> {
    /// How decoders treat damaged frames.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names what is out of range.
    pub fn check(&self) -> Result<Damage> {
        let Self { damage, max_damage } = *self;
        let mut problems = Vec::new();
        if !["error", "silence"].contains(&damage) {
            problems.push(format!("damage is {damage:?}, must be \"error\" or \"silence\""));
        }
        problems.extend(above("max_damage", &max_damage, 0.0, 1.0, "above 0 and at most 1"));
        match problems.is_empty() {
            true if damage == "error" => Ok(Damage::ERROR),
            true => Ok(Damage { most: max_damage }),
            false => Err(Error::new(ErrorKind::Config, problems.join("; "))),
        }
    }
}

/// The limits between the commits of a cache, as given by the user.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CommitConfig {
    /// The most seconds between commits.
    pub commit_seconds: f64,
    /// The most documents between commits.
    pub commit_documents: i64,
}

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
