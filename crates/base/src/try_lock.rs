//! A lock for which no thread waits. A thread takes it by one exchange if it is free, and frees it by a plain store.
//!
//! A worker has one. The session that used the worker last takes it again for its next transaction, at the cost of that
//! exchange. Between two transactions the lock is free, so another session that finds no other worker takes it instead.
//! What the lock guards is touched by its holder only.

use crate::sync::{AtomicBool, Ordering};

/// See the module comment.
#[derive(Debug)]
pub struct TryLock(AtomicBool);

impl Default for TryLock {
    fn default() -> TryLock {
        TryLock(AtomicBool::new(false))
    }
}

impl TryLock {
    /// Takes the lock, unless a thread has it.
    #[inline]
    #[must_use]
    pub fn try_lock(&self) -> bool {
        // ORDERING: acquire pairs with the release in `unlock`. The load first, as threads that look for a free lock
        // should not take the line from its holder.
        !self.is_locked() && !self.0.swap(true, Ordering::Acquire)
    }

    /// Whether a thread has the lock, at this moment.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Frees the lock. Only its holder calls this.
    #[inline]
    pub fn unlock(&self) {
        // ORDERING: pairs with the acquire in `try_lock`.
        self.0.store(false, Ordering::Release);
    }

    /// A canary: does not hand on what the holder did.
    #[cfg(all(test, loom))]
    fn unlock_relaxed(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_model;
