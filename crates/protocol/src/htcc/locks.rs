//! Locks of hot records, taken when they are accessed, and the word that holds them.
//!
//! The protocol's own word of a record header:
//!
//! ```text
//! 63       62       48 47      32 31         0
//! | WRITER | readers  | period   | failures  |
//! ```
//! Access rules:
//! 1. WRITER and readers change by atomic read-modify-write. They count for hot records only. A transaction that has
//!    got the lock checks the TID word, and releases the lock if the record is not hot.
//! 2. Only its WRITER changes the TID word of a hot record. So the word does not change for holders of the
//!    lock, in either mode, until their end. A transaction that saw the record before it became hot, or cold,
//!    finds another TID word.
//! 3. Failures of a period are counted by the transactions that fail ([`Heat`]).
//!
//! All waits are bounded: an attempt that does not get a lock within a number of steps ends, which also breaks
//! deadlocks (§3.2: no-wait).

use std::sync::Arc;

use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{Backoff, TableId, Tid};
use seriatim_memory::{CountedVec, Local};
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, Fault, OpError, Reason, RecordLayout, Runs, Table};

use super::heat::{self, Heat};
use crate::shared::access_locks::{AccessLocks, AccessPurpose};
use crate::shared::gc::Claim;
use crate::shared::optimistic::LockBit;
use crate::shared::origin::{Origin, Run};
use crate::shared::own::OwnIndex;
use crate::shared::record;
use crate::shared::record_header::{self, LOOKS_MAX, TidWord};
use crate::shared::table_ref::TableRef;

const WRITER: u64 = 1 << 63;
const READER: u64 = 1 << 48;
const READERS: u64 = WRITER - READER;

/// The lock word of a record.
#[inline]
pub(super) fn word<'t>(record_layout: &RecordLayout, record: RecordPtr) -> &'t AtomicU64 {
    record_header::own::<0>(record_layout, record)
}

/// The lock word of a new record.
pub(super) fn rest(table: &Table, record: RecordPtr) {
    // ORDERING: linking publishes the record with release.
    word(&table.record_layout, record).store(0, Ordering::Relaxed);
}

/// Whether the lock is held.
#[cfg(test)]
pub(super) fn is_held(table: &Table, record: RecordPtr) -> bool {
    word(&table.record_layout, record).load(Ordering::Relaxed) & (WRITER | READERS) != 0
}

/// Changes the word as `step` says; `false` if that is not at all.
#[inline]
fn turn(word: &AtomicU64, step: impl Fn(u64) -> Option<u64>) -> bool {
    crate::step(Touch::Exchange, word);
    // ORDERING: acquire pairs with the release of the last holder.
    word.try_update(Ordering::Acquire, Ordering::Relaxed, step).is_ok()
}

fn try_shared(word: &AtomicU64) -> bool {
    turn(word, |now| (now & WRITER == 0 && now & READERS != READERS).then(|| now + READER))
}

pub(super) fn try_exclusive(word: &AtomicU64) -> bool {
    turn(word, |now| (now & (WRITER | READERS) == 0).then_some(now | WRITER))
}

/// The upgrade of one of the readers.
fn try_upgrade(word: &AtomicU64) -> bool {
    turn(word, |now| (now & READERS == READER).then(|| (now - READER) | WRITER))
}

pub(super) fn let_go(word: &AtomicU64, exclusive: bool) {
    crate::step(Touch::Exchange, word);
    // ORDERING: pairs with the acquire of the next holder.
    word.fetch_sub(if exclusive { WRITER } else { READER }, Ordering::Release);
}

#[derive(Clone, Copy, Debug)]
struct Held {
    table: TableRef,
    record: RecordPtr,
    exclusive: bool,
    /// The attempt made the record hot for itself: it is cold when the lock is released.
    cools: bool,
}

impl Held {
    fn layout<'t>(&self) -> &'t RecordLayout {
        &self.table.get().record_layout
    }

    /// The TID word and the row version of the record: rule 2.
    fn version(&self) -> (TidWord, usize) {
        let tid_word = TidWord(record_header::tid_word(self.layout(), self.record).load(Ordering::Acquire));
        (tid_word, record_header::row_version(self.layout(), self.record).load(Ordering::Acquire) as usize)
    }
}

/// The locks that an attempt holds, and the means of its worker to take them.
#[derive(Debug)]
pub struct Locks {
    held: CountedVec<Held>,
    own: OwnIndex,
    heat: Arc<Heat>,
    /// Tables that were accessed, by id: for failures of entries that only know that.
    tables: Vec<Option<TableRef>>,
}

// SAFETY: records are followed while online only.
unsafe impl Send for Locks {}

