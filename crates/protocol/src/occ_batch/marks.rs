//! Storage batching: records are marked that held transactions will write, and reads wait for these transactions.
//!
//! A word of the record header is the protocol's own, its *mark*:
//!
//! ```text
//! 63                                                                      17  16            0
//! |  columns that they are going to change, those from the 47th in one bit  |  transactions  |
//! ```
//! Access rules:
//! 1. An executed transaction marks the records that it will write, and removes its marks when it has been decided or
//!    refused. It sets and removes each mark once, by compare-and-swap, while its worker is online. Without
//!    transactions there are no marked columns.
//! 2. A mark is advice, and no decision uses it. A mark that is missing or was not removed costs only aborts or time.
//! 3. A read waits while columns that it uses are marked, for at most [`WAIT_STEPS`] in all the transaction's
//!    reads; then it reads the current version. The waiting transaction has marked nothing yet, so no other
//!    waits for it. Its thread has no held transaction and no turn of the queue
//!    ([`seriatim_txn::Detach::may_wait`]), so no transaction for which it waits needs its thread.
//!
//! Source: Ding, Kot, Gehrke, PVLDB 12(2), 2018, §3.1: the writes of an object come first, then the reads.

use seriatim_base::Backoff;
use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering, fence};
use seriatim_catalog::ColumnSet;
use seriatim_memory::{CountedVec, Local, Options};
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, OpError, Table};

use crate::shared::access_locks::{AccessLocks, AccessPurpose};
use crate::shared::origin::Origin;
use crate::shared::record_header::{self, TidWord};
use crate::shared::table_ref::TableRef;

/// The steps of [`Backoff`] that all reads of a transaction wait in total. The decision of a batch of 32 takes about as
/// long on simulated cores, 60 µs.
const WAIT_STEPS: u32 = 256;

/// A value of a record's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
struct Mark(u64);

const COUNT_BITS: u32 = 17;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
const _EACH_WORKER_HAS_ONE_TRANSACTION: () = assert!(Options::WORKERS_MAX as u64 <= COUNT);
/// The bit of the columns that have none of their own.
const SHARED: u64 = 1 << (u64::BITS - COUNT_BITS - 1);

impl Mark {
    /// That of a record which no held transaction is going to write.
    const NONE: Mark = Mark(0);

    /// One transaction more is going to change these columns.
    const fn with(self, columns: ColumnSet) -> Mark {
        Mark((self.0 + 1) | folded(columns) << COUNT_BITS)
    }

    /// One transaction less.
    const fn without(self) -> Mark {
        if self.0 & COUNT <= 1 { Mark::NONE } else { Mark(self.0 - 1) }
    }

    /// Whether columns are marked that a read uses.
    const fn concerns(self, used: ColumnSet) -> bool {
        (self.0 >> COUNT_BITS) & folded(used) != 0
    }
}

/// Columns in as many bits as a mark has.
const fn folded(columns: ColumnSet) -> u64 {
    let bits = columns.bits();
    bits & (SHARED - 1) | if bits >= SHARED { SHARED } else { 0 }
}

/// The mark of a record of `table`.
fn mark<'t>(table: &Table, record: RecordPtr) -> &'t AtomicU64 {
    record_header::own::<0>(&table.record_layout, record)
}

/// That of a record which is not linked yet.
pub(super) fn rest(table: &Table, record: RecordPtr) {
    // ORDERING: linking publishes the record with release.
    mark(table, record).store(Mark::NONE.0, Ordering::Relaxed);
}

/// The marks of an attempt, and whether its reads wait.
#[derive(Debug)]
pub struct Marks {
    /// The option `storage_batching`.
    is_on: bool,
    /// Whether reads wait.
    waits: bool,
    /// That of all waits of the attempt.
    backoff: Backoff,
    /// Whether one has waited.
    waited: bool,
    /// The columns of its row that the next access uses.
    used: ColumnSet,
    marked: CountedVec<Marked>,
}

/// A record that the attempt has marked.
#[derive(Clone, Copy, Debug)]
struct Marked {
    table: TableRef,
    record: RecordPtr,
}

// SAFETY: as of `Write`: the record is followed while online only.
unsafe impl Send for Marked {}

impl Marks {
    pub(super) fn new(is_on: bool, local: &Local) -> Marks {
        let (backoff, marked) = (Backoff::bounded(WAIT_STEPS), local.counted(0));
        Marks { is_on, waits: false, backoff, waited: false, used: ColumnSet::ALL, marked }
    }

