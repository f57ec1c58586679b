//! The error that an abort carries.

use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_catalog::KeyBuf;
use seriatim_txn::{Cause, ConflictInfo, Reason};

use crate::durability;
use crate::error::{Abort, AbortKind, Conflict, TransactError};

use super::TxCore;

impl TxCore {
    /// The error of a text without room: in memory, or in the log.
    #[cold]
    pub(crate) fn no_room(&self) -> TransactError {
        match self.too_large.borrow().clone() {
            Some((table, bytes, most)) => TransactError::TooLarge { table, bytes, most },
            None => {
                let own = self.open_lease().map(|lease| self.inner.pool.number(lease));
                let (held, free) = (self.inner.pool.holds_memory(self.clock.now(), own), self.inner.unusable_bytes());
                TransactError::OutOfMemory { held, free }
            }
        }
    }

    /// Why the log did not accept the commit.
    #[cold]
    pub(crate) fn log_refused(&self) -> TransactError {
        self.refusal.take().map_or_else(|| self.inner.log_stopped(), durability::refused)
    }

    /// Notes an attempt that stopped, the first or a later one. Returns how many of the attempts were refused because a
    /// table was being changed.
    pub(crate) fn refusals(&self, cause: Cause, attempts: u32) -> u32 {
        let (since, refusals) = self.refused.get().filter(|_| attempts > 1).unzip();
        let refusals = refusals.unwrap_or(0);
        let is_refused = cause.reason == Reason::TableChanging;
        let now = is_refused.then(|| (since.unwrap_or_else(Instant::now), refusals + 1));
        self.refused.set(now.or(since.zip(Some(refusals))));
        refusals
    }

    /// Whether attempts have been refused for longer than one may be open.
    pub(crate) fn is_refused_for_long(&self) -> bool {
        let age = Duration::from_nanos(self.opened.get().age);
        self.refused.get().is_some_and(|(since, _)| since.elapsed() >= age)
    }

    /// The place where an attempt stopped for this cause, if it is known. Called within a call.
    pub(super) fn conflict_info(&self, cause: Cause) -> Option<&ConflictInfo> {
        // A wait that was given up was for the conflict that the worker noted.
        let is_of = |info: &&ConflictInfo| info.cause == cause || cause.reason == Reason::WaitTimeout;
        self.worker().conflict_info().filter(is_of)
    }

    /// A conflict, with its table and key if they are known.
    pub(crate) fn conflict(&self, cause: Cause) -> Conflict {
        let call = self.open_lease().and_then(|_| self.call().ok());
        let Some(conflict_info) = call.and_then(|_call| self.conflict_info(cause).cloned()) else {
            return Conflict { cause, table: None, key: None };
        };
        let key = conflict_info.key.as_ref().map(KeyBuf::as_key);
        let (table, key) = conflict_info.table.map_or((None, None), |id| self.inner.describe(id, key));
        Conflict { cause, table, key }
    }

    /// The error that an abort of an explicit transaction carries. Can be called again.
    pub fn explain(&self, abort: &Abort) -> TransactError {
        match abort.is_explained() || abort.cause().is_some() {
            true => self.error_of(abort),
            // The caller's own arithmetic has no transaction that could have validated it.
            false => self.about(|| Abort::explained(abort.kind(), TransactError::of(abort.kind()))).into(),
        }
    }

    /// The error that an abort carries, outside the retry loop. Aborts that are no conflicts have been validated.
    pub(super) fn error_of(&self, abort: &Abort) -> TransactError {
        match abort.kind() {
            _ if abort.is_explained() => abort.clone().into(),
            AbortKind::Stopped(cause) => match cause.reason {
                Reason::OutOfMemory => self.no_room(),
                Reason::LogStopped => self.log_refused(),
                Reason::ConstraintViolated => self.found_violation(),
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
