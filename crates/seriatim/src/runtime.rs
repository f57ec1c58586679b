//! Access to tables declared at run time. The types of values are checked at each call.

use seriatim_catalog::Value;
use seriatim_engine::{DynHandle, DynRow, DynScan};

use crate::{Abort, MissingRow, ReadTx, Tx};

impl ReadTx {
    /// Returns the row with these key values, if there is one.
    ///
    /// # Errors
    /// A conflict, or values that are not of the key's types.
    pub fn get_dyn<'t>(&'t self, table: &'t DynHandle, key: &[Value]) -> Result<Option<DynRow<'t>>, Abort> {
        self.core.get_dyn(table, key)
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

    /// Sets columns of the row with these key values, which must exist. If the row may be missing, use
    /// [`Tx::update_if_dyn`].
    ///
    /// # Errors
    /// A conflict; a missing row; a column that does not exist or may not change; values that do not fit the columns.
    pub fn update_dyn(&self, table: &DynHandle, key: &[Value], changes: &[(&str, Value)]) -> Result<(), Abort> {
        self.update_if_dyn(table, key, changes)?.or_else(|MissingRow| Err(self.core.missing_dyn(table, key)?))
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
