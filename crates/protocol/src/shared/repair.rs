//! Repairs of an optimistic attempt: which runs of operations are stale, which records each touched, and how
//! they are dropped.

use std::collections::BTreeSet;

use seriatim_base::word::{Ordering, fence};
use seriatim_store::RecordPtr;
use seriatim_txn::{Runs, Table};

use super::access_locks::AccessLocks;
use super::optimistic::{Optimistic, Read};
use super::origin::Origin;
use super::record_header::{self, TidWord};
use super::table_ref::TableRef;
use super::writes::{Link, Write};

/// A record that a run of an operation touched, its own writes included.
#[derive(Clone, Copy, Debug)]
pub struct Touch<O> {
    pub(super) table: TableRef,
    pub(super) record: RecordPtr,
    pub(super) by: O,
}

impl<O: Origin> Touch<O> {
    /// Whether the record has left its index since.
    pub(super) fn is_unlinked(&self) -> bool {
        O::Locks::is_removed(self.word())
    }

    fn word(&self) -> TidWord {
        TidWord(record_header::tid_word(&self.table.get().record_layout, self.record).load(Ordering::Acquire))
    }
}

// SAFETY: records are followed while online only.
unsafe impl<O: Origin> Send for Touch<O> {}

impl<O: Origin> Optimistic<O> {
    /// Notes that the run that is named touched a record.
    #[inline(always)]
    pub(super) fn touch(&mut self, table: &Table, record: RecordPtr) {
        if O::CARRIED && self.base.by != O::default() {
            self.touches.push(Touch { table: table.into(), record, by: self.base.by });
        }
    }

    /// Drops what these runs read and wrote, and, unless they run `again`, the locks that they alone needed.
    ///
    /// The records that they linked stay linked until the attempt ends. Another transaction may fill one
    /// meanwhile without a change of its node version. So for runs that rely on a node version of the table,
    /// the absence of the record is noted as read.
    pub fn forget(&mut self, runs: Runs, again: bool) {
        let Optimistic { touches, workset, base, bases, reads, node_set, .. } = self;
        bases.retain_reads(|entry| !reads[entry].by.is_of(runs));
        reads.retain(|read| !read.by.is_of(runs));
        bases.ranges.retain(|entry| !node_set[entry].by.is_of(runs));
        node_set.retain(|entry| !entry.by.is_of(runs));
        touches.retain(|touch| {
            let stands = !touch.by.is_of(runs);
            if !stands && again {
                workset.keep(*touch);
            }
            stands
        });
        let undone = base.writes.undone.len();
        base.writes.forget(
            |by| by.is_of(runs),
            |entry, last| match last {
                Some(last) => bases.taken(entry, last),
                None => bases.taken_back(entry),
            },
        );
        if self.base.writes.undone[undone..].iter().any(|write| write.link == Link::Own) {
            self.note_absent_still(undone);
        }
        if !again {
            self.release_untouched();
        }
    }

    /// Notes, for undone entries from there on, that records that this attempt linked have no rows. It notes this for
    /// each run that noted a node version of their table.
    #[cold]
    fn note_absent_still(&mut self, undone: usize) {
        let noted: BTreeSet<_> = self.node_set.iter().map(|entry| (entry.table, entry.by.run())).collect();
        for write in self.base.writes.undone[undone..].iter().filter(|write| write.link == Link::Own) {
            let table = write.table();
            for &(_, run) in noted.iter().filter(|(of, _)| *of == table.id) {
                let by = run.map_or_else(O::default, |(operation, iteration)| O::of(operation, iteration));
                self.reads.push(Read::new(table, write.record, TidWord::PLACEHOLDER, by));
            }
        }
    }

    /// Releases the locks of records that no remaining run touched.
    pub fn release_untouched(&mut self) {
        if self.locks.held().next().is_none() {
            return;
        }
        let Optimistic { base, locks, touches, .. } = self;
        let touched: BTreeSet<usize> = touches.iter().map(|touch| touch.record.addr()).collect();
        locks.release_unless(|record| base.writes.find(record).is_some() || touched.contains(&record.addr()));
    }

    /// Calls `visit` with each record that runs of an operation touched, by address, and with the iteration. It passes
    /// `None` instead of an address if they saw an absence or a range. It also does so if the record has left its index
    /// or may be leaving it. Another record may have its key. It also does so for a record that will be written, while
    /// it has no row. Only records that this attempt has linked are safe from removal by others.
    pub fn touched(&self, operation: u16, visit: &mut dyn FnMut(u32, Option<usize>)) {
        let of = |by: O| by.run().filter(|run| run.0 == operation).map(|run| run.1);
        for touch in self.touches.iter() {
            if let Some(iteration) = of(touch.by) {
                // The garbage collector locks a record without a row, takes it out of its index, and marks it at last.
                let word = touch.word();
                let stays = !(word.is_absent() || word.is_locked()) || self.has_linked(touch.record);
                visit(iteration, stays.then_some(touch.record.addr()));
            }
        }
        self.node_set.iter().filter_map(|entry| of(entry.by)).for_each(|iteration| visit(iteration, None));
    }

    /// Whether this attempt linked the record, for a write that stands or was undone.
    fn has_linked(&self, record: RecordPtr) -> bool {
        let writes = &self.base.writes;
        let links = |write: &Write<O>| write.record.addr() == record.addr() && write.link == Link::Own;
        writes.find(record).is_some_and(|at| links(&writes.entries()[at])) || writes.undone.iter().any(links)
    }

    /// All runs that touched anything, by operations.
    pub fn all_runs(&self) -> Vec<Runs> {
        let (reads, nodes, touches) =
            (self.reads.iter().map(|read| read.by), self.node_set.iter().map(|entry| entry.by), self.touches.iter());
        let by = reads.chain(nodes).chain(touches.map(|touch| touch.by));
        let operations: BTreeSet<u16> = by.filter_map(|by| by.run()).map(|(operation, _)| operation).collect();
        operations.into_iter().map(Runs::all).collect()
    }

    /// The runs whose reads no longer hold, each once, without those that can be rebased, which are. `None`
    /// where an entry is stale that belongs to no run.
    #[cold]
    pub fn stale_runs(&mut self) -> Option<Vec<Runs>> {
        // In a procedure that follows a schedule all operations are named.
        self.base.by.run()?;
        // ORDERING: as in `validate`. No model omits this fence, as no result hangs on it: the commit that follows
        // validates all entries behind fences of its own. A stale entry that is missed here costs another repair.
        fence(Ordering::SeqCst);
        let mut stale = Vec::new();
        self.settle(true, |_, by| {
            let run = by.run();
            stale.extend(run.map(|(operation, iteration)| Runs::one(operation, iteration)));
            run.is_some()
        })?;
        stale.sort_unstable();
        stale.dedup();
        Some(stale)
    }
}
