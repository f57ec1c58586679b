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
    /// written before the call. Called by the ticker, and by callers that do not wait for it. Where snapshots are durable this makes one.
    pub fn advance(&self, htm: &Htm) -> Epoch {
        let _closed = self.windows.close();
        match self.snapshots.eventual().filter(|eventual| eventual.is_epoch()) {
            Some(eventual) => Epoch(self.make(eventual, htm, true).whole.0 + 1),
            None => htm.outside(|| Epoch(self.current.fetch_add(1, Ordering::AcqRel) + 1)),
        }
    }

    /// Makes a snapshot; no window is open. Offers it, if none is offered only if it is to be `always`.
    fn make(&self, eventual: &Eventual, htm: &Htm, always: bool) -> TakenSnapshot {
        let made = eventual.make(htm, &self.current);
        eventual.offer(made, always);
        made
    }

    /// Makes a snapshot of all that has committed and offers it to those who read eventual ones, if there are some, while no window is open
    /// (unless it `closes` none, which is a deliberate fault): up to which epoch it has everything. Memory keeps what it needs.
    pub fn advance_snapshot(&self, htm: &Htm, closes: bool) -> Option<Epoch> {
        let eventual = self.snapshots.eventual()?;
        let _closed = closes.then(|| self.windows.close());
        Some(self.make(eventual, htm, true).whole)
    }

    /// Takes an eventual snapshot that has everything of the epochs up to `includes`: the newest that is offered, or one that is made now,
    /// and offered too, as it is where all readers make theirs. `None` where none is offered: then the caller makes one for itself.
    #[inline]
    pub fn take_snapshot(
        &self,
        eventual: &Eventual,
        htm: &Htm,
        (worker, includes): (WorkerId, Epoch),
        closes: bool,
    ) -> Option<TakenSnapshot> {
        let includes = if eventual.is_made_by_readers() { Epoch(u64::MAX) } else { includes };
        let newest = eventual.look(&self.current, worker, includes)?;
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
        match eventual.newest(&self.current).filter(|newest| newest.whole >= includes) {
            Some(newest) => newest,
            None => self.make(eventual, htm, false),
        }
    }

    /// The newest eventual snapshot that is offered, if one is. The caller is online.
    pub fn newest_snapshot(&self) -> Option<TakenSnapshot> {
        self.snapshots.eventual()?.newest(&self.current)
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
