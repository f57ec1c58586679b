//! Explicit transactions: committed by hand, rolled back on drop.

use std::ops::Deref;

use crate::error::Abort;
use crate::session::Receipt;
use crate::{ReadTx, TransactError, Tx};

/// An open transaction. [`Deref`]s to [`Tx`]; dropping it rolls back. After an operation returned an [`Abort`] that is a
/// conflict, every further one does too: roll back and begin again.
#[must_use = "a transaction that is dropped rolls back"]
pub struct Transaction<'s> {
    tx: &'s mut Tx,
}

impl<'s> Transaction<'s> {
    pub(crate) fn new(tx: &'s mut Tx) -> Transaction<'s> {
        Transaction { tx }
    }

    /// Commits.
    ///
    /// # Errors
    /// A conflict: nothing was written; begin again.
    pub fn commit(self) -> Result<Receipt, TransactError> {
        self.tx.commit_explicit()
    }

    /// Rolls back; what dropping does.
    pub fn rollback(self) {}

    /// The error that the newest [`Abort`] of this transaction stands for, with table and key where they are known. It may be
    /// asked for again. A body's own error is found with [`TransactError::user`].
    pub fn explain(&self, abort: &Abort) -> TransactError {
        self.tx.error_of(abort)
    }
}

impl Deref for Transaction<'_> {
    type Target = Tx;
    fn deref(&self) -> &Tx {
        self.tx
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let stopped = self.tx.stopped();
        self.tx.roll_back(stopped);
    }
}

/// An open read-only transaction. [`Deref`]s to [`ReadTx`]; dropping it ends it.
pub struct SnapshotTransaction<'s> {
    tx: &'s mut Tx,
}

impl<'s> SnapshotTransaction<'s> {
    pub(crate) fn new(tx: &'s mut Tx) -> SnapshotTransaction<'s> {
        SnapshotTransaction { tx }
    }

    /// Ends the transaction and says whether what it read held together; a snapshot always does.
    ///
    /// # Errors
    /// A conflict, where the protocol has no snapshots.
    pub fn finish(self) -> Result<Receipt, TransactError> {
        self.tx.commit_explicit()
    }
}

impl Deref for SnapshotTransaction<'_> {
    type Target = ReadTx;
    fn deref(&self) -> &ReadTx {
        self.tx
    }
}

impl Drop for SnapshotTransaction<'_> {
    fn drop(&mut self) {
        let stopped = self.tx.stopped();
        self.tx.roll_back(stopped);
    }
}
