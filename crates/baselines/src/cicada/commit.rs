//! Commit: pending versions, validation and installation, at the timestamp that was drawn before.
//!
//! 0. After a refused commit of the worker: check early whether reads and writes are still valid, so that a doomed
//!    commit delays no others (§3.5).
//! 1. Lock the write set, latest wts first, since recently written records are likely to be written again. Each
//!    record gets a pending version. A pending version below the timestamp is waited for, with a bound; one
//!    above it aborts the attempt.
//! 2. A later timestamp may have seen a version that will be replaced, or the absence of a key that gets its first row.
//!    Then draw a timestamp above it. Then check again, a few times at most. The reads must be what the last timestamp
//!    sees.
//! 3. Pass the timestamp, fence, read E. The TID is above every TID that was read or overwritten, in E.
//! 4. Raise the rts of each version that was read, and announce the used absences. Fence. Check that the timestamp
//!    still sees each version, and that each node version is unchanged.
//! 5. Install and unlock, record by record.
//!
//! A transaction without writes runs step 4 and passes its timestamp. So does one that is about to report an
//! error; its reads then include the rows on which its writes build.

use seriatim_base::thread::Touch;
use seriatim_base::word::{Ordering, fence};
use seriatim_base::{Epoch, Tid, abort_on_unwind};
use seriatim_htm::Access;
use seriatim_store::RecordPtr;
use seriatim_txn::{Cause, ConflictInfo, Fault, OpError, Outcome, Phase, Reason, RecordLayout, Redo};

use super::State;
use super::access::{Entry, Unlinking};
use super::versions::{self, Visible, Words};
use crate::shared::absences::Lanes;
use crate::shared::access_locks::AccessLocks;
use crate::shared::attempt::Attempt as Base;
use crate::shared::optimistic::{Optimistic, Read, ValidationFailure};
use crate::shared::record;
use crate::shared::record_header::{self, Plain, TidWord};
use crate::shared::writes::Write;

type Attempt = Optimistic<Entry>;

/// How often a commit draws another timestamp, because others have seen versions that it is about to replace.
const REDRAWS_MAX: u32 = 8;

pub(super) fn commit(attempt: &mut Attempt, state: &mut State, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
    let claim = Unlinking(&state.absences);
    if attempt.base.writes.is_empty() {
        validate(attempt, state)?;
        return Ok(attempt.end_read_only(&claim));
    }
    // A transaction that finds a locked record aborts and retries. If a panic left a record locked, that would
    // never end.
    let tid = match abort_on_unwind("a commit", || decide(attempt, state)) {
        Ok(tid) => tid,
        Err(error) => {
            state.early_left = state.early_checks;
            return Err(error);
        }
    };
    state.early_left = state.early_left.saturating_sub(1);
    let claim = Unlinking(&state.absences);
    attempt.base.report(tid, redo);
    attempt.base.settle(tid, &claim);
    attempt.locks.release(&attempt.base.core);
    attempt.base.finish(&claim);
    Ok(Outcome::Committed(tid))
}

/// Promise (g), and the commit of a transaction without writes: step 4, including the rows on which its writes
/// build. If it succeeds, the reads belong to a position in the serial order, and stay valid. A transaction
/// that commits later and writes one of these rows commits above the timestamp.
pub(super) fn validate(attempt: &mut Attempt, state: &State) -> Result<(), OpError> {
    if attempt.reads.is_empty() && attempt.node_set.is_empty() && attempt.base.writes.is_empty() {
        return Ok(());
    }
    let (at, since) = attempt.locks.draw(&attempt.base.core);
    for write in attempt.base.writes.entries() {
        versions::raise(versions::seen(&write.table().record_layout, write.record), at);
    }
    let failure = announce_and_validate(attempt, state, at, since, attempt.base.newest.epoch()).or_else(|| {
        let mut entries = attempt.base.writes.entries().iter();
        // A locked record may be replaced by a version below the timestamp.
        let stale = entries.position(|write| {
            // ORDERING: loaded after the fence of `announce_and_validate`: a transaction that locks the record
            // later finds the rts.
            TidWord(Plain.load(record_header::tid_word(&write.table().record_layout, write.record))) != write.expected
        });
        stale.map(|write| Failure::Changed(ValidationFailure::Write(write)))
    });
    match failure {
        Some(failure) => Err(conflict(attempt, failure)),
        None => {
            attempt.locks.pass();
            Ok(())
        }
    }
}

