//! Permits for the memory of large reads: a reader requests one from the run's [`MemoryLimiter`] before it
//! allocates. Small reads need none.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{
    Result,
    contract::{Kept, MemoryLimiter, Permit, SMALL_READ},
};

/// The run's limiter; without one all requests are granted at once.
#[derive(Clone, Default)]
pub struct MemoryPermits(Option<Arc<dyn MemoryLimiter>>);

impl fmt::Debug for MemoryPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryPermits").field(&self.0.is_some()).finish()
    }
}

impl MemoryPermits {
    pub fn of(limiter: Arc<dyn MemoryLimiter>) -> Self {
        Self(Some(limiter))
    }

    /// The limiter, if a read of `bytes` bytes needs a permit.
    fn limiter(&self, bytes: u64) -> Option<&dyn MemoryLimiter> {
        self.0.as_deref().filter(|_| bytes > SMALL_READ)
    }

    /// Requests a record's memory: see [`MemoryLimiter::admit`].
    pub fn admit(&self, bytes: u64) -> Result<Option<Permit>> {
        self.limiter(bytes).map(|limiter| limiter.admit(bytes)).transpose()
    }

    /// Requests memory that the reader keeps: see [`MemoryLimiter::keep`].
    pub fn keep(&self, bytes: u64) -> Result<Option<Kept>> {
        self.limiter(bytes).map(|limiter| limiter.keep(bytes)).transpose()
    }

    /// Counts memory that the reader has allocated and keeps: see [`MemoryLimiter::kept`].
    pub fn kept(&self, bytes: u64) -> Option<Kept> {
        self.limiter(bytes).map(|limiter| limiter.kept(bytes))
    }

    /// Notes that the record lies in memory that was granted before: see [`MemoryLimiter::mark_counted`].
    pub fn mark_counted(&self) {
        if let Some(limiter) = &self.0 {
            limiter.mark_counted();
        }
    }
}

/// Bytes with the permit of their memory.
struct Covered(Bytes, #[allow(dead_code, reason = "held")] Permit);

impl AsRef<[u8]> for Covered {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The same bytes; they hold `permit` until their last slice is dropped.
pub fn covered(bytes: Bytes, permit: Option<Permit>) -> Bytes {
    match permit {
        Some(permit) => Bytes::from_owner(Covered(bytes, permit)),
        None => bytes,
    }
}
