//! Gap locks: a scan holds the gap word of every leaf it looked at, shared; an insert links only where nobody else does.
//!
//! Why an insert need not keep a gap lock: the record it links is exclusively locked until the end, so a scan that comes later
//! meets it and aborts. Why the two cannot miss each other: the insert looks at the gap word with the leaf latched; the scan
//! takes the gap word first and then checks that the leaf's word is unlatched and unchanged.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use seriatim_store::{Observer, RecordPtr};
use seriatim_txn::{Core, Table};

use super::lock::{self, Locks};
use crate::shared::head::{self, HeaderWord};
use crate::shared::sweep::Claim;

/// Watches the inserts of an attempt that holds `locks`.
pub(super) struct Gaps<'a> {
    locks: &'a mut Locks,
    /// Whether the attempt holds the gap of the leaf that was split.
    held: bool,
}

impl Gaps<'_> {
    pub(super) fn new(locks: &mut Locks) -> Gaps<'_> {
        Gaps { locks, held: false }
    }
}

impl Observer for Gaps<'_> {
    fn admit(&mut self, gap: &AtomicU64, _: &AtomicU64) -> bool {
        let own = u64::from(self.locks.holds(gap));
        // ORDERING: partner of the fence between a scan's gap lock and its look at the leaf's word: the leaf was latched before.
        fence(Ordering::SeqCst);
        gap.load(Ordering::Relaxed) == own
    }

    fn inherit(&mut self, gap: &AtomicU64) -> u64 {
        self.held = self.locks.holds(gap);
        u64::from(self.held)
    }

    fn created(&mut self, _: &AtomicU64, _: u64, _: &AtomicU64, _: u64, gap: &AtomicU64) {
        // Ours from the start, if the old leaf's gap was; others may have come since.
        if self.held {
            self.locks.note(gap, false);
        }
    }
}

/// Unlinking under the record's lock word. A leaf whose gap a transaction holds keeps its last record until that is let go.
pub(super) struct GapClaim;

impl Claim for GapClaim {
    fn take(&self, _: &Core, table: &Table, record: RecordPtr) -> Option<HeaderWord> {
        let taken = lock::try_exclusive(lock::of(table, record), 0);
        taken.then(|| HeaderWord(head::header(&table.shape, record).load(Ordering::Acquire)))
    }

    fn give(&self, _: &Core, table: &Table, record: RecordPtr, word: HeaderWord) {
        head::header(&table.shape, record).store(word.0, Ordering::Release);
        lock::of(table, record).store(0, Ordering::Release);
    }
}
