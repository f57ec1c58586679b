//! Rows of earlier layouts: a table whose columns change keeps its rows as they are.
//!
//! The change gives the table a second, empty table of records in the new layout. The records of before stay behind
//! it as an [`EarlierRows`]. Each row lies in one of them. A reader looks in the earlier ones first, and converts
//! what it finds into memory of the transaction. A write moves the row first: it deletes it there and inserts it
//! here. These are operations of the protocol in the same transaction, so nothing else needs to hold for
//! serializability. A pass in the background moves the rows that nobody writes.
//!
//! Rows that the pass moves are not logged. The log and the checkpoint have them in the earlier layout, and recovery
//! decodes them as rows of the table ([`seriatim_redo::catalogue::EarlierEntry`]). A checkpoint leaves out rows that
//! changed since it began, as the log has them, so the pass moves none meanwhile. Indexes have primary keys, which
//! stay.
//!
//! Invariant: nothing is inserted into an earlier table. The table forgets it when the pass has seen it all, at a
//! moment at which no transaction is open. Every snapshot that begins then shows the rows that the pass moved.

use std::collections::HashSet;
use std::ops::Bound;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_catalog::evolution::{Evolution, Source};
use seriatim_catalog::{ColumnId, ColumnSet, Conversion, Key, KeyBuf, Organization, RowRef, TableDef, copy_row};
use seriatim_memory::Charge;
use seriatim_redo::catalogue::{self, EarlierEntry, compose};
use seriatim_store::{Direction, Walk};
use seriatim_txn::{Cause, Inserted, Mode, OnExists, Phase, Reason, RowPtr};

use crate::durability::{CatalogueRows, Persistence, Rows, Stuck, WalkedRow, Walker};
use crate::engine::{Foundation, Inner};
use crate::error::Abort;
use crate::operations::{operate, read};
use crate::scan::{RawScan, Target};
use crate::table::{Shape, TableSet};
use crate::tx::{Origin, OutOfLineValues, TxCore, insert_staged};

/// The rows of a table that have earlier layouts.
#[derive(Default)]
pub(crate) struct Earlier {
    /// The oldest first.
    pub(crate) layouts: Vec<EarlierRows>,
    /// The table without them; present if there are some.
    own: Option<Box<TableSet>>,
}

/// The rows of one earlier layout.
pub(crate) struct EarlierRows {
    /// As a table of its own, without indexes.
    pub(crate) set: Box<TableSet>,
    /// For each column of the table now.
    sources: Vec<Source>,
    /// The same, as the catalogue has it.
    origins: Vec<catalogue::Origin>,
    conversion: Conversion,
    /// How far the pass has got.
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    walk: Walk,
    is_over: bool,
}

impl Earlier {
    /// Those of a table with these parts before a change, after which it has `after`. `None` if rows must be read for
    /// the change.
    pub(crate) fn after(
        foundation: &Foundation,
        before: &Shape,
        after: &Shape,
        evolution: &Evolution,
        position: u64,
    ) -> Option<Earlier> {
        let to = &after.definition;
        let rows = |set: Box<TableSet>, from: &TableDef, sources: Vec<Source>| {
            let (conversion, origins) = (Conversion::new(from, to, &sources)?, EarlierEntry::origins(&sources)?);
            Some(EarlierRows { set, sources, origins, conversion, progress: Mutex::default() })
        };
        let older = before.earlier.layouts.iter().map(|layout| {
            let set = layout.set.apart(foundation);
            rows(set, &layout.set.definition, compose(&layout.sources, evolution.sources()))
        });
        let mut layouts = older.collect::<Option<Vec<EarlierRows>>>()?;
        let alone = |shape: &Shape| Box::new(TableSet::of(foundation, shape.of_rows_alone(), position));
        layouts.push(rows(alone(before), &before.definition, evolution.sources().to_vec())?);
        Some(Earlier { layouts, own: Some(alone(after)) })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.layouts.is_empty()
    }
}

