//! Ending a session's transaction from another thread.
//!
//! The word that holds the end of the transaction's age is shared: to cancel is to make it lie in the past. So a
//! transaction looks at one word for both, and learns which it was afterwards.
//!
//! A session's canceller ends the transaction that runs, and not the next one. That of a call of an executor ends all
//! transactions of the call, also those that have not begun: while a session runs a call, no transaction takes back
//! that it was cancelled.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_txn::{Cause, Phase, Reason};

/// No time is before it.
const CANCELLED: u64 = 0;

/// No transaction has begun: every time is before it.
const NEVER: u64 = u64::MAX;

/// The first time, as the ticker counts it, at which an attempt that has not been decided is over.
#[derive(Debug, Default)]
pub(crate) struct Deadline {
    word: Arc<AtomicU64>,
    /// Whether the session runs a call of an executor.
    is_in_call: Cell<bool>,
}

impl Deadline {
    /// A call of an executor begins in this session. What was cancelled before does not concern it.
    pub(crate) fn begin_call(&self) {
        self.word.store(NEVER, Ordering::Relaxed);
        self.is_in_call.set(true);
    }

    /// The next transaction takes no notice of what was cancelled before: the call has left the session, or has an
    /// effect already.
    pub(crate) fn end_call(&self) {
        self.is_in_call.set(false);
    }

    /// Sets the last time at which an attempt may be open. Outside calls, the first of a transaction takes no notice of
    /// what was cancelled before.
    #[inline]
    pub(crate) fn set(&self, last: u64, is_first: bool) {
        // ORDERING: the word guards no other memory, here and below.
        let time = last.saturating_add(1);
        if is_first && !self.is_in_call.get() {
            self.word.store(time, Ordering::Relaxed);
            return;
        }
        let before = self.word.load(Ordering::Relaxed);
        if before != CANCELLED {
            // If this fails, the transaction was cancelled just now.
            let _ = self.word.compare_exchange(before, time, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The last time at which the attempt may be open; the earliest, if it was cancelled.
    pub(crate) fn last(&self) -> u64 {
        self.word.load(Ordering::Relaxed).saturating_sub(1)
    }

    #[inline(always)]
    pub(crate) fn is_over(&self, now: u64) -> bool {
        now >= self.word.load(Ordering::Relaxed)
    }

    /// Why the transaction ends, once it is over.
    #[cold]
    pub(crate) fn reason(&self) -> Reason {
        if self.word.load(Ordering::Relaxed) == CANCELLED { Reason::Cancelled } else { Reason::TooOld }
    }

    /// As [`Deadline::reason`], as the cause of an abort.
    #[cold]
    pub(crate) fn cause(&self) -> Cause {
        Cause { phase: Phase::Execute, reason: self.reason() }
    }

    pub(crate) fn canceller(&self) -> Canceller {
        Canceller(Arc::clone(&self.word))
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

    #[test]
    fn a_call_that_is_cancelled_before_its_transaction_begins_stays_so_and_the_next_call_does_not() {
        let deadline = Deadline::default();
        deadline.canceller().cancel();
        deadline.begin_call();
        deadline.set(7, true);
        assert!(!deadline.is_over(7) && deadline.is_over(8));
        deadline.canceller().cancel();
        deadline.set(9, true);
        assert!(deadline.is_over(1) && deadline.reason() == Reason::Cancelled);
        deadline.end_call();
        deadline.set(9, true);
        assert!(!deadline.is_over(9));
    }
}
