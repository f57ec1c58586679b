//! Explicit transactions: committed by a call, rolled back on drop.

use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use seriatim_catalog::{Table, TableKey as _};
use seriatim_engine::procedure::in_procedure;
use seriatim_engine::{Committed, IfLocked, LockStrength, Pending, Receipt, RowLock, RowWait, Runner, WaitEnd};
use seriatim_txn::Mode;

use crate::procedure::registry::Registry;
use crate::procedure::{RegisterError, Value};
use crate::{Abort, Database, DynHandle, Handle, ReadTx, SchemaError, Sequence, Session, TransactError, Tx};

/// An open transaction. [`Deref`]s to [`Tx`]; dropping it rolls back. After an operation returned a conflict, all
/// further operations return it too: roll back and begin again.
#[must_use = "a transaction that is dropped rolls back"]
pub struct Transaction<'s> {
    pub(crate) runner: &'s mut Runner,
    procedures: Arc<RwLock<Registry>>,
    /// Whether it outlives this value.
    is_lent: bool,
}

impl<'s> Transaction<'s> {
    pub(crate) fn new(runner: &'s mut Runner, procedures: Arc<RwLock<Registry>>) -> Transaction<'s> {
        Transaction { runner, procedures, is_lent: false }
    }

    /// The database.
    pub(crate) fn database(&self) -> Database {
        Database::with(self.runner.engine(), Arc::clone(&self.procedures))
    }

    /// Commits. If tables were changed, the commit is durable when this returns, and registered procedures were
    /// analysed again.
    ///
    /// # Errors
    /// A conflict: nothing was written; begin again. [`TransactError::NotDurable`] if the log stopped before the
    /// commit was durable. [`TransactError::User`] with a [`SchemaError::Analysis`] if procedures could not be
    /// analysed again: then it has committed.
    pub fn commit(mut self) -> Result<Receipt, TransactError> {
        match self.runner.tx.changes_tables() {
            true => self.commit_changes(),
            false => self.runner.commit_explicit(),
        }
    }

    fn commit_changes(&mut self) -> Result<Receipt, TransactError> {
        let (database, mut analysed) = (self.database(), Ok(()));
        let receipt = self.runner.commit_changes(|| analysed = database.analyse_again())?;
        let failed = |error: RegisterError| TransactError::User(Arc::new(SchemaError::Analysis(error.to_string())));
        analysed.map(|()| receipt).map_err(failed)
    }

    /// As [`Transaction::commit`], without waiting until the result is durable. The next transaction can begin
    /// meanwhile. If tables were changed, this waits.
    pub fn submit(mut self) -> Pending<()> {
        match self.runner.tx.changes_tables() {
            true => {
                let committed = self.commit_changes();
                self.runner.pending(committed.map(|receipt| Committed { value: (), receipt, attempts: 1 }))
            }
            false => self.runner.submit_explicit(),
        }
    }

    /// Locks the row at `key`, whether it exists or not, until the transaction ends. Returns whether it has the lock:
    /// not if another transaction keeps it for longer than `wait`. Those who wait get it in the order of their arrival.
    ///
    /// Other transactions that lock the row wait, and so do UPDATE, DELETE and FOR UPDATE of SQL. Nobody else does:
    /// a lock prevents conflicts, and is not needed for a serializable history. Lock rows before anything is read:
    /// what was read before a wait may have changed since, and then the commit is a conflict.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let counters = db.create::<Counter>()?;
    /// # db.session().transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 41 }))?;
    /// let (mut first, mut second) = (db.session(), db.session());
    /// let (mut first, mut second) = (first.begin()?, second.begin()?);
    /// assert!(first.lock_row(&counters, &7, Duration::ZERO)?);
    /// assert!(!second.lock_row(&counters, &7, Duration::ZERO)?);
    /// first.update(&counters, &7, |counter| counter.set_n(counter.n() + 1))?;
    /// first.commit()?;
    /// assert!(second.lock_row(&counters, &7, Duration::from_secs(1))?);
    /// assert_eq!(second.get(&counters, &7)?.map(|counter| counter.n()), Some(42));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TransactError::Deadlock`]; the transaction has stopped, or was cancelled while it waited; no memory.
    pub fn lock_row<T: Table>(
        &mut self,
        table: &Handle<T>,
        key: &T::Key,
        wait: Duration,
    ) -> Result<bool, TransactError> {
        let if_locked = if wait.is_zero() { IfLocked::Refuse } else { IfLocked::Wait };
        let tx = &self.runner.tx;
        let lock = key.encode(|key| tx.lock_row_at(&table.set, key, LockStrength::Exclusive, if_locked));
        let wait = match lock.map_err(|abort| self.explain(&abort))? {
            RowLock::Held => return Ok(true),
            RowLock::Taken => return Ok(false),
            RowLock::Deadlock(detail) => return Err(TransactError::Deadlock { detail }),
            RowLock::Waits(queued) => {
                queued.block(Some(wait));
                queued
            }
        };
        match wait.ended() {
            None | Some(WaitEnd::TimedOut) => Ok(false),
            Some(WaitEnd::Cancelled) => Err(TransactError::Cancelled),
            Some(WaitEnd::Ended) => {
                let ended = self.runner.tx.check_bounds();
                Err(ended.map_or_else(|abort| self.explain(&abort), |()| TransactError::TooOld))
            }
            Some(WaitEnd::Granted) => {
                // Where the place of a transaction is where it begins, it would come before those that it waited for.
                if self.runner.tx.is_untouched() {
                    self.runner.suspend_explicit();
                    self.runner.resume(Mode::ReadWrite)?;
                }
                Ok(true)
            }
        }
    }

    /// Rolls back, as dropping does.
    pub fn rollback(self) {}

    /// Runs the registered procedure of this name as a part of the transaction. The types of the arguments are checked
    /// at run time, as by [`Session::call_by_name`]. What it wrote before an error stays: see
    /// [`Tx::savepoint`](crate::Tx::savepoint).
    ///
    /// ```
    /// # use seriatim::procedure::Data;
    /// # use seriatim::{Abort, Database, Table, Tx, procedure, procedures};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # #[procedure]
    /// # fn count(tx: &Tx, id: u32) -> Result<u64, Abort> {
    /// #     let n = tx.update::<Counter>(id, |counter| { counter.n += 1; counter.n })?;
    /// #     Ok(n)
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let counters = db.create::<Counter>()?;
    /// # db.register(procedures![count])?;
    /// let mut session = db.session();
    /// let tx = session.begin()?;
    /// tx.insert(&counters, &Counter { id: 7, n: 40 })?;
    /// assert_eq!(tx.call_by_name("count", &7u32.to_value())?, 41u64.to_value());
    /// tx.rollback();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TransactError::UnknownProcedure`], [`TransactError::Arguments`]; those of the procedure; a conflict.
    pub fn call_by_name(&self, name: &str, arguments: &Value) -> Result<Value, TransactError> {
        self.runner.check_process()?;
        let registry = self.procedures.read().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = registry.entries.iter().find(|entry| entry.name == name).cloned() else {
            return Err(TransactError::UnknownProcedure { name: name.to_owned(), known: registry.names() });
        };
        drop(registry);
        entry.registered.run_in(&entry, self, arguments)?.map_err(|abort| {
            let mut error = self.explain(&abort);
            in_procedure(&mut error, entry.name);
            error
        })
    }

    /// Returns the error behind an [`Abort`] of this transaction, with table and key where they are known. The call can
    /// be repeated. [`TransactError::user`] finds a body's own error.
    ///
    /// `?` converts an abort that a method of the transaction returned in the same way. An overflow in arithmetic of
    /// the caller's own is certain only here: if the reads were not consistent, this returns the conflict.
    pub fn explain(&self, abort: &Abort) -> TransactError {
        self.runner.tx.explain(abort)
    }
}

impl Deref for Transaction<'_> {
    type Target = Tx;
    fn deref(&self) -> &Tx {
        Tx::of(&self.runner.tx)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.is_lent {
            self.runner.end_explicit();
        }
    }
}

