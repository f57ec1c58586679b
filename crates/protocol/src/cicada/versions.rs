//! The versions of a record: which of them a timestamp sees.
//!
//! Of a record the newest committed version is found as under every protocol, by TID word and version word. Two
//! words of the header are the protocol's own:
//!
//! ```text
//! 63                                                           1       0           63                                          0
//! |  wts of the newest version, or at least that of the pending one  | PENDING |     |  rts: the newest to have seen the newest version  |
//! ```
//! Each row version names its wts and the version that it replaced (`shared/versions`). A deletion that a row
//! was inserted over is a version of its own from then on, a header without a row, with DELETION in place of
//! PENDING.
//!
//! Access rules:
//! 1. Who holds the lock bit of the TID word to write sets its timestamp and PENDING in the first word: its
//!    version is *pending*, and will have this wts or one above. The word rises whenever another timestamp is
//!    drawn. It takes both back, or installs: version word, wts, TID word, which unlocks. The version word
//!    names committed versions only.
//! 2. A record without PENDING that is locked is being unlinked, or about to be pending, or all but unlocked.
//!    Its wts is no more than that of what is pending then, if anything is.
//! 3. Anybody may raise the rts. Who writes looks at it when its version is pending, with a fence between; who
//!    reads raises it, and looks then whether the version is still the one that it sees, with a fence between.
//!    So one of the two finds the other.
//! 4. A new version is above all others of the record, and above the rts. So an older version is seen by the
//!    same timestamps for ever: only the newest needs an rts.

use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_base::thread::Touch;
use seriatim_base::{Epoch, Tid};
use seriatim_store::RecordPtr;
use seriatim_txn::{RecordLayout, Table};

use crate::shared::optimistic::Read;
use crate::shared::origin::Origin;
use crate::shared::record_header::{self, LOOKS_MAX, TidWord};
use crate::shared::versions::{Version, find};

const PENDING: u64 = 1;
const DELETION: u64 = 1;

/// What is kept with a row version: its wts and a flag.
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

/// A deletion as a version: it deleted `previous`.
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

/// The words of a record that is not linked yet, or restored.
pub(super) fn rest(table: &Table, record: RecordPtr) {
    // ORDERING: linking publishes the record with release.
    written(&table.record_layout, record).store(0, Ordering::Relaxed);
    seen(&table.record_layout, record).store(0, Ordering::Relaxed);
}

/// Raises an rts. (Rule 3.)
pub(super) fn raise(rts: &AtomicU64, at: u64) {
    if rts.load(Ordering::Acquire) < at {
        crate::step(Touch::Exchange, rts);
        rts.fetch_max(at, Ordering::AcqRel);
    }
}

/// The caller, which has locked the record, writes it at `at`: what the word was.
pub(super) fn pend(record_layout: &RecordLayout, record: RecordPtr, at: u64) -> u64 {
    let word = written(record_layout, record);
    let before = word.load(Ordering::Relaxed);
    assert!(before & PENDING == 0 && before < at, "a version is pending above the newest, with the lock");
    crate::step(Touch::Store, word);
    // ORDERING: releases the lock to those who find it pending.
    word.store(at | PENDING, Ordering::Release);
    before
}

/// Moves a pending version of the caller's up to `at`, above where it was. Who passes by the lower value has a
/// lower timestamp still; who has one between the two passes by from now on, so that waiting goes from later to
/// earlier timestamps.
pub(super) fn repend(record_layout: &RecordLayout, record: RecordPtr, at: u64) {
    let word = written(record_layout, record);
    crate::step(Touch::Store, word);
    word.store(at | PENDING, Ordering::Release);
}

/// Sets the wts: of what was pending, or of what was there before. The TID word is unlocked next.
pub(super) fn unpend(record_layout: &RecordLayout, record: RecordPtr, wts: u64) {
    let word = written(record_layout, record);
    crate::step(Touch::Store, word);
    word.store(wts, Ordering::Release);
}

/// The first word, unless a version is pending.
pub(super) fn wts_unless_pending(record_layout: &RecordLayout, record: RecordPtr) -> Option<u64> {
    let word = written(record_layout, record).load(Ordering::Acquire);
    (word & PENDING == 0).then_some(word)
}