impl EarlierRows {
    /// What the catalogue says of it. `of` is the table that replaced it.
    pub(crate) fn entry(&self, of: &Shape, is_drained: bool) -> EarlierEntry {
        let columns = self.origins.clone();
        EarlierEntry { table: self.set.primary.id, of: of.primary.id, columns, is_drained }
    }

    /// The columns that hold these columns of the table now.
    fn columns(&self, now: ColumnSet) -> ColumnSet {
        if now == ColumnSet::ALL {
            return now;
        }
        let of = |(at, source): (usize, &Source)| match source {
            Source::Of(column) if now.contains(ColumnId(at as u16)) => Some(*column),
            _ => None,
        };
        self.sources.iter().enumerate().filter_map(of).collect()
    }

    /// The row version of a row as it is now. It shares the fixed part and long texts with the row.
    fn converted(&self, row: RowPtr, image: &mut Vec<u64>) -> RowPtr {
        image.resize(self.conversion.words(), 0);
        // SAFETY: a row of the earlier table, readable during the call.
        unsafe { self.conversion.write(RowRef::from_raw(row.as_ptr()), image) };
        NonNull::from(&mut **image).cast()
    }

    /// Shows a row of the earlier table as one of the table now.
    pub(crate) fn show<R>(&self, row: RowPtr, image: &mut Vec<u64>, see: impl FnOnce(RowPtr) -> R) -> R {
        see(self.converted(row, image))
    }
}

/// Converted rows that a transaction has read. They count against the memory limit, beyond the first bytes.
pub(crate) struct ConvertedRows {
    rows: Vec<Vec<u64>>,
    bytes: usize,
    charge: Charge,
}

/// Bytes of converted rows that are charged at a time.
const CHARGE_STEP: usize = 64 << 10;

impl ConvertedRows {
    pub(crate) fn new(charge: Charge) -> ConvertedRows {
        ConvertedRows { rows: Vec::new(), bytes: 0, charge }
    }

    pub(crate) fn clear(&mut self) {
        self.rows = Vec::new();
        self.bytes = 0;
        self.charge.set(0);
    }
}

/// A row of a table some of whose rows have earlier layouts.
enum Found<'s> {
    Now(RowPtr),
    Earlier(&'s EarlierRows, RowPtr),
}

impl TxCore {
    /// The row at a key, of a table some of whose rows have earlier layouts. It stays readable as all rows do.
    #[cold]
    #[inline(never)]
    pub(crate) fn read_converted(
        &self,
        set: &TableSet,
        key: Key<'_>,
        columns: ColumnSet,
    ) -> Result<Option<RowPtr>, Abort> {
        match self.find_converted(set, key, columns)? {
            None => Ok(None),
            Some(Found::Now(row)) => Ok(Some(row)),
            Some(Found::Earlier(earlier, row)) => self.keep_converted(earlier, row).map(Some),
        }
    }

