//! Commit: pending versions, validation, installation, at the timestamp that was drawn before.
//!
//! 1. Lock the records to be written, latest wts first, as the newest are the likeliest to have been written again: each gets a pending
//!    version. One that is pending below is waited for, with a bound; one above ends the attempt.
//! 2. If a version to be replaced has been seen by a later timestamp, or the absence of a key that is given its first row, draw another
//!    timestamp above that, and look again, some times at most. What was read has to be what the last one sees.
//! 3. Pass the timestamp, fence, read E. The TID is above every TID read or overwritten, in E.
//! 4. Raise the rts of each version read and announce the absences relied on; fence; each version is still the one that the timestamp
//!    sees, and each node version has its value.
//! 5. Install and unlock, record by record.
//!
//! A transaction that wrote nothing does step 4, and passes its timestamp.

use std::sync::atomic::{Ordering, fence};

use seriatim_base::thread::Touch;
use seriatim_base::{Epoch, Tid, abort_on_unwind};
use seriatim_htm::Access;
use seriatim_store::RecordPtr;
use seriatim_txn::{Fault, OpError, Outcome, Phase, RecordLayout, Redo};

use super::State;
use super::access::{Entry, Unlinking};
use super::versions::{self, Sight, Words};
use crate::shared::access_locks::AccessLocks;
use crate::shared::attempt::Attempt as Base;
use crate::shared::optimistic::{Optimistic, Read, ValidationFailure};
use crate::shared::record_header::{self, Plain, TidWord};
use crate::shared::writes::Write;

type Attempt = Optimistic<Entry>;

/// How often a commit draws another timestamp: each time others have seen what it is about to replace.
const REDRAWS_MAX: u32 = 8;

pub(super) fn commit(attempt: &mut Attempt, state: &mut State, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
    let claim = Unlinking(&state.absences);
    if attempt.base.writes.is_empty() {
        if !(attempt.reads.is_empty() && attempt.node_set.is_empty()) {
            let (at, since) = attempt.locks.draw(&attempt.base.core);
            let failure = announce_and_validate(attempt, state, at, since, attempt.base.newest.epoch());
            if let Some(failure) = failure {
                return Err(attempt.record_conflict(Phase::Validate, failure));
            }
            attempt.locks.pass();
        }
        return Ok(attempt.end_read_only(&claim));
    }
    // A transaction that meets a locked record aborts again and again: a panic that left one behind would never end that.
    let tid = abort_on_unwind("a commit", || decide(attempt, state))?;
    let claim = Unlinking(&state.absences);
    attempt.base.report(tid, redo, |entry| state.replaced[entry]);
    attempt.base.settle(tid, &claim, |entry| state.replaced[entry]);
    attempt.locks.release(&attempt.base.core);
    attempt.base.finish(&claim);
    Ok(Outcome::Committed(tid))
}

/// Promise (g): whether all that was read, and that writes build on, is what the timestamp sees of what has committed. No rts is raised:
/// what is still to commit below changes a later answer, not this one.
pub(super) fn validate(attempt: &mut Attempt) -> Result<(), OpError> {
    let (at, since) = attempt.locks.draw(&attempt.base.core);
    // ORDERING: every word was loaded before.
    fence(Ordering::SeqCst);
    let failure = validation_failure(attempt, at, since, Epoch(0)).or_else(|| {
        let mut entries = attempt.base.writes.entries().iter();
        let stale = entries.position(|write| {
            TidWord(Plain.load(record_header::tid_word(&write.table().record_layout, write.record))) != write.expected
        });
        stale.or_else(|| attempt.base.taken()).map(ValidationFailure::Write)
    });
    failure.map_or(Ok(()), |failure| Err(attempt.record_conflict(Phase::Validate, failure)))
}

