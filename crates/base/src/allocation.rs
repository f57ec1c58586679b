//! Counts the heap allocations of a thread, for tests that bound them. The test program makes [`Watching`] its
//! global allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with a counter: `#[global_allocator] static ALLOCATOR: Watching = Watching;`
#[derive(Debug)]
pub struct Watching;

thread_local! {
    /// The number of requests, and the largest of them in bytes.
    static SEEN: Cell<(u64, usize)> = const { Cell::new((0, 0)) };
}

fn note(bytes: usize) {
    // Fails only while the thread ends, when no test reads the counts.
    let _ = SEEN.try_with(|seen| {
        let (count, largest) = seen.get();
        seen.set((count + 1, largest.max(bytes)));
    });
}

// SAFETY: every request is passed to the system's allocator unchanged.
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

/// Runs `run`. Returns its result, the number of allocations, and the largest allocation in bytes. Both are
/// zero with another global allocator.
pub fn watch<R>(run: impl FnOnce() -> R) -> (R, u64, usize) {
    let before = SEEN.replace((0, 0));
    let result = run();
    let (count, largest) = SEEN.replace(before);
    (result, count, largest)
}
