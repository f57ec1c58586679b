//! Access to tables declared at run time. The types of values are checked at each call.

use std::ops::Bound;

use seriatim_catalog::{ColumnId, ColumnSet, Value};
use seriatim_engine::{Direction, DynHandle, DynRow, DynScan, IfLocked, LockStrength, RowLock};

use crate::{Abort, MissingRow, ReadTx, Tx};

impl ReadTx {
    /// Returns the row with these key values, if there is one.
    ///
    /// # Errors
    /// A conflict, or values that are not of the key's types.
    pub fn get_dyn<'t>(&'t self, table: &'t DynHandle, key: &[Value]) -> Result<Option<DynRow<'t>>, Abort> {
        self.core.get_dyn(table, key)
    }

    /// Locks the row with these key values, whether it exists or not, until the explicit transaction ends: see
    /// [`Transaction::lock_row`](crate::Transaction::lock_row). It never blocks: a wait is returned. If the transaction
    /// has read anything else before a wait, [`OwnedTransaction::check_reads`](crate::OwnedTransaction::check_reads)
    /// says afterwards whether it can still commit.
    ///
    /// The transaction of a closure gets no lock. For it a row is `Held` unless another transaction has locked it.
    ///
    /// # Errors
    /// As [`ReadTx::get_dyn`]; no memory for the lock.
    pub fn lock_row_dyn(
        &self,
        table: &DynHandle,
        key: &[Value],
        strength: LockStrength,
        if_locked: IfLocked,
    ) -> Result<RowLock, Abort> {
        self.core.lock_row_dyn(table, key, strength, if_locked)
    }

    /// Returns whether [`ReadTx::lock_row_dyn`] can do anything: not in the transaction of a closure while no row is
    /// locked.
    pub fn minds_locks(&self) -> bool {
        self.core.minds_locks()
    }

    /// Returns an abort with which a body ends that has to wait for a row, and will run again.
    pub fn unwind(&self) -> Abort {
        self.core.unwind()
    }

    /// Returns whether there is a row with these key values: see [`ReadTx::exists`].
    ///
    /// # Errors
    /// As [`ReadTx::get_dyn`].
    pub fn exists_dyn(&self, table: &DynHandle, key: &[Value]) -> Result<bool, Abort> {
        self.core.exists_dyn(table, key)
    }

    /// Returns the rows with these keys, in this order: see [`ReadTx::get_many`].
    ///
    /// # Errors
    /// As [`ReadTx::get_dyn`].
    pub fn get_many_dyn<'t, K: AsRef<[Value]>>(
        &'t self,
        table: &'t DynHandle,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<DynRow<'t>>>, Abort> {
        self.core.get_many_dyn(table, keys)
    }

    /// Returns the first row whose key begins with these values; without values, of all rows.
    ///
    /// # Errors
    /// A conflict; values that are not of the key's types; a table that is not ordered.
    pub fn first_dyn<'t>(&'t self, table: &'t DynHandle, prefix: &[Value]) -> Result<Option<DynRow<'t>>, Abort> {
        self.scan_dyn(table, prefix)?.next().transpose()
    }

    /// Returns the last row whose key begins with these values; without values, of all rows.
    ///
    /// # Errors
    /// As [`ReadTx::first_dyn`].
    pub fn last_dyn<'t>(&'t self, table: &'t DynHandle, prefix: &[Value]) -> Result<Option<DynRow<'t>>, Abort> {
        self.scan_rev_dyn(table, prefix)?.next().transpose()
    }

    /// Returns all rows of a table of any organization: see [`ReadTx::scan_all`].
    ///
    /// # Errors
    /// A handle of another database. The scan itself reports conflicts.
    pub fn scan_all_dyn<'t>(&'t self, table: &'t DynHandle) -> Result<DynScan<'t>, Abort> {
        self.core.scan_all_dyn(table)
    }

    /// Counts the rows of a table of any organization: see [`ReadTx::count_all`]. For the rows of a prefix,
    /// `scan_dyn(table, prefix)?.try_count()`.
    ///
    /// # Errors
    /// A conflict.
    pub fn count_all_dyn(&self, table: &DynHandle) -> Result<usize, Abort> {
        self.scan_all_dyn(table)?.try_count()
    }

