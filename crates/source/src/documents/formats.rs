//! The formats of documents: what each may have, and how its files are opened.
//!
//! A format implements [`DocumentFiles`] and has a line in [`FORMATS`].

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{DocumentForm, TextContent, columns, first_lines, id_files};
use crate::{
    ChatColumns, DiskCache, Error, ErrorKind, FileFormat, OtherChatColumns, Result, SourceOptions, Storage,
    row_files::DocumentFiles, urls,
};

/// What is read of files of documents.
#[derive(Debug, Clone, Copy)]
pub(super) struct DocumentRequest<'a> {
    pub content: &'a TextContent,
    pub column: &'a str,
    /// Where what is read by URL is kept.
    pub cache: &'a Option<Arc<DiskCache>>,
}

impl DocumentRequest<'_> {
    /// How files with columns are opened.
    pub(super) fn options(&self) -> SourceOptions {
        let options = match self.content {
            TextContent::Texts => SourceOptions::text(self.column),
            TextContent::Chat(tools) => {
                SourceOptions::chat(ChatColumns::new(self.column, OtherChatColumns::Tools(tools.clone())))
            }
            TextContent::Pairs(pair) => {
                SourceOptions::chat(ChatColumns::new(self.column, OtherChatColumns::Pair(pair.clone())))
            }
            TextContent::Ids(fields) => SourceOptions::ids(self.column, fields.clone()),
        };
        SourceOptions { cache: self.cache.clone(), ..options }
    }
}

/// Opens files of a format, and says what the bytes of their records are.
type OpenDocuments =
    fn(Arc<dyn Storage>, &[PathBuf], &DocumentRequest<'_>) -> Result<(Arc<dyn DocumentFiles>, DocumentForm)>;

/// What rows may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DocumentKind {
    Texts,
    Chats,
    Ids,
    /// Labels and weights beside ids.
    IdFields,
}

use DocumentKind::{Chats, IdFields, Ids, Texts};

/// What the rows of each format may have, and how its files are opened.
const FORMATS: &[(FileFormat, &[DocumentKind], OpenDocuments)] = &[
    (FileFormat::Parquet, &[Texts, Chats, Ids, IdFields], columns::open_parquet),
    (FileFormat::Arrow, &[Texts, Chats], columns::open_arrow),
    (FileFormat::JsonLines, &[Texts, Chats], first_lines::open_json),
    (FileFormat::Text, &[Texts], first_lines::open_text),
    (FileFormat::Numpy, &[Ids], id_files::open_documents),
    (FileFormat::Megatron, &[Ids], id_files::open_documents),
];

/// How the files are opened, if they have what is asked for.
///
/// # Errors
/// [`ErrorKind::Config`] for no files or several formats, and for what the format does not have;
/// [`ErrorKind::Format`] for another format.
pub(super) fn opener_of(
    storage: &Arc<dyn Storage>,
    paths: &[PathBuf],
    content: &TextContent,
) -> Result<OpenDocuments> {
    let common = common_format(storage, paths)?;
    let known = FORMATS.iter().find(|(format, ..)| *format == common);
    let Some((_, kinds, open)) = known else { return Err(not_documents(&paths[0])) };
    check_content(content, (common, kinds), &paths[0])?;
    Ok(*open)
}

/// Checks that files of a format may have the rows that are asked for.
fn check_content(
    content: &TextContent,
    (format, kinds): (FileFormat, &[DocumentKind]),
    path: &Path,
) -> Result<()> {
    let has = |kind| kinds.contains(&kind);
    let message = match content {
        TextContent::Chat(_) | TextContent::Pairs(_) if !has(Chats) => format!(
            "{} is {}; conversations are read from JSON lines, Parquet and Arrow",
            path.display(),
            format.name()
        ),
        TextContent::Texts if !has(Texts) => {
            format!(
                "{} has token ids; name it as forebay.text.Ids({:?})",
                path.display(),
                path.display().to_string()
            )
        }
        TextContent::Ids(_) if !has(Ids) => format!(
            "{} is {}; token ids are read from Parquet (a column of lists), .npy, and .bin with .idx of Megatron-LM",
            path.display(),
            format.name()
        ),
        TextContent::Ids(fields) if !fields.is_empty() && !has(IdFields) => {
            format!("{} has ids alone; labels and weights are columns of lists in Parquet", path.display())
        }
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Config, message))
}

/// The format that all files have, or any of token ids; an error if they differ.
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

/// The format of a file by its name and first bytes; an error if neither says it.
fn format_of(storage: &Arc<dyn Storage>, path: &Path) -> Result<FileFormat> {
    match FileFormat::detect(storage, &Arc::from(path))? {
        Some(format) => Ok(format),
        // A name that says nothing, and no content that says more.
        None if urls::is_url(path) && path.extension().is_none() => Ok(FileFormat::Parquet),
        None => Err(not_documents(path)),
    }
}

fn not_documents(path: &Path) -> Error {
    let message = format!(
        "{} is not Parquet, Arrow, JSON lines or text; expected are files that end in .parquet, .arrow, .jsonl or .txt, the \
         last two also with .gz or .zst",
        path.display()
    );
    Error::new(ErrorKind::Format, message)
}
