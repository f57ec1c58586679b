//! Commit: the additions to [the region](crate::shared::region), which are the versions that snapshots read.
//!
//! The snapshot number S is read right before E (step 2 there). Headers of row versions are filled with guesses of both
//! before a region begins. After a wrong guess it fills them again, which is private memory.

use std::hint::cold_path;

use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{Epoch, Tid};
use seriatim_htm::Access;
use seriatim_memory::CountedVec;
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, Fault, OpError, RecordLayout, Redo};

use super::snapshot::{VersionHeader, deletion};
use crate::shared::attempt::Attempt;
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::record;
use crate::shared::record_header::{self, TidWord};
use crate::shared::region::{self, Rules};
use crate::shared::writes::{Link, Write};

/// The installation of one write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Install {
    /// The place in the record to which it is copied; zero where it stays where it is.
    place: usize,
    /// The current value of the version word; zero for none.
    was: usize,
    /// Where a row is inserted over a tombstone: the deletion as a version of its own, for readers of older
    /// snapshots; else zero.
    marker: usize,
    /// The version before the one replaced.
    previous: usize,
    /// Epoch and snapshot number of the replaced version: if they are E and S, no reader needs that version itself.
    made: Guess,
}

impl region::Install for Install {
    #[inline(always)]
    fn place(&self) -> usize {
        self.place
    }

    #[inline(always)]
    fn was(&self) -> usize {
        self.was
    }
}

impl Install {
    /// Of a write that is not an insertion over a deletion.
    #[inline(always)]
    fn of(write: &Write, horizon: Epoch) -> Install {
        let was = match write.link {
            Link::There => {
                record_header::row_version(&write.table().record_layout, write.record).load(Ordering::Acquire) as usize
            }
            _ => 0,
        };
        let mut install = Install { place: 0, was, marker: 0, previous: 0, made: Guess::default() };
        if !write.expected.is_absent() {
            // SAFETY: not zero, as the row was there; and the record's, or a tombstone's, while we are
            // online: readable until we leave.
            let version = unsafe { VersionHeader::of(was) };
            install.made = Guess { epoch: version.tid.epoch().0, snapshot: version.kept.snapshot() };
            install.previous = version.previous;
            if write.row_version != 0 {
                install.place = record::free_place(write.table(), write.record, was, version.tid.epoch(), horizon);
            }
        }
        install
    }

    /// The newest version that is replaced, and retired; zero for none.
    fn replaced(&self) -> usize {
        if self.marker != 0 { self.marker } else { self.was }
    }

    /// The version at which readers continue that may not see one installed in E under S. A reader whose
    /// number is S - 1 or less needs the replaced version unless that is itself of snapshot S (lines 18–23). A
    /// reader of a durable epoch before E, where there is a log, needs it unless it is of E.
    ///
    /// If the row is moved to a place in the record, no reader needs the version before it, in either case.
    /// But that earlier version may have been in that very place, and a chain must not contain itself.
    fn older(&self, now: Guess, keeps_epochs: bool) -> usize {
        if self.is_needless(now, keeps_epochs) && self.place == 0 { self.previous } else { self.replaced() }
    }

    /// Whether no reader that begins later needs the replaced version.
    #[inline(always)]
    fn is_needless(&self, now: Guess, keeps_epochs: bool) -> bool {
        self.made.snapshot == now.snapshot && (self.made.epoch == now.epoch || !keeps_epochs)
    }
}

/// Decides an attempt that wrote, and reports it.
#[inline(always)]
pub(super) fn publish(
    attempt: &mut Optimistic,
    installs: &mut CountedVec<Install>,
    snapshot: &AtomicU64,
    redo: &mut dyn Redo,
) -> Result<Tid, OpError> {
    let tid = loop {
        let error = match prepare(attempt, installs).and_then(|()| decide(attempt, installs, snapshot)) {
            Ok(tid) => break tid,
            Err(error) => error,
        };
        for install in installs.iter() {
            record::release(&mut attempt.base.core, install.marker, VersionHeader::BYTES);
        }
        if !attempt.rebase(true) {
            return Err(error);
        }
        installs.clear();
    };
    // Snapshot readers that began before us may read what was replaced for a grace period more.
    if attempt.base.core.epochs.snapshots().eventual().is_none() {
        let replaced = |install: &Install| (install.place, install.replaced(), tid.epoch());
        attempt.base.settle_rows(tid, &LockBit, |entry, _| replaced(&installs[entry]));
    } else {
        settle_eventual(attempt, installs, tid);
    }
    attempt.base.report(tid, redo, |entry| installs[entry].was);
    Ok(tid)
}

