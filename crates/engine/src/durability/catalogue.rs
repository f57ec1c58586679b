//! Changes of the catalogue, as transactions on its rows.
//!
//! A change commits like any transaction, so its epoch orders it among the rows that need it. The table is published
//! only after the commit. So transactions that use it commit in that epoch or a later one, whatever log they are in. A
//! recovery keeps whole epochs, so it has the table if it has one of its rows. An explicit transaction changes rows of
//! users and of the catalogue in one commit, so a recovery has both or neither.
//!
//! Only databases on disk have a catalogue: nothing reads that of a database in memory.

use std::sync::Arc;

use seriatim_base::{Epoch, LayoutId, TableId, Tid};
use seriatim_catalog::{TableDef, Value};
use seriatim_redo::catalogue::{BODY, EarlierEntry, Found, LayoutEntry, Row, TableEntry};
use seriatim_txn::Mode;

use super::OpenHandle;
use super::persistence::Persistence;
use crate::Runner;
use crate::engine::Inner;
use crate::error::{Abort, OpenError, SchemaError, StorageError, TransactError};
use crate::runtime::DynHandle;
use crate::table::{Shape, TableSet};
use crate::table_ids::TableIds;
use crate::tx::{Origin, TxCore};

/// A transaction on the rows of the catalogue.
pub(crate) struct Rows<'t> {
    tx: &'t TxCore,
    table: &'t DynHandle,
}

impl<'t> Rows<'t> {
    /// The rows of the catalogue, as a transaction sees them.
    pub(crate) fn of(tx: &'t TxCore, table: &'t DynHandle) -> Rows<'t> {
        Rows { tx, table }
    }

    /// Inserts all rows of a table.
    pub(crate) fn add(&self, set: &TableSet, is_void: bool) -> Result<(), Abort> {
        self.add_shape(&set.shape(), set.position, is_void)
    }

    /// As [`Rows::add`], of a table with these parts.
    pub(crate) fn add_shape(&self, shape: &Shape, position: u64, is_void: bool) -> Result<(), Abort> {
        rows(shape, position, is_void).iter().try_for_each(|row| self.insert(row))
    }

    /// An abort of the transaction by an error.
    pub(crate) fn abort(&self, error: SchemaError) -> Abort {
        self.tx.abort(error)
    }

    pub(crate) fn inner(&self) -> &Inner {
        self.tx.inner()
    }

    pub(crate) fn insert(&self, row: &Row) -> Result<(), Abort> {
        let [object, kind, number] = row.key_values();
        self.tx.insert_dyn(self.table, &[object, kind, number, Value::from(row.body.as_str())])
    }

    /// Deletes the rows with these keys.
    pub(crate) fn delete(&self, rows: &[Row]) -> Result<(), Abort> {
        rows.iter().try_for_each(|row| self.tx.delete_dyn(self.table, &row.key_values()).map(drop))
    }

    pub(crate) fn update(&self, row: &Row) -> Result<(), Abort> {
        match self.tx.update_dyn(self.table, &row.key_values(), &[(BODY, Value::from(row.body.as_str()))])? {
            true => Ok(()),
            false => Err(self.tx.abort(format!("the catalogue has no row {:?} yet", row.key))),
        }
    }

    /// Makes the rows of a table void, or count.
    pub(crate) fn set_void(&self, shape: &Shape, position: u64, is_void: bool) -> Result<(), Abort> {
        self.update(&entry(shape, position, is_void).0.row())
    }

    /// Replaces the rows that differ between the table before and after a change.
    pub(crate) fn replace(&self, (before, after): (&Shape, &Shape), position: u64) -> Result<(), Abort> {
        self.replace_rows(rows(before, position, false), rows(after, position, false))
    }

    /// The rows of the table are those of another from now on.
    pub(crate) fn succeed(&self, (before, after): (&Shape, &Shape), position: u64) -> Result<(), Abort> {
        let Some(earlier) = after.earlier.layouts.last() else { return Ok(()) };
        // The indexes are those of the other, too.
        let (indexes, references, checks) = (Vec::new(), Vec::new(), Vec::new());
        let definition = TableDef { indexes, references, checks, ..TableDef::clone(&before.definition) };
        let alone = Shape { definition: Arc::new(definition), ..before.of_rows_alone() };
        self.replace_rows(rows(before, position, false), rows(&alone, position, true))?;
        self.add_shape(after, position, false)?;
        self.insert(&earlier.entry(after, false).row())
    }

    /// Memory has no row of an earlier layout any more.
    pub(crate) fn set_drained(&self, entry: &EarlierEntry) -> Result<(), Abort> {
        self.update(&EarlierEntry { is_drained: true, ..entry.clone() }.row())
    }

    fn replace_rows(&self, before: Vec<Row>, after: Vec<Row>) -> Result<(), Abort> {
        let of = |rows: &[Row], row: &Row| rows.iter().find(|other| other.key == row.key).cloned();
        for row in before.iter().filter(|row| of(&after, row).is_none()) {
            self.tx.delete_dyn(self.table, &row.key_values())?;
        }
        after.iter().try_for_each(|row| match of(&before, row) {
            None => self.insert(row),
            Some(was) if was != *row => self.update(row),
            Some(_) => Ok(()),
        })
    }
}

