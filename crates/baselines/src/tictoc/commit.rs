//! Commit: lock, compute the commit timestamp, validate and extend, install.
//!
//! 1. Lock the records to be written in address order, and close their read timestamps.
//! 2. Fence; read E. The commit timestamp is above every TID read or overwritten, above the read timestamps of
//!    overwritten versions, above this worker's last, and in E. If a key is given its first row, it is above
//!    the timestamps of transactions that relied on absences.
//! 3. Validate: once the timestamp is announced, node versions have their values. Every version read is valid at the
//!    commit timestamp. This was known when it was read, or it is still current and is extended to it.
//! 4. Install, open and unlock, record by record: the new version's TID and read timestamp are the commit timestamp.
//!
//! A transaction that wrote nothing does step 3 at the newest TID that it saw.

use seriatim_base::word::{Ordering, fence};
use seriatim_base::{Tid, abort_on_unwind};
use seriatim_txn::{Fault, OpError, Outcome, Phase, Redo};

use super::State;
use super::timestamps::{self, Claim, ValidUpTo};
use crate::shared::optimistic::{Optimistic, ValidationFailure};
use crate::shared::record_header::Plain;
use crate::shared::write_phase::{install, lock, unlock};

type Attempt = Optimistic<ValidUpTo>;

pub(super) fn commit(attempt: &mut Attempt, state: &mut State, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
    if attempt.base.writes.is_empty() {
        if !attempt.saw_one_version() {
            validate(attempt, state)?;
        }
        let newest = attempt.base.newest;
        attempt.base.finish(&Claim);
        return Ok(Outcome::Committed(newest));
    }
    // A transaction that finds a locked record aborts again and again: a panic that left one locked would
    // never end that.
    let tid = abort_on_unwind("a commit", || decide(attempt, state))?;
    attempt.base.report(tid, redo);
    attempt.base.settle(tid, &Claim);
    attempt.base.finish(&Claim);
    Ok(Outcome::Committed(tid))
}

/// Promise (g): whether all that was read, and that writes build on, is valid at the newest TID among it.
pub(super) fn validate(attempt: &mut Attempt, state: &State) -> Result<(), OpError> {
    let at = attempt.base.newest;
    let failure = failure(attempt, state, at).or_else(|| {
        let Optimistic { base, .. } = &*attempt;
        let mut entries = base.writes.entries().iter();
        let stale = entries
            .position(|write| !timestamps::is_current(&base.core, write.table(), write.record, write.expected, at));
        stale.or_else(|| base.taken()).map(ValidationFailure::Write)
    });
    match failure {
        None => Ok(()),
        Some(failure) => Err(attempt.record_conflict(Phase::Validate, failure)),
    }
}

/// Steps 1 to 4: the TID, or the conflict. No record stays locked.
#[inline(always)]
fn decide(attempt: &mut Attempt, state: &mut State) -> Result<Tid, OpError> {
    lock(attempt, &mut state.order, state.lock_steps)?;
    let entries = attempt.base.writes.entries();
    let mut above = state.last.max(attempt.base.newest);
    for write in entries {
        above = above.max(timestamps::close(write.table(), write.record));
    }
    // ORDERING: links and locks are visible before the timestamps of absences and the epoch are read.
    fence(Ordering::SeqCst);
    above = above.max(state.absences.below_first_rows(entries));
    let tid = above.next(attempt.base.core.epochs.current());
    let failure = failure(attempt, state, tid);
    if let Some(failure) = failure.filter(|_| !attempt.base.core.injects(Fault::SkipValidation)) {
        let entries = attempt.base.writes.entries();
        entries.iter().for_each(|write| timestamps::open(write.table(), write.record, None));
        unlock(entries, &state.order);
        // It is the timestamp of reads: others commit above it, though nothing commits at it.
        attempt.base.core.epochs.end_if_late(&attempt.base.core.htm, tid);
        return Err(attempt.record_conflict(Phase::Validate, failure));
    }
    assert!(!attempt.base.core.injects(Fault::PanicInCommit), "a deliberate panic with locks held");
    state.last = tid;
    // An insertion that came to nothing leaves no version, but relied on the absence.
    install(attempt, tid, |write| timestamps::open(write.table(), write.record, Some(tid)));
    Ok(tid)
}

/// Step 3: the first read that is not valid at `at`.
fn failure(attempt: &Attempt, state: &State, at: Tid) -> Option<ValidationFailure> {
    let Optimistic { base, reads, node_set, .. } = attempt;
    if !node_set.is_empty() {
        let worker = base.core.local.worker();
        node_set.iter().for_each(|entry| state.absences.rely(worker, entry.table, at.bits()));
        // ORDERING: the timestamp is visible before the node versions are looked at.
        fence(Ordering::SeqCst);
        if let Some(failure) = Optimistic::node_set_failure(&mut Plain, node_set) {
            return Some(failure);
        }
    }
    let stale = reads.iter().position(|read| {
        let is_own = || base.writes.find(read.record()).is_some();
        !timestamps::is_valid(&base.core, read, at, is_own)
    });
    stale.map(ValidationFailure::Read)
}
