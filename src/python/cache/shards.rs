//! Shards and processors of both kinds: ours, which need no interpreter, and the user's, which are called with the GIL held.

use std::sync::Arc;

use pyo3::{
    prelude::*,
    pybacked::PyBackedStr,
    types::{PyDict, PyList, PyString},
};

use super::convert;
use crate::{
    Error, ErrorKind, Result,
    cache::{
        Processed,
        build::{
            Process, Processor, ReadShard, Shards,
            inputs::{Files, Rows},
            keep::Keep,
            recordings::Features,
            tokens::{self, Tokenize},
        },
    },
    python::calls::call,
};

/// Some documents before they are processed, or after, if another process did it.
pub enum Batch {
    Rows(Rows),
    Objects(Py<PyList>),
    Processed(Processed),
}

/// Where they come from.
pub enum AnyShards {
    Files(Files),
    /// For each shard a function from the number of documents to pass over to an iterator of documents.
    Iterables {
        names: Vec<String>,
        open: Vec<Py<PyAny>>,
    },
    /// For each shard a function from the number of batches to pass over to an iterator of processed batches.
    Elsewhere {
        names: Vec<String>,
        open: Vec<Py<PyAny>>,
    },
}

impl Shards for AnyShards {
    type Batch = Batch;

    fn names(&self) -> &[String] {
        match self {
            Self::Files(files) => files.names(),
            Self::Iterables { names, .. } | Self::Elsewhere { names, .. } => names,
        }
    }

    fn open(&self, shard: usize, skip: u64, size: u64) -> Result<Box<dyn ReadShard<Batch>>> {
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

struct FileShard(Box<dyn ReadShard<Rows>>);

impl ReadShard<Batch> for FileShard {
    fn next(&mut self) -> Result<Option<Batch>> {
        Ok(self.0.next()?.map(Batch::Rows))
    }

    fn part(&self) -> Option<f64> {
        self.0.part()
    }
}

struct Iterable {
    iterator: Py<PyAny>,
    size: u64,
}

impl ReadShard<Batch> for Iterable {
    fn next(&mut self) -> Result<Option<Batch>> {
        call("the shard's iterator raised an exception", |py| {
            let mut iterator = self.iterator.bind(py).try_iter()?;
            let list = PyList::empty(py);
            while (list.len() as u64) < self.size {
                let Some(document) = iterator.next() else { break };
                list.append(document?)?;
            }
            Ok((!list.is_empty()).then(|| Batch::Objects(list.unbind())))
        })
    }
}

struct Elsewhere {
    iterator: Py<PyAny>,
}

impl ReadShard<Batch> for Elsewhere {
    fn next(&mut self) -> Result<Option<Batch>> {
        call("a batch could not be processed elsewhere", |py| {
            let next = self.iterator.bind(py).try_iter()?.next();
            next.map(|batch| Ok(Batch::Processed(convert::processed(&batch?)?))).transpose()
        })
    }
}

/// What makes documents of them.
#[derive(Clone)]
pub enum AnyProcessor {
    Keep,
    Tokenize(Tokenize),
    Features(Features),
    /// A function from a list of documents to what `columns` understands, and `columns`.
    Callable(Arc<(Py<PyAny>, Py<PyAny>)>),
    /// Documents that are arrays already, and `columns`.
    Columns(Arc<Py<PyAny>>),
}

impl AnyProcessor {
    /// What tells it from others of ours; the user's tell it themselves.
    pub fn describe(&self) -> Option<String> {
        match self {
            Self::Tokenize(Tokenize { tokenizer, text_column, has_bos, field }) => Some(format!(
                "{field} = tokenizer {:016x} of {text_column}, {} BOS",
                tokenizer.fingerprint(),
                if *has_bos { "with" } else { "without" }
            )),
            Self::Features(features) => Some(format!("{:?}", features.transform.config())),
            Self::Keep => Some("none".into()),
            Self::Callable(_) | Self::Columns(_) => None,
        }
    }
}

impl Processor<Batch> for AnyProcessor {
    fn worker(&self) -> Box<dyn Process<Batch>> {
        Box::new(match self {
            Self::Keep => Worker::Rows(Box::new(Keep)),
            Self::Tokenize(tokenize) => {
                Worker::Tokens(Box::new(tokenize.worker()), tokenize.text_column.clone())
            }
            Self::Features(features) => Worker::Rows(features.worker()),
            Self::Callable(callable) => Worker::Callable(callable.clone()),
            Self::Columns(columns) => Worker::Columns(columns.clone()),
        })
    }
}

enum Worker {
    Rows(Box<dyn Process<Rows>>),
    Tokens(Box<tokens::Worker>, String),
    Callable(Arc<(Py<PyAny>, Py<PyAny>)>),
    Columns(Arc<Py<PyAny>>),
}

impl Process<Batch> for Worker {
    fn process(&mut self, batch: Batch) -> Result<Processed> {
        match (self, batch) {
            (_, Batch::Processed(processed)) => Ok(processed),
            (Self::Rows(process), Batch::Rows(rows)) => process.process(rows),
            (Self::Tokens(process, _), Batch::Rows(rows)) => process.process(rows),
            (Self::Tokens(process, column), Batch::Objects(list)) => {
                let texts = call("a document has no text", |py| texts(list.bind(py), column))?;
                process.encode(texts.iter().map(|text| &**text))
            }
            (Self::Callable(callable), batch) => {
                let (function, columns) = &**callable;
                call("the processor raised an exception, or did not return documents", |py| {
                    let documents = match batch {
                        Batch::Rows(rows) => convert::rows(py, rows)?,
                        Batch::Objects(list) => list.into_bound(py),
                        Batch::Processed(_) => PyList::empty(py),
                    };
                    let made = function.bind(py).call1((documents,))?;
                    convert::processed(&columns.bind(py).call1((made,))?)
                })
            }
            (Self::Columns(columns), Batch::Objects(list)) => {
                call("the documents are no dicts of arrays", |py| {
                    convert::processed(&columns.bind(py).call1((list,))?)
                })
            }
            (Self::Columns(_), Batch::Rows(rows)) => Keep.process(rows),
            (Self::Rows(_), Batch::Objects(_)) => {
                let message = "a transform of audio reads recordings from Parquet or Arrow files; for an iterable give a function";
                Err(Error::new(ErrorKind::Config, message))
            }
        }
    }
}

fn texts(documents: &Bound<'_, PyList>, column: &str) -> PyResult<Vec<PyBackedStr>> {
    let text = |document: Bound<'_, PyAny>| match document.cast::<PyDict>() {
        Ok(dict) => dict.as_any().get_item(PyString::new(dict.py(), column))?.extract(),
        Err(_) => document.extract(),
    };
    documents.iter().map(text).collect()
}
