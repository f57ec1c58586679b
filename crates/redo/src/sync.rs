//! The atomics and cells that writers and loggers share: those of the standard library, or those of loom under
//! `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicPtr, AtomicU64, Ordering},
};
pub(crate) use seriatim_base::word::fence;
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicPtr, AtomicU64, Ordering},
};

/// Bytes that two threads access, never the same ones at the same time. The owner of the buffer separates them.
#[derive(Debug)]
pub(crate) struct Bytes(Box<[Cell]>);

#[cfg(loom)]
type Cell = loom::cell::UnsafeCell<u8>;
#[cfg(not(loom))]
type Cell = std::cell::UnsafeCell<u8>;

impl Bytes {
    pub(crate) fn new(bytes: usize) -> Bytes {
        Bytes((0..bytes).map(|_| Cell::new(0)).collect())
    }

    /// Writes `from` at `at`.
    ///
    /// # Safety
    /// No other thread accesses these bytes during the call.
    pub(crate) unsafe fn write(&self, at: usize, from: &[u8]) {
        let cells = &self.0[at..][..from.len()];
        #[cfg(not(loom))]
        // SAFETY: there are as many cells as bytes, and an `UnsafeCell<u8>` has the layout of its byte. By the
        // caller's promise no other thread accesses them.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), cells.as_ptr().cast_mut().cast::<u8>(), from.len());
        }
        #[cfg(loom)]
        for (cell, &byte) in cells.iter().zip(from) {
            // SAFETY: the caller's promise, which loom checks.
            cell.with_mut(|cell| unsafe { *cell = byte });
        }
    }

    /// Appends `bytes` bytes from `at` to `to`.
    ///
    /// # Safety
    /// The bytes were written, and no other thread writes them during the call.
    pub(crate) unsafe fn read(&self, at: usize, bytes: usize, to: &mut Vec<u8>) {
        let cells = &self.0[at..][..bytes];
        #[cfg(not(loom))]
        // SAFETY: an `UnsafeCell<u8>` has the layout of its byte. By the caller's promise no thread writes these bytes.
        to.extend_from_slice(unsafe { std::slice::from_raw_parts(cells.as_ptr().cast::<u8>(), bytes) });
        #[cfg(loom)]
        // SAFETY: the caller's promise, which loom checks.
        to.extend(cells.iter().map(|cell| cell.with(|cell| unsafe { *cell })));
    }
}

// SAFETY: `write` and `read` are unsafe. Their callers promise not to access the same bytes at the same time.
unsafe impl Sync for Bytes {}
// SAFETY: the bytes are not bound to a thread.
unsafe impl Send for Bytes {}
