//! Which names of files are read, and the order of names.
//!
//! Source: own.

use std::{cmp::Ordering, ffi::OsStr, path::Path, sync::Arc};

use crate::{Error, ErrorKind, FileFormat};

/// Endings of recordings, in small letters.
pub(crate) const RECORDINGS: [&str; 30] = [
    "wav", "flac", "ogg", "mp3", "m4a", "opus", "aiff", "aif", "oga", "mp4", "aac", "caf", "wave", "au",
    "snd", "aifc", "mp2", "m4b", "rf64", "bwf", "w64", "sph", "sphere", "nist", "wv1", "wv2", "webm", "weba",
    "mka", "mkv",
];

/// Whether a name is that of a recording.
pub(crate) fn is_recording(name: &OsStr) -> bool {
    let ending = Path::new(name).extension().and_then(OsStr::to_str);
    ending.is_some_and(|ending| RECORDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// A reader of shards; its formats decide which files of a folder are shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Recordings: Arrow or Parquet.
    Recordings,
    /// Documents in Parquet alone.
    Documents,
    /// Documents: Parquet, Arrow, JSON lines, text. Of a folder only files of the first of these are read: a
    /// README.txt beside shards is no document.
    Texts,
    /// Token ids: Parquet, arrays, and those of Megatron-LM; of a folder files of the first of these.
    Ids,
    /// Inputs of a cache: Arrow, Parquet, JSON lines, text.
    Inputs,
}

impl Reads {
    pub(super) fn formats(self) -> &'static [FileFormat] {
        use FileFormat::{Arrow, JsonLines, Megatron, Numpy, Parquet, Text};
        match self {
            Self::Recordings => &[Arrow, Parquet],
            Self::Documents => &[Parquet],
            Self::Texts => &[Parquet, Arrow, JsonLines, Text],
            Self::Ids => &[Parquet, Numpy, Megatron],
            Self::Inputs => &[Arrow, Parquet, JsonLines, Text],
        }
    }

    /// The number of the format of a file, by the ending of its name.
    pub(super) fn format_of(self, name: &OsStr) -> Option<usize> {
        let found = FileFormat::in_folder(Path::new(name))?;
        self.formats().iter().position(|&format| format == found)
    }

    /// Such as `.arrow or .parquet`.
    pub(super) fn expected(self) -> String {
        let mut names: Vec<String> = self.formats().iter().map(|format| format.ending()).collect();
        let last = names.pop().unwrap_or_default();
        let packed = if matches!(self, Self::Inputs | Self::Texts) {
            " (the last two also with .gz or .zst)"
        } else {
            ""
        };
        match names.is_empty() {
            true => last,
            false => format!("{} or {last}{packed}", names.join(", ")),
        }
    }
}

/// Compares two names: numbers in them by value, other bytes by value, and equal ones by all bytes.
///
/// So `shard_2` precedes `shard_10`, and names with zeros in front are in the order of their bytes.
pub fn natural(one: &OsStr, other: &OsStr) -> Ordering {
    let (mut a, mut b) = (one.as_encoded_bytes(), other.as_encoded_bytes());
    /// The leading digits, and the rest.
    fn number(bytes: &[u8]) -> (&[u8], &[u8]) {
        bytes.split_at(bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len()))
    }
    fn value(digits: &[u8]) -> &[u8] {
        &digits[digits.iter().position(|&digit| digit != b'0').unwrap_or(digits.len())..]
    }
    while let (&[first, ..], &[second, ..]) = (a, b) {
        let order = if first.is_ascii_digit() && second.is_ascii_digit() {
            let ((digits, rest), (others, other_rest)) = (number(a), number(b));
            (a, b) = (rest, other_rest);
            let (digits, others) = (value(digits), value(others));
            digits.len().cmp(&others.len()).then_with(|| digits.cmp(others))
        } else {
            (a, b) = (&a[1..], &b[1..]);
            first.cmp(&second)
        };
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len()).then_with(|| one.cmp(other))
}

/// Compares two paths, component by component, each by [`natural`].
pub(super) fn natural_paths(one: &Path, other: &Path) -> Ordering {
    let pairs = one.components().zip(other.components());
    let mut orders = pairs.map(|(one, other)| natural(one.as_os_str(), other.as_os_str()));
    let counts = || one.components().count().cmp(&other.components().count());
    orders.find(|order| order.is_ne()).unwrap_or_else(counts)
}

pub(super) fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

pub(super) fn not_found(path: &Path, message: String) -> Error {
    Error { file: Some(Arc::new(path.to_owned())), ..Error::new(ErrorKind::NotFound, message) }
}
