//! Records histories for the checker: which versions committed transactions read and wrote.
//!
//! The hooks are in code that every protocol uses. Reads are recorded as the contract's `seen` reports them.
//! Writes are recorded as the redo buffer gets them, with the columns that the write changed. So a protocol
//! cannot forget to record, and an unrecorded version is a finding.

use std::collections::{BTreeSet, HashMap};
use std::ops::{Bound, RangeBounds};
use std::sync::{Mutex, PoisonError};

use seriatim_base::{TableId, Tid, clock};
use seriatim_catalog::{ColumnSet, Key, RowRef};
use seriatim_history::{Columns, Recorder, Saw};
use seriatim_redo::catalogue;
use seriatim_txn::{Before, Redo, RowPtr, Runs, Seen, Table};

/// For each procedure the group in which it is ordered, where deferred additions may be published later.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<HashMap<String, u32>>);

impl Groups {
    /// Replaces the set of procedures and their groups. Called before the windows are opened: the end of an
    /// interval separates transactions of this set from those of the previous one. So no group has a number
    /// that another had before.
    pub(crate) fn set<'p>(&self, groups: impl Iterator<Item = (&'p str, usize)>) {
        let mut numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = numbers.values().max().map_or(0, |last| last + 1);
        *numbers = groups.map(|(procedure, group)| (procedure.to_owned(), first + group as u32)).collect();
    }
}

/// The recorder of one session.
pub(crate) struct Log {
    recorder: Recorder,
    session: u32,
    /// The procedure that the session runs.
    procedure: &'static str,
    /// The open transaction shows all that had ended by this time.
    shows: u64,
    /// Snapshots of the past show at least what had ended by this time.
    shown: u64,
    /// Keys that the open transaction has written, in this order.
    written: Vec<(TableKey, Run)>,
    /// Keys of writes that were rolled back.
    taken_back: Vec<TableKey>,
    /// The current run, and the run of each noted read and scan.
    run: Run,
    reads: Vec<Run>,
    scans: Vec<Run>,
}

/// An execution of an operation, if the protocol repairs: the operation and the iteration.
type Run = Option<(u16, u32)>;

fn is_of(run: Run, runs: Runs) -> bool {
    run.is_some_and(|(operation, iteration)| {
        operation == runs.operation && runs.iteration.is_none_or(|wanted| wanted == iteration)
    })
}

type TableKey = (TableId, Vec<u8>);

/// A finished scan: its bounds, shortened to the range that it visited, and the rows that it saw.
pub(crate) struct Scanned {
    pub(crate) low: Bound<Vec<u8>>,
    pub(crate) high: Bound<Vec<u8>>,
    pub(crate) rows: Vec<(Vec<u8>, Saw)>,
    /// The columns that the reader uses of each row.
    pub(crate) columns: ColumnSet,
    /// The value of [`Log::scan_begins`] when the scan began.
    pub(crate) began: usize,
}

/// The observation of a key that `seen` reports.
pub(crate) fn saw(seen: Seen) -> Saw {
    match (seen.absent, seen.record) {
        (false, _) => Saw::Row(seen.tid.bits()),
        (true, Some(_)) if seen.tid > Tid::ZERO => Saw::AbsentAt(seen.tid.bits()),
        (true, _) => Saw::Absent,
    }
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(bytes) => Bound::Included(bytes),
        Bound::Excluded(bytes) => Bound::Excluded(bytes),
        Bound::Unbounded => Bound::Unbounded,
    }
}

impl Log {
    pub(crate) fn new(recorder: Recorder, session: u32) -> Log {
        let (written, taken_back, reads, scans) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Log { recorder, session, procedure: "", shows: 0, shown: 0, written, taken_back, run: None, reads, scans }
    }

    /// Begins a transaction that shows the present, on a snapshot or not.
    pub(crate) fn begin(&mut self, on_snapshot: bool) {
        let now = clock::Instant::now().nanoseconds();
        self.recorder.begin(self.session, now);
        self.shows = now;
        self.written.clear();
        self.taken_back.clear();
        self.reads.clear();
        self.scans.clear();
        self.run = None;
        if on_snapshot {
            self.recorder.snapshot(now);
        }
    }

    /// Sets the procedure that the session runs.
    pub(crate) fn name_procedure(&mut self, procedure: &'static str) {
        self.procedure = procedure;
    }

    /// The open transaction is a procedure of `groups`: its worker has them now.
    pub(crate) fn follow(&mut self, Groups(groups): &Groups) {
        if let Some(group) = groups.lock().unwrap_or_else(PoisonError::into_inner).get(self.procedure) {
            self.recorder.in_group(*group);
        }
    }

    /// The open transaction begins its commit.
    pub(crate) fn decides(&mut self) {
        self.recorder.decides(clock::Instant::now().nanoseconds());
    }