    /// Returns the rows whose keys begin with these values, in key order; without values, all rows.
    ///
    /// # Errors
    /// Values that are not of the key's types; a table that is not ordered. The scan itself reports conflicts.
    pub fn scan_dyn<'t>(&'t self, table: &'t DynHandle, prefix: &[Value]) -> Result<DynScan<'t>, Abort> {
        self.core.scan_dyn(table, prefix)
    }

    /// Returns the rows that this index finds for these values, in index order.
    ///
    /// # Errors
    /// There is no such index, or the values are not of its types. A hash index needs a value for each of its
    /// columns. The scan itself reports conflicts.
    pub fn find_dyn<'t>(&'t self, table: &'t DynHandle, index: &str, prefix: &[Value]) -> Result<DynScan<'t>, Abort> {
        self.core.find_dyn(table, index, prefix)
    }

    /// Returns the rows between two bounds, in ascending order of keys: of the primary key, or of the index of this
    /// name. The bounds are on the first columns of the key. An included bound takes in every key that begins with it.
    /// The bounds are in the order of the keys: of a descending column, larger values come first.
    ///
    /// # Errors
    /// There is no such index, the values are not of its types, or what is scanned is not ordered. The scan itself
    /// reports conflicts.
    pub fn range_dyn<'t>(
        &'t self,
        table: &'t DynHandle,
        index: Option<&str>,
        bounds: (Bound<&[Value]>, Bound<&[Value]>),
    ) -> Result<DynScan<'t>, Abort> {
        self.core.range_dyn(table, index, bounds, Direction::Forward)
    }

    /// As [`ReadTx::range_dyn`], in descending order of these keys.
    ///
    /// # Errors
    /// As [`ReadTx::range_dyn`].
    pub fn range_rev_dyn<'t>(
        &'t self,
        table: &'t DynHandle,
        index: Option<&str>,
        bounds: (Bound<&[Value]>, Bound<&[Value]>),
    ) -> Result<DynScan<'t>, Abort> {
        self.core.range_dyn(table, index, bounds, Direction::Backward)
    }

    /// As [`ReadTx::scan_dyn`], in descending order of keys.
    ///
    /// # Errors
    /// As [`ReadTx::scan_dyn`].
    pub fn scan_rev_dyn<'t>(&'t self, table: &'t DynHandle, prefix: &[Value]) -> Result<DynScan<'t>, Abort> {
        self.core.scan_towards_dyn(table, prefix, Direction::Backward)
    }

    /// As [`ReadTx::find_dyn`], in descending order of the index.
    ///
    /// # Errors
    /// As [`ReadTx::find_dyn`].
    pub fn find_rev_dyn<'t>(
        &'t self,
        table: &'t DynHandle,
        index: &str,
        prefix: &[Value],
    ) -> Result<DynScan<'t>, Abort> {
        self.core.find_towards_dyn(table, index, prefix, Direction::Backward)
    }
}

impl Tx {
    /// Inserts a row of these values, one per column.
    ///
    /// # Errors
    /// As [`Tx::insert`]; or values that do not fit the columns.
    pub fn insert_dyn(&self, table: &DynHandle, values: &[Value]) -> Result<(), Abort> {
        self.core.insert_dyn(table, values)
    }

    /// Inserts a row of these values, or replaces the row with its key.
    ///
    /// # Errors
    /// As [`Tx::put`]; or values that do not fit the columns.
    pub fn put_dyn(&self, table: &DynHandle, values: &[Value]) -> Result<(), Abort> {
        self.core.put_dyn(table, values)
    }

