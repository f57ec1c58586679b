//! Code that must not be left by a panic, and texts of caught panics.
//!
//! A change such as locking and installing records has several steps, and other threads see a part of it. A panic
//! between two steps would leave the locks behind for ever. There is no state to roll back to. So the process aborts
//! and reports where.

use std::any::Any;

/// Runs `body`, which holds locks that others wait for, or has made half of a change. If it panics, the panic
/// is reported with `what`, and the process aborts.
#[inline(always)]
pub fn abort_on_unwind<R>(what: &'static str, body: impl FnOnce() -> R) -> R {
    let armed = Armed(what);
    let result = body();
    std::mem::forget(armed);
    result
}

/// The text of a caught panic, if it has one.
pub fn panic_text(panic: &(dyn Any + Send)) -> Option<String> {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
}

/// Dropped only by a panic.
struct Armed(&'static str);

impl Drop for Armed {
    #[cold]
    fn drop(&mut self) {
        // A panic while another one unwinds: the standard library reports both and aborts.
        panic!("a panic during {}: the process cannot continue and is aborted", self.0);
    }
}
