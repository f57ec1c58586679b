//! Chains: additions of a procedure to sums that the set only adds to are published after the rest, row by row.
//!
//! 1. Open a window. In it the epoch, the snapshot number and the agreements of procedures about tables do not
//!    change, and no transaction outside of the set commits.
//! 2. Check each row to be added to: it exists, the used columns have the values that were seen, the sums have
//!    room. If a check fails, nothing is published late: see 5.
//! 3. Publish all the rest in one region. A conflict ends the attempt, of which nothing is visible.
//! 4. Publish each addition by itself, on top of the current sum. It cannot fail. Memory was taken when the row was
//!    updated. Only transactions outside of the set delete rows or change the used columns, and every adding
//!    transaction has found room.
//! 5. Where 2 did not hold: shut the window, close all windows, and publish everything at once, as dbx does.
//!
//! Steps cost more than they save while what is added can be merged into the newest sums in one region, as
//! dbx does. So a worker looks as in 2 without a window, and publishes everything at once. It may be refuted
//! where a chain could not; then chains follow for a while.

use seriatim_base::thread::Touch;
use seriatim_base::{Backoff, Tid, abort_on_unwind};
use seriatim_catalog::{ColumnUse, Key};
use seriatim_memory::CountedVec;
use seriatim_store::{RecordPtr, read_key};
use seriatim_txn::{Before, Core, Fault, OpError, Outcome, Redo, RowPtr, Table};

use super::State;
use super::deferral::Amount;
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::rebase::{self, newest, row};
use crate::shared::record;
use crate::shared::snapshot_numbered::SnapshotNumbered;
use crate::shared::table_ref::TableRef;
use crate::shared::writes::{Link, Write};

/// An update that may be published after the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    pub(super) record: RecordPtr,
    pub(super) table: TableRef,
    /// The row version that it came from.
    pub(super) row_version: usize,
    pub(super) columns: ColumnUse,
}

// SAFETY: the record is followed only while the worker is online; the worker moves as a whole.
unsafe impl Send for Note {}

/// Such updates of an attempt.
#[derive(Debug)]
pub(super) struct Late {
    /// The number of transactions that may add to a sum at a time.
    pub(super) adders: u32,
    /// For how many procedures sums are published late after one had changed; 0: always.
    period: u32,
    /// The number of these that are left.
    left: u32,
    /// The most additions that are published in a window: threads that wait for its end wait for a bounded time.
    pub(super) most: usize,
    pub(super) notes: CountedVec<Note>,
    /// Those of the additions that were removed from the write set.
    writes: CountedVec<Write>,
    /// Writes were undone, which may be among them, or were merged into versions other than the noted ones; or
    /// there are too many.
    pub(super) is_unsure: bool,
    /// Whether additions are deferred (`deferral.rs`); if so, the notes of them and their amounts.
    pub(super) defers: bool,
    pub(super) deferring: CountedVec<Note>,
    pub(super) amounts: CountedVec<Amount>,
    /// Other updates of sums that others defer additions to.
    pub(super) setting: CountedVec<Note>,
    /// How often the deferrable columns of tables had been set when the transaction began.
    pub(super) changes: u64,
}

impl Late {
    pub(super) fn new(core: &Core, adders: u32, period: u32, most: usize, defers: bool) -> Late {
        let [notes, deferring, setting] = [most, 0, 0].map(|room| core.local.counted(room));
        let (writes, amounts) = (core.local.counted(most), core.local.counted(0));
        Late {
            adders,
            period,
            left: 0,
            most,
            notes,
            writes,
            is_unsure: false,
            defers,
            deferring,
            amounts,
            setting,
            changes: 0,
        }
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.notes.clear();
        self.writes.clear();
        self.is_unsure = false;
        if self.defers {
            self.deferring.clear();
            self.amounts.clear();
            self.setting.clear();
        }
    }

