//! The header word of a record and its named transitions.
//!
//! ```text
//! 63                                   4  3       2        1       0
//! | stamp of the newest committed version | QUEUED | REMOVED | ABSENT | LOCKED |
//! ```
//! A record's life. Each step is one change of the header word by a committer or a sweep that holds it LOCKED, or by a region:
//!
//! ```text
//!   insert links it            commit                    delete commits
//! ───────────────▶ PLACEHOLDER ──────▶ LIVE ───────────────────────────▶ TOMBSTONE
//!                  ABSENT|QUEUED       (QUEUED until the look, ◀──────── ABSENT|QUEUED
//!                        │             if it is reborn)        insert commits  │
//!             abort      │                                                     │ the look, a grace period later
//!             unlinks it ▼                                                     ▼ unlinks it
//!                     REMOVED: unlinked; its memory is reused a grace period later
//! ```
//! Words of a protocol's own follow the header word and the image word ([`bytes`], [`own`]); decision record 4 says why they are not
//! in the header word.
//!
//! Access rules for the two words every head begins with:
//! 1. The header word and the image word change only while LOCKED is set by the changer, or inside a region that found LOCKED
//!    clear. Readers are optimistic: an Acquire load of an unlocked header word, then the image word.
//! 2. An image is immutable once its address is stored; it is retired, never reused, while a reader may hold it.
//! 3. ABSENT: the newest committed state of the key is "no row" (a placeholder never committed has stamp zero). The image word
//!    is then zero, or, where a protocol has snapshots, its own: an image that may be retired already.
//!    (A protocol that locks elsewhere, as `nowait` does in a third word, holds that lock besides, and sets LOCKED only while it
//!    installs, for [`peek`].)
//! 4. REMOVED is final: the record left its index. Its header word never changes again, so whoever validated ABSENT fails.
//! 5. QUEUED: exactly one party, the attempt that linked the record or an entry of a sweep list, owes it a look, and holds its
//!    address until then. Only that party unlinks it, so the address stays good. Who revives or deletes the record meanwhile
//!    leaves the mark and does not queue it again.

use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_base::{Backoff, Stamp};
use seriatim_store::RecordPtr;
use seriatim_txn::{Peeked, RecordShape, Table};

use super::record;

const LOCKED: u64 = 1;
const ABSENT: u64 = 2;
const REMOVED: u64 = 4;
const QUEUED: u64 = 8;
const FLAG_BITS: u32 = 4;
const _STAMP_AND_FLAGS_FILL_A_WORD: () = assert!(Stamp::BITS + FLAG_BITS == u64::BITS);

/// A value of a header word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct HeaderWord(pub(crate) u64);

impl HeaderWord {
    /// A placeholder: linked, never committed; who linked it owes it a look.
    pub(crate) const PLACEHOLDER: HeaderWord = HeaderWord(ABSENT | QUEUED);

    /// The state after a commit with `stamp`.
    pub(crate) const fn committed(stamp: Stamp, absent: bool, queued: bool) -> HeaderWord {
        let flags = if absent { ABSENT } else { 0 } | if queued { QUEUED } else { 0 };
        HeaderWord((stamp.bits() << FLAG_BITS) | flags)
    }

    /// Whether somebody owes the record a look (rule 5).
    pub(crate) const fn is_queued(self) -> bool {
        self.0 & QUEUED != 0
    }

    /// The state once the look was taken and the record stays.
    pub(crate) const fn looked_at(self) -> HeaderWord {
        HeaderWord(self.0 & !QUEUED)
    }

    pub(crate) const fn stamp(self) -> Stamp {
        Stamp::from_bits(self.0 >> FLAG_BITS)
    }

    pub(crate) const fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    pub(crate) const fn is_absent(self) -> bool {
        self.0 & ABSENT != 0
    }

    pub(crate) const fn is_removed(self) -> bool {
        self.0 & REMOVED != 0
    }

    pub(crate) const fn locked(self) -> HeaderWord {
        HeaderWord(self.0 | LOCKED)
    }

    pub(crate) const fn unlocked(self) -> HeaderWord {
        HeaderWord(self.0 & !LOCKED)
    }

