//! The error type of the crate: a kind, a place and a message.
//!
//! Every stage returns [`Error`]. Some kinds concern one record ([`ErrorKind::is_record`]): by default the
//! loader skips, counts and lists the record. All other kinds end the run. The message says what was found,
//! what was expected and what to do; code acts on the kind and never on the text. Errors are `Clone`, because
//! a fatal error is returned again by every later call.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A parameter is out of its range, or parameters contradict each other.
    Config,
    /// A requested file does not exist.
    NotFound,
    /// The operating system failed to read.
    Io,
    /// A shard is not in a supported format.
    Format,
    /// A shard's columns are not what the loader needs.
    Schema,
    /// Bytes that a header declares are past the end of the shard.
    Truncated,
    /// The record has no readable bytes: a path without a file.
    Unreadable,
    /// The record is a null, which is one of those without readable bytes to users.
    Null,
    /// The recording's container or codec is not supported.
    Unsupported,
    /// The recording violates its own format.
    Corrupt,
    /// The recording has no bytes or no samples.
    Empty,
    /// The decoder yielded fewer samples than the container declares.
    TooShort,
    /// The decoder yielded NaN or infinity.
    NonFinite,
    /// The record is larger than a limit allows.
    TooLarge,
    Excluded,
    /// The data ended before this record: the pass ends.
    PastEnd,
    /// A buffer does not have the length that the plan needs.
    Shape,
    Memory,
    /// All substitutes for a bad record were bad too.
    Exhausted,
    /// More records failed than the user allows.
    TooMany,
    /// A thread of the pipeline panicked: a bug.
    Panic,
    /// A function of the user failed.
    Callback,
    /// The call is not possible in the object's state.
    State,
    /// An index is out of range.
    Index,
    Closed,
}

impl ErrorKind {
    /// Whether the error concerns one record only, so that the loader may skip the record and continue.
    pub fn is_record(self) -> bool {
        use ErrorKind::*;
        matches!(
            self,
            Truncated
                | Unreadable
                | Null
                | Unsupported
                | Corrupt
                | Empty
                | TooShort
                | NonFinite
                | TooLarge
                | Excluded
        )
    }

    /// The kinds of failed records, in the order in which they are counted: those of the data, without rows
    /// that the user excludes, and those of the system.
    pub const FAILURES: [Self; 10] = {
        use ErrorKind::*;
        [Truncated, Unreadable, Unsupported, Corrupt, Empty, TooShort, NonFinite, TooLarge, Io, NotFound]
    };

    /// The kind as which it is counted and told.
    pub fn told(self) -> Self {
        if self == Self::Null { Self::Unreadable } else { self }
    }

    /// Whether the system failed, and not the data: a later read of the same bytes may succeed.
    pub fn is_io(self) -> bool {
        matches!(self, ErrorKind::Io | ErrorKind::NotFound)
    }

