//! Commits that continue from newer row versions, where only columns have changed that the attempt did not use.
//!
//! Validation compares TID words, so any change in a row refutes every reader of the row. An attempt that names the
//! columns that it uses also notes the row versions that it saw. When its validation fails, each changed record is
//! compared with its noted row version by these columns. If they have the values that were seen, the attempt would have
//! been the same on the newest row version. Its entry then takes the TID word of that version. An update is merged into
//! the newest row version first ([`seriatim_catalog::wire::RowWire::merge`]), which also adds additions to the newest
//! sums. Then the whole commit is tried again, which decides as usual. So an addition whose column is not read
//! conflicts with nothing, and a reader of other columns does not conflict with it.
//!
//! Values are compared, not versions: a column that was changed and changed back makes no difference to its readers.
//!
//! A protocol may begin to lock a record at access. Then the record conflicts with transactions that read it before.
//! They are not rebased on its version, as that requires its lock. Records that the attempt has locked have not
//! changed.
//!
//! Notes outlive a repair: those of entries that leave a set go with them, and the others follow their entries to their
//! new index. If a row version of a write-set entry was undone, the notes of the entry are dropped. In an attempt that
//! may be repaired, an update is merged only while it is the entry's only one. A repair may restore an earlier row
//! version, into which nothing was merged.
//!
//! An access without notes is not rebased. A worker takes notes when one of its attempts was refuted recently.
//! It takes them for calls that leave out columns of the table that updates change. It also takes them for each read of
//! a row that the attempt wrote.

use std::sync::atomic::Ordering;

use seriatim_catalog::{ColumnSet, ColumnUse, RowRef};
use seriatim_memory::{CountedVec, Local};
use seriatim_store::RecordPtr;
use seriatim_txn::{Fault, Knob, OpError, Prepared, RowPtr, Table};

use super::access_locks::AccessLocks;
use super::optimistic::{Optimistic, Read, ValidationFailure};
use super::origin::Origin;
use super::ranges::Ranges;
use super::record;
use super::record_header::{self, TidWord};
use super::table_ref::TableRef;
use super::writes::Write;

/// The most rebases of an attempt. Before each, another transaction has committed.
pub const REBASES_MAX: Knob = Knob {
    name: "rebases_max",
    unit: "rebases",
    default: 16,
    min: 0,
    max: 1_000_000,
    about: "how often a commit goes on from newer versions of rows of which the columns it used are the same; 0: never",
    source: "ours: each time another transaction has committed",
};

/// For how many attempts a worker takes notes after one was refuted or rebased. A note costs some 40 instructions.
const NOTED: u32 = 256;

/// A row version that an attempt saw, and the columns that it used.
#[derive(Clone, Copy, Debug)]
struct Base {
    table: TableRef,
    /// The index in the read set or the write set.
    entry: u32,
    /// Zero: the attempt's own row version, read after it was written.
    row_version: usize,
    columns: ColumnUse,
}

/// The notes of an attempt.
#[derive(Debug)]
pub struct Bases {
    /// How often an attempt may be rebased, and how often this one was.
    max: u32,
    rebases: u32,
    /// The number of attempts for which notes are taken, this one included.
    attempts: u32,
    /// By entry, ascending.
    reads: CountedVec<Base>,
    /// Each update of an entry, in order, and each look at what it wrote.
    writes: CountedVec<Base>,
    /// The notes of scans.
    pub(super) ranges: Ranges,
    /// Whether the open attempt reserves the rows that it accesses.
    pub(super) reserves: bool,
    reserves_next: bool,
}

impl Bases {
    /// The notes of attempts that are not rebased: none.
    pub fn new(local: &Local) -> Bases {
        Bases {
            max: 0,
            rebases: 0,
            attempts: 0,
            reads: local.counted(64),
            writes: local.counted(64),
            ranges: Ranges::default(),
            reserves: false,
            reserves_next: false,
        }
    }

    /// An attempt may be rebased so often.
    pub fn allow(&mut self, rebases_max: u32) {
        self.max = rebases_max;
    }

