//! The commit in one region (Wang et al., EuroSys 2014, Algorithm 1): one body for the region and for the
//! software path.
//!
//! Steps, numbered as the protocols' READMEs argue them:
//! 1. lock every record to be written, from the TID word on which its write builds
//!    (lines 9–14 of the paper, and early subscription to fallback locks);
//! 2. read the epoch E, and the protocol's other words, once, together;
//! 3. validate the read set and the node versions (lines 3–8);
//! 4. install row version and TID word of every record written (lines 16–27).
//!
//! An entry of the write set names the row version that it replaces, and the place to which its own is copied. Both are
//! known since its operation, so a region only stores.
//!
//! The serialization point is the end of step 2. All written records are locked (or the region is one instant), and
//! step 3 finds all reads unchanged.

use seriatim_base::word::{AtomicU64, Ordering, fence};
use seriatim_base::{Epoch, Tid, abort_on_unwind};
use seriatim_htm::{Access, Backend, Body, BodyError, Budget, NoLocks, Refused};
use seriatim_store::RecordPtr;
use seriatim_txn::{Cause, Core, Environment, Fault, Knob, OpError, Options, Phase, Reason, RecordLayout};

use super::attempt::Attempt;
use super::optimistic::{NodeSetEntry, Optimistic, Read, ValidationFailure};
use super::origin::Origin;
use super::record;
use super::record_header::{self, TidWord};
use super::writes::{Write, WriteSet};

/// A write set entry's record changed.
const WRITE_CHANGED: u8 = 1;
/// A record read, or a range, changed.
const READ_CHANGED: u8 = 2;

const PAPER: &str = "Wang et al., EuroSys 2014, §6.1";

/// How often a region is begun again after an abort of one cause.
const fn retries(name: &'static str, default: u32, about: &'static str, source: &'static str) -> Knob {
    Knob { name, unit: "aborts", default: default as u64, min: 1, max: 1_000_000, about, source }
}

const BUDGET: Budget = Budget::PAPER;
const CONFLICT_MAX: Knob = retries(
    "region_conflict_max",
    BUDGET.conflict,
    "aborts of a region by conflicts before it runs under the fallback locks",
    PAPER,
);
const CONFLICT_DIVIDED: Knob = Knob {
    name: "region_conflict_divided",
    unit: "0: no; 1: yes",
    default: 1,
    min: 0,
    max: 1,
    about: "whether a region of n records and ranges may have an nth of `region_conflict_max`, and at least one",
    source: "ours: a large region loses more with each conflict; Wang et al. do not divide (0)",
};
const CAPACITY_MAX: Knob = retries(
    "region_capacity_max",
    BUDGET.capacity,
    "aborts of a region by its size before it runs under the fallback locks",
    PAPER,
);
const SYSTEM_MAX: Knob = retries(
    "region_system_max",
    BUDGET.system,
    "aborts of a region by interrupts and page faults before it runs under the fallback locks",
    PAPER,
);
const HELD_MAX: Knob = retries(
    "region_held_max",
    BUDGET.explicit,
    "aborts of a region that met a held lock before it runs under the fallback locks",
    "ours: the paper names none; as likely to pass as a conflict",
);

/// Options of a protocol that commits so.
pub const KNOBS: [Knob; 5] = [CONFLICT_MAX, CONFLICT_DIVIDED, CAPACITY_MAX, SYSTEM_MAX, HELD_MAX];

/// The budget of its workers' regions, those of the indexes included.
pub fn budget(options: &Options, environment: &Environment) -> Budget {
    let given = |knob: &Knob, otherwise| options.given(knob).map_or(otherwise, |value| value as u32);
    let database = environment.budget;
    Budget {
        conflict: given(&CONFLICT_MAX, database.conflict),
        divided: options.given(&CONFLICT_DIVIDED).map_or(database.divided, |value| value != 0),
        capacity: given(&CAPACITY_MAX, database.capacity),
        system: given(&SYSTEM_MAX, database.system),
        explicit: given(&HELD_MAX, database.explicit),
    }
}

