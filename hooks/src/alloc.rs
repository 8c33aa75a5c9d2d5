//! The allocator of a process that lives for a millisecond: it only moves forward, through chunks
//! mapped from the system, and the end of the process frees everything.
//!
//! musl's own costs a tenth of the whole process in system calls. This is the only place of the
//! crate with unsafe code: [`GlobalAlloc`] cannot be implemented without.
#![allow(unsafe_code, reason = "an allocator is made of raw memory; each block says why it holds")]

use std::{
    alloc::{GlobalAlloc, Layout},
    hint, ptr,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering},
};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// What is mapped at once, bytes; pages that nobody touches cost nothing.
const CHUNK: usize = 1 << 20;

/// A block of this size or more that is given back is used again, bytes: a file that was read and
/// is done with. Its pages are there, and each new one costs a page fault.
const REUSED: usize = 8 << 10;

/// The allocator. Only the last block of a region is ever grown in place, which is what a growing
/// vector or string needs.
#[derive(Debug)]
pub struct Bump {
    /// Held while the regions change.
    busy: AtomicBool,
    /// What is left of the chunk.
    chunk: Region,
    /// What is left of a large block that was given back.
    spare: Region,
}

/// Free bytes.
#[derive(Debug)]
struct Region {
    /// The first one.
    next: AtomicPtr<u8>,
    /// How many there are.
    left: AtomicUsize,
}

/// The right to change a [`Bump`]; it ends when dropped.
struct Turn<'a>(&'a Bump);

// === impl Bump ===

impl Bump {
    /// An allocator without memory yet.
    pub const fn new() -> Self {
        Self { busy: AtomicBool::new(false), chunk: Region::new(), spare: Region::new() }
    }

    fn turn(&self) -> Turn<'_> {
        // The hook has one thread, so this never turns; correct it is with any number.
        while self.busy.swap(true, Ordering::Acquire) {
            hint::spin_loop();
        }
        Turn(self)
    }
}

impl Default for Bump {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: a block is carved from a mapping that is never unmapped, aligned and sized as asked, and
// its region moves past it under the lock, so no two live blocks overlap: a region only ever gets
// what its owner gave back. Failures are null pointers, and nothing here unwinds.
unsafe impl GlobalAlloc for Bump {
    // Never inlined, any of them: there are thousands of callers, and size is start-up time.
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.turn().carve(layout)
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let block = self.turn().carve(layout);
        if !block.is_null() {
            // Not fresh from the system if it was given back.
            // SAFETY: `carve` returned a block of this size that nobody else has.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline(never)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.turn().take_back(block, layout.size());
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let turn = self.turn();
        if size <= layout.size() || turn.grow(block, layout.size(), size) {
            return block;
        }
        // The caller vouches for the size as for a layout of its own.
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return ptr::null_mut();
        };
        let moved = turn.carve(wanted);
        if !moved.is_null() {
            // SAFETY: both blocks are live, at least `layout.size()` long, and apart.
            unsafe { ptr::copy_nonoverlapping(block, moved, layout.size()) };
            turn.take_back(block, layout.size());
        }
        moved
    }
}

// === impl Turn ===

impl Turn<'_> {
    fn carve(&self, layout: Layout) -> *mut u8 {
        let Bump { chunk, spare, .. } = self.0;
        match spare.carve(layout).or_else(|| chunk.carve(layout)) {
            Some(block) => block,
            // A fresh chunk starts on a page; larger alignments got their room.
            None if self.map(layout) => chunk.carve(layout).unwrap_or(ptr::null_mut()),
            None => ptr::null_mut(),
        }
    }

    fn grow(&self, block: *mut u8, from: usize, to: usize) -> bool {
        let grow = |region: &Region| {
            let is_last = region.is_behind(block, from) && to - from <= region.left();
            if is_last {
                region.set(block.wrapping_add(to), region.left() - (to - from));
            }
            is_last
        };
        grow(&self.0.chunk) || grow(&self.0.spare)
    }

    fn take_back(&self, block: *mut u8, size: usize) {
        let Bump { chunk, spare, .. } = self.0;
        if chunk.is_behind(block, size) {
            chunk.set(block, chunk.left() + size);
        } else if spare.is_behind(block, size) {
            spare.set(block, spare.left() + size);
        } else if size >= REUSED && size > spare.left() {
            spare.set(block, size);
        }
    }

    /// Maps a new chunk that has room for `layout`; what is left of the old one is lost.
    #[cold]
    fn map(&self, layout: Layout) -> bool {
        let Some(need) = layout.size().checked_add(layout.align()) else { return false };
        let Some(size) = need.max(CHUNK).checked_next_multiple_of(CHUNK) else { return false };
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that
        // is mapped.
        match unsafe { mmap_anonymous(ptr::null_mut(), size, protection, flags) } {
            Ok(chunk) => {
                self.0.chunk.set(chunk.cast(), size);
                true
            }
            Err(_) => false,
        }
    }
}

// === impl Region ===

impl Region {
    const fn new() -> Self {
        Self { next: AtomicPtr::new(ptr::null_mut()), left: AtomicUsize::new(0) }
    }

    fn next(&self) -> *mut u8 {
        self.next.load(Ordering::Relaxed)
    }

    fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    fn set(&self, next: *mut u8, left: usize) {
        self.next.store(next, Ordering::Relaxed);
        self.left.store(left, Ordering::Relaxed);
    }

    /// Whether the block ends where the free bytes begin. That is its last block, or one of another
    /// region that happens to touch this one, and then the two are one for all that matters here.
    fn is_behind(&self, block: *mut u8, size: usize) -> bool {
        block.wrapping_add(size) == self.next()
    }

    fn carve(&self, layout: Layout) -> Option<*mut u8> {
        let pad = self.next().align_offset(layout.align());
        let need = pad.checked_add(layout.size())?;
        let left = self.left().checked_sub(need)?;
        let block = self.next().wrapping_add(pad);
        self.set(block.wrapping_add(layout.size()), left);
        Some(block)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
