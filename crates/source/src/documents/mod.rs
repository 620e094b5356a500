//! [`DocumentSource`]: documents in files of any format, in groups of rows that packers divide.
//!
//! Input: paths of one format, and the name of a column. Output: a document for each row, as a text, a line
//! of JSON that has it, or token ids. Groups are the row groups of Parquet, the record batches of Arrow, and
//! [groups of lines](line_index).
//!
//! | format | recognised by | a row |
//! |---|---|---|
//! | Parquet | `.parquet`, or the first bytes | a value of the column |
//! | Arrow | `.arrow`, `.feather`, or the first bytes | a value of the column |
//! | JSON lines | `.jsonl`, `.ndjson`, `.json`, also with `.gz` or `.zst` | a line with an object, parsed by workers |
//! | text | `.txt`, `.text`, also with `.gz` or `.zst` | a line |
//! | [ids](id_files) | `.npy`, `.bin`, `.idx` | token ids |
//!
//! A column of Parquet may also have lists of token ids.

mod columns;
mod conversation;
mod field;
mod first_lines;
mod formats;
mod id_files;
mod line_index;
mod lines;
mod pair;
mod sources;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, path::PathBuf, str, sync::Arc};

pub use self::conversation::ChatForm;
pub(crate) use self::conversation::Messages;
use self::formats::DocumentRequest;
pub(crate) use self::pair::PairForm;
pub use self::sources::{DocumentSources, DocumentsReader};
use crate::{
    DiskCache, Error, ErrorKind, Result, Storage,
    columns::{IdFields, PairColumns},
    contract::{RowStore, Source, StorageLabels},
    error::Place,
    fields::Row,
    ids,
    open_files::{FileSet, OpenFiles},
    row_files::{DocumentFiles, DynReader},
    row_groups::{RowGroup, RowGroups},
    scattered_readers,
};

/// What is in the rows of files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TextContent {
    #[default]
    Texts,
    /// Lists of token ids, and the columns beside them.
    Ids(IdFields),
    /// Conversations, and the column of the tools that each may use.
    Chat(Option<String>),
    /// Pairs of conversations, and the columns beside the one of those that are chosen.
    Pairs(PairColumns),
}

impl TextContent {
    /// The parameter that names the column of the documents.
    pub fn column_field(&self) -> &'static str {
        if matches!(self, Self::Pairs(_)) { "chosen" } else { "column" }
    }

    /// What the bytes of a record are, if they are the value of this column.
    fn form_of_values(&self, column: &str) -> DocumentForm {
        match self {
            Self::Texts => DocumentForm::Text,
            Self::Ids(_) => DocumentForm::Ids,
            Self::Chat(_) => DocumentForm::Chat(ChatForm { line: None }),
            Self::Pairs(pair) => DocumentForm::Pairs(PairForm::new(column, pair, false)),
        }
    }
}

/// What a record's bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentForm {
    /// The document.
    Text,
    /// A line with a JSON object, and the name of the document's field.
    Json(Arc<str>),
    /// Token ids, in the type that the record's values say.
    Ids,
    /// The messages of a conversation.
    Chat(ChatForm),
    /// The messages of two conversations.
    Pairs(PairForm),
}

