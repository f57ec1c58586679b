//! A fair lock under which user code may run. Waiting threads get it in turn, and sleep.
//!
//! ```text
//! word:  0 free | HELD | HELD + WAITED: threads are queued, and the holder hands the lock to the first of them
//! ```
//! - A thread takes a free lock at once. If the lock is held, the thread looks again a few times, since the
//!   holder is mostly about to finish. Then it joins the queue, stays awake for [`thread::AWAKE`], and sleeps.
//!   No thread overtakes the queue: while threads are queued the lock does not become free.
//! - So a queued thread waits for one hold of each thread before it, and no longer than its own bound.
//! - WAITED and the queue change only under the mutex, whose holders never wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Instant;
use crate::process::Process;
use crate::thread::{self, Thread, Touch};
use crate::{Backoff, CacheAligned};

const HELD: u32 = 1;
const WAITED: u32 = 2;

/// How often a thread looks at a held lock before it joins the queue. The first looks spin, the others yield,
/// for some microseconds together.
const LOOKS: u32 = Backoff::SPINS + 4;

/// The longest sleep between two checks. (Threads that take turns, and simulated cores, are not woken.)
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// A fair lock on its own cache lines.
#[derive(Debug, Default)]
pub struct FairLock(CacheAligned<Inner>);

#[derive(Debug, Default)]
struct Inner {
    word: AtomicU32,
    process: Process,
    queue: Mutex<VecDeque<Arc<Waiter>>>,
}

/// A queued thread.
#[derive(Debug)]
struct Waiter {
    thread: Thread,
    /// Whether the thread has got the lock. Set under the mutex.
    is_served: AtomicBool,
}

impl FairLock {
    /// Takes the lock. Returns `false` if that took longer than `wait`.
    #[inline]
    #[must_use]
    pub fn take(&self, wait: Duration) -> bool {
        self.try_take() || self.take_slowly(wait)
    }

