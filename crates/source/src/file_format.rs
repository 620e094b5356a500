//! [`FileFormat`]: what a file of rows is, by the ending of its name, else by its first bytes.
//!
//! The one table of these formats; which of them a loader, a folder or a cache reads is in
//! [`Reads`](crate::paths::Reads). Recordings in files of their own are not among them, and tables that name
//! them are in `table_format`.
//!
//! Source: own.

use std::{path::Path, sync::Arc};

use crate::{Result, Storage, compression::Compression, signatures, storage::StoredFile};

/// A format of files that hold rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileFormat {
    Parquet,
    /// Arrow IPC, as a file or as a stream.
    Arrow,
    /// An object of JSON in each line.
    JsonLines,
    /// A text in each line.
    Text,
    /// An array of numpy.
    Numpy,
    /// Token ids of Megatron-LM, in two files.
    Megatron,
}

/// What is known of a format.
#[derive(Debug)]
struct Known {
    format: FileFormat,
    name: &'static str,
    /// Endings of names, the usual one first.
    endings: &'static [&'static str],
    /// Endings that count only where a file is named, as other files of a folder have them, too.
    endings_if_named: &'static [&'static str],
    /// Whether files may be compressed, with another ending behind these.
    may_be_compressed: bool,
    signatures: &'static [&'static [u8]],
}

/// In the order of [`FileFormat`], which is the index.
const FORMATS: &[Known] = &[
    Known {
        format: FileFormat::Parquet,
        name: "Parquet",
        endings: &["parquet"],
        endings_if_named: &[],
        may_be_compressed: false,
        signatures: &[&signatures::PARQUET],
    },
    Known {
        format: FileFormat::Arrow,
        name: "Arrow",
        endings: &["arrow"],
        endings_if_named: &["feather"],
        may_be_compressed: false,
        signatures: &[&signatures::ARROW, &signatures::ARROW_MESSAGE],
    },
    Known {
        format: FileFormat::JsonLines,
        name: "JSON lines",
        endings: &["jsonl", "ndjson"],
        endings_if_named: &["json"],
        may_be_compressed: true,
        signatures: &[],
    },
    Known {
        format: FileFormat::Text,
        name: "text",
        endings: &["txt"],
        endings_if_named: &["text"],
        may_be_compressed: true,
        signatures: &[],
    },
    Known {
        format: FileFormat::Numpy,
        name: "numpy",
        endings: &["npy"],
        endings_if_named: &[],
        may_be_compressed: false,
        signatures: &[],
    },
    Known {
        format: FileFormat::Megatron,
        name: "Megatron-LM",
        endings: &["idx"],
        endings_if_named: &["bin"],
        may_be_compressed: false,
        signatures: &[],
    },
];

impl FileFormat {
    pub fn name(self) -> &'static str {
        self.known().name
    }

    /// The usual ending of its files, such as `.parquet`.
    pub(crate) fn ending(self) -> String {
        format!(".{}", self.known().endings[0])
    }

    fn known(self) -> &'static Known {
        &FORMATS[self as usize]
    }

    /// Whether it has token ids alone.
    pub fn is_of_ids(self) -> bool {
        matches!(self, Self::Numpy | Self::Megatron)
    }

    /// The format of a file by the ending of its name, in any case.
    pub fn of_name(path: &Path) -> Option<Self> {
        Self::by_ending(path, |known, ending| {
            known.endings.iter().chain(known.endings_if_named).any(|one| ending.eq_ignore_ascii_case(one))
        })
    }

    /// The format of a file of a folder, by the ending of its name: a file of JSON or `.bin` may be anything.
    pub(crate) fn in_folder(path: &Path) -> Option<Self> {
        Self::by_ending(path, |known, ending| {
            known.endings.iter().any(|one| ending.eq_ignore_ascii_case(one))
        })
    }

    fn by_ending(path: &Path, is: impl Fn(&Known, &str) -> bool) -> Option<Self> {
        let (name, compression) = Compression::split(path);
        let ending = name.extension()?.to_str()?;
        let found = FORMATS.iter().find(|known| is(known, ending))?;
        (compression.is_none() || found.may_be_compressed).then_some(found.format)
    }

    /// The format of a file by its name, else by its first bytes.
    ///
    /// # Errors
    /// Those of opening and reading it.
    pub fn detect(storage: &Arc<dyn Storage>, path: &Arc<Path>) -> Result<Option<Self>> {
        if let Some(format) = Self::of_name(path) {
            return Ok(Some(format));
        }
        let mut start = [0; 8];
        let n = StoredFile::open(storage, path)?.read(&mut start, 0)?;
        let begins =
            |known: &&Known| known.signatures.iter().any(|signature| start[..n].starts_with(signature));
        Ok(FORMATS.iter().find(begins).map(|known| known.format))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_its_place_in_the_table() {
        assert!(FORMATS.iter().all(|known| known.format.known().format == known.format));
    }

    #[test]
    fn endings() {
        for (name, format, in_folder) in [
            ("a.PARQUET", Some(FileFormat::Parquet), Some(FileFormat::Parquet)),
            ("a.feather", Some(FileFormat::Arrow), None),
            ("a.jsonl.gz", Some(FileFormat::JsonLines), Some(FileFormat::JsonLines)),
            ("a.json.zst", Some(FileFormat::JsonLines), None),
            ("a.parquet.gz", None, None),
            ("a.bin", Some(FileFormat::Megatron), None),
            ("parquet", None, None),
        ] {
            assert_eq!(FileFormat::of_name(Path::new(name)), format, "{name}");
            assert_eq!(FileFormat::in_folder(Path::new(name)), in_folder, "{name}");
        }
    }
}