/// Steps 1 to 5: the TID, or the conflict. No record stays locked.
fn decide(attempt: &mut Attempt, state: &mut State) -> Result<Tid, OpError> {
    let (at, since) = attempt.locks.draw(&attempt.base.core);
    lock(attempt, state, at)?;
    let decided = be_in_time(attempt, state, at).map_err(ValidationFailure::Write).and_then(|at| {
        // ORDERING: `pass` ends with a fence.
        attempt.locks.pass();
        let tid = attempt.base.newest.next(attempt.base.core.epochs.current());
        let failure = announce_and_validate(attempt, state, at, since, tid.epoch());
        failure.filter(|_| !attempt.base.core.injects(Fault::SkipValidation)).map_or(Ok((tid, at)), Err)
    });
    let (tid, at) = match decided {
        Ok(decided) => decided,
        Err(failure) => {
            unlock(attempt.base.writes.entries(), &state.order);
            return Err(attempt.record_conflict(Phase::Validate, failure));
        }
    };
    assert!(!attempt.base.core.injects(Fault::PanicInCommit), "a deliberate panic with locks held");
    install(attempt, state, tid, at);
    Ok(tid)
}

/// Step 1. On failure nothing stays locked.
fn lock(attempt: &mut Attempt, state: &mut State, at: u64) -> Result<(), OpError> {
    let entries = attempt.base.writes.entries();
    for (entry, write) in entries.iter().enumerate() {
        let wts = versions::written(&write.table().record_layout, write.record).load(Ordering::Relaxed);
        state.order.push((wts, entry as u32));
    }
    state.order.sort_unstable_by(|one, other| other.cmp(one));
    for locked in 0..state.order.len() {
        let entry = state.order[locked].1 as usize;
        let write = &entries[entry];
        let record_layout = &write.table().record_layout;
        let word = record_header::tid_word(record_layout, write.record);
        let mut backoff = attempt.locks.patience();
        while !Plain.lock(word, write.expected.0, write.expected.locked().0) {
            let now = TidWord(word.load(Ordering::Acquire));
            let changed = now.unlocked() != write.expected;
            let comes_later = || versions::is_pending_above(record_layout, write.record, at);
            if changed || comes_later() || !backoff.wait() {
                unlock(entries, &state.order[..locked]);
                return Err(match changed {
                    true => attempt.record_conflict(Phase::Lock, ValidationFailure::Write(entry)),
                    false => attempt.base.record_lock_conflict(),
                });
            }
        }
        state.order[locked].0 = versions::pend(record_layout, write.record, at);
    }
    Ok(())
}

/// Takes pending versions back.
fn unlock(entries: &[Write<Entry>], order: &[(u64, u32)]) {
    for &(wts, entry) in order {
        let write = &entries[entry as usize];
        unlock_as(&write.table().record_layout, write.record, wts, write.expected);
    }
}

/// Ends a pending version: the record's wts and TID word are these.
fn unlock_as(record_layout: &RecordLayout, record: RecordPtr, wts: u64, word: TidWord) {
    versions::unpend(record_layout, record, wts);
    Plain.store(record_header::tid_word(record_layout, record), word.0);
}

/// Step 2: the timestamp, or a write that is seen by others again and again.
fn be_in_time(attempt: &mut Attempt, state: &State, mut at: u64) -> Result<u64, usize> {
    // ORDERING: what is linked and pending is visible before it is looked at who has seen what was there.
    fence(Ordering::SeqCst);
    for _ in 0..REDRAWS_MAX {
        let Some((_, above)) = late_write(attempt, state, at) else { return Ok(at) };
        at = attempt.locks.redraw(above);
    }
    late_write(attempt, state, at).map_or(Ok(at), |(late, _)| Err(late))
}

/// A write that would come before a transaction that has seen what it replaces, and the timestamp of that one.
fn late_write(attempt: &Attempt, state: &State, at: u64) -> Option<(usize, u64)> {
    let core = &attempt.base.core;
    let seen = |write: &Write<Entry>| {
        let table = write.table();
        let rts = versions::seen(&table.record_layout, write.record).load(Ordering::Acquire);
        let rts = if core.injects(Fault::OverwriteReaders) { 0 } else { rts };
        let is_first = write.expected.tid() == Tid::ZERO;
        if is_first { rts.max(state.absences.newest(table.id)) } else { rts }
    };
    let mut late = attempt.base.writes.entries().iter().map(seen).enumerate();
    late.find(|&(_, seen)| seen > at)
}

