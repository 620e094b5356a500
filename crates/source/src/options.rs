//! [`SourceOptions`]: the columns that are read of files, and how these are opened, whatever their format.
//!
//! Source: own.

use std::sync::Arc;

use crate::{
    AllowPaths, ChatColumns, ColumnChoice, DiskCache, IdFields, MappedFiles, PathOrUrl, PayloadColumn,
    Storage, StoreOptions, record_rules::MAX_RECORD_BYTES,
};

/// The columns to read, and how to open the files.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// The kind of records, and their column.
    pub payload: PayloadColumn,
    /// The number of the audio track of each recording, as in
    /// [`AudioDecoder::track`](forebay_audio::AudioDecoder::track).
    pub track: Option<u32>,
    /// The column of labels; the usual one is `label`, `labels` or the only ClassLabel feature.
    pub label_column: ColumnChoice,
    /// How many threads read headers, footers and tables.
    pub threads: usize,
    /// Whether local files are mapped, which only Arrow allows. Records are then not copied; see
    /// [`MappedFiles`] for the risk if a file shrinks.
    pub mmap: bool,
    /// The most bytes of a record, and of a decompressed buffer or page; 64 times its compressed size are
    /// always allowed.
    pub max_record_bytes: u64,
    pub allow_paths: AllowPaths,
    /// Whether the path of each row is one of its values.
    pub paths: bool,
    /// The other columns whose values are read.
    pub columns: Vec<String>,
    /// Those of them whose values count in the fingerprint of a table, in this order; None for all.
    pub fingerprinted: Option<Vec<String>>,
    pub store: StoreOptions,
    /// Where what is read by URL is kept.
    pub cache: Option<Arc<DiskCache>>,
}

impl Default for SourceOptions {
    /// Recordings and labels in the usual columns.
    fn default() -> Self {
        Self {
            payload: PayloadColumn::Audio(None),
            track: None,
            label_column: ColumnChoice::Usual,
            threads: 8,
            mmap: false,
            max_record_bytes: MAX_RECORD_BYTES,
            allow_paths: AllowPaths::default(),
            paths: false,
            columns: Vec::new(),
            fingerprinted: None,
            store: StoreOptions::default(),
            cache: None,
        }
    }
}

impl SourceOptions {
    /// Documents in `column`, without labels.
    pub fn text(column: impl Into<String>) -> Self {
        Self::unlabelled(PayloadColumn::Text(column.into()))
    }

    /// Conversations, without labels.
    pub fn chat(columns: ChatColumns) -> Self {
        Self::unlabelled(PayloadColumn::Chat(columns))
    }

    /// Lists of token ids in `column`, and what `fields` names beside them.
    pub fn ids(column: impl Into<String>, fields: IdFields) -> Self {
        Self::unlabelled(PayloadColumn::Ids(column.into(), fields))
    }

    /// Columns without records.
    pub fn columns(columns: Vec<String>) -> Self {
        Self { columns, ..Self::unlabelled(PayloadColumn::Nothing) }
    }

    fn unlabelled(payload: PayloadColumn) -> Self {
        Self { payload, label_column: ColumnChoice::Nothing, ..Self::default() }
    }

    /// Storage of local files, mapped or read.
    pub(crate) fn storage(&self) -> Arc<dyn Storage> {
        match self.mmap {
            true => Arc::new(PathOrUrl::here(MappedFiles, &self.store, self.cache.clone())),
            false => PathOrUrl::files(&self.store, self.cache.clone()),
        }
    }
}