/// The parts of such a commit in which protocols differ.
pub trait Rules<O: Origin> {
    /// The words that are read once, in step 2.
    type Now: Copy + PartialEq;

    /// Step 2; `epoch` is the word of E.
    fn now<A: Access>(&self, access: &mut A, epoch: &AtomicU64) -> Self::Now;

    /// The epoch E among the words of step 2.
    fn epoch(now: Self::Now) -> Epoch;

    /// Writes the header of the private row version of a write. Before a region it runs with a guess, so that the
    /// region usually touches only record headers and places of small rows. It runs again in step 2 if the guess was
    /// wrong. Without a region it runs in step 4.
    #[inline(always)]
    fn describe(&self, _: Self::Now, _: Tid, _: &Write<O>) {}

    /// The row of a record is deleted.
    fn delete<A: Access>(&self, _: &mut A, _: Self::Now, _: &RecordLayout, _: RecordPtr) {}

    /// Whether the record is locked by other means from before the region until after it. The region leaves it alone.
    fn is_apart(_: &Write<O>) -> bool {
        false
    }

    /// The TID word after a commit of `write`.
    fn after(&self, write: &Write<O>, tid: Tid) -> TidWord {
        Attempt::after(write, tid)
    }
}

/// Why a region decided against an attempt.
#[derive(Clone, Copy, Debug)]
pub struct Conflict {
    refused: Refused,
    failure: Option<ValidationFailure>,
}

impl Conflict {
    /// Whether others held records locked for longer than the bound.
    pub fn is_busy(self) -> bool {
        self.refused.is_busy()
    }

    /// Whether it is known what refutes the attempt.
    pub fn is_refuted(self) -> bool {
        self.failure.is_some()
    }

    /// The same, with the entry that refutes the attempt, where it was searched. Records that others hold
    /// locked have not changed yet.
    pub fn by(self, failure: Option<ValidationFailure>) -> Conflict {
        if self.is_busy() {
            return self;
        }
        Conflict { failure: failure.or(self.failure), ..self }
    }
}

/// Steps 1 to 4: the TID. `guess` is what step 2 may be expected to read.
///
/// # Errors
/// A conflict, for [`why`]; the region has stored nothing, and no record that it locks stays locked.
#[inline(always)]
pub fn decide<O: Origin, R: Rules<O>>(attempt: &mut Optimistic<O>, rules: &R, guess: R::Now) -> Result<Tid, Conflict> {
    let Optimistic { base, reads, node_set, .. } = attempt;
    let Attempt { core, writes, newest, .. } = base;
    let faults = Faults::of(core);
    let Core { agent, outside, epochs, .. } = core;
    let (newest, epoch, failure) = (*newest, epochs.word(), None);
    let mut body = Commit { reads, node_set, writes, rules, newest, epoch, guess, failure, faults };
    if agent.backend() != Backend::Absent {
        body.fill(guess);
    }
    // In direct mode a panic would leave records locked, for which snapshot readers wait without a bound.
    let decided = abort_on_unwind("a commit", || agent.run(outside, &NoLocks, &mut body));
    let failure = body.failure;
    decided.map_err(|refused| Conflict { refused, failure })
}

/// The cause of a conflict. A region that was rolled back took its findings with it: look again, outside.
#[cold]
pub fn why<O: Origin>(attempt: &mut Optimistic<O>, conflict: Conflict) -> OpError {
    let phase = if conflict.refused.code == WRITE_CHANGED { Phase::Lock } else { Phase::Validate };
    match conflict.failure {
        Some(failure) => attempt.record_conflict(phase, failure),
        None if conflict.is_busy() => attempt.base.record_lock_conflict(),
        None => match attempt.validation_failure_now() {
            Some(failure) => attempt.record_conflict(Phase::Validate, failure),
            None => OpError::Abort(Cause { phase: Phase::Validate, reason: Reason::RecordChanged }),
        },
    }
}

