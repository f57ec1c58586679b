//! An attempt that locks the rows that it accesses, for a transaction that has failed validation again and again.
//!
//! Algorithm. Before the attempt reads or writes a row, it reserves the row: it sets the RESERVED mark of the TID word
//! (rule 7 of [`record_header`](super::record_header)). Other transactions still read the row. A transaction
//! that wants to write it waits for a bounded number of steps and then aborts. The attempt removes its marks when it
//! ends. `htcc` makes the record hot instead, and takes its lock, which keeps readers away, too.
//!
//! Why it is serializable: a reservation adds no rule to the commit. The attempt validates like any other, and
//! so do the readers of a reserved row. They come before its commit if they find the row reserved and not locked.
//!
//! Why it commits: the words of reserved rows change only through the attempt itself, so their validation holds.
//! At most one attempt of a database reserves rows at a time (the engine has one turn), so none waits for another one.
//! Committers hold lock bits for a bounded time. Absent keys and ranges cannot be reserved. They are validated, and an
//! insertion there refutes the attempt. The engine therefore runs the transaction exclusively after
//! some attempts of this kind. Late sums of `dbx-tc` overwrite reserved rows, because their transactions are
//! partly published and cannot wait; they refute the attempt likewise.

use std::sync::atomic::Ordering;

use seriatim_base::Backoff;
use seriatim_base::thread::Touch;
use seriatim_catalog::Key;
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, Fault, OpError, Reason, RowPtr, Table};

use super::access_locks::{AccessLocks, AccessPurpose};
use super::optimistic::{Optimistic, Read};
use super::origin::Origin;
use super::record;
use super::record_header::{self, LOOKS_MAX, TidWord};
use super::writes::Write;

/// Sets the mark. Returns the word before; `None` if there is no row, or it is reserved already.
///
/// # Errors
/// The record stays locked.
pub(super) fn mark(core: &Core, table: &Table, record: RecordPtr) -> Result<Option<TidWord>, OpError> {
    if core.injects(Fault::ReserveNothing) {
        return Ok(None);
    }
    let header = record_header::tid_word(&table.record_layout, record);
    for _ in 0..LOOKS_MAX {
        let Some(word) = record_header::settled(table, record) else { continue };
        if word.is_absent() || word.is_reserved() {
            return Ok(None);
        }
        crate::step(Touch::Exchange, header);
        // ORDERING: as the lock of a commit; a region that read the word aborts.
        let exchange = || header.compare_exchange(word.0, word.reserved().0, Ordering::AcqRel, Ordering::Relaxed);
        if core.htm.outside(exchange).is_ok() {
            return Ok(Some(word));
        }
    }
    Err(OpError::execute(Reason::RecordLocked))
}

/// Removes the mark from a word that was `word` before it was set, unless a commit has replaced the version.
pub(super) fn unmark(core: &Core, table: &Table, record: RecordPtr, word: TidWord) {
    let header = record_header::tid_word(&table.record_layout, record);
    let mut backoff = Backoff::new();
    loop {
        crate::step(Touch::Exchange, header);
        // ORDERING: the version is the same: nothing is published.
        let exchange = || header.compare_exchange(word.reserved().0, word.0, Ordering::Relaxed, Ordering::Relaxed);
        match core.htm.outside(exchange) {
            // A commit that overwrites reserved rows holds it. If that commit is refuted, the word is as it was.
            Err(now) if now == word.reserved().locked().0 => {
                if !backoff.wait() {
                    backoff = Backoff::new();
                }
            }
            _ => return,
        }
    }
}

impl<O: Origin> Optimistic<O> {
    /// Reserves the row at `key` before the attempt accesses it.
    #[cold]
    #[inline(never)]
    pub(super) fn reserve_at(&mut self, table: &Table, key: Key<'_>) -> Result<(), OpError> {
        match self.base.find(table, key) {
            Ok(record) if self.base.writes.find(record).is_none() => self.reserve(table, record),
            _ => Ok(()),
        }
    }

    fn reserve(&mut self, table: &Table, record: RecordPtr) -> Result<(), OpError> {
        self.base.writes.undone.reserve_one().map_err(record::full)?;
        match self.locks.reserve(&mut self.base.core, table, record) {
            Ok(None) => Ok(()),
            Ok(Some(expected)) => {
                self.base.writes.undone.push(Write::reserved(table, record, expected, O::default()));
                Ok(())
            }
            Err(OpError::Abort(cause)) => Err(self.refused(table, record, cause.reason)),
            Err(full) => Err(full),
        }
    }

    /// Reserves the row that a scan has just read. Returns the row as it is now; `None` if it was deleted meanwhile.
    #[cold]
    #[inline(never)]
    pub(super) fn reserve_seen(&mut self, table: &Table, row: RowPtr) -> Result<Option<RowPtr>, OpError> {
        let seen = self.base.seen;
        let Some(record) = seen.record.filter(|_| !seen.own) else { return Ok(Some(row)) };
        self.reserve(table, record)?;
        // A record that was locked when it was read is not in the read set, and has not changed.
        let Some(read) = self.reads.last().filter(|read| read.record() == record && read.seen.tid() == seen.tid) else {
            return Ok(Some(row));
        };
        let tid = read.seen.tid();
        let (word, row_version, by) = self.look(table, record, AccessPurpose::Reading)?;
        let last = self.reads.len() - 1;
        self.reads[last] = Read::new(table, record, word, by);
        Ok(match (word.is_absent(), word.tid() == tid) {
            (true, _) => None,
            (false, true) => Some(row),
            (false, false) => Some(record::row_of(row_version)),
        })
    }

    /// A record was found with a word that is REMOVED: waits until no other attempt has reserved it, if this is
    /// needed for the access.
    #[cold]
    #[inline(never)]
    pub(super) fn look_reserved(
        &mut self,
        table: &Table,
        record: RecordPtr,
        access: AccessPurpose,
        (mut word, mut row_version): (TidWord, usize),
    ) -> Result<(TidWord, usize), OpError> {
        let mut backoff = Backoff::new();
        while word.is_reserved() {
            if self.bases.reserves || self.passes_reserved {
                return Ok((word, row_version));
            }
            if access == AccessPurpose::Reading {
                return Ok((word.unreserved(), row_version));
            }
            let found = if backoff.wait() { record_header::settled_version(table, record) } else { None };
            (word, row_version) = found.ok_or_else(|| self.refused(table, record, Reason::RecordLocked))?;
        }
        if O::Locks::is_removed(word) { Err(self.removed(table, record)) } else { Ok((word, row_version)) }
    }
}
