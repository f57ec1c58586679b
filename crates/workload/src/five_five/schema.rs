//! The objects: one hash table with keys of eight bytes.

use crate::{LoadError, Loading, parallel};
use seriatim::{Database, Handle, Rng, SchemaError, Table};

/// An object.
#[derive(Table, Clone, Debug, PartialEq, Eq)]
#[table(name = "object", key(id), hash)]
pub struct Object {
    /// 0, 1, 2, …; the hottest first.
    pub id: u64,
    /// Transactions that read it and then wrote it.
    pub steps: u64,
    /// What the last write stored; zero before the first.
    pub value: u64,
}

/// The tables.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The objects.
    pub object: Handle<Object>,
}

impl Tables {
    /// Finds the tables.
    ///
    /// # Errors
    /// When one is missing.
    pub fn open(db: &Database) -> Result<Tables, SchemaError> {
        Ok(Tables { object: db.table()? })
    }
}

/// Creates the table, registers the procedure and fills the table with objects never written.
///
/// # Errors
/// When it exists with another definition or with rows, or an insert fails.
pub(super) fn load(db: &Database, objects: u64, loading: &Loading<'_>) -> Result<(), LoadError> {
    let table = db.table::<Object>()?;
    let make = |_: &mut Rng, id| Object { id, steps: 0, value: 0 };
    parallel::populate(db, loading, (objects, objects), 0, make, |tx, row| tx.insert(&table, row).map(|()| 1))
}