    fn find_converted<'s>(
        &self,
        set: &'s TableSet,
        key: Key<'_>,
        columns: ColumnSet,
    ) -> Result<Option<Found<'s>>, Abort> {
        let earlier: &'s Earlier = &set.earlier;
        for layout in &earlier.layouts {
            if let Some(row) = read(self, &layout.set.primary, key, layout.columns(columns))? {
                return Ok(Some(Found::Earlier(layout, row)));
            }
        }
        Ok(read(self, &set.primary, key, columns)?.map(Found::Now))
    }

    fn keep_converted(&self, earlier: &EarlierRows, row: RowPtr) -> Result<RowPtr, Abort> {
        let mut image = Vec::new();
        let address = earlier.converted(row, &mut image);
        self.is_untidy.set(true);
        let mut kept = self.converted.borrow_mut();
        kept.bytes += 8 * image.len() + size_of::<Vec<u64>>();
        kept.rows.push(image);
        if kept.bytes > kept.charge.bytes() + CHARGE_STEP {
            let bytes = kept.bytes;
            kept.charge.try_set(bytes).map_err(|_| self.out_of_memory())?;
        }
        Ok(address)
    }

    /// Moves the row at a key, which is about to be written, out of the earlier layout that it has, if so.
    #[cold]
    #[inline(never)]
    pub(crate) fn convert(&self, set: &TableSet, key: Key<'_>) -> Result<(), Abort> {
        for earlier in &set.earlier.layouts {
            let (from, to) = (&*earlier.set.primary, &*set.primary);
            let before = operate(self, |worker| worker.delete(from, key))?;
            self.note(from, key, ColumnSet::EMPTY);
            let Some(before) = before else { continue };
            self.wrote(from, key);
            self.conversions.set(self.conversions.get() + 1);
            let staged = operate(self, |worker| worker.stage(to))?;
            let mut image = Vec::new();
            let row = earlier.converted(before, &mut image);
            let places = (staged.row.as_ptr(), staged.fixed.as_ptr());
            let mut store = OutOfLineValues::unlogged(self);
            // SAFETY: a row of the layout of `to`, which was just made; the staged row is private.
            let copied = unsafe { copy_row(RowRef::from_raw(row.as_ptr()), &to.layout, places, &mut store) };
            if copied.is_err() {
                self.worker().discard(to, staged);
                return Err(self.out_of_memory());
            }
            let inserted = insert_staged(self, to, key, staged, OnExists::Refuse)?;
            self.note(to, key, ColumnSet::EMPTY);
            if inserted != Inserted::New {
                // Another transaction has moved it since: the two are not of one state.
                return Err(self.stop(Cause { phase: Phase::Execute, reason: Reason::RecordChanged }));
            }
            self.wrote(to, key);
            return Ok(());
        }
        Ok(())
    }
}

/// A scan of a table some of whose rows have earlier layouts: one scan of each layout, merged by key.
pub(crate) struct LayoutScan<'t> {
    parts: Vec<Part<'t>>,
    low: Bound<KeyBuf>,
    high: Bound<KeyBuf>,
    /// The key of the last row that was shown.
    last: Option<KeyBuf>,
    /// How many rows the transaction had moved when the scans began.
    conversions: u64,
    /// Without an order, a row may be shown and then be moved to where it is found again.
    shown: HashSet<KeyBuf>,
    /// The row that is shown, if the caller does not keep it.
    image: Vec<u64>,
    pub(crate) is_transient: bool,
}

struct Part<'t> {
    set: &'t TableSet,
    /// `None` when it is over.
    scan: Option<RawScan<'t>>,
    /// The key of its next row.
    head: Option<KeyBuf>,
}

