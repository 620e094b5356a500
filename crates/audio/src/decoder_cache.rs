//! The cache of a worker, kept from record to record: decoders by their setup header, and scratch.
//!
//! Building a decoder can take much of the time of a span (Vorbis codebooks: 0.5 ms of 2 ms). Collections are
//! encoded with few settings, so setup headers repeat. The cache evicts the least recently used decoder
//! first, and is bounded in entries and in bytes. The whole header is compared, so recordings share a decoder
//! only if their headers are equal.
//!
//! The vectors of a recording's index are reused, so that a warm worker allocates none.
//!
//! Source: own.

use std::{
    any::Any,
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use crate::{Codec, Result, damage::DamagedFrames};
use crossbeam::queue::ArrayQueue;

/// The most decoders in the cache.
const MAX_DECODERS: usize = 16;
/// The most bytes that the cached decoders may hold, by their makers' estimate.
const MAX_BYTES: usize = 32 << 20;
/// The most unused vectors kept of one kind: one of a recording, and one more while the next is opened.
const MAX_VECTORS: usize = 2;
/// The most bytes of a kept vector: the index of a recording of hours.
const MAX_VECTOR_BYTES: usize = 4 << 20;

struct CachedDecoder {
    codec: Codec,
    setup: Box<[u8]>,
    decoder: Box<dyn Any + Send>,
    bytes: usize,
}

#[derive(Default)]
pub(crate) struct DecoderCache {
    /// Least recently used first.
    decoders: Vec<CachedDecoder>,
    /// Scratch of the ADPCM decoders: one block, interleaved.
    pub(crate) block: Vec<i16>,
    /// The damaged frames of this read.
    pub(crate) losses: DamagedFrames,
    /// The unused vectors of each codec, in a type of its own.
    pools: Vec<Box<dyn Any + Send>>,
}

/// Unused vectors of one kind.
///
/// A recording returns its vectors when it is dropped, which may be after the decoder was dropped.
pub(crate) struct VecPool<T>(Arc<ArrayQueue<Vec<T>>>);

impl<T> Default for VecPool<T> {
    fn default() -> Self {
        Self(Arc::new(ArrayQueue::new(MAX_VECTORS)))
    }
}

impl<T> VecPool<T> {
    /// An empty vector, which returns to the pool when it is dropped.
    pub(crate) fn take(&self) -> PooledVec<T> {
        PooledVec { items: self.0.pop().unwrap_or_default(), pool: Some(Self(self.0.clone())) }
    }
}

/// A vector of a [`VecPool`], in use.
pub(crate) struct PooledVec<T> {
    items: Vec<T>,
    /// None for a vector that no pool has lent.
    pool: Option<VecPool<T>>,
}

impl<T> From<Vec<T>> for PooledVec<T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, pool: None }
    }
}

impl<T> Deref for PooledVec<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.items
    }
}

impl<T> DerefMut for PooledVec<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.items
    }
}

impl<T: fmt::Debug> fmt::Debug for PooledVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.fmt(f)
    }
}

impl<T> Drop for PooledVec<T> {
    fn drop(&mut self) {
        let Some(pool) = &self.pool else { return };
        let mut items = std::mem::take(&mut self.items);
        items.clear();
        if items.capacity().saturating_mul(size_of::<T>()) <= MAX_VECTOR_BYTES {
            // A full pool drops the vector.
            let _ = pool.0.push(items);
        }
    }
}

impl fmt::Debug for DecoderCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecoderCache").field("decoders", &self.decoders.len()).finish_non_exhaustive()
    }
}

impl DecoderCache {
    /// The cached decoder of type `D` for `setup`, in the state of its last use, or a new one by `make`,
    /// which also returns its estimated size in bytes.
    ///
    /// The caller must reset it: which state to clear between records depends on the codec.
    pub(crate) fn decoder<D: Send + 'static>(
        &mut self,
        codec: Codec,
        setup: &[u8],
        make: impl FnOnce() -> Result<(D, usize)>,
    ) -> Result<&mut D> {
        let is_equal =
            |entry: &CachedDecoder| entry.codec == codec && *entry.setup == *setup && entry.decoder.is::<D>();
        match self.decoders.iter().position(is_equal) {
            Some(i) => self.decoders[i..].rotate_left(1),
            None => {
                let (decoder, bytes) = make()?;
                let bytes = bytes.saturating_add(setup.len());
                while !self.decoders.is_empty()
                    && (self.decoders.len() >= MAX_DECODERS || self.decoder_bytes() + bytes > MAX_BYTES)
                {
                    self.decoders.remove(0);
                }
                self.decoders.push(CachedDecoder {
                    codec,
                    setup: setup.into(),
                    decoder: Box::new(decoder),
                    bytes,
                });
            }
        }
        let last = self.decoders.len() - 1;
        #[expect(clippy::expect_used, reason = "its type was just compared, or it was just made")]
        Ok(self.decoders[last].decoder.downcast_mut().expect("a decoder of this type"))
    }

    /// The pools `T` of a codec, empty at first.
    pub(crate) fn pools<T: Default + Send + 'static>(&mut self) -> &mut T {
        let found = self.pools.iter().position(|pools| pools.is::<T>());
        let at = found.unwrap_or_else(|| {
            self.pools.push(Box::new(T::default()));
            self.pools.len() - 1
        });
        #[expect(clippy::expect_used, reason = "its type was just compared")]
        self.pools[at].downcast_mut().expect("pools of this type")
    }

    fn decoder_bytes(&self) -> usize {
        self.decoders.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pooled_vectors_come_back_empty_with_their_memory() {
        let pool = VecPool::default();
        let mut pooled = pool.take();
        pooled.extend([1u32, 2, 3]);
        let memory = pooled.as_ptr();
        drop(pooled);
        let again = pool.take();
        assert!(again.is_empty() && again.as_ptr() == memory);
        let mut large = pool.take();
        large.reserve(MAX_VECTOR_BYTES);
        drop(large);
        assert_eq!(pool.take().capacity(), 0);
    }
}
