//! Records that have left an index, although the deletion of their rows is not durable yet or may be later than an open
//! snapshot.
//!
//! A deleted record leaves its index a grace period after the deletion, not when that is durable. Otherwise every scan
//! of the head of a queue would walk over the deletions of two or three epochs. Should the log stop before, or the disk
//! fall behind, readers of the durable epoch find the rows of that epoch here. So do readers of eventual snapshots
//! ([`Snapshots`](crate::Snapshots)), which begin after rows were deleted that they see. Memory keeps such records and
//! their versions for as long ([`Memory::keep_versions`](seriatim_memory::Memory::keep_versions),
//! [`Memory::keep_snapshots`](seriatim_memory::Memory::keep_snapshots)); nothing is noted where it keeps none.
//!
//! Order: a record is noted before it is unlinked, so a reader that misses it in its index, and looks here
//! then, finds it.
//!
//! There may be hundreds of thousands when the log stops, and each key that a snapshot misses is looked up. So
//! readers have a map of a table's notes by key, rebuilt when a list has changed since: lists do not change
//! while nothing commits. Readers of eventual snapshots run beside commits. They search the notes themselves,
//! and only in lists that have one for them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{CacheAligned, Epoch, TableId, Tid, WorkerId};
use seriatim_catalog::{Key, KeyBuf};
use seriatim_memory::Memory;
use seriatim_store::{RecordPtr, read_key};

use crate::Table;

/// The undurable deletions of a database, by the worker that unlinked them. The lock of a list is its worker's alone
/// until the durable epoch is read.
#[derive(Debug)]
pub struct UndurableDeletions {
    lists: Box<[CacheAligned<Noted>]>,
    by_key: Mutex<HashMap<TableId, ByKey>>,
}

/// A worker's.
#[derive(Debug, Default)]
struct Noted {
    /// No note of it is of a later epoch.
    newest: AtomicU64,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    entries: VecDeque<UndurableDeletion>,
    /// Rises with each change.
    changes: u64,
}

/// The notes of one table by key.
#[derive(Debug)]
struct ByKey {
    /// Those of later epochs are in it.
    durable: Epoch,
    /// The number of changes of each list when the map was built.
    changes: Vec<u64>,
    entries: HashMap<KeyBuf, Vec<UndurableDeletion>>,
}

#[derive(Clone, Copy, Debug)]
struct UndurableDeletion {
    table: TableId,
    record: RecordPtr,
    /// The TID of the deletion.
    tid: Tid,
}

/// Notes for which a list that is forgotten keeps room.
const ENTRIES_KEPT: usize = 1024;

impl UndurableDeletions {
    /// None, for the workers of this memory.
    pub(crate) fn new(memory: &Memory) -> UndurableDeletions {
        let lists = (0..memory.workers_max()).map(|_| CacheAligned::default()).collect();
        UndurableDeletions { lists, by_key: Mutex::default() }
    }

    fn list(&self, worker: WorkerId) -> MutexGuard<'_, List> {
        self.lists[usize::from(worker.0)].list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a record that `worker` is about to unlink, whose row was deleted under `tid`, and forgets records
    /// whose deletion is durable.
    pub(crate) fn note(&self, worker: WorkerId, table: &Table, record: RecordPtr, tid: Tid, durable: Epoch) {
        let list = &mut *self.list(worker);
        while list.entries.front().is_some_and(|entry| entry.tid.epoch() <= durable) {
            list.entries.pop_front();
        }
        list.entries.push_back(UndurableDeletion { table: table.id, record, tid });
        // ORDERING: sequenced before the release that unlinks the record; a reader that misses it has acquired that.
        self.lists[usize::from(worker.0)].newest.fetch_max(tid.epoch().0, Ordering::Relaxed);
        list.changes += 1;
    }

    /// Forgets the records of `worker` whose deletions are durable.
    pub(crate) fn forget(&self, worker: WorkerId, durable: Epoch) {
        let list = &mut *self.list(worker);
        list.entries.retain(|entry| entry.tid.epoch() > durable);
        // A large deletion may have been noted row by row.
        list.entries.shrink_to(ENTRIES_KEPT);
        list.changes += 1;
    }

    /// Takes back the last note of `worker`: the record stayed.
    pub(crate) fn forget_last(&self, worker: WorkerId) {
        let list = &mut *self.list(worker);
        list.entries.pop_back();
        list.changes += 1;
    }

    /// See [`Core::undurable_deletions`](crate::Core::undurable_deletions).
    pub(crate) fn of(&self, table: &Table, durable: Epoch) -> Vec<RecordPtr> {
        self.entries(table, durable).0.iter().map(|entry| entry.record).collect()
    }