    /// Takes the lock if it is free.
    #[inline]
    #[must_use]
    pub fn try_take(&self) -> bool {
        self.step();
        // ORDERING: pairs with the release in `give`.
        self.0.word.compare_exchange(0, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases the lock. This thread has taken it, or another thread on its behalf.
    #[inline]
    pub fn give(&self) {
        self.step();
        // ORDERING: pairs with the acquire of the next holder.
        if self.0.word.compare_exchange(HELD, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.hand_on();
        }
    }

    fn step(&self) {
        if cfg!(any(test, feature = "simulate")) {
            thread::step_latched(Touch::Exchange, (&raw const self.0.word).cast());
        }
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Arc<Waiter>>> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn take_slowly(&self, wait: Duration) -> bool {
        let mut looks = Backoff::bounded(LOOKS);
        while looks.wait() {
            if self.try_take() {
                return true;
            }
        }
        let began = Instant::now();
        let Some(waiter) = self.enter() else { return true };
        loop {
            // ORDERING: pairs with the release in `hand_on`, which follows the accesses of the former holder.
            if waiter.is_served.load(Ordering::Acquire) {
                return true;
            }
            match wait.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
                Some(left) if began.elapsed() >= thread::AWAKE => thread::park_timeout(left.min(SLEEP_MAX)),
                Some(_) => {}
                None => return self.leave(&waiter),
            }
            thread::yield_now();
        }
    }

    /// Joins the queue. Returns `None` if the lock has become free and this thread has taken it.
    fn enter(&self) -> Option<Arc<Waiter>> {
        let mut queue = self.queue();
        loop {
            if self.0.word.compare_exchange(0, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return None;
            }
            let held = self.0.word.load(Ordering::Relaxed);
            let waited = || self.0.word.compare_exchange(held, held | WAITED, Ordering::Relaxed, Ordering::Relaxed);
            if held & HELD != 0 && waited().is_ok() {
                break;
            }
        }
        let waiter = Arc::new(Waiter { thread: thread::current(), is_served: AtomicBool::new(false) });
        queue.push_back(Arc::clone(&waiter));
        Some(waiter)
    }

    /// Leaves the queue. Returns whether the lock was handed to this thread meanwhile.
    fn leave(&self, waiter: &Arc<Waiter>) -> bool {
        let mut queue = self.queue();
        let Some(at) = queue.iter().position(|queued| Arc::ptr_eq(queued, waiter)) else { return true };
        queue.remove(at);
        self.mark(&queue);
        false
    }

    /// Hands the lock to the first thread in the queue.
    #[cold]
    fn hand_on(&self) {
        // In a fork no thread waits, and another one may have the queue for ever.
        if !self.0.process.is_current() {
            return;
        }
        let mut queue = self.queue();
        debug_assert!(self.0.word.load(Ordering::Relaxed) & HELD != 0, "a lock that is not held cannot be released");
        let Some(next) = queue.pop_front() else {
            // The queued threads have left since.
            self.0.word.store(0, Ordering::Release);
            return;
        };
        self.mark(&queue);
        next.is_served.store(true, Ordering::Release);
        drop(queue);
        next.thread.unpark();
    }

    /// Clears WAITED if the queue has become empty.
    fn mark(&self, queue: &VecDeque<Arc<Waiter>>) {
        if queue.is_empty() {
            self.0.word.fetch_and(!WAITED, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    const LONG: Duration = Duration::from_secs(60);

    struct Count(UnsafeCell<u64>);

    // SAFETY: the count is accessed only under a lock.
    unsafe impl Sync for Count {}

    #[test]
    fn a_fork_gives_it_back_although_another_thread_was_in_the_queue() {
        let lock = FairLock::default();
        assert!(lock.try_take());
        let mut queue = lock.queue();
        let is_served = AtomicBool::new(false);
        queue.push_back(Arc::new(Waiter { thread: thread::current(), is_served }));
        lock.mark(&queue);
        crate::process::in_fork(|| lock.give());
        queue.clear();
        lock.mark(&queue);
        drop(queue);
        lock.give();
        assert!(lock.try_take());
    }

    #[test]
    fn one_thread_at_a_time_holds_it() {
        let (lock, count) = (FairLock::default(), Count(UnsafeCell::new(0)));
        thread::crew(4, |_, threads| {
            for _ in 0..4000 / threads {
                assert!(lock.take(LONG));
                let count = &count;
                // SAFETY: the lock is held.
                let seen = unsafe { *count.0.get() };
                if seen % 7 == 0 {
                    thread::yield_now();
                }
                // SAFETY: as above.
                unsafe { *count.0.get() = seen + 1 };
                lock.give();
            }
        });
        assert_eq!(count.0.into_inner() % 1000, 0);
        assert!(lock.try_take(), "it is free");
    }

    #[test]
    fn queued_threads_are_served_in_turn_and_not_overtaken() {
        let (lock, order) = (FairLock::default(), Mutex::new(Vec::new()));
        assert!(lock.take(LONG));
        thread::scope(|scope| {
            for number in 0..3 {
                scope.spawn({
                    let (lock, order) = (&lock, &order);
                    move || {
                        assert!(lock.take(LONG));
                        order.lock().expect("no panic").push(number);
                        assert!(!lock.try_take());
                        lock.give();
                    }
                });
                while lock.queue().len() <= number {
                    thread::yield_now();
                }
            }
            lock.give();
        });
        assert_eq!(*order.lock().expect("no panic"), [0, 1, 2]);
        assert!(lock.try_take() && lock.queue().is_empty());
    }

    #[test]
    fn a_thread_whose_time_is_up_leaves_the_queue_and_the_others_stay() {
        let lock = FairLock::default();
        assert!(lock.take(LONG));
        assert!(!lock.take(Duration::from_millis(2)) && lock.queue().is_empty());
        assert_eq!(lock.0.word.load(Ordering::Relaxed), HELD);
        thread::scope(|scope| {
            let patient = scope.spawn(|| lock.take(LONG));
            while lock.queue().is_empty() {
                thread::yield_now();
            }
            assert!(!lock.take(Duration::ZERO));
            assert_eq!(lock.0.word.load(Ordering::Relaxed), HELD | WAITED);
            lock.give();
            assert!(patient.join().expect("no panic"));
        });
        lock.give();
        assert!(lock.try_take());
    }
}
