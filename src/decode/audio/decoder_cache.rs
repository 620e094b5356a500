//! What a worker keeps from record to record: decoders, by the setup header that made them, and scratch.
//!
//! Building a decoder can cost more than the span (Vorbis codebooks: 0.5 ms of 2 ms), and collections are
//! encoded with few settings, so setup headers repeat. The pool drops the least recently used decoder first
//! and is bounded in entries and in bytes. The whole header is compared, so two recordings share a decoder
//! only if their headers are equal.
//!
//! Vectors that a recording needs for its index are lent and come back, so that a warm worker allocates
//! nothing of its own.
//!
//! Source: own.

use std::{
    any::Any,
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use crossbeam::queue::ArrayQueue;
use symphonia::core::codecs::audio::AudioDecoder;

use super::Codec;
use crate::Result;

/// The most decoders kept.
const MAX_DECODERS: usize = 16;
/// The most bytes that the kept decoders may hold, by their makers' estimate.
const MAX_BYTES: usize = 32 << 20;
/// The most vectors of one kind kept: one recording's, and one more while the next is opened.
const MAX_VECTORS: usize = 2;
/// The most bytes that a kept vector may hold: the index of hours.
const MAX_VECTOR_BYTES: usize = 4 << 20;

struct Entry {
    codec: Codec,
    setup: Box<[u8]>,
    decoder: Box<dyn AudioDecoder>,
    bytes: usize,
}

/// A worker's kept state.
#[derive(Default)]
pub(crate) struct DecoderCache {
    /// Least recently used first.
    decoders: Vec<Entry>,
    /// Scratch of the ADPCM decoders: one block, interleaved.
    pub(crate) block: Vec<i16>,
    /// What each codec keeps, of a type of its own.
    shelves: Vec<Box<dyn Any + Send>>,
}

/// Vectors of one kind between uses.
///
/// What they are lent to may outlive the worker's turn and even its decoder: a recording gives them back when
/// it is dropped.
pub(super) struct Shelf<T>(Arc<ArrayQueue<Vec<T>>>);

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self(Arc::new(ArrayQueue::new(MAX_VECTORS)))
    }
}

impl<T> Shelf<T> {
    /// An empty vector that comes back when it is dropped.
    pub(super) fn lend(&self) -> Lent<T> {
        Lent { items: self.0.pop().unwrap_or_default(), shelf: Self(self.0.clone()) }
    }
}

/// A vector on loan from a [`Shelf`].
pub(super) struct Lent<T> {
    items: Vec<T>,
    shelf: Shelf<T>,
}

impl<T> Deref for Lent<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.items
    }
}

impl<T> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.items
    }
}

impl<T: fmt::Debug> fmt::Debug for Lent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.fmt(f)
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        items.clear();
        if items.capacity().saturating_mul(size_of::<T>()) <= MAX_VECTOR_BYTES {
            // A full shelf drops the vector.
            let _ = self.shelf.0.push(items);
        }
    }
}

impl fmt::Debug for DecoderCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecoderCache").field("decoders", &self.decoders.len()).finish_non_exhaustive()
    }
}

impl DecoderCache {
    /// The decoder for `setup`, as it was left, or a new one by `make`, which also estimates its size in
    /// bytes.
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

    /// What a codec keeps in `T`, empty at first.
    pub(super) fn shelves<T: Default + Send + 'static>(&mut self) -> &mut T {
        let found = self.shelves.iter().position(|shelves| shelves.is::<T>());
        let at = found.unwrap_or_else(|| {
            self.shelves.push(Box::new(T::default()));
            self.shelves.len() - 1
        });
        #[expect(clippy::expect_used, reason = "its type was just compared")]
        self.shelves[at].downcast_mut().expect("shelves of this type")
    }

    fn held(&self) -> usize {
        self.decoders.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_vectors_come_back_empty_with_their_memory() {
        let shelf = Shelf::default();
        let mut lent = shelf.lend();
        lent.extend([1u32, 2, 3]);
        let memory = lent.as_ptr();
        drop(lent);
        let again = shelf.lend();
        assert!(again.is_empty() && again.as_ptr() == memory);
        let mut large = shelf.lend();
        large.reserve(MAX_VECTOR_BYTES);
        drop(large);
        assert_eq!(shelf.lend().capacity(), 0);
    }
}
