//! The fields of a batch, side by side.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Buffer, BufferPool, Field};
use crate::Result;

/// One field of several rows.
#[derive(Debug, Default)]
pub struct Column {
    /// The values of all rows.
    pub values: Buffer,
    /// Of a jagged field, where each row begins, and where the last one ends: in values.
    pub offsets: Option<Vec<i64>>,
    /// Of a jagged field with more dimensions than one, those of each row.
    pub shapes: Vec<u64>,
    /// The rows of a field of text, which has nothing else.
    pub texts: Vec<Arc<str>>,
}

/// All fields of several rows.
#[derive(Debug, Default)]
pub struct Columns {
    /// How many rows.
    pub rows: usize,
    /// In the order of the fields.
    pub columns: Vec<Column>,
}

impl Columns {
    /// Bytes of all values.
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(|column| column.values.len()).sum()
    }
}

/// Memory for batches of up to so many rows.
#[derive(Debug)]
pub struct ColumnPool {
    fields: Arc<[Field]>,
    rows: usize,
    slots: usize,
    /// None for jagged fields, whose size differs from batch to batch.
    pools: Vec<Option<BufferPool>>,
}

impl ColumnPool {
    /// For batches of `rows` rows at most; the memory of at most `slots` released ones is kept.
    pub fn new(fields: Arc<[Field]>, rows: usize, slots: usize) -> Self {
        let pool = |field: &Field| {
            let bytes = field.row_bytes()?.saturating_mul(rows);
            Some(BufferPool::new(bytes, slots))
        };
        let pools = fields.iter().map(pool).collect();
        Self { fields, rows, slots, pools }
    }

    /// The fields.
    pub fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    /// Rows of a batch at most.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Batches whose memory is kept at most.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes that the stacked fields of a batch take from the system.
    pub fn mapped_bytes(&self) -> usize {
        let pools = self.pools.iter().flatten();
        pools.map(BufferPool::mapped_bytes).fold(0, usize::saturating_add)
    }

    /// Memory for field `field` of a batch: of all rows if it is stacked, else of `bytes` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the system refuses.
    pub fn acquire(&self, field: usize, bytes: usize) -> Result<Buffer> {
        match &self.pools[field] {
            Some(pool) => pool.acquire(),
            None => Buffer::new(bytes),
        }
    }
}

/// The pool of a loader, kept from pass to pass.
#[derive(Debug)]
pub struct SharedPool {
    fields: Arc<[Field]>,
    /// For the largest batches that were requested.
    current: Mutex<Option<Arc<ColumnPool>>>,
}

impl SharedPool {
    /// No memory yet.
    pub fn new(fields: impl Into<Arc<[Field]>>) -> Self {
        Self { fields: fields.into(), current: Mutex::default() }
    }

    /// The fields.
    pub fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    /// A pool for batches of `rows` rows that keeps the memory of `slots` of them: the one of earlier passes,
    /// if it does. So a smaller batch that is made aside does not replace it.
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
