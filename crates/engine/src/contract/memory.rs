//! [`MemoryLimiter`]: memory for large reads, granted before it is allocated.

use std::{fmt::Debug, sync::Arc};

use crate::Result;

/// Reads of at most this many bytes need no permit: each thread has one in flight, and a block of recordings
/// is no larger.
pub const SMALL_READ: u64 = 4 << 20;

/// Memory that was granted before it was allocated. It is counted until the last share is dropped.
pub trait GrantedMemory: Debug + Send + Sync {
    /// Parks the memory: no request waits for it until as many calls of [`GrantedMemory::release`]. See
    /// [`Kept`].
    fn keep(&self);

    /// Ends a [`GrantedMemory::keep`]. The memory is released with the last record that shares it.
    fn release(&self);

    /// Reduces the counted memory to `bytes`.
    fn shrink(&self, bytes: u64);
}

pub type Permit = Arc<dyn GrantedMemory>;

/// Granted memory that a thread keeps while it may wait: no request waits for that memory, since the thread
/// might release it only after the request is granted.
#[derive(Debug)]
pub struct Kept(Permit);

impl Kept {
    pub fn new(permit: Permit) -> Self {
        permit.keep();
        Self(permit)
    }

    /// The memory of a permit whose [`GrantedMemory::keep`] was called already.
    pub(crate) fn adopt(permit: Permit) -> Self {
        Self(permit)
    }

    pub fn permit(&self) -> &Permit {
        &self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A record's memory that a reader keeps for later rows: see [`MemoryLimiter::retain`].
#[derive(Debug, Default)]
pub struct Retained {
    /// Whether the memory was granted. If so, [`MemoryLimiter::mark_counted`] belongs to each further record
    /// in it.
    pub is_granted: bool,
    pub(crate) _kept: Option<Box<dyn Debug + Send>>,
}

/// Grants a reader's requests for memory of more than [`SMALL_READ`] bytes. Calls block, so that the memory
/// of all readers together stays bounded; one record of any size is always granted.
pub trait MemoryLimiter: Send + Sync {
    /// Requests the memory of the record that is being read, preferably in one call. The data read holds the
    /// permit.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Closed`] once the run is stopped.
    fn admit(&self, bytes: u64) -> Result<Permit>;

    /// Requests memory that the reader will keep, for this record and later ones.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Closed`] once the run is stopped.
    fn keep(&self, bytes: u64) -> Result<Kept>;

    /// As [`MemoryLimiter::keep`], for memory that is already allocated because its size was unknown before.
    fn kept(&self, bytes: u64) -> Kept;

    /// Notes that the record being read is in memory that was granted before.
    fn mark_counted(&self);

    /// Keeps the memory that [`MemoryLimiter::admit`] granted for the record just read, for a reader that
    /// keeps the record for later rows. `None` if it must not keep the record: the thread's other readers
    /// keep too much already.
    fn retain(&self) -> Option<Retained>;
}
