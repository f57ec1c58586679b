//! How long versions are valid: the read timestamp of each record. (That of absences and ranges is in
//! `shared/absences.rs`.)
//!
//! Timestamps are TIDs. A version is valid from its TID (the paper's wts) up to the read timestamp (rts): a
//! transaction that overwrites it commits above that. The word is the protocol's own one of the record header:
//!
//! ```text
//! 63                                          4  3      1      0
//! |  rts of the newest committed version, a TID  |  zeros  | CLOSED |
//! ```
//! Access rules:
//! 1. The holder of the TID word's lock bit may close the word, which fixes the promise to readers. It opens
//!    the word before it unlocks the TID word, with the same rts or that of a new version, which is above. The
//!    word of an unlinked record stays closed.
//! 2. Any thread may extend an open word by compare-and-swap, upwards.
//!
//! So the word only grows, and never has the same open value for two versions. A value that was loaded before a version
//! was read is at most that version's. A successful extension extends the version that was current at the load.

use seriatim_base::Tid;
use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, Fault, RecordLayout, Table};

use crate::shared::gc;
use crate::shared::optimistic::{LockBit, Read};
use crate::shared::origin::Origin;
use crate::shared::record_header::{self, LOOKS_MAX, TidWord};

const CLOSED: u64 = 1;
const FLAG_BITS: u32 = u64::BITS - Tid::BITS;

fn word<'t>(record_layout: &RecordLayout, record: RecordPtr) -> &'t AtomicU64 {
    record_header::own::<0>(record_layout, record)
}

const fn tid(word: u64) -> Tid {
    Tid::from_bits(word >> FLAG_BITS)
}

/// The word of a record without readers.
pub(super) fn rest(table: &Table, record: RecordPtr) {
    // ORDERING: linking publishes the record with release.
    word(&table.record_layout, record).store(0, Ordering::Relaxed);
}

/// Closes the word of a record that the caller has locked: its rts, which does not move until it is opened.
pub(super) fn close(table: &Table, record: RecordPtr) -> Tid {
    // ORDERING: acquires accesses before an extension; releases the lock to threads that find the word closed.
    let word = word(&table.record_layout, record);
    crate::step(Touch::Exchange, word);
    let before = word.fetch_or(CLOSED, Ordering::AcqRel);
    assert!(before & CLOSED == 0, "the thread that closes the word holds the record's lock");
    tid(before)
}

/// Opens it again, with `rts` if there is a new version. The TID word is unlocked next.
pub(super) fn open(table: &Table, record: RecordPtr, rts: Option<Tid>) {
    let word = word(&table.record_layout, record);
    let open = rts.map_or_else(|| word.load(Ordering::Relaxed) & !CLOSED, |rts| rts.bits() << FLAG_BITS);
    crate::step(Touch::Store, word);
    word.store(open, Ordering::Release);
}

/// The rts of a record, and whether it is closed.
#[cfg(all(test, not(loom)))]
pub(super) fn of(table: &Table, record: RecordPtr) -> (Tid, bool) {
    let word = word(&table.record_layout, record).load(Ordering::Relaxed);
    (tid(word), word & CLOSED != 0)
}

/// The origin of a read-set entry: the version seen is valid at least up to this.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ValidUpTo(Tid);

impl Origin for ValidUpTo {
    type Locks = ();

    #[inline(always)]
    fn at(self, table: &Table, record: RecordPtr) -> ValidUpTo {
        // ORDERING: the TID word is loaded after it.
        ValidUpTo(tid(word(&table.record_layout, record).load(Ordering::Acquire)))
    }

    #[inline(always)]
    fn prepare(table: &Table, record: RecordPtr) {
        rest(table, record);
    }
}

/// Whether a version that was read is valid at `at`, extending it if necessary. `is_own`: the caller holds the
/// record's lock, and will overwrite it at `at`.
pub(super) fn is_valid(core: &Core, read: &Read<ValidUpTo>, at: Tid, is_own: impl Fn() -> bool) -> bool {
    // Whatever has become of the record.
    read.seen.tid().max(read.by.0) >= at || extend(core, (read.word(), read.own::<0>()), read.seen, at, is_own)
}

/// The same, for a version on which a write builds. It must be current and not locked. If its record was unlinked, or
/// is being unlinked, the transaction no longer finds its own write. It may have written a second record for the key.
pub(super) fn is_current(core: &Core, table: &Table, record: RecordPtr, seen: TidWord, at: Tid) -> bool {
    let tid_word = record_header::tid_word(&table.record_layout, record);
    // ORDERING: the record is looked up before; the lock is taken before it is unlinked.
    let found = TidWord(tid_word.load(Ordering::Acquire)) == seen;
    found && extend(core, (tid_word, word(&table.record_layout, record)), seen, at, || false)
}

/// Whether a version is current, and valid at `at`.
fn extend(
    core: &Core,
    (tid_word, word): (&AtomicU64, &AtomicU64),
    seen: TidWord,
    at: Tid,
    is_own: impl Fn() -> bool,
) -> bool {
    for _ in 0..LOOKS_MAX {
        crate::step(Touch::Header, word);
        // ORDERING: the TID word is loaded after it: if that is the one seen, so was it when this was loaded.
        let rts = word.load(Ordering::Acquire);
        crate::step(Touch::Header, tid_word);
        let now = TidWord(tid_word.load(Ordering::Acquire));
        if now.unlocked().unreserved() != seen.unreserved() && !core.injects(Fault::ExtendOverwritten) {
            return false;
        }
        let (is_locked, is_closed) = (now.is_locked(), rts & CLOSED != 0);
        // Locked and open is ambiguous: between lock and close, or a new version whose TID word is not stored yet.
        if tid(rts) >= at && is_locked == is_closed {
            return true;
        }
        if is_locked {
            return is_own();
        }
        crate::step(Touch::Exchange, word);
        // ORDERING: releases that the version was found; see rule 2.
        let extended = at.bits() << FLAG_BITS;
        if !is_closed && word.compare_exchange(rts, extended, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return true;
        }
    }
    false
}

/// Unlinking under the lock bit, with the word closed: the table remembers the promise to the record's readers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claim;

impl gc::Claim for Claim {
    fn take(&self, core: &Core, table: &Table, record: RecordPtr) -> Option<TidWord> {
        let word = LockBit.take(core, table, record)?;
        table.unlinked.announce(close(table, record));
        Some(word)
    }

    fn give(&self, core: &Core, table: &Table, record: RecordPtr, word: TidWord) {
        // An open word could be extended by a reader that saw the record linked.
        if !word.is_removed() {
            open(table, record, None);
        }
        LockBit.give(core, table, record, word);
    }
}
