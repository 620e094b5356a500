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

mod conversation;
mod field;
mod id_files;
mod line_index;
mod lines;
mod pair;
mod sources;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
    str,
    sync::Arc,
};

pub use self::conversation::{ChatForm, Messages};
pub use self::pair::PairForm;
pub use self::sources::{DocumentSources, DocumentsReader};
use self::{
    id_files::{IdFiles, IdFilesReader},
    lines::{LinesReader, LinesSource},
};
use crate::{
    ArrowOptions, ArrowReader, ArrowSource, DiskCache, Error, ErrorKind, FileFormat, RawRecord, ReadRequest,
    Result, Shard, Storage, StoredRecording, Traffic,
    columns::{BesideChat, ChatColumns, IdFields, PairColumns},
    contract::{MAX_RECORD_BYTES, MemoryLimiter, ReadRecords, RowStore, Source, StorageLabels},
    error::Place,
    fields::Row,
    ids,
    parquet::{ParquetOptions, ParquetReader, ParquetSource, RowGroup},
    scattered_readers,
    shard::locate,
    urls,
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

#[derive(Debug)]
enum OpenDocuments {
    Parquet(Arc<ParquetSource>),
    Arrow(Arc<ArrowSource>),
    Lines(Arc<LinesSource>),
    Ids(Arc<IdFiles>),
}

macro_rules! either {
    ($files:expr, $source:ident => $value:expr) => {
        match $files {
            OpenDocuments::Parquet($source) => $value,
            OpenDocuments::Arrow($source) => $value,
            OpenDocuments::Lines($source) => $value,
            OpenDocuments::Ids($source) => $value,
        }
    };
}

/// An open set of files of documents; immutable and shared.
#[derive(Debug)]
pub struct DocumentSource {
    files: OpenDocuments,
    form: DocumentForm,
    groups: Vec<RowGroup>,
    /// The first group of each shard, and the number of all.
    group_starts: Vec<usize>,
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
        let format = common_format(&storage, paths)?;
        let form = match (content, format) {
            (TextContent::Ids(_), _) => DocumentForm::Ids,
            (TextContent::Chat(tools), FileFormat::JsonLines) => {
                DocumentForm::Chat(ChatForm { line: Some((column.into(), tools.as_deref().map(Into::into))) })
            }
            (TextContent::Chat(_), _) => DocumentForm::Chat(ChatForm { line: None }),
            (TextContent::Pairs(pair), format) => {
                DocumentForm::Pairs(PairForm::new(column, pair, format == FileFormat::JsonLines))
            }
            (TextContent::Texts, FileFormat::JsonLines) => DocumentForm::Json(column.into()),
            _ => DocumentForm::Text,
        };
        check_content(content, format, &paths[0])?;
        let files = match format {
            FileFormat::Parquet => {
                let options = match content {
                    TextContent::Texts => ParquetOptions::text(column),
                    TextContent::Chat(tools) => {
                        ParquetOptions::chat(ChatColumns::new(column, BesideChat::Tools(tools.clone())))
                    }
                    TextContent::Pairs(pair) => {
                        ParquetOptions::chat(ChatColumns::new(column, BesideChat::Pair(pair.clone())))
                    }
                    TextContent::Ids(fields) => ParquetOptions::ids(column, fields.clone()),
                };
                let options = ParquetOptions { cache, ..options };
                let source = ParquetSource::open_in(storage, paths, &options)?;
                OpenDocuments::Parquet(Arc::new(source))
            }
            FileFormat::Arrow => {
                let options = match content {
                    TextContent::Chat(tools) => {
                        ArrowOptions::chat(ChatColumns::new(column, BesideChat::Tools(tools.clone())))
                    }
                    TextContent::Pairs(pair) => {
                        ArrowOptions::chat(ChatColumns::new(column, BesideChat::Pair(pair.clone())))
                    }
                    _ => ArrowOptions::text(column),
                };
                let options = ArrowOptions { cache, ..options };
                let source = ArrowSource::open_in(storage, paths, &options)?;
                OpenDocuments::Arrow(Arc::new(source))
            }
            FileFormat::JsonLines | FileFormat::Text => {
                let source = Arc::new(LinesSource::open(storage, paths, MAX_RECORD_BYTES)?);
                match &form {
                    DocumentForm::Json(column) => check_first_lines(&source, column, |line| {
                        Some(
                            !field::text_field(line, column)
                                .is_err_and(|error| error.message == format!("there is no field {column:?}")),
                        )
                    })?,
                    DocumentForm::Chat(ChatForm { line: Some((column, tools)) }) => {
                        check_first_lines(&source, column, |line| conversation::has_field(line, column))?;
                        if let Some(tools) = tools {
                            look_for_tools(&source, tools)?;
                        }
                    }
                    DocumentForm::Pairs(form) => {
                        for name in form.names() {
                            check_first_lines(&source, name, |line| conversation::has_field(line, name))?;
                        }
                    }
                    _ => {}
                }
                OpenDocuments::Lines(source)
            }
            FileFormat::Numpy | FileFormat::Megatron => {
                OpenDocuments::Ids(Arc::new(IdFiles::open(storage, paths, MAX_RECORD_BYTES)?))
            }
        };
        let (mut groups, mut group_starts) = (Vec::new(), vec![0]);
        let shards = either!(&files, source => source.shards());
        for (shard, Shard { first_row, .. }) in shards.iter().enumerate() {
            let mut first_row = *first_row;
            let rows: Box<dyn Iterator<Item = u64>> = match &files {
                OpenDocuments::Parquet(source) => {
                    Box::new(source.row_groups_of(shard).iter().map(|group| group.n_rows))
                }
                OpenDocuments::Arrow(source) => Box::new(source.batch_rows(shard)),
                OpenDocuments::Lines(source) => Box::new(source.group_rows(shard)),
                OpenDocuments::Ids(source) => Box::new(source.group_rows(shard)),
            };
            for (index, n_rows) in rows.enumerate() {
                crate::fallible_alloc::push(&mut groups, RowGroup { shard, index, first_row, n_rows })?;
                first_row += n_rows;
            }
            group_starts.push(groups.len());
        }
        Ok(Self { files, form, groups, group_starts })
    }

    /// What the bytes of records are.
    pub fn form(&self) -> &DocumentForm {
        &self.form
    }

    /// The number of rows over all shards.
    pub fn n_rows(&self) -> u64 {
        either!(&self.files, source => source.n_rows())
    }

    /// The shards in the order given.
    pub fn shards(&self) -> &[Shard] {
        either!(&self.files, source => source.shards())
    }

    /// The groups of all shards, in order.
    pub fn row_groups(&self) -> &[RowGroup] {
        &self.groups
    }

    /// The groups of one shard.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn row_groups_of(&self, shard: usize) -> &[RowGroup] {
        &self.groups[self.group_starts[shard]..self.group_starts[shard + 1]]
    }

    /// A hash of the shards' row counts and file sizes, in order.
    pub fn fingerprint(&self) -> u64 {
        either!(&self.files, source => source.fingerprint())
    }

    /// What its files cost so far.
    pub fn traffic(&self) -> &Arc<Traffic> {
        either!(&self.files, source => source.traffic())
    }
}

