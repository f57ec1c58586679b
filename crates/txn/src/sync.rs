//! The words of [`Windows`](crate::Windows), and the wait for one: the standard atomics and the usual backoff. When
//! windows are model-checked (`--cfg loom`), they are loom's words and turns.
//!
//! loom treats a sequentially consistent store or exchange as a release only. Consider two threads that each
//! store a word and then load the other's word, all of it sequentially consistent. The memory model promises
//! that one of them finds the other's store, as if there were a fence in between. So loom's words have a fence
//! there; otherwise they equal loom's own.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::AtomicU32;

/// Waits while this holds, as long as it takes: the caller argues that it ends (`windows.rs`, `deferrals.rs`).
pub(crate) fn wait_while(mut condition: impl FnMut() -> bool) {
    #[cfg(loom)]
    while condition() {
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    {
        let mut backoff = seriatim_base::Backoff::new();
        while condition() {
            if !backoff.wait() {
                backoff = seriatim_base::Backoff::new();
            }
        }
    }
}

/// loom's word with a fence behind what is sequentially consistent and stores.
#[cfg(loom)]
#[derive(Debug, Default)]
pub(crate) struct AtomicU32(loom::sync::atomic::AtomicU32);

#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence};

#[cfg(loom)]
impl AtomicU32 {
    pub(crate) fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
        AtomicU32::end(order);
    }

    pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        let before = self.0.fetch_add(value, order);
        AtomicU32::end(order);
        before
    }

    pub(crate) fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_sub(value, order)
    }

    pub(crate) fn fetch_max(&self, value: u32, order: Ordering) -> u32 {
        let before = self.0.fetch_max(value, order);
        AtomicU32::end(order);
        before
    }

    pub(crate) fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.0.compare_exchange(current, new, success, failure)
    }

    fn end(order: Ordering) {
        if order == Ordering::SeqCst {
            fence(Ordering::SeqCst);
        }
    }
}
