//! [`RowFiles`], [`DocumentFiles`]: open files of one format whose rows are recordings or documents,
//! whatever the format.
//!
//! [`Recordings`](crate::Recordings) knows no format: a format implements [`RowFiles`] and [`ReadRows`], and
//! has a line in the table there. [`DocumentSource`](crate::DocumentSource) does the same with
//! [`DocumentFiles`]. Source: own.

use std::{fmt, sync::Arc};

use crate::{
    RawRecord, ReadPayloads, ReadRequest, Result, StoredPayload,
    contents::Contents,
    contract::{MemoryLimiter, ReadRecords},
    fields::Value,
    open_files::OpenFiles,
};

/// Open files of one format; immutable and shared.
pub(crate) trait RowFiles: OpenFiles {
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

    /// Whether one row can be read without its neighbours.
    fn random_access(&self) -> bool;

    /// As [`RowStore::check_scattered`](crate::contract::RowStore::check_scattered).
    ///
    /// # Errors
    /// As there.
    fn check_scattered(&self) -> Result<()> {
        Ok(())
    }

    /// As [`RowStore::block_rows`](crate::contract::RowStore::block_rows).
    fn block_rows(&self, _row: u64, _run: u64) -> u64 {
        1
    }

    /// As [`RowStore::most_blocks`](crate::contract::RowStore::most_blocks).
    fn most_blocks(&self) -> usize {
        1
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

/// Open files of one format whose rows are documents; immutable and shared.
pub(crate) trait DocumentFiles: OpenFiles {
    /// The numbers of rows of a shard's groups, in order.
    ///
    /// # Panics
    /// If there is no such shard.
    fn group_rows(&self, shard: usize) -> Box<dyn Iterator<Item = u64> + '_>;

    fn document_reader(self: Arc<Self>) -> Box<dyn DynReader>;
}

/// Makes files of one format a source of the engine without [`Recordings`](crate::Recordings): a trait of
/// another crate cannot be implemented for all of them at once.
macro_rules! impl_source {
    ($files:ty, $reader:ty) => {
        impl crate::contract::RowStore for $files {
            fn shard_rows(&self, _epoch: u64) -> crate::Result<Vec<u64>> {
                Ok(self.rows_of_shards())
            }

            fn place(&self, row: u64) -> crate::error::Place {
                self.place_of(row)
            }

            fn random_access(&self) -> bool {
                RowFiles::random_access(self)
            }

            fn check_scattered(&self) -> crate::Result<()> {
                RowFiles::check_scattered(self)
            }

            fn block_rows(&self, row: u64, run: u64) -> u64 {
                RowFiles::block_rows(self, row, run)
            }

            fn most_blocks(&self) -> usize {
                RowFiles::most_blocks(self)
            }

            fn scattered_readers(&self, n_readers: usize) -> usize {
                crate::scattered_readers(n_readers, self.traffic().is_remote())
            }

            fn storage_labels(&self) -> crate::contract::StorageLabels {
                self.traffic().labels()
            }

            fn bytes_in_use(&self) -> usize {
                self.held_bytes()
            }

            fn end_threads(&self) {
                self.file_set().storage.end_threads();
            }
        }

        impl crate::contract::Source for $files {
            type Reader = $reader;

            fn reader(self: &Arc<Self>) -> $reader {
                self.reader()
            }
        }
    };
}
pub(crate) use impl_source;

/// [`ReadPayloads`] as a trait of objects, which the type of its requests forbids.
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

impl<R: ReadPayloads> DynReader for R {
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
    type Payload = StoredPayload;
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
