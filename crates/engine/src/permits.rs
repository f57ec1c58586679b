//! A bounded number of permits, for which callers wait in turn. An executor needs one for each call in its queue.
//!
//! ```text
//! word:  | permits taken | WAITED: callers wait; a permit that is given back goes to the first of them |
//! ```
//! A caller takes a free permit at once. If none is free, it enters the list and sleeps. While callers are in
//! the list no other caller takes a permit, so each waits only for those before it. WAITED and the list change
//! only under the mutex, under which no thread waits.
//!
//! No wake-up is lost: one word says both whether a permit is free and whether callers wait, and each change of it is
//! an exchange. A permit that is given back before WAITED is set becomes free, and the caller finds it before it can
//! set WAITED.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use seriatim_base::CacheAligned;
use seriatim_base::process::Process;
use seriatim_base::thread::{self, Thread};

const WAITED: usize = 1;
const TAKEN: usize = 2;

/// At most `most` permits.
#[derive(Debug)]
pub(crate) struct Permits {
    most: usize,
    /// Calls in the queue that were cancelled, and have no permit any more.
    cancelled: AtomicUsize,
    process: Process,
    /// The queue.
    queue: OnceLock<Weak<dyn Queue>>,
    word: CacheAligned<AtomicUsize>,
    waiters: Mutex<VecDeque<Arc<Waiter>>>,
}

#[derive(Debug)]
struct Waiter {
    thread: Thread,
    /// Whether it has a permit. Set under the mutex.
    is_served: AtomicBool,
}

/// Where calls with permits wait.
pub(crate) trait Queue: Send + Sync {
    /// Removes the calls that were cancelled; how many.
    fn remove_cancelled(&self) -> usize;
}

impl std::fmt::Debug for dyn Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// Cancelled calls that may stay in the queue, beyond the number of its other calls.
const CANCELLED_MAX: usize = 16;

/// A permit. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back"]
pub struct Permit(Arc<Permits>);

impl Permits {
    pub(crate) fn new(most: usize) -> Arc<Permits> {
        let (cancelled, process, queue) = (AtomicUsize::new(0), Process::current(), OnceLock::new());
        let (word, waiters) = (CacheAligned::default(), Mutex::default());
        Arc::new(Permits { most, cancelled, process, queue, word, waiters })
    }

    /// The queue in which the calls wait.
    pub(crate) fn of_queue(&self, queue: Weak<dyn Queue>) {
        self.queue.get_or_init(|| queue);
    }

    /// Called when calls were cancelled and their permits given back. Cancelled calls leave the queue when a thread
    /// takes them, or when they are more than half of it. So removing one costs at most a look at three calls.
    pub(crate) fn remove_cancelled(&self) {
        if self.cancelled.load(Ordering::Relaxed) > self.taken() + CANCELLED_MAX
            && let Some(queue) = self.queue.get().and_then(Weak::upgrade)
        {
            self.cancelled.fetch_sub(queue.remove_cancelled(), Ordering::Relaxed);
        }
    }

    /// A call that was cancelled has left the queue.
    pub(crate) fn left(&self) {
        self.cancelled.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    pub(crate) fn taken(&self) -> usize {
        self.word.load(Ordering::Relaxed) / TAKEN
    }

    /// Takes a permit, if one is free.
    pub(crate) fn try_take(self: &Arc<Permits>) -> Option<Permit> {
        let free = |word| (word & WAITED == 0 && word / TAKEN < self.most).then_some(word + TAKEN);
        // ORDERING: a permit guards no memory.
        self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_ok().then(|| Permit(Arc::clone(self)))
    }

    /// Waits until a permit is free, and takes it.
    pub(crate) fn take(self: &Arc<Permits>) -> Permit {
        if let Some(permit) = self.try_take() {
            return permit;
        }
        if let Some(waiter) = self.enter() {
            // ORDERING: pairs with the release in `hand_on`.
            while !waiter.is_served.load(Ordering::Acquire) {
                thread::park();
            }
        }
        Permit(Arc::clone(self))
    }

    /// Takes a permit beyond the bound: for a caller that must not wait.
    pub(crate) fn take_beyond(self: &Arc<Permits>) -> Permit {
        self.word.fetch_add(TAKEN, Ordering::Relaxed);
        Permit(Arc::clone(self))
    }

    fn waiters(&self) -> MutexGuard<'_, VecDeque<Arc<Waiter>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the list; `None` if a permit has become free and is taken.
    fn enter(&self) -> Option<Arc<Waiter>> {
        let mut waiters = self.waiters();
        let free = |word| (waiters.is_empty() && word / TAKEN < self.most).then_some(word + TAKEN);
        loop {
            match self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free) {
                Ok(_) => return None,
                Err(full)
                    if self
                        .word
                        .compare_exchange(full, full | WAITED, Ordering::Relaxed, Ordering::Relaxed)
                        .is_ok() =>
                {
                    break;
                }
                Err(_) => {}
            }
        }
        let waiter = Arc::new(Waiter { thread: thread::current(), is_served: AtomicBool::new(false) });
        waiters.push_back(Arc::clone(&waiter));
        Some(waiter)
    }

