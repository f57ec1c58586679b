//! Reads all rows of a table as values, for any organization, while no transaction changes it: to divide a
//! database, or to merge one.

use std::sync::Arc;

use seriatim_catalog::{Key, Value};
use seriatim_txn::RowPtr;

use super::rebuild::Failed;
use super::rows::{Rows, Walker};
use crate::TransactError;
use crate::engine::Inner;
use crate::runtime::DynRow;
use crate::table::TableSet;

/// Gives all rows of a table to `see`, some dozens at a time. Between two calls of `see` no worker is online.
///
/// # Errors
/// Errors of `see`; no worker.
///
/// # Panics
/// If a commit to the table goes on all the time.
pub(crate) fn rows(
    inner: &Arc<Inner>,
    set: &TableSet,
    see: &mut dyn FnMut(Vec<Vec<Value>>) -> Result<(), TransactError>,
) -> Result<(), TransactError> {
    let _one_at_a_time = inner.helping();
    let core = inner.environment.core().ok_or(TransactError::WorkersBusy)?;
    let mut walker = Walker::new(inner.protocol.as_ref(), core);
    let rows = Rows::new(&set.primary);
    loop {
        let mut shown = Vec::new();
        let more = walker.chunk(&rows, |found| {
            let mut show = |_: Key<'_>, row: RowPtr| -> Result<(), Failed> {
                shown.push(DynRow::new(set, row).values());
                Ok(())
            };
            found.iter().try_for_each(|found| set.each_row(found.key, found.row, &mut show))
        });
        match more {
            Ok(more) => {
                see(shown)?;
                if !more {
                    return Ok(());
                }
            }
            Err(Failed::Transact(error)) => return Err(error),
            Err(Failed::Stuck) => panic!("a record stays in the middle of a commit"),
        }
    }
}
