//! Explicit transactions: committed by a call, rolled back on drop.

use std::ops::Deref;

use seriatim_engine::{Pending, Receipt, Runner};

use crate::{Abort, ReadTx, TransactError, Tx};

/// An open transaction. [`Deref`]s to [`Tx`]; dropping it rolls back. After an operation returned a conflict, all
/// further operations return it too: roll back and begin again.
#[must_use = "a transaction that is dropped rolls back"]
pub struct Transaction<'s> {
    runner: &'s mut Runner,
}

impl<'s> Transaction<'s> {
    pub(crate) fn new(runner: &'s mut Runner) -> Transaction<'s> {
        Transaction { runner }
    }

    /// Commits.
    ///
    /// # Errors
    /// A conflict: nothing was written; begin again. [`TransactError::NotDurable`] if the log stopped before the
    /// commit was durable.
    pub fn commit(self) -> Result<Receipt, TransactError> {
        self.runner.commit_explicit()
    }

    /// As [`Transaction::commit`], without waiting until the result is durable. The next transaction can begin
    /// meanwhile.
    pub fn submit(self) -> Pending<()> {
        self.runner.submit_explicit()
    }

    /// Rolls back, as dropping does.
    pub fn rollback(self) {}

    /// Returns the error behind an [`Abort`] of this transaction, with table and key where they are known; `?`
    /// converts in the same way. The call can be repeated. [`TransactError::user`] finds a body's own error.
    pub fn explain(&self, abort: &Abort) -> TransactError {
        self.runner.tx.error_of(abort)
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
