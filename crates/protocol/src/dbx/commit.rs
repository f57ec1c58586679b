//! Commit (Algorithm 1): one body for the region and for the software path.
//!
//! Steps, numbered as the README argues them:
//! 1. lock every record to be written, from exactly the header word its write builds on (lines 9–14 of the paper, and the
//!    early subscription to the fallback's locks);
//! 2. read the epoch E and the snapshot number S, once, together;
//! 3. validate the read set and the witnesses (lines 3–8);
//! 4. install image and header word of every record written (lines 16–27).
//!
//! The serialization point is the end of step 2: all records written are locked (or the region is one instant), and whatever
//! was read is found unchanged afterwards. Image headers are filled with guesses of E and S before the region begins, so that
//! the region usually touches heads only; after a wrong guess it fills them again, which is private memory.

use std::hint::cold_path;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use seriatim_base::{Epoch, Stamp, abort_on_unwind};
use seriatim_htm::{Access, Body, NoLocks, Refused, Stop as RegionStop};
use seriatim_memory::CountedVec;
use seriatim_txn::{Cause, Core, Fault, Outcome, Phase, Reason, Redo, Stop};

use super::SnapshotNumber;
use super::snapshot::{ImageHeader, deletion};
use crate::shared::attempt::Attempt;
use crate::shared::head::{self, HeaderWord};
use crate::shared::optimistic::{LockBit, Optimistic, Read, Refuted, Witnessed};
use crate::shared::record;
use crate::shared::writes::WriteSet;

/// A write set entry's record changed.
const WRITE_CHANGED: u8 = 1;
/// A record read, or a range, changed.
const READ_CHANGED: u8 = 2;

/// What is installed for one write: found out before the region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Install {
    /// The image to publish; zero for none: a deletion.
    image: usize,
    /// What the image word holds; zero for nothing.
    was: usize,
    /// Where a row is inserted over a tombstone: the deletion as a version of its own, for who reads older snapshots; else zero.
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

    /// Where readers go on who may not see what is installed in E under S. A reader whose number is S - 1 or less needs what is
    /// replaced unless that is itself of snapshot S (lines 18–23). One of a durable epoch before E, where there is a log, needs it
    /// unless it is of E.
    fn older(&self, now: Guess, keeps_epochs: bool) -> usize {
        let needless = self.made.snapshot == now.snapshot && (self.made.epoch == now.epoch || !keeps_epochs);
        if needless { self.previous } else { self.replaced() }
    }
}

/// Decides the attempt. Read-only attempts just validate: their serialization point is the start of validation, when every
/// word noted was unchanged; one word alone needs no validation.
pub(super) fn commit(
    attempt: &mut Optimistic,
    installs: &mut CountedVec<Install>,
    snapshot: &SnapshotNumber,
    redo: &mut dyn Redo,
) -> Result<Outcome, Stop> {
    if attempt.base.writes.is_empty() {
        return attempt.commit_read_only();
    }
    match prepare(attempt, installs).and_then(|()| decide(attempt, installs, snapshot)) {
        Ok(stamp) => {
            attempt.base.report(stamp, redo, |entry| installs[entry].was);
            // Snapshot readers that began before us may read what was replaced for a grace period more.
            attempt.base.settle(stamp, &LockBit, |entry| installs[entry].replaced());
            attempt.base.finish(&LockBit);
            Ok(Outcome::Committed(stamp))
        }
        Err(stop) => {
            for install in installs.iter() {
                record::release(&mut attempt.base.core, install.marker, ImageHeader::BYTES);
            }
            Err(stop)
        }
    }
}

