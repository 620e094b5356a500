//! [`RowFiles`]: open files of one format whose rows are recordings, whatever the format.
//!
//! [`Recordings`](crate::Recordings) knows no format: a format implements [`RowFiles`] and [`ReadRows`], and
//! has a line in the table there. Source: own.

use std::{fmt, sync::Arc};

use crate::{
    RawRecord, ReadRecordings, ReadRequest, Result, StoredRecording,
    contents::Contents,
    contract::{MemoryLimiter, ReadRecords, RowStore},
    fields::Value,
    open_files::OpenFiles,
};

/// Open files of one format; immutable and shared.
pub(crate) trait RowFiles: RowStore + OpenFiles {
    fn contents(&self) -> &Contents;

    /// The fingerprint as earlier versions wrote it in states, which still load.
    fn former_fingerprint(&self) -> u64 {
        self.fingerprint()
    }

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
    /// As [`ReadRecords::set_limiter`].
    fn set_memory_limiter(&mut self, limiter: Arc<dyn MemoryLimiter>);

    /// As [`ReadRecords::hint_next`].
    fn hint_next_row(&mut self, end: u64, row: Option<u64>);

    /// As [`ReadRecords::read`].
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

impl ReadRecords for Box<dyn DynReader> {
    type Payload = StoredRecording;
    type Request<'a> = dyn ReadRequest + 'a;

    fn set_limiter(&mut self, limiter: Arc<dyn MemoryLimiter>) {
        (**self).set_memory_limiter(limiter);
    }

    fn hint_next(&mut self, end: u64, row: Option<u64>) {
        (**self).hint_next_row(end, row);
    }

    fn read(&mut self, row: u64, run: u64, request: &dyn ReadRequest) -> Result<RawRecord> {
        (**self).read_row(row, run, request)
    }
}

/// Reads rows of files, for one thread.
pub trait ReadRows: DynReader + fmt::Debug {
    /// The recording's own path field, if the row has one; for reports.
    ///
    /// # Errors
    /// As [`ReadRecords::read`].
    ///
    /// # Panics
    /// If there is no such row.
    fn path(&mut self, row: u64) -> Result<Option<String>>;

    /// The value of one of the other columns, without the recording. The `run` rows from `row` on will be
    /// requested next.
    ///
    /// # Errors
    /// As [`ReadRecords::read`].
    ///
    /// # Panics
    /// If there is no such row.
    fn value(&mut self, row: u64, run: u64, number: usize) -> Result<Value>;
}
