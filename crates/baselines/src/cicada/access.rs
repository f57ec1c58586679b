//! Accesses to records, with the timestamp that an attempt draws at the first one.

use std::sync::Arc;

use seriatim_base::word::{Ordering, fence};
use seriatim_base::{Backoff, Epoch, WorkerId};
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, OpError, Reason, Table};

use super::clock::Clock;
use super::snapshot::UnderWay;
use super::versions::{self, Visible, Words};
use crate::shared::absences::Absences;
use crate::shared::access_locks::{AccessLocks, AccessPurpose};
use crate::shared::gc;
use crate::shared::optimistic::LockBit;
use crate::shared::origin::Origin;
use crate::shared::record_header::TidWord;

/// The timestamp of a worker's attempt.
#[derive(Debug)]
pub struct Timestamp {
    clock: Arc<Clock>,
    worker: WorkerId,
    wait_steps: u32,
    /// Zero before the first access.
    at: u64,
    /// The epoch that was current before it was drawn.
    since: Epoch,
    /// The last timestamp of the worker. It is passed before another worker gets the number.
    last: u64,
    under_way: Arc<UnderWay>,
}

impl Drop for Timestamp {
    fn drop(&mut self) {
        if self.last > 0 {
            self.clock.pass(self.last);
            self.under_way.end(self.worker);
        }
    }
}

impl Timestamp {
    pub(super) fn new(clock: Arc<Clock>, under_way: Arc<UnderWay>, worker: WorkerId, wait_steps: u32) -> Timestamp {
        under_way.add(worker);
        Timestamp { clock, worker, wait_steps, at: 0, since: Epoch(0), last: 0, under_way }
    }

    /// The attempt's timestamp, and the epoch that was current before it was drawn. A transaction with a higher
    /// timestamp commits in that epoch or later.
    #[inline]
    pub(super) fn draw(&mut self, core: &Core) -> (u64, Epoch) {
        if self.at == 0 {
            self.since = core.epochs.current();
            self.under_way.begin(self.worker);
            self.at = self.clock.draw(self.worker, self.last);
            self.under_way.drawn(self.worker, self.at);
            self.last = self.at;
        }
        (self.at, self.since)
    }

    /// The last timestamp of the worker.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The attempt's timestamp, if it has one.
    #[cfg(all(test, not(loom)))]
    pub(super) fn timestamp(&self) -> u64 {
        self.at
    }

    /// Draws another timestamp, above the last one and above `above`. The attempt is not decided yet, and its
    /// reads will be validated again.
    pub(super) fn redraw(&mut self, above: u64) -> u64 {
        self.at = self.clock.draw(self.worker, self.last.max(above));
        self.last = self.at;
        self.at
    }

    /// Passes the timestamp, before the attempt commits or gets an answer.
    pub(super) fn pass(&self) {
        self.clock.pass(self.at);
    }

    /// The bound of a wait for a pending version.
    pub(super) fn patience(&self) -> Backoff {
        Backoff::bounded(self.wait_steps)
    }
}

impl AccessLocks for Timestamp {
    #[inline]
    fn look(
        &mut self,
        core: &mut Core,
        table: &Table,
        record: RecordPtr,
        access: AccessPurpose,
    ) -> Result<(TidWord, usize), OpError> {
        let (at, since) = self.draw(core);
        let words = Words::of(&table.record_layout, record);
        let mut backoff = self.patience();
        loop {
            return match words.sight(at, since) {
                Visible::Held | Visible::Deleted(_) if backoff.wait() => continue,
                Visible::Held | Visible::Deleted(_) => Err(OpError::execute(Reason::RecordLocked)),
                Visible::Newest(word, version) => Ok((word.unlocked(), version)),
                Visible::Older(tid, version, _) if access == AccessPurpose::Reading => {
                    Ok((TidWord::committed(tid, false, false), version))
                }
                Visible::OlderDeletion(tid, _) if access == AccessPurpose::Reading => {
                    Ok((TidWord::committed(tid, true, false), 0))
                }
                Visible::None(_) if access == AccessPurpose::Reading => Ok((TidWord::PLACEHOLDER, 0)),
                Visible::Older(..) | Visible::OlderDeletion(..) | Visible::None(_) | Visible::Lost => {
                    Err(OpError::execute(Reason::RecordChanged))
                }
            };
        }
    }

    fn release(&mut self, _: &Core) {
        if self.at != 0 {
            self.at = 0;
            self.under_way.end(self.worker);
        }
    }
}

/// The field of an attempt's entries. Those of reads have the bytes of a row of their table, to find the headers of
/// versions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Entry {
    pub(super) row: u32,
}

impl Origin for Entry {
    type Locks = Timestamp;

    #[inline(always)]
    fn of_read(self, table: &Table) -> Entry {
        Entry { row: table.record_layout.row as u32 }
    }

    #[inline(always)]
    fn prepare(table: &Table, record: RecordPtr) {
        versions::rest(table, record);
    }
}

/// Unlinks under the lock bit. A transaction that has seen that the record has no row precedes one that links
/// the key again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unlinking<'a>(pub(super) &'a Absences);

impl gc::Claim for Unlinking<'_> {
    fn take(&self, core: &Core, table: &Table, record: RecordPtr) -> Option<TidWord> {
        let word = LockBit.take(core, table, record)?;
        // ORDERING: a transaction that raises the rts after this finds the record locked.
        fence(Ordering::SeqCst);
        // A record with a row is not unlinked.
        if word.is_absent() {
            let rts = versions::seen(&table.record_layout, record).load(Ordering::Acquire);
            self.0.rely(core.local.worker(), table.id, rts);
        }
        Some(word)
    }

    fn give(&self, core: &Core, table: &Table, record: RecordPtr, word: TidWord) {
        LockBit.give(core, table, record, word);
    }
}