fn decide(attempt: &mut Optimistic, installs: &[Install], number: &SnapshotNumber) -> Result<Stamp, Stop> {
    let guess = Guess { epoch: attempt.base.core.epochs.current().0, snapshot: number.load(Ordering::Acquire) };
    let Optimistic { base, reads, witnesses } = attempt;
    let Attempt { core, writes, newest, .. } = base;
    let faults = Faults::of(core);
    let keeps_epochs = core.local.kept_until().is_some() && !core.suffers(Fault::ForgetDurable);
    let Core { agent, outside, epochs, .. } = core;
    let (newest, epoch) = (*newest, epochs.word());
    let mut body = Commit {
        reads,
        witnesses,
        writes,
        installs,
        newest,
        epoch,
        number,
        guess,
        refuted: None,
        keeps_epochs,
        faults,
    };
    body.fill(guess);
    // In direct mode a panic would leave records locked, for which snapshot readers wait without a bound.
    let decided = abort_on_unwind("a commit", || agent.run(outside, &NoLocks, &mut body));
    let refuted = body.refuted;
    decided.map_err(|refused| why(attempt, refused, refuted))
}

/// The cause of a refusal. A region that was rolled back took its findings with it: look again, outside.
#[cold]
fn why(attempt: &mut Optimistic, refused: Refused, refuted: Option<Refuted>) -> Stop {
    match (refused, refuted) {
        (refused, _) if refused.is_busy() => attempt.base.blame_lock(),
        (Refused { code: WRITE_CHANGED }, Some(refuted)) => attempt.blame(Phase::Lock, refuted),
        (_, Some(refuted)) => attempt.blame(Phase::Validate, refuted),
        (_, None) => match attempt.validate() {
            Err(stop) => stop,
            Ok(()) => Stop::Abort(Cause { phase: Phase::Validate, reason: Reason::RecordChanged }),
        },
    }
}