/// A session with an open transaction, as one value: for a server, which keeps it from call to call. [`Deref`]s to
/// [`Tx`]; dropping it rolls back.
///
/// ```
/// # use seriatim::{Database, Table};
/// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let db = Database::in_memory()?;
/// # let counters = db.create::<Counter>()?;
/// let transaction = db.session().into_transaction().map_err(|(_, error)| error)?;
/// transaction.insert(&counters, &Counter { id: 7, n: 41 })?;
/// let (mut session, committed) = transaction.commit();
/// committed?;
/// assert!(*session.transact(|tx| tx.exists(&counters, &7))?);
/// # Ok(())
/// # }
/// ```
#[must_use = "a transaction that is dropped rolls back"]
pub struct OwnedTransaction {
    session: Session,
}

impl Session {
    /// Opens a transaction as [`Session::begin`] does, and keeps the session with it.
    ///
    /// # Errors
    /// Every worker is busy. The session is returned with the error.
    #[allow(clippy::result_large_err, reason = "both hold the session")]
    pub fn into_transaction(mut self) -> Result<OwnedTransaction, (Session, TransactError)> {
        match self.runner.begin(Mode::ReadWrite) {
            Ok(()) => Ok(OwnedTransaction { session: self }),
            Err(error) => Err((self, error)),
        }
    }
}

impl OwnedTransaction {
    /// A transaction that has not begun: [`OwnedTransaction::resume`] begins it.
    pub fn suspended(session: Session) -> OwnedTransaction {
        OwnedTransaction { session }
    }

    /// Whether it has begun, and was not suspended since.
    pub fn is_open(&self) -> bool {
        self.session.runner.tx.is_open()
    }

