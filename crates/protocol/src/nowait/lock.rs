//! Reader–writer lock words of records and gaps, and the list of those an attempt holds.
//!
//! ```text
//! 63      62                         0
//! | WRITER | readers                  |     a gap word that is GAP_CLOSED has WRITER set and is never locked
//! ```
//! No-wait: a lock that is not free is a reason to abort, so no cycle of waits can form.

use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_htm::Htm;
use seriatim_memory::{CountedVec, Local, OutOfMemory};
use seriatim_store::RecordPtr;
use seriatim_txn::{RecordShape, Table};

use crate::shared::own::OwnIndex;

pub(super) const WRITER: u64 = 1 << 63;

/// The lock word of a record: the third of its head.
#[inline]
pub(super) fn lock_word<'t>(shape: &RecordShape, record: RecordPtr) -> &'t AtomicU64 {
    crate::step();
    // SAFETY: as the header word of `shared::head`.
    unsafe { shape.head_word(record, 2) }
}

#[inline]
fn try_shared(word: &AtomicU64) -> bool {
    let mut now = word.load(Ordering::Relaxed);
    while now & WRITER == 0 {
        // ORDERING: acquire pairs with the release of the last writer; SeqCst for the gaps, see `Gaps::admit`.
        match word.compare_exchange_weak(now, now + 1, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(other) => now = other,
        }
    }
    false
}

/// Takes a word exclusively from `readers` readers: zero, or one that is oneself.
#[inline]
pub(super) fn try_exclusive(word: &AtomicU64, readers: u64) -> bool {
    word.compare_exchange(readers, WRITER, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

#[derive(Clone, Copy, Debug)]
struct Held {
    word: *const AtomicU64,
    exclusive: bool,
}

/// The locks an attempt holds; released together at its end (strict two-phase locking).
#[derive(Debug)]
pub(super) struct Locks {
    held: CountedVec<Held>,
    own: OwnIndex,
    /// Regions read gap words: changes go through it.
    htm: Htm,
}

// SAFETY: the pointers are only followed by the worker that holds the locks; the worker moves between threads as a whole.
unsafe impl Send for Locks {}

impl Locks {
    pub(super) fn new(htm: Htm, local: &Local) -> Locks {
        Locks { held: local.counted(256), own: OwnIndex::new(local), htm }
    }

    /// Makes room for one lock more, before it is taken.
    #[inline(always)]
    pub(super) fn reserve(&mut self) -> Result<(), OutOfMemory> {
        self.held.reserve_one()
    }

    /// Gives back what a large transaction made it take: the worker rests.
    pub(super) fn rest(&mut self) {
        self.held.rest();
        self.own.rest();
    }

    #[inline]
    fn find(&self, word: &AtomicU64) -> Option<usize> {
        self.own.find(std::ptr::from_ref(word) as usize, |e| self.held[e].word as usize)
    }

    /// Notes a lock that was taken.
    pub(super) fn note(&mut self, word: &AtomicU64, exclusive: bool) {
        let held = &self.held;
        self.own.push(std::ptr::from_ref(word) as usize, |e| held[e].word as usize);
        self.held.push(Held { word, exclusive });
    }

    /// Whether the attempt holds this word, in whichever mode.
    #[inline]
    pub(super) fn holds(&self, word: &AtomicU64) -> bool {
        self.find(word).is_some()
    }

    /// Takes a word shared, unless it is held already.
    #[inline]
    #[must_use]
    pub(super) fn shared(&mut self, word: &AtomicU64) -> bool {
        if self.find(word).is_some() {
            return true;
        }
        let taken = self.htm.outside(|| try_shared(word));
        if taken {
            self.note(word, false);
        }
        taken
    }

    /// Takes a word exclusively, upgrading a shared lock if no other reader is there.
    #[inline]
    #[must_use]
    pub(super) fn exclusive(&mut self, word: &AtomicU64) -> bool {
        match self.find(word) {
            Some(at) if self.held[at].exclusive => true,
            Some(at) => {
                let upgraded = try_exclusive(word, 1);
                self.held[at].exclusive |= upgraded;
                upgraded
            }
            None => {
                let taken = try_exclusive(word, 0);
                if taken {
                    self.note(word, true);
                }
                taken
            }
        }
    }

    /// Releases every lock.
    pub(super) fn release_all(&mut self) {
        for held in self.held.iter() {
            // SAFETY: a locked record is not unlinked and a leaf whose gap is held is not retired; and we are online.
            let word = unsafe { &*held.word };
            if held.exclusive {
                // ORDERING: pairs with the acquire of the next holder.
                word.store(0, Ordering::Release);
            } else {
                self.htm.outside(|| word.fetch_sub(1, Ordering::Release));
            }
        }
        self.held.clear();
        self.own.clear();
    }
}

/// The lock word of a record of `table`, for messages and claims.
#[inline]
pub(super) fn of<'t>(table: &Table, record: RecordPtr) -> &'t AtomicU64 {
    lock_word(&table.shape, record)
}
