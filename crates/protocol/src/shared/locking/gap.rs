//! Gap locks: a scan holds the gap word of every leaf that it read, shared. An insert links only where no
//! other transaction does.
//!
//! Why an insert need not keep a gap lock: the record that it links is exclusively locked until the end. A later scan
//! finds it locked. The two cannot miss each other. The insert checks the gap word while it holds the leaf's latch. The
//! scan takes the gap word first, and then checks that the leaf's word is unlatched and unchanged.

use seriatim_base::word::{AtomicU64, Ordering, fence};
use seriatim_store::{Observer, RecordPtr};
use seriatim_txn::{Core, Table};

use super::lock::{self, Locks};
use crate::shared::gc::Claim;
use crate::shared::record_header::{self, TidWord};

/// Watches the inserts of an attempt that holds `locks`.
pub(super) struct Gaps<'a, const WAITS: bool> {
    locks: &'a mut Locks<WAITS>,
    /// Whether the attempt holds the gap of the leaf that was split.
    held: bool,
    /// The gap that others hold, if the insert was refused for that.
    pub(super) kept_out: Option<*const AtomicU64>,
}

impl<const WAITS: bool> Gaps<'_, WAITS> {
    pub(super) fn new(locks: &mut Locks<WAITS>) -> Gaps<'_, WAITS> {
        Gaps { locks, held: false, kept_out: None }
    }
}

impl<const WAITS: bool> Observer for Gaps<'_, WAITS> {
    fn admit(&mut self, gap: &AtomicU64, _: &AtomicU64) -> bool {
        // ORDERING: partner of the fence in `NodeVersion::still_valid`, between a lock of the gap and a look at the
        // latch: the leaf was latched before.
        fence(Ordering::SeqCst);
        let admitted = self.locks.admits(gap);
        self.kept_out = (!admitted).then_some(gap);
        admitted
    }

    fn inherit(&mut self, gap: &AtomicU64) -> u64 {
        self.held = self.locks.holds(gap);
        if self.held { self.locks.joined() } else { 0 }
    }

    fn created(&mut self, _: &AtomicU64, _: u64, _: &AtomicU64, _: u64, gap: &AtomicU64) {
        // Ours from the start, if the old leaf's gap was; others may have come since.
        if self.held {
            self.locks.note(gap, false);
        }
    }
}

/// Unlinking under the record's lock word. A leaf whose gap a transaction holds keeps its last record until
/// the gap is released.
pub struct GapClaim;

impl Claim for GapClaim {
    fn take(&self, _: &Core, table: &Table, record: RecordPtr) -> Option<TidWord> {
        let taken = lock::claim(lock::of(table, record));
        taken.then(|| TidWord(record_header::tid_word(&table.record_layout, record).load(Ordering::Acquire)))
    }

    fn give(&self, _: &Core, table: &Table, record: RecordPtr, word: TidWord) {
        record_header::tid_word(&table.record_layout, record).store(word.0, Ordering::Release);
        lock::give(lock::of(table, record));
    }
}
