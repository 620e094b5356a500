//! What can go wrong, in one type: a kind to act on, a place to look at, a sentence to read.
//!
//! Every stage returns [`Error`]. Kinds divide in two: those that condemn one record
//! ([`ErrorKind::is_record`]; the loader skips, counts and lists it, unless its policy is another) and those
//! that end the run. The message says what was found, what was expected and what to do; code acts on the kind
//! and never on the text. Errors are `Clone`, because a fatal one is told again on every later call.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something failed.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A parameter is out of its range, or parameters contradict each other.
    Config,
    /// A file that was named does not exist.
    NotFound,
    /// The operating system failed to read.
    Io,
    /// A shard is not in a format that we read.
    Format,
    /// A shard's columns are not what the loader needs.
    Schema,
    /// Bytes that a header promises lie past the end of the shard.
    Truncated,
    /// The record's bytes cannot be had: a null, or a path that leads nowhere.
    Unreadable,
    /// The recording's container or codec is not one that we decode.
    Unsupported,
    /// The recording contradicts its own format.
    Corrupt,
    /// The recording has no bytes or no samples.
    Empty,
    /// The decoder yielded fewer samples than the container promised.
    TooShort,
    /// The decoder yielded NaN or infinity.
    NonFinite,
    /// The record is larger than a limit allows.
    TooLarge,
    /// The user left the record out.
    Excluded,
    /// A buffer does not have the length that the plan needs.
    Shape,
    /// The system refused memory.
    Memory,
    /// Every substitute for a bad record was bad as well.
    Exhausted,
    /// More records failed than the user allows.
    TooMany,
    /// A thread of the pipeline panicked: a bug.
    Panic,
    /// A function of the user's failed.
    Callback,
    /// The call does not fit the state that the object is in.
    State,
    /// An index is beyond what there is.
    Index,
    /// The loader was closed.
    Closed,
}

impl ErrorKind {
    /// Whether the error condemns one record only, so that the loader may skip it and go on.
    pub fn is_record(self) -> bool {
        use ErrorKind::*;
        matches!(
            self,
            Truncated
                | Unreadable
                | Unsupported
                | Corrupt
                | Empty
                | TooShort
                | NonFinite
                | TooLarge
                | Excluded
        )
    }

    /// Whether the system failed, and not the data: another time the same read may succeed.
    pub fn is_io(self) -> bool {
        matches!(self, ErrorKind::Io | ErrorKind::NotFound)
    }

    /// The kind of this name among those that a document may be left out for.
    pub fn of_document(name: &str) -> Option<Self> {
        use ErrorKind::*;
        let all =
            [Truncated, Unreadable, Unsupported, Corrupt, Empty, TooShort, NonFinite, TooLarge, Callback];
        all.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind's stable name, as `loader.errors()` shows it.
    pub fn name(self) -> &'static str {
        use ErrorKind::*;
        match self {
            Config => "config",
            NotFound => "not_found",
            Io => "io",
            Format => "format",
            Schema => "schema",
            Truncated => "truncated",
            Unreadable => "unreadable",
            Unsupported => "unsupported",
            Corrupt => "corrupt",
            Empty => "empty",
            TooShort => "too_short",
            NonFinite => "non_finite",
            TooLarge => "too_large",
            Excluded => "excluded",
            Shape => "shape",
            Memory => "memory",
            Exhausted => "exhausted",
            TooMany => "too_many",
            Panic => "panic",
            Callback => "callback",
            State => "state",
            Index => "index",
            Closed => "closed",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where something failed, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The row number over all files as given.
    pub index: Option<u64>,
    /// The shard's path, as the user gave it.
    pub shard: Option<Arc<Path>>,
    /// The row within the shard.
    pub row: Option<u64>,
    /// The byte offset within the shard or, for a decoding error, within the recording.
    pub byte: Option<u64>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(shard) = &self.shard {
            write!(f, " in {}", shard.display())?;
        }
        if let Some(row) = self.row {
            write!(f, ", row {row}")?;
        }
        if let Some(byte) = self.byte {
            write!(f, ", byte {byte}")?;
        }
        Ok(())
    }
}

/// The place, unless the message has said all of it: that a file cannot be opened names the file.
struct Where<'a>(&'a Place, &'a Option<Arc<PathBuf>>);

impl fmt::Display for Where<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(place, file) = self;
        let is_named = file.as_deref().is_some_and(|file| place.shard.as_deref() == Some(file));
        if is_named && place.row.is_none() && place.byte.is_none() { Ok(()) } else { place.fmt(f) }
    }
}

/// The error of this crate: kind, place, sentence, cause.
#[non_exhaustive]
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}{}{}", Where(.place, .file), Because(.cause))]
pub struct Error {
    /// What to act on.
    pub kind: ErrorKind,
    /// Where to look.
    pub place: Place,
    /// The file that the operating system was asked for, if it failed. (A thin pointer: errors are returned
    /// by value.)
    pub file: Option<Arc<PathBuf>>,
    /// What was found, what was expected, what to do.
    pub message: String,
    /// What a library or the system said.
    #[source]
    pub cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

struct Because<'a>(&'a Option<Arc<dyn std::error::Error + Send + Sync>>);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |cause| write!(f, ": {cause}"))
    }
}

impl Error {
    /// An error without place or cause.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, place: Place::default(), file: None, message: message.into(), cause: None }
    }

    /// An error of the operating system about `path`.
    pub fn io(path: &Path, doing: &str, cause: std::io::Error) -> Self {
        let kind = match cause.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        let error = Self::new(kind, format!("cannot {doing} {}", path.display())).because(cause);
        Self { file: Some(Arc::new(path.to_owned())), ..error }
    }

    /// The message and its cause, without the place.
    pub fn reason(&self) -> String {
        format!("{}{}", self.message, Because(&self.cause))
    }

    /// Adds what a library or the system said.
    #[must_use]
    pub fn because(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(cause));
        self
    }

    /// Adds the shard.
    #[must_use]
    pub fn in_shard(mut self, shard: impl Into<Arc<Path>>) -> Self {
        self.place.shard = Some(shard.into());
        self
    }

    /// Adds the row within the shard.
    #[must_use]
    pub fn at_row(mut self, row: u64) -> Self {
        self.place.row = Some(row);
        self
    }

    /// Adds the byte offset.
    #[must_use]
    pub fn at_byte(mut self, byte: u64) -> Self {
        self.place.byte = Some(byte);
        self
    }
}

/// A whole number for a message; the two ends of the range stand for all numbers beyond it.
#[cfg(any(feature = "audio", feature = "tokens"))]
pub(crate) fn shown(value: i64) -> String {
    if [i64::MIN, i64::MAX].contains(&value) { "beyond int64".into() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_one_sentence() {
        let error = Error::new(ErrorKind::Truncated, "the body ends early")
            .in_shard(Path::new("a.arrow"))
            .at_row(3)
            .at_byte(77)
            .because(std::io::Error::other("short read"));
        assert_eq!(error.to_string(), "the body ends early in a.arrow, row 3, byte 77: short read");
        assert!(error.kind.is_record());
    }
}
