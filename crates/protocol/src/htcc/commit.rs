//! Commit (Figure 4): cold records are validated and installed in a region, hot ones installed and unlocked after it.
//!
//! 1. Set the lock bit of each hot record to be written, whose lock the attempt has held since it accessed the record.
//! 2. [The region](crate::shared::region) locks and validates what is cold, reads the epoch, and installs what is cold.
//! 3. Install the hot records, which takes the lock bit away, and then let go of all locks.
//!
//! A refuted attempt continues from newer versions where its used columns are the same in them
//! ([`crate::shared::rebase`]). Otherwise the attempt of a procedure is repaired, up to a bound. Its hot
//! records stay locked meanwhile, and need neither.

use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{Epoch, Tid, abort_on_unwind};
use seriatim_htm::Access;
use seriatim_store::RecordPtr;
use seriatim_txn::{Cause, OpError, Outcome, Reason, RecordLayout, Redo};

use super::State;
use super::heat::Heat;
use super::locks::{Entry, HotClaim};
use crate::shared::access_locks::AccessLocks;
use crate::shared::attempt::Attempt;
use crate::shared::optimistic::Optimistic;
use crate::shared::record_header::{self, Plain, TidWord};
use crate::shared::region::{self, Conflict, Rules as _};
use crate::shared::writes::Write;

/// How records become hot by commits.
struct Rules<'s> {
    heat: &'s Heat,
}

impl region::Rules<Entry> for Rules<'_> {
    type Now = u64;

    #[inline(always)]
    fn now<A: Access>(&self, access: &mut A, epoch: &AtomicU64) -> u64 {
        access.load(epoch)
    }

    #[inline(always)]
    fn epoch(now: u64) -> Epoch {
        Epoch(now)
    }

    #[inline(always)]
    fn delete<A: Access>(&self, access: &mut A, _: u64, record_layout: &RecordLayout, record: RecordPtr) {
        access.store(record_header::row_version(record_layout, record), 0);
    }

    #[inline(always)]
    fn is_apart(write: &Write<Entry>) -> bool {
        write.expected.is_hot()
    }

    /// A hot record stays hot and a cold one cold. A record without a row is cold.
    #[inline(always)]
    fn after(&self, write: &Write<Entry>, tid: Tid) -> TidWord {
        let after = Attempt::after(write, tid);
        let is_hot = || write.expected.is_hot() || self.heat.is_hot_from_the_start(write.table());
        if write.row_version != 0 && is_hot() { after.hot() } else { after }
    }
}

pub(super) fn commit(
    attempt: &mut Optimistic<Entry>,
    state: &mut State,
    redo: &mut dyn Redo,
) -> Result<Outcome, OpError> {
    if state.repairs > 0 {
        attempt.release_untouched();
    }
    match try_commit(attempt, state, redo) {
        Err(OpError::Abort(cause)) if is_stale(cause) && state.repairs < state.repairs_max => {
            let Some(mut stale) = attempt.stale_runs() else { return Err(OpError::Abort(cause)) };
            if state.repair_all {
                stale = attempt.all_runs();
            }
            state.repairs += 1;
            Ok(Outcome::Repair(stale))
        }
        decided => decided,
    }
}

/// Whether the attempt's reads no longer hold, as opposed to a wait for others.
fn is_stale(cause: Cause) -> bool {
    matches!(cause.reason, Reason::RecordChanged | Reason::MembershipChanged)
}

fn try_commit(attempt: &mut Optimistic<Entry>, state: &mut State, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
    if !state.validates {
        // Figure 19. A write still builds on the version that was seen: no update is lost.
        attempt.reads.clear();
        attempt.node_set.clear();
    }
    if attempt.base.writes.is_empty() {
        return attempt.commit_read_only(&HotClaim);
    }
    let tid = loop {
        // A transaction that finds a locked record aborts again and again: a panic that left one locked would
        // never end that.
        let conflict = match abort_on_unwind("a commit", || decide(attempt, state)) {
            Ok(tid) => break tid,
            Err(conflict) => conflict,
        };
        // A change from which it can continue is no failure of the record.
        if let Err(by) = attempt.go_on(true) {
            return Err(refuted(attempt, conflict.by(by)));
        }
    };
    attempt.base.settle(tid, &HotClaim);
    attempt.base.report(tid, redo);
    attempt.base.finish(&HotClaim);
    Ok(Outcome::Committed(tid))
}

/// Steps 1 to 3: the TID, or the conflict. After a conflict hot records are locked still, until the attempt ends.
fn decide(attempt: &mut Optimistic<Entry>, state: &mut State) -> Result<Tid, Conflict> {
    let rules = Rules { heat: &state.heat };
    mark(attempt, TidWord::locked);
    let guess = attempt.base.core.epochs.current().0;
    let tid = match region::decide(attempt, &rules, guess) {
        Ok(tid) => tid,
        Err(conflict) => {
            mark(attempt, TidWord::unlocked);
            return Err(conflict);
        }
    };
    for write in attempt.base.writes.entries().iter().filter(|write| Rules::is_apart(write)) {
        region::install(&mut Plain, &rules, write, (guess, tid));
    }
    attempt.locks.release(&attempt.base.core);
    Ok(tid)
}

/// The cause of a conflict after which the attempt cannot continue.
#[cold]
fn refuted(attempt: &mut Optimistic<Entry>, conflict: Conflict) -> OpError {
    if conflict.is_busy() && !conflict.is_refuted() {
        locked_failed(attempt);
    }
    region::why(attempt, conflict)
}

/// Counts the failure of the region at records that others have locked.
#[cold]
fn locked_failed(attempt: &mut Optimistic<Entry>) {
    let Optimistic { base, locks, .. } = attempt;
    for write in base.writes.entries() {
        let word = record_header::tid_word(&write.table().record_layout, write.record);
        if TidWord(word.load(Ordering::Relaxed)).is_locked() {
            locks.failed(&base.core, write.table().id, write.record, false);
        }
    }
}

/// Sets the TID words of the hot records to be written: rule 2 of `locks`.
#[inline(always)]
fn mark(attempt: &Optimistic<Entry>, with: fn(TidWord) -> TidWord) {
    for write in attempt.base.writes.entries().iter().filter(|write| Rules::is_apart(write)) {
        let word = record_header::tid_word(&write.table().record_layout, write.record);
        Plain.store(word, with(write.expected).0);
    }
}
