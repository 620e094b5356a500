//! The documents of a cache on disk, which may still be written.

use std::{ops::Range, path::Path, sync::Arc};

use super::{LeafLength, Store};
use crate::{CacheLength, CacheReader, Error, ErrorKind, Result, fields::Field, fork_lock::OnceLock};

#[derive(Debug)]
pub struct CacheStore {
    reader: CacheReader,
    split: String,
    /// Set once the cache has a document.
    fields: OnceLock<Arc<[Field]>>,
}

impl CacheStore {
    /// Opens `split` of the cache at `path`.
    ///
    /// # Errors
    /// As [`CacheReader::open`].
    pub fn open(path: &Path, split: &str) -> Result<Self> {
        let reader = CacheReader::open(path, split)?;
        Ok(Self { reader, split: split.to_owned(), fields: OnceLock::new() })
    }
}

fn rows(CacheLength { documents, is_final }: CacheLength) -> LeafLength {
    LeafLength { rows: documents, is_final }
}

impl Store for CacheStore {
    fn fields(&self) -> Result<Arc<[Field]>> {
        if let Some(fields) = self.fields.get() {
            return Ok(fields.clone());
        }
        let found = self.reader.fields();
        if found.is_empty() {
            return Err(Error::new(
                ErrorKind::State,
                "the cache has no document yet, so its fields are unknown; wait for the first one",
            ));
        }
        Ok(self.fields.get_or_init(|| found.into()).clone())
    }

    fn is_remote(&self) -> bool {
        self.reader.is_remote()
    }

    fn length(&self) -> Result<LeafLength> {
        let known = self.reader.length()?;
        if known.is_final { Ok(rows(known)) } else { self.reader.refresh().map(rows) }
    }

    fn wait(&self, documents: u64, give_up: &dyn Fn() -> bool) -> Result<LeafLength> {
        self.reader.wait_until(documents, give_up).map(rows)
    }

    fn flat_len(&self, field: usize) -> Result<u64> {
        self.reader.flat_len(field)
    }

    fn spans(&self, field: usize, documents: &[u64]) -> Result<Vec<Range<u64>>> {
        self.reader.request_ends(field, documents)?;
        let span = |&document: &u64| {
            let ends = self.reader.offsets(field, document..document + 1)?;
            Ok(ends[0]..ends[1])
        };
        documents.iter().map(span).collect()
    }

    fn shapes(&self, field: usize, documents: &[u64]) -> Result<Vec<u64>> {
        self.reader.shapes_of(field, documents)
    }

    fn document_of(&self, field: usize, at: u64) -> Result<u64> {
        self.reader.document_of(field, at)
    }

    fn read_flat(&self, field: usize, start: u64, out: &mut [u8]) -> Result<()> {
        self.reader.read_flat(field, start, out)
    }

    fn describe(&self) -> String {
        // Without the path: a state remains valid when the cache is moved.
        let fields =
            self.fields().map(|fields| fields.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
        format!("cache({}, {})", self.split, fields.unwrap_or_else(|_| "empty so far".to_owned()))
    }
}
