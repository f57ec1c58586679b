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

#[cfg(any(test, feature = "test-support"))]
pub use forks::{Child, end_fork, fork, in_fork};

/// Forks, for tests.
#[cfg(any(test, feature = "test-support"))]
mod forks {
    /// Seconds after which a signal ends a fork, so that one that hangs fails its test.
    const HANGS: u32 = 600;

    /// The exit status of a fork that unwinds.
    const UNWOUND: i32 = 101;

    /// A fork of this process.
    #[derive(Debug)]
    #[must_use]
    pub struct Child(i32);

    impl Child {
        /// Waits until the fork has ended.
        ///
        /// # Panics
        /// The fork hung or failed.
        pub fn wait(self) {
            let mut status = 0;
            // SAFETY: a child of this process, and room for its status.
            assert_eq!(unsafe { libc::waitpid(self.0, &mut status, 0) }, self.0);
            let hangs = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM;
            assert!(!hangs, "the fork waits for a thread that it does not have");
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the fork failed: status {status:#x}");
        }
    }

    /// Forks; returns `None` in the fork, which ends itself by [`end_fork`].
    ///
    /// # Panics
    /// If there are too many processes.
    pub fn fork() -> Option<Child> {
        // SAFETY: tests do in a fork only what is documented to work there.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: the signal ends the process.
                unsafe { libc::alarm(HANGS) };
                None
            }
            child => {
                assert!(child > 0, "{}", std::io::Error::last_os_error());
                Some(Child(child))
            }
        }
    }

    /// Ends a fork, without running what the process has registered for its end.
    pub fn end_fork(status: i32) -> ! {
        // SAFETY: the call ends the process, and runs nothing.
        unsafe { libc::_exit(status) }
    }

    /// Runs `body` in a fork, which then ends. Does nothing under Miri, which has no forks.
    ///
    /// # Panics
    /// If `body` panics or hangs.
    pub fn in_fork(body: impl FnOnce()) {
        /// Ends a fork that unwinds: it must not continue as the test.
        struct Fails;
        impl Drop for Fails {
            fn drop(&mut self) {
                end_fork(UNWOUND)
            }
        }
        if cfg!(miri) {
            return;
        }
        if let Some(child) = fork() {
            return child.wait();
        }
        let fails = Fails;
        body();
        std::mem::forget(fails);
        end_fork(0)
    }
}
