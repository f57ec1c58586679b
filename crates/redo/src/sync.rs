//! What writers and loggers share memory through: the standard atomics and cells, or those of loom when they
//! are model-checked (`--cfg loom`).

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicPtr, AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicPtr, AtomicU64, Ordering, fence},
};

/// Bytes that two threads reach, never the same ones at the same time: whose turn it is, is up to the owner.
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
    /// No other thread reaches these bytes meanwhile.
    pub(crate) unsafe fn write(&self, at: usize, from: &[u8]) {
        let cells = &self.0[at..][..from.len()];
        #[cfg(not(loom))]
        // SAFETY: the cells are as many as the bytes, an `UnsafeCell<u8>` is laid out as its byte, and by the
        // caller's promise nobody else reaches them.
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
    /// They were written, and no other thread writes them meanwhile.
    pub(crate) unsafe fn read(&self, at: usize, bytes: usize, to: &mut Vec<u8>) {
        let cells = &self.0[at..][..bytes];
        #[cfg(not(loom))]
        // SAFETY: an `UnsafeCell<u8>` is laid out as its byte, and by the caller's promise nobody writes these.
        to.extend_from_slice(unsafe { std::slice::from_raw_parts(cells.as_ptr().cast::<u8>(), bytes) });
        #[cfg(loom)]
        // SAFETY: the caller's promise, which loom checks.
        to.extend(cells.iter().map(|cell| cell.with(|cell| unsafe { *cell })));
    }
}

// SAFETY: `write` and `read` are unsafe, and ask the caller to keep threads apart.
unsafe impl Sync for Bytes {}
// SAFETY: bytes have no thread of their own.
unsafe impl Send for Bytes {}
