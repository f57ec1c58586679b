//! The database: what is open, with the types of rows.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use seriatim_base::Epoch;
use seriatim_catalog::{Table, TableDef};
use seriatim_engine::{Contention, Engine};
use seriatim_history::History;
use seriatim_txn::{Knob, ProtocolInfo};

use crate::backup::Copied;
use crate::builder::Builder;
use crate::handle::Handle;
use crate::procedure::registry::Registry;
use crate::{
    Checkpoint, CloseError, DynHandle, Executor, OpenError, Receipt, Recovery, SchemaError, Session, Statistics,
    StorageError, TableChecked, TransactError,
};

/// A serializable in-memory database. Clones share it; it ends with the last clone, session and transaction.
///
/// ```
/// use seriatim::Database;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let db = Database::builder().protocol("silo").workers(8).open()?;
/// assert_eq!(db.protocol().name, "silo");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Database {
    engine: Engine,
    procedures: Arc<RwLock<Registry>>,
}

impl Database {
    /// The database of a directory, with default options: creates it if there is none, else recovers what was acknowledged. One
    /// process at a time has it open. A result is returned when it is durable ([`Durability::Group`](crate::Durability::Group)).
    ///
    /// ```
    /// use seriatim::{Database, Table};
    ///
    /// #[derive(Table)]
    /// #[table(name = "visit", key(id), hash)]
    /// struct Visit { id: u32, count: u64 }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("seriatim-doc-open-{}", std::process::id()));
    /// for time in 1..=3 {
    ///     let db = Database::open(&directory)?;
    ///     let visits = db.create_or_open::<Visit>()?;
    ///     let count = db.session().transact(|tx| {
    ///         let before = tx.get(&visits, &7)?.map_or(0, |visit| visit.count());
    ///         tx.put(&visits, &Visit { id: 7, count: before + 1 })?;
    ///         Ok(before + 1)
    ///     })?;
    ///     assert_eq!(*count, time);
    /// }
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The directory is open elsewhere, of a newer format, or damaged; no memory or thread; what the file system says.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Database, OpenError> {
        Builder::default().path(directory).open()
    }

    /// A database in memory, with default options: it is gone with the process.
    ///
    /// # Errors
    /// When the operating system gives no memory or no thread.
    pub fn in_memory() -> Result<Database, OpenError> {
        Builder::default().open()
    }

    /// Options for a database.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The database that is open.
    pub(crate) fn of(engine: Engine) -> Database {
        Database { engine, procedures: Arc::default() }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn procedures(&self) -> &RwLock<Registry> {
        &self.procedures
    }

    pub(crate) fn shared_procedures(&self) -> Arc<RwLock<Registry>> {
        Arc::clone(&self.procedures)
    }

    /// Creates the table that `T` declares: durable when this returns.
    ///
    /// # Errors
    /// A declaration that contradicts itself, a name that is taken, no memory. [`SchemaError::Storage`] if it could not be written
    /// down: the table is not there then. If it is not even known whether that was undone, no more transactions commit until the
    /// database is opened again.
    pub fn create<T: Table>(&self) -> Result<Handle<T>, SchemaError> {
        self.engine.create(T::definition()).map(Handle::new)
    }

    /// The existing table that `T` declares. In a database on disk, one that is clustered otherwise than `T` says is converted: its rows
    /// are written once more, and it is durable as `T` has it when this returns. While somebody has a handle of it, or a transaction is
    /// open, it stays as it is. One that was declared as ordered ([`Database::declare`]) serves a `T` that says hashed.
    ///
    /// # Errors
    /// No such table, or one with another definition. Where it is converted, as [`Database::create`]; it is as it was then.
    pub fn table<T: Table>(&self) -> Result<Handle<T>, SchemaError> {
        let definition = T::definition();
        let set = self.engine.find_clustered(&definition)?;
        match set.definition.misfit(&definition) {
            None => Ok(Handle::new(set)),
            Some(difference) => Err(SchemaError::Mismatch { table: T::NAME.to_owned(), difference }),
        }
    }

    /// The table that `T` declares; created if there is none of its name.
    ///
    /// # Errors
    /// One with another definition ([`SchemaError::Mismatch`]); otherwise as [`Database::create`].
    pub fn create_or_open<T: Table>(&self) -> Result<Handle<T>, SchemaError> {
        match self.create() {
            Err(SchemaError::Exists(_)) => self.table(),
            made => made,
        }
    }

    /// Creates a table declared at run time, with the layout a derived table of the same columns has.
    ///
    /// # Errors
    /// As [`Database::create`].
    pub fn declare(&self, definition: TableDef) -> Result<DynHandle, SchemaError> {
        self.engine.declare(definition)
    }

    /// Creates tables declared at run time, all of them or none, in this order. The file that lists the tables of a
    /// database is written anew for each change: of many tables that are created one by one, each takes longer than the
    /// one before.
    ///
    /// # Errors
    /// As [`Database::create`], for the first that cannot be created.
    pub fn declare_all(&self, definitions: Vec<TableDef>) -> Result<Vec<DynHandle>, SchemaError> {
        self.engine.declare_all(definitions)
    }

    /// An existing table, by name, for access by values known at run time.
    ///
    /// # Errors
    /// No such table.
    pub fn open_dyn(&self, name: &str) -> Result<DynHandle, SchemaError> {
        self.engine.open_dyn(name)
    }

    /// Names of the tables, in order of creation.
    pub fn table_names(&self) -> Vec<String> {
        self.engine.table_names()
    }

    /// A session. Sessions are cheap; a thread that runs transactions has its own.
    pub fn session(&self) -> Session {
        Session::new(self.engine.runner(), Arc::clone(&self.procedures))
    }

    /// Threads that run transactions, for callers that do not wait for each. A transaction needs one of the
    /// [`workers`](crate::Builder::workers) from when it is executed until it has been decided.
    ///
    /// # Errors
    /// No threads are asked for, or the operating system refuses one.
    pub fn executor(&self, threads: usize) -> Result<Executor, OpenError> {
        Executor::new(self, threads)
    }

    /// What opening the database found in its directory; `None` in memory and where the directory was new.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.engine.recovery()
    }

