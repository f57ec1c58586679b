//! Windows: while one is open, a transaction publishes in several steps what belongs together.
//!
//! A thread that must not see half of a window's work closes the windows. It waits for the open ones, and no window
//! opens until it is done. So each closing, and each advance of the epoch, lies before or after all of a window.
//!
//! A worker opens a window by a store to a word of its own, then checks whether a thread closes the windows. A
//! closing thread stores to the word that all share, then checks the workers' words. All four accesses are
//! sequentially consistent, so one of the two finds the other. Only the words of workers that have ever opened
//! a window are checked: the first of all, as ids are given out from the lowest.
//!
//! No code of users runs in a window, and no thread in a window waits for a closing one. So a closing takes as
//! long as the open windows, some microseconds each, unless a thread is descheduled in one.
//!
//! Additions that were deferred in windows are published before a closing ends: see [`Deferrals`].
//!
//! Fair by turns. A worker that finds the windows closed notes in its word that it waits. A thread that comes to close
//! them first lets each waiting worker have its window. It does not wait for a second one of the same worker. So a
//! worker waits at most until each other thread has closed once. A closing thread waits for at most one window of each
//! worker. No closing thread waits for one that waits to close or to open, so there is no deadlock.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use seriatim_base::{CacheAligned, WorkerId};

use crate::Deferrals;
use crate::deferrals::Pending;
use crate::sync::{AtomicU32, wait_while};

#[cfg(all(test, loom))]
mod loom_model;

/// The worker's window is open, or it looks whether it may be.
const OPEN: u32 = 1;
/// The worker waits: it has found windows closed.
const WAITS: u32 = 2;
/// The bits from this one on count windows that were waited for.
const HAD: u32 = 4;

/// The windows of a database; none, until a protocol that opens them [allows](Windows::allow) it.
#[derive(Debug, Default)]
pub struct Windows {
    by_worker: OnceLock<Box<[CacheAligned<AtomicU32>]>>,
    /// How many keep windows closed.
    closers: CacheAligned<AtomicU32>,
    /// No worker with this id or a higher one has ever opened a window.
    openers: CacheAligned<AtomicU32>,
    deferrals: Deferrals,
}

/// A window; it ends when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Window<'w> {
    own: &'w AtomicU32,
    worker: WorkerId,
    deferrals: &'w Deferrals,
}

impl Window<'_> {
    /// The pending additions of the worker, if its protocol defers. A caller that adds to them calls
    /// [`Window::defers`].
    pub fn pending(&mut self) -> Option<&mut Pending> {
        // SAFETY: its window is open, and we have it mutably.
        unsafe { self.deferrals.list(self.worker.0.into()) }
    }

    /// Something was added to it.
    pub fn defers(&self) {
        self.deferrals.note();
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        // ORDERING: a thread that finds the window shut sees what was published. No other thread writes the
        // word.
        self.own.store(self.own.load(Ordering::Relaxed) & !OPEN, Ordering::Release);
    }
}