/// Steps 1 to 5. Returns the TID or the conflict. On a conflict no record stays locked.
fn decide(attempt: &mut Attempt, state: &mut State) -> Result<Tid, OpError> {
    let (at, since) = attempt.locks.draw(&attempt.base.core);
    if state.early_left > 0
        && let Some(failure) = early_failure(attempt, at, since)
    {
        return Err(conflict(attempt, failure));
    }
    attempt.base.make_deletions()?;
    if let Err(error) = lock(attempt, state, at) {
        attempt.base.drop_deletions();
        return Err(error);
    }
    let decided = be_in_time(attempt, state, at)
        .map_err(|late| Failure::Changed(ValidationFailure::Write(late)))
        .and_then(|at| {
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
            attempt.base.drop_deletions();
            return Err(conflict(attempt, failure));
        }
    };
    assert!(!attempt.base.core.injects(Fault::PanicInCommit), "a deliberate panic with locks held");
    install(attempt, state, tid, at);
    Ok(tid)
}

/// Step 0: the reason why the commit cannot succeed, whatever others do. Locked records are left to step 1.
/// Correctness does not depend on this, since everything is checked again.
#[cold]
pub(super) fn early_failure(attempt: &Attempt, at: u64, since: Epoch) -> Option<Failure> {
    let is_stale = |write: &Write<Entry>| {
        let word = Plain.load(record_header::tid_word(&write.table().record_layout, write.record));
        TidWord(word).unlocked() != write.expected
    };
    let stale = attempt.base.writes.entries().iter().position(is_stale);
    let stale = stale.map(|write| Failure::Changed(ValidationFailure::Write(write)));
    let refuted = || validation_failure(attempt, at, since, Epoch(0));
    stale.or_else(refuted).filter(|failure| matches!(failure, Failure::Changed(_)))
}

/// Step 1. After a failure no record stays locked.
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

/// Undoes pending versions.
fn unlock(entries: &[Write<Entry>], order: &[(u64, u32)]) {
    for &(wts, entry) in order {
        let write = &entries[entry as usize];
        unlock_as(&write.table().record_layout, write.record, wts, write.expected);
    }
}

/// Ends a pending version with this wts and this TID word.
fn unlock_as(record_layout: &RecordLayout, record: RecordPtr, wts: u64, word: TidWord) {
    versions::unpend(record_layout, record, wts);
    Plain.store(record_header::tid_word(record_layout, record), word.0);
}

/// Step 2. Returns the timestamp, or a write whose old version later transactions keep reading.
fn be_in_time(attempt: &mut Attempt, state: &State, mut at: u64) -> Result<u64, usize> {
    // ORDERING: linked records and pending versions become visible before the rts are read. Drawing again needs
    // no other fence: a transaction that ignores the higher value is below it.
    fence(Ordering::SeqCst);
    for _ in 0..REDRAWS_MAX {
        let Some((_, above)) = late_write(attempt, state, at) else { return Ok(at) };
        at = attempt.locks.redraw(above);
        for &(_, entry) in state.order.iter() {
            let write = &attempt.base.writes.entries()[entry as usize];
            versions::repend(&write.table().record_layout, write.record, at);
        }
    }
    late_write(attempt, state, at).map_or(Ok(at), |(late, _)| Err(late))
}

/// A write whose old version a later timestamp has seen, and the newest such timestamp.
fn late_write(attempt: &Attempt, state: &State, at: u64) -> Option<(usize, u64)> {
    let (mut late, mut first_row, mut tables) = ((0, 0), 0, Lanes::default());
    for (entry, write) in attempt.base.writes.entries().iter().enumerate() {
        if write.expected.tid() == Tid::ZERO {
            first_row = entry;
            tables.add(write.table().id);
        }
        let rts = versions::seen(&write.table().record_layout, write.record).load(Ordering::Acquire);
        if rts > late.1 && !attempt.base.core.injects(Fault::OverwriteReaders) {
            late = (entry, rts);
        }
    }
    let relied = state.absences.newest(tables);
    if relied > late.1 {
        late = (first_row, relied);
    }
    Some(late).filter(|&(_, seen)| seen > at)
}

/// Step 4.
fn announce_and_validate(attempt: &Attempt, state: &State, at: u64, since: Epoch, epoch: Epoch) -> Option<Failure> {
    let Optimistic { base, reads, node_set, .. } = attempt;
    for read in reads.iter() {
        versions::raise(read.own::<1>(), at);
    }
    let worker = base.core.local.worker();
    node_set.iter().for_each(|entry| state.absences.rely(worker, entry.table, at));
    // ORDERING: raised rts and announcements become visible before the reads are validated.
    fence(Ordering::SeqCst);
    validation_failure(attempt, at, since, epoch)
}

