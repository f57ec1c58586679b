//! The horizon of snapshots of the past: an epoch such that no snapshot that needs versions replaced in epochs
//! up to it is read.
//!
//! A reader of such a snapshot comes online after versions that it needs were replaced, so a grace period is
//! not enough for these. The thread that advances snapshots passes, for each new one, the epoch up to which it
//! needs nothing ([`SnapshotHorizon::pass`]). That epoch is the horizon once all workers have gone offline
//! that were online then, and may read an older snapshot.
//!
//! Why it is safe: the new snapshot is available to readers before `pass` seals the counts. A reader's coming online
//! and the seal each have a fence (`quiescence`). So either the reader takes the new snapshot or a later one, or the
//! seal finds it online.
//!
//! While no snapshot of the past is offered, the epoch that was passed is the last of all: nothing is kept.
//! Before snapshots are offered again the horizon steps back ([`SnapshotHorizon::resume`]). That is right
//! because they need only versions that later commits replace, and such a commit finds the horizon at its new
//! value.
//!
//! Workers that are offline are not awaited. One that stays online holds this up, as it does the grace periods of all.

use std::sync::Mutex;

use seriatim_base::{CacheAligned, Epoch};

use crate::heap::lock;
use crate::quiescence::{Awaited, Counts};
use crate::sync::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct SnapshotHorizon {
    epoch: CacheAligned<AtomicU64>,
    round: Mutex<Round>,
}

#[derive(Debug, Default)]
struct Round {
    /// The workers that were online when the noted snapshot was passed.
    awaited: Vec<Awaited>,
    noted: Epoch,
}

impl Default for SnapshotHorizon {
    fn default() -> SnapshotHorizon {
        SnapshotHorizon { epoch: CacheAligned(AtomicU64::new(0)), round: Mutex::default() }
    }
}

impl SnapshotHorizon {
    /// Where it is.
    #[inline]
    pub(crate) fn epoch(&self) -> Epoch {
        // ORDERING: pairs with the release in `pass`: the accesses of readers of older snapshots are over.
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// Snapshots that are taken from now on need versions replaced in epochs after `whole`, whatever was
    /// passed. A wait for the end of older ones continues.
    pub(crate) fn resume(&self, whole: Epoch) {
        let mut round = lock(&self.round);
        round.noted = round.noted.min(whole);
        // ORDERING: before the caller advances S. A commit with a number that they do not show has loaded S
        // with acquire, or in a region, before it loads this. Every thread that changes it holds the lock.
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.epoch.store(epoch.min(whole.0), Ordering::Release);
    }

    /// Snapshots taken from now on need no version that was replaced up to this epoch. Notes it, if all
    /// workers have gone offline that the one noted before awaits.
    pub(crate) fn pass(&self, counts: &Counts, whole: Epoch) {
        let mut round = lock(&self.round);
        if !counts.passed(&mut round.awaited) {
            return;
        }
        self.epoch.store(round.noted.0, Ordering::Release);
        // Callers may come with epochs in another order than they read them.
        round.noted = round.noted.max(whole);
        counts.seal(None, &mut round.awaited);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::tests::{memory, register};
    use seriatim_base::{DurablePoint, Epoch};
    use std::sync::Arc;

    #[test]
    fn nothing_is_kept_unless_it_is_wanted() {
        let memory = memory(1);
        let local = register(&memory);
        memory.pass_snapshot(Epoch(3));
        assert_eq!(local.released(), None);
        memory.keep_snapshots();
        assert_eq!(local.released(), Some(Epoch(0)));
    }

    #[test]
    fn versions_of_a_snapshot_are_kept_until_its_readers_have_ended() {
        let memory = memory(3);
        memory.keep_snapshots();
        let (mut early, mut late, local) = (register(&memory), register(&memory), register(&memory));
        memory.pass_snapshot(Epoch(4));
        memory.pass_snapshot(Epoch(6));
        assert_eq!(local.released(), Some(Epoch(4)), "nobody reads");
        early.enter();
        memory.pass_snapshot(Epoch(8));
        assert_eq!(local.released(), Some(Epoch(6)));
        late.enter();
        (9..20).for_each(|epoch| memory.pass_snapshot(Epoch(epoch)));
        assert_eq!(local.released(), Some(Epoch(6)), "who was online when 8 was passed may read what 7 replaced");
        early.leave();
        memory.pass_snapshot(Epoch(20));
        assert_eq!(local.released(), Some(Epoch(8)));
        memory.pass_snapshot(Epoch(21));
        assert_eq!(local.released(), Some(Epoch(8)));
        late.leave();
        memory.pass_snapshot(Epoch(22));
        assert_eq!(local.released(), Some(Epoch(20)));
    }

    #[test]
    fn nothing_is_kept_while_no_snapshot_can_be_taken() {
        let memory = memory(2);
        memory.keep_snapshots();
        let (mut reader, local) = (register(&memory), register(&memory));
        memory.pass_snapshot(Epoch(4));
        memory.pass_snapshot(Epoch(5));
        reader.enter();
        (0..3).for_each(|_| memory.pass_snapshot(Epoch(u64::MAX)));
        assert_eq!(local.released(), Some(Epoch(5)), "it may have taken the last that was there");
        memory.resume_snapshots(Epoch(8));
        reader.leave();
        assert_eq!(local.released(), Some(Epoch(5)));
        memory.pass_snapshot(Epoch(9));
        assert_eq!(local.released(), Some(Epoch(8)));
        (0..2).for_each(|_| memory.pass_snapshot(Epoch(u64::MAX)));
        assert_eq!(local.released(), Some(Epoch(u64::MAX)));
        memory.resume_snapshots(Epoch(12));
        assert_eq!(local.released(), Some(Epoch(12)));
        memory.pass_snapshot(Epoch(14));
        assert_eq!(local.released(), Some(Epoch(12)));
    }

    /// A version waits for both, the log and the snapshots; so does a place in a record.
    #[test]
    fn a_version_kept_for_log_and_snapshots_waits_for_both() {
        let (memory, point) = (memory(1), Arc::new(DurablePoint::new(Epoch(2))));
        memory.keep_snapshots();
        memory.keep_versions(Arc::clone(&point));
        let local = register(&memory);
        (1..10).for_each(|epoch| {
            memory.advance_horizon(Epoch(epoch));
            memory.pass_snapshot(Epoch(epoch));
        });
        assert_eq!((local.released(), local.horizon()), (Some(Epoch(2)), Epoch(3)));
        assert!(point.advance(Epoch(20)));
        assert_eq!((local.released(), local.horizon()), (Some(Epoch(8)), Epoch(7)));
    }
}
