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

impl Default for Process {
    fn default() -> Process {
        Process::current()
    }
}

/// For tests: runs `body` in a fork, which ends then.
///
/// # Panics
/// If the fork does not end within ten minutes, or if `body` panics.
#[cfg(not(miri))]
pub fn in_fork(body: impl FnOnce()) {
    /// Ends the process as failed, should it unwind: a fork is not to go on as the test.
    struct Fails;
    impl Drop for Fails {
        fn drop(&mut self) {
            // SAFETY: it ends the process, and runs nothing.
            unsafe { libc::_exit(101) }
        }
    }
    // SAFETY: the caller's body uses what works in a fork, which ends without running what is registered for the end of
    // the process.
    match unsafe { libc::fork() } {
        0 => {
            let fails = Fails;
            // SAFETY: the signal ends the process.
            unsafe { libc::alarm(600) };
            body();
            std::mem::forget(fails);
            // SAFETY: as above.
            unsafe { libc::_exit(0) }
        }
        child => {
            assert!(child > 0, "{}", std::io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: a child of this process, and room for its status.
            let waited = unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(waited, child);
            let hangs = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM;
            assert!(!hangs, "the fork waits for a thread that it does not have");
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the fork failed: status {status:#x}");
        }
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

/// There are no forks: nothing is run.
#[cfg(miri)]
pub fn in_fork(_: impl FnOnce()) {}