/// Step 4.
fn announce_and_validate(
    attempt: &Attempt,
    state: &State,
    at: u64,
    since: Epoch,
    epoch: Epoch,
) -> Option<ValidationFailure> {
    let Optimistic { base, reads, node_set, .. } = attempt;
    for read in reads.iter() {
        versions::raise(read.own::<1>(), at);
    }
    let worker = base.core.local.worker();
    node_set.iter().for_each(|entry| state.absences.rely(worker, entry.table, at));
    // ORDERING: that it was seen is visible before it is looked at again.
    fence(Ordering::SeqCst);
    validation_failure(attempt, at, since, epoch)
}

/// What was read and is not what the timestamp sees, or was replaced in an epoch before `epoch`.
fn validation_failure(attempt: &Attempt, at: u64, since: Epoch, epoch: Epoch) -> Option<ValidationFailure> {
    let Optimistic { base, reads, node_set, .. } = attempt;
    let unseen = reads.iter().position(|read| match base.writes.find(read.record()) {
        Some(own) => base.writes.entries()[own].expected.tid() != read.seen.tid(),
        None => !is_seen(attempt, read, at, since, epoch),
    });
    unseen.map(ValidationFailure::Read).or_else(|| Optimistic::node_set_failure(&mut Plain, node_set))
}

/// Whether the version that was read is the one that the timestamp sees.
fn is_seen(attempt: &Attempt, read: &Read<Entry>, at: u64, since: Epoch, epoch: Epoch) -> bool {
    let words = Words::of_read(read);
    let mut backoff = attempt.locks.patience();
    loop {
        let (tid, absent, replaced) = match words.sight(at, since) {
            Sight::Held if backoff.wait() => continue,
            Sight::Held | Sight::Lost => return false,
            Sight::Newest(word, _) if word.is_removed() => return false,
            // Of one that is being replaced only that is known.
            Sight::Newest(word, _) if word.is_locked() => (word.tid(), word.is_absent(), since),
            Sight::Newest(word, _) => (word.tid(), word.is_absent(), Epoch(u64::MAX)),
            Sight::Older(tid, _, replaced) => (tid, false, replaced),
            Sight::None(replaced) => (Tid::ZERO, true, replaced),
        };
        return (tid, absent) == (read.seen.tid(), read.seen.is_absent()) && replaced >= epoch;
    }
}

/// Step 5.
fn install(attempt: &mut Attempt, state: &mut State, tid: Tid, at: u64) {
    let horizon = attempt.base.core.horizon();
    state.replaced.reset(state.order.len(), 0);
    for locked in 0..state.order.len() {
        let (wts, entry) = state.order[locked];
        let write = attempt.base.writes.entries()[entry as usize];
        let record_layout = &write.table().record_layout;
        if write.is_nothing() {
            // An insertion that came to nothing leaves no version, but relied on the absence.
            versions::raise(versions::seen(record_layout, write.record), at);
            unlock_as(record_layout, write.record, wts, write.expected);
            continue;
        }
        let word = record_header::row_version(record_layout, write.record);
        let was = word.load(Ordering::Relaxed) as usize;
        let (is_first, is_reborn) = (write.expected.tid() == Tid::ZERO, write.expected.is_absent());
        // What a tombstone names was retired when it was deleted.
        state.replaced[entry as usize] = if is_reborn { 0 } else { was };
        if write.row_version != 0 {
            let header = versions::header(tid, at, state.replaced[entry as usize], is_reborn && !is_first);
            // SAFETY: not published yet.
            unsafe { header.write(write.row_version) };
            let write = attempt.base.put_in_place(entry as usize, horizon);
            crate::step(Touch::Store, word);
            // ORDERING: releases the row version to those who see it.
            word.store(write.row_version as u64, Ordering::Release);
        }
        unlock_as(record_layout, write.record, at, Base::after(&write, tid));
    }
}
