//! Read timestamps: which transactions, by their commit timestamps, have read the newest version of a record.
//!
//! The word is the protocol's own one of the record header. It is the newest TID at which a transaction read the
//! record, or found its key absent there. Access rules:
//! 1. Any thread may raise it; it never falls, and is not reset with a new version, whose TID is above it.
//! 2. A reader raises it first, fences, and then finds the TID word unchanged and not locked by another. A
//!    transaction that overwrites or unlinks locks the TID word first, fences, and then loads this. So one of
//!    the two finds the other.

use seriatim_base::Tid;
use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering, fence};
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, RecordLayout, Table};

use crate::shared::gc;
use crate::shared::optimistic::LockBit;
use crate::shared::origin::Origin;
use crate::shared::record_header::{self, TidWord};

fn word<'t>(record_layout: &RecordLayout, record: RecordPtr) -> &'t AtomicU64 {
    record_header::own::<0>(record_layout, record)
}

/// The value of a record without readers.
pub(super) fn rest(table: &Table, record: RecordPtr) {
    // ORDERING: linking publishes the record with release.
    word(&table.record_layout, record).store(0, Ordering::Relaxed);
}

/// The newest timestamp at which a record was read that the caller has locked. A fence came before.
pub(super) fn newest(table: &Table, record: RecordPtr) -> Tid {
    let word = word(&table.record_layout, record);
    crate::step(Touch::Header, word);
    // ORDERING: acquires the epoch of the reader.
    Tid::from_bits(word.load(Ordering::Acquire))
}

/// A reader at `at`: the word is no lower from now on. A fence follows.
#[inline]
pub(super) fn raise(word: &AtomicU64, at: Tid) {
    // Others may have read later already: then the line stays shared.
    crate::step(Touch::Header, word);
    if word.load(Ordering::Relaxed) < at.bits() {
        crate::step(Touch::Exchange, word);
        // ORDERING: releases the epoch of `at`.
        word.fetch_max(at.bits(), Ordering::AcqRel);
    }
}

/// As [`raise`], of a record that the caller has locked.
pub(super) fn raise_locked(table: &Table, record: RecordPtr, at: Tid) {
    raise(word(&table.record_layout, record), at);
}

/// The origin of entries of a record whose header has a read timestamp; they remember nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timestamped;

impl Origin for Timestamped {
    type Locks = ();

    #[inline(always)]
    fn prepare(table: &Table, record: RecordPtr) {
        rest(table, record);
    }
}

/// Unlinking under the lock bit: until when the record was read, the table remembers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claim;

impl gc::Claim for Claim {
    fn take(&self, core: &Core, table: &Table, record: RecordPtr) -> Option<TidWord> {
        let word = LockBit.take(core, table, record)?;
        // ORDERING: rule 2.
        fence(Ordering::SeqCst);
        table.unlinked.announce(newest(table, record));
        Some(word)
    }

    fn give(&self, core: &Core, table: &Table, record: RecordPtr, word: TidWord) {
        LockBit.give(core, table, record, word);
    }
}