/// Finds out what each write replaces, and makes versions of the deletions that rows are inserted over. Outside the region:
/// allocates and touches memory. A transaction that only deletes allocates nothing.
fn prepare(attempt: &mut Optimistic, installs: &mut CountedVec<Install>) -> Result<(), Stop> {
    let Attempt { core, writes, .. } = &mut attempt.base;
    for write in writes.entries() {
        let shape = &write.table().shape;
        // Stable as long as the header word is `expected`, which step 1 checks.
        let was = if write.linked { 0 } else { head::image(shape, write.record).load(Ordering::Acquire) as usize };
        let mut install = Install { image: write.image, was, marker: 0, previous: 0, made: Guess::default() };
        if write.is_nothing() || write.expected == HeaderWord::PLACEHOLDER {
            // There is no version before, or it stays.
        } else if write.expected.is_absent() {
            cold_path();
            let marker = core.local.allocate(&mut core.outside, ImageHeader::BYTES).map_err(record::full)?;
            install.marker = marker.as_ptr() as usize;
            // What a tombstone's image word names may be gone: it is handed on, not looked at.
            install.previous = was;
            let (stamp, snapshot) = (write.expected.stamp(), deletion(shape, write.record).load(Ordering::Relaxed));
            install.made = Guess { epoch: stamp.epoch().0, snapshot };
            let version = ImageHeader::new(stamp, snapshot, true, was);
            // SAFETY: allocated just now.
            unsafe { version.write(install.marker) };
        } else {
            // SAFETY: not zero, as the row was there; and the record's, or a tombstone's, while we are online: readable until we leave.
            let version = unsafe { ImageHeader::of(was) };
            install.made = Guess { epoch: version.stamp.epoch().0, snapshot: version.kept.snapshot() };
            install.previous = version.previous;
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
    witnesses: &'a [Witnessed],
    writes: &'a WriteSet,
    installs: &'a [Install],
    newest: Stamp,
    epoch: &'a AtomicU64,
    number: &'a AtomicU64,
    guess: Guess,
    refuted: Option<Refuted>,
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
    reuse_stamp: bool,
    panic: bool,
}

impl Faults {
    fn of(core: &Core) -> Faults {
        Faults {
            skip_validation: core.suffers(Fault::SkipValidation),
            no_subscription: core.suffers(Fault::NoSubscription),
            late_subscription: core.suffers(Fault::LateSubscription),
            publish_early: core.suffers(Fault::PublishEarly),
            reuse_stamp: core.suffers(Fault::ReuseStamp),
            panic: core.suffers(Fault::PanicInCommit),
        }
    }
}

impl Commit<'_> {
    fn stamp(&self, guess: Guess) -> Stamp {
        if self.faults.reuse_stamp { self.newest } else { self.newest.next(Epoch(guess.epoch)) }
    }

    /// Writes the headers of the private images.
    fn fill(&mut self, guess: Guess) {
        let stamp = self.stamp(guess);
        for (install, write) in self.installs.iter().zip(self.writes.entries()) {
            if write.image == 0 {
                continue;
            }
            let header = ImageHeader::new(stamp, guess.snapshot, false, install.older(guess, self.keeps_epochs));
            // SAFETY: not published yet.
            unsafe { header.write(install.image) };
        }
        self.guess = guess;
    }

    /// Step 1. On failure nothing stays locked.
    #[inline]
    fn lock<A: Access>(&mut self, access: &mut A) -> Result<(), RegionStop> {
        for (i, write) in self.writes.entries().iter().enumerate() {
            let word = head::header(&write.table().shape, write.record);
            if !access.lock(word, write.expected.0, write.expected.locked().0) {
                let now = HeaderWord(access.load(word));
                self.unlock(access, i);
                // Locked, or let go of unchanged a moment ago.
                if now.unlocked() == write.expected {
                    return Err(RegionStop::Busy);
                }
                self.refuted = Some(Refuted::Write(i));
                return Err(RegionStop::Refused(WRITE_CHANGED));
            }
        }
        Ok(())
    }

    /// Step 3. On failure the first `locked` locks are given back.
    #[inline]
    fn validate<A: Access>(&mut self, access: &mut A, locked: usize) -> Result<(), RegionStop> {
        let Some(refuted) = Optimistic::refuted(access, self.reads, self.witnesses, self.writes) else { return Ok(()) };
        self.unlock(access, locked);
        self.refuted = Some(refuted);
        Err(RegionStop::Refused(READ_CHANGED))
    }

    /// Step 4. Word by word in an order that readers outside can bear: the lock bit is set until the last.
    #[inline]
    fn install<A: Access>(&self, access: &mut A, stamp: Stamp) {
        for (write, install) in self.writes.entries().iter().zip(self.installs) {
            let shape = &write.table().shape;
            if write.image != 0 {
                access.store(head::image(shape, write.record), install.image as u64);
            } else if !write.is_nothing() {
                // The image word stays: it is where readers of older snapshots go on.
                access.store(deletion(shape, write.record), self.guess.snapshot);
            }
            let after = Attempt::after(write, stamp);
            access.store(head::header(shape, write.record), after.0);
        }
    }

    /// Direct only: gives back the first `locked` locks.
    fn unlock<A: Access>(&self, access: &mut A, locked: usize) {
        if !A::REGION {
            for (write, install) in self.writes.entries()[..locked].iter().zip(self.installs) {
                if self.faults.publish_early {
                    access.store(head::image(&write.table().shape, write.record), install.was as u64);
                }
                access.store(head::header(&write.table().shape, write.record), write.expected.0);
            }
        }
    }
}

// SAFETY: header and image words belong to records noted while the worker was online, which it is until the commit returns; E
// and S live as long as the database.
unsafe impl Body for Commit<'_> {
    type Output = Stamp;

    #[inline]
    fn run<A: Access>(&mut self, access: &mut A) -> Result<Stamp, RegionStop> {
        self.refuted = None;
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
        let stamp = self.stamp(now);
        if self.faults.publish_early {
            self.install(access, stamp);
            seriatim_base::thread::yield_now();
        }
        // Step 3.
        if !self.faults.skip_validation && !self.faults.late_subscription {
            self.validate(access, locked)?;
        }
        assert!(!self.faults.panic, "a deliberate panic with locks held");
        // Step 4.
        self.install(access, stamp);
        Ok(stamp)
    }
}
