//! What an abort stands for.

use seriatim_catalog::KeyBuf;
use seriatim_txn::{Cause, ConflictInfo, Reason, Worker};

use crate::durability;
use crate::error::{Abort, AbortKind, Conflict, TransactError};

use super::TxCore;

impl<W: Worker + ?Sized> TxCore<W> {
    /// A text found no place: in memory, or in the log.
    #[cold]
    pub(crate) fn no_room(&self) -> TransactError {
        match self.too_large.borrow().clone() {
            Some((table, bytes, most)) => TransactError::TooLarge { table, bytes, most },
            None => {
                let own = self.lease.get().map(|lease| lease.slot);
                let (held, free) = (self.inner.pool.holds_memory(self.clock.now(), own), self.inner.unusable_bytes());
                TransactError::OutOfMemory { held, free }
            }
        }
    }

    /// Why the log did not take the commit.
    #[cold]
    pub(crate) fn log_refused(&self) -> TransactError {
        self.refusal.take().map_or_else(|| self.inner.log_stopped(), durability::refused)
    }

    /// Where an attempt stopped for this cause, if that is known. Within a call.
    pub(super) fn conflict_info(&self, cause: Cause) -> Option<&ConflictInfo> {
        // A wait that was given up was for what the worker noted.
        let is_of = |info: &&ConflictInfo| info.cause == cause || cause.reason == Reason::WaitTimeout;
        self.worker().conflict_info().filter(is_of)
    }

    /// A conflict with what is known of its place.
    pub(crate) fn conflict(&self, cause: Cause) -> Conflict {
        let call = self.lease.get().and_then(|_| self.call().ok());
        let Some(conflict_info) = call.and_then(|_call| self.conflict_info(cause).cloned()) else {
            return Conflict { cause, table: None, key: None };
        };
        let key = conflict_info.key.as_ref().map(KeyBuf::as_key);
        let (table, key) = conflict_info.table.map_or((None, None), |id| self.inner.describe(id, key));
        Conflict { cause, table, key }
    }

    /// What an abort stands for, outside the retry loop. It may be asked for again.
    pub fn error_of(&self, abort: &Abort) -> TransactError {
        match abort.kind() {
            _ if abort.is_explained() => abort.clone().into(),
            AbortKind::Stopped(cause) => match cause.reason {
                Reason::OutOfMemory => self.no_room(),
                Reason::LogStopped => self.log_refused(),
                Reason::OtherPartition | Reason::NoPartition => TransactError::partition(self.conflict(cause)),
                reason if reason.is_conflict() => {
                    TransactError::Conflict { last: self.conflict(cause), attempts: self.attempt.get() }
                }
                _ => TransactError::of(abort.kind()),
            },
            kind => TransactError::of(kind),
        }
    }
}
