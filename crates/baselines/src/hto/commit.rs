//! Commit: the writes are installed while their timestamps keep all others out.
//!
//! 1. Fence, read E, fence: the serialization point. Every record that was read or is to be written has a
//!    timestamp of the transaction that is in the way of others.
//! 2. Validate absences and ranges: every node version has its value.
//! 3. Assign the TID, above every TID read or overwritten, in E.
//! 4. Set the lock bits of the TID words, for readers without a timestamp; install and clear them.
//! 5. The transaction is active no more: its timestamps become safe.

use seriatim_base::word::{Ordering, fence};
use seriatim_base::{Tid, abort_on_unwind};
use seriatim_htm::Access;
use seriatim_txn::{Fault, OpError, Outcome, Phase, Redo};

use super::State;
use super::access::{Entry, Unlinking};
use crate::shared::access_locks::AccessLocks;
use crate::shared::optimistic::Optimistic;
use crate::shared::record_header::{self, Plain};
use crate::shared::write_phase::install;

type Attempt = Optimistic<Entry>;

pub(super) fn commit(attempt: &mut Attempt, state: &mut State, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
    let claim = Unlinking(&state.clock);
    if attempt.base.writes.is_empty() {
        return attempt.commit_read_only(&claim);
    }
    // A panic would leave some of the writes visible.
    let tid = abort_on_unwind("a commit", || {
        // ORDERING: the links are visible before the epoch is read, and it is read before node versions are validated.
        fence(Ordering::SeqCst);
        let epoch = attempt.base.core.epochs.current();
        fence(Ordering::SeqCst);
        let failure =
            Optimistic::validation_failure(&mut Plain, &attempt.reads, &attempt.node_set, &attempt.base.writes);
        if let Some(failure) = failure.filter(|_| !attempt.base.core.injects(Fault::SkipValidation)) {
            return Err(attempt.record_conflict(Phase::Validate, failure));
        }
        let tid = attempt.base.newest.next(epoch);
        for write in attempt.base.writes.entries() {
            // ORDERING: a thread that sees the row version in `record_header::peek` sees this, or a later value.
            Plain.store(record_header::tid_word(&write.table().record_layout, write.record), write.expected.locked().0);
        }
        assert!(!attempt.base.core.injects(Fault::PanicInCommit), "a deliberate panic with locks held");
        install(attempt, tid, |_| {});
        attempt.locks.release(&attempt.base.core);
        Ok::<Tid, OpError>(tid)
    })?;
    attempt.base.report(tid, redo);
    attempt.base.settle(tid, &claim);
    attempt.base.finish(&claim);
    Ok(Outcome::Committed(tid))
}
