//! The memory of batches: [`Arena`]s, recycled by an [`ArenaPool`].
//!
//! An arena is a mapping of its own. It begins at a multiple of 2 MiB and is advised to have huge pages, so
//! its first use faults once per 2 MiB and not once per 4 KiB; a recycled arena does not fault at all. A
//! [`Slot`] is an arena in use. When it is dropped, on any thread and at any time, its arena returns to the
//! pool's free list, without a lock; if that list is full or the pool was dropped, the arena is unmapped. No
//! thread waits for a slot to return: if none is free, another arena is mapped. So a user who keeps every
//! batch gets new memory for each, and a user who keeps none reuses a few.
//!
//! Values are plain numbers ([`Element`]), for which all bits are valid, and fresh memory is zero. So a slot
//! can be read at any time: a recycled one has old values, not undefined ones. Source: own.

use std::{fmt, io, ptr::NonNull, slice};

use super::free_list::FreeList;
use crate::{Error, ErrorKind, Result, sync::Arc};

/// The alignment of every arena, in bytes: a huge page of x86-64, and of arm64 with pages of 4 KiB.
pub const ARENA_ALIGN: usize = 2 << 20;

/// Numbers that a slot can hold: every bit pattern is valid, and there is no padding.
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + 'static {}

mod sealed {
    /// # Safety
    /// Every pattern of bits must be a value, and its alignment at most [`super::ARENA_ALIGN`].
    pub unsafe trait Sealed {}
}

macro_rules! elements {
    ($($number:ty)*) => {$(
        // SAFETY: a primitive number, or the bits of one in a transparent struct.
        unsafe impl sealed::Sealed for $number {}
        impl Element for $number {}
    )*};
}
elements! { u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 }
elements! { half::f16 half::bf16 }

/// A separate mapping of memory: aligned to [`ARENA_ALIGN`], zero at first.
pub struct Arena {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to the arena alone, and is reached through it by the usual rules of `&` and
// `&mut`.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `bytes` bytes, at least 1, and up to an eighth more to fill whole huge pages. The system provides
    /// the memory when it is first touched.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if the allocation fails.
    pub fn new(bytes: usize) -> Result<Self> {
        let refused = |cause: io::Error| {
            Error::new(
                ErrorKind::Memory,
                format!(
                    "allocation failed: {bytes} bytes for a field of a batch; make batches smaller, or keep fewer of them"
                ),
            )
            .because(cause)
        };
        if bytes == 0 || isize::try_from(bytes).is_err() {
            return Err(refused(io::ErrorKind::InvalidInput.into()));
        }
        let start = system::map(bytes).map_err(refused)?;
        Ok(Self { start, bytes })
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of bytes that an arena of `bytes` maps.
    pub fn mapped_bytes(bytes: usize) -> usize {
        system::mapped_len(bytes).unwrap_or(usize::MAX)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with the same size, and no reference to it is left.
        unsafe { system::unmap(self.start, self.bytes) };
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("start", &self.start).field("bytes", &self.bytes).finish()
    }
}

/// Arenas of one size, in use and free.
#[derive(Debug)]
pub struct ArenaPool {
    bytes: usize,
    resting: Arc<FreeList<Arena>>,
}

impl ArenaPool {
    /// A pool of arenas of `bytes` bytes each, which keeps at most `slots` free ones. None is mapped yet.
    pub fn new(bytes: usize, slots: usize) -> Self {
        Self { bytes, resting: Arc::new(FreeList::new(slots)) }
    }

    /// Takes a free arena, or maps another.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if the allocation fails.
    pub fn acquire(&self) -> Result<Slot> {
        let arena = match self.resting.take() {
            Some(arena) => arena,
            None => Box::new(Arena::new(self.bytes)?),
        };
        Ok(Slot { arena: Some(arena), home: self.resting.clone() })
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of free arenas now.
    pub fn resting(&self) -> usize {
        self.resting.len()
    }
}

impl Drop for ArenaPool {
    fn drop(&mut self) {
        // Slots still in use keep the closed list: their arenas are unmapped instead of returned.
        self.resting.close();
    }
}

#[derive(Debug)]
pub struct Slot {
    /// `None` only during drop.
    arena: Option<Box<Arena>>,
    home: Arc<FreeList<Arena>>,
}

impl Slot {
    #[expect(clippy::unwrap_used, reason = "`None` only during drop")]
    fn arena(&self) -> &Arena {
        self.arena.as_ref().unwrap()
    }

    pub fn bytes(&self) -> usize {
        self.arena().bytes
    }

    /// The start of the memory. Valid for reads and writes of [`Slot::bytes`] bytes until the slot is
    /// dropped, even if the slot is moved.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.arena().start
    }

    /// All values, as many as fit.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        let Arena { start, bytes } = *self.arena();
        // SAFETY: the memory has that length, initialised (zero, or written as an `Element` and so without
        // padding), aligned, and only read while `self` is borrowed. Any bits are a `T`.
        unsafe { slice::from_raw_parts(start.as_ptr().cast(), bytes / size_of::<T>()) }
    }

    /// All values, as many as fit: zeros in fresh memory, else the values written last.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        let Arena { start, bytes } = *self.arena();
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(start.as_ptr().cast(), bytes / size_of::<T>()) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // An arena that finds no place is dropped, and so unmapped.
        drop(self.arena.take().and_then(|arena| self.home.leave(arena)));
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::{io, ptr, ptr::NonNull};

    use super::ARENA_ALIGN;

    /// The length mapped for `bytes`: whole huge pages if that adds at most an eighth, else whole pages. A
    /// remainder in small pages would cost as much at its first use as all huge pages before it.
    pub(super) fn mapped_len(bytes: usize) -> Option<usize> {
        let huge = bytes.checked_next_multiple_of(ARENA_ALIGN)?;
        if huge - bytes <= bytes / 8 {
            return Some(huge);
        }
        // SAFETY: a query without preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        bytes.checked_next_multiple_of(page)
    }

