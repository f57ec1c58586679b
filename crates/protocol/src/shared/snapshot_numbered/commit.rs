//! Commit: the additions to [the region](crate::shared::region), which are the versions that snapshots read.
//!
//! The snapshot number S is read right before E (step 2 there). Headers of row versions are filled with guesses of both
//! before a region begins. After a wrong guess it fills them again, which is private memory.

use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{Epoch, Tid};
use seriatim_htm::Access;
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, Fault, OpError, RecordLayout, Redo};

use super::snapshot::{VersionHeader, deletion};
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::record_header;
use crate::shared::region::{self, Rules};
use crate::shared::writes::{Write, WriteSet};

/// Decides an attempt that wrote, and reports it.
#[inline(always)]
pub(super) fn publish(attempt: &mut Optimistic, snapshot: &AtomicU64, redo: &mut dyn Redo) -> Result<Tid, OpError> {
    let tid = loop {
        attempt.base.make_deletions()?;
        let error = match decide(attempt, snapshot) {
            Ok(tid) => break tid,
            Err(error) => error,
        };
        attempt.base.drop_deletions();
        if !attempt.rebase(true) {
            return Err(error);
        }
    };
    // Snapshot readers that began before us may read what was replaced for a grace period more.
    if attempt.base.core.epochs.snapshots().eventual().is_none() {
        attempt.base.settle(tid, &LockBit);
    } else {
        settle_eventual(attempt, tid);
    }
    attempt.base.report(tid, redo);
    Ok(tid)
}

/// As [`Attempt::settle`], where readers that begin later may still want what was replaced: of all that were
/// made under one snapshot number only the last. The others they do not get to.
fn settle_eventual(attempt: &mut Optimistic, tid: Tid) {
    let keeps_epochs = keeps_epochs(&attempt.base.core);
    attempt.base.settle_rows(tid, &LockBit, |write| {
        let is_chained = write.place().is_none() && !write.expected.is_absent() && write.row_version != 0;
        let is_passed = is_chained && {
            // SAFETY: published just now; we are online.
            let snapshot =
                unsafe { VersionHeader::of(write.table().record_layout.row, write.row_version) }.kept.snapshot();
            let now = Guess { epoch: tid.epoch().0, snapshot };
            replaced(write).is_some_and(|(made, _)| made.is_needless(now, keeps_epochs))
        };
        if is_passed { Epoch(0) } else { tid.epoch() }
    });
}

/// Whether chains keep the last version of every epoch: for snapshots of the durable one.
#[inline(always)]
fn keeps_epochs(core: &Core) -> bool {
    core.local.kept_until().is_some() && !core.injects(Fault::ForgetDurable)
}

fn decide(attempt: &mut Optimistic, number: &AtomicU64) -> Result<Tid, OpError> {
    if attempt.base.writes.builds_on_absence() {
        describe_deletions(&attempt.base.writes);
    }
    let core = &attempt.base.core;
    let guess = Guess { epoch: core.epochs.current().0, snapshot: number.load(Ordering::Acquire) };
    let numbers = Numbers { number, keeps_epochs: keeps_epochs(core) };
    region::decide(attempt, &numbers, guess).map_err(|conflict| region::why(attempt, conflict))
}

