//! The epoch of the database: which commits become durable together.
//!
//! A ticker advances it, and the log where somebody waits for the end of an epoch; every commit reads it once, after its last lock is
//! held or inside its region. So epochs are no measure of time.

use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_base::{CacheAligned, Epoch};
use seriatim_htm::Htm;

use crate::Windows;

/// The current epoch E.
#[derive(Debug)]
pub struct Epochs {
    current: CacheAligned<AtomicU64>,
    windows: Windows,
}

impl Default for Epochs {
    fn default() -> Epochs {
        // Epoch 0 holds only TID zero, "never committed".
        Epochs { current: CacheAligned(AtomicU64::new(1)), windows: Windows::default() }
    }
}

impl Epochs {
    /// The epoch now.
    #[inline]
    pub fn current(&self) -> Epoch {
        // ORDERING: pairs with the release in `advance`.
        Epoch(self.current.load(Ordering::Acquire))
    }

    /// Begins the next epoch, which it answers, while no window is open. A thread that reads that epoch or a later one sees what was
    /// written before the call. Called by the ticker, and by callers that do not wait for it.
    pub fn advance(&self, htm: &Htm) -> Epoch {
        let _closed = self.windows.close();
        htm.outside(|| Epoch(self.current.fetch_add(1, Ordering::AcqRel) + 1))
    }

    /// The windows in which transactions publish in several steps.
    #[inline]
    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Goes on at `epoch`, if that is later: a database that was recovered begins above all it was before.
    pub fn skip_to(&self, epoch: Epoch) {
        self.current.fetch_max(epoch.0, Ordering::AcqRel);
    }

    /// Becomes what `current` is.
    #[cfg(feature = "canary")]
    pub(crate) fn follow(&self, current: &Epochs) {
        self.current.store(current.current().0, Ordering::Release);
    }

    /// The word, for a commit that reads it inside a region.
    #[inline]
    pub fn word(&self) -> &AtomicU64 {
        &self.current
    }
}
