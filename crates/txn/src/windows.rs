//! Windows: while one is open, a transaction publishes in several steps what belongs together.
//!
//! Who must not meet half of that closes the windows: it waits for those that are open, and keeps others from being opened until it is
//! done. So whatever closes them, and each step of the epoch, lies before or after all of a window.
//!
//! A worker opens a window by a store to a word of its own, then looks whether somebody closes them; who closes them says so in the word
//! that all share, then looks at the workers' words. All four are sequentially consistent, so one of the two finds the other. Only those
//! words are looked at whose workers have ever opened one: the first of all, as ids are given out from the lowest.
//!
//! No code of users runs in a window, and nobody in it waits for who closes them. So a closing takes as long as the windows that are
//! open, some microseconds each, unless a thread is descheduled in one. A worker that waits to open a window is let in first, as far as a
//! bounded wait goes, so that many who close do not keep it out.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use seriatim_base::{Backoff, CacheAligned, WorkerId};

const SHUT: u32 = 0;
const WAITING: u32 = 1;
const OPEN: u32 = 2;

/// The windows of a database; none, until a protocol that opens them [allows](Windows::allow) it.
#[derive(Debug, Default)]
pub struct Windows {
    by_worker: OnceLock<Box<[CacheAligned<AtomicU32>]>>,
    /// How many keep windows closed.
    closers: CacheAligned<AtomicU32>,
    /// No worker whose id is not below this has ever opened one.
    openers: CacheAligned<AtomicUsize>,
}

/// A window; it ends when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Window<'w>(&'w AtomicU32);

impl Drop for Window<'_> {
    fn drop(&mut self) {
        // ORDERING: whoever finds it shut sees what was published.
        self.0.store(SHUT, Ordering::Release);
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

/// Waits as long as it takes.
fn wait_while(mut condition: impl FnMut() -> bool) {
    let mut backoff = Backoff::new();
    while condition() {
        if !backoff.wait() {
            backoff = Backoff::new();
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
        let at = usize::from(worker.0);
        let own = &*by_worker[at];
        if self.openers.load(Ordering::SeqCst) <= at {
            // ORDERING: before the store and the load below, as all of these are sequentially consistent, the load above too: who closes
            // windows and is not found by that load finds this, and so the word.
            self.openers.fetch_max(at + 1, Ordering::SeqCst);
        }
        loop {
            own.store(OPEN, Ordering::SeqCst);
            if self.closers.load(Ordering::SeqCst) == 0 {
                return Window(own);
            }
            own.store(WAITING, Ordering::Release);
            wait_while(|| self.closers.load(Ordering::Acquire) != 0);
        }
    }

    /// Closes the windows, and waits for those that are open. Not inside a region, nor by a worker with a window.
    pub fn close(&self) -> Closed<'_> {
        let Some(by_worker) = self.by_worker.get() else { return Closed(None) };
        let mut patience = Backoff::new();
        let waits = |state: &CacheAligned<AtomicU32>| state.load(Ordering::Relaxed) == WAITING;
        while by_worker[..self.openers.load(Ordering::Relaxed)].iter().any(waits) && patience.wait() {}
        self.closers.fetch_add(1, Ordering::SeqCst);
        let closed = Closed(Some(&self.closers));
        for state in &by_worker[..self.openers.load(Ordering::SeqCst)] {
            wait_while(|| state.load(Ordering::SeqCst) == OPEN);
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use seriatim_base::thread;

    use super::*;

    #[test]
    fn who_closes_them_meets_all_of_a_window_or_nothing() {
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
    fn where_nobody_opens_windows_nobody_waits() {
        let windows = Windows::default();
        let _first = windows.close();
        let _second = windows.close();
    }
}
