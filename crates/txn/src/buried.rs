//! Records that are in no index any more although the deletion of their rows is not durable yet.
//!
//! A deleted record leaves its index a grace period after the deletion, not when that is durable: every scan of the head of a
//! queue would walk over what was deleted in two or three epochs. Should the log stop before, whoever reads the durable epoch
//! finds the rows of that epoch here. Memory keeps such records and their versions for as long
//! ([`Memory::keep_versions`](seriatim_memory::Memory::keep_versions)); nothing is noted where it keeps none.
//!
//! Order: a record is noted before it is unlinked, so whoever misses it in its index, and looks here then, finds it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use seriatim_base::{CacheAligned, Epoch, Stamp, TableId, WorkerId};
use seriatim_memory::Memory;
use seriatim_store::RecordPtr;

use crate::Table;

/// The buried records of a database, by the worker that unlinked them: the lock of a list is its worker's alone until the log
/// stops.
#[derive(Debug)]
pub struct Buried {
    lists: Box<[CacheAligned<Mutex<VecDeque<Grave>>>]>,
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
        Buried { lists: (0..memory.workers_max()).map(|_| CacheAligned::default()).collect() }
    }

    fn list(&self, worker: WorkerId) -> MutexGuard<'_, VecDeque<Grave>> {
        self.lists[usize::from(worker.0)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a record that `worker` is going to unlink, whose row was deleted under `stamp`, and forgets those whose deletion is
    /// durable.
    pub(crate) fn note(&self, worker: WorkerId, table: &Table, record: RecordPtr, stamp: Stamp, durable: Epoch) {
        let mut list = self.list(worker);
        while list.front().is_some_and(|grave| grave.stamp.epoch() <= durable) {
            list.pop_front();
        }
        list.push_back(Grave { table: table.id, record, stamp });
    }

    /// Forgets those of `worker` whose deletions are durable.
    pub(crate) fn forget(&self, worker: WorkerId, durable: Epoch) {
        let mut list = self.list(worker);
        list.retain(|grave| grave.stamp.epoch() > durable);
        // A large deletion may have been noted row by row.
        list.shrink_to(GRAVES_KEPT);
    }

    /// Takes back the last note of `worker`: the record stayed.
    pub(crate) fn forget_last(&self, worker: WorkerId) {
        self.list(worker).pop_back();
    }

    /// See [`Core::buried`](crate::Core::buried).
    pub(crate) fn of(&self, table: &Table, durable: Epoch) -> Vec<RecordPtr> {
        let wanted = |grave: &&Grave| grave.table == table.id && grave.stamp.epoch() > durable;
        let mut found = Vec::new();
        for worker in 0..self.lists.len() {
            found.extend(self.list(WorkerId(worker as u16)).iter().filter(wanted).map(|grave| grave.record));
        }
        found
    }
}
