//! Builds with debug assertions overwrite blocks when they change owners. So a thread that uses one too early or too
//! late reads nonsense every time. They also recognise a block that is released twice. (Not under Miri, which detects
//! both by itself, and refuses reads of padding.)

use crate::class::Class;
use std::ptr::NonNull;

const ON: bool = cfg!(all(debug_assertions, not(miri)));
/// Every word of a block that was never written.
const FRESH: u64 = 0xCDCD_CDCD_CDCD_CDCD;
/// The content of every word of a free block but the first, which is its link. The word's address is mixed in, so that
/// no data equals it by chance.
const FREE: u64 = 0xF4EE_DDDD_DDDD_DDDD;

fn words(start: NonNull<u8>, class: Class) -> impl Iterator<Item = NonNull<u64>> {
    // SAFETY: callers pass a block of the class, which is 16-aligned and a multiple of 16 bytes.
    (0..class.bytes() / 8).map(move |at| unsafe { start.cast::<u64>().add(at) })
}

fn free(word: NonNull<u64>) -> u64 {
    FREE ^ word.as_ptr().addr() as u64
}

/// # Safety
/// `start` is a block of the class that no other thread can reach.
#[inline(always)]
pub(crate) unsafe fn allocated(start: NonNull<u8>, class: Class) {
    if ON {
        // SAFETY: the caller's block.
        words(start, class).for_each(|word| unsafe { word.write(FRESH) });
    }
}

/// # Safety
/// As for [`allocated`].
///
/// # Panics
/// If the block is free already, in builds with debug assertions.
#[inline(always)]
pub(crate) unsafe fn released(start: NonNull<u8>, class: Class) {
    if ON {
        // SAFETY: the caller's block, all of which was written when it was allocated.
        let is_live = words(start, class).skip(1).any(|word| unsafe { word.read() } != free(word));
        assert!(is_live, "a block was released twice");
        // SAFETY: as above.
        words(start, class).for_each(|word| unsafe { word.write(free(word)) });
    }
}
