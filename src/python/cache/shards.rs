//! Shards and processors of a build: the core's, which need no interpreter, and the user's, which are called
//! with the GIL held.

use std::sync::Arc;

use pyo3::{
    exceptions::{PyException, PyMemoryError, PyOSError},
    prelude::*,
    pybacked::PyBackedStr,
    types::{PyDict, PyList, PyString},
};

use serde_json::Value;

use super::convert;
use crate::{
    Error, ErrorKind, Result,
    cache::{
        Processed,
        build::{
            DocumentPiece, Process, Processor, ReadShard, Shards, Skips,
            inputs::{Files, InputRows},
            passthrough::Passthrough,
            recordings::FeatureBuilder,
            tokens::{self, Tokenize},
        },
    },
    python::calls::call,
};

/// Some documents before processing, or after it if another process has processed them.
pub enum DocumentBatch {
    Rows(InputRows),
    Objects(Py<PyList>),
    Processed(Processed),
}

pub enum AnyShards {
    Files(Files),
    /// For each shard a function from the number of documents to skip to an iterator of documents.
    Iterables {
        names: Vec<String>,
        open: Vec<Py<PyAny>>,
    },
    /// For each shard a function from the number of batches to skip to an iterator of processed batches.
    Elsewhere {
        names: Vec<String>,
        open: Vec<Py<PyAny>>,
    },
}

impl Shards for AnyShards {
    type Batch = DocumentBatch;

    fn names(&self) -> &[String] {
        match self {
            Self::Files(files) => files.names(),
            Self::Iterables { names, .. } | Self::Elsewhere { names, .. } => names,
        }
    }

    fn open(&self, shard: usize, skip: u64, size: u64) -> Result<Box<dyn ReadShard<DocumentBatch>>> {
        let iterator = |open: &Py<PyAny>, skip: u64| {
            call("the shard cannot be opened", |py| {
                open.bind(py).call1((skip,))?.try_iter().map(|it| it.unbind().into_any())
            })
        };
        Ok(match self {
            Self::Files(files) => Box::new(FileShard(files.open(shard, skip, size)?)),
            Self::Iterables { open, .. } => {
                Box::new(Iterable { iterator: iterator(&open[shard], skip * size)?, size })
            }
            Self::Elsewhere { open, .. } => Box::new(Elsewhere { iterator: iterator(&open[shard], skip)? }),
        })
    }
}

struct FileShard(Box<dyn ReadShard<InputRows>>);

impl ReadShard<DocumentBatch> for FileShard {
    fn next(&mut self, skips: &mut Skips<'_>) -> Result<Option<DocumentPiece<DocumentBatch>>> {
        let piece = self.0.next(skips)?;
        Ok(piece.map(|DocumentPiece { documents, rows, ends_batch }| DocumentPiece {
            documents: DocumentBatch::Rows(documents),
            rows,
            ends_batch,
        }))
    }

    fn part(&self) -> Option<f64> {
        self.0.part()
    }
}

struct Iterable {
    iterator: Py<PyAny>,
    size: u64,
}

impl ReadShard<DocumentBatch> for Iterable {
    fn next(&mut self, _skips: &mut Skips<'_>) -> Result<Option<DocumentPiece<DocumentBatch>>> {
        call("the shard's iterator raised an exception", |py| {
            let mut iterator = self.iterator.bind(py).try_iter()?;
            let list = PyList::empty(py);
            while (list.len() as u64) < self.size {
                let Some(document) = iterator.next() else { break };
                list.append(document?)?;
            }
            let rows = list.len() as u64;
            Ok((rows > 0).then(|| DocumentPiece::whole(DocumentBatch::Objects(list.unbind()), rows)))
        })
    }
}

struct Elsewhere {
    iterator: Py<PyAny>,
}

