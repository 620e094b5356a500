//! The extension module's allocator: large blocks are mapped for themselves, all others come from the
//! system's.
//!
//! In go the layouts of everything that Rust code allocates, out come blocks. glibc keeps freed memory for
//! the thread that allocated it, up to twice the largest block that the process has freed so far (at most 64
//! MiB). Large pages decompressed by each of 14 I/O threads leave 24 MB with each of them, which no budget
//! counts. A mapped block goes back to the system when it is freed.
//!
//! Why not `M_MMAP_THRESHOLD`: it would hold for numpy and torch as well, in the same process, and slow their
//! large temporary arrays down. Why not a foreign allocator: those keep freed memory, too, and give it back
//! after a while.
//!
//! Whether a block is mapped follows from its layout alone, so none is marked. A mapped block grows by
//! `mremap`, which moves pages and copies nothing.
//!
//! Tests that count allocations have an allocator of their own instead, which is left out where the feature
//! `python` is linted.
//!
//! Source: own; mmap(2), mremap(2): lengths are rounded up to pages, so `munmap` and `mremap` take the length
//! of the layout.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ptr,
};

use crate::record::SMALL_READ;

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
    // SAFETY: a new mapping, at a place of the system's choice, that touches no other memory.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    // Small pages would cost a fault per 4 KiB. What huge ones take is at most the length of all mappings.
    // SAFETY: the mapping was just made, and advice changes no content. Failing, it leaves small pages.
    unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) };
    start.cast()
}

// SAFETY: a layout decides for good who its block belongs to: the system's allocator, to which calls are
// passed on as they came, or a mapping of at least its size, which begins at a page. Nothing in here panics.
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
                // SAFETY: both blocks are there, and as long as what is copied. Without the new one the old
                // one stays.
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
