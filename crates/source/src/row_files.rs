//! [`RowFiles`]: open files of one format whose rows are recordings, whatever the format.
//!
//! [`Recordings`](crate::Recordings) knows no format: a format implements [`RowFiles`] and [`ReadRows`], and
//! has a line in the table there. Source: own.

use std::{fmt, sync::Arc};

use crate::{
    RawRecord, ReadRecordings, ReadRequest, Result, Traffic,
    contents::Contents,
    contract::{MemoryLimiter, RowStore},
    fields::Value,
    shard::Shard,
};

/// Open files of one format; immutable and shared.
pub(crate) trait RowFiles: RowStore + fmt::Debug {
    /// The shards in the order given.
    fn shards(&self) -> &[Shard];

    fn contents(&self) -> &Contents;

    /// A hash of the shards' row counts and file sizes, in order.
    fn fingerprint(&self) -> u64;

    /// The fingerprint as earlier versions wrote it in states, which still load.
    fn former_fingerprint(&self) -> u64 {
        self.fingerprint()
    }

    /// What the files cost so far.
    fn traffic(&self) -> &Arc<Traffic>;

    /// Whether reading a row's path costs little compared with its recording.
    fn has_cheap_paths(&self) -> bool {
        true
    }

    /// Whether a user's order of rows may be put upon them.
    fn can_be_ordered(&self) -> bool {
        false
    }

    fn row_reader(self: Arc<Self>) -> Box<dyn ReadRows>;

    /// The same files with the column `name` as their only other column, if its values cost less there.
    ///
    /// # Errors
    /// Those of opening them.
    fn with_only_column(&self, _name: &str) -> Result<Option<Arc<dyn RowFiles>>> {
        Ok(None)
    }
}

/// [`ReadRecordings`] as a trait of objects, which the type of its requests forbids.
pub trait DynReader: Send {
    /// As [`ReadRecords::set_limiter`](crate::contract::ReadRecords::set_limiter).
    fn set_memory_limiter(&mut self, limiter: Arc<dyn MemoryLimiter>);

    /// As [`ReadRecords::hint_next`](crate::contract::ReadRecords::hint_next).
    fn hint_next_row(&mut self, end: u64, row: Option<u64>);

    /// As [`ReadRecords::read`](crate::contract::ReadRecords::read).
    ///
    /// # Errors
    /// As there.
    fn read_row(&mut self, row: u64, run: u64, request: &dyn ReadRequest) -> Result<RawRecord>;
}

impl<R: ReadRecordings> DynReader for R {
    fn set_memory_limiter(&mut self, limiter: Arc<dyn MemoryLimiter>) {
        self.set_limiter(limiter);
    }

    fn hint_next_row(&mut self, end: u64, row: Option<u64>) {
        self.hint_next(end, row);
    }

    fn read_row(&mut self, row: u64, run: u64, request: &dyn ReadRequest) -> Result<RawRecord> {
        self.read(row, run, request)
    }
}

/// Reads rows of files, for one thread.
pub trait ReadRows: DynReader + fmt::Debug {
    /// The recording's own path field, if the row has one; for reports.
    ///
    /// # Errors
    /// As [`ReadRecords::read`](crate::contract::ReadRecords::read).
    ///
    /// # Panics
    /// If there is no such row.
    fn path(&mut self, row: u64) -> Result<Option<String>>;

    /// The value of one of the other columns, without the recording. The `run` rows from `row` on will be
    /// requested next.
    ///
    /// # Errors
    /// As [`ReadRecords::read`](crate::contract::ReadRecords::read).
    ///
    /// # Panics
    /// If there is no such row.
    fn value(&mut self, row: u64, run: u64, number: usize) -> Result<Value>;
}
