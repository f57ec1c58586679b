//! The keys: one hash table. A row's key is (partition, client, number): five bytes, so that it is compared
//! as an integer.

use super::input::KEYS;
use super::options::Options;
use crate::{LoadError, Loading, parallel};
use seriatim::{Database, Handle, Rng, SchemaError, Table};

/// A key and its value.
#[derive(Table, Clone, Debug, PartialEq, Eq)]
#[table(name = "cell", key(partition, client, number), hash)]
pub struct Cell {
    /// The partition of the key.
    pub partition: u16,
    /// The client that owns the key.
    pub client: u16,
    /// Which of that client's keys there, below [`KEYS`].
    pub number: u8,
    /// Updates so far.
    pub value: u64,
    /// The sum of the values that the last two-round transaction to write here had read, over all its keys.
    pub sum: u64,
}

/// The tables.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The keys.
    pub cell: Handle<Cell>,
}

impl Tables {
    /// Finds the tables.
    ///
    /// # Errors
    /// When one is missing.
    pub fn open(db: &Database) -> Result<Tables, SchemaError> {
        Ok(Tables { cell: db.table()? })
    }
}

/// Creates the table, registers the procedures and fills the table with every client's keys on every
/// partition, never updated.
///
/// # Errors
/// When it exists with another definition or with rows, or an insert fails.
pub(super) fn load(db: &Database, options: &Options, loading: &Loading<'_>) -> Result<(), LoadError> {
    let table = db.table::<Cell>()?;
    let (keys, clients) = (KEYS as u64, u64::from(options.clients));
    let rows = u64::from(options.partitions) * clients * keys;
    let make = |_: &mut Rng, at| {
        let (partition, client, number) = (at / keys / clients, at / keys % clients, at % keys);
        Cell { partition: partition as u16, client: client as u16, number: number as u8, value: 0, sum: 0 }
    };
    parallel::populate(db, loading, (rows, rows), 0, make, |tx, row| tx.insert(&table, row).map(|()| 1))
}