    /// As [`UndurableDeletions::of`], those of one key if one is given, while others commit.
    pub(crate) fn later(&self, table: &Table, key: Option<Key<'_>>, whole: Epoch) -> Vec<RecordPtr> {
        let mut found = Vec::new();
        for noted in &self.lists {
            if noted.newest.load(Ordering::Relaxed) <= whole.0 {
                continue;
            }
            let list = noted.list.lock().unwrap_or_else(PoisonError::into_inner);
            // Notes are about in the order of their epochs: the newest first.
            for entry in list.entries.iter().rev() {
                // SAFETY: records that were deleted later are kept (the caller's promise); the class is the
                // table's.
                let is_wanted = |key| unsafe { read_key(entry.record, table.class) } == key;
                if entry.table == table.id && entry.tid.epoch() > whole && key.is_none_or(is_wanted) {
                    found.push(entry.record);
                }
            }
        }
        found
    }

    /// Gives the maps by key back. The notes that they were made of are durable or replaced, or few snapshots of the
    /// durable epoch will need them.
    pub fn forget_keys(&self) {
        drop(std::mem::take(&mut *self.by_key.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    /// See [`Core::undurable_deletions_of`](crate::Core::undurable_deletions_of).
    pub(crate) fn under(&self, table: &Table, key: Key<'_>, durable: Epoch) -> Vec<RecordPtr> {
        let mut tables = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let is_good = |made: &&ByKey| {
            let unchanged = |(worker, before): (usize, &u64)| self.list(WorkerId(worker as u16)).changes == *before;
            made.durable <= durable && made.changes.iter().enumerate().all(unchanged)
        };
        let made = match tables.get(&table.id).filter(is_good) {
            Some(made) => made,
            None => {
                let (noted, changes) = self.entries(table, durable);
                let mut entries: HashMap<KeyBuf, Vec<UndurableDeletion>> = HashMap::new();
                for entry in noted {
                    // SAFETY: records that were deleted after the durable epoch are kept (the caller's
                    // promise); the class is the table's.
                    let key = unsafe { read_key(entry.record, table.class) }.to_buf();
                    entries.entry(key).or_default().push(entry);
                }
                tables.insert(table.id, ByKey { durable, changes, entries });
                &tables[&table.id]
            }
        };
        let entries = made.entries.get(&key.to_buf()).into_iter().flatten();
        entries.filter(|entry| entry.tid.epoch() > durable).map(|entry| entry.record).collect()
    }

    /// The records of a table that were deleted after `durable`, and the number of changes of each list by
    /// then.
    fn entries(&self, table: &Table, durable: Epoch) -> (Vec<UndurableDeletion>, Vec<u64>) {
        let wanted = |entry: &&UndurableDeletion| entry.table == table.id && entry.tid.epoch() > durable;
        let (mut found, mut changes) = (Vec::new(), Vec::with_capacity(self.lists.len()));
        for worker in 0..self.lists.len() {
            let list = self.list(WorkerId(worker as u16));
            found.extend(list.entries.iter().filter(wanted));
            changes.push(list.changes);
        }
        (found, changes)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use seriatim_memory::Options;

    use super::*;

    #[test]
    fn only_what_is_durable_is_forgotten() {
        let memory = Memory::new(Options { workers_max: 1, ..Options::default() }).expect("memory");
        let (undurable_deletions, worker) = (UndurableDeletions::new(&memory), WorkerId(0));
        for epoch in 1..=4 {
            // SAFETY: the pointer is never followed.
            let record = unsafe { RecordPtr::from_raw(NonNull::dangling()) };
            let noted = UndurableDeletion { table: TableId(0), record, tid: Tid::ZERO.next(Epoch(epoch)) };
            undurable_deletions.list(worker).entries.push_back(noted);
        }
        undurable_deletions.forget(worker, Epoch(2));
        let epochs =
            undurable_deletions.list(worker).entries.iter().map(|entry| entry.tid.epoch().0).collect::<Vec<_>>();
        assert_eq!(epochs, [3, 4]);
    }

    #[test]
    fn maps_of_readers_go_with_the_notes() {
        let memory = Memory::new(Options { workers_max: 1, ..Options::default() }).expect("memory");
        let undurable_deletions = UndurableDeletions::new(&memory);
        let made = ByKey { durable: Epoch(1), changes: vec![0], entries: HashMap::with_capacity(1000) };
        undurable_deletions.by_key.lock().expect("no panic").insert(TableId(0), made);
        undurable_deletions.forget(WorkerId(0), Epoch(2));
        undurable_deletions.forget_keys();
        assert_eq!(undurable_deletions.by_key.lock().expect("no panic").capacity(), 0);
    }
}
