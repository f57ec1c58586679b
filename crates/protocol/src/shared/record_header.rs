//! The TID word of a record and its named transitions.
//!
//! ```text
//! 63                                   4  3       2        1       0
//! |  TID of the newest committed version  | QUEUED | REMOVED | ABSENT | LOCKED |  REMOVED, not ABSENT: HOT or RESERVED
//! ```
//! A record's life. Each step is one change of the TID word by a committer or a garbage collector that holds it LOCKED,
//! or by a region:
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
//! Words of a protocol's own follow the TID word and the version word ([`bytes`], [`own`]). Decision record 4 says why
//! they are not in the TID word.
//!
//! Access rules for the two words every header begins with:
//! 1. The TID word and the version word change only while LOCKED is set by the changer, or inside a region that found
//!    LOCKED clear. One bit of an unlocked word changes by rules 6 and 7, where the version stays. Readers are
//!    optimistic: an Acquire load of an unlocked TID word, then the version word.
//! 2. A row version is immutable once its address is stored; it is retired, never reused, while a reader may hold it.
//! 3. ABSENT: the newest committed state of the key is "no row" (a placeholder never committed has TID zero).
//!    The version word is then zero, or, where a protocol has snapshots, a value of its own: a row version
//!    that may be retired already. (A protocol that locks elsewhere, as `nowait` does in a third word, also
//!    holds that lock, and sets LOCKED only while it installs, for [`peek`].)
//! 4. REMOVED is final: the record left its index. Its TID word never changes again, so validation of ABSENT fails.
//! 5. QUEUED: exactly one party must still visit the record, and holds its address until then. It is the attempt that
//!    linked the record, or an entry of a garbage list. Only that party unlinks it, so the address stays valid. A
//!    transaction that revives or deletes the record meanwhile leaves the mark and does not queue it again.
//! 6. REMOVED without ABSENT means HOT under `htcc`: a contended row. A word has no bit to spare. A transaction
//!    that changes the word of a hot record also holds its lock (`htcc/locks.rs`). The bit is part of the
//!    validated word, so a transaction that saw the record before it became hot, or cold, fails.
//! 7. Under other protocols the same bits mean RESERVED: the attempt that locks what it accesses
//!    ([`reserve`](super::reserve)) has reserved the row. Others do not write it until that attempt ends, but for late
//!    sums of `dbx-tc` and its publisher of deferred ones.
//!    They may read it: the version is the same with and without the mark. The commit that replaces the version
//!    removes the mark.

use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{Backoff, Tid};
use seriatim_htm::Access;
use seriatim_store::RecordPtr;
use seriatim_txn::{Peeked, RecordLayout, Table};

use super::record;

const LOCKED: u64 = 1;
const ABSENT: u64 = 2;
const REMOVED: u64 = 4;
/// Only of a record that is not ABSENT: HOT or RESERVED.
const HOT: u64 = REMOVED;
const QUEUED: u64 = 8;
const FLAG_BITS: u32 = 4;
const _TID_AND_FLAGS_FILL_A_WORD: () = assert!(Tid::BITS + FLAG_BITS == u64::BITS);

/// A value of a TID word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct TidWord(pub u64);

impl TidWord {
    /// A placeholder: linked, never committed; the attempt that linked it owes it a look.
    pub const PLACEHOLDER: TidWord = TidWord(ABSENT | QUEUED);

    /// The state after a commit with `tid`.
    pub const fn committed(tid: Tid, absent: bool, queued: bool) -> TidWord {
        let flags = if absent { ABSENT } else { 0 } | if queued { QUEUED } else { 0 };
        TidWord((tid.bits() << FLAG_BITS) | flags)
    }

    /// Whether a party owes the record a look (rule 5).
    pub const fn is_queued(self) -> bool {
        self.0 & QUEUED != 0
    }

    /// The state once the look was taken and the record stays.
    pub const fn looked_at(self) -> TidWord {
        TidWord(self.0 & !QUEUED)
    }

    pub const fn tid(self) -> Tid {
        Tid::from_bits(self.0 >> FLAG_BITS)
    }

