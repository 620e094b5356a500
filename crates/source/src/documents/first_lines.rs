//! Opens files of lines, and checks by their first lines that these have what the user names.

use std::{path::PathBuf, sync::Arc};

use super::{ChatForm, DocumentForm, DocumentRequest, PairForm, TextContent, field, lines::LinesSource};
use crate::{
    Error, ErrorKind, Result, Storage, WholeRecord, contract::ReadRecords, open_files::OpenFiles,
    record_rules::MAX_RECORD_BYTES, row_files::DocumentFiles,
};

/// Opens files with a text in each line.
///
/// # Errors
/// As [`LinesSource::open`].
pub(super) fn open_text(
    storage: Arc<dyn Storage>,
    paths: &[PathBuf],
    _request: &DocumentRequest<'_>,
) -> Result<(Arc<dyn DocumentFiles>, DocumentForm)> {
    Ok((Arc::new(LinesSource::open(storage, paths, MAX_RECORD_BYTES)?), DocumentForm::Text))
}

/// Opens files with an object of JSON in each line.
///
/// # Errors
/// As [`LinesSource::open`]; [`ErrorKind::Format`] if a first line is no object, [`ErrorKind::Schema`] if it
/// does not have the field.
pub(super) fn open_json(
    storage: Arc<dyn Storage>,
    paths: &[PathBuf],
    &DocumentRequest { content, column, .. }: &DocumentRequest<'_>,
) -> Result<(Arc<dyn DocumentFiles>, DocumentForm)> {
    let source = Arc::new(LinesSource::open(storage, paths, MAX_RECORD_BYTES)?);
    let form = match content {
        TextContent::Chat(tools) => {
            check_first_lines(&source, column, OF_COLUMN)?;
            if let Some(tools) = tools {
                look_for_tools(&source, tools)?;
            }
            DocumentForm::Chat(ChatForm { line: Some((column.into(), tools.as_deref().map(Into::into))) })
        }
        TextContent::Pairs(pair) => {
            let form = PairForm::new(column, pair, true);
            for (name, parameter) in form.names().zip(["chosen", "rejected", "prompt"]) {
                let hint = format!("{parameter}= of forebay.text.Pairs");
                check_first_lines(&source, name, &hint)?;
            }
            DocumentForm::Pairs(form)
        }
        _ => {
            check_first_lines(&source, column, OF_COLUMN)?;
            DocumentForm::Json(column.into())
        }
    };
    Ok((source, form))
}

/// What names the field of a document.
const OF_COLUMN: &str = "column= of an object of forebay.text, or text_column=";

/// Checks that the first line of each file is an object with the column, which `parameter` names: a wrong
/// name would make every row bad.
fn check_first_lines(source: &Arc<LinesSource>, column: &str, parameter: &str) -> Result<()> {
    let mut reader = source.reader();
    for shard in source.shards().iter().filter(|shard| shard.n_rows > 0) {
        let line = match reader.read(shard.first_row, 1, &WholeRecord::ONCE) {
            Ok(record) => record.payload.bytes,
            Err(error) if error.kind.is_record() => continue,
            Err(error) => return Err(error),
        };
        let Some(names) = field::names(&line) else {
            let message =
                "the first line is no JSON object, expected one such as {\"text\": \"...\"} on each line";
            return Err(Error::new(ErrorKind::Format, message).in_shard(&shard.path));
        };
        if field::has_field(&line, column) == Some(false) {
            let message = format!(
                "there is no field {column:?} in the first line, which has {}; name the field with {parameter}",
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
        let line = match reader.read(shard.first_row + n_lines, most - n_lines, &WholeRecord::ONCE) {
            Ok(record) => record.payload.bytes,
            Err(error) if error.kind.is_record() => Default::default(),
            Err(error) => return Err(error),
        };
        if field::has_field(&line, tools) == Some(true) {
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
