//! Unlinks records whose key is gone: placeholders of aborted inserts at once, tombstones a grace period after the delete.
//!
//! Order (traps 8 and 19): lock the record; unlink it, which changes the witness word of its leaf or bucket; mark it REMOVED,
//! which changes the word that readers of the tombstone validate; retire it. A tombstone is unlinked only in a later epoch than
//! its stamp's, so that the first stamp of a reborn key, assigned in the then current epoch, lies above.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use seriatim_store::{Observer, RecordPtr};
use seriatim_txn::{Core, Table};

use super::head::{self, HeaderWord};
use super::record;

/// How a protocol makes sure that nobody else changes the record while it is unlinked.
pub(crate) trait Claim {
    /// Takes the record if its header word is still `expected`. `None`: it changed, leave it. `Some(false)`: busy, try later.
    fn take(&self, core: &Core, table: &Table, record: RecordPtr, expected: HeaderWord) -> Option<bool>;
    /// Gives it back; `word` is its final or unchanged header word.
    fn give(&self, core: &Core, table: &Table, record: RecordPtr, word: HeaderWord);
    /// Whether a gap may be changed under a scan's lock on it.
    fn observer(&self) -> impl Observer;
}

/// Puts a record on the list to be unlinked after a grace period.
pub(crate) fn later(core: &mut Core, table: &Table, record: RecordPtr, word: HeaderWord) {
    core.local.defer([std::ptr::from_ref(table) as u64, record.addr() as u64, word.0]);
}

/// Unlinks what has waited long enough. The worker is offline before and after; while it works it is online.
pub(crate) fn sweep(core: &mut Core, claim: &impl Claim) {
    // Bounded: what cannot be unlinked yet is deferred again and comes up in a later call.
    let mut budget = 32;
    while let Some(item) = core.local.ready() {
        let [table, address, word] = item;
        // SAFETY: `later` put them there; tables outlive workers, and the record was not retired since only we do that.
        let (table, record) =
            unsafe { (&*(table as *const Table), RecordPtr::from_raw(NonNull::new_unchecked(address as *mut u8))) };
        core.local.enter();
        if !unlink(core, table, record, HeaderWord(word), claim) {
            later(core, table, record, HeaderWord(word));
            budget = 0;
        }
        core.local.leave();
        if budget == 0 {
            return;
        }
        budget -= 1;
    }
}

/// Unlinks a record whose header word is still `expected` (absent, unlocked). `false`: not yet possible, try later.
#[must_use]
pub(crate) fn unlink(
    core: &mut Core,
    table: &Table,
    target: RecordPtr,
    expected: HeaderWord,
    claim: &impl Claim,
) -> bool {
    debug_assert!(expected.is_absent() && !expected.is_locked());
    if expected.stamp().epoch() >= core.epochs.current() {
        return false;
    }
    match claim.take(core, table, target, expected) {
        // Reborn, or already unlinked by another worker that put it on its list too.
        None => return true,
        Some(false) => return false,
        Some(true) => {}
    }
    // SAFETY: key words of a linked record never change.
    let key = unsafe { seriatim_store::read_key(target, table.class) };
    let removed = table.index.remove(&mut core.store(), key, target, &mut claim.observer());
    if !removed {
        claim.give(core, table, target, expected);
        return false;
    }
    let image = head::image(&table.shape, target).load(Ordering::Relaxed) as usize;
    claim.give(core, table, target, expected.removed());
    // What is left of a tombstone is the marker image some protocols keep for snapshot readers.
    if image != 0 && !record::is_inline(table, target, image) {
        record::retire(core, image, table.shape.image_header);
    }
    record::retire_record(core, table, target);
    true
}
