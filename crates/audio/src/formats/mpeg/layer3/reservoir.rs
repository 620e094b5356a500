//! The bytes of main data that the decoder holds, of this frame and of those before.
//!
//! A frame's main data begins up to 511 bytes before its own, in bytes that no frame has used yet. Bytes that
//! are missing, at the start of a stream or after damage, are counted: the granules with them are silent. So
//! does symphonia, and the index of spans relies on it.
//!
//! Source: ISO/IEC 11172-3 section 2.4.3.4.1, annex A figure A.7.

use super::{super::header::MAX_FREE, FrameDamage};

/// More than a frame can refer back to and hold; the longest are of free format.
const LEN: usize = 4096;
const _: () = assert!(LEN > 511 + MAX_FREE);
/// Bytes after these, so that words can be read.
const SPARE: usize = 16;

#[derive(Debug, Clone)]
pub(super) struct Reservoir {
    bytes: Box<[u8; LEN + SPARE]>,
    len: usize,
    used: usize,
}

impl Reservoir {
    pub(super) fn new() -> Self {
        Self { bytes: Box::new([0; LEN + SPARE]), len: 0, used: 0 }
    }

    pub(super) fn clear(&mut self) {
        (self.len, self.used) = (0, 0);
    }

    /// Adds the main data of a frame, which begins `back` bytes before; returns the number of bytes that are
    /// missing.
    pub(super) fn add(&mut self, main_data: &[u8], back: usize) -> Result<usize, FrameDamage> {
        if back + main_data.len() > LEN {
            return Err(FrameDamage("a frame refers to more main data than a decoder holds"));
        }
        // Only bytes that no frame has used can be referred to; what is before them is missing.
        let cache = back.min(self.len - self.used);
        self.bytes.copy_within(self.len - cache..self.len, 0);
        self.len = cache + main_data.len();
        self.bytes[cache..self.len].copy_from_slice(main_data);
        self.used = 0;
        Ok(back - cache)
    }

    /// Marks the first `n` bytes as used.
    pub(super) fn consume(&mut self, n: usize) {
        self.used = n.min(self.len);
    }

    /// The held bytes, with old and spare ones behind them, so that words can be read at their end.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..]
    }

    pub(super) fn n_bits(&self) -> usize {
        8 * self.len
    }
}
