//! Sequences, and rows that a sequence numbers.
//!
//! Invariant: a number conflicts with nothing, and no abort takes it back. So it says nothing about other transactions:
//! numbers of a later transaction may be smaller, and some may be missing.

use std::fmt;
use std::sync::Arc;

use seriatim_catalog::{IdentityTable, Object, RowId, RowWriter, SequenceDef, TableKey, TableWithoutKey, Value};
use seriatim_engine::{DynHandle, Engine, Operations as _, Reserved, Runner};
use seriatim_txn::OnExists;

use crate::procedure::support;
use crate::{Abort, Database, Handle, SchemaError, TransactError, Transaction, Tx};

/// A sequence of a database: numbers that are given out once. Cheap to clone, shared between threads. It keeps the
/// database open.
///
/// ```
/// use seriatim::Database;
/// use seriatim::catalog::SequenceDef;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let db = Database::in_memory()?;
/// db.migration().create_sequence(SequenceDef::new("ticket").start(100)).run()?;
/// let tickets = db.sequence("ticket")?;
/// assert_eq!(tickets.next()?, 100);
/// let number = db.session().transact(|tx| tx.next(&tickets))?;
/// assert_eq!((*number, tickets.last()), (101, Some(101)));
/// # Ok(())
/// # }
/// ```
///
/// A number is never given twice, unless the sequence cycles or is set back. This holds after aborts and crashes, in
/// every [`Durability`](crate::Durability) mode. Numbers are reserved in blocks that are durable first. So numbers
/// may be missing: those of aborted transactions, those of attempts that were repeated, and after a crash the rest of
/// the block.
#[derive(Clone)]
pub struct Sequence {
    engine: Engine,
    sequence: Arc<seriatim_engine::Sequence>,
}

impl Database {
    /// Opens an existing sequence by name.
    ///
    /// # Errors
    /// There is no such sequence.
    pub fn sequence(&self, name: &str) -> Result<Sequence, SchemaError> {
        let engine = self.engine().clone();
        engine.sequence(name).map(|sequence| Sequence { engine, sequence })
    }

    /// Returns all sequences, in order of creation.
    pub fn sequences(&self) -> Vec<Sequence> {
        let of = |(sequence, _)| Sequence { engine: self.engine().clone(), sequence };
        self.engine().sequences().into_iter().map(of).collect()
    }

    /// Returns the sequence that numbers the rows of a table, if there is one.
    pub fn identity_of(&self, table: &DynHandle) -> Option<Sequence> {
        let engine = self.engine().clone();
        engine.identity_of(table).map(|sequence| Sequence { engine, sequence })
    }
}

impl Transaction<'_> {
    /// Opens a sequence by name, as the transaction sees it.
    ///
    /// [`Tx::next`] takes the numbers of a sequence that the transaction has altered as they are afterwards. Others get
    /// none until it ends. If it is rolled back, the sequence continues as if none had been taken since.
    ///
    /// ```
    /// use seriatim::Database;
    /// use seriatim::catalog::{SequenceChange, SequenceDef};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::in_memory()?;
    /// db.migration().create_sequence(SequenceDef::new("ticket")).run()?;
    /// let tickets = db.sequence("ticket")?;
    /// let mut session = db.session();
    /// let tx = session.begin()?;
    /// tx.migration()
    ///     .alter_sequence("ticket", [SequenceChange::Restart(Some(100))])
    ///     .create_sequence(SequenceDef::new("order"))
    ///     .run()?;
    /// assert_eq!((tx.next(&tickets)?, tx.next(&tx.sequence("order")?)?), (100, 1));
    /// tx.rollback();
    /// assert_eq!(tickets.next()?, 1);
    /// assert!(db.sequence("order").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// There is no such sequence.
    pub fn sequence(&self, name: &str) -> Result<Sequence, SchemaError> {
        Sequence::of(self.runner, name)
    }
}

impl Sequence {
    /// The sequence of this name, as a transaction sees it.
    pub(crate) fn of(runner: &Runner, name: &str) -> Result<Sequence, SchemaError> {
        let sequence = runner.tx.find_sequence(name)?;
        Ok(Sequence { engine: runner.engine(), sequence })
    }
}

impl Sequence {
    /// Takes the next number, outside of transactions. It waits for the disk only if all reserved numbers are taken. It
    /// waits for a transaction that changes the sequence, up to 10 s.
    ///
    /// # Errors
    /// [`TransactError::Excluded`] if that transaction stays open.
    /// [`TransactError::SequenceExhausted`], [`TransactError::SequenceGone`]. [`TransactError::SequenceNotReserved`] if
    /// the disk does not take a reservation within [`Builder::wait_max`](crate::Builder::wait_max), or 10 s. The errors
    /// of a commit: the log has stopped, or the disk is full.
    pub fn next(&self) -> Result<i64, TransactError> {
        self.engine.next_number(&self.sequence)
    }

    /// Returns the last number that was given. After a crash it is the last that was reserved. `None` if none was
    /// given.
    pub fn last(&self) -> Option<i64> {
        self.sequence.last()
    }

    /// Sets the last number, also back: the next one is that which comes after it. Durable when this returns.
    ///
    /// # Errors
    /// [`TransactError::SequenceRange`]; otherwise as [`Sequence::next`].
    pub fn set(&self, last: i64) -> Result<(), TransactError> {
        self.engine.set_sequence(&self.sequence, Reserved { last, given: true })
    }

    /// Sets the number that comes next, also back. Durable when this returns.
    ///
    /// # Errors
    /// As [`Sequence::set`].
    pub fn set_next(&self, next: i64) -> Result<(), TransactError> {
        self.engine.set_sequence(&self.sequence, Reserved { last: next, given: false })
    }

