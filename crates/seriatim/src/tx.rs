//! What a transaction can do.
//!
//! Access rules, which make the shared references of this module sound:
//! 1. `worker` is set while a transaction is open and is used by the session's thread only (`Tx` is not `Sync`); each use is
//!    one call, and no call runs code of the user's.
//! 2. While the closure of an `update` runs, `updating` refuses every operation, so the row it writes is not read elsewhere.
//! 3. Rows borrow the `ReadTx`; ending a transaction needs it mutably or has the sole owner. So no row outlives its worker's
//!    online time, during which the contract keeps row images readable and unchanged.

use std::cell::{Cell, RefCell};
use std::ops::{Bound, Deref, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use seriatim_base::{Backoff, Epoch, Stamp};
use seriatim_catalog::{ColumnSet, Key, KeyBuf, KeyPrefix, RowRef, RowWriter, Table, TableKey, TailStore};
use seriatim_store::Direction;
use seriatim_txn::{
    Cause, Inserted, Mark, Mode, NoRedo, OnExists, Outcome, Phase, Reason, RowPtr, Stop, Updating, Worker,
};

use crate::database::Inner;
use crate::error::{Abort, AbortKind, Conflict, DuplicateAt, TransactError};
use crate::handle::{Handle, IndexHandle, TableSet};
use crate::pool::Lease;
use crate::record::Log;
use crate::scan::{Scan, Target};
use crate::session::Receipt;

/// Operations between two looks at the transaction's age.
const STRIDE: u32 = 256;

/// The reading half of a transaction: all that a read-only one can do.
pub struct ReadTx {
    inner: Arc<Inner>,
    lease: Cell<Option<Lease>>,
    /// The worker last used: asked for first.
    preferred: Cell<usize>,
    mode: Cell<Mode>,
    explicit: Cell<bool>,
    attempt: Cell<u32>,
    stopped: Cell<Option<Cause>>,
    updating: Cell<bool>,
    /// Operations until the next check of age and bound.
    left: Cell<u32>,
    operations: Cell<u32>,
    begun: Cell<Epoch>,
    duplicate: RefCell<Option<DuplicateAt>>,
    user: RefCell<Option<Box<dyn std::error::Error + Send + Sync>>>,
    pub(crate) log: Option<RefCell<Log>>,
    /// Scans to reuse.
    pub(crate) scans: RefCell<Vec<Box<seriatim_txn::Scan>>>,
}

// SAFETY: between transactions the cells hold no pointer; during one, the worker and what it points to may move with the
// `ReadTx`, since workers are `Send` and nobody else uses a leased one (access rule 1).
unsafe impl Send for ReadTx {}

/// A transaction that may write. [`Deref`]s to [`ReadTx`] for its reading half.
pub struct Tx {
    read: ReadTx,
}

/// A position in a transaction to roll back to: see [`Tx::savepoint`].
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    mark: Mark,
}

impl Deref for Tx {
    type Target = ReadTx;
    fn deref(&self) -> &ReadTx {
        &self.read
    }
}

/// Stores the long texts of rows being written.
pub(crate) struct Tails<'t>(pub(crate) &'t ReadTx);

impl TailStore for Tails<'_> {
    fn store(&mut self, bytes: &[u8]) -> Result<u64, seriatim_catalog::OutOfMemory> {
        self.0.worker().tail(bytes).map_err(|_| seriatim_catalog::OutOfMemory)
    }
}

