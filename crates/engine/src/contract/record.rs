//! Records: what a source reads for a row, and what a worker takes.

use std::fmt::Debug;

use bytes::Bytes;

use crate::fields::Row;

/// What a source reads of a row besides its columns.
pub trait Payload: Debug + Send + 'static {
    /// Bytes of memory, for the limit of the channel.
    fn n_bytes(&self) -> usize;

    /// Copies what shares a larger block, which would stay in memory as long as this record.
    fn detach(&mut self);
}

impl Payload for Bytes {
    fn n_bytes(&self) -> usize {
        self.len()
    }

    fn detach(&mut self) {
        *self = Self::copy_from_slice(self);
    }
}

/// Rows that are only numbers.
impl Payload for () {
    fn n_bytes(&self) -> usize {
        0
    }

    fn detach(&mut self) {}
}

/// A row as a source reads it.
#[derive(Debug, Clone)]
pub struct RawRecord<P> {
    pub payload: P,
    /// The row's other columns, in the source's order.
    pub values: Row,
}

impl<P> RawRecord<P> {
    /// A row of this payload and columns.
    pub fn new(payload: impl Into<P>, values: Row) -> Self {
        Self { payload: payload.into(), values }
    }

    /// The record that a worker takes.
    pub fn numbered(self, index: u64, seed: u64, epoch: u64) -> Record<P> {
        let Self { payload, values } = self;
        Record { payload, values, index, seed, epoch }
    }
}

/// A record as it is sent through the channel to a worker.
#[derive(Debug, Clone)]
pub struct Record<P> {
    pub payload: P,
    /// The row's other columns, in the source's order.
    pub values: Row,
    /// The row number over the files as given.
    pub index: u64,
    /// 64 random bits of this record in this epoch, which determine the crop.
    pub seed: u64,
    pub epoch: u64,
}