impl Locks {
    pub(super) fn new(local: &Local, heat: Arc<Heat>) -> Locks {
        Locks { held: local.counted(64), own: OwnIndex::new(local), heat, tables: Vec::new() }
    }

    #[inline]
    fn find(&self, record: RecordPtr) -> Option<usize> {
        self.own.find(record.addr(), |at| self.held[at].record.addr())
    }

    #[inline]
    fn know(&mut self, table: &Table) {
        if self.tables.get(table.id.index()).is_none_or(Option::is_none) {
            self.meet(table);
        }
    }

    #[cold]
    fn meet(&mut self, table: &Table) {
        let at = table.id.index();
        self.tables.resize(self.tables.len().max(at + 1), None);
        self.tables[at] = Some(table.into());
    }

    /// Tries to get a lock within the bound. A transaction that had to wait counts as contention.
    fn get(&self, core: &Core, table: &Table, record: RecordPtr, step: fn(&AtomicU64) -> bool) -> bool {
        let word = word(&table.record_layout, record);
        if step(word) {
            return true;
        }
        let mut backoff = Backoff::bounded(self.heat.lock_steps());
        while backoff.wait() {
            crate::step(Touch::Header, word);
            if step(word) {
                self.heat.failed(core, table, record);
                return true;
            }
        }
        false
    }

    /// Locks a record that was found hot. If it is not any more, it is not locked either.
    #[cold]
    fn lock(
        &mut self,
        core: &Core,
        table: &Table,
        record: RecordPtr,
        access: AccessPurpose,
    ) -> Result<(TidWord, usize), OpError> {
        self.held.reserve_one().map_err(record::full)?;
        let exclusive = access == AccessPurpose::Writing;
        if !self.get(core, table, record, if exclusive { try_exclusive } else { try_shared }) {
            return Err(OpError::execute(Reason::RecordLocked));
        }
        // Another worker may have made it cold, deleted or unlinked it meanwhile, and commit it without the lock.
        let found = record_header::settled_version(table, record);
        if found.is_some_and(|(tid_word, _)| tid_word.is_hot()) {
            self.hold(Held { table: table.into(), record, exclusive, cools: false });
        } else {
            let_go(word(&table.record_layout, record), exclusive);
        }
        found.ok_or(OpError::execute(Reason::RecordLocked))
    }

    /// Locks a record that was found cold and makes it hot for as long, unless others change it meanwhile.
    fn lock_cold(&mut self, core: &Core, table: &Table, record: RecordPtr) -> Result<(), OpError> {
        self.held.reserve_one().map_err(record::full)?;
        let lock = word(&table.record_layout, record);
        if !self.get(core, table, record, try_exclusive) {
            return Ok(());
        }
        if !heat::heat(&core.htm, table, record) {
            let_go(lock, true);
            return Ok(());
        }
        self.hold(Held { table: table.into(), record, exclusive: true, cools: true });
        Ok(())
    }

    fn hold(&mut self, lock: Held) {
        let Locks { held, own, .. } = self;
        own.push(lock.record.addr(), |at| held[at].record.addr());
        held.push(lock);
    }

    /// A record that is locked already.
    fn again(
        &mut self,
        core: &Core,
        table: &Table,
        at: usize,
        access: AccessPurpose,
    ) -> Result<(TidWord, usize), OpError> {
        let Held { record, exclusive, .. } = self.held[at];
        if access == AccessPurpose::Writing && !exclusive {
            if !self.get(core, table, record, try_upgrade) {
                return Err(OpError::execute(Reason::RecordLocked));
            }
            self.held[at].exclusive = true;
        }
        Ok(self.held[at].version())
    }
}

impl AccessLocks for Locks {
    #[inline(always)]
    fn is_locked_at_access(word: TidWord) -> bool {
        word.is_hot()
    }

    #[inline(always)]
    fn is_removed(word: TidWord) -> bool {
        word.is_removed() && !word.is_hot()
    }

    #[inline]
    fn look(
        &mut self,
        core: &mut Core,
        table: &Table,
        record: RecordPtr,
        access: AccessPurpose,
    ) -> Result<(TidWord, usize), OpError> {
        self.know(table);
        if !self.held.is_empty()
            && let Some(at) = self.find(record)
        {
            return self.again(core, table, at, access);
        }
        let locked = OpError::execute(Reason::RecordLocked);
        let (tid_word, row_version) = record_header::settled_version(table, record).ok_or(locked)?;
        let is_skipped = access == AccessPurpose::Reading && core.injects(Fault::ReadHotUnlocked);
        if tid_word.is_hot() && !is_skipped {
            return self.lock(core, table, record, access);
        }
        Ok((tid_word, row_version))
    }

