//! Ending a session's transaction from another thread.
//!
//! The word that holds the end of the transaction's age is shared: to cancel is to make it lie in the past. So a
//! transaction looks at one word for both, and learns which it was afterwards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use seriatim_txn::{Cause, Phase, Reason};

/// No time is before it.
const CANCELLED: u64 = 0;

/// The first time, as the ticker counts it, at which an attempt that has not been decided is over.
#[derive(Debug, Default)]
pub(crate) struct Deadline(Arc<AtomicU64>);

impl Deadline {
    /// Sets the last time at which an attempt may be open. The first of a transaction takes no notice of what was
    /// cancelled before.
    #[inline]
    pub(crate) fn set(&self, last: u64, is_first: bool) {
        // ORDERING: nothing else is told by it, here and below.
        let before = self.0.load(Ordering::Relaxed);
        let time = last.saturating_add(1);
        if is_first {
            self.0.store(time, Ordering::Relaxed);
        } else if before != CANCELLED {
            // If this fails, the transaction was cancelled just now.
            let _ = self.0.compare_exchange(before, time, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The last time at which the attempt may be open; the earliest, if it was cancelled.
    pub(crate) fn last(&self) -> u64 {
        self.0.load(Ordering::Relaxed).saturating_sub(1)
    }

    #[inline(always)]
    pub(crate) fn is_over(&self, now: u64) -> bool {
        now >= self.0.load(Ordering::Relaxed)
    }

    /// Why the transaction ends, once it is over.
    #[cold]
    pub(crate) fn reason(&self) -> Reason {
        if self.0.load(Ordering::Relaxed) == CANCELLED { Reason::Cancelled } else { Reason::TooOld }
    }

    /// As [`Deadline::reason`], as the cause of an abort.
    #[cold]
    pub(crate) fn cause(&self) -> Cause {
        Cause { phase: Phase::Execute, reason: self.reason() }
    }

    pub(crate) fn canceller(&self) -> Canceller {
        Canceller(Arc::clone(&self.0))
    }
}

/// Cancels the transactions of one session, from any thread: `Session::canceller`.
#[derive(Clone, Debug)]
pub struct Canceller(Arc<AtomicU64>);

impl Canceller {
    /// Cancels the transaction that the session runs now: it ends, without a trace, with
    /// [`TransactError::Cancelled`](crate::TransactError::Cancelled) at its next operation, its next look at what it
    /// waits for, or its next attempt. If none is running, or the decision is being made, nothing happens; a wait
    /// until the result is durable goes on. A chain of pieces of which one is visible goes on, too.
    pub fn cancel(&self) {
        self.0.store(CANCELLED, Ordering::Relaxed);
    }
}

/// Whether a call of an executor is cancelled, in whichever sessions it runs.
///
/// The lock orders a cancellation and the beginning of an attempt, which sets the session's deadline anew: one
/// that is cancelled before the attempt looks is found by it; one that is cancelled later finds the deadline set,
/// and replaces it.
#[derive(Debug, Default)]
pub(crate) struct Cancelled(Mutex<bool>);

impl Cancelled {
    /// Cancels the call, and the attempt in this session if there is one.
    pub(crate) fn cancel(&self, session: Option<&Canceller>) {
        let mut is_cancelled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *is_cancelled = true;
        session.into_iter().for_each(Canceller::cancel);
    }

    /// An attempt has begun in this session.
    pub(crate) fn begun(&self, session: impl FnOnce() -> Canceller) {
        let is_cancelled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_cancelled {
            session().cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cancelled_stays_so_in_all_attempts_of_the_transaction() {
        let deadline = Deadline::default();
        let at = |time| (deadline.is_over(time - 1), deadline.is_over(time), deadline.reason());
        deadline.set(7, true);
        assert_eq!((at(8), deadline.last()), ((false, true, Reason::TooOld), 7));
        deadline.set(9, false);
        assert_eq!(at(10), (false, true, Reason::TooOld));
        deadline.canceller().cancel();
        deadline.set(11, false);
        assert_eq!(at(1), (true, true, Reason::Cancelled));
        deadline.set(u64::MAX, true);
        assert_eq!(at(u64::MAX), (false, true, Reason::TooOld));
    }
}