impl DocumentForm {
    /// The document in a record's bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is no text or not UTF-8, [`ErrorKind::Unreadable`] if it is null or
    /// missing, [`ErrorKind::Empty`].
    pub fn text<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, str>> {
        let text = match self {
            Self::Text => str::from_utf8(bytes)
                .map(Cow::Borrowed)
                .map_err(|cause| Error::new(ErrorKind::Corrupt, "the text is not UTF-8").because(cause))?,
            Self::Json(column) => field::text_field(bytes, column)?,
            Self::Ids | Self::Chat(_) | Self::Pairs(_) => {
                return Err(Error::new(ErrorKind::Corrupt, "the row is no text"));
            }
        };
        if text.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "the text is empty"));
        }
        Ok(text)
    }

    /// The messages of a record of [`Self::Chat`], and the tools.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is no conversation, [`ErrorKind::Unreadable`] if it is null or missing,
    /// [`ErrorKind::TooLarge`].
    pub fn messages(&self, bytes: &[u8], values: &Row) -> Result<Messages> {
        match self {
            Self::Chat(form) => form.read(bytes, values),
            _ => Err(Error::new(ErrorKind::Corrupt, "the row is no conversation")),
        }
    }

    /// The messages of both conversations of a record of [`Self::Pairs`]: the chosen one's, then the
    /// rejected one's.
    ///
    /// # Errors
    /// As [`Self::messages`].
    pub fn pair(&self, bytes: &[u8], values: &Row) -> Result<[Vec<serde_json::Value>; 2]> {
        match self {
            Self::Pairs(form) => form.read(bytes, values),
            _ => Err(Error::new(ErrorKind::Corrupt, "the row is no pair of conversations")),
        }
    }

    /// Whether documents may have BOS and EOS of their own.
    pub fn may_be_framed(&self) -> bool {
        matches!(self, Self::Ids | Self::Chat(_) | Self::Pairs(_))
    }

    /// Appends the ids of a record of [`Self::Ids`], each with the bit `masked` if its label is -100, and its
    /// weights, if it has some.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a number that is no id, a wrong label or weight, and as many of these as
    /// there are not ids; [`ErrorKind::Memory`].
    pub fn append_ids(
        bytes: &[u8],
        values: &Row,
        masked: u32,
        (ids, weights): (&mut Vec<u32>, &mut Vec<f32>),
    ) -> Result<()> {
        ids::append_fields(bytes, values, masked, ids, weights)
    }
}

/// An open set of files of documents; immutable and shared.
#[derive(Debug)]
pub struct DocumentSource {
    files: Arc<dyn DocumentFiles>,
    form: DocumentForm,
    groups: RowGroups,
}

impl DocumentSource {
    /// Opens files of one format.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for no files or several formats, [`ErrorKind::Format`] for another format,
    /// [`ErrorKind::Schema`] if there is no such column, those of the format's source.
    pub fn open(
        storage: Arc<dyn Storage>,
        paths: &[PathBuf],
        (content, column): (&TextContent, &str),
        cache: Option<Arc<DiskCache>>,
    ) -> Result<Self> {
        let open = formats::opener_of(&storage, paths, content)?;
        let (files, form) = open(storage, paths, &DocumentRequest { content, column, cache: &cache })?;
        let groups = RowGroups::new(files.shards(), |shard| files.group_rows(shard))?;
        Ok(Self { files, form, groups })
    }

    /// What the bytes of records are.
    pub fn form(&self) -> &DocumentForm {
        &self.form
    }

    /// The groups of all shards, in order.
    pub fn row_groups(&self) -> &[RowGroup] {
        self.groups.all()
    }

    /// The groups of one shard.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn row_groups_of(&self, shard: usize) -> &[RowGroup] {
        self.groups.of_shard(shard)
    }
}

impl OpenFiles for DocumentSource {
    fn file_set(&self) -> &FileSet {
        self.files.file_set()
    }

    fn fingerprint(&self) -> u64 {
        self.files.fingerprint()
    }

    fn held_bytes(&self) -> usize {
        self.files.held_bytes()
    }
}

impl RowStore for DocumentSource {
    fn shard_rows(&self, _epoch: u64) -> Result<Vec<u64>> {
        Ok(self.rows_of_shards())
    }

    fn place(&self, row: u64) -> Place {
        self.place_of(row)
    }

    /// False: in most formats a row costs its neighbours.
    fn random_access(&self) -> bool {
        false
    }

    fn scattered_readers(&self, n_readers: usize) -> usize {
        scattered_readers(n_readers, self.traffic().is_remote())
    }

    fn storage_labels(&self) -> StorageLabels {
        self.traffic().labels()
    }

    fn end_threads(&self) {
        self.file_set().storage.end_threads();
    }

    fn bytes_in_use(&self) -> usize {
        self.files.held_bytes()
    }
}

impl Source for DocumentSource {
    type Reader = Box<dyn DynReader>;

    fn reader(self: &Arc<Self>) -> Self::Reader {
        self.files.clone().document_reader()
    }
}