/// Lifecycle and plumbing.
impl ReadTx {
    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// The leased worker.
    ///
    /// # Panics
    /// Outside a transaction, which no public path reaches.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(crate) fn worker(&self) -> &mut dyn Worker {
        let mut lease = self.lease.get().expect("operations run inside a transaction");
        // SAFETY: access rule 1.
        unsafe { lease.worker.as_mut() }
    }

    /// Runs one operation of the worker: refuses it if the transaction has stopped, waits if the protocol says so (within
    /// [`Backoff`]'s bound), notes why it stopped.
    #[inline]
    pub(crate) fn operate<R>(&self, mut operation: impl FnMut(&mut dyn Worker) -> Result<R, Stop>) -> Result<R, Abort> {
        let left = self.left.get();
        if left == 0 {
            self.check()?;
        } else {
            self.left.set(left - 1);
        }
        match operation(self.worker()) {
            Ok(result) => Ok(result),
            Err(stop) => self.retry_or_stop(stop, operation),
        }
    }

    #[cold]
    fn retry_or_stop<R>(
        &self,
        mut stop: Stop,
        mut operation: impl FnMut(&mut dyn Worker) -> Result<R, Stop>,
    ) -> Result<R, Abort> {
        let mut backoff = Backoff::new();
        loop {
            match stop {
                Stop::Abort(cause) => return Err(self.stop(cause)),
                Stop::Wait(_) if !backoff.wait() => {
                    return Err(self.stop(Cause { phase: Phase::Execute, reason: Reason::RecordLocked }));
                }
                Stop::Wait(_) => match operation(self.worker()) {
                    Ok(result) => return Ok(result),
                    Err(next) => stop = next,
                },
            }
        }
    }

    fn stop(&self, cause: Cause) -> Abort {
        self.stopped.set(Some(cause));
        // From now on every operation comes by `check`.
        self.left.set(0);
        Abort(AbortKind::Stopped(cause))
    }

    /// The slow path of `operate`: a stopped transaction, one inside its own update, an old one, a long one.
    #[cold]
    fn check(&self) -> Result<(), Abort> {
        if let Some(cause) = self.stopped.get() {
            return Err(Abort(AbortKind::Stopped(cause)));
        }
        if self.updating.get() {
            return Err(Abort::stopped(Reason::Reentered));
        }
        let inner = &self.inner;
        if inner.environment.epochs.current().0 - self.begun.get().0 > inner.age_epochs_max {
            return Err(self.stop(Cause { phase: Phase::Execute, reason: Reason::TooOld }));
        }
        let stride = self.stride();
        let operations = self.operations.get() + stride + 1;
        self.operations.set(operations);
        if operations >= inner.options.operations_max {
            self.operations.set(0);
            if let Err(Stop::Abort(cause)) = self.worker().validate() {
                return Err(self.stop(cause));
            }
        }
        self.left.set(stride);
        Ok(())
    }

    /// Explicit transactions may be parked between operations, so each operation looks at the age.
    fn stride(&self) -> u32 {
        if self.explicit.get() { 0 } else { STRIDE.min(self.inner.options.operations_max) }
    }

    #[inline]
    pub(crate) fn own<'h>(&self, set: &'h TableSet) -> Result<&'h TableSet, Abort> {
        if set.database == self.inner.number { Ok(set) } else { Err(Abort(AbortKind::ForeignHandle)) }
    }

    #[inline]
    fn note(&self, table: &seriatim_txn::Table, key: Key<'_>) {
        if let Some(log) = &self.log {
            log.borrow_mut().read(table.id, key, self.worker().seen());
        }
    }

    /// The row at an encoded key.
    #[inline]
    pub(crate) fn read_at(&self, table: &seriatim_txn::Table, key: Key<'_>) -> Result<Option<RowPtr>, Abort> {
        let row = self.operate(|worker| worker.read(table, key, ColumnSet::ALL))?;
        self.note(table, key);
        Ok(row)
    }

    /// Where the transaction stopped, if it did.
    pub(crate) fn stopped(&self) -> Option<Cause> {
        self.stopped.get()
    }
}

/// Reading.
impl ReadTx {
    /// The row at `key`, if there is one. The row stays as it was read, whatever the transaction writes afterwards.
    ///
    /// # Errors
    /// A conflict.
    #[inline]
    pub fn get<'t, T: Table>(&'t self, table: &Handle<T>, key: &T::Key) -> Result<Option<T::Row<'t>>, Abort> {
        let set = self.own(&table.set)?;
        let row = key.encode(|key| self.read_at(&set.primary, key))?;
        // SAFETY: access rule 3.
        Ok(row.map(|row| T::row(unsafe { RowRef::from_raw(row.as_ptr()) })))
    }

    /// The rows with keys in `range`, in key order. Ordered tables only.
    #[inline]
    pub fn scan<'t, T: Table>(&'t self, table: &'t Handle<T>, range: impl RangeBounds<T::Key>) -> Scan<'t, T> {
        let (low, high) = encode_bounds(&range);
        Scan::new(self, &table.set, Target::Rows, low, high, Direction::Forward)
    }

    /// As [`ReadTx::scan`], in descending key order.
    #[inline]
    pub fn scan_rev<'t, T: Table>(&'t self, table: &'t Handle<T>, range: impl RangeBounds<T::Key>) -> Scan<'t, T> {
        let (low, high) = encode_bounds(&range);
        Scan::new(self, &table.set, Target::Rows, low, high, Direction::Backward)
    }

    /// The rows whose keys begin with `prefix`: the first columns of the key, as a tuple.
    #[inline]
    pub fn prefix<'t, T: Table, P: KeyPrefix<T::Key>>(&'t self, table: &'t Handle<T>, prefix: &P) -> Scan<'t, T> {
        let (low, high) = prefix.prefix_range();
        Scan::new(self, &table.set, Target::Rows, Bound::Included(low), Bound::Included(high), Direction::Forward)
    }

    /// As [`ReadTx::prefix`], in descending key order.
    #[inline]
    pub fn prefix_rev<'t, T: Table, P: KeyPrefix<T::Key>>(&'t self, table: &'t Handle<T>, prefix: &P) -> Scan<'t, T> {
        let (low, high) = prefix.prefix_range();
        Scan::new(self, &table.set, Target::Rows, Bound::Included(low), Bound::Included(high), Direction::Backward)
    }

    /// How many times the body has been run in this transaction; 1 the first time.
    pub fn attempt(&self) -> u32 {
        self.attempt.get()
    }

    /// An abort that carries the body's own error: `return Err(tx.abort(error))`. The session reports it as
    /// [`TransactError::User`] once it is certain that what the body read held together.
    pub fn abort(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Abort {
        *self.user.borrow_mut() = Some(error.into());
        Abort(AbortKind::User)
    }
}

#[inline]
pub(crate) fn encode_bounds<K: TableKey>(range: &impl RangeBounds<K>) -> (Bound<KeyBuf>, Bound<KeyBuf>) {
    let encode = |key: &K| key.encode(|key| key.to_buf());
    (range.start_bound().map(encode), range.end_bound().map(encode))
}