    /// Whether it is of a row that is there, neither locked nor reserved.
    pub const fn is_plain(self) -> bool {
        self.0 & (LOCKED | ABSENT | REMOVED) == 0
    }

    pub const fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    pub const fn is_absent(self) -> bool {
        self.0 & ABSENT != 0
    }

    /// Whether the record is removed; for a word that is not hot.
    pub const fn is_removed(self) -> bool {
        self.0 & REMOVED != 0
    }

    /// Whether the record is contended (rule 6).
    pub const fn is_hot(self) -> bool {
        self.0 & (HOT | ABSENT) == HOT
    }

    /// The same version of a contended record.
    pub const fn hot(self) -> TidWord {
        debug_assert!(!self.is_absent());
        TidWord(self.0 | HOT)
    }

    /// The same version of a record that is not contended any more.
    pub const fn cold(self) -> TidWord {
        debug_assert!(!self.is_absent());
        TidWord(self.0 & !HOT)
    }

    /// Whether an attempt has reserved the row (rule 7).
    pub const fn is_reserved(self) -> bool {
        self.is_hot()
    }

    /// The same version of a row that an attempt has reserved.
    pub const fn reserved(self) -> TidWord {
        self.hot()
    }

    /// The same version of a row that is not reserved.
    pub const fn unreserved(self) -> TidWord {
        if self.is_reserved() { self.cold() } else { self }
    }

    pub const fn locked(self) -> TidWord {
        TidWord(self.0 | LOCKED)
    }

    pub const fn unlocked(self) -> TidWord {
        TidWord(self.0 & !LOCKED)
    }

    /// The final state of an unlinked record.
    pub const fn removed(self) -> TidWord {
        debug_assert!(self.is_absent());
        TidWord((self.0 | REMOVED) & !LOCKED)
    }
}

/// Words as they are, outside any region and with no region about.
pub struct Plain;

impl Access for Plain {
    const REGION: bool = false;

    #[inline]
    fn load(&mut self, word: &AtomicU64) -> u64 {
        crate::step(Touch::Header, word);
        word.load(Ordering::Acquire)
    }

