//! Changes the clustering of a table while the database is open: its rows are copied into a table of the new
//! declaration.
//!
//! Ordinary transactions insert the rows into a table that is void in the catalogue. Then one transaction on the
//! catalogue makes the new table valid in place of the old one. It commits in the epoch of the last row or a later one.
//! So after a power cut one of the two is valid, with all rows. Recovery skips entries of a void table in log and
//! checkpoint, by its declaration, which the catalogue keeps.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::Epoch;
use seriatim_catalog::Key;
use seriatim_txn::{Mode, RowPtr};

use super::OpenHandle;
use super::persistence::Persistence;
use super::rebuild::Failed;
use super::rows::{Rows, Walker};
use crate::engine::Inner;
use crate::error::{Abort, SchemaError, StorageError, TransactError};
use crate::runtime::DynRow;
use crate::table::TableSet;
use crate::tx::{Origin, TxCore};
use crate::{Runner, TransactionOptions};

/// Replaces the old table by the new one, which is empty and void in the catalogue. No checkpoint may be taken
/// meanwhile, and neither table may be in use. It is durable with the returned epoch.
///
/// # Errors
/// No memory; an error of the file system. The old table is then unchanged.
pub(crate) fn convert(
    inner: &Arc<Inner>,
    open: &Arc<OpenHandle>,
    persistence: &Persistence,
    old: &TableSet,
    new: &TableSet,
) -> Result<Epoch, SchemaError> {
    // Deferred additions belong to the old table.
    drop(inner.environment.epochs.windows().close());
    let each_row = |set: &TableSet, act: &Act<'_>| each_row(inner, open, persistence, set, act);
    let copied = each_row(old, &|tx, _, row| tx.insert_values(new, &DynRow::new(old, row).values()));
    let copied = copied.map_err(|failed| match failed {
        Failed::Transact(TransactError::OutOfMemory { held, .. }) => SchemaError::OutOfMemory { held },
        Failed::Transact(error) => {
            let converting = StorageError::io(format!("converting table {}", old.definition.name));
            SchemaError::storage(converting(io::Error::other(error)))
        }
        Failed::Stuck => unreachable!("no transaction commits to the table"),
    });
    let converted = copied.and_then(|()| {
        super::catalogue::change(inner, open, |rows| {
            rows.set_void(old, true)?;
            rows.set_void(new, false)
        })
    });
    // Deletes the rows of the table that is not valid, to free their memory. Rows that cannot be deleted stay
    // until the database is closed.
    let left = if converted.is_ok() { old } else { new };
    let _ = each_row(left, &|tx, key, _| tx.delete_at(left, key).map(drop));
    converted
}

/// An action on a row of a table in a transaction.
type Act<'a> = dyn Fn(&TxCore, Key<'_>, RowPtr) -> Result<(), Abort> + 'a;

/// Calls `act` for each row of a table, some dozen records in each transaction.
fn each_row(
    inner: &Arc<Inner>,
    open: &Arc<OpenHandle>,
    persistence: &Persistence,
    set: &TableSet,
    act: &Act<'_>,
) -> Result<(), Failed> {
    let _one_at_a_time = inner.helping();
    let core = inner.environment.core().ok_or(Failed::Transact(TransactError::WorkersBusy))?;
    let mut walker = Walker::new(inner.protocol.as_ref(), core);
    let mut runner = Runner::new(Arc::clone(inner), Arc::clone(open), 0);
    // The application's bounds for transactions do not apply here.
    runner.set_options(TransactionOptions::new().age_max(Duration::MAX));
    runner.tx.ignore_queue();
    let rows = Rows::new(&set.primary);
    let mut chunk = || {
        walker.chunk(&rows, |found| {
            let act = |tx: &TxCore| {
                let act = |key: Key<'_>, row| act(tx, key, row);
                found.iter().try_for_each(|found| set.each_row(found.key, found.row, act))
            };
            runner.run(Mode::ReadWrite, Origin::Closure, act).map(drop).map_err(Failed::Transact)
        })
    };
    while chunk()? {
        // If the owner steps the loggers, no other thread empties their streams.
        persistence.step();
    }
    Ok(())
}
