//! The epoch of the database: which commits become durable together.
//!
//! A ticker advances it, and the log where somebody waits for the end of an epoch; every commit reads it once, after its last lock is
//! held or inside its region. So epochs are no measure of time.

use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_base::{CacheAligned, Epoch, WorkerId};
use seriatim_htm::Htm;

use crate::{Eventual, Snapshots, TakenSnapshot, Windows};

/// The current epoch E.
#[derive(Debug)]
pub struct Epochs {
    current: CacheAligned<AtomicU64>,
    windows: Windows,
    snapshots: Snapshots,
}

impl Default for Epochs {
    fn default() -> Epochs {
        // Epoch 0 holds only TID zero, "never committed".
        Epochs {
            current: CacheAligned(AtomicU64::new(1)),
            windows: Windows::default(),
            snapshots: Snapshots::default(),
        }
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

    /// Makes a snapshot of all that has committed and offers it to those who read eventual ones, if there are some, while no window is open
    /// (unless it `closes` none, which is a deliberate fault): up to which epoch it has everything. Memory keeps what it needs.
    pub fn advance_snapshot(&self, htm: &Htm, closes: bool) -> Option<Epoch> {
        let eventual = self.snapshots.eventual()?;
        let _closed = closes.then(|| self.windows.close());
        let made = eventual.make(htm, || self.current());
        eventual.offer(made, true);
        Some(made.whole)
    }

    /// Takes an eventual snapshot that has everything of the epochs up to `includes`: the newest that is offered, or one that is made now,
    /// and offered too. `None` where none is offered: then the caller makes one for itself.
    #[inline]
    pub fn take_snapshot(
        &self,
        eventual: &Eventual,
        htm: &Htm,
        (worker, includes): (WorkerId, Epoch),
        closes: bool,
    ) -> Option<TakenSnapshot> {
        let newest = eventual.look(worker, includes)?;
        Some(if newest.whole >= includes { newest } else { self.make_snapshot(eventual, htm, includes, closes) })
    }

    /// Has all that has ended shown by the snapshots that are taken from now on. It is no turn of the helper: whether snapshots are offered
    /// stays as it is, and memory keeps what it kept.
    pub fn renew_snapshot(&self, htm: &Htm) {
        if let Some(eventual) = self.snapshots.eventual() {
            self.make_snapshot(eventual, htm, Epoch(u64::MAX), true);
        }
    }

    #[cold]
    fn make_snapshot(&self, eventual: &Eventual, htm: &Htm, includes: Epoch, closes: bool) -> TakenSnapshot {
        let _closed = closes.then(|| self.windows.close());
        // Another may have made one while we waited for windows.
        if let Some(newest) = eventual.newest().filter(|newest| newest.whole >= includes) {
            return newest;
        }
        let made = eventual.make(htm, || self.current());
        eventual.offer(made, false);
        made
    }

    /// Snapshots of the past.
    #[inline]
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
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
