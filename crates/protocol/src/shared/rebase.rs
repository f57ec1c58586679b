//! Commits that go on from newer row versions, where what changed is of columns that the attempt did not use.
//!
//! Validation compares TID words, so whatever changes in a row refutes whoever read it. An attempt that names the columns it uses also
//! notes the row versions it saw. When its validation fails, each record that has changed is compared with its row version by these
//! columns: if they have the values that were seen, the attempt is as it would have been if it had seen the newest row version, and its
//! entry takes that one's TID word. An update is merged into the newest row version first ([`seriatim_catalog::wire::RowWire::merge`]),
//! which also puts additions on top of the newest sums. Then the whole commit is tried again: it decides, as ever. So an addition that
//! nobody reads conflicts with nothing, and a reader of other columns passes it.
//!
//! Values are compared, not versions: that a column was changed and changed back makes no difference to who read it.
//!
//! What was not noted is not rebased. A worker takes notes when an attempt of its own was refuted lately. It takes them where a call leaves out columns of the table that updates change, and of each look
//! at a row that the attempt wrote.

use std::sync::atomic::Ordering;

use seriatim_catalog::{ColumnSet, ColumnUse, RowRef};
use seriatim_memory::{CountedVec, Local};
use seriatim_store::RecordPtr;
use seriatim_txn::{Fault, Knob, OpError, Prepared, RowPtr, Table};

use super::optimistic::Optimistic;
use super::origin::Origin;
use super::ranges::Ranges;
use super::record;
use super::record_header::{self, TidWord};
use super::table_ref::TableRef;
use super::writes::Write;

/// How often an attempt is rebased at most: each time another has committed.
pub(crate) const REBASES_MAX: Knob = Knob {
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
    /// Of the read set or of the write set.
    entry: u32,
    /// Zero: the attempt's own row version, read after it was written.
    row_version: usize,
    columns: ColumnUse,
}

/// The notes of an attempt.
#[derive(Debug)]
pub(crate) struct Bases {
    /// How often an attempt may be rebased, and how often this one was.
    max: u32,
    rebases: u32,
    /// Of how many attempts notes are taken, this one included.
    attempts: u32,
    /// By entry, ascending.
    reads: CountedVec<Base>,
    /// Each update of an entry, in order, and each look at what it wrote.
    writes: CountedVec<Base>,
    /// What scans looked at.
    pub(super) ranges: Ranges,
}

impl Bases {
    /// Of attempts that may be rebased so often.
    pub(crate) fn new(local: &Local, max: u32) -> Bases {
        Bases {
            max,
            rebases: 0,
            attempts: 0,
            reads: local.counted(64),
            writes: local.counted(64),
            ranges: Ranges::default(),
        }
    }

    /// An attempt begins.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if self.attempts > 0 {
            self.attempts -= 1;
            self.rebases = 0;
            self.clear();
        }
    }

    /// Whether notes are taken.
    #[inline(always)]
    pub(crate) fn are_noted(&self) -> bool {
        self.attempts > 0
    }

    /// Notes are worth while: an attempt was refuted or rebased.
    #[cold]
    pub(crate) fn encourage(&mut self) {
        self.attempts = if self.max > 0 { NOTED } else { 0 };
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.ranges.clear();
    }

    /// This entry was taken out of the write set, and what was the last is in its place.
    pub(crate) fn taken(&mut self, entry: usize, last: usize) {
        let mut left = 0;
        for at in 0..self.writes.len() {
            let mut base = self.writes[at];
            if base.entry as usize == entry {
                continue;
            }
            if base.entry as usize == last {
                base.entry = entry as u32;
            }
            self.writes[left] = base;
            left += 1;
        }
        self.writes.truncate(left);
    }

    /// Nothing is noted but the update that made the only entry of the write set, of this row version.
    pub(crate) fn note_only(&mut self, table: &Table, row_version: usize, columns: ColumnUse) {
        self.clear();
        self.writes.push(Base { table: table.into(), entry: 0, row_version, columns });
    }

    /// Whether nothing is noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    /// Entries were taken back: those of the write set may have other numbers now, or other row versions.
    pub(crate) fn forget_writes(&mut self) {
        self.writes.clear();
    }

    pub(crate) fn rest(&mut self) {
        self.reads.rest();
        self.writes.rest();
    }
}

