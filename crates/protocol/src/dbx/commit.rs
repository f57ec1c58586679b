//! Commit (Algorithm 1): one body for the region and for the software path.
//!
//! Steps, numbered as the README argues them:
//! 1. lock every record to be written, from exactly the TID word its write builds on (lines 9–14 of the paper, and the
//!    early subscription to the fallback's locks);
//! 2. read the epoch E and the snapshot number S, once, together;
//! 3. validate the read set and the node versions (lines 3–8);
//! 4. install row version and TID word of every record written (lines 16–27).
//!
//! The serialization point is the end of step 2: all records written are locked (or the region is one instant), and whatever
//! was read is found unchanged afterwards. Image headers are filled with guesses of E and S before the region begins, so that
//! the region usually touches record headers and places of small rows only; after a wrong guess it fills them again, which is private
//! memory.

use std::hint::cold_path;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use seriatim_base::{Epoch, Tid, abort_on_unwind};
use seriatim_htm::{Access, Body, BodyError, NoLocks, Refused};
use seriatim_memory::CountedVec;
use seriatim_txn::{Cause, Core, Fault, OpError, Outcome, Phase, Reason, Redo};

use super::SnapshotNumber;
use super::snapshot::{VersionHeader, deletion};
use crate::shared::attempt::Attempt;
use crate::shared::optimistic::{LockBit, NodeSetEntry, Optimistic, Read, ValidationFailure};
use crate::shared::record;
use crate::shared::record_header::{self, TidWord};
use crate::shared::writes::{Link, WriteSet};

/// A write set entry's record changed.
const WRITE_CHANGED: u8 = 1;
/// A record read, or a range, changed.
const READ_CHANGED: u8 = 2;

/// What is installed for one write: found out before the region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Install {
    /// The row version to publish, private before; zero for none: a deletion.
    row_version: usize,
    /// The place in the record to which it is copied; zero where it stays where it is.
    place: usize,
    /// What the version word holds; zero for nothing.
    was: usize,
    /// Where a row is inserted over a tombstone: the deletion as a version of its own, for readers of older snapshots; else zero.
    marker: usize,
    /// The version before the one replaced.
    previous: usize,
    /// Epoch and snapshot number of the version replaced: if they are E and S, nobody needs that version itself.
    made: Guess,
}

impl Install {
    /// The newest version that is replaced, and retired; zero for none.
    fn replaced(&self) -> usize {
        if self.marker != 0 { self.marker } else { self.was }
    }

    /// Where readers that may not see what is installed in E under S go on. A reader whose number is S - 1 or less needs what is
    /// replaced unless that is itself of snapshot S (lines 18–23). One of a durable epoch before E, where there is a log, needs it
    /// unless it is of E.
    ///
    /// Of a row that goes to a place nobody needs what came before, either way; but the version before the one replaced may have lain in
    /// that very place, and a chain should not name itself.
    fn older(&self, now: Guess, keeps_epochs: bool) -> usize {
        let needless = self.made.snapshot == now.snapshot && (self.made.epoch == now.epoch || !keeps_epochs);
        if needless && self.place == 0 { self.previous } else { self.replaced() }
    }
}

/// Decides the attempt. Read-only attempts just validate: their serialization point is the start of validation, when every
/// word noted was unchanged; one word alone needs no validation.
pub(super) fn commit(
    attempt: &mut Optimistic,
    installs: &mut CountedVec<Install>,
    snapshot: &SnapshotNumber,
    redo: &mut dyn Redo,
) -> Result<Outcome, OpError> {
    if attempt.base.writes.is_empty() {
        return attempt.commit_read_only();
    }
    match prepare(attempt, installs).and_then(|()| decide(attempt, installs, snapshot)) {
        Ok(tid) => {
            for (entry, install) in installs.iter().enumerate().filter(|(_, install)| install.place != 0) {
                attempt.base.moved(entry, install.place);
            }
            attempt.base.report(tid, redo, |entry| installs[entry].was);
            // Snapshot readers that began before us may read what was replaced for a grace period more.
            attempt.base.settle(tid, &LockBit, |entry| installs[entry].replaced());
            attempt.base.finish(&LockBit);
            Ok(Outcome::Committed(tid))
        }
        Err(error) => {
            for install in installs.iter() {
                record::release(&mut attempt.base.core, install.marker, VersionHeader::BYTES);
            }
            Err(error)
        }
    }
}