/// Whether a version is pending that is above `at`.
pub(super) fn is_pending_above(record_layout: &RecordLayout, record: RecordPtr, at: u64) -> bool {
    let word = written(record_layout, record).load(Ordering::Acquire);
    word & PENDING != 0 && word > at
}

/// What a timestamp sees of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sight {
    /// The newest version, under this TID word; if that is locked, by a transaction that comes later.
    Newest(TidWord, usize),
    /// A version with this TID, which one of this epoch has replaced.
    Older(Tid, usize, Epoch),
    /// A deletion with this TID, over which a row was inserted in this epoch.
    OlderDeletion(Tid, Epoch),
    /// No row, as the first version came later, in this epoch.
    None(Epoch),
    /// A version is pending, or the record being unlinked, that may be to be seen; or others changed the record at
    /// each look.
    Held,
    /// The record has no row under this TID word, and a later transaction is writing one; when it was deleted
    /// is not known meanwhile. Who has seen this deletion sees it still.
    Deleted(TidWord),
    /// It is not known any more.
    Lost,
}

/// The words of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'t> {
    tid: &'t AtomicU64,
    version: &'t AtomicU64,
    written: &'t AtomicU64,
}

impl<'t> Words<'t> {
    pub(super) fn of(record_layout: &RecordLayout, record: RecordPtr) -> Words<'t> {
        Words {
            tid: record_header::tid_word(record_layout, record),
            version: record_header::row_version(record_layout, record),
            written: written(record_layout, record),
        }
    }

    /// Of a record that was read.
    pub(super) fn of_read<O: Origin>(read: &Read<O>) -> Words<'t> {
        Words { tid: read.word(), version: read.version_word(), written: read.own::<0>() }
    }

    /// What an attempt sees that drew `at`, when the epoch was at least `since`.
    #[inline]
    pub(super) fn sight(self, at: u64, since: Epoch) -> Sight {
        for _ in 0..LOOKS_MAX {
            // ORDERING: pairs with the release store of the TID word at install, as the others do with theirs;
            // each is loaded before the next.
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
                // By rule 2 nothing is pending below either.
                return match is_later {
                    true if word.tid() == Tid::ZERO => Sight::Newest(word, 0),
                    true if word.is_absent() => Sight::Deleted(word),
                    true => self.older(word, version, at, since),
                    false => Sight::Held,
                };
            }
            if written & PENDING != 0 {
                // It was taken back meanwhile.
                continue;
            }
            return match is_later && !word.is_removed() {
                true => self.older(word, version, at, since),
                false => Sight::Newest(word, version),
            };
        }
        Sight::Held
    }

    /// The same, from `version` on, which is the newest, or was replaced by the deletion of which the word tells.
    fn older(self, word: TidWord, version: usize, at: u64, since: Epoch) -> Sight {
        // Against clocks that go back, which none should (`clock.rs`), as far as epochs tell it.
        let is_older = |tid: Tid| tid.epoch() < since;
        let (mut above, mut lost) = (word.tid(), word.is_absent() && is_older(word.tid()));
        if lost {
            return Sight::Lost;
        }
        // SAFETY: a version that is passed by is above `at`. So it was installed after the attempt's worker
        // came online, as was the deletion, and what it replaced was retired after that (`clock.rs`;
        // `shared/versions`, rule 2).
        let found = unsafe {
            find(version, |version: &VersionHeader| {
                if version.kept.wts() < at {
                    return true;
                }
                lost = is_older(version.tid);
                above = version.tid;
                lost
            })
        };
        match found {
            _ if lost => Sight::Lost,
            None => Sight::None(above.epoch()),
            Some((version, header)) if header.tid == word.tid() && !word.is_absent() => Sight::Newest(word, version),
            Some((_, header)) if header.kept.is_deletion() => Sight::OlderDeletion(header.tid, above.epoch()),
            Some((version, header)) => Sight::Older(header.tid, version, above.epoch()),
        }
    }
}