/// Makes one write visible, word by word in an order that readers outside can bear: the lock bit is set until the last.
#[inline(always)]
pub fn install<O: Origin, R: Rules<O>, A: Access>(
    access: &mut A,
    rules: &R,
    write: &Write<O>,
    (now, tid): (R::Now, Tid),
) {
    let record_layout = &write.table().record_layout;
    if write.row_version != 0 {
        if !A::REGION {
            rules.describe(now, tid, write);
        }
        let published = record::put_in_place(access, write);
        access.store(record_header::row_version(record_layout, write.record), published as u64);
    } else if !write.is_nothing() {
        // The version word stays: readers of older snapshots continue there.
        rules.delete(access, now, record_layout, write.record);
    }
    let after = rules.after(write, tid);
    access.store(record_header::tid_word(record_layout, write.record), after.0);
}

struct Commit<'a, O: Origin, R: Rules<O>> {
    reads: &'a [Read<O>],
    node_set: &'a [NodeSetEntry<O>],
    writes: &'a WriteSet<O>,
    rules: &'a R,
    newest: Tid,
    epoch: &'a AtomicU64,
    guess: R::Now,
    failure: Option<ValidationFailure>,
    faults: Faults,
}

/// The faults of canaries; all `false`, and constant at compile time, otherwise.
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

impl<O: Origin, R: Rules<O>> Commit<'_, O, R> {
    fn tid(&self, now: R::Now) -> Tid {
        if self.faults.reuse_tid { self.newest } else { self.newest.next(R::epoch(now)) }
    }

    fn fill(&mut self, now: R::Now) {
        let tid = self.tid(now);
        for write in self.writes.entries() {
            if write.row_version != 0 {
                self.rules.describe(now, tid, write);
            }
        }
        self.guess = now;
    }

    /// Step 1. On failure nothing stays locked.
    #[inline(always)]
    fn lock<A: Access>(&mut self, access: &mut A) -> Result<(), BodyError> {
        for (i, write) in self.writes.entries().iter().enumerate() {
            if R::is_apart(write) {
                continue;
            }
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

    /// Step 4.
    #[inline]
    fn install<A: Access>(&mut self, access: &mut A, tid: Tid) {
        for write in self.writes.entries().iter().filter(|write| !R::is_apart(write)) {
            install(access, self.rules, write, (self.guess, tid));
        }
    }

    /// Direct only: gives back the first `locked` locks.
    fn unlock<A: Access>(&self, access: &mut A, locked: usize) {
        if !A::REGION {
            for write in self.writes.entries()[..locked].iter().filter(|write| !R::is_apart(write)) {
                // What a record without a row names is not followed.
                if self.faults.publish_early && !write.expected.is_absent() {
                    let row_version = record_header::row_version(&write.table().record_layout, write.record);
                    access.store(row_version, write.before as u64);
                }
                access.store(record_header::tid_word(&write.table().record_layout, write.record), write.expected.0);
            }
        }
    }
}

// SAFETY: header and version words belong to records noted while the worker was online, which it is until the
// commit returns. E lives as long as the database, and so does what `Rules::now` reads.
unsafe impl<O: Origin, R: Rules<O>> Body for Commit<'_, O, R> {
    type Output = Tid;
    const DECIDES: bool = true;

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
        let now = self.rules.now(access, self.epoch);
        if !A::REGION {
            self.guess = now;
        } else if now != self.guess {
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

    /// Each record and range weighs as much as a short body. So a transaction that touches many of them, and is aborted
    /// repeatedly, soon runs under the locks of its records. There each conflicting transaction waits or fails once.
    fn weight(&self) -> u32 {
        (self.reads.len() + self.node_set.len() + self.writes.entries().len()) as u32
    }
}