/// Fills the versions of deletions over which rows are inserted. That which a tombstone's version word names may be
/// gone: its address is passed on, not followed.
#[cold]
fn describe_deletions(writes: &WriteSet) {
    for write in writes.entries().iter().filter(|write| write.expected.is_absent() && write.before != 0) {
        let record_layout = &write.table().record_layout;
        let previous = record_header::row_version(record_layout, write.record).load(Ordering::Acquire) as usize;
        let snapshot = deletion(record_layout, write.record).load(Ordering::Relaxed);
        let version = VersionHeader::new(write.expected.tid(), snapshot, true, previous);
        // SAFETY: this commit allocated it.
        unsafe { version.write(record_layout.row, write.before) };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Guess {
    epoch: u64,
    snapshot: u64,
}

impl Guess {
    /// Of the version that was made so: whether no reader that begins later needs it once another is made `now`.
    #[inline(always)]
    fn is_needless(self, now: Guess, keeps_epochs: bool) -> bool {
        self.snapshot == now.snapshot && (self.epoch == now.epoch || !keeps_epochs)
    }
}

/// The version that a write replaces, if there is one: the epoch and snapshot number in which it was made, and the
/// version before it.
#[inline(always)]
fn replaced(write: &Write) -> Option<(Guess, usize)> {
    (write.before != 0).then(|| {
        // SAFETY: it was the record's when the write was noted, or this commit made it for a deletion. Both are
        // readable until we leave.
        let version = unsafe { VersionHeader::of(write.table().record_layout.row, write.before) };
        (Guess { epoch: version.tid.epoch().0, snapshot: version.kept.snapshot() }, version.previous)
    })
}

/// The version at which readers continue that may not see the one that this write installs in E under S. A reader
/// whose number is S - 1 or less needs the replaced version unless that is itself of snapshot S (lines 18–23). A
/// reader of a durable epoch before E, where there is a log, needs it unless it is of E.
///
/// If the row is moved to a place in the record, no reader needs the version before the replaced one, in either case.
/// But that earlier version may have been in that very place, and a chain must not contain itself.
#[inline(always)]
fn older(write: &Write, now: Guess, keeps_epochs: bool) -> usize {
    match replaced(write) {
        Some((made, previous)) if write.place().is_none() && made.is_needless(now, keeps_epochs) => previous,
        _ => write.before,
    }
}

/// The versions that snapshots read.
struct Numbers<'a> {
    number: &'a AtomicU64,
    /// Whether chains keep the last version of every epoch: for snapshots of the durable one.
    keeps_epochs: bool,
}

impl Rules<()> for Numbers<'_> {
    type Now = Guess;

    #[inline(always)]
    fn now<A: Access>(&self, access: &mut A, epoch: &AtomicU64) -> Guess {
        // ORDERING: S first, for the epoch of an eventual snapshot (`seriatim_txn::Snapshots`).
        let snapshot = access.load(self.number);
        // Where they are one word they are one number, which may be advanced between two loads outside regions.
        if std::ptr::eq(self.number, epoch) {
            return Guess { epoch: snapshot, snapshot };
        }
        Guess { epoch: access.load(epoch), snapshot }
    }

    #[inline(always)]
    fn epoch(now: Guess) -> Epoch {
        Epoch(now.epoch)
    }

    #[inline(always)]
    fn describe(&self, now: Guess, tid: Tid, write: &Write) {
        let header = VersionHeader::new(tid, now.snapshot, false, older(write, now, self.keeps_epochs));
        // SAFETY: not published yet.
        unsafe { header.write(write.table().record_layout.row, write.row_version) };
    }

    #[inline(always)]
    fn delete<A: Access>(&self, access: &mut A, now: Guess, record_layout: &RecordLayout, record: RecordPtr) {
        access.store(deletion(record_layout, record), now.snapshot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outside regions, where epochs end between any two loads.
    struct Restless;

    impl Access for Restless {
        const REGION: bool = false;

        fn load(&mut self, word: &AtomicU64) -> u64 {
            word.fetch_add(1, Ordering::Relaxed)
        }

        fn store(&mut self, _: &AtomicU64, _: u64) {}

        fn lock(&mut self, _: &AtomicU64, _: u64, _: u64) -> bool {
            true
        }
    }

    #[test]
    fn where_the_number_is_the_epoch_a_commit_has_one_of_both() {
        let (epoch, number) = (AtomicU64::new(7), AtomicU64::new(40));
        let now = |number| Numbers { number, keeps_epochs: true }.now(&mut Restless, &epoch);
        assert_eq!(now(&number), Guess { epoch: 7, snapshot: 40 });
        assert_eq!(now(&epoch), Guess { epoch: 8, snapshot: 8 });
    }
}
