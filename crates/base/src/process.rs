//! The platform interface to processes: detects that this process is a fork of an earlier one.
//!
//! Invariant: the count below changes in the child of each fork(3), and nowhere else. A fork has a copy of all
//! memory and none of the threads, so state that is shared with helper threads is useless there.
//!
//! The check loads a word that is written only by forks: a handler of pthread_atfork(3) counts in the child. A
//! child of a bare clone(2) is not detected.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of forks between the first process that asked and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The error message for using a database in a fork.
pub const FORKED: &str = "this process was forked from the one that opened the database, and has none of its \
                          threads: open the database after the fork, in one process at a time";

/// Identifies the process in which an object was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// This process.
    pub fn current() -> Process {
        static COUNTED: Once = Once::new();
        COUNTED.call_once(count_forks);
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Whether it is this process, and not one from which this process was forked.
    #[inline]
    pub fn is_current(self) -> bool {
        // ORDERING: a fork has one thread, which also ran the handler.
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
    /// Ends the process as failed if it unwinds: a fork must not continue as the test.
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
    // SAFETY: the handler only adds to a word, which is allowed in a fork. The call fails only without memory;
    // forks are then not detected.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Miri has no forks.
#[cfg(miri)]
fn count_forks() {}

/// There are no forks: nothing is run.
#[cfg(miri)]
pub fn in_fork(_: impl FnOnce()) {}
