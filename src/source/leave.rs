//! What a reader of a source asks before it takes memory: nobody for a small read, the run's [`Gate`] for a
//! large one.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{
    Error, ErrorKind, Result,
    record::{Gate, Permit, SMALL_READ},
};

/// The way to the gate, if there is one.
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

    /// The gate, if a read of so many bytes has to ask.
    fn gate(&self, bytes: u64) -> Option<&dyn Gate> {
        self.0.as_deref().filter(|_| bytes > SMALL_READ)
    }

    /// Asks for a record's memory: see [`Gate::admit`].
    pub(crate) fn admit(&self, bytes: u64) -> Result<Option<Permit>> {
        self.gate(bytes).map(|gate| gate.admit(bytes)).transpose()
    }

    /// Asks for memory that the reader holds on to: see [`Gate::keep`].
    pub(crate) fn keep(&self, bytes: u64) -> Result<Option<Permit>> {
        self.gate(bytes).map(|gate| gate.keep(bytes)).transpose()
    }

    /// Counts memory that the reader took and holds on to: see [`Gate::kept`].
    pub(crate) fn kept(&self, bytes: u64) -> Option<Permit> {
        self.gate(bytes).map(|gate| gate.kept(bytes))
    }

    /// Learns that the record lies in memory that was granted before.
    pub(crate) fn covers(&self) {
        if let Some(gate) = &self.0 {
            gate.covers();
        }
    }

    /// Says that a long read may go on.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the run is stopped.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.0 {
            Some(gate) if gate.is_stopped() => {
                Err(Error::new(ErrorKind::Closed, "the loader is closed; the read was left"))
            }
            _ => Ok(()),
        }
    }
}

/// Bytes, and what they were granted by.
struct Covered(Bytes, #[allow(dead_code, reason = "held")] Permit);

impl AsRef<[u8]> for Covered {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The same bytes, which hold `permit` until the last of their slices is gone.
pub(crate) fn covered(bytes: Bytes, permit: Option<Permit>) -> Bytes {
    match permit {
        Some(permit) => Bytes::from_owner(Covered(bytes, permit)),
        None => bytes,
    }
}
