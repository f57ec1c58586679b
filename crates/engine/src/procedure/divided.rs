//! Data that callers and partitions exchange for divided procedures: see `seriatim::procedure::divided`.

use std::error::Error;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use seriatim_catalog::{Key, PartitionValue, TableDef, Value};
use seriatim_procedure::EvaluationError;
use seriatim_procedure::pack::{Pack, Unpacker, pack_bytes};
use seriatim_procedure::plan::{Kind, Plan};
use seriatim_txn::{Partitions, fnv1a};

use super::fragment::Division;
use super::reach::{OperationPlacement, Reach};
use crate::{Engine, SchemaError, TransactError};

/// A call of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The procedure's number in the set.
    pub procedure: u16,
    /// Its arguments, as bytes.
    pub arguments: Vec<u8>,
    /// By round: the partitions in which the call has work, a bit for each.
    pub rounds: Vec<u64>,
}

impl Call {
    /// All partitions that the call needs, a bit for each; at least one.
    pub fn partitions(&self) -> u64 {
        self.rounds.iter().fold(0, |all, round| all | round)
    }
}

/// The work of a partition for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The procedure's number in the set.
    pub procedure: u16,
    /// The arguments of the call, as bytes.
    pub arguments: Vec<u8>,
    /// The round; `None` if the call needs this partition only.
    pub round: Option<u32>,
    /// The results of the earlier rounds, one after another.
    pub found: Vec<u8>,
}

impl Pack for Fragment {
    fn pack(&self, out: &mut Vec<u8>) {
        (self.procedure, self.round).pack(out);
        pack_bytes(&self.arguments, out);
        pack_bytes(&self.found, out);
    }

    fn unpack(bytes: &mut Unpacker<'_>) -> Result<Fragment, EvaluationError> {
        let (procedure, round) = Pack::unpack(bytes)?;
        let (arguments, found) = (bytes.bytes()?.to_vec(), bytes.bytes()?.to_vec());
        Ok(Fragment { procedure, arguments, round, found })
    }
}

/// The result of a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The procedure's result, as bytes: no other partition has work.
    Output(Vec<u8>),
    /// The results of its operations.
    Results(Vec<u8>),
}

/// A lock of a fragment. It covers a row, all rows of a table with one value of the partition column, a
/// replicated table, or everything. Locks with equal bytes cover the same thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lock {
    /// What the lock covers.
    pub what: Vec<u8>,
    /// Whether the fragment may change it.
    pub exclusive: bool,
}

/// Procedures that cannot be divided, each with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undivided(pub Vec<(String, String)>);

impl fmt::Display for Undivided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the database has no partitions: open it with Builder::partitions");
        }
        for (at, (procedure, reason)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}procedure {procedure} cannot be divided by partition: {reason}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Undivided {}

/// The prefix of tables in which owners and coordinators keep their own state, which is not data of the partitions.
pub const BOOKS: &str = "partition books: ";

/// The tables of the database, without those with the prefix [`BOOKS`].
fn tables(engine: &Engine) -> impl Iterator<Item = String> {
    engine.table_names().into_iter().filter(|name| !name.starts_with(BOOKS))
}

/// A number by which two ends check that they have the same procedures (FNV-1a, 64 bits). It covers the
/// descriptions of the procedures in order, all tables, and the number of partitions.
pub fn digest(engine: &Engine, procedures: impl Iterator<Item = String>) -> u64 {
    let mut tables: Vec<_> = tables(engine).filter_map(|name| engine.open_dyn(&name).ok()).collect();
    tables.sort_by_cached_key(|table| table.definition().name.clone());
    let tables = tables.iter().map(|table| format!("{:?}", table.definition()));
    let partitions = engine.partitions().map_or(0, |partitions| partitions.count());
    let all = tables.chain(procedures).chain([partitions.to_string()]);
    // No text has such a byte.
    fnv1a(all.flat_map(|text| text.into_bytes().into_iter().chain([u8::MAX])))
}

/// Whether a row of a table is to be copied.
pub type Wanted<'w> = dyn Fn(&TableDef, &[Value]) -> Result<bool, TransactError> + 'w;

/// Copies the wanted rows of all tables, except those with the prefix [`BOOKS`], into another database with
/// these tables. Neither database may be in use meanwhile.
///
/// # Errors
/// Errors of `wanted`; a table that is missing, or already has such a row; no memory.
pub fn copy(from: &Engine, to: &Engine, wanted: &Wanted<'_>) -> Result<(), TransactError> {
    let mut runner = to.runner();
    let missing = |error: SchemaError| TransactError::User(Arc::new(error));
    for name in tables(from) {
        let (read, written) = (from.open_dyn(&name).map_err(missing)?, to.open_dyn(&name).map_err(missing)?);
        from.each_row(&read, &mut |mut rows| {
            let keeps = rows.iter().map(|row| wanted(read.definition(), row)).collect::<Result<Vec<_>, _>>()?;
            let mut keeps = keeps.into_iter();
            rows.retain(|_| keeps.next().unwrap_or(false));
            runner.transact(|tx| rows.iter().try_for_each(|row| tx.insert_dyn(&written, row))).map(drop)
        })?;
    }
    Ok(())
}

/// Copies the rows of a database that belong to this partition into the partition's database. Neither may be in
/// use meanwhile.
///
/// # Errors
/// As [`copy`]; the partition function fails.
pub fn fill(from: &Engine, to: &Engine, partitions: &Partitions, at: usize) -> Result<(), TransactError> {
    copy(from, to, &|definition, row| {
        let Some(column) = definition.partition_column() else { return Ok(true) };
        let value = row[column.index()].partition_value();
        let found = value.and_then(|value| partitions.of_value(&value).ok());
        let nowhere = || {
            let error: Box<dyn Error + Send + Sync> =
                format!("a row of {} belongs to no partition", definition.name).into();
            TransactError::User(error.into())
        };
        found.map(|found| found == at).ok_or_else(nowhere)
    })
}

