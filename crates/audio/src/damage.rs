//! What becomes of a frame that cannot be decoded: an error of the span that needs it, or silence.
//!
//! The decoders of frames report each frame that they cannot decode to [`DamagedFrames`], and write zeros
//! where it may be silence. Whether a frame is damaged depends on the bytes around it and not on the span, so
//! that spans and a full decode agree. A read of which more is silent than allowed ends with the error of its
//! first damaged frame.
//!
//! Source: own.

use crate::{Error, Repairs, Result};

/// How much of a read may be silence in place of damaged frames.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Damage {
    /// The largest share; with 0 every damaged frame is an error. Up to 1, a read that is silent as a whole
    /// is one.
    pub most: f64,
}

impl Damage {
    /// Every damaged frame is an error.
    pub const ERROR: Self = Self { most: 0.0 };
    /// All of a read may be silent.
    pub const ALL: Self = Self { most: f64::INFINITY };

    /// Whether `filled` of `n_samples` samples may be silent.
    pub fn allows(&self, filled: u64, n_samples: u64) -> bool {
        filled == 0
            || filled as f64 <= self.most * n_samples as f64 && (filled < n_samples || self.most > 1.0)
    }
}

impl Default for Damage {
    fn default() -> Self {
        Self::ERROR
    }
}

/// The damaged frames of a read.
#[derive(Debug, Default)]
pub(crate) struct DamagedFrames {
    damage: Damage,
    found: Repairs,
    /// The error of the first one.
    first: Option<Error>,
}

impl DamagedFrames {
    /// Forgets the last read; frames of the next one are treated as `damage` says.
    pub(crate) fn begin(&mut self, damage: Damage) {
        *self = Self { damage, ..Self::default() };
    }

    /// Whether damaged frames may be silent.
    pub(crate) fn allows(&self) -> bool {
        self.damage.most > 0.0
    }

    /// Counts `n_samples` samples per channel that are zeros because of `error`.
    ///
    /// # Errors
    /// `error`, if it is not one of damaged bytes, or no damage is allowed.
    pub(crate) fn silence(&mut self, n_samples: u64, error: Error) -> Result<()> {
        use crate::ErrorKind::{Corrupt, TooShort, Unsupported};
        if !self.allows() || !matches!(error.kind, Corrupt | TooShort | Unsupported) {
            return Err(error);
        }
        if n_samples == 0 {
            // A frame that a decoder starts from: the state of filters after it is that of a full decode.
            return Ok(());
        }
        self.found = self.found + Repairs { places: 1, cut: 0, filled: n_samples };
        self.first.get_or_insert(error);
        Ok(())
    }

    /// Forgets where the first error is: it was counted in bytes that were put together, not in the file.
    pub(crate) fn forget_byte(&mut self) {
        if let Some(error) = &mut self.first {
            error.place.byte = None;
        }
    }

    /// What was filled in a read of `n_samples` samples per channel.
    ///
    /// # Errors
    /// The first error, if that is more than allowed, or all.
    pub(crate) fn end(&mut self, n_samples: u64) -> Result<Repairs> {
        match self.first.take() {
            Some(error) if !self.damage.allows(self.found.filled, n_samples) => Err(error),
            _ => Ok(self.found),
        }
    }
}
