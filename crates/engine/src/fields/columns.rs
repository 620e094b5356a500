//! [`Columns`]: the fields of a batch, and the pools of their memory.

use std::sync::{Arc, PoisonError};

use super::{Buffer, BufferPool, Field};
use crate::Result;
use crate::sync::plain::Mutex;

#[derive(Debug, Default)]
pub struct Column {
    pub values: Buffer,
    /// For a jagged field, where each row begins and the last one ends, in values; for lists of texts, in
    /// texts.
    pub offsets: Option<Vec<i64>>,
    /// For a jagged field with several dimensions, the shape of each row.
    pub shapes: Vec<u64>,
    /// For a field with a padded axis, the length of that axis in this batch.
    pub padded_len: u64,
    /// For a field of text, its rows, or the items of all rows; the values are empty.
    pub texts: Vec<Arc<str>>,
}

#[derive(Debug, Default)]
pub struct Columns {
    pub rows: usize,
    /// The columns, in the order of the fields.
    pub columns: Vec<Column>,
}

impl Columns {
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(|column| column.values.len()).sum()
    }
}

/// Memory for batches with a maximum number of rows.
#[derive(Debug)]
pub struct ColumnPool {
    fields: Arc<[Field]>,
    rows: usize,
    slots: usize,
    /// `None` for jagged fields, whose size has no bound.
    pools: Vec<Option<BufferPool>>,
}

impl ColumnPool {
    /// Creates a pool for batches of up to `rows` rows. It keeps the memory of at most `slots` released
    /// batches.
    pub fn new(fields: Arc<[Field]>, rows: usize, slots: usize) -> Self {
        let pool = |field: &Field| Some(BufferPool::new(field.batch_bytes(rows)?, slots));
        let pools = fields.iter().map(pool).collect();
        Self { fields, rows, slots, pools }
    }

    pub fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    /// The maximum number of rows of a batch.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The maximum number of released batches whose memory is kept.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes that the stacked fields of a batch map or allocate at most.
    pub fn mapped_bytes(&self) -> usize {
        let pools = self.pools.iter().flatten();
        pools.map(BufferPool::mapped_bytes).fold(0, usize::saturating_add)
    }

    /// Memory for field number `field` of a batch: for as many rows as there may be if it is stacked, else of
    /// `bytes` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the allocation fails.
    pub fn acquire(&self, field: usize, bytes: usize) -> Result<Buffer> {
        match &self.pools[field] {
            Some(pool) => pool.acquire(),
            None => Buffer::new(bytes),
        }
    }
}

/// The pool of a loader, shared by all its passes.
#[derive(Debug)]
pub struct SharedPool {
    fields: Arc<[Field]>,
    /// The pool for the largest batches requested so far.
    current: Mutex<Option<Arc<ColumnPool>>>,
}

impl SharedPool {
    /// Creates it without memory.
    pub fn new(fields: impl Into<Arc<[Field]>>) -> Self {
        Self { fields: fields.into(), current: Mutex::default() }
    }

    pub fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    /// A pool for batches of `rows` rows that keeps the memory of `slots` of them: the pool of earlier
    /// passes, if it is large enough. So a smaller batch that is made apart does not replace it.
    pub fn serving(&self, rows: usize, slots: usize) -> Arc<ColumnPool> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = current
            .take()
            .filter(|pool| pool.rows >= rows && pool.slots >= slots)
            .unwrap_or_else(|| Arc::new(ColumnPool::new(self.fields.clone(), rows, slots)));
        current.insert(pool).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::DataType;

    #[test]
    fn passes_share_their_memory() {
        let shared = SharedPool::new([Field::number("label", DataType::Int64)]);
        assert_eq!(shared.serving(3, 1).rows(), 3);
        let pool = shared.serving(64, 7);
        assert_eq!((pool.rows(), pool.slots()), (64, 7));
        assert!(Arc::ptr_eq(&pool, &shared.serving(3, 5)));
        assert!(Arc::ptr_eq(&pool, &shared.serving(64, 7)));
        assert_eq!(shared.serving(64, 12).slots(), 12);
    }
}