    fn give_back(&self) {
        let hands_on = |word: usize| word & WAITED != 0 && word / TAKEN <= self.most;
        let less = |word| (!hands_on(word)).then(|| word - TAKEN);
        if self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err() {
            self.hand_on();
        }
    }

    /// Gives a permit to the first caller in the list.
    #[cold]
    fn hand_on(&self) {
        let mut waiters = self.waiters();
        let Some(first) = waiters.pop_front() else {
            // All callers have got other permits meanwhile.
            self.word.fetch_sub(TAKEN, Ordering::Relaxed);
            return;
        };
        if waiters.is_empty() {
            self.word.fetch_and(!WAITED, Ordering::Relaxed);
        }
        // ORDERING: pairs with the acquire in `take`.
        first.is_served.store(true, Ordering::Release);
        drop(waiters);
        first.thread.unpark();
    }
}

impl Permit {
    /// The call is cancelled, and the permit to be given back.
    pub(crate) fn cancel(&self) -> Arc<Permits> {
        self.0.cancelled.fetch_add(1, Ordering::Relaxed);
        Arc::clone(&self.0)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // In a fork no caller waits, and another thread may have the mutex for ever.
        if self.0.process.is_current() {
            self.0.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_as_many_as_configured_and_a_dropped_one_is_free() {
        let permits = Permits::new(2);
        let taken: Vec<_> = (0..2).map(|_| permits.try_take().expect("it is free")).collect();
        assert!(permits.try_take().is_none() && permits.taken() == 2);
        let beyond = permits.take_beyond();
        assert_eq!(permits.taken(), 3);
        drop(taken);
        assert!(permits.try_take().is_some(), "one of two is free");
        drop(beyond);
        assert_eq!(permits.taken(), 0);
    }

    #[test]
    fn a_fork_gives_a_permit_back_although_another_thread_had_the_list() {
        let permits = Permits::new(1);
        let mut held = Some(permits.take());
        let waiters = permits.waiters();
        permits.word.fetch_or(WAITED, Ordering::Relaxed);
        seriatim_base::process::in_fork(|| drop(held.take()));
        drop(waiters);
    }

    #[test]
    fn callers_that_wait_are_served_in_turn_and_no_other_passes_them() {
        let permits = Permits::new(1);
        let held = permits.take();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (permits, order) = (&permits, &order);
                scope.spawn(move || {
                    let permit = permits.take();
                    order.lock().expect("no panic").push(number);
                    drop(permit);
                });
                while permits.waiters().len() <= number {
                    thread::yield_now();
                }
            }
            assert!(permits.try_take().is_none());
            drop(held);
        });
        assert_eq!(order.into_inner().expect("no panic"), [0, 1, 2]);
        assert_eq!(permits.word.load(Ordering::Relaxed), 0, "no caller waits");
    }

    #[test]
    fn no_more_than_there_are_are_taken_at_a_time_and_no_caller_waits_for_ever() {
        let (permits, inside) = (Permits::new(2), AtomicUsize::new(0));
        thread::crew(4, |_, _| {
            for _ in 0..500 {
                let permit = permits.take();
                assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(permit);
            }
        });
        assert_eq!(permits.word.load(Ordering::Relaxed), 0);
    }
}
