//! [`RecordingPool`]: recordings that a worker reads itself, by position, besides those that the engine hands
//! it: partners, responses and the further recordings of a row. Source: own.

use std::sync::Arc;

use crate::{
    Error,
    contract::ReadRecords,
    engine::located,
    error::Place,
    source::{PayloadSource, RawRecord, ReadPayloads, ReadRequest},
};

/// Reads recordings, for one thread.
pub(super) trait ReadPartner: Send {
    fn read(&mut self, at: u64, request: &dyn ReadRequest) -> crate::Result<RawRecord>;
}

impl<R: ReadPayloads> ReadPartner for R {
    fn read(&mut self, at: u64, request: &dyn ReadRequest) -> crate::Result<RawRecord> {
        ReadRecords::read(self, at, 1, request)
    }
}

/// A source of recordings, of any kind.
pub(super) trait RecordingPool: Send + Sync {
    fn reader(&self) -> Box<dyn ReadPartner>;
    fn place(&self, at: u64) -> Place;
    fn located(&self, error: Error, at: u64) -> Error;
}

struct PoolOf<S>(Arc<S>);

impl<S: PayloadSource> RecordingPool for PoolOf<S> {
    fn reader(&self) -> Box<dyn ReadPartner> {
        Box::new(self.0.reader())
    }

    fn place(&self, at: u64) -> Place {
        self.0.place(at)
    }

    fn located(&self, error: Error, at: u64) -> Error {
        located(error, &*self.0, at)
    }
}

pub(super) fn pool_of<S: PayloadSource>(source: Arc<S>) -> Arc<dyn RecordingPool> {
    Arc::new(PoolOf(source))
}