    /// Whether the open attempt may be rebased once more.
    fn may_go_on(&self) -> bool {
        self.rebases < self.max
    }

    /// An attempt begins.
    #[inline]
    pub fn begin(&mut self) {
        if self.attempts > 0 {
            self.attempts -= 1;
            self.reserves = std::mem::take(&mut self.reserves_next);
            self.rebases = 0;
            self.clear();
        }
    }

    /// Whether notes are taken.
    #[inline(always)]
    pub fn are_noted(&self) -> bool {
        self.attempts > 0
    }

    /// The next attempt reserves the rows that it accesses.
    pub(super) fn reserve_next(&mut self) {
        // One is taken when the attempt begins.
        self.attempts = self.attempts.max(2);
        self.reserves_next = true;
    }

    /// Notes are worth while: an attempt was refuted or rebased.
    #[cold]
    pub fn encourage(&mut self) {
        // Otherwise an attempt that reserves counts down, so that the next one reserves nothing.
        if self.max > 0 {
            self.attempts = NOTED;
        }
    }

    /// The same after an attempt was refuted. Whether it might not have been with notes.
    pub(super) fn refuted(&mut self) -> bool {
        let might_pass = self.max > 0 && !self.are_noted();
        self.encourage();
        might_pass
    }

    #[inline]
    pub fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.ranges.clear();
    }

    /// This entry left the write set, and the last one took its index.
    pub fn taken(&mut self, entry: usize, last: usize) {
        self.writes.retain_mut(|base| {
            let stays = base.entry as usize != entry;
            if base.entry as usize == last {
                base.entry = entry as u32;
            }
            stays
        });
    }

    /// A row version of this entry of the write set was undone.
    pub(super) fn taken_back(&mut self, entry: usize) {
        self.writes.retain(|base| base.entry as usize != entry);
    }

    /// Entries of the read set leave it.
    pub(super) fn retain_reads(&mut self, stays: impl Fn(usize) -> bool) {
        let mut numbers = Renumbering::new(stays);
        self.reads.retain_mut(|base| numbers.of(base.entry as usize).map(|entry| base.entry = entry as u32).is_some());
    }

    /// Nothing is noted but the update that made the only entry of the write set, of this row version.
    pub fn note_only(&mut self, table: &Table, row_version: usize, columns: ColumnUse) {
        self.clear();
        self.writes.push(Base { table: table.into(), entry: 0, row_version, columns });
    }

    /// Whether nothing is noted.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    /// Entries were undone: those of the write set may have other indices now, or other row versions.
    pub fn forget_writes(&mut self) {
        self.writes.clear();
    }

    pub fn rest(&mut self) {
        self.reads.rest();
        self.writes.rest();
    }
}

/// The indices of the entries of a set after some have left it, requested in ascending order.
pub(super) struct Renumbering<F> {
    stays: F,
    /// The number of entries for which it is known how many have left.
    known: usize,
    gone: usize,
}

impl<F: Fn(usize) -> bool> Renumbering<F> {
    pub(super) fn new(stays: F) -> Renumbering<F> {
        Renumbering { stays, known: 0, gone: 0 }
    }

    /// The number that the entry has then, if it stays.
    pub(super) fn of(&mut self, entry: usize) -> Option<usize> {
        debug_assert!(self.known <= entry, "notes are in the order of their entries");
        self.gone += (self.known..entry).filter(|&at| !(self.stays)(at)).count();
        self.known = entry;
        (self.stays)(entry).then(|| entry - self.gone)
    }
}

impl<O: Origin> Optimistic<O> {
    /// The row of the last operation, which the attempt wrote, was looked at: these columns are used.
    #[cold]
    pub fn note_used_own(&mut self, table: &Table, columns: ColumnSet) -> Result<(), OpError> {
        let entry = self.base.seen.record.and_then(|record| self.base.writes.find(record));
        let Some(entry) = entry else { return Ok(()) };
        let base = Base { table: table.into(), entry: entry as u32, row_version: 0, columns: columns.into() };
        self.bases.writes.try_push(base).map_err(record::full)
    }