    /// Rolls back what was done so far, and keeps the row locks. It holds no worker until
    /// [`OwnedTransaction::resume`], and no operation is permitted.
    pub fn suspend(&mut self) {
        self.session.runner.suspend_explicit();
    }

    /// Rolls back what was done so far, and releases the row locks. Then it is suspended.
    pub fn abandon(&mut self) {
        self.session.runner.end_explicit();
    }

    /// Begins a transaction that is suspended. A cancellation since [`OwnedTransaction::forget_cancellation`] ends it.
    ///
    /// # Errors
    /// Every worker is busy.
    pub fn resume(&mut self) -> Result<(), TransactError> {
        if self.is_open() { Ok(()) } else { self.session.runner.resume(Mode::ReadWrite) }
    }

    /// Earlier cancellations do not concern a suspended transaction that is resumed from now on.
    pub fn forget_cancellation(&self) {
        self.session.forget_cancellation();
    }

    /// A place in the queue for the row because of which the transaction stopped, if another one has that row locked.
    /// After the wait it can be suspended and resumed, and then has the lock.
    pub fn wait_for_conflict(&self, strength: LockStrength) -> Option<RowWait> {
        self.session.runner.tx.wait_for_conflict(strength)
    }

    /// Whether the transaction can still commit, as far as that is known: what it has read has not changed.
    ///
    /// # Errors
    /// The conflict.
    pub fn check_reads(&self) -> Result<(), Abort> {
        self.session.runner.tx.check_reads()
    }

    /// Commits: see [`Transaction::commit`].
    pub fn commit(self) -> (Session, Result<Receipt, TransactError>) {
        let mut session = self.session;
        let committed = Transaction::new(&mut session.runner, Arc::clone(&session.procedures)).commit();
        (session, committed)
    }

    /// Lends the transaction, which can change tables: see [`Transaction::migration`].
    pub fn lend<R>(&mut self, act: impl FnOnce(&Transaction<'_>) -> R) -> R {
        let Session { runner, procedures, .. } = &mut self.session;
        act(&Transaction { runner, procedures: Arc::clone(procedures), is_lent: true })
    }

    /// Opens a table by name, as the transaction sees it: see [`Transaction::open_dyn`].
    ///
    /// # Errors
    /// There is no such table.
    pub fn open_dyn(&self, name: &str) -> Result<DynHandle, SchemaError> {
        self.session.runner.tx.open_changed(name).ok_or_else(|| SchemaError::Unknown(name.to_owned()))
    }

    /// Opens a sequence by name, as the transaction sees it: see [`Transaction::sequence`].
    ///
    /// # Errors
    /// There is no such sequence.
    pub fn sequence(&self, name: &str) -> Result<Sequence, SchemaError> {
        Sequence::of(&self.session.runner, name)
    }

    /// Returns the names of the tables that the transaction sees: see [`Transaction::table_names`].
    pub fn table_names(&self) -> Vec<String> {
        self.session.runner.tx.changed_sets().iter().map(|set| set.definition.name.to_string()).collect()
    }

    /// Rolls back.
    pub fn rollback(self) -> Session {
        let mut session = self.session;
        session.runner.end_explicit();
        session
    }

    /// Returns the error behind an [`Abort`]: see [`Transaction::explain`].
    pub fn explain(&self, abort: &Abort) -> TransactError {
        self.session.runner.tx.explain(abort)
    }
}

impl Deref for OwnedTransaction {
    type Target = Tx;
    fn deref(&self) -> &Tx {
        Tx::of(&self.session.runner.tx)
    }
}

impl std::fmt::Debug for OwnedTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnedTransaction").finish_non_exhaustive()
    }
}

/// An open read-only transaction. [`Deref`]s to [`ReadTx`]; dropping it ends it.
pub struct SnapshotTransaction<'s> {
    runner: &'s mut Runner,
}

impl<'s> SnapshotTransaction<'s> {
    pub(crate) fn new(runner: &'s mut Runner) -> SnapshotTransaction<'s> {
        SnapshotTransaction { runner }
    }

    /// Ends the transaction and reports whether its reads were consistent; those of a snapshot always are.
    ///
    /// # Errors
    /// A conflict, where the protocol has no snapshots. [`TransactError::NotDurable`] if the log stopped before the
    /// commits that it read were durable. This happens only without snapshots, and in a transaction that was running
    /// when the log stopped.
    pub fn finish(self) -> Result<Receipt, TransactError> {
        self.runner.commit_explicit()
    }

    /// As [`SnapshotTransaction::finish`], without waiting until the commits that it read are durable.
    pub fn submit(self) -> Pending<()> {
        self.runner.submit_explicit()
    }
}

impl Deref for SnapshotTransaction<'_> {
    type Target = ReadTx;
    fn deref(&self) -> &ReadTx {
        Tx::of(&self.runner.tx)
    }
}

impl Drop for SnapshotTransaction<'_> {
    fn drop(&mut self) {
        self.runner.end_explicit();
    }
}
