//! A table whose clustering is declared otherwise than it was, while the database is open: its rows go into a table of the new declaration.
//!
//! Ordinary transactions insert them, into a table that the manifest has and that does not count. When all of them are durable, one
//! manifest has it count in the place of the other. So a power cut leaves the one or the other, with all rows. What the log and the
//! checkpoint have of one that does not count is skipped, by its declaration, which the manifest keeps.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use seriatim_catalog::Key;
use seriatim_txn::{Mode, RowPtr};

use super::OpenHandle;
use super::open::add_table;
use super::persistence::Persistence;
use super::rebuild::Failed;
use super::rows::{Rows, Walker};
use crate::engine::Inner;
use crate::error::{Abort, SchemaError, StorageError, TransactError};
use crate::runtime::DynRow;
use crate::table::TableSet;
use crate::tx::{Origin, TxCore};
use crate::{Runner, TransactionOptions};

/// Has the new table, which is empty, take the place of the old one. No checkpoint is taken meanwhile, and nobody else uses either.
///
/// # Errors
/// No memory; what the file system says. The old one is as it was then.
pub(crate) fn convert(
    inner: &Arc<Inner>,
    open: &Arc<OpenHandle>,
    persistence: &Persistence,
    old: &TableSet,
    new: &TableSet,
) -> Result<(), SchemaError> {
    // What procedures have deferred is of the old one.
    drop(inner.environment.epochs.windows().close());
    let of_storage = |error| SchemaError::Storage(Box::new(error));
    persistence.change(|manifest| add_table(manifest, new, true)).map_err(of_storage)?;
    let each_row = |set: &TableSet, act: &Act<'_>| each_row(inner, open, persistence, set, act);
    let copied = each_row(old, &|tx, _, row| tx.insert_values(new, &DynRow::new(old, row).values()));
    let copied = copied.map_err(|failed| match failed {
        Failed::Transact(TransactError::OutOfMemory { .. }) => SchemaError::OutOfMemory,
        Failed::Transact(error) => {
            of_storage(StorageError::io(format!("converting table {}", old.definition.name))(io::Error::other(error)))
        }
        Failed::Stuck => unreachable!("nobody commits to the table"),
    });
    let converted = copied.and_then(|()| {
        persistence.record().map_err(of_storage)?;
        persistence.change(|manifest| manifest.replace_table(old.primary.id, new.primary.id)).map_err(of_storage)
    });
    // The rows of the one that does not count, for the sake of their memory. What is not deleted goes with the database.
    let left = if converted.is_ok() { old } else { new };
    let _ = each_row(left, &|tx, key, _| tx.delete_at(left, key).map(drop));
    converted
}

/// What is done with a row of a table in a transaction.
type Act<'a> = dyn Fn(&TxCore, Key<'_>, RowPtr) -> Result<(), Abort> + 'a;

/// Does something with each row of a table, some dozen records a transaction.
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
    // What the user allows transactions is not for these.
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
        // Where the owner runs the loggers nobody else empties their streams.
        persistence.step();
    }
    Ok(())
}
