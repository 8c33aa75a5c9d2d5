#![allow(unsafe_code, reason = "calls the allocator as the language does")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "each call keeps the contract of the trait")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

use super::*;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

#[test]
fn blocks_are_aligned_and_apart() {
    let bump = Bump::new();
    let mut blocks = Vec::new();
    for (round, value) in (0..2_000_usize).zip((0..=u8::MAX).cycle()) {
        let layout = layout(1 + round * 7 % 3_000, 1 << (round % 13));
        let block = unsafe { bump.alloc(layout) };
        assert!(!block.is_null() && block.addr() % layout.align() == 0);
        unsafe { block.write_bytes(value, layout.size()) };
        blocks.push((block, layout.size(), value));
    }
    for (block, size, value) in blocks {
        let bytes = unsafe { std::slice::from_raw_parts(block, size) };
        assert!(bytes.iter().all(|byte| *byte == value));
    }
}

#[test]
fn the_last_block_grows_in_place_and_others_move() {
    let bump = Bump::new();
    unsafe {
        let first = bump.alloc(layout(8, 8));
        first.write_bytes(7, 8);
        assert_eq!(bump.realloc(first, layout(8, 8), 64), first);
        let second = bump.alloc(layout(8, 8));
        let moved = bump.realloc(first, layout(64, 8), 128);
        assert!(moved != first && moved > second);
        assert_eq!(std::slice::from_raw_parts(moved, 8), [7; 8]);
        // Larger than what is left of the chunk.
        let far = bump.realloc(moved, layout(128, 8), 3 * CHUNK);
        assert_eq!(std::slice::from_raw_parts(far, 8), [7; 8]);
        // Given back, it is zeroed when it is used again.
        bump.dealloc(far, layout(3 * CHUNK, 8));
        let again = bump.alloc_zeroed(layout(8, 8));
        assert_eq!((again, std::slice::from_raw_parts(again, 8)), (far, &[0; 8][..]));
    }
}

#[test]
fn a_large_block_that_is_given_back_is_used_again() {
    let bump = Bump::new();
    unsafe {
        let file = bump.alloc(layout(REUSED, 1));
        let kept = bump.alloc(layout(8, 8));
        kept.write_bytes(7, 8);
        bump.dealloc(file, layout(REUSED, 1));
        let text = bump.alloc(layout(REUSED - 8, 1));
        assert_eq!(text, file);
        text.write_bytes(9, REUSED - 8);
        // It is the last one there, and grows no further than the block did.
        assert_eq!(bump.realloc(text, layout(REUSED - 8, 1), REUSED), text);
        let moved = bump.realloc(text, layout(REUSED, 1), REUSED + 1);
        assert!(moved > kept);
        assert_eq!(std::slice::from_raw_parts(moved, REUSED - 8), [9; REUSED - 8]);
        assert_eq!(std::slice::from_raw_parts(kept, 8), [7; 8]);
    }
}

#[test]
fn what_cannot_be_had_is_null() {
    let bump = Bump::new();
    let huge = layout(isize::MAX as usize - 4096, 1);
    assert!(unsafe { bump.alloc(huge) }.is_null());
    assert!(!unsafe { bump.alloc(layout(16, 1 << 22)) }.is_null());
}

#[test]
fn threads_take_turns() {
    let bump = Bump::new();
    std::thread::scope(|scope| {
        for value in 1..=4_u8 {
            let bump = &bump;
            scope.spawn(move || {
                for _ in 0..5_000 {
                    let block = unsafe { bump.alloc(layout(24, 8)) };
                    unsafe { block.write_bytes(value, 24) };
                    let bytes = unsafe { std::slice::from_raw_parts(block, 24) };
                    assert!(bytes.iter().all(|byte| *byte == value));
                }
            });
        }
    });
}
