//! [`FileFormat`]: what a file of rows is, by the ending of its name, else by its first bytes.
//!
//! The one table of these formats: folders, loaders of recordings and of documents, and inputs of caches use
//! it. Recordings in files of their own and tables that name them are others.
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
    named: &'static [&'static str],
    /// Whether files may be compressed, with another ending behind these.
    is_packed: bool,
    signatures: &'static [&'static [u8]],
}

const FORMATS: &[Known] = &[
    Known {
        format: FileFormat::Parquet,
        name: "Parquet",
        endings: &["parquet"],
        named: &[],
        is_packed: false,
        signatures: &[&signatures::PARQUET],
    },
    Known {
        format: FileFormat::Arrow,
        name: "Arrow",
        endings: &["arrow"],
        named: &["feather"],
        is_packed: false,
        signatures: &[&signatures::ARROW, &signatures::ARROW_MESSAGE],
    },
    Known {
        format: FileFormat::JsonLines,
        name: "JSON lines",
        endings: &["jsonl", "ndjson"],
        named: &["json"],
        is_packed: true,
        signatures: &[],
    },
    Known {
        format: FileFormat::Text,
        name: "text",
        endings: &["txt"],
        named: &["text"],
        is_packed: true,
        signatures: &[],
    },
    Known {
        format: FileFormat::Numpy,
        name: "numpy",
        endings: &["npy"],
        named: &[],
        is_packed: false,
        signatures: &[],
    },
    Known {
        format: FileFormat::Megatron,
        name: "Megatron-LM",
        endings: &["idx"],
        named: &["bin"],
        is_packed: false,
        signatures: &[],
    },
];

impl FileFormat {
    pub fn name(self) -> &'static str {
        FORMATS[self as usize].name
    }

    /// The usual ending of its files, such as `.parquet`.
    pub(crate) fn ending(self) -> String {
        format!(".{}", FORMATS[self as usize].endings[0])
    }

    /// Whether it has token ids alone.
    pub fn is_of_ids(self) -> bool {
        matches!(self, Self::Numpy | Self::Megatron)
    }

    /// The format of a file by the ending of its name, in any case.
    pub fn of_name(path: &Path) -> Option<Self> {
        Self::by_ending(path, |known, ending| {
            known.endings.iter().chain(known.named).any(|one| ending.eq_ignore_ascii_case(one))
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
        (compression.is_none() || found.is_packed).then_some(found.format)
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