    /// Waits, within the bound, until no held transaction is going to change what the next access uses.
    #[cold]
    fn wait(&mut self, word: &AtomicU64) {
        while Mark(word.load(Ordering::Relaxed)).concerns(self.used) {
            self.waited = true;
            if !self.backoff.wait() {
                self.waits = false;
                return;
            }
            crate::step(Touch::Header, word);
        }
        // ORDERING: pairs with the release in `change`: the versions that the awaited transactions installed are seen.
        fence(Ordering::Acquire);
    }

    fn change(word: &AtomicU64, change: impl Fn(Mark) -> Mark) {
        crate::step(Touch::Exchange, word);
        // ORDERING: pairs with the fence in `wait`.
        let _ = word.try_update(Ordering::Release, Ordering::Relaxed, |now| Some(change(Mark(now)).0));
    }
}

impl AccessLocks for Marks {
    const HOLDS: bool = true;

    #[inline]
    fn look(
        &mut self,
        core: &mut Core,
        table: &Table,
        record: RecordPtr,
        access: AccessPurpose,
    ) -> Result<(TidWord, usize), OpError> {
        if self.waits {
            let word = mark(table, record);
            if Mark(word.load(Ordering::Relaxed)).concerns(self.used) {
                self.wait(word);
            }
        }
        ().look(core, table, record, access)
    }

    #[inline(always)]
    fn use_next(&mut self, used: impl FnOnce() -> ColumnSet) {
        if self.waits {
            self.used = used();
        }
    }

    #[cold]
    fn may_wait(&mut self) {
        self.waits = self.is_on;
        self.backoff = Backoff::bounded(WAIT_STEPS);
    }

    fn has_waited(&self) -> bool {
        self.waited
    }

    fn announce(&mut self, table: TableRef, record: RecordPtr, changed: ColumnSet) {
        // Without memory for its note it is not marked.
        if self.is_on && self.marked.try_push(Marked { table, record }).is_ok() {
            Marks::change(mark(table.get(), record), |mark| mark.with(changed));
        }
    }

    fn has_announced(&self) -> bool {
        !self.marked.is_empty()
    }

    fn withdraw(&mut self) {
        for Marked { table, record } in self.marked.iter() {
            Marks::change(mark(table.get(), *record), Mark::without);
        }
        self.marked.clear();
        (self.waits, self.waited) = (false, false);
    }

    fn release(&mut self, _: &Core) {
        self.withdraw();
    }

    fn rest(&mut self) {
        self.marked.rest();
    }
}

/// Entries remember nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Entry;

impl Origin for Entry {
    type Locks = Marks;

    fn prepare(table: &Table, record: RecordPtr) {
        rest(table, record);
    }
}

#[cfg(test)]
mod tests {
    use seriatim_catalog::ColumnId;

    use super::*;

    fn columns(numbers: &[u16]) -> ColumnSet {
        numbers.iter().fold(ColumnSet::EMPTY, |set, &number| set.union(ColumnSet::of(ColumnId(number))))
    }

    #[test]
    fn a_mark_affects_readers_of_its_columns_until_all_its_transactions_are_decided() {
        let one = Mark::NONE.with(columns(&[1]));
        let both = one.with(columns(&[2, 3]));
        assert!(one.concerns(columns(&[0, 1])) && !one.concerns(columns(&[0, 2])) && !one.concerns(ColumnSet::EMPTY));
        assert!(both.concerns(columns(&[1])) && both.concerns(columns(&[3])) && !both.concerns(columns(&[0])));
        assert!(both.without().concerns(columns(&[1])), "which columns were whose is not known");
        assert_eq!(both.without().without(), Mark::NONE);
        assert!(!Mark::NONE.concerns(ColumnSet::ALL));
    }

    #[test]
    fn columns_that_share_a_bit_concern_each_other() {
        for (changed, used, concerns) in
            [(45, 46, false), (46, 46, true), (46, 50, true), (50, 63, true), (63, 45, false), (63, 100, true)]
        {
            assert_eq!(Mark::NONE.with(columns(&[changed])).concerns(columns(&[used])), concerns, "{changed}, {used}");
        }
    }

    #[test]
    fn as_many_transactions_as_there_are_workers_do_not_touch_the_columns() {
        let mut mark = Mark::NONE;
        (0..Options::WORKERS_MAX).for_each(|_| mark = mark.with(columns(&[5])));
        assert!(mark.concerns(columns(&[5])) && !mark.concerns(columns(&[0])));
        (0..Options::WORKERS_MAX).for_each(|_| mark = mark.without());
        assert_eq!(mark, Mark::NONE);
    }
}
