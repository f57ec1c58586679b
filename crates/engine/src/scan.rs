//! Scans: row versions in key or index order.

use std::ops::{Bound, ControlFlow};

use seriatim_catalog::{ColumnSet, KeyBuf, KeyRange, Organization, Value, ValueError};
use seriatim_history::Saw;
use seriatim_procedure::plan::Kind;
use seriatim_store::{Cursor, Direction, Unordered, read_key};
use seriatim_txn::{Reason, RowPtr};

use crate::cluster::{RunScan, bits};
use crate::earlier::LayoutScan;
use crate::error::Abort;
use crate::index::read_primary;
use crate::operations::{operate, read};
use crate::procedure::watch::{self, KeysSeen};
use crate::record::{Scanned, saw};
use crate::table::{Secondary, TableSet};
use crate::tx::TxCore;

/// The records that a scan visits.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// The rows of the table.
    Rows,
    /// The entries of an index, and through each its row.
    Index(usize),
}

/// Yields row versions; each step may report an abort, after which the transaction cannot commit.
#[must_use = "a scan reads nothing until it is iterated"]
pub struct RawScan<'t> {
    tx: &'t TxCore,
    set: &'t TableSet,
    target: Target,
    direction: Direction,
    /// The columns that the reader uses of the rows.
    columns: ColumnSet,
    /// The columns that each step reads: those of rows, or all of an index's entries.
    stepped: ColumnSet,
    state: Option<Box<seriatim_txn::Scan>>,
    /// The index whose entries are counted, if they are not followed.
    entries: Option<&'t Secondary>,
    /// For rows that do not lie in the records of one table.
    divided: Option<Divided<'t>>,
    failed: Option<Abort>,
    /// The entry of a hash index's key whose row is still to be read.
    found: Option<RowPtr>,
    record: Option<Box<Noted>>,
    /// The number of the access, if the transaction is watched.
    watched: Option<usize>,
    /// Whether rows of a run are lent in place, as the transaction is not watched.
    is_plain: bool,
}

/// Where the rows of a table lie that are not the records of its own layout.
enum Divided<'t> {
    /// In runs.
    Runs(RunScan),
    /// Some in records of earlier layouts.
    Layouts(Box<LayoutScan<'t>>),
}

/// The observations of a recorded scan so far.
struct Noted {
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    rows: Vec<(Vec<u8>, Saw)>,
    last: Option<Vec<u8>>,
    ended: bool,
    /// The value of `Log::scan_begins` when the scan began.
    began: usize,
}

