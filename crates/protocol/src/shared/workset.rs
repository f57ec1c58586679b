//! The records that repeated runs of operations found in indexes before (HTCC §4.1, workset cache). A run with the same
//! key as before gets its record without a lookup.
//!
//! A hit is as valid as the index's own. The record was linked while the worker was online, which it has been
//! since, so its memory is that record still. Its key is compared. A record that has left its index says so in
//! its TID word, until the worker goes offline. Absences and ranges are looked up again: their node version
//! may have changed, and a leaf is read again to get the next one.

use seriatim_catalog::Key;
use seriatim_memory::{CountedVec, Local};
use seriatim_store::{RecordPtr, has_key};
use seriatim_txn::Table;

use super::origin::Origin;
use super::repair::Touch;
use super::table_ref::TableRef;

/// Records of one run among which one is sought: most runs have one.
const RECORDS_MAX: usize = 16;

/// Records that were found, by runs.
#[derive(Debug)]
pub struct Workset<O> {
    found: CountedVec<Touch<O>>,
    is_sorted: bool,
    /// Lookups that it made unnecessary.
    pub saved: u64,
}

impl<O: Origin> Workset<O> {
    pub(super) fn new(local: &Local) -> Workset<O> {
        Workset { found: local.counted(0), is_sorted: true, saved: 0 }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.found.clear();
        self.is_sorted = true;
    }

    pub(super) fn rest(&mut self) {
        self.found.rest();
    }

    /// Keeps what a run found. Without memory it is looked up again.
    pub(super) fn keep(&mut self, touch: Touch<O>) {
        self.is_sorted = false;
        let _ = self.found.try_push(touch);
    }

    /// The record of this key that a run found before, if it has not left its index.
    #[cold]
    pub(super) fn find(&mut self, table: &Table, key: Key<'_>, by: O) -> Option<RecordPtr> {
        if !self.is_sorted {
            // Records that were found again in each repair are kept once.
            self.found.sort_unstable_by_key(|touch| (touch.by.run(), touch.record.addr()));
            let mut last = None;
            self.found.retain(|touch| last.replace((touch.by, touch.record)) != Some((touch.by, touch.record)));
            self.is_sorted = true;
        }
        let first = self.found.partition_point(|touch| touch.by.run() < by.run());
        let table = TableRef::from(table);
        let its = self.found[first..].iter().take_while(|touch| touch.by == by).take(RECORDS_MAX);
        // SAFETY: found in the table's index since the worker came online.
        let mut same = its.filter(|touch| touch.table == table && unsafe { has_key(touch.record, key.anew()) });
        let found = same.find(|touch| !touch.is_unlinked()).map(|touch| touch.record);
        self.saved += u64::from(found.is_some());
        found
    }
}
