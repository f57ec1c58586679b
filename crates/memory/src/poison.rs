//! Builds with debug assertions overwrite blocks as they change hands, so that whoever uses one too early or too late reads
//! nonsense every time, and recognise a block that is released twice. (Not under Miri, which sees both by itself, and minds
//! that padding is read.)

use crate::class::Class;
use std::ptr::NonNull;

/// Every byte of a block nobody has written yet.
const FRESH: u8 = 0xCD;
/// Every byte of a free block, but for its link.
const FREE: u8 = 0xDD;

/// # Safety
/// `start` is a block of the class that nobody else can reach.
#[inline(always)]
pub(crate) unsafe fn allocated(start: NonNull<u8>, class: Class) {
    if cfg!(all(debug_assertions, not(miri))) {
        // SAFETY: the caller's block.
        unsafe { start.write_bytes(FRESH, class.bytes()) };
    }
}

/// # Safety
/// As for [`allocated`].
#[inline(always)]
pub(crate) unsafe fn released(start: NonNull<u8>, class: Class) {
    if cfg!(all(debug_assertions, not(miri))) {
        const LINK: usize = size_of::<usize>();
        // SAFETY: the caller's block, which was filled when it was allocated, so that all of it is initialised.
        let after_link = unsafe { std::slice::from_raw_parts(start.add(LINK).as_ptr(), class.bytes() - LINK) };
        assert!(after_link.iter().any(|&byte| byte != FREE), "a block was released twice");
        // SAFETY: as above.
        unsafe { start.write_bytes(FREE, class.bytes()) };
    }
}
