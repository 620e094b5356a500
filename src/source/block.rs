//! Blocks of memory that records are read into, used again when the last record in them is dropped.
//!
//! Fresh memory costs a page fault per 4 KiB at first touch, which is more than the copy itself; a block that comes back
//! costs nothing. Blocks come in powers of two, and what is kept is bounded.

use std::{
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{Result, room};

/// The smallest block; shorter requests get plain memory of their own.
const SMALLEST: usize = 64 << 10;
/// The largest block that is kept.
const LARGEST: usize = 16 << 20;
/// How many bytes are kept at most.
const KEPT: usize = 64 << 20;

/// The blocks at rest.
#[derive(Debug, Default)]
pub(crate) struct BlockPool {
    resting: Mutex<Vec<Box<[u8]>>>,
    in_use: AtomicUsize,
}

impl BlockPool {
    /// A block of `len` bytes whose content is arbitrary.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the system refuses.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Result<Block> {
        let size = match len {
            0..SMALLEST => len,
            SMALLEST..=LARGEST => len.next_power_of_two(),
            _ => len,
        };
        let data = if (SMALLEST..=LARGEST).contains(&size) {
            let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
            resting.iter().position(|block| block.len() == size).map(|at| resting.swap_remove(at))
        } else {
            None
        };
        let data = match data {
            Some(data) => data,
            None => room::zero_bytes(size)?,
        };
        self.in_use.fetch_add(size, Ordering::Relaxed);
        Ok(Block { data, len, pool: Arc::clone(self) })
    }

    /// Bytes of the blocks that are not at rest.
    pub(crate) fn bytes_in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    fn give_back(&self, data: Box<[u8]>) {
        self.in_use.fetch_sub(data.len(), Ordering::Relaxed);
        if !(SMALLEST..=LARGEST).contains(&data.len()) {
            return;
        }
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: usize = resting.iter().map(|block| block.len()).sum();
        if kept + data.len() <= KEPT {
            resting.push(data);
        }
    }
}

/// A block in use; dropping it gives its memory back.
#[derive(Debug)]
pub(crate) struct Block {
    data: Box<[u8]>,
    len: usize,
    pool: Arc<BlockPool>,
}

impl Block {
    /// The bytes, to be filled.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.data[..self.len]
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.data[..self.len]
    }
}

impl Drop for Block {
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
        let bytes = Bytes::from_owner(pool.take(100_000).unwrap());
        let address = bytes.as_ptr();
        let slice = bytes.slice(10..20);
        drop(bytes);
        assert_ne!(pool.take(100_000).unwrap().as_ref().as_ptr(), address);
        assert_eq!(pool.bytes_in_use(), 1 << 17);
        drop(slice);
        assert_eq!(pool.bytes_in_use(), 0);
        let again: Vec<_> = (0..2).map(|_| pool.take(120_000).unwrap()).collect();
        assert!(again.iter().any(|block| block.as_ref().as_ptr() == address));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let pool = Arc::new(BlockPool::default());
        drop((0..20).map(|_| pool.take(LARGEST).unwrap()).collect::<Vec<_>>());
        assert_eq!(pool.resting.lock().unwrap().len(), KEPT / LARGEST);
        drop(pool.take(LARGEST + 1).unwrap());
        drop(pool.take(10).unwrap());
        assert_eq!(pool.resting.lock().unwrap().len(), KEPT / LARGEST);
    }
}
