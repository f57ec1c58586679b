//! Which thread is inside a region, and the witness of those that are not.
//!
//! Allocators, locks and platform calls take `&mut Outside`. [`Agent::run`](crate::Agent::run) borrows the
//! worker's witness for as long as its body runs, so a body has none to give them. [`assert_outside`] is the
//! same rule for code without a witness.

use std::cell::Cell;

/// Proof that its owner is not inside a region. Zero-sized; one per worker.
#[derive(Debug)]
pub struct Outside(());

impl Outside {
    /// The witness of one worker, claimed once when the worker starts. Claiming a second one inside a region
    /// defeats its purpose; [`assert_outside`] still detects it.
    pub fn claim() -> Outside {
        assert_outside();
        Outside(())
    }
}

thread_local! {
    /// Whether this thread is inside the body of an emulated region.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Panics if this thread is inside an emulated region, in builds with debug assertions; does nothing in others.
///
/// Allocators, locks and platform calls call it first: inside a real region they would abort it again and
/// again, silently.
///
/// # Panics
/// If this thread is inside an emulated region.
#[inline]
pub fn assert_outside() {
    #[cfg(debug_assertions)]
    assert!(
        !inside(),
        "an allocator, a lock or the platform was called inside a region: move the call before the region"
    );
}

/// Whether this thread is inside the body of an emulated region.
pub(crate) fn inside() -> bool {
    INSIDE.get()
}

/// Marks the thread as inside for as long as it lives, also through unwinding.
#[derive(Debug)]
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn enter() -> Inside {
        assert!(!INSIDE.replace(true), "a region begun inside a region: pass the outer access to the inner body");
        Inside(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}
