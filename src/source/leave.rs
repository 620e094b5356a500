//! Permits for the memory of large reads: a reader requests one from the run's [`Gate`] before it allocates.
//! Small reads need none.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{
    Error, ErrorKind, Result,
    record::{Gate, Kept, Permit, SMALL_READ},
};

/// The run's gate; without one all requests are granted at once.
#[derive(Clone, Default)]
pub(crate) struct Leave(Option<Arc<dyn Gate>>);

impl fmt::Debug for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leave").field(&self.0.is_some()).finish()
    }
}

impl Leave {
    pub(crate) fn of(gate: Arc<dyn Gate>) -> Self {
        Self(Some(gate))
    }

    /// The gate, if a read of `bytes` bytes needs a permit.
    fn gate(&self, bytes: u64) -> Option<&dyn Gate> {
        self.0.as_deref().filter(|_| bytes > SMALL_READ)
    }

    /// Requests a record's memory: see [`Gate::admit`].
    pub(crate) fn admit(&self, bytes: u64) -> Result<Option<Permit>> {
        self.gate(bytes).map(|gate| gate.admit(bytes)).transpose()
    }

    /// Requests memory that the reader keeps: see [`Gate::keep`].
    pub(crate) fn keep(&self, bytes: u64) -> Result<Option<Kept>> {
        self.gate(bytes).map(|gate| gate.keep(bytes)).transpose()
    }

    /// Counts memory that the reader has allocated and keeps: see [`Gate::kept`].
    pub(crate) fn kept(&self, bytes: u64) -> Option<Kept> {
        self.gate(bytes).map(|gate| gate.kept(bytes))
    }

    /// Notes that the record lies in memory that was granted before: see [`Gate::covers`].
    pub(crate) fn covers(&self) {
        if let Some(gate) = &self.0 {
            gate.covers();
        }
    }

    /// Checks that a long read may continue.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the run is stopped.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.0 {
            Some(gate) if gate.is_stopped() => {
                Err(Error::new(ErrorKind::Closed, "the loader was closed during the read"))
            }
            _ => Ok(()),
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
pub(crate) fn covered(bytes: Bytes, permit: Option<Permit>) -> Bytes {
    match permit {
        Some(permit) => Bytes::from_owner(Covered(bytes, permit)),
        None => bytes,
    }
}