    /// A row was read, of which these columns are used.
    #[inline(never)]
    pub fn note_used(&mut self, table: &Table, row: RowPtr, columns: ColumnSet) -> Result<(), OpError> {
        if self.base.seen.own {
            return self.note_used_own(table, columns);
        }
        // A locked record is not in the read set: it does not change.
        let seen = self.base.seen;
        let is_of = |last: &Read<O>| Some(last.record()) == seen.record && last.seen.tid() == seen.tid;
        if !self.reads.last().is_some_and(is_of) {
            return Ok(());
        }
        let (entry, row_version) = (self.reads.len() as u32 - 1, record::row_version_of(row));
        let base = Base { table: table.into(), entry, row_version, columns: columns.into() };
        self.bases.reads.try_push(base).map_err(record::full)
    }

    /// A row, which was as `before`, is being updated.
    #[inline(never)]
    pub fn note_update(&mut self, table: &Table, before: RowPtr, columns: ColumnUse) -> Result<(), OpError> {
        let row_version = record::row_version_of(before);
        let own = self.base.seen.record.filter(|_| self.base.seen.own);
        let entry = own.and_then(|record| self.base.writes.find(record));
        let entry = entry.unwrap_or(self.base.writes.entries().len() - 1) as u32;
        let base = Base { table: table.into(), entry, row_version, columns };
        self.bases.writes.try_push(base).map_err(record::full)
    }

    /// Continues from the newest row versions. True if there were newer ones, and the used columns are the same in all
    /// of them. Then the commit can be tried again, unless that was done too often. Writes are merged only if the
    /// attempt `commits`. While its body runs, it may still read rows that it wrote, or be told that a sum left its
    /// range. (Runs that a repair repeats find the merged rows, as they would have written them.)
    #[cold]
    pub fn rebase(&mut self, commits: bool) -> bool {
        self.go_on(commits).is_ok()
    }

    /// As [`Optimistic::rebase`].
    ///
    /// # Errors
    /// The entry that refutes it, if any; a record that has changed again meanwhile is not reported.
    pub fn go_on(&mut self, commits: bool) -> Result<(), Option<ValidationFailure>> {
        if !self.bases.may_go_on() {
            return Err(None);
        }
        let mut by = None;
        let moved = self.settle(commits, |failure, _| {
            by = Some(failure);
            false
        });
        if moved == Some(true) { Ok(()) } else { Err(by) }
    }

    /// As [`Optimistic::rebase`], for each entry by itself. Returns whether any entry continues from a newer
    /// version. `refuted` is called with the origin of each entry whose used columns have changed, and returns
    /// whether to continue with others: `None` if not.
    pub(super) fn settle(
        &mut self,
        commits: bool,
        mut refuted: impl FnMut(ValidationFailure, O) -> bool,
    ) -> Option<bool> {
        let (mut moved, may) = (false, self.bases.may_go_on());
        for entry in 0..self.reads.len() {
            match self.rebase_read(entry, may) {
                Some(newer) => moved |= newer,
                None if refuted(ValidationFailure::Read(entry), self.reads[entry].by) => {}
                None => return None,
            }
        }
        for entry in 0..self.base.writes.entries().len() {
            match self.rebase_write(entry, may && commits) {
                Some(newer) => moved |= newer,
                None if refuted(ValidationFailure::Write(entry), self.base.writes.first(entry).by) => {}
                None => return None,
            }
        }
        // Leaves that come in when one is looked at again are as they were found.
        for entry in 0..self.node_set.len() {
            match self.rebase_range(entry, may, commits) {
                Some(newer) => moved |= newer,
                None if refuted(ValidationFailure::Node(entry), self.node_set[entry].by) => {}
                None => return None,
            }
        }
        if moved {
            self.bases.rebases += 1;
            self.bases.encourage();
        }
        Some(moved)
    }

