//! Commit: lock the write set, draw the timestamp, leave it in the records that were read, validate, install.
//!
//! 1. Lock the records to be written in address order. A record that changed since it was read ends the
//!    attempt at once.
//! 2. Fence. The commit timestamp is above every TID read or overwritten, above the read timestamps of
//!    overwritten versions, and above this worker's last. If a key is given its first row, it is above the
//!    timestamps of transactions that relied on absences. It is in E, which is read last.
//! 3. Raise the read timestamp of every record read to it, and announce it if absences or ranges were read. Fence.
//!    Validate that the word of every record read is unchanged and not locked by another, and that every node version
//!    has its value.
//! 4. Install and unlock, record by record.
//!
//! A transaction that wrote nothing does step 3 at the newest TID that it saw.

use seriatim_base::word::{Ordering, fence};
use seriatim_base::{Tid, abort_on_unwind};
use seriatim_txn::{Fault, OpError, Outcome, Phase, Redo};

use super::State;
use super::timestamps::{self, Claim, Timestamped};
use crate::shared::optimistic::{Optimistic, ValidationFailure};
use crate::shared::record_header::Plain;
use crate::shared::write_phase::{install, lock, unlock};

type Attempt = Optimistic<Timestamped>;

pub(super) fn commit(attempt: &mut Attempt, state: &mut State, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
    if attempt.base.writes.is_empty() {
        let newest = attempt.base.newest;
        if !attempt.saw_one_version()
            && let Some(failure) = failure(attempt, state, newest)
        {
            return Err(attempt.record_conflict(Phase::Validate, failure));
        }
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

/// Steps 1 to 4: the TID, or the conflict. No record stays locked.
#[inline(always)]
fn decide(attempt: &mut Attempt, state: &mut State) -> Result<Tid, OpError> {
    lock(attempt, &mut state.order, state.lock_steps)?;
    // ORDERING: links and locks are visible before the timestamps of readers and the epoch are read.
    fence(Ordering::SeqCst);
    let entries = attempt.base.writes.entries();
    let mut above = state.last.max(attempt.base.newest);
    for write in entries {
        above = above.max(timestamps::newest(write.table(), write.record));
    }
    above = above.max(state.absences.below_first_rows(entries));
    let tid = above.next(attempt.base.core.epochs.current());
    let failure = failure(attempt, state, tid);
    if let Some(failure) = failure.filter(|_| !attempt.base.core.injects(Fault::SkipValidation)) {
        unlock(attempt.base.writes.entries(), &state.order);
        // It is the timestamp of reads: others commit above it, though nothing commits at it.
        attempt.base.core.epochs.end_if_late(&attempt.base.core.htm, tid);
        return Err(attempt.record_conflict(Phase::Validate, failure));
    }
    assert!(!attempt.base.core.injects(Fault::PanicInCommit), "a deliberate panic with locks held");
    state.last = tid;
    install(attempt, tid, |write| {
        // An insertion that came to nothing leaves no version, but relied on the absence.
        if write.is_nothing() {
            timestamps::raise_locked(write.table(), write.record, tid);
        }
    });
    Ok(tid)
}

/// Step 3: the first read that no longer holds. From now on others see that the transaction read at `at`.
fn failure(attempt: &Attempt, state: &State, at: Tid) -> Option<ValidationFailure> {
    let Optimistic { base, reads, node_set, .. } = attempt;
    for read in reads.iter() {
        timestamps::raise(read.own::<0>(), at);
    }
    if !node_set.is_empty() {
        let worker = base.core.local.worker();
        node_set.iter().for_each(|entry| state.absences.rely(worker, entry.table, at.bits()));
    }
    // ORDERING: the epoch is read, and the timestamp is visible, before what was read is looked at again.
    fence(Ordering::SeqCst);
    Optimistic::validation_failure(&mut Plain, reads, node_set, &base.writes)
}