/// As [`Attempt::settle`], where readers that begin later may still want what was replaced: of all that were
/// made under one snapshot number only the last. The others they do not get to.
fn settle_eventual(attempt: &mut Optimistic, installs: &[Install], tid: Tid) {
    let keeps_epochs = keeps_epochs(&attempt.base.core);
    attempt.base.settle_rows(tid, &LockBit, |entry, write| {
        let install = &installs[entry];
        let is_passed = install.place == 0 && install.marker == 0 && write.row_version != 0 && {
            // SAFETY: published just now; we are online.
            let snapshot = unsafe { VersionHeader::of(write.row_version) }.kept.snapshot();
            install.is_needless(Guess { epoch: tid.epoch().0, snapshot }, keeps_epochs)
        };
        (install.place, install.replaced(), if is_passed { Epoch(0) } else { tid.epoch() })
    });
}

/// Whether chains keep the last version of every epoch: for snapshots of the durable one.
#[inline(always)]
fn keeps_epochs(core: &Core) -> bool {
    core.local.kept_until().is_some() && !core.injects(Fault::ForgetDurable)
}

fn decide(attempt: &mut Optimistic, installs: &mut CountedVec<Install>, number: &AtomicU64) -> Result<Tid, OpError> {
    let core = &attempt.base.core;
    let guess = Guess { epoch: core.epochs.current().0, snapshot: number.load(Ordering::Acquire) };
    let numbers = Numbers { number, keeps_epochs: keeps_epochs(core) };
    region::decide(attempt, installs, &numbers, guess).map_err(|conflict| region::why(attempt, conflict))
}

/// Finds out what each write replaces, and makes versions of the deletions that rows are inserted over.
/// Outside the region: allocates and touches memory. A transaction that only deletes allocates nothing. Nothing
/// needs to be done where the commit finds out itself.
fn prepare(attempt: &mut Optimistic, installs: &mut CountedVec<Install>) -> Result<(), OpError> {
    let Attempt { core, writes, horizon, .. } = &mut attempt.base;
    if region::finds_late(core) && !writes.builds_on_absence() {
        return Ok(());
    }
    for write in writes.entries() {
        let mut install = Install::of(write, *horizon);
        if write.expected.is_absent() && !write.is_nothing() && write.expected != TidWord::PLACEHOLDER {
            cold_path();
            let (was, record_layout) = (install.was, &write.table().record_layout);
            let marker = core.local.allocate(&mut core.outside, VersionHeader::BYTES).map_err(record::full)?;
            install.marker = marker.as_ptr() as usize;
            // The version that a tombstone's version word names may be gone: its address is passed on, not followed.
            install.previous = was;
            let (tid, snapshot) = (write.expected.tid(), deletion(record_layout, write.record).load(Ordering::Relaxed));
            install.made = Guess { epoch: tid.epoch().0, snapshot };
            let version = VersionHeader::new(tid, snapshot, true, was);
            // SAFETY: allocated just now.
            unsafe { version.write(install.marker) };
        }
        installs.push(install);
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Guess {
    epoch: u64,
    snapshot: u64,
}

/// The versions that snapshots read.
struct Numbers<'a> {
    number: &'a AtomicU64,
    /// Whether chains keep the last version of every epoch: for snapshots of the durable one.
    keeps_epochs: bool,
}

impl Rules<()> for Numbers<'_> {
    type Install = Install;
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
    fn find(&self, write: &Write, horizon: Epoch) -> Install {
        Install::of(write, horizon)
    }

    #[inline(always)]
    fn describe(&self, now: Guess, tid: Tid, install: &Install, write: &Write) {
        let header = VersionHeader::new(tid, now.snapshot, false, install.older(now, self.keeps_epochs));
        // SAFETY: not published yet.
        unsafe { header.write(write.row_version) };
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
