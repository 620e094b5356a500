//! Windows of equal length over the concatenated values of all documents.
//!
//! Row i is `values[i · L .. (i + 1) · L]`. Windows cross boundaries of documents and do not overlap; a
//! shorter rest at the end is left out. There is no target beside the inputs: training on windows shifts
//! inside the loss.

use std::sync::Arc;

use super::{Leaf, LeafLength, LeafSelection, Store, store::read_spans};
use crate::{Error, ErrorKind, Result, fallible_alloc, fields::DataType, fields::Field};

/// Windows over one field of a store.
#[derive(Debug)]
pub struct TokenLeaf {
    store: Arc<dyn Store>,
    field: String,
    length: u64,
    has_doc_ids: bool,
}

impl TokenLeaf {
    /// Windows of `length` values. With `has_doc_ids`, a field `doc_ids` numbers the document of each value
    /// within its window.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if `length` is out of range, or the store has no such field.
    pub fn new(store: Arc<dyn Store>, field: &str, length: u64, has_doc_ids: bool) -> Result<Self> {
        if !(1..=1 << 32).contains(&length) {
            let message = format!("max_seq_len is {length}, must be 1 to {}", 1u64 << 32);
            return Err(Error::new(ErrorKind::Config, message));
        }
        let leaf = Self { store, field: field.to_owned(), length, has_doc_ids };
        match leaf.number() {
            // The fields of an empty store may be unknown.
            Err(error) if error.kind != ErrorKind::State => Err(error),
            _ => Ok(leaf),
        }
    }

    /// The field's index in the store, and its type.
    fn number(&self) -> Result<(usize, DataType)> {
        let fields = self.store.fields()?;
        let found = fields.iter().position(|field| field.name == self.field);
        let at = found.ok_or_else(|| {
            let names: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
            let message = format!(
                "there is no field {:?} in {}; the fields are {}; name one with field=",
                self.field,
                self.store.describe(),
                names.join(", ")
            );
            Error::new(ErrorKind::Config, message)
        })?;
        if fields[at].rank() != 1 {
            let message = format!("windows need a field of one dimension, not {}", fields[at]);
            return Err(Error::new(ErrorKind::Config, message));
        }
        Ok((at, fields[at].dtype))
    }
}

impl Leaf for TokenLeaf {
    fn fields(&self) -> Result<Arc<[Field]>> {
        let field = |name: &str, dtype| Field::stacked(name, dtype, [self.length]);
        let mut fields = vec![field(&self.field, self.number()?.1)];
        if self.has_doc_ids {
            fields.push(field("doc_ids", DataType::Int32));
        }
        Ok(fields.into())
    }

    fn is_remote(&self) -> bool {
        self.store.is_remote()
    }

    fn length(&self) -> Result<LeafLength> {
        // The length before the values: if the length is final, no value is missed.
        let documents = self.store.length()?;
        if documents.rows == 0 {
            return Ok(LeafLength { rows: 0, ..documents });
        }
        Ok(LeafLength { rows: self.store.flat_len(self.number()?.0)? / self.length, ..documents })
    }

    fn wait(&self, rows: u64, give_up: &dyn Fn() -> bool) -> Result<LeafLength> {
        loop {
            let documents = self.store.length()?;
            let length = self.length()?;
            if length.is_final || length.rows >= rows || give_up() {
                return Ok(length);
            }
            self.store.wait(documents.rows + 1, give_up)?;
        }
    }

    fn select<'a>(&'a self, rows: &[u64]) -> Result<Box<dyn LeafSelection + 'a>> {
        let (field, dtype) = self.number()?;
        Ok(Box::new(WindowSelection { leaf: self, field, size: dtype.bytes(), rows: rows.to_vec() }))
    }

    fn describe(&self) -> String {
        let ids = if self.has_doc_ids { ", doc_ids" } else { "" };
        format!("windows({}, {}, {}{ids})", self.store.describe(), self.field, self.length)
    }
}

struct WindowSelection<'a> {
    leaf: &'a TokenLeaf,
    field: usize,
    size: usize,
    rows: Vec<u64>,
}

impl LeafSelection for WindowSelection<'_> {
    fn shapes(&mut self, _field: usize) -> Result<Vec<u64>> {
        fallible_alloc::filled(self.rows.len(), self.leaf.length)
    }

    fn read(&mut self, field: usize, places: &[usize], data: &mut [u8]) -> Result<()> {
        let length = self.leaf.length;
        let store = &*self.leaf.store;
        if field == 0 {
            let spans =
                self.rows.iter().zip(places).map(|(row, &place)| (row * length..(row + 1) * length, place));
            return read_spans(store, self.field, self.size, spans.collect(), data);
        }
        for (row, &place) in self.rows.iter().zip(places) {
            let mut ids =
                data[place..place + length as usize * size_of::<i32>()].chunks_exact_mut(size_of::<i32>());
            let (mut at, end) = (row * length, (row + 1) * length);
            let mut number = 0i32;
            let mut document = store.document_of(self.field, at)?;
            while at < end {
                let span = &store.spans(self.field, &[document])?[0];
                let part = span.end.min(end).saturating_sub(at);
                // A document without tokens gets no number.
                if part > 0 {
                    ids.by_ref().take(part as usize).for_each(|id| id.copy_from_slice(&number.to_ne_bytes()));
                    number += 1;
                    at += part;
                }
                document += 1;
            }
        }
        Ok(())
    }
}
