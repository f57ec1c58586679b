//! Sleeping threads, and the one among them that watches.
//!
//! A sleeping thread is woken for its own work. Work of a thread that is busy for too long wakes no thread. One
//! sleeper looks for such work: the *watcher*, which sleeps for a bounded time.
//!
//! Invariant: when work waits for a busy thread and another thread sleeps, there is a watcher. Or there is a thread
//! that knows that it must appoint one. A thread learns that in one of three ways:
//!
//! - [`Sleepers::prepare_to_park`] returns that no thread watches: the caller looks for such work before it sleeps.
//! - [`Sleepers::resign`] returns that a thread sleeps: the caller was the watcher, and appoints another.
//! - [`Sleepers::lack_watcher`], called after such work was queued, returns that threads sleep without a watcher.
//!
//! Why no thread misses another: `prepare_to_park` adds to the count of sleepers, fences, and loads the watcher.
//! `resign` stores that there is no watcher, fences, and loads the count. If `resign` does not count the
//! sleeper, `prepare_to_park` finds no watcher. A thread that queues work is ordered by the lock of the queue. A
//! sleeper that did not find the work was counted before the work came.

use crate::CacheAligned;
use crate::sync::{AtomicU64, AtomicUsize, Ordering, fence};

/// No thread watches.
const NONE: u64 = u64::MAX;

/// The number of sleeping threads, and the watcher.
#[derive(Debug)]
pub struct Sleepers {
    count: CacheAligned<AtomicUsize>,
    /// The thread that watches or is being woken to watch.
    watcher: AtomicU64,
}

impl Default for Sleepers {
    fn default() -> Sleepers {
        Sleepers { count: CacheAligned(AtomicUsize::new(0)), watcher: AtomicU64::new(NONE) }
    }
}

impl Sleepers {
    /// Whether a thread sleeps.
    pub fn are_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Whether threads sleep and none of them watches. Asked after work was queued for a busy thread.
    pub fn lack_watcher(&self) -> bool {
        // ORDERING: by the lock of the queue. A sleeper that looked into the queue before the work came was
        // counted before it looked.
        self.are_any() && self.watcher.load(Ordering::Relaxed) == NONE
    }

    /// Makes a thread the watcher: the caller's own, or a sleeper that the caller wakes. Returns `false` if
    /// there is a watcher.
    #[must_use]
    pub fn appoint(&self, thread: usize) -> bool {
        self.watcher.compare_exchange(NONE, thread as u64, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Counts the thread as a sleeper that does not watch. Returns whether no thread watches. Then the caller
    /// looks for work of busy threads, and appoints itself if there is some.
    #[must_use]
    pub fn prepare_to_park(&self, thread: usize) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed);
        if self.is_watcher(thread) {
            self.watcher.store(NONE, Ordering::Relaxed);
        }
        // ORDERING: pairs with the fence in `resign`; see the module comment.
        fence(Ordering::SeqCst);
        self.watcher.load(Ordering::Relaxed) == NONE
    }

    /// Counts the thread as awake.
    pub fn unparked(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Ends the watch of a thread that is awake and has found work. Returns whether the caller must appoint
    /// another watcher.
    #[must_use]
    pub fn resign(&self, thread: usize) -> bool {
        if !self.is_watcher(thread) {
            return false;
        }
        self.watcher.store(NONE, Ordering::Relaxed);
        // ORDERING: pairs with the fence in `prepare_to_park`; see the module comment.
        fence(Ordering::SeqCst);
        self.are_any()
    }

    fn is_watcher(&self, thread: usize) -> bool {
        self.watcher.load(Ordering::Relaxed) == thread as u64
    }
}

#[cfg(all(test, loom))]
mod loom_model;
