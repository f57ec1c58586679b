//! Commit (Figure 2 of the paper): lock, read the epoch, validate, stamp, install.
//!
//! 1. Lock the records to be written in address order. Ordered locking cannot deadlock; each wait is bounded all the same
//!    (promise d), and a record that changed since it was read ends the attempt at once.
//! 2. Fence, read E, fence: the serialization point.
//! 3. Validate: every record read has its word unchanged and is not locked by another; every witness has its value.
//! 4. Stamp: above every stamp read or overwritten, above this worker's last, in E.
//! 5. Install and unlock, record by record.

use std::sync::atomic::{Ordering, fence};

use seriatim_base::{Backoff, Epoch, Stamp, abort_on_unwind};
use seriatim_htm::Access;
use seriatim_memory::CountedVec;
use seriatim_txn::{Fault, Outcome, Phase, Redo, Stop};

use super::State;
use crate::shared::attempt::Attempt;
use crate::shared::head::{self, HeaderWord};
use crate::shared::optimistic::{LockBit, Optimistic, Plain, Refuted};
use crate::shared::origin::Origin;
use crate::shared::writes::Write;

pub(super) fn commit<O: Origin>(
    attempt: &mut Optimistic<O>,
    state: &mut State,
    redo: &mut dyn Redo,
) -> Result<Outcome, Stop> {
    if attempt.base.writes.is_empty() {
        return attempt.commit_read_only();
    }
    // Whoever meets a locked record aborts again and again: a panic that left one behind would never end that.
    let stamp = abort_on_unwind("a commit", || decide(attempt, state))?;
    attempt.base.report(stamp, redo, |entry| state.replaced[entry]);
    attempt.base.settle(stamp, &LockBit, |entry| state.replaced[entry]);
    attempt.base.finish(&LockBit);
    Ok(Outcome::Committed(stamp))
}

/// Steps 1 to 5: the stamp, or the conflict. No record stays locked.
#[inline(always)]
fn decide<O: Origin>(attempt: &mut Optimistic<O>, state: &mut State) -> Result<Stamp, Stop> {
    lock(attempt, &mut state.order, state.lock_steps)?;
    // ORDERING: the locks are visible before the epoch is read, and it is read before the read set is validated.
    fence(Ordering::SeqCst);
    let epoch = attempt.base.core.epochs.current();
    fence(Ordering::SeqCst);
    let refuted = Optimistic::refuted(&mut Plain, &attempt.reads, &attempt.witnesses, &attempt.base.writes);
    if let Some(refuted) = refuted.filter(|_| !attempt.base.core.suffers(Fault::SkipValidation)) {
        unlock(attempt.base.writes.entries(), &state.order);
        return Err(attempt.blame(Phase::Validate, refuted));
    }
    assert!(!attempt.base.core.suffers(Fault::PanicInCommit), "a deliberate panic with locks held");
    let stamp = state.last.max(attempt.base.newest).next(Epoch(epoch.0));
    state.last = stamp;
    install(attempt, stamp, &mut state.replaced);
    Ok(stamp)
}

/// Step 1. On failure nothing stays locked.
fn lock<O: Origin>(attempt: &mut Optimistic<O>, order: &mut CountedVec<u32>, steps: u32) -> Result<(), Stop> {
    let entries = attempt.base.writes.entries();
    (0..entries.len() as u32).for_each(|entry| order.push(entry));
    order.sort_unstable_by_key(|&entry| entries[entry as usize].record.addr());
    for (locked, &entry) in order.iter().enumerate() {
        let write = &entries[entry as usize];
        let word = head::header(&write.table().shape, write.record);
        let mut backoff = Backoff::bounded(steps);
        while !Plain.lock(word, write.expected.0, write.expected.locked().0) {
            let now = HeaderWord(word.load(Ordering::Acquire));
            let changed = now.unlocked() != write.expected;
            if changed || !backoff.wait() {
                unlock(entries, &order[..locked]);
                return Err(match changed {
                    true => attempt.blame(Phase::Lock, Refuted::Write(entry as usize)),
                    false => attempt.base.blame_lock(),
                });
            }
        }
    }
    Ok(())
}

fn unlock<O: Origin>(entries: &[Write<O>], order: &[u32]) {
    for &entry in order {
        let write = &entries[entry as usize];
        Plain.store(head::header(&write.table().shape, write.record), write.expected.0);
    }
}

/// Step 5. Remembers what each entry replaced.
fn install<O: Origin>(attempt: &mut Optimistic<O>, stamp: Stamp, replaced: &mut CountedVec<usize>) {
    for write in attempt.base.writes.entries() {
        let shape = &write.table().shape;
        let image = head::image(shape, write.record);
        replaced.push(image.load(Ordering::Relaxed) as usize);
        if !write.is_nothing() {
            Plain.store(image, write.image as u64);
        }
        let after = Attempt::after(write, stamp);
        Plain.store(head::header(shape, write.record), after.0);
    }
}