    /// The final state of an unlinked record.
    pub(crate) const fn removed(self) -> HeaderWord {
        debug_assert!(self.is_absent());
        HeaderWord((self.0 | REMOVED) & !LOCKED)
    }
}

/// Bytes of a head with this many words of the protocol's own behind the two that all have.
pub(crate) const fn bytes(own: usize) -> usize {
    8 * (COMMON_WORDS + own)
}

/// The header word and the image word.
const COMMON_WORDS: usize = 2;

/// The `AT`-th word of a protocol's own in the head of a record of one of its tables.
#[inline]
pub(crate) fn own<'t, const AT: usize>(shape: &RecordShape, record: RecordPtr) -> &'t AtomicU64 {
    crate::step();
    debug_assert!(shape.head + bytes(AT + 1) <= shape.image, "a protocol has the words that its head has room for");
    // SAFETY: as in `header`; the head has this word, as just asserted.
    unsafe { shape.head_word(record, COMMON_WORDS + AT) }
}

/// The header word of a record of `table`.
#[inline]
pub(crate) fn header<'t>(shape: &RecordShape, record: RecordPtr) -> &'t AtomicU64 {
    crate::step();
    // SAFETY: a record found in an index or made by this attempt lives while the worker is online (promise e), and every
    // protocol's head begins with the header word.
    unsafe { shape.head_word(record, 0) }
}

/// The image word of a record: the address of the newest committed row image, header included; zero where there is none (but
/// see rule 3).
#[inline]
pub(crate) fn image<'t>(shape: &RecordShape, record: RecordPtr) -> &'t AtomicU64 {
    crate::step();
    // SAFETY: as in `header`; the image word is the second.
    unsafe { shape.head_word(record, 1) }
}

/// The settled header word of a record and the image it speaks of. `None`: still locked.
///
/// The second look at the header is what keeps the two together: an image stored after the first look was stored under the
/// lock, so the second sees the lock or what followed. Without it a row could be sought in an image of before its deletion.
#[inline]
pub(crate) fn settled_image(table: &Table, record: RecordPtr) -> Option<(HeaderWord, usize)> {
    loop {
        let word = settled(table, record)?;
        // ORDERING: pairs with the release store of the image word at install; orders the second look after it.
        let image = image(&table.shape, record).load(Ordering::Acquire) as usize;
        if header(&table.shape, record).load(Ordering::Relaxed) == word.0 {
            return Some((word, image));
        }
    }
}

/// The newest committed version of a record, for who has no transaction: [`settled_image`] without its waits.
pub(crate) fn peek(table: &Table, record: RecordPtr) -> Peeked {
    let header = header(&table.shape, record);
    // ORDERING: as in `settled` and `settled_image`.
    let word = HeaderWord(header.load(Ordering::Acquire));
    let image = image(&table.shape, record).load(Ordering::Acquire) as usize;
    crate::step();
    if word.is_locked() || header.load(Ordering::Relaxed) != word.0 {
        return Peeked::Busy;
    }
    match (word.stamp(), word.is_absent()) {
        (Stamp::ZERO, _) => Peeked::NeverCommitted,
        (stamp, true) => Peeked::Deleted(stamp),
        (stamp, false) => Peeked::Row(stamp, record::row_of(table, image)),
    }
}

/// Waits, within [`Backoff`]'s bound (promise d), until the record is not locked. `None`: still locked.
#[inline]
pub(crate) fn settled(table: &Table, record: RecordPtr) -> Option<HeaderWord> {
    let word = header(&table.shape, record);
    // ORDERING: pairs with the release store of the header word at install.
    let seen = HeaderWord(word.load(Ordering::Acquire));
    if seen.is_locked() { wait_until_settled(word) } else { Some(seen) }
}

#[cold]
#[inline(never)]
fn wait_until_settled(word: &AtomicU64) -> Option<HeaderWord> {
    let mut backoff = Backoff::new();
    while backoff.wait() {
        let seen = HeaderWord(word.load(Ordering::Acquire));
        if !seen.is_locked() {
            return Some(seen);
        }
    }
    None
}
