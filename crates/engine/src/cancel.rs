//! Ending a session's transaction from another thread.
//!
//! The word with the end of the transaction's age is shared: a cancellation moves that end into the past. So a
//! transaction checks one word, and learns the reason afterwards. The ticker ends in the same way what holds too much
//! memory: a snapshot, or a parked transaction.
//!
//! A session's canceller ends the transaction that runs, and not the next one. The canceller of an executor's call ends
//! all transactions of the call, also those that have not begun. While a session runs a call, no transaction revokes a
//! cancellation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use seriatim_txn::{Cause, Phase, Reason};

use crate::row_locks::{WaitEnd, WaitHandle};

/// The transaction was cancelled: no time is earlier.
const CANCELLED: u64 = 0;

/// A transaction that holds too much memory was ended. The ticker's time is later by then.
const HOLDS_MEMORY: u64 = 1;

/// The first time of the ticker at which an undecided attempt is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deadline(Arc<Shared>);

/// What a session and its cancellers share.
#[derive(Debug, Default)]
struct Shared {
    time: AtomicU64,
    /// The wait for a row lock, which a cancellation ends.
    wait: Mutex<Option<WaitHandle>>,
}

impl Deadline {
    /// Sets the last time at which an attempt may be open. The first attempt of a transaction ignores earlier
    /// cancellations.
    #[inline]
    pub(crate) fn set(&self, last: u64, is_first: bool) {
        // ORDERING: release pairs with the acquire in `end_if`. A cancellation publishes nothing else.
        let before = self.0.time.load(Ordering::Relaxed);
        let time = last.saturating_add(1).max(HOLDS_MEMORY + 1);
        if is_first {
            self.0.time.store(time, Ordering::Release);
        } else if before != CANCELLED {
            // If this fails, the transaction was cancelled just now.
            let _ = self.0.time.compare_exchange(before, time, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Ends the attempt as one that holds too much memory. `is_open` is called after the deadline was
    /// read. A later attempt of the session has set another deadline, and is not ended.
    pub(crate) fn end_if(&self, is_open: impl FnOnce() -> bool) {
        // ORDERING: pairs with the release in `set`. If a later attempt has set the deadline, `is_open` sees
        // that the earlier one is over.
        let before = self.0.time.load(Ordering::Acquire);
        if before > HOLDS_MEMORY && is_open() {
            let _ = self.0.time.compare_exchange(before, HOLDS_MEMORY, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Whether it is the deadline with this address.
    pub(crate) fn is_of(&self, address: usize) -> bool {
        self.address() == address
    }

    /// Distinguishes it from the deadlines of other live sessions.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    #[inline(always)]
    pub(crate) fn is_over(&self, now: u64) -> bool {
        now >= self.0.time.load(Ordering::Relaxed)
    }

    /// Why the transaction ends, once it is over.
    #[cold]
    pub(crate) fn reason(&self) -> Reason {
        match self.0.time.load(Ordering::Relaxed) {
            CANCELLED => Reason::Cancelled,
            HOLDS_MEMORY => Reason::HoldsMemory,
            _ => Reason::TooOld,
        }
    }

    /// As [`Deadline::reason`], as the cause of an abort.
    #[cold]
    pub(crate) fn cause(&self) -> Cause {
        Cause { phase: Phase::Execute, reason: self.reason() }
    }

    /// A cancellation ends this wait from now on. It ends at once if the transaction was cancelled.
    pub(crate) fn waits(&self, wait: WaitHandle) {
        *self.0.wait.lock().unwrap_or_else(PoisonError::into_inner) = Some(wait.clone());
        // ORDERING: the mutex. A cancellation that took it before has stored the time; a later one finds the wait.
        if self.0.time.load(Ordering::Relaxed) == CANCELLED {
            wait.end(WaitEnd::Cancelled);
        }
    }

    /// Nobody waits any more.
    pub(crate) fn forget_wait(&self, wait: &WaitHandle) {
        let mut known = self.0.wait.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_some_and(|known| known.is(wait)) {
            *known = None;
        }
    }

    pub(crate) fn canceller(&self) -> Canceller {
        Canceller(Arc::clone(&self.0))
    }
}

/// Cancels the transactions of one session, from any thread: `Session::canceller`.
#[derive(Clone, Debug)]
pub struct Canceller(Arc<Shared>);

impl Canceller {
    /// Cancels the transaction that the session runs now. It ends without effects, with
    /// [`TransactError::Cancelled`](crate::TransactError::Cancelled). It notices at its next operation (within 32
    /// operations of a procedure), at the next check of a wait, or at its next attempt. Nothing happens if no
    /// transaction is running, or if it is being decided. A wait until the result is durable continues. A chain of
    /// pieces continues if one piece is visible.
    pub fn cancel(&self) {
        self.0.time.store(CANCELLED, Ordering::Relaxed);
        let wait = self.0.wait.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(wait) = wait {
            wait.end(WaitEnd::Cancelled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_transaction_stays_cancelled_in_all_attempts() {
        let deadline = Deadline::default();
        let at = |time| (deadline.is_over(time - 1), deadline.is_over(time), deadline.reason());
        deadline.set(7, true);
        assert_eq!(at(8), (false, true, Reason::TooOld));
        deadline.set(9, false);
        assert_eq!(at(10), (false, true, Reason::TooOld));
        deadline.canceller().cancel();
        deadline.set(11, false);
        assert_eq!(at(1), (true, true, Reason::Cancelled));
        deadline.end_if(|| true);
        assert_eq!(at(1), (true, true, Reason::Cancelled), "what was cancelled stays cancelled");
        deadline.set(u64::MAX, true);
        assert_eq!(at(u64::MAX), (false, true, Reason::TooOld));
    }

    #[test]
    fn a_snapshot_is_ended_unless_another_attempt_has_begun() {
        let deadline = Deadline::default();
        deadline.set(7, true);
        deadline.end_if(|| false);
        assert!(!deadline.is_over(7));
        deadline.end_if(|| {
            deadline.set(9, true);
            true
        });
        assert!(!deadline.is_over(9), "it is of the next attempt");
        deadline.end_if(|| true);
        assert_eq!((deadline.is_over(1), deadline.reason()), (true, Reason::HoldsMemory));
    }
}