/// A read that the timestamp does not see any more, or whose version was replaced in an epoch before `epoch`.
fn validation_failure(attempt: &Attempt, at: u64, since: Epoch, epoch: Epoch) -> Option<Failure> {
    let Optimistic { base, reads, node_set, .. } = attempt;
    for (entry, read) in reads.iter().enumerate() {
        let seen = match base.writes.find(read.record()) {
            Some(own) => Some(base.writes.entries()[own].expected.tid() == read.seen.tid()),
            None => is_seen(attempt, read, at, since, epoch),
        };
        match seen {
            Some(true) => {}
            Some(false) => return Some(Failure::Changed(ValidationFailure::Read(entry))),
            None => return Some(Failure::Held(entry)),
        }
    }
    Optimistic::node_set_failure(&mut Plain, node_set).map(Failure::Changed)
}

/// Why a transaction cannot commit at its timestamp.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    Changed(ValidationFailure),
    /// The result of this read is unknown: the wait for a pending version ran out.
    Held(usize),
}

#[cold]
fn conflict(attempt: &mut Attempt, failure: Failure) -> OpError {
    match failure {
        Failure::Changed(failure) => attempt.record_conflict(Phase::Validate, failure),
        Failure::Held(entry) => {
            let (cause, read) = (Cause { phase: Phase::Validate, reason: Reason::RecordLocked }, attempt.reads[entry]);
            attempt.base.conflict_info = Some(ConflictInfo { cause, table: Some(read.table()), key: Some(read.key()) });
            OpError::Abort(cause)
        }
    }
}

/// Whether the timestamp sees the version that was read; `None` if that is unknown.
fn is_seen(attempt: &Attempt, read: &Read<Entry>, at: u64, since: Epoch, epoch: Epoch) -> Option<bool> {
    let words = Words::of_read(read);
    let mut backoff = attempt.locks.patience();
    loop {
        let (tid, absent, replaced) = match words.sight(at, since) {
            Visible::Held if backoff.wait() => continue,
            Visible::Held => return None,
            Visible::Lost => return Some(false),
            Visible::Deleted(word) => (word.tid(), true, since),
            Visible::Newest(word, _) if word.is_removed() => return Some(false),
            // The epoch of the replacement of a locked version is known only as a lower bound.
            Visible::Newest(word, _) if word.is_locked() => (word.tid(), word.is_absent(), since),
            Visible::Newest(word, _) => (word.tid(), word.is_absent(), Epoch(u64::MAX)),
            Visible::Older(tid, _, replaced) => (tid, false, replaced),
            Visible::OlderDeletion(tid, replaced) => (tid, true, replaced),
            Visible::None(replaced) => (Tid::ZERO, true, replaced),
        };
        return Some((tid, absent) == (read.seen.tid(), read.seen.is_absent()) && replaced >= epoch);
    }
}

/// Step 5.
fn install(attempt: &mut Attempt, state: &mut State, tid: Tid, at: u64) {
    for locked in 0..state.order.len() {
        let (wts, entry) = state.order[locked];
        let write = attempt.base.writes.entries()[entry as usize];
        let record_layout = &write.table().record_layout;
        if write.is_nothing() {
            // An insertion that was undone leaves no version, but relied on the absence.
            versions::raise(versions::seen(record_layout, write.record), at);
            unlock_as(record_layout, write.record, wts, write.expected);
            continue;
        }
        let word = record_header::row_version(record_layout, write.record);
        if write.expected.is_absent() && write.before != 0 {
            // The row of a tombstone was retired when it was deleted.
            let was = word.load(Ordering::Relaxed) as usize;
            // SAFETY: this commit allocated it.
            unsafe { versions::deletion(write.expected.tid(), wts, was).write(record_layout.row, write.before) };
        }
        if write.row_version != 0 {
            // SAFETY: the row version is not published yet.
            unsafe { versions::header(tid, at, write.before).write(record_layout.row, write.row_version) };
            let published = record::put_in_place(&mut Plain, &write);
            crate::step(Touch::Store, word);
            // ORDERING: releases the row version to its readers.
            word.store(published as u64, Ordering::Release);
        }
        unlock_as(record_layout, write.record, at, Base::after(&write, tid));
    }
}
