//! The hash map: one table. Each record counts its updates and holds the sum of what they added, so that a lost or half
//! installed update shows.

use crate::{LoadError, Loading, parallel};
use seriatim::{Database, Handle, Rng, SchemaError, Table};

/// A record.
#[derive(Table, Clone, Debug, PartialEq, Eq)]
#[table(name = "record", key(key), hash)]
pub struct Record {
    /// 0, 1, 2, …; the hottest first.
    pub key: u64,
    /// Updates so far.
    pub updates: u64,
    /// Sum of what they added, modulo 2^64.
    pub value: u64,
}

/// The tables.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The records.
    pub record: Handle<Record>,
}

impl Tables {
    /// Finds the tables.
    ///
    /// # Errors
    /// When one is missing.
    pub fn open(db: &Database) -> Result<Tables, SchemaError> {
        Ok(Tables { record: db.table()? })
    }
}

/// Creates the table, registers the procedure and fills the table with records never updated.
///
/// # Errors
/// When it exists with another definition or with rows, or an insert fails.
pub(super) fn load(db: &Database, records: u64, loading: &Loading<'_>) -> Result<(), LoadError> {
    let table = db.table::<Record>()?;
    let make = |_: &mut Rng, key| Record { key, updates: 0, value: 0 };
    parallel::populate(db, loading, (records, records), 0, make, |tx, row| tx.insert(&table, row).map(|()| 1))
}