    /// The kind with this name, among the kinds for which a document may be left out.
    pub fn of_document(name: &str) -> Option<Self> {
        use ErrorKind::*;
        let all =
            [Truncated, Unreadable, Unsupported, Corrupt, Empty, TooShort, NonFinite, TooLarge, Callback];
        all.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind's stable name, as in `loader.errors()`.
    pub fn name(self) -> &'static str {
        use ErrorKind::*;
        match self {
            Config => "config",
            NotFound => "not_found",
            Io => "io",
            Format => "format",
            Schema => "schema",
            Truncated => "truncated",
            Unreadable | Null => "unreadable",
            Unsupported => "unsupported",
            Corrupt => "corrupt",
            Empty => "empty",
            TooShort => "too_short",
            NonFinite => "non_finite",
            TooLarge => "too_large",
            Excluded => "excluded",
            PastEnd => "past_end",
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
    /// The shard's path, as the user gave it. (A thin pointer: errors are returned by value.)
    pub shard: Option<Arc<PathBuf>>,
    /// The row within the shard.
    pub row: Option<u64>,
    /// The path of the row's recording as its table, folder or archive has it.
    pub recording: Option<Arc<String>>,
    /// The byte offset within the shard or, for a decoding error, within the recording.
    pub byte: Option<u64>,
}

impl Place {
    /// The place of a row within a shard.
    pub fn in_shard(shard: impl AsRef<Path>, row: u64) -> Self {
        Self { shard: Some(Arc::new(shard.as_ref().to_owned())), row: Some(row), ..Self::default() }
    }

    /// Writes the place; of the recording's path only what `message` and the shard's path do not say.
    fn write(&self, f: &mut fmt::Formatter<'_>, message: &str) -> fmt::Result {
        let mut before = "";
        let mut part = |f: &mut fmt::Formatter<'_>, part: fmt::Arguments<'_>| {
            write!(f, "{before}{part}")?;
            before = ", ";
            Ok(())
        };
        if let Some(shard) = &self.shard {
            part(f, format_args!("{}", shard.display()))?;
        }
        if let Some(row) = self.row {
            part(f, format_args!("row {row}"))?;
        }
        if let Some(recording) = &self.recording {
            // A single file is its own shard.
            let is_shard = self.shard.as_deref().is_some_and(|shard| *shard == Path::new(&**recording));
            let shown = format!("{recording:?}");
            if !is_shard && !message.contains(&shown) {
                part(f, format_args!("{shown}"))?;
            }
        }
        if let Some(byte) = self.byte {
            part(f, format_args!("byte {byte}"))?;
        }
        if before.is_empty() { Ok(()) } else { f.write_str(": ") }
    }
}

/// The place and a colon, unless the message already contains all of it: an error of opening a file names the
/// file.
struct Where<'a>(&'a Place, &'a Option<Arc<PathBuf>>, &'a str);

impl fmt::Display for Where<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self(place, file, message) = self;
        let is_named = file.is_some() && *file == place.shard;
        if is_named && place.row.is_none() && place.byte.is_none() { Ok(()) } else { place.write(f, message) }
    }
}

/// The error of this crate: kind, place, message, cause.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}{message}{}", Where(.place, .file, .message), Because(.cause))]
pub struct Error {
    /// The kind, on which code acts.
    pub kind: ErrorKind,
    /// The file, row and byte, as far as they are known.
    pub place: Place,
    /// The file of the failed system call, if one failed. (A thin pointer: errors are returned by value.)
    pub file: Option<Arc<PathBuf>>,
    /// What was found, what was expected, what to do.
    pub message: String,
    /// The error of a library or of the system.
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

    /// The place and the message, without the cause.
    pub fn finding(&self) -> String {
        format!("{}{}", Where(&self.place, &self.file, &self.message), self.message)
    }

    /// The message and its cause, without the place.
    pub fn reason(&self) -> String {
        format!("{}{}", self.message, Because(&self.cause))
    }

    /// Adds the error of a library or of the system.
    #[must_use]
    pub fn because(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(cause));
        self
    }

    #[must_use]
    pub fn in_shard(mut self, shard: impl AsRef<Path>) -> Self {
        self.place.shard = Some(Arc::new(shard.as_ref().to_owned()));
        self
    }

    /// Adds the row within the shard.
    #[must_use]
    pub fn at_row(mut self, row: u64) -> Self {
        self.place.row = Some(row);
        self
    }

    #[must_use]
    pub fn at_byte(mut self, byte: u64) -> Self {
        self.place.byte = Some(byte);
        self
    }
}

/// A whole number for a message; the smallest and the largest `i64` stand for all numbers beyond the range.
pub fn shown(value: i64) -> String {
    if [i64::MIN, i64::MAX].contains(&value) { "beyond int64".into() } else { value.to_string() }
}

/// A number with its noun, as in "1 record" and "2 records".
pub fn counted(n: u64, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
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
        assert_eq!(error.to_string(), "a.arrow, row 3, byte 77: the body ends early: short read");
        assert!(error.kind.is_record());
    }

    #[test]
    fn the_recording_is_named_once() {
        let named = |message: &str, shard: &str, name: &str| {
            let mut error = Error::new(ErrorKind::Corrupt, message).in_shard(shard).at_row(3).at_byte(7);
            error.place.recording = Some(Arc::new(name.to_owned()));
            error.to_string()
        };
        assert_eq!(named("no frame", "birds", "a/b\n.ogg"), r#"birds, row 3, "a/b\n.ogg", byte 7: no frame"#);
        assert_eq!(named("no frame", "a.ogg", "a.ogg"), "a.ogg, row 3, byte 7: no frame");
        assert_eq!(named(r#"no file "a.ogg""#, "birds", "a.ogg"), r#"birds, row 3, byte 7: no file "a.ogg""#);
    }
}
