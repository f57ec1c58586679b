//! Unlinks records whose key is gone: placeholders of aborted inserts at once, tombstones a grace period
//! after the delete.
//!
//! Order: lock the record; unlink it; mark it REMOVED; retire it. Unlinking changes the node version of its leaf or
//! bucket, and the mark changes the word that readers of the tombstone validate. Its TID is announced to the table
//! first ([`seriatim_txn::Unlinked`]), so that the first TID of a reborn key is above it. Waiting for the next epoch
//! would also ensure that. But with a queue that is drained at 80 deletes an epoch, every scan of its head would walk
//! over the tombstones.

use std::ptr::NonNull;

use seriatim_base::{Tid, abort_on_unwind};
use seriatim_store::{LeafHint, RecordPtr, Tidy, read_key};
use seriatim_txn::{Core, Table};

use super::attempt::{Attempt, LeafHints};
use super::origin::Origin;
use super::record;
use super::record_header::TidWord;

/// How a protocol ensures that no other thread changes the record during the look.
pub trait Claim {
    /// Takes the record, whatever its state: its TID word. `None`: another holds it.
    fn take(&self, core: &Core, table: &Table, record: RecordPtr) -> Option<TidWord>;
    /// Gives it back with its new TID word.
    fn give(&self, core: &Core, table: &Table, record: RecordPtr, word: TidWord);
}

/// Puts a record that carries the QUEUED mark on this worker's list, to be looked at after a grace period.
pub fn later(core: &mut Core, table: &Table, record: RecordPtr, word: TidWord) {
    debug_assert!(word.is_queued());
    core.local.defer([std::ptr::from_ref(table) as u64, record.addr() as u64, word.0]);
}

/// Looks at records that have waited long enough: see [`Attempt::due`]. The worker is offline before and after, and
/// online during the work.
#[inline(always)]
pub fn collect<O: Origin>(attempt: &mut Attempt<O>, claim: &impl Claim, most: usize) {
    attempt.core.forget_undurable_deletions();
    if attempt.core.local.has_ready() {
        let due = attempt.due(most);
        collect_ready(&mut attempt.core, &mut attempt.leaf_hints, claim, due);
    }
}

/// Most records that are looked at while the worker is online once.
const BATCH: usize = 32;

#[inline(never)]
fn collect_ready(core: &mut Core, leaf_hints: &mut LeafHints, claim: &impl Claim, mut most: usize) {
    let mut batch = [[0; 3]; BATCH];
    while most > 0 {
        let (mut count, mut is_last) = (0, false);
        while count < most.min(BATCH) && !is_last {
            let Some(item @ [.., word]) = core.local.ready() else { break };
            // For readers of the past a deleted key stays linked until all of them see the deletion.
            is_last = TidWord(word).tid() != Tid::ZERO && core.local.may_be_read(TidWord(word).tid().epoch());
            if is_last {
                core.local.defer(item);
            } else {
                batch[count] = item;
                count += 1;
            }
        }
        if count == 0 {
            return;
        }
        core.local.enter();
        for &[table, address, word] in &batch[..count] {
            // SAFETY: `later` put them there. Tables outlive workers. The record is not retired, because only the party
            // that QUEUED stands for unlinks it, and that is this entry (rule 5 of `record_header`).
            let (table, record) =
                unsafe { (&*(table as *const Table), RecordPtr::from_raw(NonNull::new_unchecked(address as *mut u8))) };
            // SAFETY: key words of a linked record never change.
            let leaf_hint = leaf_hints.of(table, &unsafe { read_key(record, table.class) });
            // Another batch would begin with it: with one worker a grace period is over at once.
            is_last |= !look(core, table, record, leaf_hint, TidWord(word), claim);
        }
        core.local.leave();
        if is_last {
            return;
        }
        most -= count;
    }
}

/// Takes the look that the caller owes a record. It unlinks the record if its key is gone in the state `expected`, and
/// clears the mark if the key is live. It queues the record (again) and returns `false` if this cannot be decided yet.
/// Then the record or its leaf is held, or its key was deleted again.
pub fn look(
    core: &mut Core,
    table: &Table,
    target: RecordPtr,
    leaf_hint: &mut LeafHint,
    expected: TidWord,
    claim: &impl Claim,
) -> bool {
    let Some(word) = claim.take(core, table, target) else {
        later(core, table, target, expected);
        return false;
    };
    abort_on_unwind("an unlinking", || look_at(core, table, target, leaf_hint, (expected, word), claim))
}

/// As [`look`], when the record is taken with this word.
#[inline(always)]
fn look_at(
    core: &mut Core,
    table: &Table,
    target: RecordPtr,
    leaf_hint: &mut LeafHint,
    (expected, word): (TidWord, TidWord),
    claim: &impl Claim,
) -> bool {
    debug_assert!(word.is_queued() && (!word.is_removed() || word.is_hot()));
    if !word.is_absent() {
        claim.give(core, table, target, word.looked_at());
        return true;
    }
    if word != expected {
        claim.give(core, table, target, word);
        later(core, table, target, word);
        return false;
    }
    table.unlinked.announce(word.tid());
    // SAFETY: key words of a linked record never change.
    let key = unsafe { read_key(target, table.class) };
    let unlinked = record::counting(core, table, |core| {
        core.note_undurable_deletion(table, target, word.tid(), |core| {
            table.index.remove_near(&mut core.store(), key, leaf_hint, target, &mut Tidy)
        })
    });
    if !unlinked {
        // The last record of a leaf whose gap a transaction holds: unlinking it now would leave the leaf
        // behind for ever.
        let linked = table.index.get(key, core.local.pinned());
        assert!(linked.is_ok_and(|linked| linked == target), "a record that was not unlinked is in its index");
        claim.give(core, table, target, word);
        later(core, table, target, word);
        return false;
    }
    // A placeholder was never counted.
    if word.tid() != Tid::ZERO {
        core.counts.add(table.id, 0, -record::record_bytes(table, target));
    }
    // The transaction that deleted the row has retired what the version word still names.
    claim.give(core, table, target, word.removed());
    record::retire_record(core, table, target, word.tid().epoch());
    true
}

#[cfg(test)]
mod tests {
    use seriatim_catalog::Key;
    use seriatim_htm::HtmMode;
    use seriatim_txn::{Mode, NoRedo, Outcome, Priority, Worker as _};

    use super::BATCH;
    use crate::common::Bench;
    use crate::silo::Silo;

    #[test]
    fn as_many_deleted_records_are_unlinked_as_were_asked_for() {
        let rows = 3 * BATCH as u64;
        let bench = Bench::<Silo>::open(HtmMode::Absent, &vec![0; rows as usize]);
        let mut worker = bench.worker();
        // The second transaction deletes nothing, and ends when the grace period of the deleted rows is over.
        for ids in [0..rows, 0..0] {
            worker.begin(Mode::ReadWrite, Priority::NONE);
            ids.for_each(|id| assert!(worker.delete(&bench.cells, Key::Word8(id)).is_ok_and(|row| row.is_some())));
            assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
            bench.pass_time();
        }
        for (most, left) in [(1, rows - 1), (BATCH, rows - 1 - BATCH as u64), (usize::MAX, 0)] {
            worker.collect_garbage(most);
            worker.core().local.enter();
            let pin = worker.core().local.pinned();
            let linked = (0..rows).filter(|id| bench.cells.index.get(Key::Word8(*id), pin).is_ok()).count();
            assert_eq!(linked as u64, left);
            worker.core().local.leave();
        }
    }
}
