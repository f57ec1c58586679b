//! Code that must not be left by a panic; and what one said that was caught.
//!
//! A panic between two steps of a change that others see in part, such as the locking of records and their
//! installation, would leave the locks behind for ever. There is no state to go back to, so the process ends
//! instead, and says where.

use std::any::Any;

/// Runs `body`, which holds locks that others wait for or has changed a part of what belongs together. A panic
/// of it aborts the process after it was reported, with `what` was going on.
#[inline(always)]
pub fn abort_on_unwind<R>(what: &'static str, body: impl FnOnce() -> R) -> R {
    let armed = Armed(what);
    let result = body();
    std::mem::forget(armed);
    result
}

/// What a panic that was caught said, if it used words.
pub fn panic_text(panic: &(dyn Any + Send)) -> Option<String> {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
}

/// Dropped by a panic only.
struct Armed(&'static str);

impl Drop for Armed {
    #[cold]
    fn drop(&mut self) {
        // A panic while another one unwinds: the standard library reports both and aborts.
        panic!("a panic in the middle of {}: the process cannot go on and is aborted", self.0);
    }
}
