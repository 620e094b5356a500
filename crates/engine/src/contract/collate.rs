//! [`Collate`]: the stage that puts examples into batches; [`PackRows`], which decides how many.

use std::sync::Arc;

use crate::Result;

/// A record that a collator holds for later batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CarriedRecord {
    /// The row number over the files as given.
    pub row: u64,
    /// How much of its example is in batches already, in the collator's unit.
    pub used: u32,
    /// The pass of its stream that its example depends on, in which it is read again; 0 if it depends on
    /// none.
    pub epoch: u64,
}

/// The position of a stream between two batches, if its batches take as many records as they need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamPosition {
    pub draws: u64,
    pub share: StreamShare,
    /// The records that the collator holds, in the collator's order.
    pub held: Vec<CarriedRecord>,
}

/// What a collator that chooses among streams knows of one of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamShare {
    /// What it has taken from the stream, in its own unit.
    pub taken: u64,
    /// Whether it was told that the stream has no further record in this pass.
    pub is_over: bool,
}

/// The [`StreamPosition`] of each stream of a rank.
pub type StreamPositions = Arc<[StreamPosition]>;

/// The place of an example in the current batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSlot {
    pub stream: usize,
    /// The row, if the order determines it.
    pub row: usize,
    /// The number of its draw in the batch. Rows after a bad record of a finite pass have smaller numbers.
    pub draw: usize,
}

impl BatchSlot {
    /// The place of an example in a batch of one stream without bad records.
    pub fn at_row(row: usize) -> Self {
        Self { stream: 0, row, draw: row }
    }
}

/// Puts examples into the rows of a batch.
pub trait Collate: Send {
    type Example: Send + 'static;
    type Batch: Send + 'static;

    /// Whether a batch of a finite pass without rows, since all its records are bad, is left out if there are
    /// no other ranks. False for tasks that number the batches by their hand-over.
    const LEAVES_OUT_EMPTY: bool = true;

    /// Adds `example` to the current batch: in the row of `slot`, each row once, or wherever a [`PackRows`]
    /// puts it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Memory`] if the batch cannot be allocated, which ends the run.
    fn put(&mut self, slot: BatchSlot, example: Self::Example) -> Result<()>;

    /// Called before [`Collate::take`], with the same number of rows: allocates what only a complete batch
    /// shows.
    ///
    /// # Errors
    /// As [`Collate::put`].
    fn complete(&mut self, _rows: usize) -> Result<()> {
        Ok(())
    }

    /// Returns the current batch, cut to its first `rows` rows, and begins the next.
    fn take(&mut self, rows: usize) -> Self::Batch;

    /// The number of examples in `batch`, as the user counts them; the batch was cut to `rows`.
    fn examples(_batch: &Self::Batch, rows: usize) -> usize {
        rows
    }

    /// Decides how many examples a batch takes, with [`Batching::Collator`](crate::order::Batching).
    fn packer(&mut self) -> Option<&mut dyn PackRows<Example = Self::Example>> {
        None
    }
}

/// Takes as many examples of each stream as it needs to fill a batch, in the order that it chooses, and may
/// hold some for later batches.
pub trait PackRows {
    type Example;

    /// Fills the current batch as far as possible, and returns the stream of which it needs another example;
    /// `None` if the batch is complete, or no stream has more.
    ///
    /// # Errors
    /// As [`Collate::put`].
    fn wants(&mut self) -> Result<Option<usize>>;

    /// Called once before all else: the number of the first batch, and the shares of the streams before it,
    /// as [`PackRows::share`].
    fn begin(&mut self, _batch: u64, _shares: &[StreamShare]) {}

    /// What the next choice of a stream depends on, in [`StreamPosition::share`].
    fn share(&self, _stream: usize) -> StreamShare {
        StreamShare::default()
    }

    /// Called instead of [`Collate::put`] if the next record of `stream` is bad; `row` is counted over the
    /// files as given.
    fn miss(&mut self, _stream: usize, _row: u64) {}

    /// Called when `stream` has no further example in this pass.
    fn end(&mut self, stream: usize);

    /// The number of complete rows of the current batch.
    fn rows(&self) -> usize;

    /// Called when the pass has no further batch: what is held, and rows that make no batch, are left out.
    fn finish(&mut self) {}

    /// The records of `stream` that it holds between two batches.
    fn held(&self, stream: usize) -> Vec<CarriedRecord>;

    /// Restores a held record of `stream`; called once for each, in the order of [`PackRows::held`].
    ///
    /// # Errors
    /// [`crate::ErrorKind::State`] if the example cannot have been used so far.
    fn hold(&mut self, stream: usize, held: CarriedRecord, example: Self::Example) -> Result<()>;
}

/// The number and size of the batches that a collator makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSizes {
    /// The most rows of a batch.
    pub size: usize,
    /// Streams that fill a batch.
    pub n_streams: usize,
    /// Batches made ahead: a pool should keep the memory of as many released batches, and of a few more.
    pub ahead: usize,
}