    pub(super) fn map(bytes: usize) -> io::Result<NonNull<u8>> {
        let too_much = || io::Error::from_raw_os_error(libc::ENOMEM);
        let len = mapped_len(bytes).ok_or_else(too_much)?;
        // Enough to contain an aligned piece; the parts before and after it are unmapped at once.
        let reserved = len.checked_add(ARENA_ALIGN).ok_or_else(too_much)?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at a place of the system's choice, that touches no other memory.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), reserved, access, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapped = mapped.cast::<u8>();
        let before = mapped.align_offset(ARENA_ALIGN);
        // SAFETY: `before` is less than the alignment, which is what was reserved beyond `len`; the pieces
        // unmapped and advised are within the mapping, and unused. If an unmap fails, a piece of address
        // space without memory is left; if the advice fails, pages are small.
        unsafe {
            let start = mapped.add(before);
            if before > 0 {
                libc::munmap(mapped.cast(), before);
            }
            // Never 0 bytes, which would be an error: `before` is less than the alignment.
            libc::munmap(start.add(len).cast(), ARENA_ALIGN - before);
            libc::madvise(start.cast(), len, libc::MADV_HUGEPAGE);
            NonNull::new(start).ok_or_else(too_much)
        }
    }

    /// # Safety
    /// `start` must come from [`map`] with the same `bytes`, and not be used any more.
    pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        // The same function of `bytes` as in `map`, so the length need not be kept.
        let len = mapped_len(bytes).unwrap_or(bytes);
        // SAFETY: promised by the caller.
        unsafe { libc::munmap(start.as_ptr().cast(), len) };
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::{
        alloc::{Layout, alloc_zeroed, dealloc},
        io,
        ptr::NonNull,
    };

    use super::ARENA_ALIGN;

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes, ARENA_ALIGN).ok()
    }

    pub(super) fn mapped_len(bytes: usize) -> Option<usize> {
        Some(bytes)
    }

    pub(super) fn map(bytes: usize) -> io::Result<NonNull<u8>> {
        let start = layout(bytes).and_then(|layout| {
            // SAFETY: `Arena::new` admits no size of 0.
            NonNull::new(unsafe { alloc_zeroed(layout) })
        });
        start.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// # Safety
    /// `start` must come from [`map`] with the same `bytes`, and not be used any more.
    pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        if let Some(layout) = layout(bytes) {
            // SAFETY: promised by the caller.
            unsafe { dealloc(start.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashSet, thread};

    const BYTES: usize = 3 * ARENA_ALIGN / 2 + 4;

    #[test]
    fn fresh_memory_is_aligned_and_zero() {
        for bytes in [1, 4096, ARENA_ALIGN - 2, ARENA_ALIGN, BYTES, 9 * ARENA_ALIGN - 100_000] {
            let mut slot = ArenaPool::new(bytes, 1).acquire().unwrap();
            assert_eq!(slot.as_ptr().align_offset(ARENA_ALIGN), 0);
            assert_eq!((slot.bytes(), slot.as_slice::<u16>().len()), (bytes, bytes / 2));
            assert!(slot.as_slice::<i64>().iter().all(|&value| value == 0));
            slot.as_mut_slice::<u16>().fill(7);
            assert!(slot.as_slice::<u16>().iter().all(|&value| value == 7));
        }
    }

    #[test]
    fn a_dropped_slot_is_used_again() {
        let pool = ArenaPool::new(BYTES, 2);
        let mut addresses = HashSet::new();
        let mut last = pool.acquire().unwrap();
        for i in 0..1000 {
            let mut slot = pool.acquire().unwrap();
            slot.as_mut_slice::<i32>()[i] = i as i32;
            addresses.insert(slot.as_ptr());
            last = slot;
        }
        assert!(addresses.len() <= 2, "{addresses:?}");
        assert_eq!(pool.resting(), 1);
        drop(last);
        assert_eq!(pool.resting(), 2);
    }

    #[test]
    fn kept_slots_get_new_memory_and_only_some_rest() {
        let pool = ArenaPool::new(BYTES, 3);
        let kept: Vec<Slot> = (0..200)
            .map(|i| {
                let mut slot = pool.acquire().unwrap();
                slot.as_mut_slice::<i64>().fill(i);
                slot
            })
            .collect();
        for (i, slot) in kept.iter().enumerate() {
            assert!(slot.as_slice::<i64>().iter().all(|&value| value == i as i64));
        }
        drop(kept);
        assert_eq!(pool.resting(), 3);
    }

    #[test]
    fn slots_outlive_their_pool_and_their_thread() {
        let pool = ArenaPool::new(BYTES, 3);
        let mut slots: Vec<Slot> = (0..3).map(|_| pool.acquire().unwrap()).collect();
        let other = slots.pop().unwrap();
        thread::spawn(move || drop(other)).join().unwrap();
        assert_eq!(pool.resting(), 1);
        drop(pool);
        slots[0].as_mut_slice::<f32>().fill(1.0);
        let home = slots[0].home.clone();
        thread::spawn(move || drop(slots)).join().unwrap();
        assert!(home.is_empty());
    }

    #[test]
    fn what_the_system_refuses_is_an_error() {
        for bytes in [0, usize::MAX / 4, isize::MAX as usize, isize::MAX as usize + 1, usize::MAX] {
            let error = ArenaPool::new(bytes, 1).acquire().unwrap_err();
            assert_eq!(error.kind, ErrorKind::Memory, "{bytes}: {error}");
            assert!(!error.kind.is_record());
        }
    }
}