    /// The open transaction runs on a snapshot that was made before it began.
    pub(crate) fn shows_from(&mut self, made: u64) {
        self.recorder.snapshot(made);
        self.shows = made;
    }

    /// The open transaction runs on a snapshot of the past. With `own` it shows what earlier snapshots of its
    /// session showed.
    pub(crate) fn shows_past(&mut self, own: bool) {
        self.shows_from(if own { self.shown } else { 0 });
    }

    /// Later snapshots of the session come after the open transaction.
    pub(crate) fn was_shown(&mut self) {
        self.shown = self.shown.max(self.shows);
    }

    pub(crate) fn read(&mut self, table: TableId, key: Key<'_>, columns: ColumnSet, seen: Seen) {
        if !seen.own && table != catalogue::TABLE {
            self.recorder.read(table, &key.to_bytes(), Columns(columns.bits()), saw(seen));
            self.reads.push(self.run);
        }
    }

    /// The following accesses belong to this run of an operation.
    pub(crate) fn run(&mut self, operation: u16, iteration: u32) {
        self.run = Some((operation, iteration));
    }

    /// Forgets the accesses of these runs: a repair has dropped them.
    pub(crate) fn forget(&mut self, runs: Runs) {
        let Log { recorder, written, taken_back, reads, scans, .. } = self;
        recorder.retain(|read| !is_of(reads[read], runs), |scan| !is_of(scans[scan], runs));
        reads.retain(|run| !is_of(*run, runs));
        scans.retain(|run| !is_of(*run, runs));
        taken_back.extend(written.extract_if(.., |(_, run)| is_of(*run, runs)).map(|(place, _)| place));
    }

    /// The transaction wrote a key. Its later reads of the key see its own write.
    pub(crate) fn wrote(&mut self, table: TableId, key: Key<'_>) {
        if table == catalogue::TABLE {
            return;
        }
        self.written.push(((table, key.to_bytes().into_owned()), self.run));
    }

    /// The transaction's position, for a rollback.
    pub(crate) fn savepoint(&self) -> usize {
        self.written.len()
    }

    /// Rolls back the writes since a savepoint.
    pub(crate) fn rollback_to(&mut self, savepoint: usize) {
        self.taken_back.extend(self.written.drain(savepoint..).map(|(place, _)| place));
    }

    /// A scan begins.
    pub(crate) fn scan_begins(&self) -> usize {
        self.taken_back.len()
    }

    /// Records a scan. It makes no claim about keys on which a write of the transaction lay meanwhile. Such a
    /// write may stay, or be rolled back, and then it is not in the history.
    pub(crate) fn scan(&mut self, table: TableId, scanned: Scanned) {
        let Scanned { low, high, rows, columns, began } = scanned;
        let range = (borrowed(&low), borrowed(&high));
        self.recorder.scan(table, range.0, range.1, Columns(columns.bits()));
        self.scans.push(self.run);
        let seen: BTreeSet<&[u8]> = rows.iter().map(|(key, _)| &**key).collect();
        for (key, saw) in &rows {
            self.recorder.scan_saw(key, *saw);
        }
        let own = self.written.iter().map(|(place, _)| place).chain(&self.taken_back[began..]);
        let hidden = own.filter(|(of, key)| *of == table && range.contains::<[u8]>(key) && !seen.contains(&**key));
        let hidden: BTreeSet<&[u8]> = hidden.map(|(_, key)| &**key).collect();
        for key in hidden {
            self.recorder.scan_saw(key, Saw::Hidden);
        }
    }

    pub(crate) fn commit(&mut self) {
        self.recorder.commit(clock::Instant::now().nanoseconds());
    }
}

/// The columns in which two rows of a table differ; `None` if the table has no declaration of its columns.
fn differing(table: &Table, before: RowPtr, after: RowPtr) -> Option<Columns> {
    let wire = table.wire.as_ref()?;
    // SAFETY: rows of the table, readable during the call (the contract of `Redo`).
    let [before, after] = [before, after].map(|row| unsafe { RowRef::from_raw(row.as_ptr()) });
    // SAFETY: as above; read by the table's own declaration.
    Some(Columns(unsafe { wire.rows.differing(before, after) }.bits()))
}

impl Redo for Log {
    fn write(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Option<Before>, after: Option<RowPtr>) {
        if table.id == catalogue::TABLE {
            return;
        }
        let columns = before.zip(after).and_then(|(before, after)| differing(table, before.row, after));
        self.recorder.write(table.id, &key.to_bytes(), tid.bits(), after.is_none(), columns);
    }

    fn add(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Before, after: RowPtr) {
        match differing(table, before.row, after) {
            Some(columns) => self.recorder.add(table.id, &key.to_bytes(), tid.bits(), columns),
            None => self.write(table, key, tid, Some(before), Some(after)),
        }
    }

    fn defers(&mut self) -> u64 {
        self.recorder.defers()
    }
}
