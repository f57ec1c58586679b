//! Writes on encoded keys, shared by derived and declared tables.

use std::hint::cold_path;
use std::ops::ControlFlow;
use std::panic::Location;

use seriatim_catalog::{
    Addend, BrokenCheck, ColumnSet, ColumnUse, Key, OutOfLineStore, RowRef, RowWriter, Value, ValueError,
};
use seriatim_procedure::plan::Kind;
use seriatim_txn::{
    Added, Addition, Cause, Inserted, Mode, OnExists, OpError, Phase, Reason, RowPtr, Staged, Table, Updating,
    Worker as _,
};

use crate::error::{Abort, AbortKind, TransactError, ViolatingRow};
use crate::operations::{Operations as _, Path, count, enter, operate};
use crate::procedure::watch;
use crate::runtime::DynRow;
use crate::scan::{RawScan, Target};
use crate::table::{Rows, TableSet};

use super::{Position, TxCore};

/// Why a row was not written.
pub(crate) enum NotEncoded {
    /// No memory for a long text.
    OutOfMemory(seriatim_catalog::OutOfMemory),
    /// A value does not fit its column; the caller knows which one.
    Unfit,
}

/// Stores the long texts of rows that are being written.
pub(crate) struct OutOfLineValues<'t> {
    tx: &'t TxCore,
    /// The table, which bounds a text; `None` for rows that are not logged.
    of: Option<&'t TableSet>,
}

impl<'t> OutOfLineValues<'t> {
    pub(crate) fn of(tx: &'t TxCore, set: &'t TableSet) -> OutOfLineValues<'t> {
        OutOfLineValues { tx, of: Some(set) }
    }

    /// For an index.
    pub(crate) fn unlogged(tx: &'t TxCore) -> OutOfLineValues<'t> {
        OutOfLineValues { tx, of: None }
    }
}

