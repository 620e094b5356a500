//! [`TableFormat`]: what a table of recordings is, by the ending of its name.

use std::path::Path;

/// A format of tables whose rows name recordings, or are recordings of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableFormat {
    /// Cells between commas, semicolons or tabs.
    Text,
    /// An object of JSON in each line.
    JsonLines,
    /// A script of Kaldi.
    Kaldi,
    Parquet,
    /// A tar archive.
    Archive,
}

impl TableFormat {
    /// The format of a file with this ending, in small letters.
    pub(crate) fn of_ending(ending: &str) -> Option<Self> {
        Some(match ending {
            "csv" | "tsv" | "tab" | "txt" => Self::Text,
            // NeMo gives lines the last one.
            "jsonl" | "ndjson" | "json" => Self::JsonLines,
            "scp" => Self::Kaldi,
            "parquet" => Self::Parquet,
            "tar" => Self::Archive,
            _ => return None,
        })
    }

    /// Whether its files may be compressed, with another ending behind theirs.
    pub(crate) fn may_be_compressed(self) -> bool {
        matches!(self, Self::Text | Self::JsonLines)
    }
}

/// Whether a path, or a pattern, is that of tar archives.
pub(crate) fn is_archive(path: &Path) -> bool {
    TableFormat::of_ending(&ending_of(path)) == Some(TableFormat::Archive)
}

/// The ending of a name in small letters; empty if it has none.
pub(crate) fn ending_of(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}
