//! The largest allocation of a thread, so that a length from the input is not believed before it is compared with what is there.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which notes the largest request.
struct Noting;

#[global_allocator]
static ALLOCATOR: Noting = Noting;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn note(bytes: usize) {
    // Nothing is noted while a thread ends.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
}

// SAFETY: every request goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) };
    }
}

/// Runs it.
///
/// # Panics
/// If it asked for more than `bytes` bytes at once.
pub fn within<R>(bytes: usize, run: impl FnOnce() -> R) -> R {
    let before = LARGEST.replace(0);
    let result = run();
    let largest = LARGEST.replace(before);
    assert!(largest <= bytes, "{largest} bytes were asked for at once, and {bytes} are enough");
    result
}
