//! Documents of a store as rows.
//!
//! A [`Store`] has, for each field, the concatenated values of all documents, and the end of each document: a
//! cache on disk, or a list in memory. Documents of a batch that are adjacent in the store are one read; the
//! others are read in storage order.

use std::{fmt, ops::Range, sync::Arc};

use super::{Leaf, LeafLength, LeafSelection};
use crate::{Result, fallible_alloc, fields::Field, parallel, storage::urls};

/// Documents as one array for each field: their concatenated values.
pub trait Store: fmt::Debug + Send + Sync {
    /// As [`Leaf::fields`].
    ///
    /// # Errors
    /// As [`Leaf::fields`].
    fn fields(&self) -> Result<Arc<[Field]>>;

    fn is_remote(&self) -> bool {
        false
    }

    /// As [`Leaf::length`], in documents.
    ///
    /// # Errors
    /// As [`Leaf::length`].
    fn length(&self) -> Result<LeafLength>;

    /// As [`Leaf::wait`], in documents.
    ///
    /// # Errors
    /// As [`Leaf::wait`].
    fn wait(&self, documents: u64, give_up: &dyn Fn() -> bool) -> Result<LeafLength>;

    /// The current number of a field's values.
    ///
    /// # Errors
    /// If they cannot be counted.
    fn flat_len(&self, field: usize) -> Result<u64>;

    /// The range of each document's values.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Index`] if there is no such document.
    fn spans(&self, field: usize, documents: &[u64]) -> Result<Vec<Range<u64>>>;

    /// The shapes of documents, for a field of several dimensions.
    ///
    /// # Errors
    /// As [`Store::spans`].
    fn shapes(&self, field: usize, documents: &[u64]) -> Result<Vec<u64>>;

    /// The document that holds value `at` of a field.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Index`] if there is no such value.
    fn document_of(&self, field: usize, at: u64) -> Result<u64>;

    /// Fills `out` with the values from `start` on.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read_flat(&self, field: usize, start: u64, out: &mut [u8]) -> Result<()>;

    /// A description that identifies the store, independent of where it is.
    fn describe(&self) -> String;
}

/// Each document of a store is a row.
#[derive(Debug)]
pub struct DocumentLeaf(pub Arc<dyn Store>);

impl Leaf for DocumentLeaf {
    fn fields(&self) -> Result<Arc<[Field]>> {
        self.0.fields()
    }

    fn is_remote(&self) -> bool {
        self.0.is_remote()
    }

    fn length(&self) -> Result<LeafLength> {
        self.0.length()
    }

    fn wait(&self, rows: u64, give_up: &dyn Fn() -> bool) -> Result<LeafLength> {
        self.0.wait(rows, give_up)
    }

    fn select<'a>(&'a self, rows: &[u64]) -> Result<Box<dyn LeafSelection + 'a>> {
        let fields = self.0.fields()?;
        Ok(Box::new(StoreSelection {
            store: &*self.0,
            rows: rows.to_vec(),
            // bounded: as many as there are fields.
            spans: vec![None; fields.len()],
            fields,
        }))
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

struct StoreSelection<'a> {
    store: &'a dyn Store,
    fields: Arc<[Field]>,
    rows: Vec<u64>,
    /// By field, once requested.
    spans: Vec<Option<Vec<Range<u64>>>>,
}

impl StoreSelection<'_> {
    fn spans(&mut self, field: usize) -> Result<&[Range<u64>]> {
        let known = &mut self.spans[field];
        if known.is_none() {
            *known = Some(self.store.spans(field, &self.rows)?);
        }
        Ok(known.as_deref().unwrap_or_default())
    }
}

impl LeafSelection for StoreSelection<'_> {
    fn shapes(&mut self, field: usize) -> Result<Vec<u64>> {
        if self.fields[field].rank() > 1 {
            return self.store.shapes(field, &self.rows);
        }
        Ok(self.spans(field)?.iter().map(|span| span.end - span.start).collect())
    }

    fn read(&mut self, field: usize, places: &[usize], data: &mut [u8]) -> Result<()> {
        let size = self.fields[field].dtype.bytes();
        let spans: Vec<_> = self.spans(field)?.iter().cloned().zip(places.iter().copied()).collect();
        read_spans(self.store, field, size, spans, data)
    }
}

/// Reads spans of a field in storage order, each to its place in `data`. Spans adjacent in both are one read.
pub(super) fn read_spans(
    store: &dyn Store,
    field: usize,
    size: usize,
    mut spans: Vec<(Range<u64>, usize)>,
    data: &mut [u8],
) -> Result<()> {
    spans.retain(|(span, _)| !span.is_empty());
    spans.sort_unstable_by_key(|(span, _)| span.start);
    let bytes = |span: &Range<u64>| (span.end - span.start) as usize * size;
    if store.is_remote() {
        // All requests at once: one after the other, their latencies would add up.
        let read = parallel::each("forebay-read", &spans, urls::THREADS, |(span, _)| {
            let mut read = fallible_alloc::zero_bytes(bytes(span))?;
            store.read_flat(field, span.start, &mut read).map(|()| read)
        })?;
        for ((_, place), read) in spans.into_iter().zip(read) {
            data[place..place + read.len()].copy_from_slice(&read);
        }
        return Ok(());
    }
    let mut rest = spans.into_iter().peekable();
    while let Some((mut span, place)) = rest.next() {
        while let Some((next, _)) =
            rest.next_if(|(next, at)| next.start == span.end && *at == place + bytes(&span))
        {
            span.end = next.end;
        }
        store.read_flat(field, span.start, &mut data[place..place + bytes(&span)])?;
    }
    Ok(())
}