    pub(super) fn rest(&mut self) {
        self.notes.rest();
        self.writes.rest();
        self.deferring.rest();
        self.amounts.rest();
        self.setting.rest();
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    pub(super) fn rolled_back(&mut self) {
        self.is_unsure = true;
    }

    /// The attempt reads a row that it wrote: if the row's update was noted, more of it is used than was noted.
    pub(super) fn looked_at(&mut self, record: Option<RecordPtr>) {
        let mut notes = self.notes.iter().chain(self.deferring.iter());
        self.is_unsure |= notes.any(|note| Some(note.record) == record);
    }

    /// A row, which was as `before`, is being updated.
    pub(super) fn note(
        &mut self,
        attempt: &Optimistic,
        table: &Table,
        before: RowPtr,
        columns: ColumnUse,
    ) -> Result<(), OpError> {
        let Some(record) = attempt.base.seen.record else { return Ok(()) };
        if !table.commuting.allows(columns) {
            let row_version = record::row_version_of(before);
            return if self.defers { self.note_deferral(table, (record, row_version), columns) } else { Ok(()) };
        }
        if self.notes.len() == self.most {
            self.is_unsure = true;
            return Ok(());
        }
        let row_version = record::row_version_of(before);
        self.notes.try_push(Note { record, table: table.into(), row_version, columns }).map_err(record::full)
    }

    /// Step 2 of one update: its entry in the write set, if it can be published late.
    fn entry(&self, attempt: &Optimistic, note: &Note) -> Option<usize> {
        let (entry, newer) = self.mergeable(attempt, note)?;
        let (write, table) = (attempt.base.writes.entries()[entry], note.table.get());
        if !table.commuting.allows(note.columns) {
            return None;
        }
        let [base, newer, after] = [note.row_version, newer, write.row_version].map(row);
        let wire = table.wire.as_ref()?;
        // SAFETY: row versions of the table, readable as we have been online since they were published.
        unsafe { wire.rows.has_room(base, newer, after, note.columns.added, self.adders) }.then_some(entry)
    }

    /// The entry of an update and the newest row version, if the update would be the same on that.
    pub(super) fn mergeable(&self, attempt: &Optimistic, note: &Note) -> Option<(usize, usize)> {
        let entry = attempt.base.writes.find(note.record)?;
        let (write, table) = (attempt.base.writes.entries()[entry], note.table.get());
        let is_one = write.link == Link::There && write.row_version != 0 && !write.expected.is_absent();
        if !is_one || attempt.base.writes.row_versions(entry) != 1 {
            return None;
        }
        let (_, newer) = newest(table, note.record)?;
        let is_same = newer == note.row_version || rebase::agree(table, note.row_version, newer, note.columns.used());
        is_same.then_some((entry, newer))
    }

    /// Step 2 of all.
    pub(super) fn can_be_late(&self, attempt: &Optimistic) -> bool {
        !self.is_unsure && self.notes.iter().all(|note| self.entry(attempt, note).is_some())
    }

    /// Whether another transaction has changed a row since it was noted.
    fn are_changed(&self) -> bool {
        let is_changed =
            |note: &Note| newest(note.table.get(), note.record).is_none_or(|(_, newer)| newer != note.row_version);
        self.notes.iter().any(is_changed)
    }

    /// Step 2: takes what was noted out of the write set, but for the last of the writes. False if some of it
    /// cannot be published late; then all of it is where it was.
    pub(super) fn take(&mut self, attempt: &mut Optimistic) -> bool {
        if !self.can_be_late(attempt) {
            return false;
        }
        let Late { notes, writes, .. } = self;
        for note in notes.iter() {
            let (Some(entry), last) = (attempt.base.writes.find(note.record), attempt.base.writes.entries().len() - 1)
            else {
                unreachable!("it was found when it was looked at");
            };
            // Something is to be published first.
            if last == 0 {
                break;
            }
            writes.push(attempt.base.writes.take(entry));
            attempt.bases.taken(entry, last);
        }
        true
    }

    /// Returns the removed writes to the write set, as the attempt is aborted.
    pub(super) fn put_back(&self, attempt: &mut Optimistic) {
        for write in self.writes.iter() {
            attempt.base.writes.push(*write);
        }
    }

    /// Whether sums are published after the rest. Some procedures always do so. Others do so after one that published
    /// everything at once failed validation, or if a sum has changed and could not be merged without notes.
    pub(super) fn goes_last(&mut self, are_noted: bool) -> bool {
        let is_called_for = self.period == 0 || self.left > 0 || !are_noted && self.are_changed();
        self.left = self.left.saturating_sub(1);
        is_called_for && !self.notes.is_empty()
    }

    /// An attempt that published everything at once was refuted.
    pub(super) fn refuted(&mut self) {
        if self.are_changed() {
            self.left = self.period;
        }
    }
}

/// Reports the update of a sum as an addition.
struct Adds<'r>(&'r mut dyn Redo);

