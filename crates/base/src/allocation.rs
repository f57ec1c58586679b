//! What a thread allocates on the heap, for tests that bound it: of programs that make [`Watching`] their
//! global allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, watched: `#[global_allocator] static ALLOCATOR: Watching = Watching;`
#[derive(Debug)]
pub struct Watching;

thread_local! {
    /// Requests, and the largest of them in bytes.
    static SEEN: Cell<(u64, usize)> = const { Cell::new((0, 0)) };
}

fn note(bytes: usize) {
    // Fails only while the thread ends, when nobody looks any more.
    let _ = SEEN.try_with(|seen| {
        let (count, largest) = seen.get();
        seen.set((count + 1, largest.max(bytes)));
    });
}

// SAFETY: every request goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Watching {
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

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) };
    }
}

/// Runs it: its result, how many times it asked for memory, and the most bytes it asked for at once. Zeros
/// where the global allocator is another.
pub fn watch<R>(run: impl FnOnce() -> R) -> (R, u64, usize) {
    let before = SEEN.replace((0, 0));
    let result = run();
    let (count, largest) = SEEN.replace(before);
    (result, count, largest)
}
