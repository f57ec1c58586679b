//! Deferred additions (DBX-TC §3.2): additions of a procedure to sums that others use, if the set allows later
//! publication. They are pending from its commit until the windows are closed ([`seriatim_txn::Deferrals`]).
//!
//! 1. Open a window, as for a chain. If the agreements of procedures have changed since this one began,
//!    nothing is deferred: see 5.
//! 2. Check each row to be added to, as for a chain. The sum must be a quarter of its range away from the end towards
//!    which the amount leads. This worker's pending additions to it in that direction must be within its share of a
//!    quarter. Values to which this procedure sets such sums must be a quarter away from both ends. There must be
//!    memory for the pending rows, and for the row versions that they become. If a check fails, see 5.
//! 3. Publish all the rest in one region, and additions to sums without other users perhaps after that
//!    (`chain.rs`). If nothing is left, validate.
//! 4. Add the deferred additions to the pending ones, and shut the window.
//! 5. Where 1 or 2 did not hold: shut the window, close all windows, which publishes what is pending, and
//!    publish everything at once, as dbx does. If something was pending of the same row that refutes it, and
//!    its next attempt finds nothing pending.
//!
//! All procedures that write do this, also those without deferred additions: so a thread that has closed the
//! windows publishes alone.

use seriatim_base::thread::Touch;
use seriatim_base::{Tid, abort_on_unwind};
use seriatim_catalog::{ColumnId, ColumnUse, KeyBuf};
use seriatim_store::{RecordPtr, read_key};
use seriatim_txn::{OpError, Outcome, Pending, Redo, Table};

use super::State;
use super::chain::{AddsTo, Late, Note};
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::rebase::row;
use crate::shared::record;
use crate::shared::table_ref::TableRef;

/// The deferred addition to a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    record: RecordPtr,
    table: TableRef,
    column: ColumnId,
    amount: i64,
}

// SAFETY: the record is followed only while the worker is online; the worker moves as a whole.
unsafe impl Send for Amount {}

impl Late {
    /// A row, which was as `before`, is being updated by a procedure, not by a lone addition: notes it if it
    /// is of those above.
    pub(super) fn note_deferral(
        &mut self,
        table: &Table,
        (record, row_version): (RecordPtr, usize),
        columns: ColumnUse,
    ) -> Result<(), OpError> {
        let is_deferral = table.commuting.defers(columns);
        if is_deferral && self.deferring.len() == self.most {
            self.is_unsure = true;
            return Ok(());
        }
        let notes = match is_deferral {
            true => &mut self.deferring,
            false if columns.either().intersects(table.commuting.deferrable()) => &mut self.setting,
            false => return Ok(()),
        };
        notes.try_push(Note { record, table: table.into(), row_version, columns }).map_err(record::full)
    }

    /// Step 2 for deferred additions: checks them and notes the amounts.
    fn weigh(&mut self, attempt: &Optimistic, pending: &Pending) -> bool {
        self.amounts.clear();
        for at in 0..self.deferring.len() {
            let note = self.deferring[at];
            let Some((entry, newer)) = self.mergeable(attempt, &note) else { return false };
            let table = note.table.get();
            let Some(wire) = table.wire.as_ref().filter(|_| table.commuting.defers(note.columns)) else { return false };
            let after = attempt.base.writes.entries()[entry].row_version;
            let rows = [note.row_version, newer, after].map(row);
            let (record, amounts) = (note.record, &mut self.amounts);
            let mut is_full = false;
            let mut see = |column, amount, share| {
                let amount_of = Amount { record, table: note.table, column, amount };
                is_full |= amount != 0 && amounts.try_push(amount_of).is_err();
                pending.has_room(record.addr(), column, amount, share)
            };
            // SAFETY: row versions of the table, readable as we have been online since they were published.
            let has_room = unsafe { wire.rows.each_amount(rows, note.columns.added, self.adders, &mut see) };
            if !has_room || is_full {
                return false;
            }
        }
        true
    }

    /// Step 2 for columns that are set.
    fn keeps_room(&self, attempt: &Optimistic) -> bool {
        self.setting.iter().all(|note| {
            let (Some(entry), table) = (attempt.base.writes.find(note.record), note.table.get()) else { return false };
            let after = attempt.base.writes.entries()[entry].row_version;
            let columns = note.columns.either().intersection(table.commuting.deferrable());
            // SAFETY: a row version of this attempt.
            after != 0 && table.wire.as_ref().is_some_and(|wire| unsafe { wire.rows.is_amid(row(after), columns) })
        })
    }

    /// Removes the deferred additions from the write set.
    fn set_aside(&mut self, attempt: &mut Optimistic) {
        for note in self.deferring.iter() {
            let last = attempt.base.writes.entries().len() - 1;
            let Some(entry) = attempt.base.writes.find(note.record) else {
                unreachable!("it was found when it was looked at");
            };
            let write = attempt.base.writes.take(entry);
            attempt.bases.taken(entry, last);
            // Its row version is freed with the attempt's other undone ones.
            attempt.base.writes.undone.push(write);
        }
    }

    /// Step 4.
    fn defer(&self, pending: &mut Pending, publisher: u64) {
        for Amount { record, table, column, amount } in self.amounts.iter().copied() {
            let table = table.get();
            // SAFETY: key words of a linked record never change; the worker is online.
            let key = || KeyBuf::from(unsafe { read_key(record, table.class) });
            pending.add(table, record.addr(), key, (column, amount), publisher);
        }
    }
}

impl State {
    /// See the steps above.
    pub(super) fn commit_deferring(
        &mut self,
        attempt: &mut Optimistic,
        redo: &mut dyn Redo,
    ) -> Result<Outcome, OpError> {
        let State { numbered, epochs, late, .. } = self;
        if attempt.base.writes.is_empty() {
            return numbered.commit(attempt, redo);
        }
        crate::step(Touch::Store, std::ptr::null());
        let windows = epochs.windows();
        let mut window = windows.open(attempt.base.core.local.worker());
        let is_bare = late.notes.is_empty() && late.deferring.is_empty() && late.setting.is_empty();
        let is_sure = |late: &Late| is_bare || late.can_be_late(attempt) && late.keeps_room(attempt);
        let defers = windows.deferrals().changes() == late.changes && is_sure(late) && {
            let pending = window.pending().expect("deferrals are allowed where they are made");
            late.weigh(attempt, pending) && pending.reserve(late.deferring.iter().map(|note| note.table.get())).is_ok()
        };
        if !defers {
            drop(window);
            let _closed = windows.close();
            return numbered.commit(attempt, redo);
        }
        late.set_aside(attempt);
        let is_chain = late.goes_last(attempt.bases.are_noted()) && late.take(attempt);
        // Once its first step is published it must run to its last.
        let first = abort_on_unwind("a chain", || match attempt.base.writes.is_empty() {
            true => attempt.validate_executed().map(|_| attempt.base.newest.max(Tid::first_of(epochs.current()))),
            false => numbered.publish(attempt, &mut AddsTo { notes: &late.notes, redo }),
        });
        let first = first.inspect_err(|_| match is_chain {
            true => late.put_back(attempt),
            false => late.refuted(),
        })?;
        let tid = abort_on_unwind("a chain", || {
            if !late.amounts.is_empty() {
                late.defer(window.pending().expect("as above"), redo.defers());
                window.defers();
            }
            if is_chain { late.publish(attempt, numbered, first, redo) } else { first }
        });
        drop(window);
        attempt.bases.clear();
        attempt.base.finish(&LockBit);
        Ok(Outcome::Committed(tid))
    }
}

#[cfg(test)]
mod tests;
