//! A request to end a long measurement early and to report what it has.
//!
//! A program that catches signals makes the request; loops that look at the clock look here, too. Nothing takes
//! a request back.

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Asks measurements to end. Whether this is the first request.
pub fn request() -> bool {
    !REQUESTED.swap(true, Ordering::Relaxed)
}

/// Whether measurements are to end.
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