    /// Two versions with and without the mark differ by the lock: rule 2.
    #[inline(always)]
    fn is_same_version(_: TidWord, _: TidWord) -> bool {
        false
    }

    /// Makes the record hot, if it is not, until the attempt ends, and takes its lock.
    #[cold]
    fn reserve(&mut self, core: &mut Core, table: &Table, record: RecordPtr) -> Result<Option<TidWord>, OpError> {
        if core.injects(Fault::ReserveNothing) {
            return Ok(None);
        }
        self.know(table);
        let busy = OpError::execute(Reason::RecordLocked);
        for _ in 0..LOOKS_MAX {
            if let Some(at) = self.find(record) {
                match self.again(core, table, at, AccessPurpose::Writing) {
                    Err(error) if error == busy => continue,
                    locked => return locked.map(|_| None),
                }
            }
            match record_header::settled(table, record) {
                Some(word) if word.is_absent() => return Ok(None),
                // It may be cold again when it is locked: then it is not in the list.
                Some(word) if word.is_hot() => match self.lock(core, table, record, AccessPurpose::Writing) {
                    Err(error) if error != busy => return Err(error),
                    _ => {}
                },
                Some(_) => self.lock_cold(core, table, record)?,
                None => {}
            }
        }
        Err(busy)
    }

    #[cold]
    fn failed(&mut self, core: &Core, table: TableId, record: RecordPtr, might_pass: bool) {
        // A table into which this attempt has only inserted: its records are not hot before they are committed.
        let Some(table) = self.tables.get(table.index()).copied().flatten() else { return };
        // It is not known whether the failure was necessary, so it is not counted for the record.
        if !might_pass || table.get().updatable.is_empty() {
            self.heat.failed(core, table.get(), record);
        }
    }

    fn held(&self) -> impl Iterator<Item = (RecordPtr, Tid)> {
        self.held.iter().map(|held| (held.record, held.version().0.tid()))
    }

    fn release_unless(&mut self, needed: impl Fn(RecordPtr) -> bool) {
        for at in (0..self.held.len()).rev() {
            let held = self.held[at];
            if needed(held.record) || held.cools {
                continue;
            }
            let last = self.held.len() - 1;
            self.own.remove(at, held.record.addr(), self.held[last].record.addr());
            self.held.swap(at, last);
            self.held.pop();
            let_go(word(held.layout(), held.record), held.exclusive);
        }
    }

    #[inline]
    fn release(&mut self, core: &Core) {
        for held in self.held.iter() {
            if held.cools {
                heat::cool_locked(&core.htm, held.table.get(), held.record);
            }
            let_go(word(held.layout(), held.record), held.exclusive);
        }
        self.held.clear();
        self.own.clear();
    }

    fn rest(&mut self) {
        self.held.rest();
        self.own.rest();
    }
}

/// The origin of entries: the run to which they belong. Records that the attempt links have a lock word.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Entry(Run);

impl Origin for Entry {
    type Locks = Locks;

    const CARRIED: bool = true;

    fn of(operation: u16, iteration: u32) -> Entry {
        Entry(Run::of(operation, iteration))
    }

    fn is_of(self, runs: Runs) -> bool {
        self.0.is_of(runs)
    }

    fn run(self) -> Option<(u16, u32)> {
        self.0.run()
    }

    #[inline(always)]
    fn prepare(table: &Table, record: RecordPtr) {
        rest(table, record);
    }
}

/// Looking at deleted records under the lock bit, and of hot ones, which were born again, under their lock as well.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HotClaim;

impl Claim for HotClaim {
    fn take(&self, core: &Core, table: &Table, record: RecordPtr) -> Option<TidWord> {
        let tid_word = record_header::tid_word(&table.record_layout, record);
        let lock = word(&table.record_layout, record);
        let hot = TidWord(tid_word.load(Ordering::Relaxed)).is_hot();
        if hot && !try_exclusive(lock) {
            return None;
        }
        let seen = TidWord(tid_word.load(Ordering::Relaxed));
        // A record that has become hot meanwhile is not to be touched without its lock; one that has become
        // cold is free of it.
        let exchange = || tid_word.compare_exchange(seen.0, seen.locked().0, Ordering::AcqRel, Ordering::Relaxed);
        let taken = seen.is_hot() == hot && !seen.is_locked() && core.htm.outside(exchange).is_ok();
        if hot && !taken {
            let_go(lock, true);
        }
        taken.then_some(seen)
    }

    fn give(&self, core: &Core, table: &Table, record: RecordPtr, tid_word: TidWord) {
        LockBit.give(core, table, record, tid_word);
        // A hot record has a row: it is not unlinked, and stays what it was.
        if tid_word.is_hot() {
            let_go(word(&table.record_layout, record), true);
        }
    }
}
