//! The access to a record: one small region that looks at its timestamps, leaves the transaction's own, and
//! reads the version.
//!
//! Two words of the record header are the protocol's own:
//!
//! ```text
//! 63                             1      0          63                                 1      0
//! |  timestamp of the last writer  | LOCKED |        |  newest timestamp of a reader      | SHARED |
//! ```
//! Access rules:
//! 1. Both change inside a region that found LOCKED clear, or while the changing thread has set LOCKED by
//!    compare-and-swap. It is set for the length of one access, where regions are absent or did not commit, and of one
//!    unlinking. A timestamp is replaced by a lower one only if no transaction for which it was set is active.
//! 2. A timestamp *conflicts* with a transaction if it is above the safe timestamp and not the transaction's own. It
//!    does not conflict if its transaction is known to have ended. A read passes if the writer's timestamp does not
//!    conflict, and raises the reader's to its own. A write passes if neither conflicts, and sets the writer's.
//! 3. SHARED: when a transaction read, another reader's timestamp was in its way. So others with lower
//!    timestamps may be active, and the end of the newest is not enough. A reader that shares does not pass as
//!    a writer. Where the newest reader's timestamp is not in the way, none is.
//! 4. While a writer's timestamp conflicts with all others, only its transaction changes the record's TID word and
//!    version word. While a reader's does, no transaction changes them. So a transaction that passes reads a complete
//!    version that is never undone.
//!
//! So an access needs no list of reads. A timestamp conflicts with others until its transaction has ended, and for a
//! while after.

use std::sync::Arc;

use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{TableId, WorkerId};
use seriatim_htm::{Access, Body, BodyError, NoLocks};
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, Fault, OpError, Reason, Table};

use super::clock::Clock;
use crate::shared::access_locks::{AccessLocks, AccessPurpose};
use crate::shared::gc;
use crate::shared::origin::Origin;
use crate::shared::record_header::{self, TidWord};

const LOCKED: u64 = 1;
const SHARED: u64 = 1;
/// A timestamp is in the way.
const IN_THE_WAY: u8 = 1;

/// The timestamp of the last writer of a record of `table`.
pub(super) fn written<'t>(table: &Table, record: RecordPtr) -> &'t AtomicU64 {
    record_header::own::<0>(&table.record_layout, record)
}

/// The timestamp of the last reader of a record of `table`.
pub(super) fn read<'t>(table: &Table, record: RecordPtr) -> &'t AtomicU64 {
    record_header::own::<1>(&table.record_layout, record)
}

/// The words of a record that is not linked yet.
pub(super) fn rest(table: &Table, record: RecordPtr, now: u64) {
    // ORDERING: linking publishes the record with release.
    written(table, record).store(now, Ordering::Relaxed);
    read(table, record).store(0, Ordering::Relaxed);
}

/// One access.
struct RecordAccess<'t> {
    written: &'t AtomicU64,
    read: &'t AtomicU64,
    tid_word: &'t AtomicU64,
    row_version: &'t AtomicU64,
    writes: bool,
    now: u64,
    safe: u64,
    /// Whether that was looked up for this access.
    is_fresh: bool,
    /// Values of the writer's and the reader's word whose transactions have ended.
    ended: [u64; 2],
    /// Canary: a write does not look at the reader's timestamp.
    overwrites_readers: bool,
}

impl RecordAccess<'_> {
    fn is_in_the_way(&self, timestamp: u64) -> bool {
        timestamp > self.safe && timestamp != self.now
    }

    /// Looks up what this access knows of other transactions.
    #[cold]
    fn refresh(&mut self, clock: &Clock) {
        (self.safe, self.is_fresh) = (clock.safe(), true);
        self.ended = [self.written, self.read].map(|word| {
            let timestamp = word.load(Ordering::Acquire);
            if has_ended(clock, timestamp) { timestamp } else { 0 }
        });
    }

    /// The reader's word after the access, if it passes.
    fn pass(&self, written: u64, read: u64) -> Option<u64> {
        let reader = read & !SHARED;
        let [ended_writer, ended_reader] = self.ended;
        let others = read != ended_reader && self.is_in_the_way(reader);
        let shares = reader == self.now && read != reader;
        match self.writes {
            _ if written != ended_writer && self.is_in_the_way(written) => None,
            true if self.overwrites_readers => Some(read),
            true => (!others && !shares).then_some(read),
            // The access must have looked up whether other transactions are running.
            false if others => self.is_fresh.then_some(reader.max(self.now) | SHARED),
            false if shares => Some(read),
            false => Some(self.now),
        }
    }
}

/// Whether no transaction is active for which this word of an unlocked record was set: it has no flag, and its
/// transaction has ended.
fn has_ended(clock: &Clock, word: u64) -> bool {
    word & SHARED == 0 && clock.has_ended(word)
}

// SAFETY: the words belong to a record that was found while the worker was online, which it is until the
// access has ended.
unsafe impl Body for RecordAccess<'_> {
    type Output = (TidWord, usize);

    #[inline]
    fn run<A: Access>(&mut self, access: &mut A) -> Result<(TidWord, usize), BodyError> {
        let written = access.load(self.written);
        if written & LOCKED != 0 {
            return Err(BodyError::Busy);
        }
        if !A::REGION {
            crate::step(Touch::Exchange, self.written);
            if !access.lock(self.written, written, written | LOCKED) {
                return Err(BodyError::Busy);
            }
            crate::step(Touch::Header, self.read);
        }
        let read = access.load(self.read);
        let Some(read_after) = self.pass(written, read) else {
            if !A::REGION {
                crate::step(Touch::Store, self.written);
                access.store(self.written, written);
            }
            return Err(BodyError::Refused(IN_THE_WAY));
        };
        let version = (TidWord(access.load(self.tid_word)), access.load(self.row_version) as usize);
        if read_after != read {
            crate::step(Touch::Store, self.read);
            access.store(self.read, read_after);
        }
        let after = if self.writes { self.now } else { written };
        if !A::REGION || after != written {
            crate::step(Touch::Store, self.written);
            access.store(self.written, after);
        }
        Ok(version)
    }
}