impl OutOfLineStore for OutOfLineValues<'_> {
    /// A text that does not fit ends the transaction, even if the body ignores the error: its row may be half
    /// written. The first such text is reported.
    fn store(&mut self, bytes: &[u8]) -> Result<u64, seriatim_catalog::OutOfMemory> {
        let refuse = || {
            cold_path();
            let _ = self.tx.out_of_memory();
            seriatim_catalog::OutOfMemory
        };
        if let Some((set, most)) = self.of.map(|set| (set, set.text_bytes_max()))
            && bytes.len() > most
        {
            // Promise (g): the text may be made of values that never existed together.
            match self.tx.validate() {
                Ok(()) => {
                    self.tx.is_untidy.set(true);
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
impl TxCore {
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
        let position = self.position();
        self.keep_or_roll_back(position, write())
    }

    /// The result of writes since the position. They are rolled back if the result is an abort that the body
    /// may ignore.
    #[inline]
    pub(super) fn keep_or_roll_back<R>(&self, position: Position, result: Result<R, Abort>) -> Result<R, Abort> {
        if result.is_err() && self.stopped.get().is_none() {
            self.rollback_writes(position)?;
        }
        result
    }

    pub(crate) fn writable(&self) -> Result<(), Abort> {
        match self.mode.get() {
            Mode::ReadWrite => Ok(()),
            Mode::ReadOnly => Err(self.stop(Cause { phase: Phase::Execute, reason: Reason::ReadOnly })),
        }
    }

    // Here and below, code that does not depend on the row's type is separate: one copy of it stays in the
    // instruction cache.

    /// Inserts a row into a clustered table, and its index entries.
    #[inline(never)]
    fn insert_into_run(&self, set: &TableSet, key: Key<'_>, row: *const u8, exists: OnExists) -> Result<bool, Abort> {
        if !set.is_refusing() {
            return self.insert_clustered(set, key, row, exists);
        }
        self.check_row(set, RowPtr::new(row.cast_mut()), ColumnSet::ALL)?;
        let position = self.position();
        self.keep_or_roll_back(position, self.insert_clustered(set, key, row, exists))
    }

    /// The values of the columns that the writer of a row does not know: those of the row that it replaces. Otherwise
    /// they are the defaults and the next number.
    fn extension(&self, set: &TableSet, key: Key<'_>, exists: OnExists) -> Result<Vec<(usize, Value)>, Abort> {
        let definition = &*set.definition;
        let before = match exists {
            OnExists::Replace if definition.extension > 0 => self.read_row(set, key, ColumnSet::ALL)?,
            _ => None,
        };
        let value = |at: usize| match before {
            Some(row) => Ok((at, DynRow::new(set, row).value(at))),
            None if definition.columns[at].identity.is_some() => {
                self.next_identity(set).map(|number| (at, Value::Integer(number.into(), None)))
            }
            None => Ok((at, definition.value_if_unknown(at).unwrap_or(Value::NONE))),
        };
        let columns = definition.columns.len();
        (columns - definition.extension..columns).map(value).collect()
    }

    /// Discards the place of a row that was not written.
    #[cold]
    fn not_encoded(&self, set: &TableSet, staged: Option<Staged>, error: NotEncoded) -> Abort {
        if let Some(staged) = staged {
            self.worker().discard(&set.primary, staged);
        }
        match error {
            NotEncoded::OutOfMemory(_) => self.out_of_memory(),
            // The caller notes the error.
            NotEncoded::Unfit => Abort::new(AbortKind::User),
        }
    }

    /// The row to change, of a table with runs or of an update that changes an index. Also the position to roll back to
    /// if its index entries cannot be updated.
    #[inline(never)]
    fn begin_update(
        &self,
        set: &TableSet,
        key: Key<'_>,
        columns: ColumnUse,
    ) -> Result<Option<(Updating, Option<Position>)>, Abort> {
        self.writable()?;
        self.admits(set)?;
        let position = set.can_fail_late().then(|| self.position());
        let is_divided = set.is_divided();
        let rows = if is_divided && set.is_clustered() {
            self.update_clustered(set, key)?
        } else {
            if is_divided {
                self.convert(set, key)?;
            }
            let table = &*set.primary;
            let columns = set.with_indexed(columns);
            let rows = operate(self, |worker| worker.update(table, key, columns))?;
            self.note(table, key, columns.read());
            if rows.is_some() {
                self.wrote(table, key);
            }
            rows
        };
        Ok(rows.map(|rows| (rows, position)))
    }

    /// Checks a changed row, and updates its index entries. If that fails for a reason that the body may ignore,
    /// nothing of the update remains.
    #[inline(never)]
    fn follow(
        &self,
        set: &TableSet,
        key: Key<'_>,
        (Updating { before, after }, position): (Updating, Option<Position>),
        dirty: ColumnSet,
    ) -> Result<(), Abort> {
        if set.is_refusing()
            && let Err(abort) = self.check_row(set, Some(after), dirty)
        {
            // SAFETY: both are rows of that many bytes; `after` is private.
            unsafe { after.copy_from_nonoverlapping(before, set.layout.row_bytes as usize) };
            return Err(abort);
        }
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

    /// The closure of an update has ended: operations are admitted again, unless it stopped the transaction.
    #[inline]
    fn admit(&self) {
        if let Some(left) = self.updating.take()
            && self.stopped.get().is_none()
        {
            self.left.set(left);
        }
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
            Added::Overflow => Err(self.overflow(place)),
        }
    }

    /// As [`TxCore::add_at`], and reads the sum. `None` if there is no row.
    ///
    /// # Errors
    /// As [`TxCore::add_at`].
    pub fn add_and_get_at<C: Addend>(
        &self,
        set: &TableSet,
        key: Key<'_>,
        addition: Addition,
        place: &'static Location<'static>,
    ) -> Result<Option<C>, Abort> {
        let column = addition.column();
        let sum = self.update_at(set, key, ColumnSet::of(column).into(), |mut writer| {
            let added = addition.write(&set.layout, &mut writer);
            let sum = C::owned(writer.get::<C>(&set.layout.places[column.index()]));
            ((added == Added::Done).then_some(sum), writer.dirty())
        })?;
        match sum {
            None => Ok(None),
            Some(Some(sum)) => Ok(Some(sum)),
            Some(None) => Err(self.overflow(place)),
        }
    }

    /// An abort for a sum that leaves the range of its column.
    #[cold]
    fn overflow(&self, place: &'static Location<'static>) -> Abort {
        self.about(|| self.new_abort(AbortKind::Overflow(Some(place))))
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
        let _call = enter(self, set)?;
        let table = &*set.primary;
        self.writable()?;
        let added = operate(self, |worker| worker.add(table, key, addition))?;
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
        let _call = enter(self, set)?;
        self.writable()?;
        if set.is_linked_or_refused() {
            cold_path();
            self.admits(set)?;
            if set.has_earlier() {
                self.convert(set, key)?;
            }
            if set.is_linked() && !self.is_in_statement() {
                let position = self.position();
                return self.keep_or_roll_back(position, self.delete_admitted(set, key));
            }
        }
        self.delete_admitted(set, key)
    }

    fn delete_admitted(&self, set: &TableSet, key: Key<'_>) -> Result<bool, Abort> {
        let before = if set.is_clustered() {
            self.delete_clustered(set, key)?
        } else {
            let table = &*set.primary;
            let before = operate(self, |worker| worker.delete(table, key))?;
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

    /// Deletes the rows of a scan of a table. Returns their number.
    ///
    /// # Errors
    /// A conflict.
    pub fn delete_scanned(&self, scan: RawScan<'_>) -> Result<usize, Abort> {
        if !scan.set().is_linked() {
            return self.delete_each(scan);
        }
        self.whole(|| self.statement(|| self.delete_each(scan)))
    }

    fn delete_each(&self, scan: RawScan<'_>) -> Result<usize, Abort> {
        let (set, mut count) = (scan.set(), 0);
        // The columns of a key never change.
        let deleted = scan.with_columns(ColumnSet::EMPTY).try_for_each(|row| {
            // SAFETY: a row of this table, readable during this call.
            let row = unsafe { RowRef::from_raw(row.as_ptr()) };
            count += usize::from(set.primary.codec.encode_row(row, |key| self.delete_at(set, key))?);
            Ok(ControlFlow::<()>::Continue(()))
        });
        deleted.map(|_| count)
    }

    /// Stops the transaction at the memory limit.
    pub fn out_of_memory(&self) -> Abort {
        self.stop(Cause { phase: Phase::Execute, reason: Reason::OutOfMemory })
    }

    /// Deletes an index entry that must exist.
    pub(crate) fn unlink_entry(&self, table: &seriatim_txn::Table, key: Key<'_>) -> Result<(), Abort> {
        operate(self, |worker| worker.delete(table, key))?;
        self.note(table, key, ColumnSet::ALL);
        self.wrote(table, key);
        Ok(())
    }

    /// Inserts an index entry whose row is the primary key; an abort if the entry exists.
    pub(crate) fn link_entry(&self, table: &seriatim_txn::Table, key: Key<'_>, primary: Key<'_>) -> Result<(), Abort> {
        let staged = operate(self, |worker| worker.stage(table))?;
        if crate::index::write_primary(staged.row, primary, &mut OutOfLineValues::unlogged(self)).is_err() {
            cold_path();
            self.worker().discard(table, staged);
            return Err(self.out_of_memory());
        }
        let inserted = insert_staged(self, table, key, staged, OnExists::Refuse)?;
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
            let (_, key) = self.in_words(table, key);
            let made = self.made().iter().find_map(|set| set.constraint(table.id));
            let (table, constraint) = made.or_else(|| self.inner.constraint(table.id)).unwrap_or_default();
            Abort::explained(
                AbortKind::Duplicate,
                TransactError::Duplicate { table, constraint: constraint.into(), key },
            )
        })
    }

    /// Whether a row that is about to be written meets the table's conditions on these columns.
    ///
    /// # Errors
    /// It does not.
    #[inline(never)]
    fn check_row(&self, set: &TableSet, row: Option<RowPtr>, changed: ColumnSet) -> Result<(), Abort> {
        let Some(row) = row.filter(|_| !set.checks.is_empty()) else { return Ok(()) };
        // SAFETY: a row of this table, which is readable during the call.
        let as_read = unsafe { RowRef::from_raw(row.as_ptr()) };
        // The condition reads for itself, and not for the body.
        let broken = seriatim_catalog::watch::unwatched(|| set.checks.broken_by(&set.definition, as_read, changed));
        broken.map_or(Ok(()), |broken| Err(self.broken(set, broken)))
    }

    /// An abort that names the condition which a row does not meet.
    #[cold]
    fn broken(&self, set: &TableSet, BrokenCheck { constraint, row: values, error }: BrokenCheck) -> Abort {
        self.about(|| {
            let table = set.definition.name.to_string();
            let row = Box::new(ViolatingRow { values, error });
            Abort::explained(AbortKind::Check, TransactError::Check { table, constraint: constraint.into(), row })
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

    /// An abort for a sequence that gives no number.
    #[cold]
    pub(crate) fn sequence_error(&self, error: TransactError) -> Abort {
        self.about(|| Abort::explained(AbortKind::User, error))
    }

    fn in_words(&self, table: &seriatim_txn::Table, key: Key<'_>) -> (String, String) {
        match self.describe_changed(table.id) {
            Some(name) => (name, table.codec.describe(key)),
            None => {
                let (table, key) = self.inner.describe(table.id, Some(key));
                (table.unwrap_or_default(), key.unwrap_or_default())
            }
        }
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

/// Inserts the row that `encode` writes; `false` if the key exists and must not be replaced. It writes the columns of
/// the extension only if the row `is_whole`.
///
/// # Errors
/// A conflict, a duplicate key of a unique index, no memory, a value that does not fit.
#[inline(always)]
pub(crate) fn insert<P: Path>(
    path: &P,
    set: &TableSet,
    key: Key<'_>,
    encode: impl FnOnce(&mut RowWriter<'_>) -> Result<(), NotEncoded>,
    exists: OnExists,
    is_whole: bool,
) -> Result<bool, Abort> {
    let _call = enter(path, set)?;
    match set.rows_as_written() {
        Some(Rows::Records) => insert_record(path, set, key, encode, exists),
        Some(Rows::Runs) => insert_in_run(path, set, key, encode, exists),
        None => {
            let mut encode = Some(encode);
            let mut encode = |writer: &mut RowWriter<'_>| encode.take().map_or(Ok(()), |encode| encode(writer));
            insert_extended(path, set, key, &mut encode, exists, is_whole)
        }
    }
}

/// As [`insert`], of a table whose rows have columns that `encode` may not know, or that does not admit operations.
#[cold]
#[inline(never)]
fn insert_extended<P: Path>(
    path: &P,
    set: &TableSet,
    key: Key<'_>,
    encode: &mut dyn FnMut(&mut RowWriter<'_>) -> Result<(), NotEncoded>,
    exists: OnExists,
    is_whole: bool,
) -> Result<bool, Abort> {
    path.tx().admits(set)?;
    if set.has_earlier() {
        path.tx().writable()?;
        path.tx().convert(set, key)?;
    }
    let extension = if is_whole { Vec::new() } else { path.tx().extension(set, key, exists)? };
    let encode = |writer: &mut RowWriter<'_>| {
        for (at, value) in extension {
            match value.write(&set.definition.columns[at], &set.layout.places[at], writer) {
                Err(ValueError::OutOfMemory(error)) => return Err(NotEncoded::OutOfMemory(error)),
                Err(_) => return Err(NotEncoded::Unfit),
                Ok(()) => {}
            }
        }
        encode(writer)
    };
    match set.is_clustered() {
        true => insert_in_run(path, set, key, encode, exists),
        false => insert_record(path, set, key, encode, exists),
    }
}

/// As [`insert`], of a row that is a record.
#[inline(always)]
fn insert_record<P: Path>(
    path: &P,
    set: &TableSet,
    key: Key<'_>,
    encode: impl FnOnce(&mut RowWriter<'_>) -> Result<(), NotEncoded>,
    exists: OnExists,
) -> Result<bool, Abort> {
    let tx = path.tx();
    let mut out_of_line_values = OutOfLineValues::of(tx, set);
    let staged = stage(path, set, key)?;
    // SAFETY: a staged row is private, zeroed, and of the table's layout.
    let mut writer =
        unsafe { RowWriter::for_insert(staged.row.as_ptr(), staged.fixed.as_ptr(), &mut out_of_line_values) };
    match encode(&mut writer) {
        Ok(()) => insert_row(path, set, key, staged, exists),
        Err(error) => Err(tx.not_encoded(set, Some(staged), error)),
    }
}

/// As [`insert`], of a row of a clustered table.
#[inline(always)]
fn insert_in_run<P: Path>(
    path: &P,
    set: &TableSet,
    key: Key<'_>,
    encode: impl FnOnce(&mut RowWriter<'_>) -> Result<(), NotEncoded>,
    exists: OnExists,
) -> Result<bool, Abort> {
    let tx = path.tx();
    let mut out_of_line_values = OutOfLineValues::of(tx, set);
    begin_insert(path, set, key)?;
    let place = tx.append_place(set, key);
    let row = place.unwrap_or_else(|| tx.scratch_row(set));
    // SAFETY: a zeroed row of the table's layout, which has no fixed part; private until the next operation.
    let mut writer = unsafe { RowWriter::for_insert(row, std::ptr::null_mut(), &mut out_of_line_values) };
    match encode(&mut writer) {
        Ok(()) if place.is_some() => {
            tx.end_append(key);
            Ok(true)
        }
        Ok(()) => tx.insert_into_run(set, key, row, exists),
        Err(error) => Err(tx.not_encoded(set, None, error)),
    }
}

#[inline(always)]
fn begin_insert<P: Path>(path: &P, set: &TableSet, key: Key<'_>) -> Result<(), Abort> {
    let tx = path.tx();
    if P::HOOKS {
        tx.writable()?;
        tx.watch(Kind::Insert, set, Target::Rows, || watch::one(key));
    }
    count(path)
}

/// A place for the row to insert.
#[inline(never)]
fn stage<P: Path>(path: &P, set: &TableSet, key: Key<'_>) -> Result<Staged, Abort> {
    begin_insert(path, set, key)?;
    let table = &*set.primary;
    match path.worker_mut().stage(table) {
        Ok(staged) => Ok(staged),
        Err(stop) => path.tx().retry_or_stop(stop, || path.worker_mut().stage(table)),
    }
}

/// Inserts the row that was staged, and its index entries.
#[inline(never)]
fn insert_row<P: Path>(
    path: &P,
    set: &TableSet,
    key: Key<'_>,
    staged: Staged,
    exists: OnExists,
) -> Result<bool, Abort> {
    let tx = path.tx();
    if !set.is_refusing() {
        return insert_parts(path, set, key, staged, exists);
    }
    if let Err(abort) = tx.check_row(set, Some(staged.row), ColumnSet::ALL) {
        path.worker_mut().discard(&set.primary, staged);
        return Err(abort);
    }
    if !set.can_fail_late() {
        return insert_parts(path, set, key, staged, exists);
    }
    let position = tx.position();
    tx.keep_or_roll_back(position, insert_parts(path, set, key, staged, exists))
}

/// Passes a staged row to the worker. If the transaction stops before that, or while it waits, the row is
/// discarded.
#[inline(always)]
pub(crate) fn insert_staged<P: Path>(
    path: &P,
    table: &Table,
    key: Key<'_>,
    staged: Staged,
    exists: OnExists,
) -> Result<Inserted, Abort> {
    let mut is_handed_over = false;
    let inserted = operate(path, |worker| {
        let inserted = worker.insert(table, key, staged, exists);
        is_handed_over = !matches!(inserted, Err(OpError::Wait));
        inserted
    });
    if inserted.is_err() && !is_handed_over {
        cold_path();
        path.tx().worker().discard(table, staged);
    }
    inserted
}

/// Inserts the row, then its index entries.
#[inline(always)]
fn insert_parts<P: Path>(
    path: &P,
    set: &TableSet,
    key: Key<'_>,
    staged: Staged,
    exists: OnExists,
) -> Result<bool, Abort> {
    let (tx, table) = (path.tx(), &*set.primary);
    let inserted = insert_staged(path, table, key, staged, exists)?;
    if P::HOOKS {
        tx.note(table, key, ColumnSet::EMPTY);
    }
    let before = match inserted {
        Inserted::Exists(_) => return Ok(false),
        Inserted::New => None,
        Inserted::Replaced(before) => Some(before),
    };
    if P::HOOKS {
        tx.wrote(table, key);
    }
    if set.is_indexed() {
        let after = match before {
            // The record was linked, with the row in the place where it was written.
            None if path.worker_mut().seen().record == Some(staged.record) => Some(staged.row),
            // The row is now in the transaction's own row version: read it from there.
            _ => operate(tx, |worker| worker.read(table, key, ColumnSet::ALL))?,
        };
        tx.maintain(set, key, before, after, ColumnSet::ALL)?;
    }
    Ok(true)
}

/// As [`Operations::change_at`], of a table with runs, or of an update that changes an index or is watched.
#[inline]
pub(crate) fn change_followed<P: Path>(
    path: &P,
    set: &TableSet,
    key: Key<'_>,
    columns: ColumnUse,
    change: impl FnOnce(RowWriter<'_>) -> ColumnSet,
) -> Result<(), Abort> {
    let tx = path.tx();
    let Some((rows, position)) = tx.begin_update(set, key, columns)? else { return Ok(()) };
    let dirty = change_row(path, set, rows, columns, change)?;
    if P::HOOKS && tx.watching.get() || set.is_indexed() {
        return tx.follow(set, key, (rows, position), dirty);
    }
    Ok(())
}

/// Has `change` write a private row version, and returns the columns that it set.
#[inline(always)]
pub(crate) fn change_row<P: Path>(
    path: &P,
    set: &TableSet,
    rows: Updating,
    columns: ColumnUse,
    change: impl FnOnce(RowWriter<'_>) -> ColumnSet,
) -> Result<ColumnSet, Abort> {
    let tx = path.tx();
    let mut out_of_line_values = OutOfLineValues::of(tx, set);
    // SAFETY: a private row version of the table's layout; access rule 2 excludes other operations while it is written.
    let writer = unsafe { RowWriter::for_update(rows.after.as_ptr(), &mut out_of_line_values) }.only(columns.either());
    let change = |writer: RowWriter<'_>| {
        let dirty = change(writer);
        debug_assert!(dirty.is_subset(columns.changed()), "{dirty:?} are set, of {columns:?}");
        dirty
    };
    if !P::HOOKS {
        return Ok(change(writer));
    }
    tx.updating.set(Some(tx.left.replace(0)));
    let undo = UndoUpdate { tx, set, rows };
    let dirty = change(writer);
    std::mem::forget(undo);
    tx.admit();
    match tx.stopped.get() {
        None => Ok(dirty),
        Some(cause) => {
            cold_path();
            Err(tx.new_abort(AbortKind::Stopped(cause)))
        }
    }
}

/// Restores the row if the closure of an update panics: its index entries were not updated, and the body may
/// catch the panic and commit. Forgotten once the closure has returned.
struct UndoUpdate<'t> {
    tx: &'t TxCore,
    set: &'t TableSet,
    rows: Updating,
}

impl Drop for UndoUpdate<'_> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        let Updating { before, after } = self.rows;
        self.tx.admit();
        // SAFETY: both are rows of that many bytes; `after` is private, and the writer is gone with the closure.
        unsafe { after.copy_from_nonoverlapping(before, self.set.layout.row_bytes as usize) };
    }
}