impl ReadShard<DocumentBatch> for Elsewhere {
    fn next(&mut self, skips: &mut Skips<'_>) -> Result<Option<DocumentPiece<DocumentBatch>>> {
        let next = call("another process failed to process a batch", |py| {
            let Some(next) = self.iterator.bind(py).try_iter()?.next() else { return Ok(None) };
            let (batch, left_out): (Bound<'_, PyAny>, Vec<convert::LeftOutTuple>) = next?.extract()?;
            Ok(Some((convert::processed(&batch)?, left_out)))
        })?;
        let Some((processed, left_out)) = next else { return Ok(None) };
        left_out.into_iter().try_for_each(|one| skips.leave_out(convert::error(one)))?;
        // The worker that read the rows reports them, so they are not counted here.
        Ok(Some(DocumentPiece::whole(DocumentBatch::Processed(processed), 0)))
    }
}

#[derive(Clone)]
pub enum AnyProcessor {
    Passthrough,
    Tokenize(Tokenize),
    Features(FeatureBuilder),
    /// The user's function from a list of documents to processed ones, and `columns`, which converts its
    /// result.
    Callable(Arc<(Py<PyAny>, Py<PyAny>)>),
    /// Only `columns`, for documents that are arrays already.
    Columns(Arc<Py<PyAny>>),
}

impl AnyProcessor {
    /// The identity of a processor of the core; a user's function provides its own.
    pub fn describe(&self) -> Option<Value> {
        match self {
            Self::Tokenize(Tokenize { tokenizer, text_column, bos, field, .. }) => {
                let (hash, with) = (tokenizer.fingerprint(), if bos.is_some() { "with" } else { "without" });
                Some(format!("{field} = tokenizer {hash:016x} of {text_column}, {with} BOS").into())
            }
            Self::Features(features) => Some(features.description().clone()),
            Self::Passthrough => Some("none".into()),
            Self::Callable(_) | Self::Columns(_) => None,
        }
    }
}

impl Processor<DocumentBatch> for AnyProcessor {
    fn worker(&self) -> Box<dyn Process<DocumentBatch>> {
        Box::new(match self {
            Self::Passthrough => ShardWorker::Rows(Box::new(Passthrough)),
            Self::Tokenize(tokenize) => {
                ShardWorker::Tokens(Box::new(tokenize.worker()), tokenize.text_column.clone())
            }
            Self::Features(features) => ShardWorker::Rows(features.worker()),
            Self::Callable(callable) => ShardWorker::Callable(callable.clone()),
            Self::Columns(columns) => ShardWorker::Columns(columns.clone()),
        })
    }
}

enum ShardWorker {
    Rows(Box<dyn Process<InputRows>>),
    Tokens(Box<tokens::TokenizeWorker>, String),
    Callable(Arc<(Py<PyAny>, Py<PyAny>)>),
    Columns(Arc<Py<PyAny>>),
}

impl Process<DocumentBatch> for ShardWorker {
    fn process(&mut self, batch: DocumentBatch, skips: &mut Skips<'_>) -> Result<Processed> {
        match (self, batch) {
            (_, DocumentBatch::Processed(processed)) => Ok(processed),
            (Self::Rows(process), DocumentBatch::Rows(rows)) => process.process(rows, skips),
            (Self::Tokens(process, _), DocumentBatch::Rows(rows)) => process.process(rows, skips),
            (Self::Tokens(process, column), DocumentBatch::Objects(list)) => {
                let leaves_out = skips.leaves_out();
                let texts = call("a document has no text", |py| texts(list.bind(py), column, leaves_out))?;
                process.encode(texts.into_iter(), skips)
            }
            (Self::Callable(callable), batch) => {
                let (function, columns) = &**callable;
                called(batch, Some(function), columns, skips)
            }
            (Self::Columns(columns), batch @ DocumentBatch::Objects(_)) => {
                called(batch, None, columns, skips)
            }
            (Self::Columns(_), DocumentBatch::Rows(rows)) => Passthrough.process(rows, skips),
            (Self::Rows(_), DocumentBatch::Objects(_)) => {
                let message = "a front end reads recordings from Parquet or Arrow files; for an iterable pass a function";
                Err(Error::new(ErrorKind::Config, message))
            }
        }
    }
}

/// Why a function has no result for some documents.
struct Refusal {
    what: &'static str,
    raised: PyErr,
    /// The first document, of those in the batch, for which the function has no result alone.
    row: Option<u64>,
}

/// The result of `function` for a batch. If there is none, each document is tried alone. If documents may be
/// left out, those without a result are, and the others are processed together, as if the batch held only
/// these. Otherwise the error names the first document without a result.
fn called(
    batch: DocumentBatch,
    function: Option<&Py<PyAny>>,
    columns: &Py<PyAny>,
    skips: &mut Skips<'_>,
) -> Result<Processed> {
    let leaves_out = skips.leaves_out();
    let wrong = match function {
        Some(_) => "the processor did not return documents",
        None => "the documents are not dicts of arrays",
    };
    let tried = |py: Python<'_>| -> Result<(Processed, Vec<(u64, String)>), Refusal> {
        let refusal = |what| move |raised| Refusal { what, raised, row: None };
        let make = |documents: &Bound<'_, PyList>| {
            let made = match function {
                Some(function) => {
                    let made = function.bind(py).call1((documents,));
                    &made.map_err(refusal("the processor raised an exception"))?
                }
                None => documents.as_any(),
            };
            columns.bind(py).call1((made,)).and_then(|made| convert::processed(&made)).map_err(refusal(wrong))
        };
        let documents = match batch {
            DocumentBatch::Rows(rows) => {
                convert::rows(py, rows).map_err(refusal("the documents cannot be converted to Python"))?
            }
            DocumentBatch::Objects(list) => list.into_bound(py),
            DocumentBatch::Processed(_) => PyList::empty(py),
        };
        let first = match make(&documents) {
            Err(refusal) if is_verdict(py, &refusal.raised) => refusal,
            made => return Ok((made?, Vec::new())),
        };
        let (good, mut refused) = (PyList::empty(py), Vec::new());
        for (row, document) in documents.iter().enumerate() {
            let row = row as u64;
            let alone = PyList::new(py, [&document]).map_err(refusal("the documents cannot be listed"))?;
            match make(&alone) {
                Ok(_) => good.append(document).map_err(refusal("the documents cannot be listed"))?,
                Err(found) if leaves_out && is_verdict(py, &found.raised) => {
                    refused.push((row, found.raised.to_string()));
                }
                Err(found) => return Err(Refusal { row: Some(row), ..found }),
            }
        }
        match (refused.is_empty(), good.is_empty()) {
            // The error is not caused by one document.
            (true, _) => Err(first),
            (false, true) => Ok((Processed::default(), refused)),
            (false, false) => Ok((make(&good)?, refused)),
        }
    };
    let (processed, refused) =
        call(wrong, |py| Ok(tried(py)))?.map_err(|Refusal { what, raised, row }| {
            let error = Error::new(ErrorKind::Callback, what).because(raised);
            match row {
                Some(row) => skips.placed(row, error),
                None => error,
            }
        })?;
    for (row, reason) in refused {
        skips.refused(row, Error::new(ErrorKind::Callback, reason))?;
    }
    Ok(processed)
}

/// Whether the documents caused the exception, and not a system failure or an interrupt.
fn is_verdict(py: Python<'_>, raised: &PyErr) -> bool {
    raised.is_instance_of::<PyException>(py)
        && !raised.is_instance_of::<PyOSError>(py)
        && !raised.is_instance_of::<PyMemoryError>(py)
}

/// The text of each document, or the reason why it has none.
fn texts(
    documents: &Bound<'_, PyList>,
    column: &str,
    leaves_out: bool,
) -> PyResult<Vec<Result<PyBackedStr>>> {
    let text = |document: Bound<'_, PyAny>| -> PyResult<PyBackedStr> {
        match document.cast::<PyDict>() {
            Ok(dict) => dict.as_any().get_item(PyString::new(dict.py(), column))?.extract(),
            Err(_) => document.extract(),
        }
    };
    let kept = |document| match text(document) {
        Err(raised) if leaves_out => {
            let message = format!("the document has no text: {raised}");
            Ok(Err(Error::new(ErrorKind::Unreadable, message)))
        }
        text => text.map(Ok),
    };
    documents.iter().map(kept).collect()
}