/// Checks that files of a format may have the rows that are asked for.
fn check_content(content: &TextContent, format: FileFormat, path: &Path) -> Result<()> {
    let message = match (content, format) {
        (TextContent::Chat(_) | TextContent::Pairs(_), format)
            if format == FileFormat::Text || format.is_of_ids() =>
        {
            format!(
                "{} is {}; conversations are read from JSON lines, Parquet and Arrow",
                path.display(),
                format.name()
            )
        }
        (TextContent::Texts, format) if format.is_of_ids() => {
            format!(
                "{} has token ids; name it as forebay.text.Ids({:?})",
                path.display(),
                path.display().to_string()
            )
        }
        (TextContent::Ids(fields), format) if format.is_of_ids() && !fields.is_empty() => {
            format!("{} has ids alone; labels and weights are columns of lists in Parquet", path.display())
        }
        (TextContent::Ids(_), FileFormat::Arrow | FileFormat::JsonLines | FileFormat::Text) => format!(
            "{} is {}; token ids are read from Parquet (a column of lists), .npy, and .bin with .idx of Megatron-LM",
            path.display(),
            format.name()
        ),
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Config, message))
}

/// The format of all files.
fn common_format(storage: &Arc<dyn Storage>, paths: &[PathBuf]) -> Result<FileFormat> {
    let mut common: Option<(&PathBuf, FileFormat)> = None;
    for path in paths {
        let found = format_of(storage, path)?;
        match common {
            Some((first, format)) if format != found && !(format.is_of_ids() && found.is_of_ids()) => {
                let message = format!(
                    "{} is {} and {} is {}; name files of one format",
                    first.display(),
                    format.name(),
                    path.display(),
                    found.name()
                );
                return Err(Error::new(ErrorKind::Config, message));
            }
            _ => common = Some((path, found)),
        }
    }
    common.map(|(_, format)| format).ok_or_else(|| {
        Error::new(ErrorKind::Config, "there are no files to read; name at least one file of documents")
    })
}

