//! An open database, accessed by row types.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use seriatim_base::Epoch;
use seriatim_catalog::{RowRef, Table, TableDef};
use seriatim_engine::{Contention, Engine};
use seriatim_history::History;
use seriatim_txn::{Knob, ProtocolInfo};

use crate::backup::Copied;
use crate::builder::Builder;
use crate::handle::Handle;
use crate::procedure::registry::Registry;
use crate::{
    Checkpoint, CloseError, DynHandle, DynRow, Executor, OpenError, Receipt, Recovery, SchemaError, Session,
    Statistics, StorageError, TableChecked, TransactError,
};

/// A serializable in-memory database. Clones share it. It closes when the last clone, session and transaction is
/// dropped.
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
    /// Opens the database of a directory, with default options: creates it if there is none, otherwise recovers all
    /// acknowledged transactions. One process at a time can open it. A result is returned when it is durable
    /// ([`Durability::Group`](crate::Durability::Group)).
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
    /// The directory is open in another process, has a newer format, or is damaged; no memory or thread; an error of
    /// the file system.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Database, OpenError> {
        Builder::default().path(directory).open()
    }

    /// Opens a database in memory, with default options. Its data is lost when the process ends.
    ///
    /// # Errors
    /// The operating system refuses memory or a thread.
    pub fn in_memory() -> Result<Database, OpenError> {
        Builder::default().open()
    }

    /// Returns a builder that sets options of a database.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Wraps an open engine.
    pub(crate) fn of(engine: Engine) -> Database {
        Database::with(engine, Arc::default())
    }

    /// As a session has it.
    pub(crate) fn with(engine: Engine, procedures: Arc<RwLock<Registry>>) -> Database {
        Database { engine, procedures }
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

    /// Creates the table that `T` declares. The table is durable when this returns.
    ///
    /// # Errors
    /// The declaration contradicts itself, the name is taken, or there is no memory. [`SchemaError::Storage`] if the
    /// table is not durable. If the disk became full or fell behind while it was written, the table exists, and is
    /// durable when there is space. Otherwise it does not exist. If the log stopped meanwhile, the next opening may
    /// find it.
    pub fn create<T: Table>(&self) -> Result<Handle<T>, SchemaError> {
        Ok(Handle::new(self.create_all(vec![T::definition()])?.remove(0)))
    }

    /// Opens the existing table that `T` declares. A table that was declared as ordered ([`Database::declare`]) can
    /// be opened by a `T` that declares it hashed.
    ///
    /// A table with columns or indexes that `T` does not know is opened too. Its rows keep their values there, and
    /// rows that are inserted get the defaults. If its columns lie in another order, its rows are read so from then
    /// on. If it is clustered otherwise, they are written again, while transactions run. Neither happens while
    /// another handle is in use. It is durable when this returns.
    ///
    /// # Errors
    /// There is no such table. It has another definition: the error says what [`Database::migrate`] would change, or
    /// which difference needs an explicit [`Database::migration`]. A conversion fails as [`Database::create`] does. It
    /// leaves the table unchanged then, unless the disk became full just before its end.
    pub fn table<T: Table>(&self) -> Result<Handle<T>, SchemaError> {
        self.open_declared::<T>().map(Handle::new)
    }

    /// Opens the table that `T` declares, or creates it if there is none with its name.
    ///
    /// # Errors
    /// The table has another definition ([`SchemaError::Mismatch`]); otherwise as [`Database::create`].
    pub fn create_or_open<T: Table>(&self) -> Result<Handle<T>, SchemaError> {
        match self.create() {
            Err(SchemaError::Exists(_)) => self.table(),
            made => made,
        }
    }

    /// Creates a table declared at run time. It has the same layout as a derived table of the same columns.
    ///
    /// # Errors
    /// As [`Database::create`].
    pub fn declare(&self, definition: TableDef) -> Result<DynHandle, SchemaError> {
        Ok(self.declare_all(vec![definition])?.remove(0))
    }

    /// Creates tables declared at run time, in this order: all of them or none. They are made durable together, which
    /// takes fewer flushes than one call for each.
    ///
    /// # Errors
    /// As [`Database::create`], for the first table that cannot be created.
    pub fn declare_all(&self, definitions: Vec<TableDef>) -> Result<Vec<DynHandle>, SchemaError> {
        let made = self.create_all(definitions)?;
        made.iter().map(|set| self.open_dyn(&set.definition.name)).collect()
    }

    /// Opens an existing table by name, for access by values whose types are checked at run time.
    ///
    /// # Errors
    /// There is no such table.
    pub fn open_dyn(&self, name: &str) -> Result<DynHandle, SchemaError> {
        self.engine.open_dyn(name)
    }

    /// Returns the names of the tables, in order of creation.
    pub fn table_names(&self) -> Vec<String> {
        self.engine.table_names()
    }

    /// Opens a session. Sessions are cheap; each thread that runs transactions has its own.
    pub fn session(&self) -> Session {
        Session::new(self.engine.runner(), Arc::clone(&self.procedures))
    }

    /// Starts threads that run transactions for callers that do not wait for each result. A transaction occupies one
    /// of the [`workers`](crate::Builder::workers) from its execution until it is decided.
    ///
    /// # Errors
    /// There are no threads, or more than 4096; or the operating system refuses one.
    pub fn executor(&self, threads: usize) -> Result<Executor, OpenError> {
        Executor::new(self, threads)
    }

    /// Returns what recovery found in the directory; `None` in memory and for a new directory.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.engine.recovery()
    }

    /// Takes a checkpoint now: writes all rows while transactions run, then deletes the log that is no longer needed.
    /// The database takes checkpoints by itself after [`Builder::checkpoint_bytes`] of log. `None` in memory.
    ///
    /// # Errors
    /// An error of the file system, or the log has stopped. The previous checkpoint stays valid.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>, StorageError> {
        self.engine.checkpoint()
    }

    /// Makes everything committed so far durable, whatever the [`Durability`](crate::Durability). Returns at once in
    /// memory.
    ///
    /// # Errors
    /// [`TransactError::NotDurable`] if the log has stopped, or if the disk is full; with a full disk the call can be
    /// repeated. [`TransactError::NotDurableYet`] if it took longer than [`Builder::wait_max`].
    pub fn flush(&self) -> Result<(), TransactError> {
        self.engine.flush()
    }

    /// Closes the database and reports whether everything committed is durable. Dropping the last handle, session and
    /// transaction closes it too, without a report. In a forked process nothing is closed. A database in memory has
    /// nothing to close.
    ///
    /// Remaining sessions can still read, as after the log has stopped; their writes fail with
    /// [`TransactError::Closed`](crate::TransactError::Closed). Calls that wait in an [`Executor`] are not run and
    /// fail with the same error.
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
    /// Committed transactions that were not durable are lost. The database is closed nevertheless, and the directory
    /// can be opened again.
    pub fn close(self) -> Result<(), CloseError> {
        self.engine.close()
    }

    /// Returns the newest durable epoch: every transaction of this epoch and of earlier ones survives a power cut. It
    /// never moves back. `None` in memory, where nothing is durable.
    pub fn durable_epoch(&self) -> Option<Epoch> {
        self.engine.durable_epoch()
    }

    /// Asks for this epoch to become durable soon: it ends, and is flushed, as soon as the disk is free. Returns at
    /// once. Does nothing in memory.
    ///
    /// # Errors
    /// [`TransactError::LogStopped`]: nothing more becomes durable.
    pub fn request_durable(&self, epoch: Epoch) -> Result<(), TransactError> {
        self.engine.request_durable(epoch)
    }

    /// Whether both the transaction and everything that it read survive a power cut. Needed with
    /// [`Durability::Async`](crate::Durability), which gives receipts earlier. Always false in memory.
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

    /// Returns the protocol in use, with the capabilities that it has under its current options.
    pub fn protocol(&self) -> ProtocolInfo {
        self.engine.protocol()
    }

    /// Returns the options of the protocol in use, each with its value.
    pub fn protocol_options(&self) -> impl Iterator<Item = (&'static Knob, u64)> + '_ {
        self.engine.protocol_options()
    }

    /// Returns how regions run.
    pub fn backend(&self) -> crate::htm::Backend {
        self.engine.backend()
    }

    /// Returns counters of the database's work so far.
    pub fn statistics(&self) -> Statistics {
        self.engine.statistics()
    }

    /// Maps and touches this many bytes now, so that no transaction waits for fresh pages.
    ///
    /// # Errors
    /// The operating system refuses the memory.
    pub fn prefault(&self, bytes: usize) -> Result<(), OpenError> {
        self.engine.prefault(bytes)
    }

    /// Does the work of the background threads once. It advances the epoch, and the clock of ages by
    /// [`Builder::epoch_interval`]. It ends parked transactions that are too old, flushes the log, and takes a
    /// checkpoint if one is due. Idle workers unlink deleted rows, and excess free memory returns to the system.
    pub fn step(&self) {
        self.engine.step()
    }

    /// Returns which transactions conflicted since the database was opened, if [`Builder::track_contention`] is set.
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
    ///         other.call(count, &7).expect("no conflict");
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

    /// Returns the history recorded since the last call, if [`Builder::record_history`] is set. Call it when no
    /// transaction is running: one in the middle of its commit may be missing.
    pub fn take_history(&self) -> Option<History> {
        self.engine.take_history()
    }

    /// Calls `see` with each row of a table, in no order, and returns their number. The table may be hashed. Under
    /// every protocol, the rows are those of one moment at which no transaction is open. `see` must not begin a
    /// transaction.
    ///
    /// New transactions wait meanwhile, for at most a second. Then they fail with
    /// [`TransactError::WorkersBusy`](crate::TransactError::WorkersBusy), so this is for exports and counts.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let counters = db.create::<Counter>()?;
    /// # let mut session = db.session();
    /// session.transact(|tx| (0..9).try_for_each(|id| tx.insert(&counters, &Counter { id, n: 2 })))?;
    /// let mut sum = 0;
    /// assert_eq!((db.each_row(&counters, |row| sum += row.n())?, sum), (9, 18));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TransactError::Excluded`](crate::TransactError::Excluded) if a transaction stays open for longer than a
    /// second. A handle of another database.
    pub fn each_row<T: Table>(
        &self,
        table: &Handle<T>,
        mut see: impl FnMut(T::Row<'_>),
    ) -> Result<usize, TransactError> {
        // SAFETY: a row of this table, readable during the call.
        self.engine.each_row_at_rest(&table.set, &mut |row| see(T::row(unsafe { RowRef::from_raw(row.as_ptr()) })))
    }

    /// As [`Database::each_row`], for a table declared at run time.
    ///
    /// # Errors
    /// As [`Database::each_row`].
    pub fn each_row_dyn(&self, table: &DynHandle, mut see: impl FnMut(DynRow<'_>)) -> Result<usize, TransactError> {
        self.engine.each_row_at_rest_dyn(&[table], &mut |_, row| see(row))
    }

    /// Calls `see` with each row of a table, in no order, while transactions run. Returns the number of calls. The
    /// table may be hashed. No transaction waits for this, nor this for one; other lists, checks and conversions wait.
    ///
    /// Each row is one that was committed and was not deleted when it was read. Dozens are read before `see` is called
    /// for the first. Rows that change meanwhile may be shown from before the change or after it, each by itself. A row
    /// that exists all the time is shown at least once, and twice only if the table changes meanwhile. For rows of one
    /// moment use [`Database::each_row`], or scan an ordered table in a snapshot. `see` must be short, as no memory is
    /// reused meanwhile, and must not use the database.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let counters = db.create::<Counter>()?;
    /// # let (mut session, mut other) = (db.session(), db.session());
    /// session.transact(|tx| (0..9).try_for_each(|id| tx.insert(&counters, &Counter { id, n: 2 })))?;
    /// let open = other.begin()?;
    /// open.insert(&counters, &Counter { id: 9, n: 2 })?;
    /// assert_eq!(db.each_committed_row(&counters, |row| assert!(row.id() < 9))?, 9);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TransactError::Excluded`](crate::TransactError::Excluded) if a commit does not end for a second. A handle of
    /// another database.
    pub fn each_committed_row<T: Table>(
        &self,
        table: &Handle<T>,
        mut see: impl FnMut(T::Row<'_>),
    ) -> Result<usize, TransactError> {
        // SAFETY: a row of this table, readable during the call.
        self.engine.each_committed_row(&table.set, &mut |row| see(T::row(unsafe { RowRef::from_raw(row.as_ptr()) })))
    }

    /// As [`Database::each_committed_row`], for a table declared at run time.
    ///
    /// # Errors
    /// As [`Database::each_committed_row`].
    pub fn each_committed_row_dyn(
        &self,
        table: &DynHandle,
        mut see: impl FnMut(DynRow<'_>),
    ) -> Result<usize, TransactError> {
        self.engine.each_committed_row_dyn(table, &mut see)
    }

    /// Checks the structure of every table and index. New transactions wait meanwhile.
    ///
    /// # Errors
    /// A description of the first fault found; or a transaction is open.
    pub fn check_structure(&self) -> Result<(), String> {
        self.engine.check_structure()
    }

    /// Compares every secondary index with its table, both ways, and counts the rows. Call it when no transaction is
    /// writing: concurrent commits may look like faults.
    ///
    /// # Errors
    /// A description of the first fault found, or of why the rows could not be read.
    pub fn check_indexes(&self) -> Result<Vec<TableChecked>, String> {
        self.engine.check_indexes()
    }

    /// Copies the database into the directory `to`, which is new or empty, while transactions run. The copy contains
    /// everything that was committed before the call. Checkpoints, and closing the database, wait until it is done.
    /// `None` in memory, and for a database opened for inspection only.
    ///
    /// # Errors
    /// As [`backup::take`](crate::backup::take); the log has stopped; or the commits were not durable within
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
