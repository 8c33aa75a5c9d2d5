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

/// The allocator. Only the last block is ever given back or grown in place, which is what a
/// growing vector or string needs.
#[derive(Debug)]
pub struct Bump {
    /// Held while `next` and `left` change: they change together.
    busy: AtomicBool,
    /// The first free byte of the chunk.
    next: AtomicPtr<u8>,
    /// How many bytes are free from there.
    left: AtomicUsize,
}

/// The right to change a [`Bump`]; it ends when dropped.
struct Turn<'a>(&'a Bump);

// === impl Bump ===

impl Bump {
    /// An allocator without memory yet.
    pub const fn new() -> Self {
        Self {
            busy: AtomicBool::new(false),
            next: AtomicPtr::new(ptr::null_mut()),
            left: AtomicUsize::new(0),
        }
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
// `next` moves past it under the lock, so no two live blocks overlap; failures are null pointers,
// and nothing here unwinds.
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
            // Not fresh from the system if a last block was given back.
            // SAFETY: `carve` returned a block of this size that nobody else has.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline(never)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let turn = self.turn();
        if turn.is_last(block, layout) {
            turn.set(block, turn.left() + layout.size());
        }
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let turn = self.turn();
        if size <= layout.size() {
            return block;
        }
        let more = size - layout.size();
        if turn.is_last(block, layout) && more <= turn.left() {
            turn.set(turn.next().wrapping_add(more), turn.left() - more);
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
        }
        moved
    }
}

// === impl Turn ===

impl Turn<'_> {
    fn next(&self) -> *mut u8 {
        self.0.next.load(Ordering::Relaxed)
    }

    fn left(&self) -> usize {
        self.0.left.load(Ordering::Relaxed)
    }

    fn set(&self, next: *mut u8, left: usize) {
        self.0.next.store(next, Ordering::Relaxed);
        self.0.left.store(left, Ordering::Relaxed);
    }

    /// Whether the block ends where the free space begins. A block of an earlier chunk could only
    /// by touching this one, and then the two are one mapping for all that matters here.
    fn is_last(&self, block: *mut u8, layout: Layout) -> bool {
        block.wrapping_add(layout.size()) == self.next()
    }

    fn carve(&self, layout: Layout) -> *mut u8 {
        let pad = self.next().align_offset(layout.align());
        let fits = pad.checked_add(layout.size()).is_some_and(|need| need <= self.left());
        if !fits && !self.map(layout) {
            return ptr::null_mut();
        }
        // A fresh chunk starts on a page; larger alignments got their room.
        let pad = self.next().align_offset(layout.align());
        let Some(left) = pad.checked_add(layout.size()).and_then(|n| self.left().checked_sub(n))
        else {
            return ptr::null_mut();
        };
        let block = self.next().wrapping_add(pad);
        self.set(block.wrapping_add(layout.size()), left);
        block
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
                self.set(chunk.cast(), size);
                true
            }
            Err(_) => false,
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