    fn store(&mut self, word: &AtomicU64, value: u64) {
        crate::step(Touch::Store, word);
        word.store(value, Ordering::Release);
    }

    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool {
        crate::step(Touch::Exchange, word);
        word.compare_exchange(unlocked, locked, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// Bytes of a header with this many words of the protocol's own behind the two that all have.
pub const fn bytes(own: usize) -> usize {
    8 * (COMMON_WORDS + own)
}

/// The TID word and the version word.
const COMMON_WORDS: usize = 2;

/// Bytes from the TID word to the version word.
pub(super) const VERSION_WORD: usize = 8;

/// The `AT`-th word of a protocol's own in the header of a record of one of its tables.
#[inline]
pub fn own<'t, const AT: usize>(record_layout: &RecordLayout, record: RecordPtr) -> &'t AtomicU64 {
    debug_assert!(
        record_layout.header + bytes(AT + 1) <= record_layout.row_version,
        "a protocol has the words that its header has room for"
    );
    // SAFETY: as in `tid_word`; the header has this word, as just asserted.
    stepped(unsafe { record_layout.header_word(record, COMMON_WORDS + AT) })
}

/// The TID word of a record of `table`.
#[inline]
pub fn tid_word<'t>(record_layout: &RecordLayout, record: RecordPtr) -> &'t AtomicU64 {
    // SAFETY: a record found in an index or made by this attempt lives while the worker is online (promise e). Every
    // protocol's record header begins with the TID word.
    stepped(unsafe { record_layout.header_word(record, 0) })
}

/// The version word of a record: the address of the newest committed row version, header included; zero where there is
/// none (but see rule 3).
#[inline]
pub fn row_version<'t>(record_layout: &RecordLayout, record: RecordPtr) -> &'t AtomicU64 {
    // SAFETY: as in `tid_word`; the version word is the second.
    stepped(unsafe { record_layout.header_word(record, 1) })
}

/// The word, after its step.
#[inline(always)]
fn stepped(word: &AtomicU64) -> &AtomicU64 {
    crate::step(Touch::Header, word);
    word
}

/// How often a record is looked at again that another thread has changed between two loads (promise d).
pub const LOOKS_MAX: u32 = 64;

/// The settled TID word of a record and the row version it speaks of. `None`: still locked, or changed at each look.
///
/// The second load of the header keeps the two together. A row version stored after the first load was stored under the
/// lock, so the second load sees the lock or a later word. Without it a row could be sought in a row version of before
/// its deletion.
#[inline(always)]
pub fn settled_version(table: &Table, record: RecordPtr) -> Option<(TidWord, usize)> {
    let (header, version) = words(table, record);
    match look(header, version, |word| !word.is_locked()) {
        found @ Some(_) => found,
        None => settle_version(header, version),
    }
}

/// As [`settled_version`], of a plain record: `None` if it is another, or changes.
#[inline(always)]
pub fn plain_version(table: &Table, record: RecordPtr) -> Option<(TidWord, usize)> {
    let (header, version) = words(table, record);
    look(header, version, TidWord::is_plain)
}

/// The TID word and the version word of a record.
#[inline(always)]
pub fn words<'t>(table: &Table, record: RecordPtr) -> (&'t AtomicU64, &'t AtomicU64) {
    let layout = &table.record_layout;
    // SAFETY: as in `tid_word` and `row_version`.
    unsafe { (layout.header_word(record, 0), layout.header_word(record, 1)) }
}

/// The TID word and the row version, if the word is as wanted, and is the same afterwards.
#[inline(always)]
fn look(header: &AtomicU64, version: &AtomicU64, wanted: impl Fn(TidWord) -> bool) -> Option<(TidWord, usize)> {
    // ORDERING: pairs with the release store of the TID word at install.
    let word = TidWord(stepped(header).load(Ordering::Acquire));
    // ORDERING: pairs with the release store of the version word at install; orders the second look after it.
    let row_version = stepped(version).load(Ordering::Acquire) as usize;
    (wanted(word) && stepped(header).load(Ordering::Relaxed) == word.0).then_some((word, row_version))
}

/// As [`settled_version`], after a look that met a commit.
#[cold]
#[inline(never)]
fn settle_version(header: &AtomicU64, version: &AtomicU64) -> Option<(TidWord, usize)> {
    for _ in 0..LOOKS_MAX {
        let word = settled_word(stepped(header))?;
        let row_version = stepped(version).load(Ordering::Acquire) as usize;
        if stepped(header).load(Ordering::Relaxed) == word.0 {
            return Some((word, row_version));
        }
    }
    None
}

/// The newest committed version of a record, for readers without a transaction: [`settled_version`] without its waits.
pub fn peek(table: &Table, record: RecordPtr) -> Peeked {
    let header = tid_word(&table.record_layout, record);
    // ORDERING: as in `settled` and `settled_version`.
    let word = TidWord(header.load(Ordering::Acquire));
    let row_version = row_version(&table.record_layout, record).load(Ordering::Acquire) as usize;
    crate::step(Touch::Header, header);
    if word.is_locked() || header.load(Ordering::Relaxed) != word.0 {
        return Peeked::Busy;
    }
    match (word.tid(), word.is_absent()) {
        (Tid::ZERO, _) => Peeked::NeverCommitted,
        (tid, true) => Peeked::Deleted(tid),
        (tid, false) => Peeked::Row(tid, record::row_of(row_version)),
    }
}

/// Waits, within [`Backoff`]'s bound (promise d), until the record is not locked. `None`: still locked.
#[inline]
pub fn settled(table: &Table, record: RecordPtr) -> Option<TidWord> {
    settled_word(tid_word(&table.record_layout, record))
}

#[inline]
fn settled_word(word: &AtomicU64) -> Option<TidWord> {
    // ORDERING: pairs with the release store of the TID word at install.
    let seen = TidWord(word.load(Ordering::Acquire));
    if seen.is_locked() { wait_until_settled(word) } else { Some(seen) }
}

#[cold]
#[inline(never)]
fn wait_until_settled(word: &AtomicU64) -> Option<TidWord> {
    let mut backoff = Backoff::new();
    while backoff.wait() {
        let seen = TidWord(word.load(Ordering::Acquire));
        if !seen.is_locked() {
            return Some(seen);
        }
    }
    None
}
