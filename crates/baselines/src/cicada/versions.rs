//! The versions of a record, and which of them a timestamp sees.
//!
//! The newest committed version is located by TID word and version word, as under every protocol. Two words of
//! the header belong to this protocol:
//!
//! ```text
//! 63                                                            1        0
//! |  wts of the newest version, or a lower bound of a pending one's | PENDING |
//!
//! 63                                                                        0
//! |  rts: the newest timestamp that has seen the newest version             |
//! ```
//! Each row version has its wts and a pointer to the version that it replaced (`shared/versions`). When a row is
//! inserted over a deletion, the deletion becomes a version whose row is not used, with DELETION in place of PENDING.
//!
//! Access rules:
//! 1. A writer that holds the lock bit of the TID word sets its timestamp and PENDING in the first word. Its
//!    version is *pending*, and will have this wts or a higher one; drawing again raises the word. The writer
//!    then either restores the word, or installs version word, wts and TID word in this order; the last store
//!    unlocks. The version word refers only to committed versions.
//! 2. A locked record without PENDING is being unlinked, or is about to become pending, or is about to be
//!    unlocked. Its wts is not above that of the version that is pending under the same lock, if there is one.
//! 3. Any transaction may raise the rts. A writer makes its version pending, fences, and reads the rts. A
//!    reader raises the rts, fences, and checks that its version is still the one that it sees. So one of the
//!    two detects the other.
//! 4. A new version is above all others of the record, and above the rts. So each timestamp sees the same older
//!    version for ever, and only the newest version needs an rts.

use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{Epoch, Tid};
use seriatim_store::RecordPtr;
use seriatim_txn::{RecordLayout, Table};

use super::access::Entry;
use crate::shared::optimistic::Read;
use crate::shared::record_header::{self, LOOKS_MAX, TidWord};
use crate::shared::versions::{Version, find};

const PENDING: u64 = 1;
const DELETION: u64 = 1;

/// The additional field of a row version: its wts and a flag.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Written(u64);

/// The header of a row version.
pub(super) type VersionHeader = Version<Written>;

impl Written {
    pub(super) const fn wts(self) -> u64 {
        self.0 & !DELETION
    }

    pub(super) const fn is_deletion(self) -> bool {
        self.0 & DELETION != 0
    }
}

/// The header of a version that replaces `previous`.
pub(super) fn header(tid: Tid, wts: u64, previous: usize) -> VersionHeader {
    Version { tid, kept: Written(wts), previous }
}

/// A version for a deletion that deleted `previous`.
pub(super) fn deletion(tid: Tid, wts: u64, previous: usize) -> VersionHeader {
    Version { tid, kept: Written(wts | DELETION), previous }
}

/// The first word: the wts.
pub(super) fn written<'t>(record_layout: &RecordLayout, record: RecordPtr) -> &'t AtomicU64 {
    record_header::own::<0>(record_layout, record)
}

/// The second word: the rts.
pub(super) fn seen<'t>(record_layout: &RecordLayout, record: RecordPtr) -> &'t AtomicU64 {
    record_header::own::<1>(record_layout, record)
}

/// Initializes the words of a record that is not linked yet, or that is restored.
pub(super) fn rest(table: &Table, record: RecordPtr) {
    // ORDERING: linking publishes the record with release.
    written(&table.record_layout, record).store(0, Ordering::Relaxed);
    seen(&table.record_layout, record).store(0, Ordering::Relaxed);
}

/// Raises an rts (rule 3).
pub(super) fn raise(rts: &AtomicU64, at: u64) {
    if rts.load(Ordering::Acquire) < at {
        crate::step(Touch::Exchange, rts);
        rts.fetch_max(at, Ordering::AcqRel);
    }
}

/// Makes the version of the caller pending at `at`. The caller has locked the record. Returns the former word.
pub(super) fn pend(record_layout: &RecordLayout, record: RecordPtr, at: u64) -> u64 {
    let word = written(record_layout, record);
    let before = word.load(Ordering::Relaxed);
    assert!(before & PENDING == 0 && before < at, "a version is pending above the newest, with the lock");
    crate::step(Touch::Store, word);
    // ORDERING: releases the lock to readers that find the version pending.
    word.store(at | PENDING, Ordering::Release);
    before
}

/// Raises a pending version of the caller to `at`. Transactions that ignored the lower value have still lower
/// timestamps. One with a timestamp between the two values ignores the version from now on. So waiting always
/// goes from later to earlier timestamps.
pub(super) fn repend(record_layout: &RecordLayout, record: RecordPtr, at: u64) {
    let word = written(record_layout, record);
    crate::step(Touch::Store, word);
    word.store(at | PENDING, Ordering::Release);
}

/// Stores the wts of the pending version, or restores the former one. The caller then unlocks the TID word.
pub(super) fn unpend(record_layout: &RecordLayout, record: RecordPtr, wts: u64) {
    let word = written(record_layout, record);
    crate::step(Touch::Store, word);
    word.store(wts, Ordering::Release);
}