/// A number up to 65,535 that the partition function maps to this partition, if there is one.
pub fn number_in(partitions: &Partitions, at: usize) -> Option<u32> {
    let is_at = |number: &u32| partitions.of_value(&PartitionValue::Integer((*number).into())) == Ok(at);
    (at as u32..=u16::MAX.into()).chain(0..at as u32).find(is_at)
}

impl Lock {
    /// On everything in a partition. A fragment that knows all its other locks takes it shared.
    pub fn of_all(exclusive: bool) -> Lock {
        // All other locks begin with the number of a table.
        Lock { what: Vec::new(), exclusive }
    }

    /// On all rows of a table, by its number, with this value of the partition column.
    pub fn of_value(table: u16, value: &PartitionValue, exclusive: bool) -> Lock {
        let mut what = table.to_be_bytes().to_vec();
        match value {
            PartitionValue::Integer(number) => what.extend(number.to_be_bytes()),
            PartitionValue::Bytes(bytes) => what.extend_from_slice(bytes),
        }
        Lock { what, exclusive }
    }

    /// On all rows of a table, by its number.
    pub fn of_table(table: u16, exclusive: bool) -> Lock {
        Lock { what: table.to_be_bytes().to_vec(), exclusive }
    }

    /// On a row.
    pub fn of_row(table: u16, key: Key<'_>, exclusive: bool) -> Lock {
        let mut what = table.to_be_bytes().to_vec();
        match key {
            Key::Word8(word) => what.extend(word.to_be_bytes()),
            Key::Word16(words) => what.extend(words.to_be_bytes()),
            Key::Bytes(bytes) => what.extend_from_slice(bytes),
        }
        Lock { what, exclusive }
    }
}

/// How a table is locked.
struct Locked {
    name: Arc<str>,
    /// Row by row: all operations of the set know their keys before they run.
    by_rows: bool,
    /// Whether it is locked at all: a replicated table that no procedure changes is not.
    is_locked: bool,
}

/// The locks of the fragments of a set of procedures.
#[derive(Default)]
pub struct Locking {
    tables: Vec<Locked>,
    /// By procedure and operation: the number of the table, and whether the operation changes it.
    operations: Vec<Vec<(u16, bool)>>,
}

/// The locks of one fragment.
pub struct Locks<'l> {
    tables: &'l [Locked],
    operations: &'l [(u16, bool)],
    division: &'l Division,
    partitions: &'l Partitions,
    at: usize,
    round: Option<u32>,
}

impl Locking {
    /// Adds the next procedure of the set.
    pub fn add(&mut self, plan: &Plan, division: &Division, reach: &Reach) {
        let of = plan.operations.iter().enumerate().map(|(id, operation)| {
            let name = &plan.tables[operation.table].name;
            let table = self.tables.iter().position(|known| known.name == *name).unwrap_or_else(|| {
                self.tables.push(Locked { name: Arc::clone(name), by_rows: true, is_locked: false });
                self.tables.len() - 1
            });
            let changes_indexes = operation.accesses.iter().any(|of| of.index.is_some() && of.changes());
            let is_row = reach.in_footprint(id) && operation.kind != Kind::Scan && operation.index.is_none();
            let locked = &mut self.tables[table];
            locked.by_rows &= is_row && !changes_indexes;
            locked.is_locked |= division.round(id).is_some();
            (table as u16, operation.changes())
        });
        let of = of.collect();
        self.operations.push(of);
    }

    /// The locks of a fragment in this partition. Its procedure's number is the order of addition.
    pub fn of<'l>(
        &'l self,
        fragment: &Fragment,
        division: &'l Division,
        partitions: &'l Partitions,
        at: usize,
    ) -> Locks<'l> {
        let operations = &self.operations[usize::from(fragment.procedure)];
        Locks { tables: &self.tables, operations, division, partitions, at, round: fragment.round }
    }
}

impl Locks<'_> {
    /// The table of an operation that may run in the fragment, and whether the operation changes it. `None` if
    /// the table is not locked, or not in this way.
    fn table(&self, operation: usize, by_rows: bool) -> Option<(u16, bool)> {
        let is_due = match (self.division.round(operation), self.round) {
            (Some(of), Some(round)) => of == round,
            // Replicated tables are read in any round.
            (None, _) | (_, None) => true,
        };
        let (table, changes) = self.operations[operation];
        let locked = &self.tables[usize::from(table)];
        (is_due && locked.is_locked && locked.by_rows == by_rows).then_some((table, changes))
    }

    /// Locks for tables that are not locked row by row. `places` says where the operations of the call may run.
    pub fn values(&self, places: &[OperationPlacement], locks: &mut Vec<Lock>) {
        for (operation, place) in places.iter().enumerate() {
            let Some((table, exclusive)) = self.table(operation, false) else { continue };
            if self.division.is_replicated(operation) {
                locks.push(Lock::of_table(table, exclusive));
            }
            let is_here = |value: &&PartitionValue| self.partitions.of_value(value).is_ok_and(|found| found == self.at);
            locks.extend(place.values.iter().filter(is_here).map(|value| Lock::of_value(table, value, exclusive)));
        }
    }

    /// The lock for the lowest key of an operation, if the table is locked row by row.
    pub fn row(&self, operation: usize, low: Bound<Key<'_>>, locks: &mut Vec<Lock>) {
        let (Some((table, exclusive)), Bound::Included(key)) = (self.table(operation, true), low) else { return };
        if self.division.is_at(operation, self.partitions, key, self.at) {
            locks.push(Lock::of_row(table, key, exclusive));
        }
    }
}