    /// Returns its declaration.
    pub fn definition(&self) -> SequenceDef {
        self.sequence.definition()
    }

    /// Returns the table to which it belongs, if it numbers the rows of one.
    pub fn table(&self) -> Option<String> {
        let owned = self.engine.sequences().into_iter();
        owned.filter(|(sequence, _)| Arc::ptr_eq(sequence, &self.sequence)).find_map(|(_, table)| table)
    }

    pub(crate) fn object(&self) -> Object {
        self.engine.object_of_sequence(&self.sequence)
    }

    /// How far it has got.
    pub(crate) fn position(&self) -> Reserved {
        self.sequence.position()
    }

    /// Sets how far it has got, unless it has got further.
    pub(crate) fn advance(&self, to: Reserved) -> Result<(), TransactError> {
        self.engine.advance_sequence(&self.sequence, to)
    }
}

/// Whether both are handles of one sequence.
impl PartialEq for Sequence {
    fn eq(&self, other: &Sequence) -> bool {
        Arc::ptr_eq(&self.sequence, &other.sequence)
    }
}

impl Eq for Sequence {}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sequence.fmt(f)
    }
}

/// Numbers, and rows that get one.
impl Tx {
    /// Takes the next number of a sequence. It is not given back if the transaction aborts.
    ///
    /// If all numbers that are durable as reserved are taken, the attempt ends, and the next one begins when there are
    /// more. An explicit transaction waits here.
    ///
    /// # Errors
    /// As [`Sequence::next`]; a sequence of another database.
    #[inline]
    pub fn next(&self, sequence: &Sequence) -> Result<i64, Abort> {
        self.core.next_number(&sequence.sequence)
    }

    /// Inserts a row that is made with the next number of its identity column, and returns that.
    ///
    /// ```
    /// use seriatim::{Database, Table};
    ///
    /// #[derive(Table)]
    /// #[table(key(id))]
    /// struct Order {
    ///     #[column(identity)]
    ///     id: u64,
    ///     cents: i64,
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::in_memory()?;
    /// let orders = db.create::<Order>()?;
    /// let mut session = db.session();
    /// let id = session.transact(|tx| tx.insert_new(&orders, |id| Order { id, cents: 990 }))?;
    /// assert_eq!(*id, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Tx::insert`] and [`Tx::next`].
    pub fn insert_new<T: IdentityTable>(
        &self,
        table: &Handle<T>,
        row: impl FnOnce(T::Identity) -> T,
    ) -> Result<T::Identity, Abort> {
        let number = self.core.next_identity(&table.set)?;
        // The sequence is of the column's type.
        let id = |number| T::identity(number).ok_or_else(|| self.abort(format!("{number} is no value of the column")));
        self.insert_overriding(table, &row(id(number)?))?;
        id(number)
    }

    /// Inserts a row with the value of its identity column that it has, also if only the sequence gives values
    /// (`#[column(identity(always))]`).
    ///
    /// # Errors
    /// As [`Tx::insert`].
    pub fn insert_overriding<T: IdentityTable>(&self, table: &Handle<T>, row: &T) -> Result<(), Abort> {
        support::insert_given(&self.core, table, row)
    }

    /// Appends a row to a table without a key, and returns its number.
    ///
    /// ```
    /// use seriatim::{Database, Table};
    ///
    /// #[derive(Table)]
    /// #[table(without_key)]
    /// struct Line {
    ///     text: String,
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::in_memory()?;
    /// let log = db.create::<Line>()?;
    /// let mut session = db.session();
    /// let id = session.transact(|tx| {
    ///     tx.append(&log, &Line { text: "begin".into() })?;
    ///     tx.append(&log, &Line { text: "end".into() })
    /// })?;
    /// let found = session.transact(|tx| {
    ///     tx.delete(&log, &id)?;
    ///     let left = tx.scan(&log, ..).next().transpose()?;
    ///     Ok(left.map(|line| (line.row_id() < *id, line.text().to_owned())))
    /// })?;
    /// assert_eq!(*found, Some((true, "begin".to_owned())));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Tx::insert`] and [`Tx::next`].
    pub fn append<T: TableWithoutKey>(&self, table: &Handle<T>, row: &T) -> Result<RowId, Abort> {
        let number = self.core.next_identity(&table.set)?;
        let id = RowId(u64::try_from(number).map_err(|_| self.abort(format!("{number} is no number of a row")))?);
        // It is the last column that the type declares.
        let place = const { &T::PLACES[T::PLACES.len() - 1] };
        let set = &table.set;
        let encode = |writer: &mut RowWriter<'_>| {
            row.encode(writer)?;
            writer.set::<RowId>(place, id)
        };
        id.encode(|key| match self.core.insert_at(set, key, encode, OnExists::Refuse)? {
            true => Ok(id),
            false => Err(self.core.duplicate(&set.primary, key)),
        })
    }

    /// As [`Tx::insert_dyn`], also with a value of a column that only its sequence gives.
    ///
    /// # Errors
    /// As [`Tx::insert_dyn`].
    pub fn insert_overriding_dyn(&self, table: &DynHandle, values: &[Value]) -> Result<(), Abort> {
        self.core.insert_overriding_dyn(table, values)
    }

    /// Inserts a row of these values, one for each column, with the next number in the identity column, and returns
    /// that. What is given for the column does not count. A table without a key has the column
    /// [`TableDef::ROW_ID`](crate::catalog::TableDef::ROW_ID) for it.
    ///
    /// # Errors
    /// As [`Tx::insert_dyn`] and [`Tx::next`]; the table has no identity column.
    pub fn insert_new_dyn(&self, table: &DynHandle, values: &[Value]) -> Result<i64, Abort> {
        self.core.insert_new_dyn(table, values)
    }
}
