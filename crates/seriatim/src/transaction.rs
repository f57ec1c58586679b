//! Explicit transactions: committed by hand, rolled back on drop.

use std::ops::Deref;

use seriatim_engine::{Pending, Receipt, Runner};

use crate::{Abort, ReadTx, TransactError, Tx};

/// An open transaction. [`Deref`]s to [`Tx`]; dropping it rolls back. After an operation returned an [`Abort`] that is a
/// conflict, every further one does too: roll back and begin again.
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
    /// A conflict: nothing was written; begin again. [`TransactError::NotDurable`] if the log stopped before it was durable.
    pub fn commit(self) -> Result<Receipt, TransactError> {
        self.runner.commit_explicit()
    }

    /// As [`Transaction::commit`], without waiting until the result is durable: the next transaction can begin meanwhile.
    pub fn submit(self) -> Pending<()> {
        self.runner.submit_explicit()
    }

    /// Rolls back; what dropping does.
    pub fn rollback(self) {}

    /// The error that an [`Abort`] of this transaction stands for, with table and key where they are known. It may be
    /// asked for again. A body's own error is found with [`TransactError::user`].
    ///
    /// `?` makes the same error of an abort that a method of the transaction returned. An overflow in arithmetic of the
    /// caller's own is certain only here: if what was read did not hold together, this gives the conflict.
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

    /// Ends the transaction and says whether what it read held together; a snapshot always does.
    ///
    /// # Errors
    /// A conflict, where the protocol has no snapshots. [`TransactError::NotDurable`] if the log stopped before what was read was
    /// durable: only where there are no snapshots, and in one that was under way then.
    pub fn finish(self) -> Result<Receipt, TransactError> {
        self.runner.commit_explicit()
    }

    /// As [`SnapshotTransaction::finish`], without waiting until what was read is durable.
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
