//! What flows through the pipeline: a record's bytes go in, an example comes out.
//!
//! The types and traits here are all that neighbouring stages share, so a stage knows these and never its neighbour.

use std::{ops::Range, path::Path, sync::Arc};

use bytes::Bytes;

use crate::Result;

/// The label of a row whose label is null.
pub const NO_LABEL: i64 = -1;

/// An undecoded row of a shard, as a source reads it.
#[derive(Debug, Clone)]
pub struct RawRecord {
    /// The encoded recording, or the document in UTF-8, never empty; a slice of a larger block where rows were read together. Where an [`Excerpt`] was
    /// enough, what lies outside of it is unspecified.
    pub bytes: Bytes,
    /// The class, or [`NO_LABEL`].
    pub label: i64,
}

/// How many bytes of a record a source reads before it asks for an [`Excerpt`].
pub const HEAD_BYTES: usize = 4096;

/// Says which bytes of a record will be looked at beside its first [`HEAD_BYTES`], given these and the record's size; `None`
/// if all are.
pub type Excerpt<'a> = &'a dyn Fn(&[u8], u64) -> Option<Range<u64>>;

/// A record on its way to a worker: what crosses the channel.
#[derive(Debug, Clone)]
pub struct Record {
    /// The encoded recording.
    pub bytes: Bytes,
    /// The class, or [`NO_LABEL`].
    pub label: i64,
    /// The row number over the files as given.
    pub index: u64,
    /// 64 random bits that belong to this record in this epoch: they place the crop.
    pub seed: u64,
}

/// A set of shards whose rows can be read by number.
pub trait Source: Send + Sync + 'static {
    /// What one I/O thread keeps: open files, the current record batch, recycled blocks.
    type Reader: ReadRecords;

    /// The number of rows of each shard, in the order given.
    fn shard_rows(&self) -> Vec<u64>;

    /// The shard of `row` (a number over all files) and the row within it.
    fn locate(&self, row: u64) -> (Arc<Path>, u64);

    /// Whether one row can be read without its neighbours.
    fn random_access(&self) -> bool;

    /// Whether rows may be read in any order at a bearable cost.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if they may not; says why, and what to do.
    fn check_scattered(&self) -> Result<()> {
        Ok(())
    }

    /// A reader of its own for one thread.
    fn reader(self: &Arc<Self>) -> Self::Reader;
}

/// Reads rows for one thread.
pub trait ReadRecords: Send {
    /// Reads `row`; `run` rows from it on will be wanted next in storage order (1: this one only). Of a large record a source
    /// may read the `excerpt` alone.
    ///
    /// # Errors
    /// A kind for which [`crate::ErrorKind::is_record`] holds condemns the row, any other the run.
    fn read(&mut self, row: u64, run: u64, excerpt: Excerpt<'_>) -> Result<RawRecord>;
}

/// Makes examples of records, one worker at a time.
pub trait Stage {
    /// A model-ready item.
    type Example: Send + 'static;

    /// Makes the example of `record`.
    ///
    /// # Errors
    /// A kind for which [`crate::ErrorKind::is_record`] holds condemns the record, any other the run.
    fn run(&mut self, record: &Record) -> Result<Self::Example>;
}

/// Puts examples into the rows of a batch.
pub trait Collate: Send {
    /// What a stage makes.
    type Example: Send + 'static;
    /// What the user gets.
    type Batch: Send + 'static;

    /// Writes `example` into `row` of the batch under way; each row once.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Memory`] if there is none for the batch. It ends the run.
    fn put(&mut self, row: usize, example: Self::Example) -> Result<()>;

    /// Hands out the batch under way, cut to its first `rows` rows, and begins the next.
    fn take(&mut self, rows: usize) -> Self::Batch;
}

/// A kind of loading: how examples are made and how they become batches.
pub trait Task: Send + Sync + 'static {
    /// The workers' part.
    type Stage: Stage;
    /// The consumer's part.
    type Collate: Collate<Example = <Self::Stage as Stage>::Example> + 'static;

    /// A stage for one worker, called on the worker's thread.
    fn stage(&self) -> Self::Stage;

    /// The [`Excerpt`] of a record that will carry `seed`. By default all of it.
    fn excerpt(&self, _head: &[u8], _size: u64, _seed: u64) -> Option<Range<u64>> {
        None
    }

    /// A collator of batches of `batch_size` rows.
    fn collate(&self, batch_size: usize) -> Self::Collate;
}