    /// Takes a checkpoint now: writes all rows while transactions go on, and deletes the log that is not needed any more. The database
    /// takes one by itself after so much log ([`Builder::checkpoint_bytes`]). `None` in memory.
    ///
    /// # Errors
    /// What the file system says, or that the log has stopped. The checkpoint before still counts.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>, StorageError> {
        self.engine.checkpoint()
    }

    /// Makes everything committed so far durable, whatever the [`Durability`](crate::Durability). At once in memory.
    ///
    /// # Errors
    /// [`TransactError::NotDurable`] if the log has stopped, or if the disk is full: then it may be tried again.
    /// [`TransactError::NotDurableYet`] if it took longer than [`Builder::wait_max`].
    pub fn flush(&self) -> Result<(), TransactError> {
        self.engine.flush()
    }

    /// Closes the database, and says whether all that was committed is durable. Dropping the last handle, session and
    /// transaction closes it as well, and says nothing. In a fork nothing is closed. Sessions that are still there go on reading as when the log has
    /// stopped; their writes are refused with [`TransactError::Closed`](crate::TransactError::Closed). Calls that wait in
    /// an [`Executor`] are not run, and get the same answer. A database in memory has nothing to close.
    ///
    /// ```
    /// # use seriatim::{Database, Durability, Table};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("seriatim-doc-close-{}", std::process::id()));
    /// let db = Database::builder().path(&directory).durability(Durability::Async).open()?;
    /// let counters = db.create::<Counter>()?;
    /// db.session().transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 41 }))?;
    /// db.close()?; // it is on disk
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What was not durable and is lost. The database is closed all the same, and the directory can be opened again.
    pub fn close(self) -> Result<(), CloseError> {
        self.engine.close()
    }

    /// What survives a power cut now: every transaction of an epoch up to this one. It never moves back. `None` in memory, where
    /// nothing does.
    pub fn durable_epoch(&self) -> Option<Epoch> {
        self.engine.durable_epoch()
    }

    /// Somebody waits until this epoch is durable: it ends, and is flushed, as soon as the disk is free. Never waits; nothing in memory.
    ///
    /// # Errors
    /// [`TransactError::LogStopped`]: nothing more becomes durable.
    pub fn request_durable(&self, epoch: Epoch) -> Result<(), TransactError> {
        self.engine.request_durable(epoch)
    }

    /// Whether a power cut takes back neither the transaction nor what it read. For [`Durability::Async`](crate::Durability), where
    /// receipts are given before; never in memory.
    ///
    /// ```
    /// # use seriatim::{Database, Durability, Table};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("seriatim-doc-{}", std::process::id()));
    /// let db = Database::builder().path(&directory).durability(Durability::Async).open()?;
    /// let counters = db.create::<Counter>()?;
    /// let done = db.session().transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 41 }))?;
    /// db.flush()?;
    /// assert!(db.is_durable(&done.receipt));
    /// # drop((counters, db));
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_durable(&self, receipt: &Receipt) -> bool {
        self.engine.is_durable(receipt)
    }

    /// The protocol in use, with the capabilities that it has with its options.
    pub fn protocol(&self) -> ProtocolInfo {
        self.engine.protocol()
    }

    /// The options of the protocol in use, each with its value.
    pub fn protocol_options(&self) -> impl Iterator<Item = (&'static Knob, u64)> + '_ {
        self.engine.protocol_options()
    }

    /// How regions run.
    pub fn backend(&self) -> crate::htm::Backend {
        self.engine.backend()
    }

    /// What the database has done so far.
    pub fn statistics(&self) -> Statistics {
        self.engine.statistics()
    }

    /// Maps and touches this many bytes now, so that no transaction waits for fresh pages.
    ///
    /// # Errors
    /// When the operating system does not give them.
    pub fn prefault(&self, bytes: usize) -> Result<(), OpenError> {
        self.engine.prefault(bytes)
    }

    /// Does what helper threads do, once: advances the epoch, and the time that ages are counted in by
    /// [`Builder::epoch_interval`], ends parked transactions that are too old, flushes the log, takes a checkpoint if one is due, lets
    /// idle workers unlink what was deleted, and gives free memory back to the system if there is much.
    pub fn step(&self) {
        self.engine.step()
    }

    /// What was in whose way since the database was opened, if that is tracked ([`Builder::track_contention`]).
    ///
    /// ```
    /// # use seriatim::{Abort, Contender, Database, Table, Tx, procedure, procedures};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # #[procedure]
    /// # fn count(tx: &Tx, id: u32) -> Result<u64, Abort> {
    /// #     let n = tx.update::<Counter>(id, |counter| { counter.n += 1; counter.n })?;
    /// #     Ok(n)
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::builder().track_contention(true).open()?;
    /// # let counters = db.create::<Counter>()?;
    /// # db.register(procedures![count])?;
    /// # let (mut session, mut other) = (db.session(), db.session());
    /// # session.transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 41 }))?;
    /// session.transact(|tx| {
    ///     let n = tx.require(&counters, &7)?.n();
    ///     if tx.attempt() == 1 {
    ///         other.call(count, &7).expect("nobody else is about");
    ///     }
    ///     tx.insert(&counters, &Counter { id: 8, n })
    /// })?;
    /// let contention = db.contention().expect("it is tracked");
    /// let place = &contention.places[0];
    /// assert_eq!((place.table.as_deref(), place.key.as_deref(), place.count), (Some("counter"), Some("id 7"), 1));
    /// assert_eq!((place.aborted, place.by), (Contender::AdHoc, Contender::Procedure("count")));
    /// # Ok(())
    /// # }
    /// ```
    pub fn contention(&self) -> Option<Contention> {
        self.engine.contention()
    }

    /// What was recorded since the last call, if the database records ([`Builder::record_history`]). Let transactions come to
    /// rest first: one in the middle of its commit may be missing.
    pub fn take_history(&self) -> Option<History> {
        self.engine.take_history()
    }

    /// Checks the structure of every table and index against itself. New transactions wait meanwhile.
    ///
    /// # Errors
    /// The first fault found, in words; or that a transaction is open.
    pub fn check_structure(&self) -> Result<(), String> {
        self.engine.check_structure()
    }

    /// Compares every secondary index with its table, both ways, and counts the rows. Let writing transactions come to rest first:
    /// what is committed meanwhile may look like a fault.
    ///
    /// # Errors
    /// The first fault found, in words; or why the rows could not be read.
    pub fn check_indexes(&self) -> Result<Vec<TableChecked>, String> {
        self.engine.check_indexes()
    }

    /// Copies the database into the directory `to`, which is new or empty, while transactions go on. What was committed
    /// before is in the copy. Checkpoints wait until it is done, and so does closing the database. `None` in memory,
    /// and where the directory was only looked at.
    ///
    /// # Errors
    /// As [`backup::take`](crate::backup::take); that the log has stopped, or that what is committed was not durable within
    /// [`Builder::wait_max`](crate::Builder::wait_max).
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<Option<Copied>, StorageError> {
        self.engine.backup(to)
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("protocol", &self.protocol().name).finish_non_exhaustive()
    }
}
