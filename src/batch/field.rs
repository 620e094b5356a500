//! One [`Field`] of a batch: its memory, apart from that of every other field.
//!
//! Who keeps the labels of a batch does not keep its spectrograms, so each field has a slot of its own. One of less than
//! [`SMALL`] bytes is a vector: an allocator has such at hand, and an arena would waste most of a page for it.

use std::{
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

use super::arena::{Arena, ArenaPool, Element, Slot};
use crate::Result;

/// Fields of fewer bytes are vectors.
pub const SMALL: usize = 64 << 10;

/// Makes fields of one length.
#[derive(Debug)]
pub struct FieldPool<T> {
    len: usize,
    /// None for a small field.
    arenas: Option<ArenaPool>,
    values: PhantomData<fn() -> T>,
}

impl<T: Element> FieldPool<T> {
    /// For fields of `len` values; the memory of at most `slots` of them rests.
    pub fn new(len: usize, slots: usize) -> Self {
        let bytes = len.saturating_mul(size_of::<T>());
        Self { len, arenas: (bytes >= SMALL).then(|| ArenaPool::new(bytes, slots)), values: PhantomData }
    }

    /// Bytes that a field takes, as the system hands memory out.
    pub fn bytes(&self) -> usize {
        match &self.arenas {
            None => self.len * size_of::<T>(),
            Some(arenas) => Arena::mapped_bytes(arenas.bytes()),
        }
    }

    /// A field of `len` values: zeros, or those of a batch that is gone.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the system refuses.
    pub fn acquire(&self) -> Result<Field<T>> {
        let memory = match &self.arenas {
            // bounded: less than `SMALL` bytes.
            None => Memory::Vector(vec![T::default(); self.len]),
            Some(arenas) => Memory::Slot(arenas.acquire()?),
        };
        Ok(Field { memory, len: self.len })
    }
}

/// Where the values of a field are. A slot or a vector may be longer than the field.
#[derive(Debug)]
pub enum Memory<T> {
    /// Of a small field.
    Vector(Vec<T>),
    /// Of any other.
    Slot(Slot),
}

#[cfg(test)]
impl<T> Memory<T> {
    /// The slot, for tests that need only its size.
    pub(super) fn untyped(self) -> Memory<()> {
        match self {
            Self::Vector(_) => Memory::Vector(Vec::new()),
            Self::Slot(slot) => Memory::Slot(slot),
        }
    }
}

/// The values of one field.
pub struct Field<T> {
    memory: Memory<T>,
    len: usize,
}

impl<T: Element> Field<T> {
    /// Forgets the values from `len` on; the memory stays as it is.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The values of one row of `row_len`, in a field of rows.
    pub fn row_mut(&mut self, row: usize, row_len: usize) -> &mut [T] {
        &mut self[row * row_len..(row + 1) * row_len]
    }

    /// The memory, for callers that convert it.
    pub fn into_memory(self) -> Memory<T> {
        match self.memory {
            Memory::Vector(mut values) => {
                values.truncate(self.len);
                Memory::Vector(values)
            }
            slot @ Memory::Slot(_) => slot,
        }
    }
}

#[cfg(feature = "audio")]
impl Field<half::bf16> {
    /// The bits of the values, for callers without such a type.
    pub fn into_bits(self) -> Field<u16> {
        let memory = match self.memory {
            Memory::Vector(values) => Memory::Vector(half::vec::HalfFloatVecExt::reinterpret_into(values)),
            Memory::Slot(slot) => Memory::Slot(slot),
        };
        Field { memory, len: self.len }
    }
}

impl<T> Default for Field<T> {
    fn default() -> Self {
        Self { memory: Memory::Vector(Vec::new()), len: 0 }
    }
}

impl<T: Element> Deref for Field<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.memory {
            Memory::Vector(values) => &values[..self.len],
            Memory::Slot(slot) => &slot.as_slice()[..self.len],
        }
    }
}

impl<T: Element> DerefMut for Field<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.memory {
            Memory::Vector(values) => &mut values[..self.len],
            Memory::Slot(slot) => &mut slot.as_mut_slice()[..self.len],
        }
    }
}

impl<T: Element + fmt::Debug> fmt::Debug for Field<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_fields_are_vectors() {
        for (len, small) in [(0, true), (SMALL / 4 - 1, true), (SMALL / 4, false), (1 << 20, false)] {
            let pool = FieldPool::<f32>::new(len, 1);
            let mut field = pool.acquire().unwrap();
            assert_eq!(*field, vec![0.0; len]);
            field.fill(2.0);
            field.truncate(len / 2);
            field.truncate(len);
            assert_eq!(*field, vec![2.0; len / 2]);
            match field.into_memory() {
                Memory::Vector(values) => assert_eq!((values.len(), small), (len / 2, true)),
                Memory::Slot(slot) => assert_eq!((slot.bytes(), small), (4 * len, false)),
            }
        }
    }

    #[test]
    fn more_than_can_be_is_an_error() {
        assert!(FieldPool::<i64>::new(usize::MAX, 1).acquire().is_err());
    }
}