impl<'t> RawScan<'t> {
    /// A scan of the keys between two bounds.
    // By reference: an owned key takes many words, which would be moved from function to function.
    #[inline]
    pub fn new(
        tx: &'t TxCore,
        set: &'t TableSet,
        target: Target,
        (low, high): (&Bound<KeyBuf>, &Bound<KeyBuf>),
        direction: Direction,
    ) -> RawScan<'t> {
        let mut scan = RawScan::idle(tx, set, target, direction);
        scan.failed = scan.admits().err();
        if scan.failed.is_some() {
            return scan;
        }
        if set.is_divided() && matches!(target, Target::Rows) {
            scan.failed = match set.is_clustered() {
                true => scan.start_in_runs(low, high).err(),
                false if scan.organization() == Organization::Ordered => scan.start_in_layouts(low, high).err(),
                false => Some(Abort::stopped(Reason::Unordered)),
            };
            return scan;
        }
        scan.failed = match scan.organization() {
            Organization::Ordered => scan.start(low, high).err(),
            Organization::Hash => Some(Abort::stopped(Reason::Unordered)),
        };
        scan.watch(low, high);
        scan
    }

    /// A scan of all rows: of an ordered table in key order, of a hash table in no order that means anything.
    pub fn of_table(tx: &'t TxCore, set: &'t TableSet) -> RawScan<'t> {
        let all = (&Bound::Unbounded, &Bound::Unbounded);
        let mut scan = RawScan::idle(tx, set, Target::Rows, Direction::Forward);
        scan.failed = scan.admits().err();
        if scan.failed.is_some() {
            return scan;
        }
        if scan.organization() == Organization::Ordered {
            return RawScan::new(tx, set, Target::Rows, all, Direction::Forward);
        }
        if set.is_divided() {
            scan.failed = scan.start_in_layouts(all.0, all.1).err();
            return scan;
        }
        let begin = |table: &seriatim_txn::Table, cursor: &mut Cursor| {
            table.index.scan_all(cursor);
            Ok(())
        };
        scan.failed = scan.start_by(false, begin).err();
        scan.watch(all.0, all.1);
        scan
    }

    /// A scan that has not begun.
    #[inline(always)]
    fn idle(tx: &'t TxCore, set: &'t TableSet, target: Target, direction: Direction) -> RawScan<'t> {
        let (state, entries, divided, failed, found, record, watched) = (None, None, None, None, None, None, None);
        let (columns, stepped, is_plain) = (ColumnSet::ALL, ColumnSet::ALL, false);
        RawScan {
            tx,
            set,
            target,
            direction,
            columns,
            stepped,
            state,
            entries,
            divided,
            failed,
            found,
            record,
            watched,
            is_plain,
        }
    }

    /// Notes the range, if the transaction is watched or recorded.
    #[inline(always)]
    fn watch(&mut self, low: &Bound<KeyBuf>, high: &Bound<KeyBuf>) {
        let RawScan { tx, set, target, .. } = *self;
        self.watched = tx.watch(Kind::Scan, set, target, || KeysSeen::Range(low.clone(), high.clone()));
        self.record(low, high);
    }

    /// Notes the range of records, if the transaction is recorded.
    #[inline(always)]
    fn record(&mut self, low: &Bound<KeyBuf>, high: &Bound<KeyBuf>) {
        let RawScan { tx, .. } = *self;
        if let Some(log) = &tx.log {
            let began = log.borrow().scan_begins();
            let owned = |bound: &Bound<KeyBuf>| bound.as_ref().map(|key| key.as_key().to_bytes().into_owned());
            let (low, high) = (owned(low), owned(high));
            self.record = Some(Box::new(Noted { low, high, rows: Vec::new(), last: None, ended: false, began }));
        }
    }

    /// The rows that an index finds for these values of its first columns. Those of a hash index have no direction.
    ///
    /// # Errors
    /// Values that are not of the index's types.
    pub fn of_values(
        tx: &'t TxCore,
        set: &'t TableSet,
        at: usize,
        values: &[Value],
        direction: Direction,
    ) -> Result<RawScan<'t>, ValueError> {
        let (index, definition) = (&set.indexes[at], &set.definition.indexes[at]);
        let codec = &index.table.codec;
        let is_whole = values.len() == definition.parts.len();
        if index.organization == Organization::Ordered {
            let KeyRange { low, high } = codec.range_of_values(values)?;
            return Ok(RawScan::new(tx, set, Target::Index(at), (&low, &high), direction));
        }
        if index.is_single() {
            let key = is_whole.then(|| codec.encode_values(values)).transpose()?;
            return Ok(RawScan::of_key(tx, set, at, key));
        }
        let range = is_whole.then(|| codec.range_of_values(values)).transpose()?;
        Ok(RawScan::of_range(tx, set, at, range))
    }

    /// The rows of one key of a hash index with shared keys: the entries that begin with the key. Without a
    /// whole key the scan fails.
    pub fn of_range(tx: &'t TxCore, set: &'t TableSet, at: usize, range: Option<KeyRange>) -> RawScan<'t> {
        let mut scan = RawScan::idle(tx, set, Target::Index(at), Direction::Forward);
        match range {
            None => scan.failed = Some(Abort::stopped(Reason::Unordered)),
            Some(KeyRange { low, high }) => {
                scan.failed = scan.admits().and_then(|()| scan.start(&low, &high)).err();
                scan.watch(&low, &high);
            }
        }
        scan
    }

    /// The row of one key of a unique hash index. Without a whole key the scan fails.
    pub fn of_key(tx: &'t TxCore, set: &'t TableSet, at: usize, key: Option<KeyBuf>) -> RawScan<'t> {
        let target = Target::Index(at);
        let mut scan = RawScan::idle(tx, set, target, Direction::Forward);
        if let Some(key) = &key {
            scan.watched = tx.watch(Kind::Scan, set, target, || watch::one(key.as_key()));
        }
        match scan.look_up(key) {
            Ok(found) => scan.found = found,
            Err(abort) => scan.failed = Some(abort),
        }
        scan
    }

    /// The entry of one key of a hash index.
    fn look_up(&self, key: Option<KeyBuf>) -> Result<Option<RowPtr>, Abort> {
        let _call = self.tx.call()?;
        self.admits()?;
        let key = key.ok_or(Abort::stopped(Reason::Unordered))?;
        read(self.tx, self.table(), key.as_key(), ColumnSet::ALL)
    }

    /// Whether the table is of this database, admits operations, and still has the index. A scan begins with this:
    /// its parts fit together only then.
    fn admits(&self) -> Result<(), Abort> {
        let _call = self.tx.call()?;
        self.tx.own(self.set)?;
        self.tx.admits(self.set)?;
        match self.target {
            Target::Index(at) => self.tx.index(self.set, at).map(drop),
            Target::Rows => Ok(()),
        }
    }

    /// The declared organization of the scanned table or index.
    fn organization(&self) -> Organization {
        match self.target {
            Target::Rows => self.set.primary.organization,
            Target::Index(at) => self.set.indexes.get(at).map_or(Organization::Ordered, |index| index.organization),
        }
    }

    /// The number of entries of an index of the table in a range, of which it looks at `most`. The index may still be
    /// being built.
    ///
    /// # Errors
    /// A conflict.
    pub(crate) fn count_entries(
        tx: &'t TxCore,
        set: &'t TableSet,
        index: &'t Secondary,
        range: &KeyRange,
        most: usize,
    ) -> Result<usize, Abort> {
        let mut scan = RawScan::idle(tx, set, Target::Rows, Direction::Forward);
        scan.admits()?;
        scan.entries = Some(index);
        scan.start(&range.low, &range.high)?;
        let mut scan = scan.transient();
        scan.record(&range.low, &range.high);
        let _call = tx.call()?;
        let mut count = 0;
        while count < most
            && let Some(entry) = scan.step()
        {
            entry?;
            count += 1;
        }
        Ok(count)
    }

    /// The scanned table or index.
    pub fn table(&self) -> &'t seriatim_txn::Table {
        if let Some(index) = self.entries {
            return &index.table;
        }
        match self.target {
            Target::Rows => &self.set.primary,
            // The scan of an index that was dropped fails when it starts.
            Target::Index(at) => self.set.indexes.get(at).map_or(&*self.set.primary, |index| &index.table),
        }
    }

    #[inline(always)]
    fn start(&mut self, low: &Bound<KeyBuf>, high: &Bound<KeyBuf>) -> Result<(), Abort> {
        let direction = self.direction;
        self.start_by(is_empty(low, high), |table, cursor| {
            let bounds = (low.as_ref().map(KeyBuf::as_key), high.as_ref().map(KeyBuf::as_key));
            table.index.scan(bounds.0, bounds.1, direction, cursor)
        })
    }

    /// Begins at the position in which `begin` puts the cursor, unless the range is empty.
    #[inline(always)]
    fn start_by(
        &mut self,
        is_empty: bool,
        begin: impl FnOnce(&seriatim_txn::Table, &mut Cursor) -> Result<(), Unordered>,
    ) -> Result<(), Abort> {
        let _call = self.tx.call()?;
        let table = self.table();
        if is_empty {
            return Ok(());
        }
        let mut state = self.tx.scans.borrow_mut().pop().unwrap_or_default();
        state.restart();
        // An entry is followed at once, and an explicit transaction keeps its rows itself.
        state.transient = matches!(self.target, Target::Index(_)) || self.tx.keeps_rows();
        if begin(table, &mut state.cursor).is_err() {
            return Err(Abort::stopped(Reason::Unordered));
        }
        self.state = Some(state);
        Ok(())
    }

    /// Begins a scan of the rows of a clustered table, over the runs that can have any.
    #[inline(never)]
    fn start_in_runs(&mut self, low: &Bound<KeyBuf>, high: &Bound<KeyBuf>) -> Result<(), Abort> {
        let RawScan { tx, set, .. } = *self;
        let _call = tx.call()?;
        self.watched = tx.watch(Kind::Scan, set, Target::Rows, || KeysSeen::Range(low.clone(), high.clone()));
        self.is_plain = self.watched.is_none() && !tx.keeps_rows();
        if is_empty(low, high) {
            return Ok(());
        }
        let number = |bound: &Bound<KeyBuf>| bound.as_ref().map(|key| bits(key.as_key()));
        let Some(run) = RunScan::new(set, &number(low), &number(high), self.direction) else { return Ok(()) };
        let low = match low {
            Bound::Unbounded => &Bound::Unbounded,
            // Rows may lie in a run whose key is less.
            _ => &Bound::Included(set.cluster.key(tx.first_run(set, run.low())?).to_buf()),
        };
        self.divided = Some(Divided::Runs(run));
        self.start(low, high)?;
        if let Some(state) = &mut self.state {
            // Runs stay readable until the transaction ends, even if the record's row does not.
            state.transient = true;
        }
        self.record(low, high);
        Ok(())
    }

    /// Begins a scan of the rows of a table some of whose rows have earlier layouts.
    #[inline(never)]
    fn start_in_layouts(&mut self, low: &Bound<KeyBuf>, high: &Bound<KeyBuf>) -> Result<(), Abort> {
        let RawScan { tx, set, direction, .. } = *self;
        let _call = tx.call()?;
        self.watched = tx.watch(Kind::Scan, set, Target::Rows, || KeysSeen::Range(low.clone(), high.clone()));
        self.divided = Some(Divided::Layouts(Box::new(LayoutScan::new(tx, set, (low, high), direction))));
        Ok(())
    }

    /// The scan, reading only these columns of its rows.
    #[inline]
    pub fn with_columns(mut self, columns: ColumnSet) -> RawScan<'t> {
        self.columns = columns;
        if matches!(self.target, Target::Rows) && self.divided.is_none() {
            self.stepped = columns;
        }
        self
    }

    /// The scan, for a caller that uses each row only until the next step, which may overwrite it.
    #[inline]
    pub fn transient(mut self) -> RawScan<'t> {
        // A watched execution identifies rows by their addresses.
        if self.watched.is_none() {
            match (&mut self.state, &mut self.divided) {
                (Some(state), _) => state.transient = true,
                (None, Some(Divided::Layouts(layouts))) => layouts.is_transient = true,
                (None, _) => {}
            }
        }
        self
    }

    /// Calls `visit` for each remaining row until it breaks. The row is readable only during that call.
    ///
    /// # Errors
    /// A conflict; those of `visit`.
    #[inline]
    pub fn try_for_each<B>(
        self,
        mut visit: impl FnMut(RowPtr) -> Result<ControlFlow<B>, Abort>,
    ) -> Result<ControlFlow<B>, Abort> {
        let (mut scan, mut shown) = (self.transient(), None);
        while let Some(row) = scan.next_as(|tx, set, row| tx.show(set, row, &mut shown)) {
            if let ControlFlow::Break(value) = visit(row?)? {
                return Ok(ControlFlow::Break(value));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The columns that are read of its rows.
    #[inline(always)]
    pub fn columns(&self) -> ColumnSet {
        self.columns
    }

    /// The scan, or the reason why it did not begin.
    ///
    /// # Errors
    /// A conflict, a table that is not ordered, a handle of another database.
    pub fn begun(mut self) -> Result<RawScan<'t>, Abort> {
        match self.failed.take() {
            None => Ok(self),
            Some(abort) => Err(abort),
        }
    }

    /// The table whose rows it yields.
    pub(crate) fn set(&self) -> &'t TableSet {
        self.set
    }

    /// The number of remaining rows.
    ///
    /// # Errors
    /// A conflict.
    pub fn count(self) -> Result<usize, Abort> {
        // An index has an entry for each row, so rows need not be read.
        let mut scan = self.with_columns(ColumnSet::EMPTY).transient().begun()?;
        let _call = scan.tx.call()?;
        let mut count = usize::from(scan.found.take().is_some());
        if let Some(Divided::Layouts(layouts)) = &mut scan.divided {
            while layouts.next(scan.tx, scan.set, scan.direction, ColumnSet::EMPTY)?.is_some() {
                count += 1;
            }
        }
        while let Some(row) = scan.step() {
            let row = row?;
            count += match &mut scan.divided {
                Some(Divided::Runs(run)) => run.enter(scan.set, &scan.tx.open_run, row),
                _ => 1,
            };
        }
        Ok(count)
    }

    /// The next row of the table. An abort ends the transaction.
    #[inline(always)]
    #[allow(clippy::should_implement_trait, reason = "iterators over rows, with their types, are made of it")]
    pub fn next(&mut self) -> Option<Result<RowPtr, Abort>> {
        if self.is_plain
            && let Some(Divided::Runs(run)) = &mut self.divided
            && let Some(row) = run.next()
        {
            return Some(Ok(row));
        }
        self.next_kept()
    }

    /// As [`RawScan::next`], if the next row must be read, or kept.
    #[inline(never)]
    fn next_kept(&mut self) -> Option<Result<RowPtr, Abort>> {
        self.next_as(|tx, set, row| tx.lend(set, row))
    }

    /// The next row of the table, as `give` returns it.
    #[inline(always)]
    fn next_as(
        &mut self,
        give: impl FnOnce(&TxCore, &TableSet, RowPtr) -> Result<RowPtr, Abort>,
    ) -> Option<Result<RowPtr, Abort>> {
        let call = match self.tx.call() {
            Ok(call) => call,
            Err(abort) => return self.refused(abort),
        };
        let next = match self.advance() {
            Some(Err(abort)) => Some(Err(self.tx.end_with(abort))),
            Some(Ok(row)) => Some(give(self.tx, self.set, row)),
            None => None,
        };
        drop(call);
        if let (Some(_), Some(Ok(row))) = (self.watched, &next) {
            self.tx.watch_row(self.watched, Some(row.as_ptr()), ColumnSet::EMPTY);
        }
        next
    }

    /// The transaction was ended between two steps: the last item is the abort.
    #[cold]
    fn refused(&mut self, abort: Abort) -> Option<Result<RowPtr, Abort>> {
        let in_layouts = matches!(self.divided, Some(Divided::Layouts(_)));
        let is_over = self.state.is_none() && self.found.is_none() && self.failed.is_none() && !in_layouts;
        self.put_back();
        (self.found, self.failed) = (None, None);
        if in_layouts {
            self.divided = None;
        }
        (!is_over).then_some(Err(abort))
    }

    /// The next row, for a caller in a call that does not keep it.
    #[inline]
    pub(crate) fn advance(&mut self) -> Option<Result<RowPtr, Abort>> {
        if let Some(abort) = self.failed.take() {
            return Some(Err(abort));
        }
        if let Some(entry) = self.found.take() {
            return self.follow(entry).transpose();
        }
        loop {
            match &mut self.divided {
                None => {}
                Some(Divided::Runs(run)) => {
                    if let Some(row) = run.next() {
                        return Some(Ok(row));
                    }
                }
                Some(Divided::Layouts(layouts)) => {
                    let next = layouts.next(self.tx, self.set, self.direction, self.columns);
                    if !matches!(next, Ok(Some(_))) {
                        self.divided = None;
                    }
                    return next.transpose();
                }
            }
            let row = match self.step()? {
                Ok(row) => row,
                Err(abort) => return Some(Err(abort)),
            };
            match self.target {
                Target::Rows => match &mut self.divided {
                    Some(Divided::Runs(run)) => drop(run.enter(self.set, &self.tx.open_run, row)),
                    _ => return Some(Ok(row)),
                },
                Target::Index(_) => match self.follow(row).transpose() {
                    Some(row) => return Some(row),
                    // The entry's row is gone: the two are not of one state, and the commit will fail.
                    // Continue.
                    None => continue,
                },
            }
        }
    }

    /// The next row or index entry.
    #[inline]
    fn step(&mut self) -> Option<Result<RowPtr, Abort>> {
        let table = self.table();
        let state = self.state.as_deref_mut()?;
        let columns = self.stepped;
        let step = operate(self.tx, |worker| worker.scan_next(table, state, columns));
        if self.record.is_some() {
            self.note(&step);
        }
        if !matches!(step, Ok(Some(_))) {
            self.put_back();
        }
        step.transpose()
    }

    fn follow(&self, entry: RowPtr) -> Result<Option<RowPtr>, Abort> {
        let primary = &self.set.primary;
        // SAFETY: an entry of an index of this table, readable until the next step.
        let key = unsafe { read_primary(entry, primary.class) };
        self.tx.read_row(self.set, key, self.columns)
    }

    #[cold]
    fn note(&mut self, step: &Result<Option<RowPtr>, Abort>) {
        let (class, seen) = (self.table().class, self.tx.worker().seen());
        let Some(noted) = &mut self.record else { return };
        match (step, seen.record) {
            (Ok(Some(_)), Some(record)) => {
                // SAFETY: key words of a linked record never change; the transaction is open.
                let key = unsafe { read_key(record, class) }.to_bytes().into_owned();
                if !seen.own {
                    noted.rows.push((key.clone(), saw(seen)));
                }
                noted.last = Some(key);
            }
            _ => noted.ended = step.is_ok(),
        }
    }

    /// Keeps the reusable part.
    fn put_back(&mut self) {
        if let Some(state) = self.state.take() {
            let mut scans = self.tx.scans.borrow_mut();
            if scans.len() < SCANS_KEPT {
                scans.push(state);
            }
        }
    }
}

