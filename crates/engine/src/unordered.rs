//! All rows of a table of any organization, in a snapshot.

use std::collections::HashSet;
use std::ops::ControlFlow;

use seriatim_catalog::{ColumnSet, KeyBuf, Organization};
use seriatim_store::{Walk, read_key};

use crate::error::Abort;
use crate::runtime::{DynHandle, DynRow};
use crate::tx::TxCore;

impl TxCore {
    /// Calls `visit` with each row of a table that this snapshot shows: in key order if the table is ordered, otherwise
    /// in no order. For snapshots only, since nothing keeps rows from being added behind the walk.
    ///
    /// A record stays linked as long as a snapshot may show a row of it. So a walk over a hash table finds the key of
    /// each row of the snapshot. It finds a key twice if the table grows meanwhile, so it remembers all keys: some 100
    /// bytes for each row.
    ///
    /// # Errors
    /// Those of `visit`; the snapshot has ended.
    pub fn each_row_of_snapshot_dyn(
        &self,
        table: &DynHandle,
        visit: &mut dyn FnMut(DynRow<'_>) -> Result<(), Abort>,
    ) -> Result<(), Abort> {
        let set = self.own(&table.set)?;
        if set.definition.organization == Organization::Ordered {
            let each = |row: DynRow<'_>| visit(row).map(|()| ControlFlow::<()>::Continue(()));
            return self.scan_dyn(table, &[])?.try_for_each_row(each).map(drop);
        }
        let (mut walk, mut records, mut seen) = (Walk::new(), Vec::new(), HashSet::<KeyBuf>::new());
        loop {
            records.clear();
            let keys: Vec<KeyBuf> = {
                let _call = self.call()?;
                self.admits(set)?;
                if !set.primary.index.walk(&mut walk, self.worker().core().local.pinned(), &mut records) {
                    return Ok(());
                }
                // SAFETY: the worker is online while the transaction is open, since before the records were found.
                records.iter().map(|&record| unsafe { read_key(record, set.primary.class) }.to_buf()).collect()
            };
            for key in keys {
                let _call = self.call()?;
                if let Some(row) = self.read_row(set, key.as_key(), ColumnSet::ALL)?
                    && seen.insert(key)
                {
                    visit(DynRow::new(set, row))?;
                }
            }
        }
    }
}