    /// Moves one entry of the read set to the newest row version of its record, if it `may`. Returns whether
    /// there was a newer one; `None` if the used columns differ.
    fn rebase_read(&mut self, entry: usize, may: bool) -> Option<bool> {
        let (word, seen) = (self.reads[entry].word(), self.reads[entry].seen);
        let now = TidWord(word.load(Ordering::Acquire));
        if now == seen || O::Locks::is_same_version(now, seen) {
            return Some(false);
        }
        let noted = self.bases.reads.binary_search_by_key(&(entry as u32), |base| base.entry);
        let base = noted.ok().filter(|_| may).map(|at| self.bases.reads[at])?;
        let table = base.table.get();
        let (now, newer) = newer::<O>(table, self.reads[entry].record())?;
        let regardless = self.base.core.injects(Fault::RebaseRegardless);
        if !agree(table, base.row_version, newer, base.columns.used()) && !regardless {
            return None;
        }
        self.base.note_tid(table, now.tid());
        self.reads[entry].seen = now.unreserved();
        Some(true)
    }

    /// Moves one entry of the write set to the newest row version of its record, if it `may`. Returns whether
    /// there was a newer one; `None` if its update would not be the same on it.
    fn rebase_write(&mut self, entry: usize, may: bool) -> Option<bool> {
        self.rebase_write_if(entry, may, |now| !now.is_reserved())
    }

    /// As [`Optimistic::rebase_write`], if the attempt may write over the newest version.
    fn rebase_write_if(&mut self, entry: usize, may: bool, may_write: impl Fn(TidWord) -> bool) -> Option<bool> {
        let write = self.base.writes.entries()[entry];
        let table = write.table();
        let word = record_header::tid_word(&table.record_layout, write.record);
        if TidWord(word.load(Ordering::Acquire)) == write.expected {
            return Some(false);
        }
        if !may {
            return None;
        }
        let (now, newer) = newer::<O>(table, write.record).filter(|(now, _)| may_write(*now))?;
        let regardless = self.base.core.injects(Fault::RebaseRegardless);
        if !regardless && !self.merge(entry, newer) {
            return None;
        }
        // The place in the record that was free may be that of the newer version.
        self.base.move_out(entry).ok()?;
        self.base.note_tid(table, now.tid());
        self.base.writes.rebased(entry, now, newer, self.base.horizon);
        Some(true)
    }

    /// Moves the only entry of the write set to the newest row version of its record, on every call. False if
    /// its update would not be the same on it. Such an update is of a transaction that is partly published: it
    /// also replaces a version that another attempt has reserved.
    pub fn rebase_only(&mut self) -> bool {
        self.rebase_write_if(0, true, |_| true).is_some()
    }

    /// For each entry of the read set, the columns that were used.
    pub fn columns_read(&self) -> Vec<ColumnSet> {
        let mut columns = vec![ColumnSet::ALL; self.reads.len()];
        for base in self.bases.reads.iter() {
            columns[base.entry as usize] = of_read(base.table.get(), base.columns.used());
        }
        columns
    }

    /// For each entry of the write set, the columns of the row that its updates use, and those that they
    /// change. Updates that use none can be merged into any other version.
    pub fn columns_written(&self) -> Vec<(ColumnSet, ColumnSet)> {
        let entries = self.base.writes.entries();
        let mut noted = vec![(ColumnUse::default(), 0); entries.len()];
        for base in self.bases.writes.iter() {
            let (columns, updates) = &mut noted[base.entry as usize];
            *columns = then(*columns, base);
            *updates += usize::from(base.row_version != 0);
        }
        let row_versions = self.base.writes.row_versions_of_each();
        let of = |((write, (columns, updates)), row_versions): ((&Write<O>, (ColumnUse, usize)), usize)| {
            if write.row_version == 0 || write.expected.is_absent() || updates != row_versions {
                return (ColumnSet::ALL, ColumnSet::ALL);
            }
            let changed = of_row(write.table(), columns.either());
            (of_row(write.table(), columns.read()), if changed.is_empty() { Prepared::REST } else { changed })
        };
        entries.iter().zip(noted).zip(row_versions).map(of).collect()
    }