impl<O: Origin> Optimistic<O> {
    /// The row of the last operation, which the attempt wrote, was looked at: these columns are used.
    #[cold]
    pub(crate) fn note_used_own(&mut self, table: &Table, columns: ColumnSet) -> Result<(), OpError> {
        let entry = self.base.seen.record.and_then(|record| self.base.writes.find(record));
        let Some(entry) = entry else { return Ok(()) };
        let base = Base { table: table.into(), entry: entry as u32, row_version: 0, columns: columns.into() };
        self.bases.writes.try_push(base).map_err(record::full)
    }

    /// A row was read, of which these columns are used.
    #[inline(never)]
    pub(crate) fn note_used(&mut self, table: &Table, row: RowPtr, columns: ColumnSet) -> Result<(), OpError> {
        if self.base.seen.own {
            return self.note_used_own(table, columns);
        }
        let (entry, row_version) = (self.reads.len() as u32 - 1, record::row_version_of(table, row));
        let base = Base { table: table.into(), entry, row_version, columns: columns.into() };
        self.bases.reads.try_push(base).map_err(record::full)
    }

    /// A row, which was as `before`, is being updated.
    #[inline(never)]
    pub(crate) fn note_update(&mut self, table: &Table, before: RowPtr, columns: ColumnUse) -> Result<(), OpError> {
        let row_version = record::row_version_of(table, before);
        let own = self.base.seen.record.filter(|_| self.base.seen.own);
        let entry = own.and_then(|record| self.base.writes.find(record));
        let entry = entry.unwrap_or(self.base.writes.entries().len() - 1) as u32;
        let base = Base { table: table.into(), entry, row_version, columns };
        self.bases.writes.try_push(base).map_err(record::full)
    }

    /// Goes on from the newest row versions. True if there were newer ones, and what the attempt used is the same in all of them: its
    /// commit can be tried again, unless that was done too often. Writes are merged where the attempt `commits`: not while it may still look at
    /// rows that it wrote, or tell that a sum left its range.
    #[cold]
    pub(crate) fn rebase(&mut self, commits: bool) -> bool {
        if self.bases.rebases == self.bases.max {
            return false;
        }
        let (mut rebased, regardless) = (false, self.base.core.injects(Fault::RebaseRegardless));
        for entry in 0..self.reads.len() {
            let (word, seen) = (self.reads[entry].word(), self.reads[entry].seen);
            if TidWord(word.load(Ordering::Acquire)) == seen {
                continue;
            }
            let noted = self.bases.reads.binary_search_by_key(&(entry as u32), |base| base.entry);
            let Some(base) = noted.ok().map(|at| self.bases.reads[at]) else { return false };
            let table = base.table.get();
            let Some((now, newer)) = newest(table, self.reads[entry].record()) else { return false };
            if !agree(table, base.row_version, newer, base.columns.used) && !regardless {
                return false;
            }
            self.base.note_tid(table, now.tid());
            self.reads[entry].seen = now;
            rebased = true;
        }
        for entry in 0..self.base.writes.entries().len() {
            match self.rebase_write(entry, commits, regardless) {
                Some(moved) => rebased |= moved,
                None => return false,
            }
        }
        match self.rebase_ranges(commits) {
            Some(moved) => rebased |= moved,
            None => return false,
        }
        if rebased {
            self.bases.rebases += 1;
            self.bases.encourage();
        }
        rebased
    }

    /// Has one entry of the write set go on from the newest row version of its record. Whether there was a newer one; `None` if its update
    /// would not be the same on it.
    fn rebase_write(&mut self, entry: usize, commits: bool, regardless: bool) -> Option<bool> {
        let write = self.base.writes.entries()[entry];
        let table = write.table();
        let word = record_header::tid_word(&table.record_layout, write.record);
        if TidWord(word.load(Ordering::Acquire)) == write.expected {
            return Some(false);
        }
        let (now, newer) = newest(table, write.record)?;
        if !commits || !regardless && !self.merge(entry, newer) {
            return None;
        }
        self.base.note_tid(table, now.tid());
        self.base.writes.rebased(entry, now);
        Some(true)
    }

    /// Has the only entry of the write set go on from the newest row version of its record, as often as it is asked to. False if its update
    /// would not be the same on it.
    pub(crate) fn rebase_only(&mut self) -> bool {
        self.rebase_write(0, true, false).is_some()
    }

