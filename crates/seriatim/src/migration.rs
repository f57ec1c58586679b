//! Changes of tables while the database serves.

use std::sync::Arc;

use seriatim_catalog::evolution::{Change, Evolution};
use seriatim_catalog::{SequenceChange, SequenceDef, Table, TableDef};
use seriatim_engine::procedure::gate::Gate;
use seriatim_engine::{TableChange, TableSet};
use seriatim_procedure::analysis::Schema;

use crate::{Database, DynHandle, Handle, SchemaError, Transaction};

/// Changes of tables, to be made together: all or none. [`Database::migration`] begins one.
///
/// ```
/// use seriatim::catalog::evolution::Change;
/// use seriatim::catalog::{ColumnDef, ColumnType, TableDef, Value};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let db = seriatim::Database::in_memory()?;
/// let id = ColumnDef::new("id", ColumnType::U32);
/// let order = db.declare(TableDef::builder("order").column(id.clone()).key(["id"]).finish()?)?;
/// let mut session = db.session();
/// session.transact(|tx| tx.insert_dyn(&order, &[Value::from(7u32)]))?;
///
/// let priority = ColumnDef::new("priority", ColumnType::U8).default("1");
/// let changes = db
///     .migration()
///     .change("order", [Change::add_column(priority), Change::add_index("by_priority", ["priority"])])
///     .create(TableDef::builder("carrier").column(id).key(["id"]).finish()?)
///     .run()?;
/// assert_eq!(changes[0], "table `order`: column `priority` u8 is added, with 1 in rows that exist");
///
/// // The handle stays valid: columns that are added lie behind the others.
/// session.transact(|tx| {
///     let row = tx.get_dyn(&order, &[Value::from(7u32)])?.expect("it was inserted");
///     assert_eq!(row.get("priority"), Some(Value::from(1u8)));
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is changed until it is run"]
pub struct Migration<'d> {
    of: &'d dyn Tables,
    changes: Result<Vec<TableChange>, SchemaError>,
}

/// Whose tables change: those of a database, or those that an explicit transaction sees.
trait Tables {
    /// The table of this name, if there is one.
    fn find(&self, name: &str) -> Option<Arc<TableSet>>;

    /// Makes changes, all of them or none.
    fn change(&self, changes: Vec<TableChange>) -> Result<Vec<Arc<TableSet>>, SchemaError>;
}

impl Tables for Database {
    fn find(&self, name: &str) -> Option<Arc<TableSet>> {
        self.engine().find(name)
    }

    fn change(&self, changes: Vec<TableChange>) -> Result<Vec<Arc<TableSet>>, SchemaError> {
        let engine = self.engine();
        let changing = engine.changing()?;
        // No piece of a chain runs before the change when a later one runs after it.
        let _alone = engine.gate().map(Gate::other).transpose().map_err(|_| SchemaError::Busy)?;
        self.check_procedures(engine.schema(), &changes)?;
        let sets = engine.change_tables(&changing, changes)?;
        self.analyse_again().map_err(|error| SchemaError::Analysis(error.to_string()))?;
        Ok(sets)
    }
}

impl Tables for Transaction<'_> {
    fn find(&self, name: &str) -> Option<Arc<TableSet>> {
        self.runner.tx.find_changed(name)
    }

    fn change(&self, changes: Vec<TableChange>) -> Result<Vec<Arc<TableSet>>, SchemaError> {
        // No procedure is registered from here on until the transaction ends.
        self.runner.begin_changes()?;
        let sets = self.runner.tx.changed_sets();
        let tables = Schema::new(sets.iter().map(|set| TableDef::clone(&set.definition)));
        self.database().check_procedures(tables, &changes)?;
        self.runner.change_tables(changes)
    }
}