    /// The use of columns by the updates of an entry, if all of them were noted. Others, and insertions or
    /// deletions, may have used any column.
    fn updates(&self, entry: usize) -> Option<ColumnUse> {
        let noted = || self.bases.writes.iter().filter(|base| base.entry as usize == entry);
        let updates = noted().filter(|base| base.row_version != 0).count();
        if self.base.writes.entries()[entry].expected.is_absent() || updates != self.base.writes.row_versions(entry) {
            return None;
        }
        Some(noted().fold(ColumnUse::default(), then))
    }

    /// Merges an entry's updates into a newer row version of its record.
    fn merge(&mut self, entry: usize, newer: usize) -> bool {
        let write = self.base.writes.entries()[entry];
        let Some(columns) = self.updates(entry) else { return false };
        if self.base.by.run().is_some() && self.base.writes.row_versions(entry) > 1 {
            return false;
        }
        let is_first = |base: &&mut Base| base.entry as usize == entry && base.row_version != 0;
        let Some(first) = self.bases.writes.iter_mut().find(is_first) else { return false };
        let table = write.table();
        let Some(wire) = &table.wire else { return false };
        let after = record::row_of(write.row_version).as_ptr();
        let [base, newest] = [first.row_version, newer].map(row);
        // SAFETY: row versions of the table, readable as we have been online since they were published;
        // `after` is ours.
        let merged = unsafe { wire.rows.merge(base, newest, after, columns) };
        first.row_version = newer;
        if !merged {
            // It may have changed in part: later calls are refused.
            self.bases.taken_back(entry);
        }
        merged
    }
}

/// The columns of a row that matter for conflicts, among those that an update uses or changes. Rows that are
/// not distinguishable are used or changed whole.
pub fn of_row(table: &Table, columns: ColumnSet) -> ColumnSet {
    match table.updatable {
        ColumnSet::EMPTY if columns.is_empty() => columns,
        ColumnSet::EMPTY => ColumnSet::ALL,
        updatable => columns.intersection(updatable),
    }
}

/// The same of columns that are read. Whether there is a row is used, too.
pub fn of_read(table: &Table, columns: ColumnSet) -> ColumnSet {
    match table.updatable {
        ColumnSet::EMPTY => ColumnSet::ALL,
        updatable => columns.intersection(updatable).union(Prepared::REST),
    }
}

/// The use of columns by the updates of a row, and by one more.
fn then(columns: ColumnUse, base: &Base) -> ColumnUse {
    // Of several sums each has to stay in range, not just the last.
    let twice = columns.added.intersection(base.columns.added);
    columns.union(base.columns).union(twice.into())
}

/// The newest committed version of a record and its TID word; `None` if there is none, or it stays locked.
pub fn newest(table: &Table, record: RecordPtr) -> Option<(TidWord, usize)> {
    // A removed record is absent.
    record_header::settled_version(table, record).filter(|(word, _)| !word.is_absent())
}

/// The same, if an attempt that has not locked the record can continue from it.
fn newer<O: Origin>(table: &Table, record: RecordPtr) -> Option<(TidWord, usize)> {
    newest(table, record).filter(|(word, _)| !O::Locks::is_locked_at_access(*word))
}

/// Whether two row versions of one record have the same values in these columns.
pub fn agree(table: &Table, one: usize, other: usize, columns: ColumnSet) -> bool {
    let Some(wire) = &table.wire else { return false };
    // SAFETY: row versions of the table, readable as we have been online since they were published.
    unsafe { wire.rows.agree(row(one), row(other), columns) }
}

/// A row version's row.
pub fn row<'t>(row_version: usize) -> RowRef<'t> {
    // SAFETY: the worker has been online since it was published, and is for the lifetime.
    unsafe { RowRef::from_raw(record::row_of(row_version).as_ptr()) }
}

#[cfg(test)]
mod tests {
    use seriatim_base::{Tid, rng};
    use seriatim_catalog::{ColumnDef, ColumnId, ColumnType, Key};
    use seriatim_htm::HtmMode;
    use seriatim_txn::{Addition, Mode, NoRedo, Outcome, Priority, Protocol, Worker as _};

