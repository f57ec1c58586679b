//! A check for tests: a caller's frame must not be freed while another thread is about to notify the caller. In
//! other builds it does nothing.

#[cfg(test)]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

#[cfg(test)]
use seriatim_base::thread::{self, Touch};

/// Times that a caller looked for a round while another thread was notifying it.
#[cfg(test)]
pub(super) static MET: AtomicU64 = AtomicU64::new(0);

/// Whether a thread is about to notify a caller.
#[derive(Debug, Default)]
pub(super) struct NotificationCheck {
    #[cfg(test)]
    is_under_way: AtomicBool,
}

impl NotificationCheck {
    /// A thread is about to notify the caller from now on.
    #[inline(always)]
    pub(super) fn begin(&self) {
        #[cfg(test)]
        self.is_under_way.store(true, SeqCst);
    }

    /// A point at which a test may let the caller, or another thread, run.
    #[inline(always)]
    pub(super) fn step(&self) {
        #[cfg(test)]
        thread::step(Touch::Store, std::ptr::from_ref(self).cast());
    }

    /// The caller is about to look for a round.
    #[inline(always)]
    pub(super) fn meet(&self) {
        self.step();
        #[cfg(test)]
        MET.fetch_add(self.is_under_way.load(SeqCst).into(), SeqCst);
    }

    /// The notification follows: this is the last access but one.
    #[inline(always)]
    pub(super) fn end(&self) {
        #[cfg(test)]
        self.is_under_way.store(false, SeqCst);
    }
}

#[cfg(test)]
impl Drop for NotificationCheck {
    fn drop(&mut self) {
        assert!(!*self.is_under_way.get_mut(), "a caller is gone while another thread is about to notify it");
    }
}
