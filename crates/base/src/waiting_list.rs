//! Threads that wait until something is free, in order.
//!
//! A thread that waits enters, lists itself, looks for something free, and sleeps if it finds nothing. Whoever frees
//! something stores that it is free, and then asks here for a thread to wake.
//!
//! Invariant: if something is free and threads sleep, one of them is being woken. Three things ensure that:
//!
//! - A waiting thread is counted and fences before it looks. [`WaitingList::to_wake`] fences between the store and the
//!   load of the count. So the one sees that something is free, or the other sees the count.
//! - A thread is listed before it looks, by the lock of the list. If a thread is counted and not listed yet, it finds
//!   what was freed before somebody looked into the list.
//! - A thread that was to be woken may leave for another reason. [`WaitingList::leave`] then names the next one.
//!
//! [`WaitingList::to_wake_if_seen`] has no fence and does not ensure it: its load may pass the store. Its callers rely
//! on threads that sleep for a bounded time and list themselves again.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, fence};

/// Waiting threads, each known by a `T` that can wake it.
#[derive(Debug)]
pub struct WaitingList<T> {
    /// Threads that have entered.
    count: AtomicUsize,
    /// Those of them that nobody was told to wake since they listed themselves, in order.
    listed: Mutex<VecDeque<Arc<T>>>,
}

impl<T> Default for WaitingList<T> {
    fn default() -> WaitingList<T> {
        WaitingList { count: AtomicUsize::new(0), listed: Mutex::new(VecDeque::new()) }
    }
}

impl<T> WaitingList<T> {
    /// Counts the caller, which then lists itself.
    pub fn enter(&self, waiter: T) -> Arc<T> {
        self.count.fetch_add(1, Ordering::Relaxed);
        Arc::new(waiter)
    }

    /// Lists the caller, if it is not listed. Then the caller looks for something free.
    pub fn list(&self, waiter: &Arc<T>) {
        let mut listed = self.listed();
        if !listed.iter().any(|other| Arc::ptr_eq(other, waiter)) {
            listed.push_back(Arc::clone(waiter));
        }
        drop(listed);
        // ORDERING: pairs with the fence in `to_wake`; see the module comment.
        fence(Ordering::SeqCst);
    }

    /// The caller no longer waits. Returns another thread for it to wake, if `is_free` returns that something is free.
    #[must_use]
    pub fn leave(&self, waiter: &Arc<T>, is_free: impl FnOnce() -> bool) -> Option<Arc<T>> {
        // Whoever was told to wake the caller took this lock before. So the caller sees what that thread freed.
        self.listed().retain(|other| !Arc::ptr_eq(other, waiter));
        self.count.fetch_sub(1, Ordering::Relaxed);
        if is_free() { self.to_wake() } else { None }
    }

    /// The thread to wake after something was freed, if one waits. The list is rid of it.
    #[must_use]
    pub fn to_wake(&self) -> Option<Arc<T>> {
        // ORDERING: pairs with the fence in `list`; see the module comment.
        fence(Ordering::SeqCst);
        self.to_wake_if_seen()
    }

    /// As [`WaitingList::to_wake`] without its fence. It may miss a thread that has just entered.
    #[inline]
    #[must_use]
    pub fn to_wake_if_seen(&self) -> Option<Arc<T>> {
        if self.count.load(Ordering::Relaxed) == 0 { None } else { self.first() }
    }

    /// Whether no thread waits.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    #[cold]
    fn first(&self) -> Option<Arc<T>> {
        self.listed().pop_front()
    }

    fn listed(&self) -> MutexGuard<'_, VecDeque<Arc<T>>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, loom))]
mod loom_model;