/// All that the catalogue says of a table with these parts.
fn rows(shape: &Shape, position: u64, is_void: bool) -> Vec<Row> {
    let (entry, layout) = entry(shape, position, is_void);
    entry.rows(&[layout])
}

/// What the catalogue says of a table with these parts.
fn entry(shape: &Shape, position: u64, is_void: bool) -> (TableEntry, LayoutEntry) {
    let (id, definition) = (shape.primary.id, TableDef::clone(&shape.definition));
    let indexes = shape.indexes.iter().map(|index| index.table.id).collect();
    // A table has one layout: see `Shape::new`.
    let layout = LayoutEntry { id: LayoutId(id.0), table: id };
    (TableEntry { id, definition, indexes, position, is_void }, layout)
}

/// Commits a change of the catalogue. It is durable with the returned epoch.
///
/// # Errors
/// The database is as before: no memory, no worker, or the log takes no commits.
pub(crate) fn change(
    inner: &Arc<Inner>,
    open: &Arc<OpenHandle>,
    change: impl Fn(&Rows<'_>) -> Result<(), Abort>,
) -> Result<Epoch, SchemaError> {
    commit(inner, open, change).map_err(|error| match error {
        TransactError::OutOfMemory { held, .. } => SchemaError::OutOfMemory { held },
        TransactError::WorkersBusy => SchemaError::WorkersBusy,
        TransactError::DiskFull { directory } => SchemaError::storage(StorageError::Full { directory }),
        TransactError::DiskBehind { backlog_bytes } => SchemaError::storage(StorageError::Backlogged { backlog_bytes }),
        TransactError::LogStopped { reason } => SchemaError::storage(StorageError::Stopped(reason)),
        TransactError::Closed => SchemaError::storage(StorageError::Closed),
        TransactError::Forked => SchemaError::storage(StorageError::Forked),
        error => SchemaError::storage(StorageError::io("changing the catalogue")(std::io::Error::other(error))),
    })
}

/// As [`change`], with the error of the transaction.
///
/// # Errors
/// As [`change`].
pub(crate) fn commit(
    inner: &Arc<Inner>,
    open: &Arc<OpenHandle>,
    change: impl Fn(&Rows<'_>) -> Result<(), Abort>,
) -> Result<Epoch, TransactError> {
    let (mut runner, table) = runner(inner, open);
    let committed = runner.run(Mode::ReadWrite, Origin::Closure, |tx| change(&Rows::of(tx, &table)));
    committed.map(|committed| committed.receipt.epoch())
}

/// As [`change`], if that needs no wait for a worker or another transaction.
pub(crate) fn try_change(
    inner: &Arc<Inner>,
    open: &Arc<OpenHandle>,
    change: impl Fn(&Rows<'_>) -> Result<(), Abort>,
) -> Option<Epoch> {
    let (mut runner, table) = runner(inner, open);
    let tx = &mut runner.tx;
    tx.open_or_wait(Mode::ReadWrite, 1, Origin::Closure, false).ok()?;
    let committed = change(&Rows::of(tx, &table)).ok().and_then(|()| tx.commit().ok());
    if committed.is_none() {
        tx.roll_back(tx.stopped());
    }
    committed.map(Tid::epoch)
}

/// A runner of transactions on the catalogue, and its table.
fn runner(inner: &Arc<Inner>, open: &Arc<OpenHandle>) -> (Runner, DynHandle) {
    let table = inner.catalogue().expect("a database on disk has one");
    let mut runner = Runner::internal(inner, open, 0);
    runner.tx.ignore_queue();
    runner.tx.ignore_history();
    (runner, table)
}

/// Settles the catalogue before the first transaction of an opening. The tables of a directory of an older format are
/// put into it. Those of which no file has rows any more are deleted.
///
/// A disk without space leaves the manifest as it is. Then it continues to list these tables, and the next opening
/// tries again.
///
/// # Errors
/// The log has stopped.
pub(crate) fn settle(
    inner: &Arc<Inner>,
    open: &Arc<OpenHandle>,
    persistence: &Persistence,
    found: &Found,
) -> Result<(), OpenError> {
    let settled = inherit(inner, open, persistence).and_then(|()| match found.obsolete.is_empty() {
        true => Ok(()),
        false => forget(inner, open, persistence, found),
    });
    let settled = settled.and_then(|()| note_drained(inner, open, found));
    match settled {
        Err(SchemaError::Storage(error)) if persistence.log().durable().is_stopped() => Err(OpenError::Storage(*error)),
        _ => Ok(()),
    }
}

/// Moves the tables that the manifest lists into the catalogue, if it still lists any. No row of the catalogue may be
/// deleted before: once a checkpoint has forgotten the deletion, the manifest's row would be back.
pub(crate) fn inherit(
    inner: &Arc<Inner>,
    open: &Arc<OpenHandle>,
    persistence: &Persistence,
) -> Result<(), SchemaError> {
    let Some(inherited) = persistence.home().manifest().inherited.clone() else { return Ok(()) };
    let epoch = change(inner, open, |rows| {
        for row in inherited.rows() {
            // An opening that was cut short may have done this, and other changes after it.
            if rows.tx.get_dyn(rows.table, &row.key_values())?.is_none() {
                rows.insert(&row)?;
            }
        }
        Ok(())
    })?;
    persistence.wait_for(epoch).map_err(SchemaError::storage)?;
    persistence.change(|manifest| manifest.inherited = None).map_err(SchemaError::storage)
}

/// Recovery has converted all rows of earlier layouts.
fn note_drained(inner: &Arc<Inner>, open: &Arc<OpenHandle>, found: &Found) -> Result<(), SchemaError> {
    let Found { catalogue, obsolete, .. } = found;
    let is_left = |earlier: &&EarlierEntry| !earlier.is_drained && !obsolete.contains(&earlier.table);
    let mut left = catalogue.earlier.iter().filter(is_left).peekable();
    if left.peek().is_none() {
        return Ok(());
    }
    let left: Vec<&EarlierEntry> = left.collect();
    change(inner, open, |rows| left.iter().try_for_each(|earlier| rows.set_drained(earlier))).map(drop)
}

/// Deletes tables whose ids then are free.
fn forget(
    inner: &Arc<Inner>,
    open: &Arc<OpenHandle>,
    persistence: &Persistence,
    found: &Found,
) -> Result<(), SchemaError> {
    let Found { catalogue, obsolete, .. } = found;
    let is_obsolete = |id: &TableId| obsolete.contains(id);
    let epoch = change(inner, open, |rows| {
        for table in catalogue.tables.iter().filter(|table| is_obsolete(&table.id)) {
            let earlier = catalogue.earlier.iter().filter(|earlier| earlier.table == table.id);
            for row in table.rows(&catalogue.layouts).into_iter().chain(earlier.map(EarlierEntry::row)) {
                rows.tx.delete_dyn(rows.table, &row.key_values())?;
            }
        }
        Ok(())
    })?;
    persistence.wait_for(epoch).map_err(SchemaError::storage)?;
    let left = catalogue.tables.iter().filter(|table| !is_obsolete(&table.id));
    inner.tables_mut().ids = TableIds::of(left);
    Ok(())
}
