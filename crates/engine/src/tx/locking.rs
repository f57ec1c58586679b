//! Row locks of explicit transactions. Others take none: they ask whether a row is locked.

use std::sync::Arc;

use seriatim_catalog::{Key, KeyBuf, Value};
use seriatim_txn::{OpError, Reason};

use super::TxCore;
use crate::error::{Abort, AbortKind, TransactError};
use crate::row_locks::{IfLocked, LockStrength, Owner, RowLock, RowWait, row_name};
use crate::runtime::DynHandle;
use crate::table::TableSet;

impl TxCore {
    /// Locks the row at an encoded key, whether there is one or not, until the transaction ends. A transaction that is
    /// not explicit gets no lock: for it a row is `Held` if no other transaction has it locked, and else `Taken`.
    ///
    /// What was read before a wait may have changed since, and then the transaction cannot commit any more. One that
    /// has read nothing can begin anew and keep its locks ([`Runner::suspend_explicit`](crate::Runner)).
    ///
    /// # Errors
    /// The transaction has stopped; no memory.
    pub fn lock_row_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        strength: LockStrength,
        if_locked: IfLocked,
    ) -> Result<RowLock, Abort> {
        let set = self.own(set)?;
        let _call = self.call()?;
        if let Some(cause) = self.stopped.get() {
            return Err(self.new_abort(AbortKind::Stopped(cause)));
        }
        if self.is_over() {
            return Err(self.stop(self.deadline.cause()));
        }
        let locks = &self.inner.row_locks;
        if !self.explicit.get() {
            return Ok(if locks.is_locked(set.position, key, strength) { RowLock::Taken } else { RowLock::Held });
        }
        let row = row_name(set.position, key);
        let owner = self.lock_owner();
        let says = || self.row_in_words(set, key);
        let lock = locks.lock(&owner, &row, strength, if_locked, says, &self.deadline);
        lock.map_err(|_| self.out_of_memory())
    }

    /// As [`TxCore::lock_row_at`], for a table declared at run time.
    ///
    /// # Errors
    /// As [`TxCore::lock_row_at`]; values that are not of the key's types.
    pub fn lock_row_dyn(
        &self,
        table: &DynHandle,
        key: &[Value],
        strength: LockStrength,
        if_locked: IfLocked,
    ) -> Result<RowLock, Abort> {
        let set = &table.set;
        let key: KeyBuf = set.primary.codec.encode_values(key).map_err(|error| self.abort(error))?;
        self.lock_row_at(set, key.as_key(), strength, if_locked)
    }

    /// A place in the queue for the row because of which the transaction stopped, if another one has that row locked.
    /// Under a protocol with locks of its own it cannot be read meanwhile.
    pub fn wait_for_conflict(&self, strength: LockStrength) -> Option<RowWait> {
        let cause = self.stopped.get()?;
        // Within it nobody ends the transaction, whose locks would be released before it has this one.
        let _call = self.call().ok()?;
        let info = self.conflict_info(cause)?;
        let (id, key) = (info.table?, info.key.clone()?);
        let set = self.inner.sets().into_iter().find(|set| set.primary.id == id)?;
        let (key, locks) = (key.as_key(), &self.inner.row_locks);
        if !self.explicit.get() || !locks.is_locked(set.position, key, strength) {
            return None;
        }
        let says = || self.row_in_words(&set, key);
        let row = row_name(set.position, key);
        match locks.lock(&self.lock_owner(), &row, strength, IfLocked::Wait, says, &self.deadline) {
            Ok(RowLock::Waits(wait)) => Some(wait),
            _ => None,
        }
    }

    fn row_in_words(&self, set: &TableSet, key: Key<'_>) -> String {
        format!("the row ({}) of table \"{}\"", set.primary.codec.describe(key), set.definition.name)
    }

    /// The number of its session among those of the database.
    pub fn session_number(&self) -> usize {
        self.session
    }

    /// Whether [`TxCore::lock_row_at`] can do more than nothing.
    pub fn minds_locks(&self) -> bool {
        self.explicit.get() || !self.inner.row_locks.is_empty()
    }

    fn lock_owner(&self) -> Arc<Owner> {
        let mut known = self.row_locks.borrow_mut();
        match &*known {
            Some(owner) if !owner.is_released() => Arc::clone(owner),
            _ => {
                let owner = self.inner.row_locks.owner(self.session, self.inner.environment.memory.charge());
                if let Some(parking) = &*self.parking.borrow() {
                    parking.hold_locks(Arc::clone(&owner));
                }
                Arc::clone(known.insert(owner))
            }
        }
    }

    /// The locks of an attempt that begins, if it is one of a transaction that has some.
    pub(super) fn locks_kept(&self) -> Option<Arc<Owner>> {
        self.row_locks.borrow().clone().filter(|owner| !owner.is_released())
    }

    /// Ends the attempt of an explicit transaction, which keeps its locks and its wait: the next attempt has them. It
    /// holds no worker until then.
    pub(crate) fn suspend(&mut self) {
        if let Ok(_call) = self.call()
            && let Some(parking) = &*self.parking.borrow()
        {
            drop(parking.take_locks());
        }
        self.roll_back(self.stopped.get());
        self.drop_kept();
    }

    /// Releases the locks of a transaction without an open attempt.
    pub(crate) fn unlock_rows(&self) {
        if let Some(owner) = self.row_locks.take() {
            owner.release();
        }
    }

    pub(super) fn rows_locked(&self) -> usize {
        self.row_locks.borrow().as_ref().map_or(0, |owner| owner.len())
    }

    pub(super) fn unlock_rows_from(&self, first: usize) {
        if let Some(owner) = &*self.row_locks.borrow() {
            owner.release_from(first);
        }
    }

    /// An abort that unwinds a statement which waits: nobody reports it, so it need not be certain.
    #[cold]
    pub fn unwind(&self) -> Abort {
        Abort::explained(AbortKind::User, TransactError::of(AbortKind::User))
    }

    /// Stops an explicit transaction if what it has read has changed for certain.
    ///
    /// # Errors
    /// It has; or the transaction has stopped.
    pub fn check_reads(&self) -> Result<(), Abort> {
        if let Some(cause) = self.stopped.get() {
            return Err(self.new_abort(AbortKind::Stopped(cause)));
        }
        let _call = self.call()?;
        match self.worker().validate() {
            // Whoever has locked it may release it unchanged.
            Err(OpError::Abort(cause)) if cause.reason != Reason::RecordLocked => Err(self.stop(cause)),
            _ => Ok(()),
        }
    }

    /// Whether an open attempt has done nothing that a new one would have to repeat.
    pub fn is_untouched(&self) -> bool {
        let has_operated = self.left.get() != self.stride.get() || self.operations.get() != 0;
        !has_operated && self.savepoints.borrow().is_empty() && self.changes.borrow().is_none()
    }
}