impl Redo for Adds<'_> {
    fn write(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Option<Before>, after: Option<RowPtr>) {
        match before.zip(after) {
            Some((before, after)) => self.0.add(table, key, tid, before, after),
            None => self.0.write(table, key, tid, before, after),
        }
    }

    fn listens(&self) -> bool {
        self.0.listens()
    }
}

/// Reports the updates of these sums as additions, and other writes unchanged.
pub(super) struct AddsTo<'a, 'r> {
    pub(super) notes: &'a [Note],
    pub(super) redo: &'r mut dyn Redo,
}

impl Redo for AddsTo<'_, '_> {
    fn write(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Option<Before>, after: Option<RowPtr>) {
        let is_it = |note: &Note| {
            // SAFETY: key words of a linked record never change; the worker has been online since it noted the record.
            note.table == TableRef::from(table) && unsafe { read_key(note.record, table.class) } == key
        };
        match self.notes.iter().any(is_it) {
            true => Adds(self.redo).write(table, key, tid, before, after),
            false => self.redo.write(table, key, tid, before, after),
        }
    }

    fn listens(&self) -> bool {
        self.redo.listens()
    }
}

impl State {
    /// Publishes everything at once while no other transaction seems to add to the same sums; otherwise in the
    /// steps above.
    pub(super) fn commit_additions(
        &mut self,
        attempt: &mut Optimistic,
        redo: &mut dyn Redo,
    ) -> Result<Outcome, OpError> {
        let State { numbered, late, .. } = self;
        if !late.goes_last(attempt.bases.are_noted()) && late.can_be_late(attempt) {
            let decided = numbered.commit(attempt, &mut AddsTo { notes: &late.notes, redo });
            return decided.inspect_err(|_| late.refuted());
        }
        self.commit_chain(attempt, redo)
    }

    /// See the steps above.
    #[cold]
    #[inline(never)]
    fn commit_chain(&mut self, attempt: &mut Optimistic, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        let State { numbered, epochs, late, .. } = self;
        crate::step(Touch::Store, std::ptr::null());
        let core = &attempt.base.core;
        let window = (!core.injects(Fault::NoWindows)).then(|| epochs.windows().open(core.local.worker()));
        if !late.take(attempt) {
            drop(window);
            let _closed = epochs.windows().close();
            return numbered.commit(attempt, redo);
        }
        // Once its first step is published it must run to its last.
        let first =
            match abort_on_unwind("a chain", || numbered.publish(attempt, &mut AddsTo { notes: &late.notes, redo })) {
                Ok(tid) => tid,
                Err(error) => {
                    late.put_back(attempt);
                    return Err(error);
                }
            };
        let tid = abort_on_unwind("a chain", || late.publish(attempt, numbered, first, redo));
        drop(window);
        attempt.bases.clear();
        attempt.base.finish(&LockBit);
        Ok(Outcome::Committed(tid))
    }
}

impl Late {
    /// Step 4: the TID of the last.
    pub(super) fn publish(
        &self,
        attempt: &mut Optimistic,
        numbered: &mut SnapshotNumbered,
        first: Tid,
        redo: &mut dyn Redo,
    ) -> Tid {
        let mut last = first;
        for write in self.writes.iter() {
            crate::step(Touch::Begin, std::ptr::null());
            if attempt.base.core.injects(Fault::SnapshotAmidWindows) {
                // Others have their turn between two pieces, on few processors too.
                seriatim_base::thread::yield_now();
            }
            let Some(note) = self.notes.iter().find(|note| note.record == write.record) else {
                unreachable!("what is published late was noted");
            };
            attempt.next_piece(&LockBit);
            attempt.base.writes.push(*write);
            attempt.bases.note_only(write.table(), note.row_version, note.columns);
            attempt.base.newest = attempt.base.newest.max(last);
            let mut backoff = Backoff::new();
            // It cannot give up, as pieces before this one are published. It ends. An attempt fails only if another
            // transaction changed or locked this row, which it does without waiting for this one. Threads that would
            // read or close windows wait for it.
            last = loop {
                if attempt.rebase_only()
                    && let Ok(tid) = numbered.publish(attempt, &mut Adds(redo))
                {
                    break tid;
                }
                assert!(
                    !attempt.bases.is_empty(),
                    "an addition in a window has found room, and no transaction changes what it used"
                );
                if !backoff.wait() {
                    backoff = Backoff::new();
                }
            };
            let core = &attempt.base.core;
            debug_assert!(last.epoch() == first.epoch() || core.injects(Fault::NoWindows), "no epoch ends in a window");
        }
        last
    }
}