fn decide(attempt: &mut Optimistic, installs: &[Install], number: &SnapshotNumber) -> Result<Tid, OpError> {
    let guess = Guess { epoch: attempt.base.core.epochs.current().0, snapshot: number.load(Ordering::Acquire) };
    let Optimistic { base, reads, node_set } = attempt;
    let Attempt { core, writes, newest, .. } = base;
    let faults = Faults::of(core);
    let keeps_epochs = core.local.kept_until().is_some() && !core.injects(Fault::ForgetDurable);
    let Core { agent, outside, epochs, .. } = core;
    let (newest, epoch) = (*newest, epochs.word());
    let mut body =
        Commit { reads, node_set, writes, installs, newest, epoch, number, guess, failure: None, keeps_epochs, faults };
    body.fill(guess);
    // In direct mode a panic would leave records locked, for which snapshot readers wait without a bound.
    let decided = abort_on_unwind("a commit", || agent.run(outside, &NoLocks, &mut body));
    let failure = body.failure;
    decided.map_err(|refused| why(attempt, refused, failure))
}

/// The cause of a refusal. A region that was rolled back took its findings with it: look again, outside.
#[cold]
fn why(attempt: &mut Optimistic, refused: Refused, failure: Option<ValidationFailure>) -> OpError {
    match (refused, failure) {
        (refused, _) if refused.is_busy() => attempt.base.record_lock_conflict(),
        (Refused { code: WRITE_CHANGED }, Some(failure)) => attempt.record_conflict(Phase::Lock, failure),
        (_, Some(failure)) => attempt.record_conflict(Phase::Validate, failure),
        (_, None) => match attempt.validate() {
            Err(error) => error,
            Ok(()) => OpError::Abort(Cause { phase: Phase::Validate, reason: Reason::RecordChanged }),
        },
    }
}