/// The timestamps of a worker's attempt. Those that it leaves at records are its locks, which its end
/// releases all at once.
#[derive(Debug)]
pub struct Timestamps {
    clock: Arc<Clock>,
    worker: WorkerId,
    /// Its own; zero before the first access.
    now: u64,
    /// The newest safe timestamp that the worker knows.
    safe: u64,
    /// Whether it has accessed a record.
    accessed: bool,
    /// Whether a timestamp was in the way, or its commit failed.
    conflicted: bool,
    /// Attempts in a row of which that is so.
    failures: u32,
}

impl Timestamps {
    pub(super) fn new(clock: Arc<Clock>, worker: WorkerId) -> Timestamps {
        clock.add(worker);
        Timestamps { clock, worker, now: 0, safe: 0, accessed: false, conflicted: false, failures: 0 }
    }

    /// The attempt's commit failed.
    pub(super) fn conflicted(&mut self) {
        self.conflicted = true;
    }

    /// The attempt's timestamp.
    #[inline]
    fn now(&mut self) -> u64 {
        if self.now == 0 {
            self.now = self.clock.begin(self.worker, self.failures >= self.clock.alone_after);
        }
        self.now
    }
}

impl Drop for Timestamps {
    fn drop(&mut self) {
        self.clock.end(self.worker);
        self.clock.give_turn_back(self.worker);
    }
}

impl AccessLocks for Timestamps {
    #[inline(always)]
    fn is_locked_at_access(_: TidWord) -> bool {
        true
    }

    #[inline]
    fn look(
        &mut self,
        core: &mut Core,
        table: &Table,
        record: RecordPtr,
        access: AccessPurpose,
    ) -> Result<(TidWord, usize), OpError> {
        let (now, safe) = (self.now(), self.safe);
        let mut touch = RecordAccess {
            written: written(table, record),
            read: read(table, record),
            tid_word: record_header::tid_word(&table.record_layout, record),
            row_version: record_header::row_version(&table.record_layout, record),
            writes: access == AccessPurpose::Writing,
            now,
            safe,
            is_fresh: false,
            ended: [0; 2],
            overwrites_readers: core.injects(Fault::OverwriteReaders),
        };
        let mut found = core.agent.run(&mut core.outside, &NoLocks, &mut touch);
        if found.is_err_and(|refused| !refused.is_busy()) {
            // The worker's knowledge may be outdated.
            touch.refresh(&self.clock);
            self.safe = touch.safe;
            found = core.agent.run(&mut core.outside, &NoLocks, &mut touch);
        }
        self.accessed = true;
        found.map_err(|_| OpError::execute(Reason::RecordLocked))
    }

    /// It is linked with the attempt as its writer.
    fn linking(&mut self, table: &Table, record: RecordPtr) {
        rest(table, record, self.now());
    }

    fn failed(&mut self, _: &Core, _: TableId, _: RecordPtr, _: bool) {
        self.conflicted();
    }

    /// The held records are not listed, so [`AccessLocks::held`] returns none.
    fn holds_any(&self) -> bool {
        self.accessed
    }

    fn release(&mut self, _: &Core) {
        self.failures = if self.conflicted { self.failures + 1 } else { 0 };
        self.conflicted = false;
        self.accessed = false;
        if self.now != 0 {
            self.now = 0;
            self.clock.end(self.worker);
            self.clock.give_turn_back(self.worker);
        }
    }
}

/// Entries remember nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Entry;

impl Origin for Entry {
    type Locks = Timestamps;
}

/// Unlinking, which is a write: of a record that no transaction under way has read or written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unlinking<'c>(pub(super) &'c Clock);

impl gc::Claim for Unlinking<'_> {
    fn take(&self, core: &Core, table: &Table, record: RecordPtr) -> Option<TidWord> {
        let word = written(table, record);
        let before = word.load(Ordering::Acquire);
        if before & LOCKED != 0 {
            return None;
        }
        crate::step(Touch::Exchange, word);
        let exchange = || word.compare_exchange(before, before | LOCKED, Ordering::SeqCst, Ordering::Relaxed);
        core.htm.outside(exchange).ok()?;
        let reader = read(table, record).load(Ordering::Acquire);
        let safe = self.0.safe();
        if [before, reader].into_iter().any(|word| word > safe && !has_ended(self.0, word)) {
            crate::step(Touch::Store, word);
            word.store(before, Ordering::Release);
            return None;
        }
        Some(TidWord(record_header::tid_word(&table.record_layout, record).load(Ordering::Acquire)))
    }

    fn give(&self, _: &Core, table: &Table, record: RecordPtr, tid_word: TidWord) {
        record_header::tid_word(&table.record_layout, record).store(tid_word.0, Ordering::Release);
        let word = written(table, record);
        crate::step(Touch::Store, word);
        // ORDERING: pairs with the acquire of the next access.
        word.store(word.load(Ordering::Relaxed) & !LOCKED, Ordering::Release);
    }
}
