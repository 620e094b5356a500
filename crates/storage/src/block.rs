//! Memory blocks that records are read into, reused when the last record in them is dropped.
//!
//! Fresh memory costs a page fault per 4 KiB at first touch, which is more than the copy itself; a reused
//! block costs nothing. Block sizes are powers of two. Unused blocks are kept as long as all blocks take no
//! more than those that were in use at a time, or 64 MiB beside those in use. Large blocks are mapped
//! separately, so that dropping them returns their memory to the system. An allocator would keep an uncounted
//! part of it per thread.

use std::{
    mem,
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use memmap2::MmapMut;

use crate::{
    Error, ErrorKind, Result,
    contract::{Permit, SMALL_READ},
    fallible_alloc,
};

/// The smallest block; shorter requests get plain memory of their own.
const SMALLEST: usize = 64 << 10;
/// The largest block that is kept.
const LARGEST: usize = 16 << 20;
/// The bytes of unused blocks that are kept in any case.
const KEPT: usize = 64 << 20;

#[derive(Debug)]
enum BlockMemory {
    Allocated(Box<[u8]>),
    /// A separate mapping; untouched pages take no memory.
    Mapped(MmapMut),
}

impl Default for BlockMemory {
    fn default() -> Self {
        Self::Allocated(Box::default())
    }
}

impl Deref for BlockMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Allocated(data) => data,
            Self::Mapped(data) => data,
        }
    }
}

impl DerefMut for BlockMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Allocated(data) => data,
            Self::Mapped(data) => data,
        }
    }
}

impl BlockMemory {
    /// `size` zero bytes.
    fn new(size: usize) -> Result<Self> {
        if size as u64 <= SMALL_READ {
            return fallible_alloc::zero_bytes(size).map(Self::Allocated);
        }
        // This call refuses a `size` that is no valid length of memory.
        MmapMut::map_anon(size).map(Self::Mapped).map_err(|error| {
            let refused = fallible_alloc::refused(size);
            Error { kind: ErrorKind::Memory, ..refused.because(error) }
        })
    }
}

#[derive(Debug, Default)]
pub struct BlockPool {
    resting: Mutex<RestingBlocks>,
    in_use: AtomicUsize,
    /// The most bytes that were in use at a time.
    peak: AtomicUsize,
}

#[derive(Debug, Default)]
struct RestingBlocks {
    blocks: Vec<BlockMemory>,
    bytes: usize,
}

impl BlockPool {
    /// How much memory a block of `len` bytes takes.
    pub fn size_of(len: usize) -> usize {
        match len {
            SMALLEST..=LARGEST => len.next_power_of_two(),
            _ => len,
        }
    }

    /// A block of `len` bytes whose content is arbitrary, and which holds `permit`.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if the allocation failed.
    pub fn take(self: &Arc<Self>, len: usize, permit: Option<Permit>) -> Result<PooledBlock> {
        let size = Self::size_of(len);
        let data = if (SMALLEST..=LARGEST).contains(&size) {
            let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
            let at = resting.blocks.iter().rposition(|block| block.len() == size);
            resting.bytes -= at.map_or(0, |_| size);
            at.map(|at| resting.blocks.swap_remove(at))
        } else {
            None
        };
        let data = match data {
            Some(data) => data,
            None => BlockMemory::new(size)?,
        };
        let in_use = self.in_use.fetch_add(size, Ordering::Relaxed) + size;
        self.peak.fetch_max(in_use, Ordering::Relaxed);
        Ok(PooledBlock { data, len, pool: Arc::clone(self), _permit: permit })
    }

    /// Bytes of the blocks in use.
    pub fn bytes_in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    fn give_back(&self, data: BlockMemory) {
        let size = data.len();
        let in_use = self.in_use.fetch_sub(size, Ordering::Relaxed) - size;
        if !(SMALLEST..=LARGEST).contains(&size) {
            return;
        }
        let most = KEPT.max(self.peak.load(Ordering::Relaxed).saturating_sub(in_use));
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        if resting.bytes + size <= most {
            resting.bytes += size;
            resting.blocks.push(data);
        }
    }
}

/// A block in use; dropping it returns its memory to the pool.
#[derive(Debug)]
pub struct PooledBlock {
    data: BlockMemory,
    len: usize,
    pool: Arc<BlockPool>,
    /// Dropped after the memory.
    _permit: Option<Permit>,
}

impl PooledBlock {
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.data[..self.len]
    }
}

impl AsRef<[u8]> for PooledBlock {
    fn as_ref(&self) -> &[u8] {
        &self.data[..self.len]
    }
}

impl Drop for PooledBlock {
    fn drop(&mut self) {
        self.pool.give_back(mem::take(&mut self.data));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn memory_comes_back_when_the_last_slice_is_dropped() {
        let pool = Arc::new(BlockPool::default());
        let bytes = Bytes::from_owner(pool.take(100_000, None).unwrap());
        let address = bytes.as_ptr();
        let slice = bytes.slice(10..20);
        drop(bytes);
        assert_ne!(pool.take(100_000, None).unwrap().as_ref().as_ptr(), address);
        assert_eq!(pool.bytes_in_use(), 1 << 17);
        drop(slice);
        assert_eq!(pool.bytes_in_use(), 0);
        let again: Vec<_> = (0..2).map(|_| pool.take(120_000, None).unwrap()).collect();
        assert!(again.iter().any(|block| block.as_ref().as_ptr() == address));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let pool = Arc::new(BlockPool::default());
        let resting = || {
            let resting = pool.resting.lock().unwrap();
            let (in_use, peak) = (pool.bytes_in_use(), pool.peak.load(Ordering::Relaxed));
            assert_eq!(resting.bytes, resting.blocks.iter().map(|block| block.len()).sum::<usize>());
            assert!(resting.bytes + in_use <= peak.max(in_use + KEPT));
            resting.bytes
        };
        let take = |n: usize, len| (0..n).map(|_| pool.take(len, None).unwrap()).collect::<Vec<_>>();
        for _ in 0..3 {
            drop(take(2, LARGEST));
            assert_eq!(resting(), 2 * LARGEST);
        }
        // Of two sizes, as many as are kept in any case.
        drop(take(9, LARGEST / 4));
        assert_eq!(resting(), KEPT);
        // Those that were in use at a time.
        drop(take(9, LARGEST));
        assert!(resting() > 8 * LARGEST);
        let some = take(7, LARGEST);
        resting();
        drop(take(5, LARGEST / 2));
        resting();
        drop(some);
        let before = resting();
        drop(pool.take(LARGEST + 1, None).unwrap());
        drop(pool.take(10, None).unwrap());
        assert_eq!(resting(), before);
    }
}
