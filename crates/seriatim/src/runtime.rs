//! Tables declared at run time, read and written by values whose types are checked then.

use seriatim_catalog::Value;
use seriatim_engine::{DynHandle, DynRow, DynScan};

use crate::{Abort, MissingRow, ReadTx, Tx};

impl ReadTx {
    /// The row with these key values, if there is one.
    ///
    /// # Errors
    /// A conflict, or values that are not of the key's types.
    pub fn get_dyn<'t>(&'t self, table: &'t DynHandle, key: &[Value]) -> Result<Option<DynRow<'t>>, Abort> {
        self.core.get_dyn(table, key)
    }

    /// The rows whose keys begin with these values, in key order; all rows for none.
    ///
    /// # Errors
    /// Values that are not of the key's types; a table that is not ordered. The scan itself reports conflicts.
    pub fn scan_dyn<'t>(&'t self, table: &'t DynHandle, prefix: &[Value]) -> Result<DynScan<'t>, Abort> {
        self.core.scan_dyn(table, prefix)
    }

    /// The rows that the index of this name finds for these values, in index order.
    ///
    /// # Errors
    /// No such index, or values that are not of its types; of a hash index, fewer values than it has columns. The scan itself reports
    /// conflicts.
    pub fn find_dyn<'t>(&'t self, table: &'t DynHandle, index: &str, prefix: &[Value]) -> Result<DynScan<'t>, Abort> {
        self.core.find_dyn(table, index, prefix)
    }
}

impl Tx {
    /// Inserts a row of these values, one a column.
    ///
    /// # Errors
    /// As [`Tx::insert`]; or values that do not fit.
    pub fn insert_dyn(&self, table: &DynHandle, values: &[Value]) -> Result<(), Abort> {
        self.core.insert_dyn(table, values)
    }

    /// Inserts a row of these values or replaces the one with its key.
    ///
    /// # Errors
    /// As [`Tx::put`]; or values that do not fit.
    pub fn put_dyn(&self, table: &DynHandle, values: &[Value]) -> Result<(), Abort> {
        self.core.put_dyn(table, values)
    }

    /// Sets columns of the row with these key values, which must exist. Where it may be missing: [`Tx::update_if_dyn`].
    ///
    /// # Errors
    /// A conflict; a missing row; a column that does not exist or may not change; values that do not fit.
    pub fn update_dyn(&self, table: &DynHandle, key: &[Value], changes: &[(&str, Value)]) -> Result<(), Abort> {
        self.update_if_dyn(table, key, changes)?.or_else(|MissingRow| Err(self.core.missing_dyn(table, key)?))
    }

    /// As [`Tx::update_dyn`], of a row that may be missing: see [`Tx::update_if`].
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

    /// Deletes the row with these key values, which must exist. Where it may be missing: [`Tx::delete_if_dyn`].
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
