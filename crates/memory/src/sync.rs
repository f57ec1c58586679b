//! The atomics of the count protocol: the standard ones, or loom's when it is model-checked (`--cfg loom`).
//!
//! This file is the only one of the crate where the two differ. For loom a `SeqCst` exchange is only an acquire and a
//! release. On x86-64 it is also a full fence, on which the protocol relies there. So loom's word gets an exchange that
//! is followed by a fence, and nothing else of it differs from loom's own.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Whether a `SeqCst` exchange is a full fence. The memory model of the language promises that of a fence
/// only, and Miri checks that model.
pub(crate) const EXCHANGE_IS_FENCE: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// loom's word with the exchange of x86-64.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

#[cfg(loom)]
impl AtomicU64 {
    pub(crate) fn new(value: u64) -> AtomicU64 {
        AtomicU64(loom::sync::atomic::AtomicU64::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    pub(crate) fn swap(&self, value: u64, order: Ordering) -> u64 {
        let before = self.0.swap(value, order);
        if order == Ordering::SeqCst {
            fence(Ordering::SeqCst);
        }
        before
    }
}
