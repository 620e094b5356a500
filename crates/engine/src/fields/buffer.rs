//! [`Buffer`]: the memory of one field of a batch, separate from that of other fields.
//!
//! Each field has its own [`Buffer`], so a user who keeps the labels of a batch does not keep its
//! spectrograms. A buffer of less than [`SMALL`] bytes is a vector: an arena would waste most of a page on
//! it.

use std::fmt;

use super::arena::{Arena, ArenaPool, Element, Slot};
use crate::Result;

/// Buffers of fewer bytes are vectors.
pub const SMALL: usize = 64 << 10;

const WORD: usize = size_of::<i64>();

/// A pool of buffers of one size.
#[derive(Debug)]
pub struct BufferPool {
    bytes: usize,
    /// `None` for small buffers.
    arenas: Option<ArenaPool>,
}

impl BufferPool {
    /// Creates a pool for buffers of `bytes` bytes. It keeps the memory of at most `slots` released ones.
    pub fn new(bytes: usize, slots: usize) -> Self {
        Self { bytes, arenas: (bytes >= SMALL).then(|| ArenaPool::new(bytes, slots)) }
    }

    /// Bytes that a buffer maps or allocates.
    pub fn mapped_bytes(&self) -> usize {
        match &self.arenas {
            None => self.bytes,
            Some(arenas) => Arena::mapped_bytes(arenas.bytes()),
        }
    }

    /// Takes a buffer: with zeros, or with the old values of a released batch.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the allocation fails.
    pub fn acquire(&self) -> Result<Buffer> {
        let memory = match &self.arenas {
            // bounded: less than `SMALL` bytes.
            None => Memory::Vector(vec![0; self.bytes.div_ceil(WORD)]),
            Some(arenas) => Memory::Slot(arenas.acquire()?),
        };
        Ok(Buffer { memory, bytes: self.bytes })
    }
}

/// The memory of a buffer. Both kinds may be longer than the buffer.
#[derive(Debug)]
pub enum Memory {
    /// The memory of a small buffer: words, aligned for any number type.
    Vector(Vec<i64>),
    /// The memory of any other buffer.
    Slot(Slot),
}

/// Memory for numbers of one type, which the user of the buffer chooses.
pub struct Buffer {
    memory: Memory,
    bytes: usize,
}

impl Buffer {
    /// A new buffer that will not be recycled.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the allocation fails.
    pub fn new(bytes: usize) -> Result<Self> {
        BufferPool::new(bytes, 0).acquire()
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Cuts the buffer to its first `len` bytes; the memory stays allocated.
    pub fn truncate(&mut self, len: usize) {
        self.bytes = self.bytes.min(len);
    }

    /// The values as numbers of type `T`.
    pub fn values<T: Element>(&self) -> &[T] {
        let n = self.bytes / size_of::<T>();
        match &self.memory {
            // SAFETY: the vector has at least as many bytes, aligned for every `Element`, and any bits are
            // valid.
            Memory::Vector(words) => unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), n) },
            Memory::Slot(slot) => &slot.as_slice()[..n],
        }
    }

    /// The values as numbers of type `T`, to be written.
    pub fn values_mut<T: Element>(&mut self) -> &mut [T] {
        let n = self.bytes / size_of::<T>();
        match &mut self.memory {
            // SAFETY: as in `values`; the vector is borrowed exclusively.
            Memory::Vector(words) => unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), n) },
            Memory::Slot(slot) => &mut slot.as_mut_slice()[..n],
        }
    }

    /// The bytes of row `row`; each row has `row_bytes`.
    pub fn row_mut(&mut self, row: usize, row_bytes: usize) -> &mut [u8] {
        &mut self.values_mut()[row * row_bytes..(row + 1) * row_bytes]
    }

    /// The memory, for callers that convert it.
    pub fn into_memory(self) -> Memory {
        self.memory
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self { memory: Memory::Vector(Vec::new()), bytes: 0 }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffers_are_vectors() {
        for (bytes, small) in [(0, true), (3, true), (SMALL - 1, true), (SMALL, false), (4 << 20, false)] {
            let mut buffer = BufferPool::new(bytes, 1).acquire().unwrap();
            assert!(buffer.values::<u8>().iter().all(|&value| value == 0));
            buffer.values_mut::<u8>().fill(2);
            buffer.truncate(bytes / 2);
            buffer.truncate(bytes);
            assert_eq!(buffer.values::<u8>(), vec![2; bytes / 2]);
            assert_eq!(buffer.values::<i64>().len(), bytes / 2 / 8);
            match buffer.into_memory() {
                Memory::Vector(words) => assert_eq!((words.len(), small), (bytes.div_ceil(8), true)),
                Memory::Slot(slot) => assert_eq!((slot.bytes(), small), (bytes, false)),
            }
        }
    }

    #[test]
    fn values_of_any_type_are_aligned() {
        for bytes in [64, SMALL] {
            let mut buffer = Buffer::new(bytes).unwrap();
            buffer.values_mut::<f32>().fill(1.5);
            assert_eq!(buffer.values::<u32>(), vec![1.5_f32.to_bits(); bytes / 4]);
            buffer.row_mut(1, 8).copy_from_slice(&7_i64.to_ne_bytes());
            assert_eq!(buffer.values::<i64>()[1], 7);
        }
    }

    #[test]
    fn more_than_can_be_is_an_error() {
        assert!(Buffer::new(usize::MAX).is_err());
    }
}
