//! Opens the files and the tokenizer of a `TokenLoader`.

use std::{path::Path, sync::Arc};

use pyo3::prelude::*;
use serde_json::Value;

use super::{
    arguments::Argument,
    chat,
    errors::to_python,
    interruptible::run_interruptible,
    text_draws,
    vocabulary::{self, UserTokenizer},
};
use crate::{
    Error, ErrorKind, Result,
    compose::identity::hex,
    config::{TextRows, TokenConfig},
    source::{
        DocumentSource, DocumentSources, TextContent,
        parquet::{Split, split_documents},
        paths::{self, Reads},
    },
    storage::{PathOrUrl, Storage, disk_cache},
    tasks::{ChatPlan, TextDraws},
    tokenizer::TokenizerOptions,
};

/// Takes the column that an object of `forebay.text` names as `text_column`.
///
/// # Errors
/// [`ErrorKind::Config`] if both are given and differ.
pub(super) fn name_column(config: &mut TokenConfig) -> Result<()> {
    let ([TextRows { column: Some(column), .. }], None) =
        (&config.parquet_files.rows[..], &config.parquet_files.names)
    else {
        return Ok(());
    };
    let usual = TokenConfig::default().text_column;
    if config.text_column != usual && config.text_column != *column {
        let message = format!(
            "text_column is {:?}, but parquet_files names the column {column:?}; leave text_column out",
            config.text_column
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    config.text_column = column.clone();
    Ok(())
}

/// How the rows of a source become ids, besides its form.
pub(super) struct RowPlan {
    pub(super) chat: Option<ChatPlan>,
    pub(super) draws: TextDraws,
    /// What states have of these.
    pub(super) identity: Vec<(&'static str, Value)>,
}

/// The tokenizer of the configuration, and how the rows of each source become ids.
pub(super) fn open_tokenizer(
    py: Python<'_>,
    config: &TokenConfig,
) -> PyResult<(UserTokenizer, Vec<RowPlan>)> {
    let options = TokenizerOptions {
        pattern: config.pattern.clone(),
        special_tokens: config.special_tokens.clone(),
        bos_id: config.bos_id.map(|id| id as u32),
        eos_id: config.eos_id.map(|id| id as u32),
    };
    let tokenizer = config.tokenizer.to_python(py)?;
    let is_ids = |rows: &TextRows| matches!(rows.content, TextContent::Ids(_));
    if tokenizer.is_none() && !config.parquet_files.rows.iter().all(is_ids) {
        let message = "tokenizer is missing; only forebay.text.Ids needs none, whose rows are ids already";
        return Err(to_python(py, &Error::new(ErrorKind::Config, message)));
    }
    let opened = match tokenizer.is_none() {
        true => vocabulary::without(&options).map_err(|error| to_python(py, &error))?,
        false => vocabulary::extract(&tokenizer, options)?,
    };
    let sources = &config.parquet_files;
    let plan_of = |(number, rows): (usize, &TextRows)| {
        let source = sources.names.as_ref().map(|_| sources.name(number));
        let mut identity = Vec::new();
        let template = |rule| chat::template(rule, &tokenizer, &opened, source.as_deref());
        let chat = rows.chat.as_ref().map(template).transpose()?.map(|found| {
            identity.push(("template", hex(found.fingerprint)));
            identity.push(("train_on", chat::train_on_name(found.plan.train_on).into()));
            found.plan
        });
        let draws = text_draws::plan(&rows.draws, &opened, &mut identity).map_err(|error| {
            let before = source.as_ref().map_or_else(String::new, |source| format!("{source}: "));
            to_python(py, &Error { message: format!("{before}{}", error.message), ..error })
        })?;
        Ok(RowPlan { chat, draws, identity })
    };
    let plans = sources.rows.iter().enumerate().map(plan_of).collect::<PyResult<Vec<_>>>()?;
    Ok((opened, plans))
}

/// Warns of a file that is kept for validation by convention, where it is a large part of the data.
fn warn_held_out(last: &Path, n_files: usize) {
    if (2..10).contains(&n_files) {
        log::warn!(
            "TokenLoader: {}, the last of {n_files} files, is kept for validation; pass val=[] to train on all files, or the \
             names of the validation files as val=",
            last.display()
        );
    }
}

/// Finds the files of the split and opens them.
pub(super) fn open(py: Python<'_>, config: &TokenConfig) -> PyResult<DocumentSources> {
    let part = match &*config.split {
        "train" => Split::Train,
        "val" => Split::Val,
        other => {
            let message = format!("split is {other:?}, must be \"train\" or \"val\"");
            return Err(to_python(py, &Error::new(ErrorKind::Config, message)));
        }
    };
    let cache = disk_cache(config.cache_dir.as_deref(), config.cache_bytes as u64)
        .map_err(|error| to_python(py, &error))?;
    let (sources, val) = (config.parquet_files.clone(), config.val.clone().map(|names| names.0));
    let usual = config.text_column.clone();
    let storage: Arc<dyn Storage> = PathOrUrl::files(&config.storage_options, cache.clone());
    run_interruptible(py, "forebay-index", move || {
        // Of a mixture, each name in `val` is that of files of some source.
        let mut matched = std::collections::BTreeSet::new();
        let mut open = |TextRows { paths, column, content, .. }: &TextRows| {
            let reads = if matches!(content, TextContent::Ids(_)) { Reads::Ids } else { Reads::Texts };
            let files = paths::expand(paths, reads, &storage)?;
            let val = match (&val, &sources.names) {
                (Some(patterns), Some(_)) => {
                    let is_here = |one: &&String| {
                        split_documents(&files, Split::Val, Some(std::slice::from_ref(*one))).is_ok()
                    };
                    let here: Vec<_> = patterns.iter().filter(is_here).cloned().collect();
                    matched.extend(here.iter().cloned());
                    Some(here)
                }
                _ => val.clone(),
            };
            if let (Split::Train, None, [.., last]) = (part, &val, &*files) {
                warn_held_out(last, files.len());
            }
            let files = split_documents(&files, part, val.as_deref())?;
            let column = column.as_ref().unwrap_or(&usual);
            DocumentSource::open(storage.clone(), &files, (content, column), cache.clone())
        };
        let opened = sources.rows.iter().enumerate().map(|(number, rows)| {
            open(rows).map_err(|mut error| {
                if sources.names.is_some() {
                    let mut before = sources.name(number);
                    // The file is named behind the source that has it.
                    if error.place.row.is_none()
                        && let Some(shard) = error.place.shard.take()
                    {
                        before = format!("{before}, {}", shard.display());
                    }
                    error.message = format!("{before}: {}", error.message);
                }
                error
            })
        });
        let opened = opened.collect::<Result<_>>()?;
        let missing = val.iter().flatten().find(|one| sources.names.is_some() && !matched.contains(*one));
        if let Some(missing) = missing {
            let message = format!("val={missing:?} matches no file of any source");
            return Err(Error::new(ErrorKind::Config, message));
        }
        DocumentSources::new(opened)
    })
}