/// The format of a file.
fn format_of(storage: &Arc<dyn Storage>, path: &Path) -> Result<FileFormat> {
    match FileFormat::detect(storage, &Arc::from(path))? {
        Some(format) => Ok(format),
        // A name that says nothing, and no content that says more.
        None if urls::is_url(path) && path.extension().is_none() => Ok(FileFormat::Parquet),
        None => {
            let message = format!(
                "{} is not Parquet, Arrow, JSON lines or text; expected are files that end in .parquet, .arrow, .jsonl or .txt, the \
                 last two also with .gz or .zst",
                path.display()
            );
            Err(Error::new(ErrorKind::Format, message))
        }
    }
}

/// Checks that the first line of each file is an object with the column: a wrong name would make every row
/// bad.
fn check_first_lines(
    source: &Arc<LinesSource>,
    column: &str,
    has_field: impl Fn(&[u8]) -> Option<bool>,
) -> Result<()> {
    let mut reader = source.reader();
    for shard in source.shards().iter().filter(|shard| shard.n_rows > 0) {
        let line = match reader.read(shard.first_row, 1) {
            Ok(record) => record.payload.bytes,
            Err(error) if error.kind.is_record() => continue,
            Err(error) => return Err(error),
        };
        let Some(names) = field::names(&line) else {
            let message =
                "the first line is no JSON object, expected one such as {\"text\": \"...\"} on each line";
            return Err(Error::new(ErrorKind::Format, message).in_shard(&shard.path));
        };
        if has_field(&line) == Some(false) {
            let message = format!(
                "there is no field {column:?} in the first line, which has {}; name the field with column= of an object of forebay.text, or text_column=",
                quoted(&names)
            );
            return Err(Error::new(ErrorKind::Schema, message).in_shard(&shard.path));
        }
    }
    Ok(())
}

