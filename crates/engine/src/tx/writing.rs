//! Writes on encoded keys, shared by derived and declared tables.

use std::hint::cold_path;
use std::panic::Location;

use seriatim_catalog::{ColumnSet, ColumnUse, Key, OutOfLineStore, RowWriter};
use seriatim_procedure::plan::Kind;
use seriatim_txn::{
    Added, Addition, Cause, Inserted, Mode, OnExists, OpError, Phase, Reason, RowPtr, Staged, Updating, Worker,
};

use crate::error::{Abort, AbortKind, TransactError};
use crate::procedure::watch;
use crate::scan::Target;
use crate::table::TableSet;

use super::{Position, TxCore};

/// Why a row was not written.
pub(crate) enum NotEncoded {
    /// No memory for a long text.
    OutOfMemory(seriatim_catalog::OutOfMemory),
    /// A value does not fit its column; the caller knows which one.
    Unfit,
}

/// Stores the long texts of rows that are being written.
pub(crate) struct OutOfLineValues<'t, W: Worker + ?Sized> {
    tx: &'t TxCore<W>,
    /// The table, and the most bytes of a text; `None` for rows that are not logged.
    bound: Option<(&'t TableSet, usize)>,
}

impl<'t, W: Worker + ?Sized> OutOfLineValues<'t, W> {
    pub(crate) fn of(tx: &'t TxCore<W>, set: &'t TableSet) -> OutOfLineValues<'t, W> {
        OutOfLineValues { tx, bound: Some((set, set.text_bytes_max)) }
    }

    /// For an index.
    pub(crate) fn unlogged(tx: &'t TxCore<W>) -> OutOfLineValues<'t, W> {
        OutOfLineValues { tx, bound: None }
    }
}

impl<W: Worker + ?Sized> OutOfLineStore for OutOfLineValues<'_, W> {
    /// A text that does not fit ends the transaction, even if the body ignores the error: its row may be half
    /// written. The first such text is reported.
    fn store(&mut self, bytes: &[u8]) -> Result<u64, seriatim_catalog::OutOfMemory> {
        let refuse = || {
            cold_path();
            let _ = self.tx.out_of_memory();
            seriatim_catalog::OutOfMemory
        };
        if let Some((set, most)) = self.bound
            && bytes.len() > most
        {
            // Promise (g): the text may be made of values that never existed together.
            match self.tx.validate() {
                Ok(()) => {
                    *self.tx.too_large.borrow_mut() = Some((set.definition.name.to_string(), bytes.len(), most));
                }
                Err(cause) => drop(self.tx.stop(cause)),
            }
            return Err(refuse());
        }
        self.tx.worker().out_of_line(bytes).map_err(|_| refuse())
    }
}

/// Writes on encoded keys, shared by derived and declared tables.
impl<W: Worker + ?Sized> TxCore<W> {
    /// Notes that a key was written.
    #[inline]
    pub(crate) fn wrote(&self, table: &seriatim_txn::Table, key: Key<'_>) {
        if let Some(log) = &self.log {
            cold_path();
            log.borrow_mut().wrote(table.id, key);
        }
    }

    /// Runs a write that can fail half-way for a reason that the body may ignore: nothing of a failed write remains.
    pub(crate) fn whole<R>(&self, write: impl FnOnce() -> Result<R, Abort>) -> Result<R, Abort> {
        let _call = self.call()?;
        let position = self.position()?;
        self.keep_or_roll_back(position, write())
    }

    /// The result of writes since the position. They are rolled back if the result is an abort that the body
    /// may ignore.
    #[inline]
    fn keep_or_roll_back<R>(&self, position: Position, result: Result<R, Abort>) -> Result<R, Abort> {
        if result.is_err() && self.stopped.get().is_none() {
            self.rollback_writes(position)?;
        }
        result
    }

    fn writable(&self) -> Result<(), Abort> {
        match self.mode.get() {
            Mode::ReadWrite => Ok(()),
            Mode::ReadOnly => Err(self.stop(Cause { phase: Phase::Execute, reason: Reason::ReadOnly })),
        }
    }

    /// Inserts the row that `encode` writes; `false` if the key exists and must not be replaced.
    ///
    /// # Errors
    /// A conflict, a duplicate key of a unique index, no memory.
    pub fn insert_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        encode: impl FnOnce(&mut RowWriter<'_>) -> Result<(), seriatim_catalog::OutOfMemory>,
        exists: OnExists,
    ) -> Result<bool, Abort> {
        self.insert_encoded(set, key, |writer| encode(writer).map_err(NotEncoded::OutOfMemory), exists)
    }

