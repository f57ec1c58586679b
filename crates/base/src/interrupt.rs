//! Requests to end a long measurement early and to report the results so far.
//!
//! A program that catches signals makes the request. Loops that read the clock check for it, too. A request
//! cannot be withdrawn.

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Asks measurements to end. Returns whether this is the first request.
pub fn request() -> bool {
    !REQUESTED.swap(true, Ordering::Relaxed)
}

/// Whether measurements should end.
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