    /// Of each entry of the read set, what of the row was used.
    pub(crate) fn columns_read(&self) -> Vec<ColumnSet> {
        let mut columns = vec![ColumnSet::ALL; self.reads.len()];
        for base in self.bases.reads.iter() {
            columns[base.entry as usize] = of_read(base.table.get(), base.columns.used);
        }
        columns
    }

    /// Of each entry of the write set, what its updates use of the row that they change, and what of it they change. Those that use nothing
    /// can be merged into any other version.
    pub(crate) fn columns_written(&self) -> Vec<(ColumnSet, ColumnSet)> {
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

    /// What the updates of an entry do with columns, if it has nothing but updates that were noted. What was not, an insertion or deletion
    /// among it, may have used anything.
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
        let is_first = |base: &&mut Base| base.entry as usize == entry && base.row_version != 0;
        let Some(first) = self.bases.writes.iter_mut().find(is_first) else { return false };
        let table = write.table();
        let Some(wire) = &table.wire else { return false };
        let after = record::row_of(table, write.row_version).as_ptr();
        let [base, newest] = [first.row_version, newer].map(|row_version| row(table, row_version));
        // SAFETY: row versions of the table, readable as we have been online since they were published; `after` is ours.
        let merged = unsafe { wire.rows.merge(base, newest, after, columns) };
        first.row_version = newer;
        if !merged {
            // It may have changed in part: whoever asks again is refused.
            self.bases.forget_writes();
        }
        merged
    }
}

/// Of columns of a row that an update uses or changes, those by which it can be in another's way. Rows that cannot be told apart are used
/// or changed whole.
pub(crate) fn of_row(table: &Table, columns: ColumnSet) -> ColumnSet {
    match table.updatable {
        ColumnSet::EMPTY if columns.is_empty() => columns,
        ColumnSet::EMPTY => ColumnSet::ALL,
        updatable => columns.intersection(updatable),
    }
}

/// The same of columns that are read. Whether there is a row is used, too.
pub(crate) fn of_read(table: &Table, columns: ColumnSet) -> ColumnSet {
    match table.updatable {
        ColumnSet::EMPTY => ColumnSet::ALL,
        updatable => columns.intersection(updatable).union(Prepared::REST),
    }
}

/// What updates of a row do, and one more.
fn then(columns: ColumnUse, base: &Base) -> ColumnUse {
    // Of several sums each has to stay in range, not just the last.
    let twice = columns.added.intersection(base.columns.added);
    columns.union(base.columns).union(twice.into())
}

/// The columns that are kept apart: each that an update may change.
pub(crate) fn column_groups(table: &Table) -> Vec<ColumnSet> {
    table.updatable.iter().map(ColumnSet::of).collect()
}

/// The newest committed version of a record and its TID word; `None` if there is none, or it stays locked.
pub(crate) fn newest(table: &Table, record: RecordPtr) -> Option<(TidWord, usize)> {
    record_header::settled_version(table, record).filter(|(word, _)| !word.is_removed() && !word.is_absent())
}

/// Whether two row versions of one record have the same values in these columns.
pub(crate) fn agree(table: &Table, one: usize, other: usize, columns: ColumnSet) -> bool {
    let Some(wire) = &table.wire else { return false };
    // SAFETY: row versions of the table, readable as we have been online since they were published.
    unsafe { wire.rows.agree(row(table, one), row(table, other), columns) }
}

/// A row version's row.
pub(crate) fn row<'t>(table: &Table, row_version: usize) -> RowRef<'t> {
    // SAFETY: the worker has been online since it was published, and is for the lifetime.
    unsafe { RowRef::from_raw(record::row_of(table, row_version).as_ptr()) }
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
    fn an_attempt_goes_on_from_each_newer_version_in_turn() {
        let seed = rng::entropy();
        println!("seed {seed}");
        let (bench, mut random) = (bench(), seriatim_base::Rng::from_seed(seed));
        let (mut worker, mut other) = (begin(&bench), bench.worker());
        add(&bench, &mut worker, 1);
        let mut sum = 1;
        for _ in 0..5 {
            let units = random.below(1000) as i64;
            other.begin(Mode::ReadWrite, Priority::NONE);
            add(&bench, &mut other, units.into());
            commit(&mut other);
            sum += units;
            assert!(worker.attempt().rebase(true), "the sum is not read");
            assert!(!worker.attempt().rebase(true), "there is no newer version");
        }
        commit(&mut worker);
        assert_eq!(bench.state(&[0]), [sum]);
    }

    #[test]
    fn what_could_not_be_merged_stays_refuted() {
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
