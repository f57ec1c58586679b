//! Records histories for the checker: what committed transactions read and wrote, by version.
//!
//! Hooks sit where every protocol passes: reads are noted as the contract's `seen` reports them, writes as the redo buffer gets
//! them, with the columns in which the row differs from the one before. So a protocol cannot forget to record, and an unrecorded version is a finding.

use std::collections::{BTreeSet, HashMap};
use std::ops::{Bound, RangeBounds};
use std::sync::{Mutex, PoisonError};

use seriatim_base::{TableId, Tid, clock};
use seriatim_catalog::{ColumnSet, Key, RowRef};
use seriatim_history::{Columns, Recorder, Saw};
use seriatim_txn::{Before, Redo, RowPtr, Runs, Seen, Table};

/// By procedure, the group that it is ordered in, where what others use may be published later.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<HashMap<String, u32>>);

impl Groups {
    /// The set is another, of which each procedure is in this group. Before the windows are opened: between transactions of this set and those of
    /// the one before lies the end of an interval, so no group has a number that one had before.
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
    /// What had ended by then the open transaction shows, and what the session's snapshots of the past show.
    shows: u64,
    shown: u64,
    /// Keys on which a write of the open transaction lies, in the order in which they were written.
    written: Vec<(Place, Run)>,
    /// Keys on which one lay that was taken back.
    taken_back: Vec<Place>,
    /// The run that is going on, and those of each read and of each scan that was noted.
    run: Run,
    reads: Vec<Run>,
    scans: Vec<Run>,
}

/// A run of an operation, where the protocol repairs: the operation and the iteration.
type Run = Option<(u16, u32)>;

fn is_of(run: Run, runs: Runs) -> bool {
    run.is_some_and(|(operation, iteration)| {
        operation == runs.operation && runs.iteration.is_none_or(|wanted| wanted == iteration)
    })
}

type Place = (TableId, Vec<u8>);

/// A finished scan: its bounds, shortened to what it looked at, and the rows it saw.
pub(crate) struct Scanned {
    pub(crate) low: Bound<Vec<u8>>,
    pub(crate) high: Bound<Vec<u8>>,
    pub(crate) rows: Vec<(Vec<u8>, Saw)>,
    /// What is used of each.
    pub(crate) columns: ColumnSet,
    /// [`Log::scan_begins`] when it began.
    pub(crate) began: usize,
}

/// What `seen` says of a key.
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

    /// A transaction begins that shows the present, on a snapshot or not.
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

    /// Procedures that follow are this one.
    pub(crate) fn name_procedure(&mut self, procedure: &'static str) {
        self.procedure = procedure;
    }

    /// The open transaction is a procedure of the set, as the worker knows by now.
    pub(crate) fn follow(&mut self, Groups(groups): &Groups) {
        if let Some(group) = groups.lock().unwrap_or_else(PoisonError::into_inner).get(self.procedure) {
            self.recorder.in_group(*group);
        }
    }

    /// The open transaction goes to its commit.
    pub(crate) fn decides(&mut self) {
        self.recorder.decides(clock::Instant::now().nanoseconds());
    }

    /// The open transaction runs on a snapshot that was made before it began.
    pub(crate) fn shows_from(&mut self, made: u64) {
        self.recorder.snapshot(made);
        self.shows = made;
    }

    /// It runs on a snapshot of the past: not older than what its session was shown, if it is to show that.
    pub(crate) fn shows_past(&mut self, own: bool) {
        self.shows_from(if own { self.shown } else { 0 });
    }

    /// The session's snapshots come after the open transaction from now on.
    pub(crate) fn was_shown(&mut self) {
        self.shown = self.shown.max(self.shows);
    }

    pub(crate) fn read(&mut self, table: TableId, key: Key<'_>, columns: ColumnSet, seen: Seen) {
        if !seen.own {
            self.recorder.read(table, &key.to_bytes(), Columns(columns.bits()), saw(seen));
            self.reads.push(self.run);
        }
    }

    /// What follows is of this run of an operation.
    pub(crate) fn run(&mut self, operation: u16, iteration: u32) {
        self.run = Some((operation, iteration));
    }

    /// What these runs saw and wrote is of no account: a repair has dropped it.
    pub(crate) fn forget(&mut self, runs: Runs) {
        let Log { recorder, written, taken_back, reads, scans, .. } = self;
        recorder.retain(|read| !is_of(reads[read], runs), |scan| !is_of(scans[scan], runs));
        reads.retain(|run| !is_of(*run, runs));
        scans.retain(|run| !is_of(*run, runs));
        taken_back.extend(written.extract_if(.., |(_, run)| is_of(*run, runs)).map(|(place, _)| place));
    }

    /// The transaction wrote a key, and reads its own write there from now on.
    pub(crate) fn wrote(&mut self, table: TableId, key: Key<'_>) {
        self.written.push(((table, key.to_bytes().into_owned()), self.run));
    }

    /// Where the transaction is, to go back to.
    pub(crate) fn savepoint(&self) -> usize {
        self.written.len()
    }

    /// What it wrote since is taken back.
    pub(crate) fn rollback_to(&mut self, savepoint: usize) {
        self.taken_back.extend(self.written.drain(savepoint..).map(|(place, _)| place));
    }

    /// A scan begins.
    pub(crate) fn scan_begins(&self) -> usize {
        self.taken_back.len()
    }

    /// Notes a scan. Where a write of the transaction lay while it went on, it says nothing: the write may stay, or be taken back
    /// and then is not in the history.
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

/// The columns in which two rows of a table differ; `None` where it has no declaration of them.
fn differing(table: &Table, before: RowPtr, after: RowPtr) -> Option<Columns> {
    let wire = table.wire.as_ref()?;
    // SAFETY: rows of the table, readable during the call (the contract of `Redo`).
    let [before, after] = [before, after].map(|row| unsafe { RowRef::from_raw(row.as_ptr()) });
    // SAFETY: as above; read by the table's own declaration.
    Some(Columns(unsafe { wire.rows.differing(before, after) }.bits()))
}

impl Redo for Log {
    fn write(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Option<Before>, after: Option<RowPtr>) {
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
