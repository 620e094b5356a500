//! What a worker keeps from record to record: decoders, by the setup header that made them, and scratch.
//!
//! Building a decoder can cost more than the span (Vorbis codebooks: 0.5 ms of 2 ms), and collections are encoded with few
//! settings, so setup headers repeat. The pool drops the least recently used decoder first and is bounded in entries and
//! in bytes. The whole header is compared, so two recordings share a decoder only if their headers are equal.
//!
//! Source: own.

use std::fmt;

use symphonia::core::codecs::audio::AudioDecoder;

use super::Codec;
use crate::Result;

/// The most decoders kept.
const MAX_DECODERS: usize = 16;
/// The most bytes that the kept decoders may hold, by their makers' estimate.
const MAX_BYTES: usize = 32 << 20;

struct Entry {
    codec: Codec,
    setup: Box<[u8]>,
    decoder: Box<dyn AudioDecoder>,
    bytes: usize,
}

/// A worker's kept state.
#[derive(Default)]
pub(crate) struct Kept {
    /// Least recently used first.
    decoders: Vec<Entry>,
    /// Scratch of the ADPCM decoders: one block, interleaved.
    pub(crate) block: Vec<i16>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("decoders", &self.decoders.len()).finish_non_exhaustive()
    }
}

impl Kept {
    /// The decoder for `setup`, as it was left, or a new one by `make`, which also estimates its size in bytes.
    ///
    /// The caller resets it: what a decoder must forget between records, its codec knows.
    pub(crate) fn decoder(
        &mut self,
        codec: Codec,
        setup: &[u8],
        make: impl FnOnce() -> Result<(Box<dyn AudioDecoder>, usize)>,
    ) -> Result<&mut dyn AudioDecoder> {
        match self.decoders.iter().position(|entry| entry.codec == codec && *entry.setup == *setup) {
            Some(i) => self.decoders[i..].rotate_left(1),
            None => {
                let (decoder, bytes) = make()?;
                let bytes = bytes.saturating_add(setup.len());
                while !self.decoders.is_empty()
                    && (self.decoders.len() >= MAX_DECODERS || self.held() + bytes > MAX_BYTES)
                {
                    self.decoders.remove(0);
                }
                self.decoders.push(Entry { codec, setup: setup.into(), decoder, bytes });
            }
        }
        let last = self.decoders.len() - 1;
        Ok(self.decoders[last].decoder.as_mut())
    }

    fn held(&self) -> usize {
        self.decoders.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes))
    }
}