    /// As [`TxCore::insert_at`], where `encode` may also find a value that does not fit.
    #[inline]
    pub(crate) fn insert_encoded(
        &self,
        set: &TableSet,
        key: Key<'_>,
        encode: impl FnOnce(&mut RowWriter<'_>) -> Result<(), NotEncoded>,
        exists: OnExists,
    ) -> Result<bool, Abort> {
        let _call = self.call()?;
        if set.cluster.is_on() {
            return self.insert_into_run(set, key, encode, exists);
        }
        let staged = self.begin_insert(set, key)?;
        let mut out_of_line_values = OutOfLineValues::of(self, set);
        // SAFETY: a staged row is ours, zeroed, and of the table's layout.
        let mut writer =
            unsafe { RowWriter::for_insert(staged.row.as_ptr(), staged.fixed.as_ptr(), &mut out_of_line_values) };
        match encode(&mut writer) {
            Ok(()) => self.end_insert(set, key, staged, exists),
            Err(error) => Err(self.not_encoded(set, staged, error)),
        }
    }

    /// As [`TxCore::insert_encoded`], into a clustered table.
    #[inline]
    fn insert_into_run(
        &self,
        set: &TableSet,
        key: Key<'_>,
        encode: impl FnOnce(&mut RowWriter<'_>) -> Result<(), NotEncoded>,
        exists: OnExists,
    ) -> Result<bool, Abort> {
        self.begin_insert_into_run(set, key)?;
        let place = self.append_place(set, key);
        let row = place.unwrap_or_else(|| self.scratch_row(set));
        let mut out_of_line_values = OutOfLineValues::of(self, set);
        // SAFETY: a zeroed row of the table's layout, private until the next operation.
        let mut writer = unsafe { RowWriter::for_insert(row, std::ptr::null_mut(), &mut out_of_line_values) };
        match encode(&mut writer) {
            Ok(()) if place.is_some() => {
                self.end_append(key);
                Ok(true)
            }
            Ok(()) => self.end_insert_into_run(set, key, row, exists),
            Err(NotEncoded::OutOfMemory(_)) => Err(self.out_of_memory()),
            // The caller notes the error.
            Err(NotEncoded::Unfit) => Err(Abort::new(AbortKind::User)),
        }
    }

    #[inline(never)]
    fn begin_insert_into_run(&self, set: &TableSet, key: Key<'_>) -> Result<(), Abort> {
        self.own(set)?;
        self.writable()?;
        self.watch(Kind::Insert, set, Target::Rows, || watch::one(key));
        self.count_operation()
    }

    #[inline(never)]
    fn end_insert_into_run(
        &self,
        set: &TableSet,
        key: Key<'_>,
        row: *const u8,
        exists: OnExists,
    ) -> Result<bool, Abort> {
        if !set.has_unique_index() {
            return self.insert_clustered(set, key, row, exists);
        }
        let position = self.position()?;
        self.keep_or_roll_back(position, self.insert_clustered(set, key, row, exists))
    }

    // Here and below, code that does not depend on the row's type is separate: one copy of it stays in the
    // instruction cache.

    /// A place for the row to insert.
    #[inline(never)]
    fn begin_insert(&self, set: &TableSet, key: Key<'_>) -> Result<Staged, Abort> {
        self.own(set)?;
        self.writable()?;
        self.watch(Kind::Insert, set, Target::Rows, || watch::one(key));
        self.operate(|worker| worker.stage(&set.primary))
    }

    /// Discards the place of a row that was not written.
    #[cold]
    fn not_encoded(&self, set: &TableSet, staged: Staged, error: NotEncoded) -> Abort {
        match error {
            NotEncoded::OutOfMemory(_) => self.discard_row(&set.primary, staged),
            // The caller notes the error.
            NotEncoded::Unfit => {
                self.worker().discard(&set.primary, staged);
                Abort::new(AbortKind::User)
            }
        }
    }

    /// Inserts the row that was staged, and its index entries.
    #[inline(never)]
    fn end_insert(&self, set: &TableSet, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<bool, Abort> {
        if !set.has_unique_index() {
            return self.insert_parts(set, key, staged, exists);
        }
        match self.position() {
            Ok(position) => self.keep_or_roll_back(position, self.insert_parts(set, key, staged, exists)),
            Err(abort) => {
                cold_path();
                self.worker().discard(&set.primary, staged);
                Err(abort)
            }
        }
    }

    /// Inserts a staged row of a table without indexes, in a transaction that is not recorded. `false` if the
    /// key exists and must not be replaced.
    #[inline(never)]
    pub(crate) fn insert_row(
        &self,
        table: &seriatim_txn::Table,
        key: Key<'_>,
        staged: Staged,
        exists: OnExists,
    ) -> Result<bool, Abort> {
        Ok(!matches!(self.insert_staged(table, key, staged, exists)?, Inserted::Exists(_)))
    }

    /// Discards the place of a row whose long text found no memory.
    #[cold]
    pub(crate) fn discard_row(&self, table: &seriatim_txn::Table, staged: Staged) -> Abort {
        self.worker().discard(table, staged);
        self.out_of_memory()
    }

    /// Passes a staged row to the worker. If the transaction stops before that, or while it waits, the row is
    /// discarded.
    #[inline]
    pub(crate) fn insert_staged(
        &self,
        table: &seriatim_txn::Table,
        key: Key<'_>,
        staged: Staged,
        exists: OnExists,
    ) -> Result<Inserted, Abort> {
        let mut is_handed_over = false;
        let inserted = self.operate(|worker| {
            let inserted = worker.insert(table, key, staged, exists);
            is_handed_over = !matches!(inserted, Err(OpError::Wait));
            inserted
        });
        if inserted.is_err() && !is_handed_over {
            cold_path();
            self.worker().discard(table, staged);
        }
        inserted
    }

    /// Inserts the row, then its index entries.
    #[inline]
    fn insert_parts(&self, set: &TableSet, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<bool, Abort> {
        let table = &set.primary;
        let inserted = self.insert_staged(table, key, staged, exists)?;
        self.note(table, key, ColumnSet::EMPTY);
        let before = match inserted {
            Inserted::Exists(_) => return Ok(false),
            Inserted::New => None,
            Inserted::Replaced(before) => Some(before),
        };
        self.wrote(table, key);
        if !set.indexes.is_empty() {
            let after = match before {
                // The record was linked, with the row in the place where it was written.
                None if self.worker().seen().record == Some(staged.record) => Some(staged.row),
                // The row is now in the transaction's own row version: read it from there.
                _ => self.operate(|worker| worker.read(table, key, ColumnSet::ALL))?,
            };
            self.maintain(set, key, before, after, ColumnSet::ALL)?;
        }
        Ok(true)
    }

    /// Updates the row at `key` by `change`, which reads and sets only these columns, and returns those that it
    /// set. `change` is not called if there is no such row.
    ///
    /// # Errors
    /// A conflict, a duplicate key of a unique index, a handle of another database.
    // `change` stores its result in the caller's frame: large results are not moved from function to function.
    #[inline]
    pub fn change_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        columns: ColumnUse,
        change: impl FnOnce(RowWriter<'_>) -> ColumnSet,
    ) -> Result<(), Abort> {
        let _call = self.call()?;
        let Some(row) = self.begin_update(set, key, columns)? else { return Ok(()) };
        let mut out_of_line_values = OutOfLineValues::of(self, set);
        // SAFETY: a private row version of the table's layout; access rule 2 excludes other operations while it
        // is written.
        let writer = unsafe { RowWriter::for_update(row.as_ptr(), &mut out_of_line_values) }.only(columns.either());
        let undo = UndoUpdate { tx: self, set };
        let dirty = change(writer);
        std::mem::forget(undo);
        self.end_update(set, key, dirty)
    }

    /// The row to change, if there is one. Operations are refused until the update ends.
    #[inline(never)]
    fn begin_update(&self, set: &TableSet, key: Key<'_>, columns: ColumnUse) -> Result<Option<RowPtr>, Abort> {
        self.own(set)?;
        self.writable()?;
        let position = if set.has_unique_index() { Some(self.position()?) } else { None };
        let updating = if set.cluster.is_on() {
            self.update_clustered(set, key)?
        } else {
            let table = &set.primary;
            let columns = set.with_indexed(columns);
            let updating = self.operate(|worker| worker.update(table, key, columns))?;
            self.note(table, key, columns.read());
            if updating.is_some() {
                self.wrote(table, key);
            }
            updating
        };
        let Some(rows) = updating else { return Ok(None) };
        self.updating.set(Some(Update { rows, position, left: self.left.replace(0) }));
        Ok(Some(rows.after))
    }

    /// Called after the row was changed.
    #[inline(never)]
    fn end_update(&self, set: &TableSet, key: Key<'_>, dirty: ColumnSet) -> Result<(), Abort> {
        let update = self.admit();
        if let Some(cause) = self.stopped.get() {
            cold_path();
            return Err(self.new_abort(AbortKind::Stopped(cause)));
        }
        match update {
            Some(update) if self.watching.get() || !set.indexes.is_empty() => self.follow(set, key, update, dirty),
            _ => Ok(()),
        }
    }

    /// Updates the index entries of a changed row. If that fails for a reason that the body may ignore, nothing
    /// of the update remains.
    #[inline(never)]
    fn follow(&self, set: &TableSet, key: Key<'_>, update: Update, dirty: ColumnSet) -> Result<(), Abort> {
        let Update { rows: Updating { before, after }, position, .. } = update;
        if let Some(undo) = &mut *self.undo.borrow_mut() {
            undo.updated(set, key, before, dirty);
        }
        let access = self.watch(Kind::Update, set, Target::Rows, || watch::one(key));
        self.watch_row(access, Some(after.as_ptr()), dirty);
        let maintained = self.maintain(set, key, Some(before), Some(after), dirty);
        match position {
            Some(position) => self.keep_or_roll_back(position, maintained),
            None => maintained,
        }
    }

    /// The closure of the update has ended: operations are admitted again, unless it stopped the transaction.
    #[inline]
    fn admit(&self) -> Option<Update> {
        let update = self.updating.take()?;
        if self.stopped.get().is_none() {
            self.left.set(update.left);
        }
        Some(update)
    }

    /// Updates the row at `key` by `change`, which returns its result and the columns that it set.
    pub(crate) fn update_at<R>(
        &self,
        set: &TableSet,
        key: Key<'_>,
        columns: ColumnUse,
        change: impl FnOnce(RowWriter<'_>) -> (R, ColumnSet),
    ) -> Result<Option<R>, Abort> {
        let mut value = None;
        self.change_at(set, key, columns, |writer| {
            let (result, dirty) = change(writer);
            value = Some(result);
            dirty
        })?;
        Ok(value)
    }

    /// As [`TxCore::update_at`], for a `change` that may fail. Its earlier writes remain in the transaction,
    /// which therefore must not commit.
    pub(crate) fn try_update_at<R, E>(
        &self,
        set: &TableSet,
        key: Key<'_>,
        columns: ColumnUse,
        change: impl FnOnce(&mut RowWriter<'_>) -> Result<R, E>,
    ) -> Result<Option<Result<R, E>>, Abort> {
        self.update_at(set, key, columns, |mut writer| {
            let result = change(&mut writer);
            let dirty = unless_failed(&result, writer.dirty());
            (result, dirty)
        })
    }

    /// Adds to a column of the row at `key`, for a caller at this place. Returns whether there is a row.
    ///
    /// # Errors
    /// A conflict; overflow; a duplicate key of a unique index; a handle of another database.
    pub fn add_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        addition: Addition,
        place: &'static Location<'static>,
    ) -> Result<bool, Abort> {
        match self.add_unless_overflow(set, key, addition)? {
            Added::Done => Ok(true),
            Added::Missing => Ok(false),
            Added::Overflow => Err(self.about(|| self.new_abort(AbortKind::Overflow(Some(place))))),
        }
    }

    fn add_unless_overflow(&self, set: &TableSet, key: Key<'_>, addition: Addition) -> Result<Added, Abort> {
        let columns = addition.columns();
        let is_noted = || self.watching.get() && self.undo.borrow().is_some();
        if !set.is_plain_for(columns) || is_noted() {
            let mut added = Added::Missing;
            self.change_at(set, key, columns, |mut writer| {
                added = addition.write(&set.layout, &mut writer);
                writer.dirty()
            })?;
            return Ok(added);
        }
        let _call = self.call()?;
        let table = &self.own(set)?.primary;
        self.writable()?;
        let added = self.operate(|worker| worker.add(table, key, addition))?;
        self.note(table, key, columns.read());
        if added != Added::Missing {
            self.wrote(table, key);
        }
        Ok(added)
    }

    /// Deletes the row at `key`.
    ///
    /// # Errors
    /// A conflict.
    pub fn delete_at(&self, set: &TableSet, key: Key<'_>) -> Result<bool, Abort> {
        self.own(set)?;
        let _call = self.call()?;
        self.writable()?;
        let before = if set.cluster.is_on() {
            self.delete_clustered(set, key)?
        } else {
            let table = &set.primary;
            let before = self.operate(|worker| worker.delete(table, key))?;
            self.note(table, key, ColumnSet::EMPTY);
            if before.is_some() {
                self.wrote(table, key);
            }
            before
        };
        self.watch(Kind::Delete, set, Target::Rows, || watch::one(key));
        if self.watching.get()
            && let (Some(before), Some(undo)) = (before, &mut *self.undo.borrow_mut())
        {
            undo.deleted(set, key, before);
        }
        if before.is_some() {
            self.maintain(set, key, before, None, ColumnSet::ALL)?;
        }
        Ok(before.is_some())
    }

    /// Stops the transaction at the memory limit.
    pub fn out_of_memory(&self) -> Abort {
        self.stop(Cause { phase: Phase::Execute, reason: Reason::OutOfMemory })
    }

    /// Deletes an index entry that must exist.
    pub(crate) fn unlink_entry(&self, table: &seriatim_txn::Table, key: Key<'_>) -> Result<(), Abort> {
        self.operate(|worker| worker.delete(table, key))?;
        self.note(table, key, ColumnSet::ALL);
        self.wrote(table, key);
        Ok(())
    }

    /// Inserts an index entry whose row is the primary key; an abort if the entry exists.
    pub(crate) fn link_entry(&self, table: &seriatim_txn::Table, key: Key<'_>, primary: Key<'_>) -> Result<(), Abort> {
        let staged = self.operate(|worker| worker.stage(table))?;
        if crate::index::write_primary(staged.row, primary, &mut OutOfLineValues::unlogged(self)).is_err() {
            cold_path();
            self.worker().discard(table, staged);
            return Err(self.out_of_memory());
        }
        let inserted = self.insert_staged(table, key, staged, OnExists::Refuse)?;
        self.note(table, key, ColumnSet::ALL);
        if inserted != Inserted::New {
            return Err(self.duplicate(table, key));
        }
        self.wrote(table, key);
        Ok(())
    }

    /// An abort that names the key that exists already.
    #[cold]
    pub fn duplicate(&self, table: &seriatim_txn::Table, key: Key<'_>) -> Abort {
        self.about(|| {
            let (table, key) = self.in_words(table, key);
            Abort::explained(AbortKind::Duplicate, TransactError::Duplicate { table, key })
        })
    }

    /// An abort that names the row that does not exist.
    #[cold]
    pub fn missing_at(&self, table: &seriatim_txn::Table, key: Key<'_>) -> Abort {
        self.about(|| {
            let (table, key) = self.in_words(table, key);
            Abort::explained(AbortKind::Missing, TransactError::MissingRow { table, key })
        })
    }

    fn in_words(&self, table: &seriatim_txn::Table, key: Key<'_>) -> (String, String) {
        let (table, key) = self.inner.describe(table.id, Some(key));
        (table.unwrap_or_default(), key.unwrap_or_default())
    }

    /// An abort that reveals what was read. If the reads were not consistent, a conflict instead (promise g).
    #[cold]
    pub(super) fn about(&self, abort: impl FnOnce() -> Abort) -> Abort {
        let _call = match self.call() {
            Ok(call) => call,
            Err(abort) => return abort,
        };
        match self.validate() {
            Ok(()) => abort(),
            Err(cause) => self.stop(cause),
        }
    }
}

/// The columns whose indexes must be updated: none if the change failed. A duplicate key there would hide the failure.
pub fn unless_failed<R, E>(result: &Result<R, E>, dirty: ColumnSet) -> ColumnSet {
    if result.is_ok() { dirty } else { ColumnSet::EMPTY }
}

/// An update whose closure is running.
#[derive(Clone, Copy)]
pub(super) struct Update {
    rows: Updating,
    /// The position to roll back to if the index entries cannot be updated.
    position: Option<Position>,
    /// Operations that were left until the next check.
    left: u32,
}

/// Restores the row if the closure of an update panics: its index entries were not updated, and the body may
/// catch the panic and commit. Forgotten once the closure has returned.
struct UndoUpdate<'t, W: Worker + ?Sized> {
    tx: &'t TxCore<W>,
    set: &'t TableSet,
}

impl<W: Worker + ?Sized> Drop for UndoUpdate<'_, W> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        if let Some(Update { rows: Updating { before, after }, .. }) = self.tx.admit() {
            // SAFETY: both are rows of that many bytes; `after` is private, and the writer is gone with the closure.
            unsafe { after.copy_from_nonoverlapping(before, self.set.layout.row_bytes as usize) };
        }
    }
}