/// Scans kept for reuse: more than a transaction has open at a time.
const SCANS_KEPT: usize = 16;

/// Whether no key can lie between the bounds.
fn is_empty(low: &Bound<KeyBuf>, high: &Bound<KeyBuf>) -> bool {
    match (low, high) {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => low >= high,
        _ => false,
    }
}

impl Drop for RawScan<'_> {
    #[inline]
    fn drop(&mut self) {
        self.put_back();
        if let (Some(noted), Some(log)) = (self.record.take(), &self.tx.log) {
            let Noted { mut low, mut high, rows, last, ended, began } = *noted;
            match (ended, last, self.direction) {
                (true, _, _) => {}
                // Without an order, a scan that stopped early claims nothing beyond the rows themselves.
                (false, _, _) if self.table().index.organization() == Organization::Hash => {
                    for row in rows {
                        let (low, high) = (Bound::Included(row.0.clone()), Bound::Included(row.0.clone()));
                        let rows = vec![row];
                        let scanned = Scanned { low, high, rows, columns: self.stepped, began };
                        log.borrow_mut().scan(self.table().id, scanned);
                    }
                    return;
                }
                // Stopped early: the scan claims nothing beyond the last row that it visited.
                (false, Some(last), Direction::Forward) => high = Bound::Included(last),
                (false, Some(last), Direction::Backward) => low = Bound::Included(last),
                // The scan made no step.
                (false, None, _) => return,
            }
            let scanned = Scanned { low, high, rows, columns: self.stepped, began };
            log.borrow_mut().scan(self.table().id, scanned);
        }
    }
}