/// The first word, or `None` if a version is pending.
pub(super) fn wts_unless_pending(record_layout: &RecordLayout, record: RecordPtr) -> Option<u64> {
    let word = written(record_layout, record).load(Ordering::Acquire);
    (word & PENDING == 0).then_some(word)
}

/// Whether a version above `at` is pending.
pub(super) fn is_pending_above(record_layout: &RecordLayout, record: RecordPtr, at: u64) -> bool {
    let word = written(record_layout, record).load(Ordering::Acquire);
    word & PENDING != 0 && word > at
}

/// The version of a record that a timestamp sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Visible {
    /// The newest version, with this TID word. If it is locked, then by a transaction with a later timestamp.
    Newest(TidWord, usize),
    /// A version with this TID, which a transaction of this epoch has replaced.
    Older(Tid, usize, Epoch),
    /// A deletion with this TID, over which a transaction of this epoch inserted a row.
    OlderDeletion(Tid, Epoch),
    /// No row: a transaction of this epoch created the first version later.
    None(Epoch),
    /// Unknown for now: a version that may be visible is pending, or the record is being unlinked, or it
    /// changed during each look.
    Held,
    /// The record has no row, with this TID word, and a later transaction is inserting one. Meanwhile the time
    /// of the deletion is unknown. A transaction that has seen this deletion still sees it.
    Deleted(TidWord),
    /// The version may have been freed.
    Lost,
}

/// The words of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'t> {
    tid: &'t AtomicU64,
    version: &'t AtomicU64,
    written: &'t AtomicU64,
    /// Bytes of a row.
    row: usize,
}

impl<'t> Words<'t> {
    pub(super) fn of(record_layout: &RecordLayout, record: RecordPtr) -> Words<'t> {
        Words {
            tid: record_header::tid_word(record_layout, record),
            version: record_header::row_version(record_layout, record),
            written: written(record_layout, record),
            row: record_layout.row,
        }
    }

    /// The words of a record that was read.
    pub(super) fn of_read(read: &Read<Entry>) -> Words<'t> {
        debug_assert!(read.by.row > 0, "every row has a word at least");
        let (tid, version, written) = (read.word(), read.version_word(), read.own::<0>());
        Words { tid, version, written, row: read.by.row as usize }
    }

    /// The version that an attempt sees. It drew `at` when the epoch was at least `since`.
    #[inline]
    pub(super) fn sight(self, at: u64, since: Epoch) -> Visible {
        for _ in 0..LOOKS_MAX {
            // ORDERING: pairs with the release store of the TID word at install, and so do the loads of the
            // other words with their stores. Each is loaded before the next.
            let word = TidWord(self.tid.load(Ordering::Acquire));
            crate::step(Touch::Header, self.written);
            let written = self.written.load(Ordering::Acquire);
            crate::step(Touch::Header, self.version);
            let version = self.version.load(Ordering::Acquire) as usize;
            crate::step(Touch::Header, self.tid);
            if TidWord(self.tid.load(Ordering::Relaxed)) != word {
                continue;
            }
            let is_later = written & !PENDING > at;
            if word.is_locked() {
                // By rule 2 no version is pending below `at` either.
                return match is_later {
                    true if word.tid() == Tid::ZERO => Visible::Newest(word, 0),
                    true if word.is_absent() => Visible::Deleted(word),
                    true => self.older(word, version, at, since),
                    false => Visible::Held,
                };
            }
            if written & PENDING != 0 {
                // The pending version was undone meanwhile.
                continue;
            }
            return match is_later && !word.is_removed() {
                true => self.older(word, version, at, since),
                false => Visible::Newest(word, version),
            };
        }
        Visible::Held
    }

    /// Searches older versions from `version` on, which is the newest or was replaced by the deletion in the TID word.
    fn older(self, word: TidWord, version: usize, at: u64, since: Epoch) -> Visible {
        // A protection against clocks that go back, which must not happen (`clock.rs`), as far as epochs reveal it.
        let is_older = |tid: Tid| tid.epoch() < since;
        let (mut above, mut lost) = (word.tid(), word.is_absent() && is_older(word.tid()));
        if lost {
            return Visible::Lost;
        }
        // SAFETY: a skipped version is above `at`. So it was installed after the attempt's worker came online, as was
        // the deletion. Versions that it replaced were retired after that (`clock.rs`; `shared/versions`, rule 2).
        let found = unsafe {
            find(self.row, version, |version: &VersionHeader| {
                if version.kept.wts() < at {
                    return true;
                }
                lost = is_older(version.tid);
                above = version.tid;
                lost
            })
        };
        match found {
            _ if lost => Visible::Lost,
            None => Visible::None(above.epoch()),
            Some((version, header)) if header.tid == word.tid() && !word.is_absent() => Visible::Newest(word, version),
            Some((_, header)) if header.kept.is_deletion() => Visible::OlderDeletion(header.tid, above.epoch()),
            Some((version, header)) => Visible::Older(header.tid, version, above.epoch()),
        }
    }
}