    use super::*;
    use crate::common::Bench;
    use crate::silo::Silo;

    const SUM: ColumnId = ColumnId(1);

    fn add(bench: &Bench<Silo>, worker: &mut <Silo as Protocol>::Worker, units: i128) {
        // SAFETY: the column's type.
        let addition = unsafe { Addition::new(SUM, ColumnType::I64, units) };
        assert_eq!(worker.add(&bench.cells, Key::Word8(0), addition), Ok(seriatim_txn::Added::Done));
    }

    fn commit(worker: &mut <Silo as Protocol>::Worker) -> Tid {
        let Ok(Outcome::Committed(tid)) = worker.commit(&mut NoRedo) else {
            panic!("nothing that it used has changed")
        };
        tid
    }

    /// A worker that takes notes, with an open transaction.
    fn begin(bench: &Bench<Silo>) -> <Silo as Protocol>::Worker {
        let mut worker = bench.worker();
        worker.attempt().bases.encourage();
        worker.begin(Mode::ReadWrite, Priority::NONE);
        worker
    }

    fn bench() -> Bench<Silo> {
        let other = ColumnDef::new("other", ColumnType::I64);
        let fixed = ColumnDef::new("fixed", ColumnType::U64).immutable();
        Bench::<Silo>::of(HtmMode::Absent, &["id"], [other, fixed]).with_rows(&[0])
    }

    #[test]
    fn an_attempt_continues_from_each_newer_version_in_turn() {
        let seed = rng::seed("an_attempt_continues_from_each_newer_version_in_turn");
        let (bench, mut random) = (bench(), seriatim_base::Rng::from_seed(seed));
        // The record has a free place, so the first row version lies in the worker's own memory.
        bench.pass_time();
        let (mut worker, mut other) = (begin(&bench), bench.worker());
        add(&bench, &mut worker, 1);
        assert!(is_in_room(&mut worker));
        let mut sum = 1;
        for _ in 0..5 {
            let units = random.below(1000) as i64;
            other.begin(Mode::ReadWrite, Priority::NONE);
            add(&bench, &mut other, units.into());
            commit(&mut other);
            sum += units;
            assert!(worker.attempt().rebase(true), "the sum is not read");
            assert!(!is_in_room(&mut worker), "it may be published itself");
            assert!(!worker.attempt().rebase(true), "there is no newer version");
        }
        commit(&mut worker);
        assert_eq!(bench.state(&[0]), [sum]);
    }

    /// Whether the row version of the first write lies in the worker's own memory.
    fn is_in_room(worker: &mut <Silo as Protocol>::Worker) -> bool {
        let writes = &worker.attempt().base.writes;
        writes.room.has(writes.entries()[0].row_version)
    }

    #[test]
    fn a_write_that_could_not_be_merged_still_fails_validation() {
        let bench = bench();
        let (mut worker, mut other) = (begin(&bench), bench.worker());
        let used = ColumnUse::from(ColumnSet::of(SUM));
        let updating = worker.update(&bench.cells, Key::Word8(0), used);
        assert!(updating.expect("alone").is_some());
        for _ in 0..2 {
            other.begin(Mode::ReadWrite, Priority::NONE);
            add(&bench, &mut other, 1);
            commit(&mut other);
            assert!((0..2).all(|_| !worker.attempt().rebase(true)), "the sum was used");
        }
        assert!(worker.commit(&mut NoRedo).is_err(), "the sum was used");
        worker.abort();
    }

    #[test]
    fn an_attempt_is_rebased_so_often_and_no_more() {
        let bench = bench();
        let (mut worker, mut other) = (begin(&bench), bench.worker());
        add(&bench, &mut worker, 1);
        for rebases in 0..=REBASES_MAX.default {
            other.begin(Mode::ReadWrite, Priority::NONE);
            add(&bench, &mut other, 1);
            commit(&mut other);
            assert_eq!(worker.attempt().rebase(true), rebases < REBASES_MAX.default, "{rebases}");
        }
        assert!(worker.commit(&mut NoRedo).is_err(), "it was rebased too often");
        worker.abort();
    }
}
