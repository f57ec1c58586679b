//! Typed tables for unit tests: the part of the public crate's interface to [`TxCore`] that they need.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use seriatim_base::disk::FaultyDisk;
use seriatim_catalog::{ColumnSet, ColumnUse, Key, RowRef, Table, TableKey as _};
use seriatim_txn::OnExists;

use crate::operations::Operations as _;
use crate::{Abort, DatabaseLocation, Engine, SchemaError, Settings, TableSet, TxCore};

/// A table, for rows of type `T`.
pub(crate) struct Handle<T> {
    pub(crate) set: Arc<TableSet>,
    rows: PhantomData<fn() -> T>,
}

impl<T> Handle<T> {
    fn new(set: Arc<TableSet>) -> Handle<T> {
        Handle { set, rows: PhantomData }
    }
}

impl Engine {
    /// Creates the table that `T` declares.
    pub(crate) fn make<T: Table>(&self) -> Result<Handle<T>, SchemaError> {
        self.create(T::definition()).map(Handle::new)
    }

    /// The existing table that `T` declares.
    pub(crate) fn table<T: Table>(&self) -> Handle<T> {
        Handle::new(self.find(T::NAME).expect("it is there"))
    }
}

impl TxCore {
    /// The row at `key`, if there is one.
    pub(crate) fn get<T: Table>(&self, table: &Handle<T>, key: &T::Key) -> Result<Option<T>, Abort> {
        let row = key.encode(|key| self.get_at(&table.set, key, ColumnSet::ALL))?;
        // SAFETY: a row of this table, readable until the transaction ends, and read before this returns.
        Ok(row.map(|row| T::decode(unsafe { RowRef::from_raw(row.as_ptr()) })))
    }

    /// Inserts a row.
    pub(crate) fn insert<T: Table>(&self, table: &Handle<T>, row: &T) -> Result<(), Abort> {
        let insert = |key: Key<'_>| self.insert_at(&table.set, key, |writer| row.encode(writer), OnExists::Refuse);
        assert!(row.key().encode(insert)?, "tests insert what is not there");
        Ok(())
    }

    /// Inserts or replaces a row.
    pub(crate) fn put<T: Table>(&self, table: &Handle<T>, row: &T) -> Result<(), Abort> {
        let put = |key: Key<'_>| self.insert_at(&table.set, key, |writer| row.encode(writer), OnExists::Replace);
        row.key().encode(put).map(drop)
    }

    /// Updates the row at `key`, if there is one.
    pub(crate) fn update<T: Table, R>(
        &self,
        table: &Handle<T>,
        key: &T::Key,
        change: impl FnOnce(&mut T::Update<'_>) -> R,
    ) -> Result<Option<R>, Abort> {
        let mut value = None;
        key.encode(|key| {
            self.change_at(&table.set, key, ColumnUse::ALL, |writer| {
                let mut update = T::update(writer);
                value = Some(change(&mut update));
                T::finish(update)
            })
        })?;
        Ok(value)
    }

    /// Deletes the row at `key`; returns whether there was one.
    pub(crate) fn delete<T: Table>(&self, table: &Handle<T>, key: &T::Key) -> Result<bool, Abort> {
        key.encode(|key| self.delete_at(&table.set, key))
    }
}

/// Options of a database on this disk, whose helpers are stepped.
pub(crate) fn on(disk: &FaultyDisk) -> Settings {
    let location =
        DatabaseLocation { directory: PathBuf::from("/db"), inspect: false, disk: Some(Arc::new(disk.mount())) };
    Settings { workers: 2, step_helpers: true, location: Some(location), ..Settings::default() }
}