/// No window is open until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Closed<'w>(Option<&'w AtomicU32>);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        if let Some(closers) = self.0 {
            closers.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Windows {
    /// Workers with ids below `workers` may open windows.
    pub fn allow(&self, workers: usize) {
        self.by_worker.get_or_init(|| (0..workers).map(|_| CacheAligned::default()).collect());
    }

    /// Opens the window of this worker, which has none open, and has not closed them.
    ///
    /// # Panics
    /// Without [`Windows::allow`] for it.
    pub fn open(&self, worker: WorkerId) -> Window<'_> {
        let by_worker = self.by_worker.get().map_or(&[][..], |by_worker| by_worker);
        let at = u32::from(worker.0);
        let own = &*by_worker[at as usize];
        if self.openers.load(Ordering::SeqCst) <= at {
            // ORDERING: before the store and the load below, as all of these are sequentially consistent, the
            // load above too. If a closing thread is not found by that load, it finds this store, and so the
            // word.
            self.openers.fetch_max(at + 1, Ordering::SeqCst);
        }
        let mut word = own.load(Ordering::Relaxed);
        loop {
            own.store(word | OPEN, Ordering::SeqCst);
            if self.closers.load(Ordering::SeqCst) == 0 {
                if word & WAITS != 0 {
                    own.store((word & !WAITS | OPEN).wrapping_add(HAD), Ordering::Relaxed);
                }
                return Window { own, worker, deferrals: &self.deferrals };
            }
            word |= WAITS;
            own.store(word, Ordering::Release);
            wait_while(|| self.closers.load(Ordering::Acquire) != 0);
        }
    }

    /// The deferred additions of all transactions.
    #[inline]
    pub fn deferrals(&self) -> &Deferrals {
        &self.deferrals
    }

    /// Closes the windows, waits for those that are open, and has published what was deferred in them. Not
    /// inside a region, nor by a thread that has a window or has closed them.
    pub fn close(&self) -> Closed<'_> {
        let Some(by_worker) = self.by_worker.get() else { return Closed(None) };
        for own in &by_worker[..self.openers.load(Ordering::Relaxed) as usize] {
            let found = own.load(Ordering::Relaxed);
            let still_waits = || (own.load(Ordering::Relaxed) ^ found) & !OPEN == 0;
            wait_while(|| found & WAITS != 0 && still_waits());
        }
        self.closers.fetch_add(1, Ordering::SeqCst);
        let closed = Closed(Some(&self.closers));
        for own in &by_worker[..self.openers.load(Ordering::SeqCst) as usize] {
            wait_while(|| own.load(Ordering::SeqCst) & OPEN != 0);
        }
        self.deferrals.publish();
        closed
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use seriatim_base::thread;

    use super::*;

    #[test]
    fn a_thread_that_closes_the_windows_sees_all_of_a_window_or_nothing() {
        let (windows, steps, done) = (Windows::default(), [AtomicU64::new(0), AtomicU64::new(0)], AtomicU32::new(0));
        windows.allow(3);
        thread::scope(|scope| {
            for worker in 0..3 {
                let (windows, steps, done) = (&windows, &steps, &done);
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        let _window = windows.open(WorkerId(worker));
                        steps[0].fetch_add(1, Ordering::Relaxed);
                        thread::yield_now();
                        steps[1].fetch_add(1, Ordering::Relaxed);
                    }
                    done.fetch_add(1, Ordering::Release);
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    while done.load(Ordering::Acquire) < 3 {
                        let _closed = windows.close();
                        let [one, other] = steps.each_ref().map(|step| step.load(Ordering::Relaxed));
                        assert_eq!(one, other);
                    }
                });
            }
        });
        assert_eq!(steps[1].load(Ordering::Relaxed), 6_000);
    }

    #[test]
    fn a_worker_that_waits_for_a_window_opens_it_before_others_close_the_windows() {
        let windows = Windows::default();
        windows.allow(2);
        drop(windows.open(WorkerId(1)));
        let (closed, is_open) = (windows.close(), AtomicU64::new(0));
        let word = &windows.by_worker.get().expect("allowed")[1];
        thread::scope(|scope| {
            let (windows, is_open) = (&windows, &is_open);
            scope.spawn(move || {
                let _window = windows.open(WorkerId(1));
                is_open.store(1, Ordering::Relaxed);
            });
            wait_while(|| word.load(Ordering::Acquire) & WAITS == 0);
            let others: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(move || {
                        let _closed = windows.close();
                        is_open.load(Ordering::Relaxed)
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(20));
            drop(closed);
            for other in others {
                assert_eq!(other.join().expect("no panic"), 1, "it came later");
            }
        });
    }

    /// Some thread always keeps them closed.
    #[test]
    fn threads_that_close_the_windows_again_and_again_keep_no_worker_out() {
        let (windows, done) = (Windows::default(), AtomicU64::new(0));
        windows.allow(1);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while done.load(Ordering::Relaxed) == 0 {
                        let _closed = windows.close();
                        thread::yield_now();
                    }
                });
            }
            for _ in 0..1_000 {
                let _window = windows.open(WorkerId(0));
            }
            done.store(1, Ordering::Relaxed);
        });
    }

    #[test]
    fn no_thread_waits_where_no_windows_are_opened() {
        let windows = Windows::default();
        windows.allow(1);
        let _first = windows.close();
        let _second = windows.close();
    }
}
