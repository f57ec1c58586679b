//! Records that are in no index any more although the deletion of their rows is not durable yet.
//!
//! A deleted record leaves its index a grace period after the deletion, not when that is durable: every scan of the head of a
//! queue would walk over what was deleted in two or three epochs. Should the log stop before, or the disk fall behind, whoever reads
//! the durable epoch finds the rows of that epoch here. Memory keeps such records and their versions for as long
//! ([`Memory::keep_versions`](seriatim_memory::Memory::keep_versions)); nothing is noted where it keeps none.
//!
//! Order: a record is noted before it is unlinked, so whoever misses it in its index, and looks here then, finds it.
//!
//! There may be hundreds of thousands when the log stops, and each key that a snapshot misses is looked for. So readers have a map of a
//! table's notes by key, made anew when a list has changed since: lists rest while nothing is committed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use seriatim_base::{CacheAligned, Epoch, Stamp, TableId, WorkerId};
use seriatim_catalog::{Key, KeyBuf};
use seriatim_memory::Memory;
use seriatim_store::{RecordPtr, read_key};

use crate::Table;

/// The buried records of a database, by the worker that unlinked them: the lock of a list is its worker's alone until the durable
/// epoch is read.
#[derive(Debug)]
pub struct Buried {
    lists: Box<[CacheAligned<Mutex<List>>]>,
    by_key: Mutex<HashMap<TableId, ByKey>>,
}

#[derive(Debug, Default)]
struct List {
    graves: VecDeque<Grave>,
    /// Rises with each change.
    changes: u64,
}

/// The notes of one table by key.
#[derive(Debug)]
struct ByKey {
    /// Those of later epochs are in it.
    durable: Epoch,
    /// Of each list, when it was made.
    changes: Vec<u64>,
    graves: HashMap<KeyBuf, Vec<Grave>>,
}

#[derive(Clone, Copy, Debug)]
struct Grave {
    table: TableId,
    record: RecordPtr,
    /// Of the deletion.
    stamp: Stamp,
}

/// Notes for which a list that is forgotten keeps room.
const GRAVES_KEPT: usize = 1024;

impl Buried {
    /// None, for the workers of this memory.
    pub(crate) fn new(memory: &Memory) -> Buried {
        let lists = (0..memory.workers_max()).map(|_| CacheAligned::default()).collect();
        Buried { lists, by_key: Mutex::default() }
    }

    fn list(&self, worker: WorkerId) -> MutexGuard<'_, List> {
        self.lists[usize::from(worker.0)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a record that `worker` is going to unlink, whose row was deleted under `stamp`, and forgets those whose deletion is
    /// durable.
    pub(crate) fn note(&self, worker: WorkerId, table: &Table, record: RecordPtr, stamp: Stamp, durable: Epoch) {
        let list = &mut *self.list(worker);
        while list.graves.front().is_some_and(|grave| grave.stamp.epoch() <= durable) {
            list.graves.pop_front();
        }
        list.graves.push_back(Grave { table: table.id, record, stamp });
        list.changes += 1;
    }

    /// Forgets those of `worker` whose deletions are durable.
    pub(crate) fn forget(&self, worker: WorkerId, durable: Epoch) {
        let list = &mut *self.list(worker);
        list.graves.retain(|grave| grave.stamp.epoch() > durable);
        // A large deletion may have been noted row by row.
        list.graves.shrink_to(GRAVES_KEPT);
        list.changes += 1;
    }

    /// Takes back the last note of `worker`: the record stayed.
    pub(crate) fn forget_last(&self, worker: WorkerId) {
        let list = &mut *self.list(worker);
        list.graves.pop_back();
        list.changes += 1;
    }

    /// See [`Core::buried`](crate::Core::buried).
    pub(crate) fn of(&self, table: &Table, durable: Epoch) -> Vec<RecordPtr> {
        self.graves(table, durable).0.iter().map(|grave| grave.record).collect()
    }

    /// Gives the maps by key back: the notes they were made of are durable, or others, or few snapshots of the durable epoch will want
    /// them.
    pub fn forget_keys(&self) {
        drop(std::mem::take(&mut *self.by_key.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    /// See [`Core::buried_under`](crate::Core::buried_under).
    pub(crate) fn under(&self, table: &Table, key: Key<'_>, durable: Epoch) -> Vec<RecordPtr> {
        let mut tables = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let is_good = |made: &&ByKey| {
            let unchanged = |(worker, before): (usize, &u64)| self.list(WorkerId(worker as u16)).changes == *before;
            made.durable <= durable && made.changes.iter().enumerate().all(unchanged)
        };
        let made = match tables.get(&table.id).filter(is_good) {
            Some(made) => made,
            None => {
                let (noted, changes) = self.graves(table, durable);
                let mut graves: HashMap<KeyBuf, Vec<Grave>> = HashMap::new();
                for grave in noted {
                    // SAFETY: what was deleted after the durable epoch is kept (the caller's promise); the class is the table's.
                    let key = unsafe { read_key(grave.record, table.class) }.to_buf();
                    graves.entry(key).or_default().push(grave);
                }
                tables.insert(table.id, ByKey { durable, changes, graves });
                &tables[&table.id]
            }
        };
        let graves = made.graves.get(&key.to_buf()).into_iter().flatten();
        graves.filter(|grave| grave.stamp.epoch() > durable).map(|grave| grave.record).collect()
    }

    /// Those of a table that were deleted after `durable`, and what each list had changed by then.
    fn graves(&self, table: &Table, durable: Epoch) -> (Vec<Grave>, Vec<u64>) {
        let wanted = |grave: &&Grave| grave.table == table.id && grave.stamp.epoch() > durable;
        let (mut found, mut changes) = (Vec::new(), Vec::with_capacity(self.lists.len()));
        for worker in 0..self.lists.len() {
            let list = self.list(WorkerId(worker as u16));
            found.extend(list.graves.iter().filter(wanted));
            changes.push(list.changes);
        }
        (found, changes)
    }
}

#[cfg(test)]
mod tests {
    use seriatim_memory::Options;

    use super::*;

    #[test]
    fn maps_of_readers_go_with_the_notes() {
        let memory = Memory::new(Options { workers_max: 1, ..Options::default() }).expect("memory");
        let buried = Buried::new(&memory);
        let made = ByKey { durable: Epoch(1), changes: vec![0], graves: HashMap::with_capacity(1000) };
        buried.by_key.lock().expect("nobody panicked").insert(TableId(0), made);
        buried.forget(WorkerId(0), Epoch(2));
        buried.forget_keys();
        assert_eq!(buried.by_key.lock().expect("nobody panicked").capacity(), 0);
    }
}