impl<'t> LayoutScan<'t> {
    /// A scan of the keys between two bounds; of all rows of a hash table.
    pub(crate) fn new(
        tx: &'t TxCore,
        set: &'t TableSet,
        (low, high): (&Bound<KeyBuf>, &Bound<KeyBuf>),
        direction: Direction,
    ) -> LayoutScan<'t> {
        let earlier: &'t Earlier = &set.earlier;
        let sets = earlier.layouts.iter().map(|layout| &*layout.set).chain(earlier.own.as_deref());
        let parts = sets.map(|set| Part { set, scan: None, head: None }).collect();
        let (low, high) = (low.clone(), high.clone());
        let (last, shown, image) = (None, HashSet::new(), Vec::new());
        let conversions = tx.conversions.get();
        let mut scan = LayoutScan { parts, low, high, last, conversions, shown, image, is_transient: false };
        scan.begin(tx, direction);
        scan
    }

    fn begin(&mut self, tx: &'t TxCore, direction: Direction) {
        let LayoutScan { low, high, parts, .. } = self;
        // It is the scan of the whole that is watched.
        let watching = tx.watching.replace(false);
        for part in parts {
            let scan = match part.set.primary.organization {
                Organization::Ordered => RawScan::new(tx, part.set, Target::Rows, (low, high), direction),
                Organization::Hash => RawScan::of_table(tx, part.set),
            };
            part.scan = Some(scan.with_columns(ColumnSet::EMPTY).transient());
            part.head = None;
        }
        tx.watching.set(watching);
    }

    /// The next row. It reads these columns of it.
    pub(crate) fn next(
        &mut self,
        tx: &'t TxCore,
        set: &'t TableSet,
        direction: Direction,
        columns: ColumnSet,
    ) -> Result<Option<RowPtr>, Abort> {
        let is_ordered = set.primary.organization == Organization::Ordered;
        loop {
            if is_ordered && self.conversions != tx.conversions.get() {
                // A row may have moved behind the position of one scan and before that of the other.
                self.conversions = tx.conversions.get();
                if let Some(last) = self.last.clone() {
                    let bound = if direction == Direction::Forward { &mut self.low } else { &mut self.high };
                    *bound = Bound::Excluded(last);
                }
                self.begin(tx, direction);
            }
            let Some(key) = self.next_key(is_ordered, direction)? else { return Ok(None) };
            let found = tx.find_converted(set, key.as_key(), columns)?;
            if is_ordered {
                self.last = Some(key);
            } else if !tx.is_read_only() && !self.shown.insert(key) {
                continue;
            }
            return Ok(Some(match found {
                // It was deleted in this transaction, or the two are not of one state and the commit will fail.
                None => continue,
                Some(Found::Now(row)) => row,
                Some(Found::Earlier(earlier, row)) if self.is_transient => earlier.converted(row, &mut self.image),
                Some(Found::Earlier(earlier, row)) => tx.keep_converted(earlier, row)?,
            }));
        }
    }

    /// The key of the next row.
    fn next_key(&mut self, is_ordered: bool, direction: Direction) -> Result<Option<KeyBuf>, Abort> {
        let mut first: Option<usize> = None;
        for at in 0..self.parts.len() {
            self.parts[at].look()?;
            let Some(head) = &self.parts[at].head else { continue };
            let is_before = |other: usize| match direction {
                Direction::Forward => Some(head) < self.parts[other].head.as_ref(),
                Direction::Backward => Some(head) > self.parts[other].head.as_ref(),
            };
            if first.is_none_or(is_before) {
                first = Some(at);
            }
            if !is_ordered {
                break;
            }
        }
        let Some(key) = first.and_then(|at| self.parts[at].head.take()) else { return Ok(None) };
        for part in self.parts.iter_mut().filter(|part| is_ordered && part.head.as_ref() == Some(&key)) {
            part.head = None;
        }
        Ok(Some(key))
    }
}

impl Part<'_> {
    /// Finds the key of the next row.
    fn look(&mut self) -> Result<(), Abort> {
        let Some(scan) = self.scan.as_mut().filter(|_| self.head.is_none()) else { return Ok(()) };
        match scan.advance().transpose()? {
            Some(row) => {
                // SAFETY: a row of this table, readable until the next step. The columns of a key never change.
                let row = unsafe { RowRef::from_raw(row.as_ptr()) };
                self.head = Some(self.set.primary.codec.encode_row(row, |key| key.to_buf()));
            }
            None => self.scan = None,
        }
        Ok(())
    }
}

/// How often the pass tries to move the rows of a chunk before it leaves them to a later call.
const ATTEMPTS_MAX: u32 = 16;

/// How long the pass waits for a moment at which no transaction is open, before it tries again later.
const QUIET_ATTEMPT: Duration = Duration::from_millis(10);

/// How long the pass waits when there is nothing to do, and when others are in the way.
const IDLE_PAUSE: Duration = Duration::from_secs(1);
const BUSY_PAUSE: Duration = Duration::from_millis(100);

