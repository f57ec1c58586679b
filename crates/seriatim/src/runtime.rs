//! Tables declared at run time, read and written by values whose types are checked then.

use seriatim_catalog::Value;
use seriatim_engine::{DynHandle, DynRow, DynScan};

use crate::{Abort, ReadTx, Tx};

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

    /// Sets columns of the row with these key values; whether there is such a row.
    ///
    /// # Errors
    /// A conflict; a column that does not exist or may not change; values that do not fit.
    pub fn update_dyn(&self, table: &DynHandle, key: &[Value], changes: &[(&str, Value)]) -> Result<bool, Abort> {
        self.core.update_dyn(table, key, changes)
    }

    /// Deletes the row with these key values; whether there was one.
    ///
    /// # Errors
    /// A conflict, or values that are not of the key's types.
    pub fn delete_dyn(&self, table: &DynHandle, key: &[Value]) -> Result<bool, Abort> {
        self.core.delete_dyn(table, key)
    }
}
