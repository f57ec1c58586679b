//! Explicit transactions: committed by a call, rolled back on drop.

use std::ops::Deref;
use std::sync::{Arc, RwLock};

use seriatim_engine::{Committed, Pending, Receipt, Runner};

use crate::procedure::RegisterError;
use crate::procedure::registry::Registry;
use crate::{Abort, Database, ReadTx, SchemaError, TransactError, Tx};

/// An open transaction. [`Deref`]s to [`Tx`]; dropping it rolls back. After an operation returned a conflict, all
/// further operations return it too: roll back and begin again.
#[must_use = "a transaction that is dropped rolls back"]
pub struct Transaction<'s> {
    pub(crate) runner: &'s mut Runner,
    procedures: Arc<RwLock<Registry>>,
}

impl<'s> Transaction<'s> {
    pub(crate) fn new(runner: &'s mut Runner, procedures: Arc<RwLock<Registry>>) -> Transaction<'s> {
        Transaction { runner, procedures }
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

    /// Rolls back, as dropping does.
    pub fn rollback(self) {}

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
        self.runner.end_explicit();
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
