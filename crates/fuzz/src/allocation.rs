//! The largest allocation of a thread, so that a length from the input is not believed before it is compared
//! with what is there.

use seriatim_base::allocation::{Watching, watch};

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// Runs it.
///
/// # Panics
/// If it asked for more than `bytes` bytes at once.
pub fn within<R>(bytes: usize, run: impl FnOnce() -> R) -> R {
    let (result, _, largest) = watch(run);
    assert!(largest <= bytes, "{largest} bytes were asked for at once, and {bytes} are enough");
    result
}