/// Tables in an explicit transaction.
///
/// Its changes are made at once, and only the transaction sees them. Its commit makes them together with its writes of
/// rows, durably. A roll-back undoes them, and so do a transaction that ends otherwise, and a power cut. So does
/// [`Tx::rollback_to`](crate::Tx::rollback_to), for those since the savepoint.
///
/// A table that exists is closed to others until the transaction ends: their transactions begin again, for as long as
/// they may be open ([`Builder::transaction_age_max`](crate::Builder::transaction_age_max)). First the change waits for
/// the transactions that are open, up to 10 s. One transaction changes tables at a time. Others wait for it as long,
/// and fail with [`SchemaError::Busy`]. So does [`Database::register`].
///
/// The transaction opens a table again after it has changed it; earlier handles are refused with
/// [`TransactError::TableGone`](crate::TransactError::TableGone). Handles that it opened of a changed table end with
/// it. Those of a created table stay valid, as do handles of others ([`Migration::run`]).
///
/// ```
/// use seriatim::catalog::evolution::Change;
/// use seriatim::catalog::{ColumnDef, ColumnType, TableDef, Value};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let db = seriatim::Database::in_memory()?;
/// let id = ColumnDef::new("id", ColumnType::U32);
/// let order = db.declare(TableDef::builder("order").column(id.clone()).key(["id"]).finish()?)?;
/// let (mut session, mut other) = (db.session(), db.session());
/// session.transact(|tx| tx.insert_dyn(&order, &[Value::from(7u32)]))?;
///
/// let tx = session.begin()?;
/// let priority = ColumnDef::new("priority", ColumnType::U8).default("1");
/// tx.migration().change("order", [Change::add_column(priority)]).run()?;
/// let carrier = tx.declare(TableDef::builder("carrier").column(id).key(["id"]).finish()?)?;
/// tx.insert_dyn(&carrier, &[Value::from(1u32)])?;
/// let changed = tx.open_dyn("order")?;
/// tx.update_dyn(&changed, &[Value::from(7u32)], &[("priority", Value::from(2u8))])?;
/// assert!(db.open_dyn("carrier").is_err(), "nobody else sees it");
/// tx.commit()?;
///
/// other.transact(|tx| {
///     let row = tx.get_dyn(&order, &[Value::from(7u32)])?.expect("it was inserted");
///     assert_eq!(row.get("priority"), Some(Value::from(2u8)));
///     assert_eq!(tx.count_all_dyn(&carrier)?, 1);
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
impl<'s> Transaction<'s> {
    /// Begins a change of tables in this transaction. Nothing is changed before [`Migration::run`].
    pub fn migration(&self) -> Migration<'_> {
        Migration { of: self, changes: Ok(Vec::new()) }
    }

    /// Creates the table that `T` declares.
    ///
    /// # Errors
    /// As [`Migration::run`].
    pub fn create<T: Table>(&self) -> Result<Handle<T>, SchemaError> {
        Ok(Handle::new(self.change(vec![TableChange::Create(T::definition())])?.remove(0)))
    }

    /// Creates a table declared at run time.
    ///
    /// # Errors
    /// As [`Migration::run`].
    pub fn declare(&self, definition: TableDef) -> Result<DynHandle, SchemaError> {
        let name = definition.name.clone();
        self.change(vec![TableChange::Create(definition)])?;
        self.open_dyn(&name)
    }

    /// Opens the table that `T` declares, as the transaction sees it. It is not changed: [`Migration::declare`] does
    /// that.
    ///
    /// # Errors
    /// There is no such table, or it is declared differently.
    pub fn table<T: Table>(&self) -> Result<Handle<T>, SchemaError> {
        let set = self.find(T::NAME).ok_or_else(|| SchemaError::Unknown(T::NAME.to_owned()))?;
        let evolution = towards::<T>(&set)?;
        match evolution.is_nothing() {
            true => Ok(Handle::new(set)),
            false => {
                let difference = format!("for that, {evolution}. `Migration::declare` changes it so");
                Err(SchemaError::Mismatch { table: T::NAME.to_owned(), difference })
            }
        }
    }

    /// Opens a table by name, as the transaction sees it, for access by values known at run time.
    ///
    /// # Errors
    /// There is no such table.
    pub fn open_dyn(&self, name: &str) -> Result<DynHandle, SchemaError> {
        self.runner.tx.open_changed(name).ok_or_else(|| SchemaError::Unknown(name.to_owned()))
    }

    /// Returns the names of the tables that the transaction sees, in order of creation.
    pub fn table_names(&self) -> Vec<String> {
        self.runner.tx.changed_sets().iter().map(|set| set.definition.name.to_string()).collect()
    }
}