/// Finds out what each write replaces, and makes versions of the deletions that rows are inserted over. Outside the region:
/// allocates and touches memory. A transaction that only deletes allocates nothing.
fn prepare(attempt: &mut Optimistic, installs: &mut CountedVec<Install>) -> Result<(), OpError> {
    let Attempt { core, writes, .. } = &mut attempt.base;
    let horizon = core.horizon();
    for write in writes.entries() {
        let record_layout = &write.table().record_layout;
        // Stable as long as the TID word is `expected`, which step 1 checks.
        let was = if write.link != Link::There {
            0
        } else {
            record_header::row_version(record_layout, write.record).load(Ordering::Acquire) as usize
        };
        let mut install =
            Install { row_version: write.row_version, place: 0, was, marker: 0, previous: 0, made: Guess::default() };
        if write.is_nothing() || write.expected == TidWord::PLACEHOLDER {
            // There is no version before, or it stays.
        } else if write.expected.is_absent() {
            cold_path();
            let marker = core.local.allocate(&mut core.outside, VersionHeader::BYTES).map_err(record::full)?;
            install.marker = marker.as_ptr() as usize;
            // What a tombstone's version word names may be gone: it is handed on, not looked at.
            install.previous = was;
            let (tid, snapshot) = (write.expected.tid(), deletion(record_layout, write.record).load(Ordering::Relaxed));
            install.made = Guess { epoch: tid.epoch().0, snapshot };
            let version = VersionHeader::new(tid, snapshot, true, was);
            // SAFETY: allocated just now.
            unsafe { version.write(install.marker) };
        } else {
            // SAFETY: not zero, as the row was there; and the record's, or a tombstone's, while we are online: readable until we leave.
            let version = unsafe { VersionHeader::of(was) };
            install.made = Guess { epoch: version.tid.epoch().0, snapshot: version.kept.snapshot() };
            install.previous = version.previous;
            if write.row_version != 0 {
                install.place = record::free_place(write.table(), write.record, was, version.tid.epoch(), horizon);
            }
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

struct Commit<'a> {
    reads: &'a [Read],
    node_set: &'a [NodeSetEntry],
    writes: &'a WriteSet,
    installs: &'a [Install],
    newest: Tid,
    epoch: &'a AtomicU64,
    number: &'a AtomicU64,
    guess: Guess,
    failure: Option<ValidationFailure>,
    /// Whether chains keep the last version of every epoch: for snapshots of the durable one.
    keeps_epochs: bool,
    faults: Faults,
}

/// What canaries break; all `false`, and known to be at compile time, otherwise.
#[derive(Clone, Copy, Debug)]
struct Faults {
    skip_validation: bool,
    no_subscription: bool,
    late_subscription: bool,
    publish_early: bool,
    reuse_tid: bool,
    panic: bool,
}

impl Faults {
    fn of(core: &Core) -> Faults {
        Faults {
            skip_validation: core.injects(Fault::SkipValidation),
            no_subscription: core.injects(Fault::NoSubscription),
            late_subscription: core.injects(Fault::LateSubscription),
            publish_early: core.injects(Fault::PublishEarly),
            reuse_tid: core.injects(Fault::ReuseTid),
            panic: core.injects(Fault::PanicInCommit),
        }
    }
}

impl Commit<'_> {
    fn tid(&self, guess: Guess) -> Tid {
        if self.faults.reuse_tid { self.newest } else { self.newest.next(Epoch(guess.epoch)) }
    }

    /// Writes the headers of the private row versions.
    fn fill(&mut self, guess: Guess) {
        let tid = self.tid(guess);
        for (install, write) in self.installs.iter().zip(self.writes.entries()) {
            if write.row_version == 0 {
                continue;
            }
            let header = VersionHeader::new(tid, guess.snapshot, false, install.older(guess, self.keeps_epochs));
            // SAFETY: not published yet.
            unsafe { header.write(install.row_version) };
        }
        self.guess = guess;
    }

    /// Step 1. On failure nothing stays locked.
    #[inline]
    fn lock<A: Access>(&mut self, access: &mut A) -> Result<(), BodyError> {
        for (i, write) in self.writes.entries().iter().enumerate() {
            let word = record_header::tid_word(&write.table().record_layout, write.record);
            if !access.lock(word, write.expected.0, write.expected.locked().0) {
                let now = TidWord(access.load(word));
                self.unlock(access, i);
                // Locked, or let go of unchanged a moment ago.
                if now.unlocked() == write.expected {
                    return Err(BodyError::Busy);
                }
                self.failure = Some(ValidationFailure::Write(i));
                return Err(BodyError::Refused(WRITE_CHANGED));
            }
        }
        Ok(())
    }

    /// Step 3. On failure the first `locked` locks are given back.
    #[inline]
    fn validate<A: Access>(&mut self, access: &mut A, locked: usize) -> Result<(), BodyError> {
        let Some(failure) = Optimistic::validation_failure(access, self.reads, self.node_set, self.writes) else {
            return Ok(());
        };
        self.unlock(access, locked);
        self.failure = Some(failure);
        Err(BodyError::Refused(READ_CHANGED))
    }

    /// Step 4. Word by word in an order that readers outside can bear: the lock bit is set until the last.
    #[inline]
    fn install<A: Access>(&self, access: &mut A, tid: Tid) {
        for (write, install) in self.writes.entries().iter().zip(self.installs) {
            let record_layout = &write.table().record_layout;
            if write.row_version != 0 {
                if install.place != 0 {
                    record::copy_to_place(access, write.table(), install.row_version, install.place);
                }
                let published = if install.place != 0 { install.place } else { install.row_version };
                access.store(record_header::row_version(record_layout, write.record), published as u64);
            } else if !write.is_nothing() {
                // The version word stays: it is where readers of older snapshots go on.
                access.store(deletion(record_layout, write.record), self.guess.snapshot);
            }
            let after = Attempt::after(write, tid);
            access.store(record_header::tid_word(record_layout, write.record), after.0);
        }
    }

    /// Direct only: gives back the first `locked` locks.
    fn unlock<A: Access>(&self, access: &mut A, locked: usize) {
        if !A::REGION {
            for (write, install) in self.writes.entries()[..locked].iter().zip(self.installs) {
                if self.faults.publish_early {
                    access.store(
                        record_header::row_version(&write.table().record_layout, write.record),
                        install.was as u64,
                    );
                }
                access.store(record_header::tid_word(&write.table().record_layout, write.record), write.expected.0);
            }
        }
    }
}

// SAFETY: header and version words belong to records noted while the worker was online, which it is until the commit returns; E
// and S live as long as the database.
unsafe impl Body for Commit<'_> {
    type Output = Tid;

    #[inline]
    fn run<A: Access>(&mut self, access: &mut A) -> Result<Tid, BodyError> {
        self.failure = None;
        if self.faults.late_subscription {
            self.validate(access, 0)?;
            seriatim_base::thread::yield_now();
        }
        // Step 1.
        if !self.faults.no_subscription {
            self.lock(access)?;
        }
        let locked = self.writes.entries().len();
        // Step 2.
        if !A::REGION {
            // ORDERING: partner of the SeqCst fetch_add that begins a snapshot.
            fence(Ordering::SeqCst);
        }
        let now = Guess { epoch: access.load(self.epoch), snapshot: access.load(self.number) };
        if now != self.guess {
            self.fill(now);
        }
        let tid = self.tid(now);
        if self.faults.publish_early {
            self.install(access, tid);
            seriatim_base::thread::yield_now();
        }
        // Step 3.
        if !self.faults.skip_validation && !self.faults.late_subscription {
            self.validate(access, locked)?;
        }
        assert!(!self.faults.panic, "a deliberate panic with locks held");
        // Step 4.
        self.install(access, tid);
        Ok(tid)
    }
}