/// Warns if none of the first lines of the first file has the field of tools, which is no error: most
/// conversations may have none.
fn look_for_tools(source: &Arc<LinesSource>, tools: &str) -> Result<()> {
    const MOST_LINES: u64 = 100;
    const MOST_BYTES: usize = 4 << 20;
    let Some(shard) = source.shards().iter().find(|shard| shard.n_rows > 0) else { return Ok(()) };
    let (mut reader, mut first, mut n_bytes, mut n_lines) = (source.reader(), None, 0, 0);
    let most = shard.n_rows.min(MOST_LINES);
    while n_lines < most && n_bytes < MOST_BYTES {
        let line = match reader.read(shard.first_row + n_lines, most - n_lines) {
            Ok(record) => record.payload.bytes,
            Err(error) if error.kind.is_record() => Default::default(),
            Err(error) => return Err(error),
        };
        if conversation::has_field(&line, tools) == Some(true) {
            return Ok(());
        }
        (n_lines, n_bytes) = (n_lines + 1, n_bytes + line.len());
        first = first.or_else(|| field::names(&line));
    }
    log::warn!(
        "tools of forebay.text.Chat is {tools:?}, and none of the first {n_lines} lines of {} has such a field; the first has {}",
        shard.path.display(),
        quoted(&first.unwrap_or_default())
    );
    Ok(())
}

/// Some names, for a message.
fn quoted(names: &[String]) -> String {
    names.iter().take(20).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

impl RowStore for DocumentSource {
    fn shard_rows(&self, _epoch: u64) -> Result<Vec<u64>> {
        Ok(self.shards().iter().map(|shard| shard.n_rows).collect())
    }

    fn place(&self, row: u64) -> Place {
        let (shard, row) = locate(self.shards(), row);
        Place::in_shard(&self.shards()[shard].path, row)
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

    fn rest(&self) {
        match &self.files {
            OpenDocuments::Parquet(source) => source.rest(),
            OpenDocuments::Arrow(source) => source.rest(),
            OpenDocuments::Lines(source) => source.storage().rest(),
            OpenDocuments::Ids(source) => source.storage().rest(),
        }
    }

    fn bytes_in_use(&self) -> usize {
        match &self.files {
            OpenDocuments::Parquet(source) => source.bytes_in_use(),
            OpenDocuments::Arrow(source) => source.bytes_in_use(),
            OpenDocuments::Lines(_) | OpenDocuments::Ids(_) => 0,
        }
    }
}

impl Source for DocumentSource {
    type Reader = DocumentReader;

    fn reader(self: &Arc<Self>) -> DocumentReader {
        match &self.files {
            OpenDocuments::Parquet(source) => DocumentReader::Parquet(Box::new(source.reader())),
            OpenDocuments::Arrow(source) => DocumentReader::Arrow(Box::new(source.reader())),
            OpenDocuments::Lines(source) => DocumentReader::Lines(Box::new(source.reader())),
            OpenDocuments::Ids(source) => DocumentReader::Ids(Box::new(source.reader())),
        }
    }
}

/// Reads documents, for one thread.
#[derive(Debug)]
#[allow(private_interfaces, reason = "readers are made by the source alone")]
pub enum DocumentReader {
    Parquet(Box<ParquetReader>),
    Arrow(Box<ArrowReader>),
    Lines(Box<LinesReader>),
    Ids(Box<IdFilesReader>),
}

impl ReadRecords for DocumentReader {
    type Payload = StoredRecording;
    type Request<'a> = dyn ReadRequest + 'a;

    fn set_limiter(&mut self, limiter: Arc<dyn MemoryLimiter>) {
        match self {
            Self::Parquet(reader) => ReadRecords::set_limiter(&mut **reader, limiter),
            Self::Arrow(reader) => ReadRecords::set_limiter(&mut **reader, limiter),
            Self::Lines(_) | Self::Ids(_) => {}
        }
    }

    fn hint_next(&mut self, end: u64, row: Option<u64>) {
        if let Self::Arrow(reader) = self {
            ReadRecords::hint_next(&mut **reader, end, row);
        }
    }

    fn read(&mut self, row: u64, run: u64, request: &dyn ReadRequest) -> Result<RawRecord> {
        match self {
            Self::Parquet(reader) => ReadRecords::read(&mut **reader, row, run, request),
            Self::Arrow(reader) => ReadRecords::read(&mut **reader, row, run, request),
            Self::Lines(reader) => reader.read(row, run),
            Self::Ids(reader) => reader.read(row, run),
        }
    }
}
