//! The platform interface to processes: whether this one was forked from the one that made something.
//!
//! Invariant: the number below changes in the child of each fork(3), and nowhere else. A fork has a copy of all memory
//! and none of the threads, so what is shared with helper threads is of no use in it.
//!
//! To ask costs a load of a word that nobody writes: a handler of pthread_atfork(3) counts, in the child. A child made
//! by a bare clone(2) is not noticed.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Forks between the first process that asked and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Why nothing can be done with a database in a fork, and what to do.
pub const FORKED: &str = "this process was forked from the one that opened the database, and has none of its threads: open the \
                          database after the fork, in one process at a time";

/// The process in which something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// This one.
    pub fn current() -> Process {
        static COUNTED: Once = Once::new();
        COUNTED.call_once(count_forks);
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Whether it is this one, and not one that this was forked from.
    #[inline]
    pub fn is_current(self) -> bool {
        // ORDERING: a fork has one thread, and what its handler wrote was written by that.
        FORKS.load(Ordering::Relaxed) == self.0
    }
}

#[cfg(not(miri))]
fn count_forks() {
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler does nothing that is not allowed in a fork: it adds to a word.
    // It fails for want of memory only, and then forks are not noticed.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// There are no forks.
#[cfg(miri)]
fn count_forks() {}
