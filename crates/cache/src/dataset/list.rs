//! Documents in memory: a small dataset, or one that grows while it is read.

use std::{
    ops::Range,
    sync::{Arc, PoisonError},
    time::Duration,
};

use super::{LeafLength, Store};
use crate::{
    Error, ErrorKind, Result, fallible_alloc,
    fields::{DataType, Field},
    fork_lock,
    sync::plain::{Condvar, MutexGuard},
};

/// How long a wait sleeps between calls of `give_up`.
const SLICE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct ListStore {
    fields: Arc<[Field]>,
    held: fork_lock::Mutex<ListState>,
    changed: Condvar,
}

#[derive(Debug)]
struct ListState {
    documents: u64,
    is_final: bool,
    columns: Vec<ListField>,
}

#[derive(Debug, Default)]
struct ListField {
    data: Vec<u8>,
    /// The end of each document in `data`, in values.
    ends: Vec<u64>,
    shapes: Vec<u64>,
}

impl ListStore {
    pub fn new(fields: Vec<Field>) -> Self {
        let columns = fields.iter().map(|_| ListField::default()).collect();
        let held = ListState { documents: 0, is_final: false, columns };
        Self { fields: fields.into(), held: fork_lock::Mutex::new(held), changed: Condvar::new() }
    }

    fn lock(&self) -> Result<MutexGuard<'_, ListState>> {
        fork_lock::lock(&self.held)
    }

    /// Adds a document: shape and values of each field.
    ///
    /// # Errors
    /// [`ErrorKind::State`] after [`ListStore::finish`], [`ErrorKind::Shape`] if the document does not match
    /// the fields.
    pub fn append(&self, document: &[(Vec<u64>, &[u8])]) -> Result<()> {
        let wrong = |message: String| Err(Error::new(ErrorKind::Shape, message));
        if document.len() != self.fields.len() {
            return wrong(format!(
                "the document has {} fields, expected {}",
                document.len(),
                self.fields.len()
            ));
        }
        for (field, (shape, bytes)) in self.fields.iter().zip(document) {
            let is_like_all = field.shape().is_none_or(|all| all == *shape);
            if shape.len() != field.rank() || !is_like_all {
                return wrong(format!("the document has shape {shape:?} in the field {field}"));
            }
            let values = shape.iter().fold(1, |values, &axis| u64::saturating_mul(values, axis));
            let expected = values.saturating_mul(field.dtype.bytes() as u64);
            if bytes.len() as u64 != expected {
                return wrong(format!("{} bytes, expected {expected} in the field {field}", bytes.len()));
            }
        }
        let mut held = self.lock()?;
        if held.is_final {
            return Err(Error::new(ErrorKind::State, "the list is finished; no documents can be added"));
        }
        // Allocates first, so that a failed allocation adds no part of a document.
        for (column, (shape, bytes)) in held.columns.iter_mut().zip(document) {
            fallible_alloc::grow(&mut column.data, bytes.len())?;
            fallible_alloc::grow(&mut column.ends, 1)?;
            fallible_alloc::grow(&mut column.shapes, shape.len())?;
        }
        for (column, (shape, bytes)) in held.columns.iter_mut().zip(document) {
            column.data.extend_from_slice(bytes);
            column.ends.push(column.ends.last().copied().unwrap_or(0) + shape.iter().product::<u64>());
            column.shapes.extend_from_slice(shape);
        }
        held.documents += 1;
        self.changed.notify_all();
        Ok(())
    }

    /// Marks the list as complete.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after a fork, if a thread of the parent held the list's lock.
    pub fn finish(&self) -> Result<()> {
        self.lock()?.is_final = true;
        self.changed.notify_all();
        Ok(())
    }
}

impl ListState {
    fn length(&self) -> LeafLength {
        LeafLength { rows: self.documents, is_final: self.is_final }
    }

    fn span(&self, field: usize, document: u64) -> Result<Range<u64>> {
        let ends = &self.columns[field].ends;
        match ends.get(document as usize) {
            Some(&end) => Ok(document.checked_sub(1).map_or(0, |before| ends[before as usize])..end),
            None => {
                let message = format!("there is no document {document} among {}", self.documents);
                Err(Error::new(ErrorKind::Index, message))
            }
        }
    }
}

impl Store for ListStore {
    fn fields(&self) -> Result<Arc<[Field]>> {
        Ok(self.fields.clone())
    }

    fn length(&self) -> Result<LeafLength> {
        Ok(self.lock()?.length())
    }

    fn wait(&self, documents: u64, give_up: &dyn Fn() -> bool) -> Result<LeafLength> {
        let mut held = self.lock()?;
        while !held.is_final && held.documents < documents && !give_up() {
            held = self.changed.wait_timeout(held, SLICE).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(held.length())
    }

    fn flat_len(&self, field: usize) -> Result<u64> {
        Ok(self.lock()?.columns[field].ends.last().copied().unwrap_or(0))
    }

    fn spans(&self, field: usize, documents: &[u64]) -> Result<Vec<Range<u64>>> {
        let held = self.lock()?;
        documents.iter().map(|&document| held.span(field, document)).collect()
    }

    fn shapes(&self, field: usize, documents: &[u64]) -> Result<Vec<u64>> {
        let held = self.lock()?;
        let rank = self.fields[field].rank();
        let mut shapes = fallible_alloc::with_room(documents.len().saturating_mul(rank))?;
        for &document in documents {
            held.span(field, document)?;
            let first = document as usize * rank;
            shapes.extend_from_slice(&held.columns[field].shapes[first..first + rank]);
        }
        Ok(shapes)
    }

    fn document_of(&self, field: usize, at: u64) -> Result<u64> {
        let held = self.lock()?;
        let document = held.columns[field].ends.partition_point(|&end| end <= at) as u64;
        held.span(field, document).map(|_| document)
    }

    fn read_flat(&self, field: usize, start: u64, out: &mut [u8]) -> Result<()> {
        let held = self.lock()?;
        let begin = start as usize * self.fields[field].dtype.bytes();
        match held.columns[field].data.get(begin..begin + out.len()) {
            Some(values) => out.copy_from_slice(values),
            None => {
                let message = format!("values from {start} on are past the end of {}", self.fields[field]);
                return Err(Error::new(ErrorKind::Index, message));
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let fields: Vec<_> = self.fields.iter().map(ToString::to_string).collect();
        format!("list({})", fields.join(", "))
    }
}

/// Lists of tokens, for tests and benches.
impl ListStore {
    /// A finished list of documents with one field, `name`, of `int32`.
    ///
    /// # Errors
    /// None in practice.
    pub fn of_tokens(name: &str, documents: &[Vec<i32>]) -> Result<Self> {
        let list = Self::new(vec![Field::jagged(name, DataType::Int32, 1)]);
        for document in documents {
            let bytes: Vec<u8> = document.iter().flat_map(|id| id.to_ne_bytes()).collect();
            list.append(&[(vec![document.len() as u64], &bytes)])?;
        }
        list.finish()?;
        Ok(list)
    }
}