    /// Inserts a row of these values. If its key exists, it sets the columns that `changes` returns for that row
    /// instead. Returns whether the row was inserted.
    ///
    /// ```
    /// # use seriatim::catalog::{ColumnDef, ColumnType, TableDef};
    /// # use seriatim::{Database, Value};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let column = |name: &'static str| ColumnDef::new(name, ColumnType::U32);
    /// # let definition = TableDef::builder("word").column(column("id")).column(column("count")).key(["id"]).finish()?;
    /// # let words = db.declare(definition)?;
    /// # let mut session = db.session();
    /// let mut count = |id: u32| {
    ///     session.transact(|tx| {
    ///         tx.upsert_dyn(&words, &[Value::from(id), Value::from(1u32)], |row| match row.value(1) {
    ///             Value::Integer(count, _) => Ok(vec![("count", Value::from(count as u32 + 1))]),
    ///             other => Err(tx.abort(format!("a count is no {other:?}"))),
    ///         })
    ///     })
    /// };
    /// assert!(*count(7)?);
    /// assert!(!*count(7)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A conflict; values that do not fit the columns; a column that does not exist or may not change; errors of
    /// `changes`.
    pub fn upsert_dyn<'c>(
        &self,
        table: &DynHandle,
        values: &[Value],
        changes: impl FnOnce(DynRow<'_>) -> Result<Vec<(&'c str, Value)>, Abort>,
    ) -> Result<bool, Abort> {
        self.core.upsert_dyn(table, values, changes)
    }

    /// Deletes the rows whose keys begin with these values, and returns their number; without values, all rows.
    ///
    /// # Errors
    /// A conflict; values that are not of the key's types; a table that is not ordered.
    pub fn delete_range_dyn(&self, table: &DynHandle, prefix: &[Value]) -> Result<usize, Abort> {
        self.core.delete_range_dyn(table, prefix)
    }

    /// Sets columns of the row with these key values, which must exist. If the row may be missing, use
    /// [`Tx::update_if_dyn`].
    ///
    /// # Errors
    /// A conflict; a missing row; values that do not fit the columns. A column that does not exist, may not change, or
    /// is given by its sequence alone.
    pub fn update_dyn(&self, table: &DynHandle, key: &[Value], changes: &[(&str, Value)]) -> Result<(), Abort> {
        self.update_if_dyn(table, key, changes)?.or_else(|MissingRow| Err(self.core.missing_dyn(table, key)?))
    }

    /// Sets columns of the row with these key values to those that `change` computes from the row. `uses` has the
    /// columns that it looks at, and those that are set, in the order of their values. Returns whether there is such a
    /// row. As [`Tx::insert_overriding_dyn`], it also sets a column that only its sequence gives.
    ///
    /// # Errors
    /// As [`Tx::update_if_dyn`]; those of `change`; another number of values.
    pub fn update_by_dyn(
        &self,
        table: &DynHandle,
        key: &[Value],
        uses: (ColumnSet, &[ColumnId]),
        change: impl FnOnce(DynRow<'_>) -> Result<Vec<Value>, Abort>,
    ) -> Result<bool, Abort> {
        self.core.update_by_dyn(table, key, uses, change)
    }

    /// As [`Tx::update_dyn`], for a row that may be missing: see [`Tx::update_if`].
    ///
    /// # Errors
    /// As [`Tx::update_dyn`], except for a missing row.
    pub fn update_if_dyn(
        &self,
        table: &DynHandle,
        key: &[Value],
        changes: &[(&str, Value)],
    ) -> Result<Result<(), MissingRow>, Abort> {
        self.core.update_dyn(table, key, changes).map(MissingRow::unless)
    }

    /// Deletes the row with these key values, which must exist. If the row may be missing, use [`Tx::delete_if_dyn`].
    ///
    /// # Errors
    /// A conflict; a missing row; values that are not of the key's types.
    pub fn delete_dyn(&self, table: &DynHandle, key: &[Value]) -> Result<(), Abort> {
        self.delete_if_dyn(table, key)?.or_else(|MissingRow| Err(self.core.missing_dyn(table, key)?))
    }

    /// Deletes the row with these key values, if there is one: see [`Tx::delete_if`].
    ///
    /// # Errors
    /// A conflict, or values that are not of the key's types.
    pub fn delete_if_dyn(&self, table: &DynHandle, key: &[Value]) -> Result<Result<(), MissingRow>, Abort> {
        self.core.delete_dyn(table, key).map(MissingRow::unless)
    }
}