impl Inner {
    /// Moves rows out of their earlier layouts, for about this long. Does nothing while tables are changed, a
    /// checkpoint is taken or tables are walked over. Returns how long to wait before the next call.
    pub(crate) fn convert_rows(self: &Arc<Inner>, most: Duration) -> Duration {
        if !self.sets().iter().any(|set| set.has_earlier()) {
            return IDLE_PAUSE;
        }
        let (Some(_right), Some(_helping)) = (self.changes.try_use(), self.try_helping()) else { return BUSY_PAUSE };
        let checkpoint = self.persistence.as_ref().map(Persistence::try_without_checkpoint);
        if checkpoint.as_ref().is_some_and(Option::is_none) {
            return BUSY_PAUSE;
        }
        let began = Instant::now();
        let mut tx = TxCore::new(Arc::clone(self), 0);
        tx.ignore_queue();
        for set in self.sets().iter().filter(|set| set.has_earlier()) {
            let mut all = set.earlier.layouts.iter();
            let is_done = |layout: &EarlierRows| self.convert_layout(&mut tx, set, layout, (began, most));
            if all.all(is_done) {
                self.forget_earlier(&mut tx, set);
            }
            if began.elapsed() >= most {
                // As long as it has worked, so that transactions have half of a processor that it takes.
                return began.elapsed();
            }
        }
        BUSY_PAUSE
    }

    /// Moves rows of one layout. Returns whether none is left.
    fn convert_layout(
        &self,
        tx: &mut TxCore,
        set: &TableSet,
        layout: &EarlierRows,
        (began, most): (Instant, Duration),
    ) -> bool {
        let mut progress = layout.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.is_over {
            return true;
        }
        let Some(core) = self.environment.core() else { return false };
        let mut walker = Walker::new(self.protocol.as_ref(), core);
        let rows = Rows::resumed(&layout.set.primary, std::mem::take(&mut progress.walk));
        loop {
            let moved = walker.chunk(&rows, |found| match move_rows(tx, set, found) {
                true => Ok(()),
                false => Err(Stuck),
            });
            match moved {
                Ok(true) if began.elapsed() < most => {}
                Ok(true) => {
                    progress.walk = rows.into_walk();
                    return false;
                }
                Ok(false) => {
                    progress.is_over = true;
                    return true;
                }
                // The next call begins again: some rows of the chunk are left.
                Err(Stuck) => return false,
            }
        }
    }

    /// No row of an earlier layout is left: the table goes on without them, if there is a moment without transactions.
    fn forget_earlier(&self, tx: &mut TxCore, set: &TableSet) {
        // Snapshots of the durable epoch show the moved rows.
        if self.persistence.as_ref().is_some_and(|persistence| persistence.flush(None).is_err()) {
            return;
        }
        let shape = set.shape();
        let entries: Vec<EarlierEntry> =
            shape.earlier.layouts.iter().map(|layout| layout.entry(&shape, true)).collect();
        let forget = || {
            drop(self.environment.epochs.windows().close());
            // A transaction that begins from now on finds the moved rows in every snapshot that it takes.
            self.environment.epochs.renew_snapshot(&self.environment.htm);
            set.set_shape(Shape { earlier: Arc::default(), ..shape.clone() });
        };
        if self.pool.quietly(QUIET_ATTEMPT, forget).is_none() {
            return;
        }
        let Some(catalogue) = self.catalogue() else { return };
        // If it cannot be noted now, the next opening does it.
        run(tx, false, |tx| {
            let rows = CatalogueRows::of(tx, &catalogue);
            entries.iter().try_for_each(|entry| rows.set_drained(entry))
        });
    }
}

/// Moves rows, unlogged. `false` if others are in the way.
fn move_rows(tx: &mut TxCore, set: &TableSet, found: &[WalkedRow<'_>]) -> bool {
    found.is_empty() || run(tx, true, |tx| found.iter().try_for_each(|found| tx.convert(set, found.key)))
}

/// Runs a transaction. Returns whether it committed.
fn run(tx: &mut TxCore, is_unlogged: bool, act: impl Fn(&TxCore) -> Result<(), Abort>) -> bool {
    for attempt in 1..=ATTEMPTS_MAX {
        tx.renew();
        if tx.open_or_wait(Mode::ReadWrite, attempt, Origin::Closure, false).is_err() {
            return false;
        }
        if is_unlogged {
            tx.ignore_log();
        }
        if act(tx).is_ok() && tx.commit().is_ok() {
            return true;
        }
        tx.roll_back(tx.stopped());
        seriatim_base::thread::sleep(Duration::from_micros(50 << attempt.min(8)));
    }
    false
}
