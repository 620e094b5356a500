//! The extension module's global allocator: each large block is a separate mapping, all others are the system
//! allocator's.
//!
//! glibc keeps freed memory for the thread that allocated it, up to twice the largest block that the process
//! has freed so far (at most 64 MiB). If each of 14 I/O threads decompresses large pages, each keeps 24 MB,
//! which no budget counts. A mapped block returns to the system when it is freed.
//!
//! Why not `M_MMAP_THRESHOLD`: it would also apply to numpy and torch in the same process, and slow down
//! their large temporary arrays. Why not another allocator: those keep freed memory too, and return it only
//! after a while.
//!
//! The layout alone determines whether a block is mapped, so blocks carry no mark. A mapped block grows by
//! `mremap`, which moves pages and copies nothing.
//!
//! Tests that count allocations use their own allocator, which is left out where the feature `python` is
//! linted.
//!
//! Source: own; mmap(2), mremap(2): lengths are rounded up to pages, so `munmap` and `mremap` take the length
//! of the layout.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ptr,
};

use crate::contract::SMALL_READ;

/// The least size of a page, and so the alignment of every mapping.
const PAGE: usize = 4 << 10;

/// Maps blocks above [`SMALL_READ`], those that count in the byte budget.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn is_mapped(layout: Layout) -> bool {
    layout.size() as u64 > SMALL_READ && layout.align() <= PAGE
}

/// Maps `len` zero bytes; null if the system refuses.
fn map(len: usize) -> *mut u8 {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the system chooses; it overlaps no other memory.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    // Small pages would cost a fault per 4 KiB. Huge pages take at most the length of all mappings.
    // SAFETY: the mapping was just made, and the advice changes no content. If it fails, pages stay small.
    unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) };
    start.cast()
}

// SAFETY: the layout alone determines the owner of a block: the system's allocator, to which calls are passed
// on unchanged, or a mapping of at least the layout's size, which begins at a page. Nothing here panics.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout) {
            return map(layout.size());
        }
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout) {
            return map(layout.size());
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_mapped(layout) {
            // SAFETY: the block is a mapping of that length, and the caller's last use of it is over.
            unsafe { libc::munmap(block.cast(), layout.size()) };
            return;
        }
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size is one of a layout.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (is_mapped(layout), is_mapped(new)) {
            // SAFETY: as above.
            (false, false) => unsafe { System.realloc(block, layout, new_size) },
            (true, true) => {
                // SAFETY: the block is a mapping of that length. If it cannot grow it stays as it was.
                let moved =
                    unsafe { libc::mremap(block.cast(), layout.size(), new_size, libc::MREMAP_MAYMOVE) };
                if moved == libc::MAP_FAILED { ptr::null_mut() } else { moved.cast() }
            }
            _ => {
                // SAFETY: both blocks are valid for the copied length. If there is no new block, the old one
                // stays.
                unsafe {
                    let start = self.alloc(new);
                    if !start.is_null() {
                        ptr::copy_nonoverlapping(block, start, layout.size().min(new_size));
                        self.dealloc(block, layout);
                    }
                    start
                }
            }
        }
    }
}