impl Database {
    /// Begins a change of tables. Nothing is changed before [`Migration::run`].
    pub fn migration(&self) -> Migration<'_> {
        Migration { of: self, changes: Ok(Vec::new()) }
    }

    /// Makes the table one that `T` declares, and opens it. It is created if there is none. Otherwise columns, indexes
    /// and conditions that it lacks are added, columns that the declaration renames are renamed, and types are widened.
    /// What `T` does not know stays, so programs with other declarations can go on to use the table. A condition that a
    /// row violates is not added, and nothing is changed then ([`SchemaError::Refused`]).
    ///
    /// Rows that exist get the default of a column that is added (`#[column(default = ...)]`), or NULL. Transactions
    /// run meanwhile: see [`Migration::run`]. A table declared with `#[table(evolve)]` is changed in this way by
    /// [`Database::table`] and [`Database::create_or_open`], too, unless a handle of it is in use.
    ///
    /// ```
    /// use seriatim::{Database, Table};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("seriatim-doc-migrate-{}", std::process::id()));
    /// mod first {
    ///     #[derive(seriatim::Table)]
    ///     #[table(name = "order", key(id))]
    ///     pub struct Order { pub id: u32, pub total: u32 }
    /// }
    /// {
    ///     let db = Database::open(&directory)?;
    ///     let orders = db.create::<first::Order>()?;
    ///     db.session().transact(|tx| tx.insert(&orders, &first::Order { id: 7, total: 40 }))?;
    /// }
    ///
    /// #[derive(Table)]
    /// #[table(name = "order", key(id), index(name = "by_state", columns(state)))]
    /// struct Order {
    ///     id: u32,
    ///     #[column(renamed_from = "total")]
    ///     cents: u64,
    ///     #[column(default = 1)]
    ///     state: u8,
    /// }
    ///
    /// let db = Database::open(&directory)?;
    /// let refused = db.table::<Order>().unwrap_err().to_string();
    /// assert!(refused.contains("column `state` u8 is added") && refused.contains("Database::migrate"), "{refused}");
    /// let orders = db.migrate::<Order>()?;
    /// let order = db.session().transact(|tx| Ok(tx.require(&orders, &7)?.to_owned()))?;
    /// assert_eq!((order.cents, order.state), (40, 1));
    /// # drop((orders, db));
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The declaration differs in a way in which values could be lost: the error says in which, and
    /// [`Database::migration`] makes such a change explicitly. Otherwise the errors of [`Migration::run`].
    pub fn migrate<T: Table>(&self) -> Result<Handle<T>, SchemaError> {
        match self.engine().find(T::NAME) {
            None => self.create::<T>(),
            Some(set) => {
                let evolution = towards::<T>(&set)?;
                Ok(Handle::new(if evolution.is_nothing() { set } else { self.evolve(evolution)? }))
            }
        }
    }

    /// The table that `T` declares, if it serves it, or can be made to without a change that others see. Handles that
    /// exist stay valid.
    pub(crate) fn open_declared<T: Table>(&self) -> Result<Arc<TableSet>, SchemaError> {
        let Some(set) = self.engine().find(T::NAME) else { return Err(SchemaError::Unknown(T::NAME.to_owned())) };
        let evolution = towards::<T>(&set)?;
        if evolution.is_nothing() {
            return Ok(set);
        }
        // One is here, and one in the list of tables.
        let is_free = evolution.keeps_handles() || self.engine().users_of(&set) <= 2;
        if (evolution.changes().is_empty() || T::EVOLVES) && is_free {
            return self.evolve(evolution);
        }
        if !is_free && evolution.changes().is_empty() {
            let difference = "its columns lie in another order, or its rows are clustered otherwise, and a handle of \
                              it is in use: drop that, or call `Database::migrate`, which ends it";
            let difference = difference.to_owned();
            return Err(SchemaError::Mismatch { table: T::NAME.to_owned(), difference });
        }
        let difference = format!(
            "for that, {evolution}. `Database::migrate` changes it so, as does #[table(evolve)] when it is opened and \
             no handle of it is in use"
        );
        Err(SchemaError::Mismatch { table: T::NAME.to_owned(), difference })
    }

    /// Creates tables, all of them or none. Procedures on those to which they refer are analysed again.
    pub(crate) fn create_all(&self, definitions: Vec<TableDef>) -> Result<Vec<Arc<TableSet>>, SchemaError> {
        let refers = definitions.iter().any(|table| !table.references.is_empty());
        let changes = definitions.into_iter().map(TableChange::Create).collect();
        match refers {
            true => self.change(changes),
            false => self.engine().change_tables(&self.engine().changing()?, changes),
        }
    }

    /// Changes one table. It is another one if handles of it do not stay valid.
    fn evolve(&self, evolution: Evolution) -> Result<Arc<TableSet>, SchemaError> {
        Ok(self.change(vec![TableChange::Evolve(Box::new(evolution))])?.remove(0))
    }
}

/// The changes after which a table serves `T`.
fn towards<T: Table>(set: &TableSet) -> Result<Evolution, SchemaError> {
    Evolution::towards(&set.definition, &T::definition(), T::RENAMED).map_err(|error| match error {
        seriatim_catalog::SchemaError::Invalid { table, problem } => {
            SchemaError::Mismatch { table, difference: problem }
        }
        other => SchemaError::Invalid(other),
    })
}

impl Migration<'_> {
    /// The changes of the table of this name so far.
    fn evolution(&mut self, table: &str, change: impl FnOnce(&mut Evolution) -> Result<(), SchemaError>) {
        let Ok(changes) = &mut self.changes else { return };
        let known = changes.iter_mut().find_map(|change| match change {
            TableChange::Evolve(evolution) if evolution.before().name == table => Some(evolution),
            _ => None,
        });
        let changed = match known {
            Some(evolution) => change(evolution),
            None => match self.of.find(table) {
                None => Err(SchemaError::Unknown(table.to_owned())),
                Some(set) => {
                    let mut evolution = Evolution::of(&set.definition);
                    let changed = change(&mut evolution);
                    changes.push(TableChange::Evolve(Box::new(evolution)));
                    changed
                }
            },
        };
        if let Err(error) = changed {
            self.changes = Err(error);
        }
    }

    fn add(mut self, change: TableChange) -> Self {
        if let Ok(changes) = &mut self.changes {
            changes.push(change);
        }
        self
    }

    /// Changes the table of this name, in this order. Columns that are added lie behind the others, so handles that
    /// exist stay valid.
    pub fn change(mut self, table: &str, changes: impl IntoIterator<Item = Change>) -> Self {
        self.evolution(table, |evolution| {
            changes.into_iter().try_for_each(|change| evolution.apply(change)).map_err(SchemaError::Invalid)
        });
        self
    }

    /// Creates a table.
    pub fn create(self, table: TableDef) -> Self {
        self.add(TableChange::Create(table))
    }

    /// Gives a table or sequence that is created by a change before to the role with this id: see [`Database::access`].
    pub fn own(self, table: impl Into<String>, role: u32) -> Self {
        self.add(TableChange::Own(table.into(), role))
    }

    /// Makes a table one that `T` declares, as [`Database::migrate`] does.
    pub fn declare<T: Table>(mut self) -> Self {
        if self.changes.is_err() {
            return self;
        }
        match self.of.find(T::NAME) {
            None => return self.create(T::definition()),
            Some(set) => match towards::<T>(&set) {
                Ok(evolution) if evolution.is_nothing() => {}
                Ok(evolution) => return self.add(TableChange::Evolve(Box::new(evolution))),
                Err(error) => self.changes = Err(error),
            },
        }
        self
    }

    /// Deletes all rows of the table of this name at once.
    pub fn truncate(self, table: impl Into<String>) -> Self {
        self.add(TableChange::Truncate(table.into()))
    }

    /// Drops the table of this name.
    pub fn drop_table(self, table: impl Into<String>) -> Self {
        self.add(TableChange::Drop(table.into()))
    }

    /// Creates a sequence: see [`Sequence`](crate::Sequence).
    pub fn create_sequence(self, sequence: SequenceDef) -> Self {
        self.add(TableChange::CreateSequence(sequence))
    }

    /// Changes the sequence of this name, in this order. A change that would make it give a number again is not
    /// refused.
    ///
    /// ```
    /// use seriatim::Database;
    /// use seriatim::catalog::{SequenceChange, SequenceDef};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::in_memory()?;
    /// db.migration().create_sequence(SequenceDef::new("ticket")).run()?;
    /// let tickets = db.sequence("ticket")?;
    /// assert_eq!(tickets.next()?, 1);
    /// db.migration().alter_sequence("ticket", [SequenceChange::Increment(10)]).run()?;
    /// assert_eq!(tickets.next()?, 11);
    /// db.migration().alter_sequence("ticket", [SequenceChange::Restart(None)]).run()?;
    /// assert_eq!(tickets.next()?, 1);
    /// db.migration().drop_sequence("ticket").run()?;
    /// assert!(tickets.next().is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn alter_sequence(
        self,
        sequence: impl Into<String>,
        changes: impl IntoIterator<Item = SequenceChange>,
    ) -> Self {
        self.add(TableChange::AlterSequence(sequence.into(), changes.into_iter().collect()))
    }

    /// Drops the sequence of this name. One that an identity column uses is dropped with the column.
    pub fn drop_sequence(self, sequence: impl Into<String>) -> Self {
        self.add(TableChange::DropSequence(sequence.into()))
    }

    /// Makes the changes, all of them or none, and returns them in words. They are durable when this returns.
    ///
    /// Transactions run meanwhile. If columns are only added or dropped, rows stay as they are: readers see them as
    /// they must be, and they are converted later. If rows must be converted, or an index is added, each write also
    /// writes the new rows or entries until all are there. At the end, transactions on the changed tables wait for
    /// about a flush of the log. The change waits for at most 10 s for transactions that are open, and new ones may
    /// wait with it for a second. The memory of converted rows is needed twice meanwhile. Checkpoints wait.
    ///
    /// Handles stay valid if each column and index is where it was; otherwise their use fails with
    /// [`TransactError::TableGone`](crate::TransactError::TableGone).
    ///
    /// # Errors
    /// A change makes no sense. The rows of a table do not allow it ([`SchemaError::Refused`]). A registered procedure
    /// would lose what it uses ([`SchemaError::InUse`]). A transaction stays open ([`SchemaError::Busy`]). Otherwise as
    /// [`Database::create`]. Nothing is changed then.
    pub fn run(self) -> Result<Vec<String>, SchemaError> {
        let changes = self.changes?;
        let said = changes.iter().flat_map(|change| match change {
            TableChange::Create(table) => vec![format!("table `{}` is created", table.name)],
            TableChange::Drop(table) => vec![format!("table `{table}` is dropped")],
            TableChange::Truncate(table) => vec![format!("table `{table}` is emptied")],
            TableChange::CreateSequence(sequence) => vec![format!("sequence `{}` is created", sequence.name)],
            TableChange::AlterSequence(sequence, _) => vec![format!("sequence `{sequence}` changes")],
            TableChange::DropSequence(sequence) => vec![format!("sequence `{sequence}` is dropped")],
            TableChange::Own(..) => Vec::new(),
            TableChange::Evolve(evolution) => {
                let table = &evolution.before().name;
                evolution.changes().iter().map(|change| format!("table `{table}`: {change}")).collect()
            }
        });
        let said = said.collect();
        if !changes.is_empty() {
            self.of.change(changes)?;
        }
        Ok(said)
    }
}

impl std::fmt::Debug for Migration<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Migration").field("changes", &self.changes).finish_non_exhaustive()
    }
}
